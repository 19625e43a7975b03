// The CPU's operations: gradients against finite differences, fast kernels against the plain loops, sums that do not
// depend on the number of threads, and what single operations promise.
#include "../llmc/cpu/kernels.h"
#include "../llmc/compare.h"
#include "../llmc/op_cases.h"
#include "test.h"

Cpu cpu;
#ifdef _OPENMP
enum { HAS_THREADS = 1 };
#else
enum { HAS_THREADS = 0 };
#endif

// The most by which rounding to floatX changes a number, relatively.
static const double UNIT_ROUNDOFF = sizeof(floatX) == sizeof(float) ? 0x1p-24 : 0x1p-8;

// The scalar whose gradient is checked: sum(dout * out), in double. A backward operation without a `dout`
// differentiates dloss * sum(losses).
static double scalar(OpCase* forward, const double* dout) {
    OpTensor* out = op_find_tensor(forward, dout ? "out" : "losses");
    double *values = op_values(out), sum = 0;
    for (size_t i = 0; i < out->n; i++) { sum += dout ? dout[i] * values[i] : (double)forward->dloss * values[i]; }
    free(values);
    return sum;
}

// d scalar / d x[i] by central differences; x is an input of the forward operation.
static double finite_difference(OpCase* forward, const OpEntry* op, float* x, const double* dout) {
    const float kept = *x, h = 1e-2f;
    *x = kept + h;
    op_run(forward, op);
    const double up = scalar(forward, dout);
    *x = kept - h;
    op_run(forward, op);
    const double down = scalar(forward, dout);
    *x = kept;
    return (up - down) / (2.0 * (double)h);
}

static void check_gradients(const OpEntry* op) {
    const OpEntry* back = op_find(op->backward);
    const OpSizes sizes = op_sizes_small();
    OpCase f = op_open(op, &sizes, 1), b = op_open(back, &sizes, 2);
    op_run(&f, op);
    OpTensor* dout_tensor = op_find_tensor(&b, "dout");
    double *dout = dout_tensor ? op_values(dout_tensor) : NULL, *before[MAX_OP_TENSORS] = {NULL};
    for (int i = 0; i < b.count; i++) {
        OpTensor *to = &b.tensor[i], *from = op_find_tensor(&f, to->name);
        if (to->role == ROLE_READ && from) { memcpy(to->data, from->data, op_bytes(to)); }
        if (to->role == ROLE_ADD) { before[i] = op_values(to); } // not zero: so that = in place of += is found
    }
    OpTensor *order = op_find_tensor(&b, "order"), *tokens = op_find_tensor(&b, "tokens");
    for (size_t n = 0, v = 0; order && v < (size_t)sizes.V; v++) { // the tokens are now those of the forward operation
        for (size_t i = 0; i < order->n; i++) {
            if (((int*)tokens->data)[i] == (int)v) { ((int*)order->data)[n++] = (int)i; }
        }
    }
    op_run(&b, back);
    int checked = 0;
    for (int i = 0; i < b.count; i++) {
        OpTensor *grad = &b.tensor[i], *x = grad->name[0] == 'd' ? op_find_tensor(&f, grad->name + 1) : NULL;
        if (!x || grad->role == ROLE_READ) { continue; }
        double* got = op_values(grad);
        enum { SAMPLES = 48 };
        double a[SAMPLES], want[SAMPLES];
        for (size_t s = 0; s < SAMPLES; s++) {
            const size_t at = rng_u64(5, RNG_TEST, s) % x->n;
            a[s] = got[at] - (before[i] ? before[i][at] : 0.0);
            want[s] = finite_difference(&f, op, (float*)x->data + at, dout);
        }
        const double error = compare(a, want, SAMPLES).error;
        if (!(error < 2e-3)) {
            TEST_FAIL("%s: %s is off its finite differences by %.2g", back->name, grad->name, error);
        }
        free(got);
        checked++;
    }
    if (checked == 0) { TEST_FAIL("%s: no gradient was checked", back->name); }
    for (int i = 0; i < b.count; i++) { free(before[i]); }
    free(dout);
    op_close(&f);
    op_close(&b);
}

