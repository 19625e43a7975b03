// What fits into memory, for `info`: by the plans that a run itself goes by (run_bytes, largest_batch in settings.h),
// so that it can be known for a GPU that is not here.
#pragma once
#include "settings.h"

enum { NUM_KEEPS = 3, NUM_MEMORY_SIZES = 5, NUM_TABLE_MODELS = 4 };
typedef struct {
    Keep keep;
    const char* name;
} KeepName;
static const KeepName KEEPS[NUM_KEEPS] = {{KEEP_ALL, "none"}, {RECOMPUTE_GELU, "gelu"}, {RECOMPUTE_ALL, "all"}};
static const int MEMORY_GB[NUM_MEMORY_SIZES] = {8, 16, 24, 40, 80}; // of GPUs that are common
static const char* const TABLE_MODELS[NUM_TABLE_MODELS] = {"gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"};

static inline double mib_of(size_t bytes) { return (double)bytes / 1048576; }

// A line of the plan, whose part is bytes[k] under KEEPS[k]; none if it is next to nothing.
static inline void print_memory_line(const char* what, const size_t bytes[NUM_KEEPS]) {
    if (bytes[0] <= (size_t)1 << 16 && bytes[NUM_KEEPS - 1] <= (size_t)1 << 16) { return; }
    printf("  %-28s", what);
    for (int k = 0; k < NUM_KEEPS; k++) { printf(" %10.1f", mib_of(bytes[k])); }
    putchar('\n');
}

// What a run of --batch_size and --seq_len takes, part by part, under each --recompute; and what a sequence more in the
// batch would.
static inline void print_memory(const GPT2Config* m, const Config* c, Comm* comm) {
    const int B = (int)c->batch_size, T = (int)c->seq_len;
    GPT2 g[NUM_KEEPS], next;
    MemoryLine line[NUM_KEEPS][MEMORY_LINES];
    size_t part[NUM_KEEPS], all[NUM_KEEPS], more[NUM_KEEPS];
    printf("\nMiB to train in %s with --batch_size %d --seq_len %d%s and --recompute\n  %-28s", c->dtype, B, T,
           sharers_of(c, comm) && comm->size > 1 ? format(" --zero 1 --gpus %d", comm->size) : "", "");
    for (int k = 0; k < NUM_KEEPS; k++) {
        gpt2_layout(&g[k], m, B, T, KEEPS[k].keep);
        gpt2_layout(&next, m, B + 1, T, KEEPS[k].keep);
        gpt2_share(&g[k], sharers_of(c, comm));
        gpt2_share(&next, sharers_of(c, comm));
        gpt2_memory(&g[k], line[k]);
        all[k] = run_bytes(&g[k], c);
        more[k] = run_bytes(&next, c) - all[k];
        printf(" %10s", KEEPS[k].name);
    }
    putchar('\n');
    for (int i = 0; i < MEMORY_LINES; i++) {
        for (int k = 0; k < NUM_KEEPS; k++) { part[k] = line[k][i].bytes; }
        print_memory_line(line[0][i].what, part);
    }
    for (int k = 0; k < NUM_KEEPS; k++) { part[k] = all[k] - gpt2_bytes(&g[k]); }
    print_memory_line("operations, samples, a margin", part);
    print_memory_line("in all", all);
    print_memory_line("a sequence more", more);
}

// The largest batch of a model under each --recompute, on devices of MEMORY_GB and, if `here` is not 0, in so many
// bytes.
static inline void print_batches(const char* name, const GPT2Config* m, const Config* c, Comm* comm, size_t here) {
    const int T = c->seq_len ? (int)c->seq_len : m->max_seq_len;
    for (int k = 0; k < NUM_KEEPS; k++) {
        printf("  %-16s %-9s", name, KEEPS[k].name);
        for (int i = 0; i < NUM_MEMORY_SIZES + (here != 0); i++) {
            const size_t bytes =
                i < NUM_MEMORY_SIZES ? device_memory_usable((size_t)MEMORY_GB[i] << 30) : here;
            const int B = largest_batch(c, m, MAX_BATCH, T, KEEPS[k].keep, sharers_of(c, comm), bytes);
            if (B) { printf(" %8d", B); }
            else { printf(" %8s", "-"); }
        }
        putchar('\n');
    }
}

static inline void print_batches_heading(const Config* c, const Comm* comm, size_t here) {
    printf("\nthe largest --batch_size that fits, in %s", c->dtype);
    if (c->seq_len) { printf(" with --seq_len %lld", c->seq_len); }
    if (comm->size > 1 && !strcmp(c->zero, "1")) { printf(" with --zero 1 --gpus %d", comm->size); }
    printf(", at most %d, on a device that does nothing else:\n  %-16s %-9s", MAX_BATCH, "--model", "recompute");
    for (int i = 0; i < NUM_MEMORY_SIZES; i++) { printf(" %5d GB", MEMORY_GB[i]); }
    printf("%s\n", here ? "     here" : "");
}

// For --model all.
static inline void print_batches_of_all(const Config* c, Comm* comm, size_t here) {
    Error err;
    GPT2Config m;
    print_batches_heading(c, comm, here);
    for (int i = 0; i < NUM_TABLE_MODELS; i++) {
        if (!model_parse(TABLE_MODELS[i], c->pad_vocab, &m, &err)) { fatal("%s", err.text); }
        if (c->seq_len > m.max_seq_len) {
            usage_error("--seq_len %lld: %s has only %d positions", c->seq_len, TABLE_MODELS[i], m.max_seq_len);
        }
        print_batches(TABLE_MODELS[i], &m, c, comm, here);
    }
}
