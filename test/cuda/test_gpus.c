// The table of data sheets: figures of one GPU fit together, names are found.
#include "llmc/cuda/gpus.h"
#include "test/test.h"

static bool is_double_of(double a, double b) { return a > 1.9 * b && a < 2.1 * b; }

TEST(every_gpu_is_known_in_full) {
    for (int i = 0; i < NUM_GPUS; i++) {
        const GpuFacts* g = &GPUS[i];
        const bool is_turing = g->major == 7;
        EXPECT(gpu_named(g->name) == g && *g->alias);
        EXPECT(g->fp32 > 0 && (is_turing ? g->tf32 == 0 : g->tf32 >= g->fp32));
        EXPECT(is_turing ? g->half >= 4 * g->fp32 : is_double_of(g->half, g->tf32));
        EXPECT((g->fp8 == 0 || is_double_of(g->fp8, g->half)) && g->memory > 100);
        EXPECT((gpu_peak_flops(g, "bf16") == 0) == is_turing && gpu_peak_flops(g, "fp16") == 1e12 * g->half);
    }
    EXPECT(!gpu_named("Tesla V100"));
}

TEST_MAIN()
