// Single operations of the CPU's backends on special inputs: large and non-finite numbers, long rows, chunks of logits,
// large memory. Random inputs are in test/check/test_backends.c.
#include "test/cpu/stored.h"
#include "llmc/check/compare.h"
#include "llmc/check/op_run.h"
#include "test/check/op_tensors.h"
#include "llmc/cpu/math.h"
#include "llmc/cpu/processor.h"
#include "llmc/base/rng.h"
#include <sys/resource.h>

// ---------------------------------------------------------------------------------------------------------------------
// GELU, exp

// out = gelu(inp), derivative = gelu'(inp), n numbers. The derivative is the gradient through a layer of weight 1.
static void gelu_both(const Backend* b, Stored* out, Stored* derivative, const Stored* inp, int n) {
    Stored *one = stored_alloc(b, 1), *dout = stored_alloc(b, (size_t)n);
    float dweight = 0, dbias = 0;
    stored_put(b, one, 0, 1);
    for (int i = 0; i < n; i++) { stored_put(b, dout, (size_t)i, 1); }
    b->params_changed();
    b->gelu_forward(out, inp, (size_t)n);
    b->matmul_gelu_backward(derivative, &dweight, &dbias, dout, out, inp, one, GRADS_ADD, n, 1, 1);
    free(one), free(dout);
}

// 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) and its derivative
static double gelu_in_double(double x, double* derivative) {
    const double k = sqrt(2.0 / 3.14159265358979323846), t = tanh(k * (x + 0.044715 * x * x * x));
    *derivative = 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * k * (1 + 3 * 0.044715 * x * x);
    return 0.5 * x * (1 + t);
}

TEST(gelu_is_the_tanh_form) {
    enum { COUNT = 769 };
    const DeviceOptions* const forms[] = {&PLAIN, &FAST, &UNFUSED};
    EACH_CPU_BACKEND(b) {
        Stored *inp = stored_alloc(b, COUNT), *out = stored_alloc(b, COUNT), *derivative = stored_alloc(b, COUNT);
        for (int i = 0; i < COUNT; i++) { stored_put(b, inp, (size_t)i, -12 + 0.03125f * (float)i); }
        for (int k = 0; k < 3; k++) {
            b->device_open(forms[k]);
            gelu_both(b, out, derivative, inp, COUNT);
            for (size_t i = 0; i < COUNT; i++) {
                double slope;
                const double value = gelu_in_double((double)stored_get(b, inp, i), &slope);
                EXPECT_NEAR(stored_get(b, out, i), value, 1e-6 + unit_roundoff(b) * fabs(value));
                EXPECT_NEAR(stored_get(b, derivative, i), slope, 2e-6 + unit_roundoff(b) * fabs(slope));
            }
        }
        free(inp), free(out), free(derivative);
    }
}

TEST(fast_gelu_of_numbers_far_out_is_0_or_the_number_and_nan_stays) {
    const float far[] = {20.0f, 1e5f, 1e18f, 1e30f, -20.0f, -1e5f, -1e18f, -1e30f, NAN};
    enum { COUNT = sizeof far / sizeof *far };
    EACH_CPU_BACKEND(b) {
        Stored *inp = stored_alloc(b, COUNT), *out = stored_alloc(b, COUNT), *derivative = stored_alloc(b, COUNT);
        const float most = stores_fp16(b) ? 65504.0f : 1e30f;
        for (size_t i = 0; i < COUNT; i++) {
            stored_put(b, inp, i, isnan(far[i]) ? far[i] : fminf(fmaxf(far[i], -most), most));
        }
        gelu_both(b, out, derivative, inp, COUNT);
        for (size_t i = 0; i < COUNT - 1; i++) {
            const double want = far[i] > 0 ? stored_get(b, inp, i) : 0.0;
            EXPECT_NEAR(stored_get(b, out, i), want, 1e-37 * fabs((double)far[i]));
            EXPECT_NEAR(stored_get(b, derivative, i), far[i] > 0, 1e-30);
        }
        EXPECT(isnan(stored_get(b, out, COUNT - 1)) && isnan(stored_get(b, derivative, COUNT - 1)));
        free(inp), free(out), free(derivative);
    }
}

