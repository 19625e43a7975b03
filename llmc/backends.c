#include "backends.h"
#include "cpu/processor.h"
#include "files/checkpoint.h"

// The fastest first. The symbols are weak, because a program is linked with only some of them: train_gpt2 with the
// CPU's; train_gpt2cu with the GPU's and with the CPU's in fp32, the references of `check`. A missing one has the
// address NULL.
#define GPU_BACKENDS(_) _(cuda_bf16) _(cuda_fp32)
#define CPU_BACKENDS(_)                                                                               \
    _(cpu_fp32_avx512) _(cpu_fp32_avx2) _(cpu_fp32_generic)                                           \
    _(cpu_bf16_amx) _(cpu_bf16_avx512_bf16) _(cpu_bf16_avx512) _(cpu_bf16_avx2) _(cpu_bf16_generic)
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
// instructions on some processors and twice on others, so both are timed. AVX512_BF16 has to be faster by 20% (chosen,
// not measured), so that repeated starts choose the same.
static bool lower_level_is_faster(const Backend* b) {
    const double margin = 1.2;
    return !strcmp(b->level, "avx512_bf16") && &cpu_bf16_avx512 &&
           b->device_kernel_flops() < margin * cpu_bf16_avx512.device_kernel_flops();
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

const Backend* find_backend(const char* dtype, const char* cpu) {
    if (program_has_gpu()) { return is_one_of(dtype, "auto|bf16|fp8") ? &cuda_bf16 : &cuda_fp32; }
    if (is_one_of(dtype, "tf32|fp8")) { return NULL; }
    return find_cpu_backend(strcmp(dtype, "auto") ? dtype : "fp32", cpu);
}

// Ends the program with the values that --dtype or --cpu can have here.
static void ATTR_NORETURN no_backend(const Config* c) {
    if (is_one_of(c->dtype, "tf32|fp8")) {
        usage_error("--dtype %s is for GPUs; on a CPU give fp32 or bf16", c->dtype);
    }
    char names[128] = "auto";
    const char* storage = strcmp(c->dtype, "bf16") ? "fp32" : "bf16";
    for (int i = 0; i < NUM_CPU_BACKENDS; i++) {
        const Backend* b = cpu_backends[i];
        if (!b || strcmp(b->storage, storage) || !processor_has(b->level)) { continue; }
        snprintf(names + strlen(names), sizeof names - strlen(names), ", %s", b->level);
    }
    usage_error("--cpu %s: not on this processor, not in this build, or not for --dtype %s; there are: %s", c->cpu,
                storage, names);
}

const Backend* choose_backend(const Config* c, const char** dtype) {
    const Backend* b = find_backend(c->dtype, c->cpu);
    if (!b) { no_backend(c); }
    *dtype = c->dtype;
    if (!strcmp(c->dtype, "auto")) {
        char* saved = checkpoint_saved_text(c->out, c->resume, "options", "dtype"); // lives as long as the run
        const Backend* as_saved = saved ? find_backend(saved, c->cpu) : NULL;
        if (as_saved) { b = as_saved; }
        else { free(saved); }
        *dtype = as_saved ? saved : b->storage; // "fp32" and "bf16" name both a storage type and a precision
    }
    if (b->is_host && !strcmp(c->cpu, "auto")) { // a resumed run keeps the level of its checkpoint
        char* saved = checkpoint_saved_text(c->out, c->resume, "kernels", b->device);
        const Backend* as_saved = saved ? find_cpu_backend(b->storage, saved) : NULL;
        if (as_saved) { b = as_saved; }
        else if (saved && strcmp(saved, "plain")) {
            notice("this processor has no %s kernels, which the checkpoint was trained with: continuing with %s", saved,
                   b->level);
        }
        free(saved);
    }
    return b;
}
