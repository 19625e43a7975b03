// Attention at the edges of its blocks: sequences that end before, at and behind a block of queries or keys, heads that
// fill tiles only in part, more threads than heads. Small sizes of every operation are test_cpu.c's.
#include "../llmc/cpu/kernels.h"
#include "../llmc/compare.h"
#include "test.h"

Cpu cpu;
#ifdef _OPENMP
enum { HAS_THREADS = 1 };
#else
enum { HAS_THREADS = 0 };
#endif

typedef struct {
    int B, T, NH, HS;
} Shape;

typedef enum { OUT, LSE, DQKV, NUM_RESULTS } Result;
static const char* const RESULT_NAMES[NUM_RESULTS] = {"out", "lse", "dqkv"};

static size_t result_size(const Shape* s, Result r) {
    const size_t heads = (size_t)s->B * s->T * s->NH;
    return r == LSE ? heads : heads * s->HS * (r == DQKV ? 3 : 1);
}

// Forward and backward of one form of attention, from the same numbers each time; results as doubles, to be freed.
static void run(const Shape* s, int threads, Kernels kernels, bool flash, double* result[NUM_RESULTS]) {
    const int C = s->NH * s->HS;
    const size_t n = result_size(s, OUT), heads = result_size(s, LSE);
    floatX* memory = (floatX*)alloc_or_die(8 * n, sizeof *memory, "activations");
    float* sums = (float*)alloc_or_die(2 * heads, sizeof *sums, "statistics");
    floatX *qkv = memory, *dqkv = memory + 3 * n, *out = memory + 6 * n, *dout = memory + 7 * n;
    float *lse = sums, *delta = sums + heads;
    cpu_open(HAS_THREADS ? threads : 0, kernels);
    cpu.flash = flash;
    for (size_t i = 0; i < 3 * n; i++) {
        qkv[i] = to_floatX(rng_normal(1, RNG_TEST, i));
        dqkv[i] = to_floatX(NAN); // what is not written shows
    }
    for (size_t i = 0; i < n; i++) {
        dout[i] = to_floatX(rng_normal(2, RNG_TEST, i));
        out[i] = to_floatX(NAN);
    }
    for (size_t i = 0; i < 2 * heads; i++) { sums[i] = NAN; }
    attention_forward(out, lse, qkv, s->B, s->T, C, s->NH);
    attention_backward(dqkv, delta, dout, out, lse, qkv, s->B, s->T, C, s->NH);
    for (Result r = OUT; r < NUM_RESULTS; r++) {
        const size_t size = result_size(s, r);
        result[r] = (double*)alloc_or_die(size, sizeof **result, "results");
        for (size_t i = 0; i < size; i++) {
            result[r][i] = r == LSE ? (double)lse[i] : (double)to_float(r == OUT ? out[i] : dqkv[i]);
        }
    }
    free(memory);
    free(sums);
}

// The largest error of any result between two ways to run, and of any single element of them.
static void compare_runs(const Shape* s, double* const* got, double* const* want, double error, double worst) {
    for (Result r = OUT; r < NUM_RESULTS; r++) {
        const Difference d = compare(got[r], want[r], result_size(s, r));
        if (!(d.error <= error && d.worst <= worst)) {
            TEST_FAIL("B=%d T=%d NH=%d HS=%d: %s is off by %.2g, an element by %.2g", s->B, s->T, s->NH, s->HS,
                      RESULT_NAMES[r], d.error, d.worst);
        }
    }
}

static void free_results(double** result) {
    for (int r = 0; r < NUM_RESULTS; r++) { free(result[r]); }
}

// Blocks are of 96 and 192 positions, tiles of up to 32, vectors of up to 16.
static const Shape SHAPES[] = {
    {2, 1, 3, 16},  {1, 2, 2, 1},   {2, 31, 2, 7},  {1, 33, 2, 20}, {1, 64, 3, 64},   {1, 95, 1, 33},
    {2, 96, 1, 32}, {1, 97, 3, 48}, {1, 191, 1, 5}, {1, 192, 2, 80}, {3, 193, 1, 12}, {1, 289, 2, 100},
    {1, 385, 1, 64}, {1, 107, 1, 255}, {1, 205, 1, 256}, {1, 700, 1, 24},
};
enum { NUM_SHAPES = sizeof SHAPES / sizeof *SHAPES };

// bf16: the plain loops keep scores and probabilities in float, flash rounds probabilities and their gradients. Single
// elements are the sum of few products where few keys are seen.
static const double ERROR = sizeof(floatX) == 4 ? 2e-6 : 6e-3, WORST = sizeof(floatX) == 4 ? 3e-5 : 5e-2;

TEST(every_form_equals_the_plain_loops) {
    for (int i = 0; i < NUM_SHAPES; i++) {
        double *plain[NUM_RESULTS], *fast[NUM_RESULTS], *flash[NUM_RESULTS];
        run(&SHAPES[i], 0, KERNELS_PLAIN, false, plain);
        run(&SHAPES[i], 0, KERNELS_FAST, false, fast);
        run(&SHAPES[i], 0, KERNELS_FAST, true, flash);
        compare_runs(&SHAPES[i], fast, plain, ERROR, WORST);
        compare_runs(&SHAPES[i], flash, plain, ERROR, WORST);
        free_results(plain), free_results(fast), free_results(flash);
    }
}

// With one thread a head is one task; with more, heads are cut.
TEST(bits_do_not_depend_on_the_number_of_threads) {
    const int threads[] = {2, 3, 7, 16};
    for (int i = 0; i < NUM_SHAPES; i++) {
        double* want[NUM_RESULTS];
        run(&SHAPES[i], 1, KERNELS_FAST, true, want);
        for (int k = 0; k < 4; k++) {
            double* got[NUM_RESULTS];
            run(&SHAPES[i], threads[k], KERNELS_FAST, true, got);
            compare_runs(&SHAPES[i], got, want, 0, 0);
            free_results(got);
        }
        free_results(want);
    }
}

// However large they are: what a query does not see has a probability of exactly 0.
TEST(nothing_is_seen_of_later_values) {
    enum { T = 200, HS = 24 };
    static floatX qkv[T * 3 * HS], out[2][T * HS];
    float lse[T];
    const int later = 150;
    cpu_open(0, KERNELS_FAST);
    for (int i = 0; i < T * 3 * HS; i++) { qkv[i] = to_floatX(rng_normal(4, RNG_TEST, (uint64_t)i)); }
    attention_forward(out[0], lse, qkv, 1, T, HS, 1);
    for (int i = 0; i < HS; i++) { qkv[later * 3 * HS + 2 * HS + i] = to_floatX(3e38f); }
    attention_forward(out[1], lse, qkv, 1, T, HS, 1);
    EXPECT(!memcmp(out[0], out[1], later * HS * sizeof **out));
    EXPECT(memcmp(out[0] + later * HS, out[1] + later * HS, HS * sizeof **out) != 0);
}

TEST_MAIN()
