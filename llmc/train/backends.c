#include "backends.h"
#include "../cpu/processor.h"
#include "../files/checkpoint.h"

// The fastest first. The symbols are weak, because a program is linked with only some of them: train_gpt2 with the
// CPU's; train_gpt2cu with the GPU's and with the CPU's in fp32, the references of `check`. A missing one has the
// address NULL.
#define GPU_BACKENDS(_) _(cuda_bf16) _(cuda_fp16) _(cuda_fp32)
#define CPU_BACKENDS(_)                                                                               \
    _(cpu_fp32_avx512) _(cpu_fp32_avx2) _(cpu_fp32_generic)                                           \
    _(cpu_bf16_amx) _(cpu_bf16_avx512_bf16) _(cpu_bf16_avx512) _(cpu_bf16_avx2) _(cpu_bf16_generic)   \
    _(cpu_fp16_avx512) _(cpu_fp16_avx2) _(cpu_fp16_generic)
#define DECLARE_BACKEND(name) extern const Backend name __attribute__((weak));
#define ADDRESS_OF_BACKEND(name) &name,
GPU_BACKENDS(DECLARE_BACKEND)
CPU_BACKENDS(DECLARE_BACKEND)
static const Backend* const backends[] = {GPU_BACKENDS(ADDRESS_OF_BACKEND) CPU_BACKENDS(ADDRESS_OF_BACKEND)};
enum { NUM_BACKENDS = sizeof backends / sizeof *backends };

// Every function of the table is in one of backend.h's lists: an object file would leave another one NULL.
#define NUMBER_OF(function) NUMBER_OF_##function
enum { RESIDUAL_FUNCTIONS(NUMBER_OF), BACKEND_FUNCTIONS(NUMBER_OF), GPU_FUNCTIONS(NUMBER_OF), NUM_FUNCTIONS };
_Static_assert(offsetof(Backend, encoder_forward) + NUM_FUNCTIONS * sizeof(void (*)(void)) == sizeof(Backend),
               "a function of Backend is missing in RESIDUAL_FUNCTIONS, BACKEND_FUNCTIONS and GPU_FUNCTIONS");

bool program_has_gpu(void) { return &cuda_fp32 != NULL; }

int list_backends(const Backend* list[MAX_BACKENDS]) {
    int count = 0;
    for (int i = 0; i < NUM_BACKENDS; i++) {
        if (backends[i]) { list[count++] = backends[i]; }
    }
    return count;
}

// Returns true if the next lower level is faster on this processor. AVX512_BF16 has half the speed of fp32's
// instructions on some processors and twice on others, so both are timed, in turn, the best of ten: so that repeated
// starts choose the same on a busy machine. For the same reason AVX512_BF16 has to be faster by 20% (both chosen, not
// measured).
static bool lower_level_is_faster(const Backend* b) {
    enum { ROUNDS = 10 };
    const double margin = 1.2;
    double own = 0, lower = 0;
    if (strcmp(b->level, "avx512_bf16") || !&cpu_bf16_avx512) { return false; }
    for (int i = 0; i < ROUNDS; i++) {
        own = fmax(own, b->device_kernel_flops());
        lower = fmax(lower, cpu_bf16_avx512.device_kernel_flops());
    }
    return own < margin * lower;
}

enum dtype dtype_of_storage(const Backend* b) { return (enum dtype)choice_find(dtype_names, b->storage); }

// Returns true if a backend is linked in, is a CPU's (is_host) or a GPU's, has this storage type, and can run here.
static bool fits(const Backend* b, bool is_host, enum dtype storage) {
    return b && b->is_host == is_host && dtype_of_storage(b) == storage && (!is_host || processor_has(b->level));
}

const Backend* find_cpu_backend(enum dtype storage, enum cpu cpu) {
    for (int i = 0; i < NUM_BACKENDS; i++) {
        const Backend* b = backends[i];
        if (!fits(b, true, storage)) { continue; }
        if (cpu == cpu_auto ? !lower_level_is_faster(b) : !strcmp(b->level, cpu_names[cpu])) { return b; }
    }
    return NULL;
}

enum dtype storage_of_dtype(enum dtype dtype) {
    switch (dtype) {
    case dtype_tf32: return dtype_fp32;
    case dtype_fp8: return dtype_bf16;
    default: return dtype;
    }
}

// Returns the storage type of --dtype auto on GPUs. Without a GPU (`info`, `bench step`) that is bf16.
static enum dtype automatic_gpu_storage(void) {
    const DeviceOptions options = {.local_rank = 0};
    const bool lacks_bf16 = &cuda_bf16 && cuda_bf16.device_exists() && cuda_bf16.device_lacks(&options);
    return lacks_bf16 ? dtype_fp16 : dtype_bf16;
}