TEST(vector_exp_keeps_its_stated_error) {
    double worst = 0;
    for (float x = -87.0f; x < 88.0f; x += 0.00011f) { worst = fmax(worst, fabs(exp_fast(x) / exp((double)x) - 1)); }
    EXPECT_NEAR(worst, 0, 2e-7);
    EXPECT(exp_fast(-INFINITY) == 0 && exp_fast(-1000) == 0);
    EXPECT(isnan(exp_fast(NAN))); // a loss that is not finite must show
}

// ---------------------------------------------------------------------------------------------------------------------
// the classifier

enum { COLUMNS = 6001, PADDED = 6016, TARGET = 17 };

enum { MANY_ROWS = 32 }; // more than few_rows.h takes

// A classifier of one channel on rows of two kinds, in turn: the second has half the logits and the next target.
static float softmax_inp(int n) { return n % 2 ? 0.5f : 1; }
static int softmax_target(int n) { return TARGET + n % 2; }

// Gradients of half the mean loss, and the losses of the first and the last row.
typedef struct {
    double dinp[MANY_ROWS], dweight[PADDED], losses[2];
} Gradients;

// Computes *g in double from the logits of the first kind.
static void softmax_exact(const Backend* b, const Stored* logits, int rows, Gradients* g) {
    memset(g, 0, sizeof *g);
    for (int n = 0; n < rows; n++) {
        const double inp = (double)softmax_inp(n), half_mean = 0.5 / rows;
        const int target = softmax_target(n);
        double max = -INFINITY, sum = 0;
        for (int v = 0; v < COLUMNS; v++) { max = fmax(max, inp * (double)stored_get(b, logits, (size_t)v)); }
        for (int v = 0; v < COLUMNS; v++) { sum += exp(inp * (double)stored_get(b, logits, (size_t)v) - max); }
        for (int v = 0; v < COLUMNS; v++) {
            const double w = (double)stored_get(b, logits, (size_t)v);
            const double dlogit = half_mean * (exp(inp * w - max) / sum - (v == target));
            g->dinp[n] += dlogit * w;
            g->dweight[v] += dlogit * inp;
        }
        g->losses[n > 0] = max + log(sum) - inp * (double)stored_get(b, logits, (size_t)target);
    }
    if (rows == 1) { g->losses[1] = g->losses[0]; }
}

// Sets *g by classifier_backward, and losses[2] by classifier_loss.
static void softmax(const Backend* b, const Stored* logits, int rows, double* losses, Gradients* g) {
    static float dweight[PADDED];
    Stored *inp = stored_alloc(b, MANY_ROWS), *dinp = stored_alloc(b, MANY_ROWS);
    Stored* scratch = stored_alloc(b, (size_t)MANY_ROWS * PADDED);
    float of_rows[MANY_ROWS];
    int targets[MANY_ROWS];
    for (int n = 0; n < rows; n++) {
        stored_put(b, inp, (size_t)n, softmax_inp(n));
        targets[n] = softmax_target(n);
    }
    memset(dweight, 0, sizeof dweight);
    b->params_changed();
    b->classifier_loss(of_rows, scratch, inp, logits, targets, rows, rows, 1, COLUMNS, PADDED);
    losses[0] = (double)of_rows[0], losses[1] = (double)of_rows[rows - 1];
    b->classifier_backward(of_rows, dinp, dweight, scratch, inp, logits, targets, 0.5f / (float)rows, GRADS_ADD, rows,
                           rows, 1, COLUMNS, PADDED);
    g->losses[0] = (double)of_rows[0], g->losses[1] = (double)of_rows[rows - 1];
    for (int n = 0; n < rows; n++) { g->dinp[n] = (double)stored_get(b, dinp, (size_t)n); }
    for (int v = 0; v < PADDED; v++) { g->dweight[v] = (double)dweight[v]; }
    free(inp), free(dinp), free(scratch);
}

