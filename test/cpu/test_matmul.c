// The CPU's linear layers, element by element: sums of small integers, which must be exact, with all sizes of rows,
// columns and depths around a tile, and with guard pages behind the tensors; and numbers that are not finite.
#include "llmc/cpu/device.h"
#include "test/cpu/stored.h"
#include "llmc/base/rng.h"

// out, dinp (N,C) and (N,OC), weight (OC,C) and their gradients.
typedef struct {
    int N, C, OC;
    Stored *out, *inp, *weight, *bias, *dinp, *dout;
    float *dweight, *dbias;
} Layer;

typedef struct {
    size_t out, inp, weight, bias, dweight, dbias;
} LayerBytes;

static LayerBytes layer_bytes(const Backend* b, const Layer* l) {
    const size_t N = (size_t)l->N, C = (size_t)l->C, OC = (size_t)l->OC, e = b->element_bytes;
    const LayerBytes bytes = {.out = N * OC * e,
                              .inp = N * C * e,
                              .weight = OC * C * e,
                              .bias = OC * e,
                              .dweight = OC * C * sizeof(float),
                              .dbias = OC * sizeof(float)};
    return bytes;
}

static float small_integer(uint64_t seed, size_t i) { return (float)(int)(rng_u64(seed, RNG_TEST, i) % 17) - 8.0f; }

static void fill(const Backend* b, Stored* x, size_t bytes, uint64_t seed) {
    for (size_t i = 0; i < bytes / b->element_bytes; i++) { stored_put(b, x, i, small_integer(seed, i)); }
}

// Opens a layer. Inputs and gradients that are added to are small integers; outputs are NaN.
static Layer layer_open(const Backend* b, int N, int C, int OC) {
    Layer l = {.N = N, .C = C, .OC = OC};
    const LayerBytes n = layer_bytes(b, &l);
    l.out = guarded_alloc(n.out), l.dout = guarded_alloc(n.out);
    l.inp = guarded_alloc(n.inp), l.dinp = guarded_alloc(n.inp);
    l.weight = guarded_alloc(n.weight), l.bias = guarded_alloc(n.bias);
    l.dweight = guarded_alloc(n.dweight), l.dbias = guarded_alloc(n.dbias);
    fill(b, l.inp, n.inp, 1);
    fill(b, l.weight, n.weight, 2);
    fill(b, l.bias, n.bias, 3);
    fill(b, l.dout, n.out, 4);
    for (size_t i = 0; i < (size_t)OC * (size_t)C; i++) { l.dweight[i] = small_integer(5, i); }
    for (size_t i = 0; i < (size_t)OC; i++) { l.dbias[i] = small_integer(6, i); }
    b->params_changed(); // an earlier weight may have had this address
    return l;
}

static void layer_close(const Backend* b, Layer* l) {
    const LayerBytes n = layer_bytes(b, l);
    guarded_free(l->out, n.out), guarded_free(l->dout, n.out);
    guarded_free(l->inp, n.inp), guarded_free(l->dinp, n.inp);
    guarded_free(l->weight, n.weight), guarded_free(l->bias, n.bias);
    guarded_free(l->dweight, n.dweight), guarded_free(l->dbias, n.dbias);
}

static void layer_run(const Backend* b, const Layer* l, GradMode mode) {
    b->matmul_forward(l->out, l->inp, l->weight, l->bias, l->N, l->C, l->OC);
    b->matmul_backward(l->dinp, l->dweight, l->dbias, l->dout, l->inp, l->weight, mode, l->N, l->C, l->OC);
}

// ---------------------------------------------------------------------------------------------------------------------
// exact sums

// Small integers as float arrays, in the layouts of the layer's tensors.
typedef struct {
    float *inp, *weight, *dout;
} Integers;

static float* integers(uint64_t seed, size_t n) {
    float* x = alloc_or_die(n, sizeof *x, "integers");
    for (size_t i = 0; i < n; i++) { x[i] = small_integer(seed, i); }
    return x;
}

// Returns the sum over k of x[k * x_step] y[k * y_step]: sums of small integers are exact in float.
static float dot(const float* x, size_t x_step, const float* y, size_t y_step, int n) {
    float sum = 0;
    for (int k = 0; k < n; k++) { sum += x[(size_t)k * x_step] * y[(size_t)k * y_step]; }
    return sum;
}

