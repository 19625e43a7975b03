#include "commands.h"
#include "../base/json.h"
#include "../data/dataset.h"
#include "../train/plan.h"
#include "../train/weights.h"

// ---------------------------------------------------------------------------------------------------------------------
// tensors

static void print_tensors(const TensorTable* table) {
    printf("%-10s %-28s %4s %14s %7s %14s\n", "tensor", "in files", "of", "shape", "decays", "elements");
    for (int i = 0; i < table->count; i++) {
        const Tensor* t = &table->row[i];
        char shape[32], name[64];
        snprintf(name, sizeof name, "%s%s", t->repeat == EACH ? "h.%d." : "", t->hf_name);
        if (tensor_is_matrix(t)) { snprintf(shape, sizeof shape, "%zu x %zu", t->rows, t->cols); }
        else { snprintf(shape, sizeof shape, "%zu", t->cols); }
        printf("%-10s %-28s %4d %14s %7s %14zu\n", t->name, name, t->layers, shape,
               tensor_decays(t) ? "yes" : "no", (size_t)t->layers * t->used_rows * t->cols);
    }
    const TensorCounts n = tensors_count(table);
    printf("\ndecayed: %zu tensors, %zu parameters\nnot decayed: %zu tensors, %zu parameters\n", n.decayed.tensors,
           n.decayed.elements, n.others.tensors, n.others.elements);
    printf("parameters: %zu, in memory with padding: %zu\n", n.decayed.elements + n.others.elements, table->size);
}

// ---------------------------------------------------------------------------------------------------------------------
// memory

enum { NUM_KEEPS = recompute_all + 1 }; // a column for each --recompute
static const int MEMORY_GB[] = {8, 16, 24, 40, 80}; // of common GPUs
enum { NUM_MEMORY_SIZES = sizeof MEMORY_GB / sizeof *MEMORY_GB };

// Prints a line of the memory table, bytes[k] being its part under --recompute k; skips parts below 64 KiB.
static void print_memory_line(const char* what, const size_t bytes[NUM_KEEPS]) {
    const size_t least = (size_t)1 << 16;
    if (bytes[0] <= least && bytes[NUM_KEEPS - 1] <= least) { return; }
    printf("  %-28s", what);
    for (int k = 0; k < NUM_KEEPS; k++) { printf(" %10.1f", in_mib(bytes[k])); }
    putchar('\n');
}

// Prints the options of ZeRO if several ranks shard the optimizer's state.
static void print_ranks(const Plan* p) {
    if (p->shards > 1) { printf(" --zero 1 --gpus %d", p->shards); }
}

// Prints the MiB that training takes, part by part, under each --recompute, and the MiB that one more sequence in the
// micro-batch would add.
static void print_memory(const Plan* p) {
    PlanMemory memory[NUM_KEEPS];
    size_t part[NUM_KEEPS], rest[NUM_KEEPS], all[NUM_KEEPS], more[NUM_KEEPS];
    printf("\nMiB to train in %s%s with --batch_size %d --seq_len %d", dtype_names[p->dtype],
           residual_note(p->backend), p->B, p->T);
    print_ranks(p);
    printf(" and --recompute\n  %-28s", "");
    for (int k = 0; k < NUM_KEEPS; k++) {
        Plan plan = *p;
        plan.keep = keep_of((enum recompute)k);
        memory[k] = plan_memory(&plan);
        all[k] = memory[k].device;
        rest[k] = all[k] - memory[k].of_lines;
        plan.B++;
        more[k] = plan_bytes(&plan) - all[k];
        printf(" %10s", recompute_names[k]);
    }
    putchar('\n');
    for (int i = 0; i < PLAN_MEMORY_LINES; i++) {
        for (int k = 0; k < NUM_KEEPS; k++) { part[k] = memory[k].line[i].bytes; }
        if (!memory[0].line[i].in_host) { print_memory_line(memory[0].line[i].what, part); }
    }
    print_memory_line("operations, samples, a margin", rest);
    print_memory_line(p->place == STATE_IN_HOST ? "in all, on the device" : "in all", all);
    print_memory_line("a sequence more", more);
    for (int k = 0; k < NUM_KEEPS; k++) { part[k] = memory[k].state; }
    print_memory_line("masters, moments on the host", part);
}

// Prints the largest batch under each --recompute in 8 to 80 GB of memory and, if `here` is not 0, in `here` bytes.
static void print_batches(const Plan* p, size_t here) {
    for (int k = 0; k < NUM_KEEPS; k++) {
        Plan plan = *p;
        plan.keep = keep_of((enum recompute)k);
        printf("  %-16s %-9s", p->model, recompute_names[k]);
        for (int i = 0; i < NUM_MEMORY_SIZES + (here != 0); i++) {
            const bool is_here = i == NUM_MEMORY_SIZES;
            const size_t bytes = is_here ? here : p->backend->device_memory_usable((size_t)MEMORY_GB[i] << 30);
            const int B = largest_batch(&plan, MAX_AUTO_BATCH, bytes);
            if (B) { printf(" %8d", B); }
            else { printf(" %8s", "-"); }
        }
        putchar('\n');
    }
}

// Prints the least memory of a GPU with which a model trains, with and without --offload optimizer.
static void print_least(const Plan* p) {
    Plan plan = *p;
    plan.keep = RECOMPUTE_ALL;
    plan.B = 1;
    plan.place = STATE_ON_DEVICE;
    const double without = plan_least_gb(&plan);
    plan.place = STATE_IN_HOST;
    printf("  %-16s %14.1f %11.1f %13.1f\n", p->model, without, plan_least_gb(&plan),
           (double)plan_memory(&plan).state / ((size_t)1 << 30));
}