// A row of many blocks (crossentropy.h: 96 columns each), with its maximum in the first, a middle or the last one.
TEST(softmax_of_a_long_row_is_exact_wherever_its_maximum_is) {
    enum { CASES = 12 };
    static Gradients got, want;
    const DeviceOptions* const forms[] = {&FAST, &PLAIN};
    const int at[6] = {0, 95, 96, 4000, COLUMNS - 1, COLUMNS - 1};
    const float height[6] = {9, 39, 42, 9, 9, 200}; // around MAX_EXCESS of crossentropy.h; exp(200) overflows float
    EACH_CPU_BACKEND(b) {
        Stored* logits = stored_alloc(b, PADDED);
        for (int k = 0; k < 2 * CASES; k++) {
            const bool plain = k >= CASES; // whose sums in float are long
            const double loss_bound = plain ? 1e-5 : 1e-6;
            const double tolerance = stores_16_bits(b) ? unit_roundoff(b) : plain ? 3e-5 : 1e-6;
            double losses[2];
            const int rows = k % CASES < 6 ? 1 : MANY_ROWS;
            b->device_open(forms[plain]);
            for (int v = 0; v < PADDED; v++) {
                const float level = v == at[k % 6] ? height[k % 6] : 0.001f * (float)(k % 2 ? v : -v);
                stored_put(b, logits, (size_t)v, v < COLUMNS ? level + rng_normal(6, RNG_TEST, (uint64_t)v) : 3.0f);
            }
            softmax_exact(b, logits, rows, &want);
            softmax(b, logits, rows, losses, &got);
            for (int i = 0; i < 2; i++) {
                EXPECT_NEAR(losses[i], want.losses[i], loss_bound * want.losses[i]);
                EXPECT_NEAR(got.losses[i], want.losses[i], loss_bound * want.losses[i]);
            }
            EXPECT_NEAR(compare(got.dweight, want.dweight, PADDED).error, 0, tolerance);
            EXPECT(got.dweight[COLUMNS] == 0 && got.dweight[PADDED - 1] == 0);
            // a sum of rounded gradients times logits, of both signs
            EXPECT_NEAR(compare(got.dinp, want.dinp, (size_t)rows).error, 0, 4 * tolerance);
        }
        free(logits);
    }
}

// Runs an operation with `chunk` rows of logits at a time. Returns the values of a tensor, which the caller frees.
static double* after_chunks(const Backend* b, const char* op, const char* tensor, int chunk) {
    OpSizes sizes = OP_SIZES_SMALL;
    sizes.chunk = chunk;
    OpCase c = op_open(b, op_number(op), &sizes, 1);
    op_run(&c);
    double* values = op_values(&c, op_find_tensor(&c, tensor));
    op_close(&c);
    return values;
}

TEST(the_classifier_does_not_depend_on_its_chunks) {
    enum { N = 39, V = 133, C = 42, VP = 160 };
    static const struct {
        const char *op, *tensor;
        size_t n;
    } results[] = {{"classifier_logits", "out", N * V},
                   {"classifier_loss", "losses", N},
                   {"classifier_backward", "losses", N},
                   {"classifier_backward", "dinp", N * C},
                   {"classifier_backward", "dweight", VP * C},
                   {"first_classifier_backward", "dweight", VP * C}};
    const int chunks[] = {7, 38};
    EACH_CPU_BACKEND(b) {
        b->device_open(&PLAIN); // their order of sums does not depend on the number of rows
        for (size_t r = 0; r < sizeof results / sizeof *results; r++) {
            double* whole = after_chunks(b, results[r].op, results[r].tensor, N);
            for (int k = 0; k < 2; k++) {
                double* parts = after_chunks(b, results[r].op, results[r].tensor, chunks[k]);
                EXPECT(!memcmp(whole, parts, results[r].n * sizeof *whole));
                free(parts);
            }
            free(whole);
        }
    }
}

TEST(norm_is_the_sum_of_all_squares) {
    enum { MOST = 123457 };
    const size_t sizes[] = {1, 3, 1023, 4099, MOST};
    float* x = alloc_or_die(MOST, sizeof *x, "a test");
    for (size_t i = 0; i < MOST; i++) { x[i] = rng_normal(7, RNG_TEST, i); }
    EACH_CPU_BACKEND(b) {
        for (int s = 0; s < 5; s++) {
            double got = 0, want = 0;
            for (size_t i = 0; i < sizes[s]; i++) { want += (double)x[i] * (double)x[i]; }
            b->norm_squared(&got, x, sizes[s]);
            EXPECT_NEAR(got, want, 1e-13 * want);
        }
    }
    free(x);
}

