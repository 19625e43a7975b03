// A tiny model for the tests of files, on the generic CPU backend in fp32, and folders to put it into.
#pragma once
#include "llmc/train/backends.h"
#include "llmc/base/json.h"
#include "llmc/model/optimizer.h"
#include "llmc/base/rng.h"
#include "test/test.h"

enum { L = 2, NH = 2, C = 8, MAX_T = 6, V = 11, PADDED_V = 128 };

// The model and its optimizer, which knows the model's address.
typedef struct {
    GPT2 g;
    Optimizer o;
} Model;

static inline Model* open_model(int channels) {
    const GPT2Config shape = {.max_seq_len = MAX_T,
                              .vocab_size = V,
                              .padded_vocab_size = PADDED_V,
                              .num_layers = L,
                              .num_heads = NH,
                              .channels = channels};
    const DeviceOptions options = {.threads = 1, .fused = true, .flash = true};
    const Backend* b = find_cpu_backend(dtype_fp32, cpu_generic);
    if (!b) { fatal("there is no generic backend"); }
    b->device_open(&options);
    Model* m = alloc_or_die(1, sizeof *m, "a model");
    gpt2_layout(&m->g, b, &shape, 1, MAX_T, KEEP_ALL, 1);
    gpt2_alloc(&m->g);
    optimizer_alloc(&m->o, &m->g, OPTIMIZER_ADAMW, STATE_ON_DEVICE, NULL);
    return m;
}

static inline void close_model(Model* m) {
    optimizer_free(&m->o);
    gpt2_free(&m->g);
    free(m);
}

// Sets every weight to a multiple of 1/16 between -2 and 2: a number that fp16 and bf16 hold exactly.
static inline void fill_weights(Model* m) {
    for (int i = 0; i < m->g.params_table.count; i++) {
        const Tensor* t = &m->g.params_table.row[i];
        for (int l = 0; l < t->layers; l++) {
            float* x = m->o.masters + tensor_at(t, l);
            for (size_t j = 0; j < t->used_rows * t->cols; j++) {
                x[j] = (float)((int)(rng_u64((uint64_t)i, RNG_TEST, (uint64_t)l << 32 | j) % 65) - 32) / 16.0f;
            }
        }
    }
}

static inline bool same_weights(const Model* a, const Model* b) {
    return !memcmp(a->o.masters, b->o.masters, a->g.params_table.size * sizeof(float));
}

// ---------------------------------------------------------------------------------------------------------------------
// folders; the caller frees the paths that functions return

static inline char* below(const char* folder, const char* name) { return format("%s/%s", folder, name); }

static inline void make_folder(const char* out, const char* name) {
    Error err;
    char* path = below(out, name);
    if (!make_directories(path, &err)) { fatal("%s", err.text); }
    free(path);
}

// Makes a new folder below this program's test folder and returns its path.
static inline char* new_folder(void) {
    static int count;
    char name[16];
    snprintf(name, sizeof name, "%d", count++);
    make_folder(test_folder, name);
    return below(test_folder, name);
}

static inline void write_text(const char* folder, const char* name, const char* text) {
    char* path = below(folder, name);
    test_write(path, text, strlen(text));
    free(path);
}

static inline void write_json(const char* folder, const char* name, const json_t* value) {
    Error err;
    char* path = below(folder, name);
    if (!json_save(value, path, &err)) { fatal("%s", err.text); }
    free(path);
}