const Backend* find_backend(enum dtype dtype, enum cpu cpu) {
    const bool is_auto = dtype == dtype_auto;
    if (!program_has_gpu()) {
        const bool is_of_gpus = dtype == dtype_tf32 || dtype == dtype_fp8;
        return is_of_gpus ? NULL : find_cpu_backend(is_auto ? dtype_fp32 : storage_of_dtype(dtype), cpu);
    }
    const enum dtype storage = is_auto ? automatic_gpu_storage() : storage_of_dtype(dtype);
    for (int i = 0; i < NUM_BACKENDS; i++) {
        if (fits(backends[i], false, storage)) { return backends[i]; }
    }
    return NULL;
}

// Ends the program with the values that --dtype or --cpu can have here.
static void ATTR_NORETURN no_backend(const Config* c) {
    if (c->dtype == dtype_q8_0) { usage_error("--dtype q8_0 is for the files of export gguf; give auto or bf16"); }
    if (c->dtype == dtype_tf32 || c->dtype == dtype_fp8) {
        usage_error("--dtype %s is for GPUs; on a CPU give fp32, bf16 or fp16", dtype_names[c->dtype]);
    }
    if (program_has_gpu()) {
        usage_error("--dtype %s: this program was built without its kernels", dtype_names[c->dtype]);
    }
    char names[128] = "auto";
    const enum dtype storage = c->dtype == dtype_auto ? dtype_fp32 : storage_of_dtype(c->dtype);
    for (int i = 0; i < NUM_BACKENDS; i++) {
        if (!fits(backends[i], true, storage)) { continue; }
        snprintf(names + strlen(names), sizeof names - strlen(names), ", %s", backends[i]->level);
    }
    usage_error("--cpu %s: not on this processor, not in this build, or not for --dtype %s; there are: %s",
                cpu_names[c->cpu], dtype_names[storage], names);
}

const Backend* with_residual(const Backend* b, enum residual residual, enum dtype dtype) {
    if (residual == residual_fp32) { return b; }
    if (b->with_bf16_residual) { return b->with_bf16_residual; }
    usage_error("--residual %s: the residual stream can be in bf16 where activations are, and --dtype %s stores them "
                "in %s: give --dtype bf16, or leave --residual out", residual_names[residual], dtype_names[dtype],
                b->storage);
}

// Returns the choice that the run being resumed has at object.key of its state (checkpoint_saved_text); -1 if it has
// none, or one that this program does not know.
static int saved_choice(const Config* c, const char* object, const char* key, const char* const* names) {
    char* text = checkpoint_saved_text(c->out, c->resume, object, key);
    const int choice = choice_find(names, text);
    free(text);
    return choice;
}

// Returns b with the run's residual stream: as given or, in a resumed run, as saved.
static const Backend* choose_residual(const Backend* b, const Config* c, enum dtype dtype) {
    const bool is_given = config_source(c, "residual") > FROM_DEFAULT;
    const int saved = is_given ? -1 : saved_choice(c, "options", "residual", residual_names);
    return with_residual(b, saved < 0 ? c->residual : (enum residual)saved, dtype);
}

// Returns the level that the run being resumed has been computed at or, if it has no checkpoint yet, the level that it
// was given; -1: there is no such run.
static int saved_level(const Config* c) {
    const int level = saved_choice(c, "kernels", "cpu", cpu_names);
    return level < 0 ? saved_choice(c, "options", "cpu", cpu_names) : level;
}

// Returns find_backend(dtype, level) if there is one, else find_backend(dtype, cpu); level -1: there is none.
static const Backend* find_at_level(enum dtype dtype, enum cpu cpu, int level) {
    const Backend* b = level < 0 ? NULL : find_backend(dtype, (enum cpu)level);
    return b ? b : find_backend(dtype, cpu);
}

// A resumed run keeps its precision and level, unless this start names others. Levels are then not timed.
const Backend* choose_backend(const Config* c, enum dtype* dtype) {
    const bool is_auto = c->dtype == dtype_auto, keeps_level = !program_has_gpu() && c->cpu == cpu_auto;
    const int level = keeps_level ? saved_level(c) : -1;
    const int saved = is_auto ? saved_choice(c, "options", "dtype", dtype_names) : -1;
    const Backend* b = saved < 0 ? NULL : find_at_level((enum dtype)saved, c->cpu, level);
    *dtype = b ? (enum dtype)saved : c->dtype;
    if (!b) {
        b = find_at_level(c->dtype, c->cpu, level);
        if (!b) { no_backend(c); }
        if (is_auto) { *dtype = dtype_of_storage(b); }
    }
    if (level > cpu_auto && strcmp(cpu_names[level], b->level)) {
        notice("this processor has no %s kernels, with which the run began: continuing with %s", cpu_names[level],
               b->level);
    }
    return choose_residual(b, c, *dtype);
}