static int wrong_sums(const Backend* b, const Layer* l, GradMode mode, const Integers* x) {
    const size_t N = (size_t)l->N, C = (size_t)l->C, OC = (size_t)l->OC;
    int wrong = 0;
    for (size_t n = 0; n < N; n++) {
        for (size_t o = 0; o < OC; o++) {
            const float sum = dot(x->inp + n * C, 1, x->weight + o * C, 1, l->C) + small_integer(3, o);
            wrong += !(stored_get(b, l->out, n * OC + o) == as_stored(b, sum));
        }
        for (size_t c = 0; c < C; c++) {
            const float sum = dot(x->dout + n * OC, 1, x->weight + c, C, l->OC);
            wrong += !(stored_get(b, l->dinp, n * C + c) == as_stored(b, sum));
        }
    }
    for (size_t o = 0; o < OC; o++) {
        float sum = small_integer(6, o);
        for (size_t n = 0; n < N; n++) { sum += x->dout[n * OC + o]; }
        wrong += !(l->dbias[o] == sum);
        for (size_t c = 0; c < C; c++) {
            const float before = mode == GRADS_SET ? 0 : small_integer(5, o * C + c);
            wrong += !(l->dweight[o * C + c] == before + dot(x->dout + o, OC, x->inp + c, C, l->N));
        }
    }
    return wrong;
}

static void check_layer(const Backend* b, int N, int C, int OC, GradMode mode) {
    Layer l = layer_open(b, N, C, OC);
    Integers x = {integers(1, (size_t)N * (size_t)C), integers(2, (size_t)OC * (size_t)C),
                  integers(4, (size_t)N * (size_t)OC)};
    layer_run(b, &l, mode);
    const int wrong = wrong_sums(b, &l, mode, &x);
    const bool untouched = untouched_before(l.out) && untouched_before(l.dinp) && untouched_before(l.dweight) &&
                           untouched_before(l.dbias);
    if (wrong || !untouched) {
        TEST_FAIL("N=%d C=%d OC=%d: %d sums are wrong%s", N, C, OC, wrong, untouched ? "" : ", memory before a tensor");
    }
    free(x.inp), free(x.weight), free(x.dout);
    layer_close(b, &l);
}

// Leaves NaN wherever packed operands and tiles lie: panels must be filled up with zeros.
static void poison_scratch(const Backend* b) {
    Layer l = layer_open(b, 97, 400, 97);
    const LayerBytes n = layer_bytes(b, &l);
    memset(l.inp, 0xff, n.inp);
    memset(l.weight, 0xff, n.weight);
    memset(l.dout, 0xff, n.out);
    layer_run(b, &l, GRADS_ADD);
    layer_close(b, &l);
}

// Each of the three sizes is the depth of one matmul, the rows of another, the columns of the third. Tiles have 6 to 32
// rows, 8 to 64 columns; depths are rounded up to multiples of 1 to 32 and cut at 256, 384 or 768.
static const int DEPTHS[] = {1, 3, 31, 32, 33, 65, 256, 257, 385, 769};
enum { NUM_DEPTHS = sizeof DEPTHS / sizeof *DEPTHS };

TEST(sums_of_small_integers_are_exact_in_all_sizes_around_a_tile) {
    EACH_CPU_BACKEND(b) {
        if (is_another_fp16(b)) { continue; }
        poison_scratch(b);
        for (int d = 0; d < NUM_DEPTHS; d++) {
            const int k = DEPTHS[d], step = k > 64 ? 13 : k > 33 ? 5 : 1;
            for (int i = 1; i <= 66; i += step) {
                const GradMode mode = i % 2 ? GRADS_ADD : GRADS_SET;
                check_layer(b, max_int(i, 8), k, 35, mode); // the plain loops take fewer than 8 rows
                check_layer(b, 33, k, i, mode);
                if (k >= 8) { check_layer(b, k, 35, i, mode); }
            }
        }
        for (int n = 1; n < 8; n++) { check_layer(b, n, 37, 70, n % 2 ? GRADS_ADD : GRADS_SET); }
    }
}

// Choices for a processor change no bit: transposed operands packed, or read where they lie.
TEST(choices_change_no_bit) {
    enum { N = 300, C = 45, OC = 70 };
    EACH_CPU_BACKEND(b) {
        Layer l = layer_open(b, N, C, OC);
        const LayerBytes n = layer_bytes(b, &l);
        for (size_t i = 0; i < N * OC; i++) { stored_put(b, l.dout, i, small_integer(4, i) / 7); }
        for (size_t i = 0; i < N * C; i++) { stored_put(b, l.inp, i, small_integer(1, i) / 7); }
        float before[OC * (C + 1)];
        for (int reads = 0; reads < 2; reads++) {
            cpu.choices.reads_columns = reads;
            memset(l.dweight, 0, n.dweight);
            memset(l.dbias, 0, n.dbias);
            layer_run(b, &l, GRADS_ADD);
            if (reads) { EXPECT(!memcmp(before, l.dweight, n.dweight) && !memcmp(before + OC * C, l.dbias, n.dbias)); }
            memcpy(before, l.dweight, n.dweight);
            memcpy(before + OC * C, l.dbias, n.dbias);
            check_layer(b, N, C, OC, GRADS_ADD);
        }
        layer_close(b, &l);
    }
}