TEST(layernorm_backward_hands_over_the_rounded_sum) {
    cpu_open(0, KERNELS_FAST);
    const OpSizes sizes = op_sizes_small();
    const OpEntry* op = op_find("layernorm_backward");
    OpCase c = op_open(op, &sizes, 5);
    op_run(&c, op);
    const float* dinp = (const float*)op_find_tensor(&c, "dinp")->data;
    const floatX* dinp_x = (const floatX*)op_find_tensor(&c, "dinp_x")->data;
    for (int i = 0; i < sizes.B * sizes.T * sizes.C; i++) {
        EXPECT(to_float(dinp_x[i]) == to_float(to_floatX(dinp[i])));
    }
    op_close(&c);
}

TEST(gradients_match_finite_differences) {
    if (sizeof(floatX) != sizeof(float)) { SKIP("in bf16 rounding hides the differences; fp32 has the same loops"); }
    const Kernels both[2] = {KERNELS_PLAIN, KERNELS_FAST};
    for (int k = 0; k < 2; k++) {
        cpu_open(0, both[k]);
        for (int i = 0; i < NUM_OPS; i++) {
            if (OPS[i].backward) { check_gradients(&OPS[i]); }
        }
    }
}

// Runs `op` under one setting; all tensors as doubles.
static void run_case(const OpEntry* op, OpSizes sizes, int threads, Kernels kernels, double** out, OpCase* c) {
    cpu_open(HAS_THREADS ? threads : 0, kernels);
    *c = op_open(op, &sizes, 3);
    op_run(c, op);
    for (int i = 0; i < c->count; i++) { out[i] = op_values(&c->tensor[i]); }
}

// The largest relative error of any tensor between two settings.
static void compare_settings(OpSizes sizes, int threads_a, Kernels a, int threads_b, Kernels b, double tolerance) {
    for (int i = 0; i < NUM_OPS; i++) {
        OpCase x, y;
        double *vx[MAX_OP_TENSORS], *vy[MAX_OP_TENSORS];
        run_case(&OPS[i], sizes, threads_a, a, vx, &x);
        run_case(&OPS[i], sizes, threads_b, b, vy, &y);
        for (int t = 0; t < x.count; t++) {
            const bool is_scratch = x.tensor[t].role == ROLE_SCRATCH;
            const double error = is_scratch ? 0.0 : compare(vx[t], vy[t], x.tensor[t].n).error;
            if (!(error <= tolerance)) { TEST_FAIL("%s: %s differs by %.3g", OPS[i].name, x.tensor[t].name, error); }
            free(vx[t]);
            free(vy[t]);
        }
        op_close(&x);
        op_close(&y);
    }
}

// Sizes beyond one block of gemm.h in every direction.
static OpSizes op_sizes_blocks(void) {
    const OpSizes sizes = {3, 61, 294, 3, 1090, 301, 384, 10, 80, 7};
    return sizes;
}

// More rows than a block has, and more than one block of depth in each product of a linear layer.
static OpSizes op_sizes_deep(void) {
    const OpSizes sizes = {2, 650, 400, 4, 450, 301, 384, 10, 700, 700};
    return sizes;
}

// The linear layers and the classifier under two settings that must give the same bits.
static void expect_same_matmuls(OpSizes sizes, int threads, bool fused, int other_threads, bool other_fused) {
    for (int i = 0; i < NUM_OPS; i++) {
        if (!strstr(OPS[i].name, "matmul") && !strstr(OPS[i].name, "classifier")) { continue; }
        OpCase c[2];
        for (int k = 0; k < 2; k++) {
            cpu_open(HAS_THREADS ? (k ? other_threads : threads) : 0, KERNELS_FAST);
            cpu.fused = k ? other_fused : fused;
            c[k] = op_open(&OPS[i], &sizes, 3);
            params_changed();
            op_run(&c[k], &OPS[i]);
        }
        for (int t = 0; t < c[0].count; t++) {
            const OpTensor *x = &c[0].tensor[t], *y = &c[1].tensor[t];
            if (memcmp(x->data, y->data, op_bytes(x)) != 0) { TEST_FAIL("%s: %s differs", OPS[i].name, x->name); }
        }
        op_close(&c[0]);
        op_close(&c[1]);
    }
    cpu_open(0, KERNELS_FAST);
}

TEST(matmuls_in_many_blocks_do_not_depend_on_threads_or_fusion) {
    expect_same_matmuls(op_sizes_deep(), 1, true, 3, true);
    expect_same_matmuls(op_sizes_deep(), 2, true, 2, false);
    expect_same_matmuls(op_sizes_blocks(), 2, true, 16, true);
}