static void print_least_heading(const Plan* p) {
    printf("\nthe least GB of a GPU's memory, in %s%s with --batch_size 1 --seq_len %d --recompute all",
           dtype_names[p->dtype], residual_note(p->backend), p->T);
    print_ranks(p);
    printf(":\n  %-16s %14s %11s %13s\n", "--model", "--offload none", "optimizer", "(on the host)");
}

static void print_batches_heading(const Plan* p, size_t here) {
    printf("\nthe largest --batch_size that fits, in %s%s with --seq_len %d", dtype_names[p->dtype],
           residual_note(p->backend), p->T);
    print_ranks(p);
    printf(", at most %d, %s:\n  %-16s %-9s", MAX_AUTO_BATCH,
           p->backend->is_host ? "in so much memory of a CPU (of a GPU: train_gpt2cu info)"
                               : "on a device that does nothing else",
           "--model", "recompute");
    for (int i = 0; i < NUM_MEMORY_SIZES; i++) { printf(" %5d GB", MEMORY_GB[i]); }
    printf("%s\n", here ? "     here" : "");
}

// Prints the memory plan, and says if it does not fit into `here`, the free bytes of this machine's device; 0: none.
static void print_plans(const Plan* p, size_t here) {
    print_memory(p);
    if (here) {
        const char* remark = plan_bytes(p) > here ? ": too little for this" : "";
        printf("  available here: %.1f MiB%s\n", in_mib(here), remark);
    }
    print_batches_heading(p, here);
    print_batches(p, here);
    if (p->backend->is_host) { return; }
    print_least_heading(p);
    print_least(p);
}

// --model all: the largest batches of GPT-2's sizes and, on a GPU, the least memory.
static void print_all_models(const Config* c, const Backend* b, enum dtype dtype, size_t here) {
    static const char* const models[] = {"gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"};
    enum { NUM_MODELS = sizeof models / sizeof *models };
    Error err;
    Plan plan[NUM_MODELS];
    for (int i = 0; i < NUM_MODELS; i++) {
        Config one = *c; // one model of "all"
        one.model = models[i];
        if (!plan_make(&plan[i], b, dtype, &one, NULL, &err)) { usage_error("%s", err.text); }
    }
    print_batches_heading(&plan[0], here);
    for (int i = 0; i < NUM_MODELS; i++) { print_batches(&plan[i], here); }
    if (b->is_host) { return; }
    print_least_heading(&plan[0]);
    for (int i = 0; i < NUM_MODELS; i++) { print_least(&plan[i]); }
}

// ---------------------------------------------------------------------------------------------------------------------
// token files

// Reads every token of the files that an option names; false if one is damaged.
static bool verify_files(const char* option, const char* patterns, const Plan* p) {
    Error err;
    Dataset data;
    const int T = p->T, vocab_size = p->shape.vocab_size;
    if (!dataset_open(&data, option, patterns, p->data.header, T, INT32_MAX, &err)) { fatal("%s", err.text); }
    data.vocab_size = vocab_size; // only now: an id beyond it is damage, wherever it lies in a file
    for (int i = 0; i < data.num_files; i++) {
        bool has_sum;
        if (!dataset_check_file(&data, i, &err) || !shard_verify_sum(data.files[i].path, &has_sum, &err)) {
            notice("error: %s", err.text);
            return false;
        }
        print_result("%s: %zu tokens, all below %d; %s\n", data.files[i].path, data.files[i].num_tokens, vocab_size,
                     has_sum ? "its checksum is right" : "it has no checksum");
    }
    printf("%s: %zu tokens in %d file%s, %llu window%s of %d\n", option, (size_t)data.num_tokens, data.num_files,
           plural((uint64_t)data.num_files), (unsigned long long)data.num_windows, plural(data.num_windows), T);
    dataset_close(&data);
    return true;
}

// ---------------------------------------------------------------------------------------------------------------------
// the command

int info_command(Config* c, const Backend* b, enum dtype dtype) {
    Error err;
    Plan plan;
    Comm alone = comm_alone();
    const char* folder = init_folder(c);
    const bool train = config_source(c, "train_data") >= FROM_FILE, val = config_source(c, "val_data") >= FROM_FILE;
    preset_apply(c);
    if (!config_check_needs(c, INFO, &err)) { usage_error("%s", err.text); }
    const bool is_here = b->device_exists();
    const DeviceOptions options = device_options(c, dtype);
    if (is_here) { open_device(b, &options, &alone); }
    else { notice("there is no GPU here: its free memory is left out"); }
    const size_t here = is_here ? b->device_memory_available() : 0;
    if (!strcmp(c->model, "all")) {
        print_all_models(c, b, dtype, here);
        return EXIT_DONE;
    }
    if (!is_here && !c->batch_size) { usage_error("--batch_size auto: there is no GPU here; give a number"); }
    if (!plan_make(&plan, b, dtype, c, folder, &err) || !plan_check_effects(&plan, c, &err) ||
        !plan_batch(&plan, &alone, &err)) {
        usage_error("%s", err.text);
    }
    const GPT2Config* m = &plan.shape;
    if (train || val) {
        const bool ok = (!train || verify_files("--train_data", plan.data.train, &plan)) &&
                        (!val || verify_files("--val_data", plan.data.val, &plan));
        return ok ? EXIT_DONE : EXIT_CHECK_FAILED;
    }
    print_result("%s: L=%d H=%d C=%d T=%d V=%d\n\n", folder ? folder : plan.model, m->num_layers, m->num_heads,
                 m->channels, m->max_seq_len, m->vocab_size);
    const TensorTable table = gpt2_params_table(m, 1);
    print_tensors(&table);
    print_plans(&plan, here);
    return EXIT_DONE;
}
