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
static const Backend* const cpu_backends[] = {CPU_BACKENDS(ADDRESS_OF_BACKEND)};
static const Backend* const gpu_backends[] = {GPU_BACKENDS(ADDRESS_OF_BACKEND)};
enum { NUM_CPU_BACKENDS = sizeof cpu_backends / sizeof *cpu_backends };
enum { NUM_GPU_BACKENDS = sizeof gpu_backends / sizeof *gpu_backends };

bool program_has_gpu(void) { return &cuda_fp32 != NULL; }

int list_backends(const Backend* list[MAX_BACKENDS]) {
    int count = 0;
    for (int i = 0; i < NUM_GPU_BACKENDS; i++) {
        if (gpu_backends[i]) { list[count++] = gpu_backends[i]; }
    }
    for (int i = 0; i < NUM_CPU_BACKENDS; i++) {
        if (cpu_backends[i]) { list[count++] = cpu_backends[i]; }
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

const Backend* find_cpu_backend(const char* storage, const char* cpu) {
    const bool is_auto = !strcmp(cpu, "auto");
    for (int i = 0; i < NUM_CPU_BACKENDS; i++) {
        const Backend* b = cpu_backends[i];
        if (!b || strcmp(b->storage, storage) || !processor_has(b->level)) { continue; }
        if (is_auto ? !lower_level_is_faster(b) : !strcmp(b->level, cpu)) { return b; }
    }
    return NULL;
}

const char* storage_of_dtype(const char* dtype) {
    return !strcmp(dtype, "tf32") ? "fp32" : is_one_of(dtype, "fp8|int8") ? "bf16" : dtype;
}

// Returns the storage type of --dtype auto on GPUs. Without a GPU (`info`, `bench step`) that is bf16.
static const char* automatic_gpu_storage(void) {
    const DeviceOptions options = {.index = 0};
    const bool lacks_bf16 = &cuda_bf16 && cuda_bf16.device_exists() && cuda_bf16.device_lacks(&options);
    return lacks_bf16 ? "fp16" : "bf16";
}

const Backend* find_backend(const char* dtype, const char* cpu) {
    const bool is_auto = !strcmp(dtype, "auto");
    if (!program_has_gpu()) {
        return is_one_of(dtype, "tf32|fp8") ? NULL : find_cpu_backend(is_auto ? "fp32" : storage_of_dtype(dtype), cpu);
    }
    if (!strcmp(dtype, "int8")) { return NULL; }
    const char* storage = is_auto ? automatic_gpu_storage() : storage_of_dtype(dtype);
    for (int i = 0; i < NUM_GPU_BACKENDS; i++) {
        if (gpu_backends[i] && !strcmp(gpu_backends[i]->storage, storage)) { return gpu_backends[i]; }
    }
    return NULL;
}

// Ends the program with the values that --dtype or --cpu can have here.
static void ATTR_NORETURN no_backend(const Config* c) {
    if (is_one_of(c->dtype, "tf32|fp8")) {
        usage_error("--dtype %s is for GPUs; on a CPU give fp32, bf16 or fp16", c->dtype);
    }
    if (!strcmp(c->dtype, "int8")) { usage_error("--dtype int8 is for CPUs; on a GPU give bf16, or use train_gpt2"); }
    if (program_has_gpu()) { usage_error("--dtype %s: this program was built without its kernels", c->dtype); }
    char names[128] = "auto";
    const char* storage = strcmp(c->dtype, "auto") ? storage_of_dtype(c->dtype) : "fp32";
    for (int i = 0; i < NUM_CPU_BACKENDS; i++) {
        const Backend* b = cpu_backends[i];
        if (!b || strcmp(b->storage, storage) || !processor_has(b->level)) { continue; }
        snprintf(names + strlen(names), sizeof names - strlen(names), ", %s", b->level);
    }
    usage_error("--cpu %s: not on this processor, not in this build, or not for --dtype %s; there are: %s", c->cpu,
                storage, names);
}

const Backend* with_residual(const Backend* b, const char* residual, const char* dtype) {
    if (!strcmp(residual, "fp32")) { return b; }
    if (b->with_bf16_residual) { return b->with_bf16_residual; }
    usage_error("--residual %s: the residual stream can be in bf16 where activations are, and --dtype %s stores them "
                "in %s: give --dtype bf16, or leave --residual out", residual, dtype, b->storage);
}

// Returns b with the run's residual stream: as given or, in a resumed run, as saved.
static const Backend* choose_residual(const Backend* b, const Config* c, const char* dtype) {
    const bool is_given = config_source(c, "residual") > FROM_DEFAULT;
    char* saved = is_given ? NULL : checkpoint_saved_text(c->out, c->resume, "options", "residual");
    b = with_residual(b, saved ? saved : c->residual, dtype);
    free(saved);
    return b;
}

// Returns find_backend(dtype, level) if there is one, else find_backend(dtype, cpu); `level` may be NULL.
static const Backend* find_at_level(const char* dtype, const char* cpu, const char* level) {
    const Backend* b = level ? find_backend(dtype, level) : NULL;
    return b ? b : find_backend(dtype, cpu);
}

// A resumed run keeps precision and level of its checkpoint, unless this start names others. Levels are then not timed.
const Backend* choose_backend(const Config* c, const char** dtype) {
    const bool is_auto = !strcmp(c->dtype, "auto"), keeps_level = !program_has_gpu() && !strcmp(c->cpu, "auto");
    char* level = keeps_level ? checkpoint_saved_text(c->out, c->resume, "kernels", "cpu") : NULL;
    char* saved = is_auto ? checkpoint_saved_text(c->out, c->resume, "options", "dtype") : NULL; // as long as the run
    const Backend* b = saved ? find_at_level(saved, c->cpu, level) : NULL;
    *dtype = b ? saved : c->dtype;
    if (!b) {
        free(saved);
        b = find_at_level(c->dtype, c->cpu, level);
        if (!b) { no_backend(c); }
        if (is_auto) { *dtype = b->storage; } // a storage type is the name of a precision too
    }
    if (level && strcmp(level, "plain") && strcmp(level, b->level)) {
        notice("this processor has no %s kernels, which the checkpoint was trained with: continuing with %s", level,
               b->level);
    }
    free(level);
    return choose_residual(b, c, *dtype);
}