TEST(fast_kernels_equal_the_plain_loops) {
    const double factor = sizeof(floatX) == sizeof(float) ? 32 : 1; // sums are float in both types
    compare_settings(op_sizes_small(), 2, KERNELS_FAST, 2, KERNELS_PLAIN, factor * UNIT_ROUNDOFF);
    compare_settings(op_sizes_blocks(), 2, KERNELS_FAST, 2, KERNELS_PLAIN, 2 * factor * UNIT_ROUNDOFF);
    compare_settings(op_sizes_deep(), 2, KERNELS_FAST, 2, KERNELS_PLAIN, 2 * factor * UNIT_ROUNDOFF);
}

TEST(bits_do_not_depend_on_the_number_of_threads) {
    const Kernels both[2] = {KERNELS_PLAIN, KERNELS_FAST};
    for (int k = 0; k < 2; k++) {
        compare_settings(op_sizes_small(), 1, both[k], 3, both[k], 0.0);
        compare_settings(op_sizes_blocks(), 1, both[k], 2, both[k], 0.0);
        compare_settings(op_sizes_blocks(), 2, both[k], 7, both[k], 0.0);
    }
}

TEST(layernorm_gives_the_same_bits_in_one_pass_and_in_two) {
    const OpSizes sizes = op_sizes_small();
    const OpEntry* op = op_find("residual_layernorm_forward");
    double* values[2][MAX_OP_TENSORS];
    OpCase c[2];
    for (int fused = 0; fused < 2; fused++) {
        cpu_open(0, KERNELS_FAST);
        cpu.fused = fused;
        c[fused] = op_open(op, &sizes, 3);
        op_run(&c[fused], op);
        for (int i = 0; i < c[fused].count; i++) { values[fused][i] = op_values(&c[fused].tensor[i]); }
    }
    for (int i = 0; i < c[0].count; i++) {
        EXPECT(!memcmp(values[0][i], values[1][i], c[0].tensor[i].n * sizeof(double)));
        free(values[0][i]), free(values[1][i]);
    }
    op_close(&c[0]), op_close(&c[1]);
}

// More rows than layernorm_backward has blocks of its least size.
TEST(layernorm_backward_sums_any_number_of_rows) {
    OpSizes sizes = op_sizes_small();
    sizes.B = 5, sizes.T = 1003, sizes.C = 24;
    const OpEntry* op = op_find("layernorm_backward");
    OpCase fast, plain;
    double *x[MAX_OP_TENSORS], *y[MAX_OP_TENSORS];
    run_case(op, sizes, 3, KERNELS_FAST, x, &fast);
    run_case(op, sizes, 1, KERNELS_PLAIN, y, &plain);
    for (int i = 0; i < fast.count; i++) {
        EXPECT_NEAR(compare(x[i], y[i], fast.tensor[i].n).error, 0, 5e-6); // the plain sums are long
        free(x[i]), free(y[i]);
    }
    op_close(&fast), op_close(&plain);
}

// Also where that is done by other instructions, in areas larger than caches.
TEST(zeroed_is_what_was_asked_for_and_nothing_else) {
    const size_t sizes[] = {1, 100, 3000000, (size_t)70 << 20};
    const size_t room = (size_t)71 << 20;
    unsigned char* memory = (unsigned char*)device_alloc(room, "a test");
    for (size_t i = 0; i < room; i += 997) { EXPECT(memory[i] == 0); }
    for (int s = 0; s < 4; s++) {
        const size_t begin = 77, end = begin + sizes[s] + 5;
        size_t wrong = 0;
        memset(memory, 0xff, room);
        device_zero(memory + begin, end - begin);
        for (size_t i = 0; i < room; i++) { wrong += memory[i] != (i >= begin && i < end ? 0 : 0xff); }
        EXPECT(wrong == 0);
    }
    device_free(memory, room);
}