// Pieces of depth lie one behind another in a panel of a packed weight.
TEST(sums_are_exact_over_several_pieces_of_depth_and_blocks) {
    EACH_CPU_BACKEND(b) {
        for (GradMode mode = GRADS_ADD; mode <= GRADS_SET; mode++) {
            check_layer(b, 40, 1000, 450, mode);
            check_layer(b, 1200, 40, 36, mode);
            check_layer(b, 1000, 70, 33, mode);
            check_layer(b, 50, 1024, 40, mode); // rows and columns 4 KiB apart in fp32
            check_layer(b, 520, 9, 3100, mode); // pieces of rows and columns that AMX packs for gradients of weights
        }
        check_layer(b, 9, 768, 700, GRADS_SET); // a gradient that is stored past the caches
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// numbers that are not finite, and denormals

enum { ROWS = 33, COLS = 35 };

// Runs a layer whose inputs are `other` except for one element, `special`; weights are `weight`, biases 0. Sets *with
// to the output in the row of `special`, and *without to the output in all other rows.
static void matmul_with(const Backend* b, float special, float other, float weight, int C, float* with,
                        float* without) {
    Layer l = layer_open(b, ROWS, C, COLS);
    for (size_t i = 0; i < (size_t)ROWS * (size_t)C; i++) { stored_put(b, l.inp, i, other); }
    for (size_t i = 0; i < (size_t)COLS * (size_t)C; i++) { stored_put(b, l.weight, i, weight); }
    for (size_t i = 0; i < COLS; i++) { stored_put(b, l.bias, i, 0); }
    stored_put(b, l.inp, (size_t)(ROWS / 2) * (size_t)C + (size_t)(C / 2), special);
    b->matmul_forward(l.out, l.inp, l.weight, l.bias, ROWS, C, COLS);
    *with = stored_get(b, l.out, ROWS / 2 * COLS);
    *without = stored_get(b, l.out, 0);
    for (size_t i = 0; i < ROWS * COLS; i++) {
        const float got = stored_get(b, l.out, i), want = i / COLS == ROWS / 2 ? *with : *without;
        EXPECT(!memcmp(&got, &want, sizeof want));
    }
    layer_close(b, &l);
}

TEST(non_finite_inputs_stay_in_their_row) {
    float with, without;
    EACH_CPU_BACKEND(b) {
        for (int k = 1; k < 70; k += 3) {
            matmul_with(b, INFINITY, 1, 1, k, &with, &without);
            EXPECT(with == INFINITY && without == (float)k);
            matmul_with(b, -INFINITY, 1, 2, k, &with, &without);
            EXPECT(with == -INFINITY && without == 2 * (float)k);
            matmul_with(b, INFINITY, 1, 0, k, &with, &without);
            EXPECT(with != with && without == 0);
            matmul_with(b, NAN, 1, 1, k, &with, &without);
            EXPECT(with != with && without == (float)k);
        }
        const float large = stores_fp16(b) ? 65504.0f : 0x1.fep127f; // finite; twice that is not
        matmul_with(b, large, 0, 2, 5, &with, &without);
        EXPECT(with == INFINITY && without == 0);
    }
}

// Results of more than 32 MiB pass by the caches, whole lines of them: the same bits as in two halves.
TEST(large_results_are_those_of_their_halves) {
    enum { N = 340, HALF = N / 2, C = 9, OC = 50305 }; // rows that begin within a line
    EACH_CPU_BACKEND(b) {
        const size_t e = b->element_bytes, half = (size_t)HALF * OC * e;
        Stored *out = guarded_alloc(2 * half), *part = guarded_alloc(half);
        Layer l = {.N = N, .C = C, .OC = OC};
        const LayerBytes n = layer_bytes(b, &l);
        l.inp = guarded_alloc(n.inp), l.weight = guarded_alloc(n.weight);
        fill(b, l.inp, n.inp, 1);
        fill(b, l.weight, n.weight, 2);
        b->params_changed();
        b->matmul_forward(out, l.inp, l.weight, NULL, N, C, OC);
        for (int i = 0; i < 2; i++) {
            const size_t rows = (size_t)i * HALF;
            b->matmul_forward(part, stored_at(b, l.inp, rows * C), l.weight, NULL, HALF, C, OC);
            EXPECT(!memcmp(stored_at(b, out, rows * OC), part, half));
        }
        guarded_free(out, 2 * half), guarded_free(part, half);
        guarded_free(l.inp, n.inp), guarded_free(l.weight, n.weight);
    }
}

// The same of GELU, whose results pass by the caches sooner: those of AMX from 2 MiB on, GELU's input from 4 MiB on.
TEST(large_results_of_gelu_are_those_of_their_halves) {
    enum { N = 704, HALF = N / 2, C = 33, OC = 1536 }; // forward C to OC, backward OC to C; rows are whole cache lines
    EACH_CPU_BACKEND(b) {
        cpu.threads = 1; // the bytes of a thread count
        const size_t e = b->element_bytes, wide = (size_t)N * OC * e, narrow = (size_t)N * C * e;
        Stored *out = guarded_alloc(wide), *pre = guarded_alloc(wide), *part = guarded_alloc(wide),
               *part_pre = guarded_alloc(wide), *inp = guarded_alloc(narrow), *weight = guarded_alloc(OC * C * e),
               *bias = guarded_alloc(OC * e);
        float *dweight = guarded_alloc(OC * C * sizeof(float)), *dbias = guarded_alloc(C * sizeof(float));
        fill(b, inp, narrow, 1);
        fill(b, weight, OC * C * e, 2);
        fill(b, bias, OC * e, 3);
        b->params_changed();
        b->matmul_gelu_forward(out, pre, inp, weight, bias, N, C, OC);
        for (int i = 0; i < 2; i++) {
            const size_t rows = (size_t)i * HALF;
            Stored *half = stored_at(b, part, rows * OC), *half_pre = stored_at(b, part_pre, rows * OC);
            b->matmul_gelu_forward(half, half_pre, stored_at(b, inp, rows * C), weight, bias, HALF, C, OC);
        }
        EXPECT(!memcmp(out, part, wide) && !memcmp(pre, part_pre, wide));
        // backward: inp is dout (N,C), out gelu(pre) (N,OC)
        b->matmul_gelu_backward(part, dweight, dbias, inp, out, pre, weight, GRADS_ADD, N, OC, C);
        for (int i = 0; i < 2; i++) {
            const size_t rows = (size_t)i * HALF;
            b->matmul_gelu_backward(stored_at(b, part_pre, rows * OC), dweight, dbias, stored_at(b, inp, rows * C),
                                    stored_at(b, out, rows * OC), stored_at(b, pre, rows * OC), weight, GRADS_ADD,
                                    HALF, OC, C);
        }
        EXPECT(!memcmp(part, part_pre, wide));
        guarded_free(out, wide), guarded_free(pre, wide), guarded_free(part, wide), guarded_free(part_pre, wide);
        guarded_free(inp, narrow), guarded_free(weight, OC * C * e), guarded_free(bias, OC * e);
        guarded_free(dweight, OC * C * sizeof(float)), guarded_free(dbias, C * sizeof(float));
    }
}

// The instructions for bf16 take denormals as zeros and flush results to zero; device_open() sets the others likewise.
TEST(denormals_are_zeros_in_matmuls) {
#ifdef __SSE__
    float with, without;
    EACH_CPU_BACKEND(b) {
        if (stores_fp16(b)) { continue; } // has no denormal floats
        matmul_with(b, 0x1p-127f, 1, 0x1p126f, 1, &with, &without);
        EXPECT(without == 0x1p126f && with == 0);
        matmul_with(b, 0x1p-126f, 0, 0x1p-1f, 1, &with, &without); // the product is denormal
        EXPECT(without == 0 && with == 0);
        matmul_with(b, 0x1p-126f, 0, 1, 1, &with, &without);
        EXPECT(without == 0 && with == 0x1p-126f);
    }
#else
    SKIP("the processor has other ways to flush denormals");
#endif
}

// They are normal floats.
TEST(subnormal_halves_stay_in_matmuls) {
    float with, without;
    EACH_CPU_BACKEND(b) {
        if (!stores_fp16(b)) { continue; }
        matmul_with(b, 0x1p-24f, 0, 1, 1, &with, &without);
        EXPECT(without == 0 && with == 0x1p-24f);
        matmul_with(b, 0x1p-14f, 0, 0x1p-9f, 7, &with, &without);
        EXPECT(without == 0 && with == 0x1p-23f);
        matmul_with(b, 0x1p-20f, 0, 0x1.8p-4f, 1, &with, &without); // halfway between 1 and 2 of the smallest: the even
        EXPECT(without == 0 && with == 0x1p-23f);
    }
}

TEST_MAIN()
