#include "attention_model.h"

// Instructions of the inner loop of each kernel, of one warp, with heads of 64 channels of 16 bits, as test/sass.sh
// counts them (nvcc 13.0, GPU="75 80 90"). tensor: mma.m16n8k16, for which Turing has two instructions. shared:
// accesses to 128 bytes of shared memory: 4 for each LDSM of 4 matrices and STS of 128 bits, 1 for each LDS and SHFL.
// Of the tilings (cuda/flash_block.cuh) a GPU is assumed to choose the one with the highest bound, which on Hopper has
// long tiles of streamed rows: 4x32x64, 4x32x32 and 4x32x32. On Ampere the default reaches the same bound.
typedef struct {
    int all, tensor, fma, alu, special, shared;
} LoopCounts;

static const LoopCounts TURING_LOOPS[NUM_FLASH_LOOPS] = {
    [FLASH_FORWARD] = {624, 64, 185, 183, 68, 88},
    [FLASH_BACKWARD_KEYS] = {402, 64, 82, 96, 48, 77},
    [FLASH_BACKWARD_QUERIES] = {287, 48, 67, 63, 32, 56},
};
static const LoopCounts AMPERE_LOOPS[NUM_FLASH_LOOPS] = {
    [FLASH_FORWARD] = {480, 64, 164, 167, 36, 75},
    [FLASH_BACKWARD_KEYS] = {284, 64, 75, 89, 16, 75},
    [FLASH_BACKWARD_QUERIES] = {222, 48, 68, 63, 16, 51},
};
static const LoopCounts HOPPER_LOOPS[NUM_FLASH_LOOPS] = {
    [FLASH_FORWARD] = {806, 128, 238, 305, 68, 139},
    [FLASH_BACKWARD_KEYS] = {235, 64, 63, 69, 16, 72},
    [FLASH_BACKWARD_QUERIES] = {192, 48, 60, 53, 16, 48},
};

// Cycles of a scheduler that one instruction of a warp occupies a pipe. Sources: CUDA C++ Programming Guide,
// "Throughput of native arithmetic instructions" (results per cycle and SM: fp32 64 on Turing, the A100 and A30, else
// 128; comparisons, selections and logic 64; special functions 16); for the tensor pipe the data sheet's peak; for
// shared memory the white paper on GA102: 128 bytes per cycle and SM, on Turing 64.
enum { FLOPS_OF_MMA = 2 * 16 * 8 * 16, ALU_CYCLES = 2, SPECIAL_CYCLES = 8, SCHEDULERS = 4 };

// From Hopper on only wgmma and its successors reach the peak. On an H100 mma.sync reaches 62.9% of it (Luo et al.
// 2024, "Benchmarking and Dissecting the Nvidia Hopper GPU Architecture"). A B200 is assumed to have Hopper's rate for
// each SM and cycle, so a smaller part of its peak.
#define MMA_SYNC_PART 0.629

// The part of its bound that FlashAttention-2 reached on an H100, by the tensor pipe (attention_model.h).
static const double REACHED_FORWARD = 306 / (MMA_SYNC_PART * 989.4), REACHED_BACKWARD = 238 / (MMA_SYNC_PART * 989.4);

static bool has_64_lanes(const GpuFacts* gpu) {
    return gpu->major == 7 || (gpu->major == 8 && gpu->half > 10 * gpu->fp32); // Turing; A100, A30
}

// Returns the cycles of one mma.sync at the data sheet's peak: a power of two, since the figures of one data sheet may
// be for different clocks.
static double mma_cycles(const GpuFacts* gpu) {
    const double lanes = has_64_lanes(gpu) ? 64 : 128;
    return exp2(round(log2(FLOPS_OF_MMA * gpu->fp32 / gpu->half / (2 * lanes / SCHEDULERS))));
}

static double mma_sync_cycles(const GpuFacts* gpu) {
    const GpuFacts* hopper = gpu_named("NVIDIA H100 80GB HBM3");
    return gpu->major == 9    ? mma_cycles(gpu) / MMA_SYNC_PART
           : gpu->major == 10 ? mma_cycles(hopper) / MMA_SYNC_PART
                              : mma_cycles(gpu);
}

double flash_static_bound(const GpuFacts* gpu, FlashLoop loop) {
    const LoopCounts* n = &(gpu->major >= 9 ? HOPPER_LOOPS : gpu->major == 8 ? AMPERE_LOOPS : TURING_LOOPS)[loop];
    const double cycles[] = {n->all,
                             n->tensor * mma_sync_cycles(gpu),
                             n->fma * (has_64_lanes(gpu) ? 2.0 : 1.0),
                             n->alu * ALU_CYCLES,
                             n->special * SPECIAL_CYCLES,
                             n->shared * SCHEDULERS * (gpu->major == 7 ? 2.0 : 1.0)};
    double busiest = 0;
    for (size_t i = 0; i < sizeof cycles / sizeof *cycles; i++) { busiest = fmax(busiest, cycles[i]); }
    return n->tensor * mma_cycles(gpu) / busiest;
}

double flash_part_of_peak(const GpuFacts* gpu, bool forward, int T) {
    enum { WARP_ROWS = 32 };
    const double needed = (T + 1.0) / (T + WARP_ROWS); // a warp's rows all reach to the end of the last tile
    if (forward) { return needed * REACHED_FORWARD * flash_static_bound(gpu, FLASH_FORWARD); }
    const double keys = 4 / flash_static_bound(gpu, FLASH_BACKWARD_KEYS);
    const double queries = 3 / flash_static_bound(gpu, FLASH_BACKWARD_QUERIES);
    return needed * REACHED_BACKWARD * 5 / (keys + queries);
}