// The masters do not depend on how params are rounded, and every one of those is what rounding.h makes of its master.
TEST(adamw_rounds_each_parameter_by_its_own_random_number) {
    if (sizeof(floatX) == sizeof(float)) { SKIP("nothing is rounded in fp32"); }
    cpu_open(0, KERNELS_FAST);
    const OpSizes sizes = op_sizes_small();
    const OpEntry* op = op_find("adamw_update");
    OpCase nearest = op_open(op, &sizes, 4), random = op_open(op, &sizes, 4);
    random.hyper.rounding_seed = 12345;
    op_run(&nearest, op);
    op_run(&random, op);
    const float* masters = (const float*)op_find_tensor(&random, "masters")->data;
    const floatX *to_nearest = (const floatX*)op_find_tensor(&nearest, "params")->data,
                 *at_random = (const floatX*)op_find_tensor(&random, "params")->data;
    const size_t n = op_find_tensor(&random, "masters")->n;
    size_t different = 0;
    EXPECT(!memcmp(masters, op_find_tensor(&nearest, "masters")->data, n * sizeof *masters));
    for (size_t i = n / 5; i < n - n / 7; i++) {
        const float want = round_stochastically(masters[i], rounding_random(12345, random.hyper.step, i));
        const bool in_tensor = i < (size_t)sizes.OC * sizes.C;
        EXPECT(!in_tensor || to_float(at_random[i]) == want);
        EXPECT(!in_tensor || to_float(to_nearest[i]) == to_float(to_floatX(masters[i])));
        different += to_float(at_random[i]) != to_float(to_nearest[i]);
    }
    EXPECT(different > n / 10);
    op_close(&nearest), op_close(&random);
}

// 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) and its derivative
static double gelu_in_double(double x, double* derivative) {
    const double k = sqrt(2.0 / 3.14159265358979323846), t = tanh(k * (x + 0.044715 * x * x * x));
    *derivative = 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * k * (1 + 3 * 0.044715 * x * x);
    return 0.5 * x * (1 + t);
}

TEST(gelu_is_the_tanh_form) {
    const Kernels both[2] = {KERNELS_PLAIN, KERNELS_FAST};
    for (int k = 0; k < 2; k++) {
        cpu_open(0, both[k]);
        for (float x = -12; x <= 12; x += 0.03125f) {
            double derivative;
            floatX inp = to_floatX(x), out, dinp = to_floatX(1.0f);
            const double value = gelu_in_double((double)to_float(inp), &derivative);
            gelu_forward(&out, &inp, 1);
            gelu_backward_inplace(&dinp, &inp, 1);
            EXPECT_NEAR(to_float(out), value, 1e-6 + UNIT_ROUNDOFF * fabs(value));
            EXPECT_NEAR(to_float(dinp), derivative, 2e-6 + UNIT_ROUNDOFF * fabs(derivative));
        }
    }
}

TEST(fast_gelu_of_numbers_far_out_is_0_or_the_number_and_nan_stays) {
    cpu_open(0, KERNELS_FAST);
    const float far[] = {20.0f, 1e5f, 1e18f, 1e30f, -20.0f, -1e5f, -1e18f, -1e30f, NAN};
    enum { COUNT = sizeof far / sizeof *far };
    floatX inp[COUNT], out[COUNT], dinp[COUNT];
    for (int i = 0; i < COUNT; i++) { inp[i] = to_floatX(far[i]), dinp[i] = to_floatX(1.0f); }
    gelu_forward(out, inp, COUNT);
    gelu_backward_inplace(dinp, inp, COUNT);
    for (int i = 0; i < COUNT - 1; i++) {
        EXPECT_NEAR(to_float(out[i]), far[i] > 0 ? to_float(inp[i]) : 0.0f, 1e-37 * fabs((double)far[i]));
        EXPECT_NEAR(to_float(dinp[i]), far[i] > 0, 1e-30);
    }
    EXPECT(isnan(to_float(out[COUNT - 1])) && isnan(to_float(dinp[COUNT - 1])));
}

TEST(vector_exp_keeps_its_stated_error) {
    double worst = 0;
    for (float x = -87.0f; x < 88.0f; x += 0.00011f) { worst = fmax(worst, fabs(exp_fast(x) / exp((double)x) - 1)); }
    EXPECT_NEAR(worst, 0, 2e-7);
    EXPECT(exp_fast(-INFINITY) < 2e-38f && exp_fast(-1000) < 2e-38f);
    EXPECT(isnan(exp_fast(NAN))); // a loss that is not finite must show
}