// ---------------------------------------------------------------------------------------------------------------------
// the device

TEST(threads_by_default_are_openmps_whatever_was_asked_for_before) {
    const Backend* b = &cpu_fp32_generic;
    b->device_open(&FAST);
    const int all = b->device_threads();
    const DeviceOptions more = with_threads(FAST, all + 1);
    b->device_open(&more);
    EXPECT(b->device_threads() == max_int(more.threads, 1));
    b->device_open(&FAST);
    EXPECT(b->device_threads() == all);
}

// 70 MiB takes the streaming stores of zero_past_caches.
TEST(device_zero_zeroes_its_range_and_nothing_else) {
    const size_t sizes[] = {1, 100, 3000000, (size_t)70 << 20}, room = (size_t)71 << 20;
    const Backend* b = &cpu_fp32_generic; // all levels share this code
    b->device_open(&FAST);
    unsigned char* memory = b->device_alloc(room, "a test");
    for (size_t i = 0; i < room; i += 997) { EXPECT(memory[i] == 0); }
    for (int s = 0; s < 4; s++) {
        const size_t begin = 77, end = begin + sizes[s] + 5;
        size_t wrong = 0;
        memset(memory, 0xff, room);
        b->device_zero(memory + begin, end - begin);
        for (size_t i = 0; i < room; i++) { wrong += memory[i] != (i >= begin && i < end ? 0 : 0xff); }
        EXPECT(wrong == 0);
    }
    b->device_free(memory, room);
}

TEST(speeds_are_measured) {
    EACH_CPU_BACKEND(b) {
        const double peak = b->device_peak_flops(), kernel = b->device_kernel_flops();
        EXPECT(isfinite(peak) && peak > 1e6 && isfinite(kernel) && kernel > 1e6);
    }
    EXPECT(cpu_fp32_generic.device_copy_bandwidth() > 1e6);
}

TEST(memory_that_is_available_is_bounded) {
    const Backend* b = &cpu_fp32_generic;
    const size_t bytes = b->device_memory_available();
    EXPECT(bytes > 1 << 20 && bytes < (size_t)1 << 50);
    struct rlimit r, small;
    getrlimit(RLIMIT_AS, &r);
    small = r;
    small.rlim_cur = (rlim_t)1 << 36;
    setrlimit(RLIMIT_AS, &small);
    EXPECT(b->device_memory_available() <= (size_t)1 << 36);
    setrlimit(RLIMIT_AS, &r);
    EXPECT(b->device_memory_usable((size_t)8 << 30) == (size_t)15 << 29 && b->device_memory_usable(1000) == 0);
}

#ifdef __x86_64__
// A level that is taken for missing would leave its kernels untested; one that is taken for there ends by SIGILL.
TEST(levels_of_the_processor_are_those_that_linux_sees) {
    static const struct { const char *level, *flags[9]; } levels[] = { // each has those before it too
        {"avx2", {"avx", "avx2", "fma", "movbe", "f16c", "bmi1", "bmi2", "abm"}},
        {"avx512", {"avx512f", "avx512dq", "avx512cd", "avx512bw", "avx512vl"}},
        {"avx512_bf16", {"avx512_bf16"}},
        {"amx", {"amx_bf16", "amx_tile"}}};
    char* line = NULL;
    size_t room = 0;
    FILE* f = fopen("/proc/cpuinfo", "r");
    while (f && getline(&line, &room, f) > 0 && strncmp(line, "flags", 5)) {}
    if (f) { fclose(f); }
    if (!line || strncmp(line, "flags", 5)) { SKIP("no flags in /proc/cpuinfo"); }
    *strchrnul(line, '\n') = ' '; // so that a space stands behind each
    bool has = true;
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        for (int k = 0; levels[i].flags[k]; k++) {
            char* word = format(" %s ", levels[i].flags[k]);
            has = has && strstr(line, word);
            free(word);
        }
        test_case = levels[i].level;
        EXPECT(processor_has(levels[i].level) == (has && (strcmp(test_case, "amx") || system_permits_tiles())));
    }
    test_case = NULL;
    EXPECT(processor_has("generic") && !processor_has("mmx"));
    free(line);
}
#endif

TEST_MAIN()
