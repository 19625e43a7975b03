#include "matmul_model.h"
#include "../options/options.h"

// The tiles that NVIDIA's model picks for GPT-2's shapes, and their transposes. It does not try 160, but cuBLASLt has
// such tiles (cublasLt.h), and must have used them for the best FP8 matmul of an H200 below: 128 x 192 would have left
// a sixth of its multiprocessors idle.
static const int TILES[][2] = {{256, 128}, {128, 256}, {192, 128}, {128, 192}, {160, 128}, {128, 160}, {128, 128}};

enum { NUM_TILES = sizeof TILES / sizeof *TILES, MOST_SPLITS = 8, LEAST_SPLIT_DEPTH = 2048 };

// From Hopper on, square tiles are left out: their factors pass through the L2 cache more often than it is fast enough
// for.
static int usable_tiles(const GpuFacts* gpu) { return gpu->major >= 9 ? NUM_TILES - 1 : NUM_TILES; }

static MatmulTime time_of_tile(const GpuFacts* gpu, double flops, const MatmulSize* m, const MatmulBytes* bytes,
                               const int tile[2], int splits) {
    const double tiles = ceil((double)m->rows / tile[0]) * ceil((double)m->cols / tile[1]);
    const double waves = ceil(tiles * splits / gpu->sms);
    const double parts = splits > 1 ? 2.0 * sizeof(float) * splits * m->rows * m->cols : 0; // written, read
    MatmulTime t = {.sums = waves * 2.0 * tile[0] * tile[1] * m->depth / splits / flops,
                    .factors = bytes->factors / bytes->bandwidth,
                    .results = (bytes->results + parts) / bytes->bandwidth,
                    .tile_rows = tile[0],
                    .tile_cols = tile[1],
                    .splits = splits};
    const double beside = t.factors + (gpu->major >= 10 ? t.results : 0); // moved while tiles are summed
    t.bound_by_sums = t.sums > beside;
    t.seconds = fmax(t.sums, beside) + (gpu->major >= 10 ? 0 : t.results);
    return t;
}

MatmulTime matmul_time(const GpuFacts* gpu, double flops, const MatmulSize* m, const MatmulBytes* bytes) {
    MatmulTime best = {.seconds = INFINITY};
    for (int i = 0; i < usable_tiles(gpu); i++) {
        for (int splits = 1; splits <= MOST_SPLITS; splits++) {
            if (splits > 1 && m->depth / splits < LEAST_SPLIT_DEPTH) { break; }
            const MatmulTime t = time_of_tile(gpu, flops, m, bytes, TILES[i], splits);
            if (t.seconds < best.seconds) { best = t; }
        }
    }
    return best;
}

int matmul_factor_bytes(const char* dtype) {
    return !strcmp(dtype, "fp8") ? 1 : is_one_of(dtype, "bf16|fp16") ? 2 : 4;
}

// ---------------------------------------------------------------------------------------------------------------------
// the speed of sums

// The fastest matmuls that were measured, on normally distributed numbers, with bf16 outputs: S. Bekman, Machine
// Learning Engineering, "Maximum Achievable Matmul FLOPS comparison table" (github.com/stas00/ml-engineering,
// compute/accelerator), read 2026-11-22. Its H200 is "the same" as the H100 in bf16. The T4's: a user's cuBLAS, which a
// moderator of NVIDIA's forum confirms (forums.developer.nvidia.com/t/264462): at its limit of 70 W it does not hold
// the clock of its data sheet.
typedef struct {
    const char *gpu, *dtype; // gpu: the beginning of an alias in GPUS
    double tflops;
    MatmulSize size;
} BestMatmul;

static const BestMatmul BEST_MATMULS[] = {
    {"T4", "fp16", 24, {4096, 4096, 4096}},
    {"A100 SXM", "bf16", 271.2, {1024, 10240, 5120}},
    {"A100 PCIe", "bf16", 252.9, {2048, 5120, 6144}},
    {"H100 SXM", "bf16", 794.5, {2048, 2048, 13312}},
    {"GH200", "bf16", 828.6, {1024, 15360, 4096}},
    {"B200", "bf16", 1745.0, {1792, 16128, 3072}},
    {"H100 SXM", "fp8", 1402.6, {1024, 9216, 14336}},
    {"H200", "fp8", 1453.4, {1280, 4096, 12032}},
    {"B200", "fp8", 3432.5, {15360, 4096, 3072}},
};

enum { NUM_BEST_MATMULS = sizeof BEST_MATMULS / sizeof *BEST_MATMULS };

static bool is_of(const BestMatmul* b, const GpuFacts* gpu) { return !strncmp(b->gpu, gpu->alias, strlen(b->gpu)); }

// Returns the GPU of a best matmul: the first of this alias.
static const GpuFacts* measured_on(const BestMatmul* b) {
    const GpuFacts* gpu = GPUS;
    while (!is_of(b, gpu)) { gpu++; }
    return gpu;
}

// Returns the best matmul of the GPU; else that of the first one of its generation; else that of an A100: for
// Blackwell's GeForce, whose tensor cores have the instructions of Ampere, and for Turing's other GPUs. NULL: none in
// this dtype.
static const BestMatmul* best_matmul(const GpuFacts* gpu, const char* dtype) {
    const BestMatmul* near = NULL;
    const int major = gpu->major == 12 || gpu->major == 7 ? 8 : gpu->major;
    for (int i = 0; i < NUM_BEST_MATMULS; i++) {
        const BestMatmul* b = &BEST_MATMULS[i];
        if (strcmp(b->dtype, dtype)) { continue; }
        if (is_of(b, gpu)) { return b; }
        if (!near && measured_on(b)->major == major) { near = b; }
    }
    return near;
}

double matmul_sustained(const GpuFacts* gpu, const char* dtype, double efficiency) {
    const BestMatmul* best = best_matmul(gpu, dtype);
    if (!best) { best = best_matmul(gpu, "fp16"); } // all other types as the GPU's 16 bits: assumed
    if (!best) { best = best_matmul(gpu, "bf16"); }
    const GpuFacts* on = measured_on(best);
    const MatmulSize* m = &best->size;
    const double seconds = 2.0 * m->rows * m->cols * m->depth / (1e12 * best->tflops);
    const MatmulBytes bytes = {.factors = matmul_factor_bytes(best->dtype) * ((double)m->rows + m->cols) * m->depth,
                               .results = 2.0 * m->rows * m->cols,
                               .bandwidth = 1e9 * on->memory * efficiency};
    double low = 0, high = 1; // the time falls as the speed rises
    for (int i = 0; i < 50; i++) {
        const double middle = (low + high) / 2, peak = gpu_peak_flops(on, best->dtype) / on->sms;
        *(matmul_time(on, middle * peak, m, &bytes).seconds > seconds ? &low : &high) = middle;
    }
    return high;
}