// A row longer than the blocks that the fast form adds up, with its largest number in the first of them, in the last,
// and on the way.
TEST(softmax_of_a_long_row_does_not_depend_on_where_its_maximum_is) {
    enum { COLUMNS = 6001, PADDED = 6016 };
    static floatX fast[PADDED], plain[PADDED];
    static double got[PADDED], want[PADDED];
    const int at[] = {0, 2047, 2048, 4000, COLUMNS - 1, COLUMNS - 1};
    const float height[] = {9.0f, 9.0f, 9.0f, 9.0f, 9.0f, 200.0f}; // the last one's exp is not a float
    const double tolerance = sizeof(floatX) == sizeof(float) ? 1e-5 : UNIT_ROUNDOFF; // the plain sums are long
    for (int k = 0; k < 6; k++) {
        for (int v = 0; v < PADDED; v++) {
            const float level = v == at[k] ? height[k] : 0.001f * (float)(k % 2 ? v : -v);
            fast[v] = plain[v] = to_floatX(v < COLUMNS ? level + rng_normal(6, RNG_TEST, (uint64_t)v) : 3.0f);
        }
        const float loss = softmax_row_plain(plain, 17, 0.5f, COLUMNS, PADDED);
        EXPECT_NEAR(softmax_row_fast(fast, 17, 0.0f, COLUMNS, PADDED), loss, 1e-5);
        EXPECT_NEAR(softmax_row_fast(fast, 17, 0.5f, COLUMNS, PADDED), loss, 1e-5);
        for (int v = 0; v < PADDED; v++) { got[v] = to_float(fast[v]), want[v] = to_float(plain[v]); }
        EXPECT_NEAR(compare(got, want, PADDED).error, 0, tolerance);
        EXPECT(got[COLUMNS] == 0 && got[PADDED - 1] == 0);
    }
}

TEST(norm_is_the_sum_of_all_squares) {
    const size_t sizes[] = {1, 3, 1023, 4099, 123457};
    float* x = (float*)alloc_or_die(123457, sizeof *x, "a test");
    for (size_t i = 0; i < 123457; i++) { x[i] = rng_normal(7, RNG_TEST, i); }
    for (int s = 0; s < 5; s++) {
        double got = 0, want = 0;
        for (size_t i = 0; i < sizes[s]; i++) { want += (double)x[i] * (double)x[i]; }
        norm_squared(&got, x, sizes[s]);
        EXPECT_NEAR(got, want, 1e-13 * want);
    }
    free(x);
}

TEST(padding_of_the_vocabulary_gets_exactly_nothing) {
    cpu_open(0, KERNELS_FAST);
    const OpSizes sizes = op_sizes_small();
    const OpEntry* op = op_find("classifier_backward");
    OpCase c = op_open(op, &sizes, 4);
    floatX* weight = (floatX*)op_find_tensor(&c, "weight")->data;
    float* dweight = (float*)op_find_tensor(&c, "dweight")->data;
    const size_t first = (size_t)sizes.V * sizes.C, end = (size_t)sizes.Vp * sizes.C;
    for (size_t i = first; i < end; i++) { weight[i] = to_floatX(3.0f), dweight[i] = 0; } // as a careless file has it
    op_run(&c, op);
    double *losses = op_values(op_find_tensor(&c, "losses")), padding = 0;
    for (size_t i = first; i < end; i++) { padding += fabs((double)dweight[i]); }
    EXPECT(padding == 0);
    for (size_t i = first; i < end; i++) { weight[i] = to_floatX(0.0f); }
    OpTensor* again = op_find_tensor(&c, "losses");
    op_run(&c, op);
    double* losses_again = op_values(again);
    EXPECT(memcmp(losses, losses_again, again->n * sizeof *losses) == 0); // softmax is over V only
    free(losses);
    free(losses_again);
    op_close(&c);
}

TEST(the_classifier_does_not_depend_on_its_chunks) {
    enum { N = 39, CHANNELS = 42, COLUMNS = 133, PADDED = 160, CHUNKS = 3 };
    static const int chunk[CHUNKS] = {N, 7, 38};
    static floatX inp[N * CHANNELS], weight[PADDED * CHANNELS], logits[N * PADDED], dinp[CHUNKS][N * CHANNELS];
    static float out[CHUNKS][N * COLUMNS], losses[CHUNKS][N], losses_too[CHUNKS][N], dweight[CHUNKS][PADDED * CHANNELS];
    int targets[N];
    cpu_open(0, KERNELS_PLAIN); // one way of summing for any number of rows
    for (int i = 0; i < N * CHANNELS; i++) { inp[i] = to_floatX(rng_normal(1, RNG_TEST, (uint64_t)i)); }
    for (int i = 0; i < COLUMNS * CHANNELS; i++) { weight[i] = to_floatX(0.3f * rng_normal(2, RNG_TEST, (uint64_t)i)); }
    for (int n = 0; n < N; n++) { targets[n] = (int)(rng_u64(3, RNG_TEST, (uint64_t)n) % COLUMNS); }
    for (int k = 0; k < CHUNKS; k++) {
        classifier_logits(out[k], logits, inp, weight, chunk[k], N, CHANNELS, COLUMNS, PADDED);
        classifier_loss(losses[k], logits, inp, weight, targets, chunk[k], N, CHANNELS, COLUMNS, PADDED);
        classifier_backward(losses_too[k], dinp[k], dweight[k], logits, inp, weight, targets, 0.5f, chunk[k], N,
                            CHANNELS, COLUMNS, PADDED);
        EXPECT(!memcmp(out[k], out[0], sizeof out[0]) && !memcmp(losses[k], losses[0], sizeof losses[0]));
        EXPECT(!memcmp(losses_too[k], losses[0], sizeof losses[0]) && !memcmp(dinp[k], dinp[0], sizeof dinp[0]));
        EXPECT(!memcmp(dweight[k], dweight[0], sizeof dweight[0]));
    }
    for (int n = 0; n < N; n++) { // the losses are those of the logits
        double sum = 0;
        for (int v = 0; v < COLUMNS; v++) { sum += exp((double)out[0][n * COLUMNS + v]); }
        EXPECT_NEAR(losses[0][n], log(sum) - (double)out[0][n * COLUMNS + targets[n]], 1e-5);
    }
}

TEST(attention_sees_no_later_token) {
    cpu_open(0, KERNELS_FAST);
    const OpSizes sizes = op_sizes_small();
    const OpEntry* op = op_find("attention_forward");
    OpCase c = op_open(op, &sizes, 4);
    op_run(&c, op);
    double* before = op_values(op_find_tensor(&c, "out"));
    floatX* qkv = (floatX*)op_find_tensor(&c, "qkv")->data;
    const int t = 5, C = sizes.C;
    floatX* token = qkv + (size_t)t * 3 * C; // of the first sequence
    for (int i = 0; i < 3 * C; i++) { token[i] = to_floatX(to_float(token[i]) + 1.0f); }
    op_run(&c, op);
    double* after = op_values(op_find_tensor(&c, "out"));
    for (int n = 0; n < sizes.B * sizes.T; n++) {
        const bool same = !memcmp(before + (size_t)n * C, after + (size_t)n * C, (size_t)C * sizeof *before);
        EXPECT(same == (n < t || n >= sizes.T));
    }
    free(before);
    free(after);
    op_close(&c);
}

TEST(cached_attention_equals_attention_piece_by_piece) {
    cpu_open(0, KERNELS_PLAIN); // decoding has one kernel, the plain one
    enum { B = 2, T = 11, C = 24, NH = 3, CAPACITY = 16 };
    static floatX qkv[B * T * 3 * C], out[B * T * C], part[B * T * 3 * C], part_out[B * T * C],
        cache[B * CAPACITY * 2 * C];
    float lse[B * NH * T];
    for (int i = 0; i < B * T * 3 * C; i++) { qkv[i] = to_floatX(rng_normal(8, RNG_TEST, (uint64_t)i)); }
    attention_forward(out, lse, qkv, B, T, C, NH);
    const int piece[] = {1, 4, 1, 5};
    for (int i = 0, past = 0; i < 4; past += piece[i++]) {
        const size_t n = (size_t)piece[i];
        for (int b = 0; b < B; b++) {
            memcpy(part + b * n * 3 * C, qkv + (b * T + past) * 3 * C, n * 3 * C * sizeof *qkv);
        }
        attention_cached(part_out, cache, part, B, piece[i], past, CAPACITY, C, NH);
        for (int b = 0; b < B; b++) {
            EXPECT(!memcmp(part_out + b * n * C, out + (b * T + past) * C, n * C * sizeof *out));
        }
    }
}

// AdamW as the paper writes it, in double, for one element.
static double adamw_in_double(double x, double g, double m, double v, double decay, const AdamW* h) {
    m = h->beta1 * m + (1 - (double)h->beta1) * g;
    v = h->beta2 * v + (1 - (double)h->beta2) * g * g;
    const double mhat = m / (1 - pow(h->beta1, h->step)), vhat = v / (1 - pow(h->beta2, h->step));
    return x - h->lr * (mhat / (sqrt(vhat) + h->eps) + decay * x);
}

// The update of one element after another against adamw_in_double: `scale` is what clipping should make of the
// gradient.
static void check_adamw(float grad_clip, double norm, double scale) {
    cpu_open(0, KERNELS_FAST);
    OpSizes sizes = op_sizes_small();
    sizes.OC = 2; // few enough for the range of op_case_adamw_update, which cuts the matrix, to hold a whole vector
    const OpEntry* op = op_find("adamw_update");
    OpCase c = op_open(op, &sizes, 4);
    c.hyper.grad_clip = grad_clip;
    *(double*)op_find_tensor(&c, "norm")->data = norm * norm;
    const float* masters = (const float*)op_find_tensor(&c, "masters")->data;
    const size_t n = op_find_tensor(&c, "masters")->n, matrix = (size_t)sizes.OC * sizes.C,
                 vectors = round_up(matrix, TENSOR_ALIGN);
    double *x = op_values(op_find_tensor(&c, "masters")), *g = op_values(op_find_tensor(&c, "grads"));
    double *m = op_values(op_find_tensor(&c, "m")), *v = op_values(op_find_tensor(&c, "v"));
    int decayed = 0, others = 0, outside = 0;
    op_run(&c, op);
    for (size_t i = 0; i < n; i++) {
        const bool inside = i >= n / 5 && i < n - n / 7 && isfinite(norm),
                   in_vector = i >= vectors && (i - vectors) % TENSOR_ALIGN < (size_t)sizes.C;
        if (!inside) { // or nowhere, where the gradient is not finite
            EXPECT(masters[i] == (float)x[i]);
            outside++;
        } else if (i < matrix || in_vector) {
            EXPECT_NEAR(masters[i], adamw_in_double(x[i], g[i] * scale, m[i], v[i], i < matrix ? 0.1 : 0.0, &c.hyper),
                        1e-6);
            decayed += i < matrix, others += in_vector;
        }
    }
    EXPECT(outside > 0 && (!isfinite(norm) || (decayed > 20 && others > sizes.C)));
    free(x), free(g), free(m), free(v);
    op_close(&c);
}

TEST(adamw_decays_matrices_only_and_keeps_to_its_range) { check_adamw(1.0f, 0.5, 1.0); }

TEST(adamw_clips_what_is_above_the_limit_alone) {
    check_adamw(1.0f, 4.0, 0.25);
    check_adamw(5.0f, 4.0, 1.0);
    check_adamw(0.0f, 4.0, 1.0); // 0: no limit
}

TEST(a_gradient_that_is_not_finite_changes_nothing) {
    check_adamw(1.0f, (double)NAN, 1.0);
    check_adamw(1.0f, (double)INFINITY, 1.0);
    check_adamw(0.0f, (double)INFINITY, 1.0);
}

TEST(bf16_rounds_to_nearest_even) {
    EXPECT(bf16_from_float(1.0f).bits == 0x3f80);
    EXPECT(bf16_from_float(1.00390625f).bits == 0x3f80); // halfway: to the even one
    EXPECT(bf16_from_float(1.01171875f).bits == 0x3f82);
    EXPECT(bf16_from_float(-1.004f).bits == 0xbf81);
    EXPECT(bf16_to_float(bf16_from_float(INFINITY)) == INFINITY);
    EXPECT(isnan(bf16_to_float(bf16_from_float(NAN))));
}

TEST(memory_that_is_available_is_bounded) {
    const size_t bytes = device_memory_available();
    EXPECT(bytes > 1 << 20 && bytes < (size_t)1 << 50);
    struct rlimit r, small;
    getrlimit(RLIMIT_AS, &r);
    small = r;
    small.rlim_cur = (rlim_t)1 << 36;
    setrlimit(RLIMIT_AS, &small);
    EXPECT(device_memory_available() <= (size_t)1 << 36);
    setrlimit(RLIMIT_AS, &r);
}

TEST_MAIN()
