// Every operation of every backend: gradients against finite differences, all backends against the plain loops in fp32,
// fast kernels against plain ones, and the same bits for any number of threads.
#include "test/check/backends.h"
#include "llmc/check/compare.h"
#include "llmc/check/op_run.h"
#include "test/check/op_tensors.h"
#include "llmc/base/rng.h"
#include "llmc/model/stored.h"

// ---------------------------------------------------------------------------------------------------------------------
// gradients of the plain loops in fp32, which are the reference below

// Returns the scalar whose gradient is checked: sum(dout * out); if dout is NULL, dloss * sum(losses).
static double scalar(OpCase* forward, const double* dout) {
    const OpTensor* out = op_find_tensor(forward, dout ? "out" : "losses");
    double *values = op_values(forward, out), sum = 0;
    for (size_t i = 0; i < out->n; i++) { sum += dout ? dout[i] * values[i] : (double)forward->dloss * values[i]; }
    free(values);
    return sum;
}

// Returns d scalar / d *x by central differences; x is an element of an input of `forward`, in host memory.
static double finite_difference(OpCase* forward, float* x, const double* dout) {
    const float original = *x, h = 1e-2f;
    *x = original + h;
    op_run(forward);
    const double up = scalar(forward, dout);
    *x = original - h;
    op_run(forward);
    const double down = scalar(forward, dout);
    *x = original;
    return (up - down) / (2.0 * (double)h);
}

// Copies inputs and results of `forward` to the inputs of `backward` with the same names, and sorts `order` by tokens.
static void take_from_forward(OpCase* backward, OpCase* forward) {
    for (int i = 0; i < backward->count; i++) {
        OpTensor *to = &backward->tensor[i], *from = op_find_tensor(forward, to->name);
        if (to->role == ROLE_READ && from) { memcpy(to->data, from->data, op_bytes(backward, to)); }
    }
    OpTensor *order = op_find_tensor(backward, "order"), *tokens = op_find_tensor(backward, "tokens");
    for (size_t n = 0, v = 0; order && v < (size_t)backward->size.V; v++) {
        for (size_t i = 0; i < order->n; i++) {
            if (((int*)tokens->data)[i] == (int)v) { ((int*)order->data)[n++] = (int)i; }
        }
    }
}

// Compares some elements of a gradient with finite differences. before: values that it was added to; NULL: zeros.
static void check_gradient(OpCase* f, OpCase* b, const OpTensor* grad, const OpTensor* x, const double* before,
                           const double* dout) {
    enum { SAMPLES = 48 };
    double got[SAMPLES], want[SAMPLES], *all = op_values(b, grad);
    for (size_t s = 0; s < SAMPLES; s++) {
        const size_t at = rng_u64(5, RNG_TEST, s) % x->n;
        got[s] = all[at] - (before ? before[at] : 0.0);
        want[s] = finite_difference(f, (float*)x->data + at, dout);
    }
    const double error = compare(got, want, SAMPLES).error;
    if (!(error < 2e-3)) {
        TEST_FAIL("%s: %s is off its finite differences by %.2g", op_name(b->op), grad->name, error);
    }
    free(all);
}

static void check_gradients(const Backend* backend, int op) {
    const OpSizes sizes = OP_SIZES_SMALL;
    OpCase f = op_open(backend, op, &sizes, 1), b = op_open(backend, op_backward(op), &sizes, 2);
    double* before[MAX_OP_TENSORS] = {NULL};
    op_run(&f);
    take_from_forward(&b, &f);
    const OpTensor* dout_tensor = op_find_tensor(&b, "dout");
    double* dout = dout_tensor ? op_values(&b, dout_tensor) : NULL;
    for (int i = 0; i < b.count; i++) { // not zeros: finds = in place of +=
        if (b.tensor[i].role == ROLE_ADD) { before[i] = op_values(&b, &b.tensor[i]); }
    }
    op_run(&b);
    int checked = 0;
    for (int i = 0; i < b.count; i++) {
        OpTensor *grad = &b.tensor[i], *x = grad->name[0] == 'd' ? op_find_tensor(&f, grad->name + 1) : NULL;
        if (!x || grad->role == ROLE_READ) { continue; }
        check_gradient(&f, &b, grad, x, before[i], dout);
        checked++;
    }
    if (checked == 0) { TEST_FAIL("%s: no gradient was checked", op_name(op)); }
    for (int i = 0; i < b.count; i++) { free(before[i]); }
    free(dout);
    op_close(&f);
    op_close(&b);
}

TEST(gradients_of_the_plain_loops_match_finite_differences) {
    cpu_fp32_generic.device_open(&PLAIN);
    for (int op = 0; op_name(op); op++) {
        if (op_backward(op) >= 0) { check_gradients(&cpu_fp32_generic, op); }
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// one setting against another

typedef struct {
    const Backend* backend;
    DeviceOptions options;
} Setting;

// Allocates and fills random inputs for the tensors of op_declare(), as `rounded` has them; NULL for scratch.
static void fill_inputs(const OpCase* c, const Backend* rounded, double** values) {
    for (int i = 0; i < c->count; i++) {
        const OpTensor* t = &c->tensor[i];
        values[i] = t->role == ROLE_SCRATCH ? NULL : alloc_or_die(t->n, sizeof **values, t->name);
    }
    op_fill(values, c->tensor, c->count, &c->size, 3);
    for (int i = 0; i < c->count; i++) {
        const OpTensor* t = &c->tensor[i];
        for (size_t k = 0; values[i] && k < t->n; k++) { values[i][k] = op_rounded(rounded, t->elem, values[i][k]); }
    }
}

// Runs an operation on copies of `inputs`, and sets `results` to them; free_values() frees them.
static void run_setting(const Setting* s, const OpCase* c, double* const* inputs, double** results) {
    for (int i = 0; i < c->count; i++) {
        const size_t n = c->tensor[i].n;
        results[i] = inputs[i] ? alloc_or_die(n, sizeof **results, c->tensor[i].name) : NULL;
        if (inputs[i]) { memcpy(results[i], inputs[i], n * sizeof **results); }
    }
    s->backend->device_open(&s->options);
    op_run_values(s->backend, c->op, &c->size, results);
}

static void free_values(const OpCase* c, double** values) {
    for (int i = 0; i < c->count; i++) { free(values[i]); }
}

// Tolerances between two settings: the bounds of `check`, a number, or the same bits.
typedef enum { BY_BOUNDS, BY_NUMBER, BY_BITS } Measure;

typedef struct {
    Measure measure;
    double number;
} Tolerance;

static const Tolerance BOUNDS_OF_CHECK = {BY_BOUNDS, 0}, SAME_BITS = {BY_BITS, 0};

static void compare_tensor(const Setting* s, int op, const OpTensor* t, const double* got, const double* want,
                           Tolerance tolerance) {
    const Difference d = compare(got, want, t->n);
    const double bound = op_bound(bounds_of(dtype_of_storage(s->backend)), s->backend, op_name(op), t->elem);
    const bool ok = tolerance.measure == BY_BITS     ? !memcmp(got, want, t->n * sizeof *got)
                    : tolerance.measure == BY_NUMBER ? d.error <= tolerance.number
                                                     : is_within(&d, bound);
    if (!ok) { TEST_FAIL("%s: %s is off by %.3g, an element by %.3g", op_name(op), t->name, d.error, d.worst); }
}

// An operation with its inputs, and its results under the first setting.
typedef struct {
    OpCase declared;
    double *inputs[MAX_OP_TENSORS], *want[MAX_OP_TENSORS];
} Compared;

static void compare_with_first(const Setting* s, const Compared* op, Tolerance tolerance) {
    double* got[MAX_OP_TENSORS];
    run_setting(s, &op->declared, op->inputs, got);
    for (int i = 0; i < op->declared.count; i++) {
        const OpTensor* t = &op->declared.tensor[i];
        if (got[i]) { compare_tensor(s, op->declared.op, t, got[i], op->want[i], tolerance); }
    }
    free_values(&op->declared, got);
}

// Runs all operations whose names contain `only` under each setting, and compares the others with the first. Each
// setting runs all operations in turn: a change in the number of threads ends threads, and new ones must touch new
// scratch memory.
static void compare_settings(const Setting* list, int count, OpSizes sizes, const char* only, Tolerance tolerance) {
    const Backend* rounded = list[count - 1].backend; // the first one may be a reference in fp32
    enum { MOST = 64 };
    Compared ops[MOST];
    int num_ops = 0;
    for (int op = 0; op_name(op); op++) {
        if (!strstr(op_name(op), only)) { continue; }
        if (num_ops == MOST) { TEST_FAIL("more than %d operations", MOST); return; }
        Compared* c = &ops[num_ops++];
        c->declared = op_declare(list[0].backend, op, &sizes);
        fill_inputs(&c->declared, rounded, c->inputs);
        run_setting(&list[0], &c->declared, c->inputs, c->want);
    }
    for (int k = 1; k < count; k++) {
        for (int i = 0; i < num_ops; i++) { compare_with_first(&list[k], &ops[i], tolerance); }
    }
    for (int i = 0; i < num_ops; i++) {
        free_values(&ops[i].declared, ops[i].inputs);
        free_values(&ops[i].declared, ops[i].want);
    }
}

// Sizes beyond one block of cpu/gemm.h in every direction.
static const OpSizes BLOCKS = {.B = 3, .T = 61, .C = 294, .NH = 3, .OC = 610, .V = 301, .Vp = 384, .past = 0,
                               .capacity = 80, .chunk = 7};
// More rows than a block has, and more than one block of depth in each matmul of a linear layer.
static const OpSizes DEEP = {.B = 2, .T = 400, .C = 392, .NH = 4, .OC = 394, .V = 301, .Vp = 384, .past = 10,
                             .capacity = 450, .chunk = 450};
// Rows, channels and outputs one below, at and one above multiples of vectors of 4 to 16 and of tiles.
static const OpSizes ODD[] = {
    {.B = 40, .T = 1, .C = 3, .NH = 1, .OC = 1, .V = 2, .Vp = 2, .past = 0, .capacity = 1, .chunk = 1},
    {.B = 1, .T = 17, .C = 31, .NH = 1, .OC = 15, .V = 33, .Vp = 33, .past = 1, .capacity = 18, .chunk = 17},
    {.B = 2, .T = 16, .C = 32, .NH = 2, .OC = 16, .V = 32, .Vp = 64, .past = 16, .capacity = 32, .chunk = 16},
    {.B = 5, .T = 7, .C = 33, .NH = 3, .OC = 49, .V = 65, .Vp = 128, .past = 3, .capacity = 11, .chunk = 4},
};
enum { NUM_ODD = sizeof ODD / sizeof *ODD };

// ---------------------------------------------------------------------------------------------------------------------
// against the reference

TEST(every_backend_equals_the_plain_loops_in_fp32) {
    EACH_BACKEND(b) {
        const Setting list[] = {{&cpu_fp32_generic, PLAIN}, {b, FAST}, {b, UNFUSED}, {b, PLAIN}};
        const int affordable = b->is_host ? 4 : 2; // an emulated GPU is slow
        compare_settings(list, 4, OP_SIZES_SMALL, "", BOUNDS_OF_CHECK);
        for (int k = 0; k < NUM_ODD; k++) { compare_settings(list, affordable, ODD[k], "", BOUNDS_OF_CHECK); }
    }
}

TEST(whole_tiles_equal_the_plain_loops_in_fp32) {
    EACH_BACKEND(b) {
        const Setting list[] = {{&cpu_fp32_generic, PLAIN}, {b, FAST}, {b, UNFUSED}, {b, PLAIN}};
        compare_settings(list, 4, OP_SIZES_TILES, b->is_host ? "" : "attention", BOUNDS_OF_CHECK);
    }
}

// Runs a comparison for each operation on the residual stream.
static void compare_residual_ops(const Setting* list, int count, OpSizes sizes, Tolerance tolerance) {
    compare_settings(list, count, sizes, "encoder", tolerance);
    compare_settings(list, count, sizes, "layernorm", tolerance);
}

TEST(operations_on_a_bf16_residual_stream_equal_the_plain_loops_in_fp32) {
    EACH_BF16_RESIDUAL(b) {
        const Setting list[] = {{&cpu_fp32_generic, PLAIN}, {b, FAST}, {b, UNFUSED}, {b, PLAIN}};
        compare_residual_ops(list, 4, OP_SIZES_SMALL, BOUNDS_OF_CHECK);
        compare_residual_ops(list, 4, OP_SIZES_TILES, BOUNDS_OF_CHECK);
        for (int k = 1; k < NUM_ODD; k++) { compare_residual_ops(list, 4, ODD[k], BOUNDS_OF_CHECK); }
    }
}

// Tighter than the bounds, since both round in the same places; sums are float for all storage types.
TEST(fast_kernels_equal_the_plain_ones_of_their_backend) {
    EACH_CPU_BACKEND(b) {
        if (is_another_fp16(b)) { continue; }
        const Setting list[] = {{b, with_threads(PLAIN, 2)}, {b, with_threads(FAST, 2)}};
        const Tolerance near = {BY_NUMBER, (stores_16_bits(b) ? 1 : 32) * unit_roundoff(b)};
        const Tolerance long_sums = {BY_NUMBER, 2 * near.number};
        compare_settings(list, 2, OP_SIZES_SMALL, "", near);
        compare_settings(list, 2, BLOCKS, "", long_sums);
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// the same bits

// Plain kernels have no blocks: the small sizes show as much as larger ones.
TEST(bits_do_not_depend_on_the_number_of_threads) {
    EACH_CPU_BACKEND(b) {
        if (is_another_fp16(b)) { continue; }
        const Setting plain[] = {{b, with_threads(PLAIN, 1)}, {b, with_threads(PLAIN, 7)}};
        const Setting fast[] = {{b, with_threads(FAST, 1)}, {b, with_threads(FAST, 7)}};
        compare_settings(plain, 2, OP_SIZES_SMALL, "", SAME_BITS);
        compare_settings(fast, 2, OP_SIZES_SMALL, "", SAME_BITS);
        compare_settings(fast, 2, BLOCKS, "", SAME_BITS);
    }
}

TEST(matmuls_in_many_blocks_do_not_depend_on_threads_or_fusion) {
    EACH_CPU_BACKEND(b) {
        if (is_another_fp16(b)) { continue; }
        const Setting list[] = {{b, with_threads(FAST, 1)}, {b, with_threads(UNFUSED, 3)}};
        compare_settings(list, 2, DEEP, "matmul", SAME_BITS);
        compare_settings(list, 2, DEEP, "classifier", SAME_BITS);
        const Setting many[] = {{b, with_threads(FAST, 2)}, {b, with_threads(FAST, 16)}};
        compare_settings(many, 2, BLOCKS, "matmul", SAME_BITS);
    }
}

// So many that they bypass the caches (copy_line_past_caches), with columns that are whole lines and not.
TEST(inputs_of_gelu_have_the_same_bits_when_they_bypass_the_caches) {
    EACH_CPU_BACKEND(b) {
        if (is_another_fp16(b)) { continue; }
        const Setting list[] = {{b, with_threads(FAST, 2)}, {b, with_threads(UNFUSED, 3)}};
        for (int odd = 0; odd < 2; odd++) {
            const OpSizes wide = {.B = 3, .T = 700, .C = 24, .NH = 3, .OC = 1056 + odd, .V = 133, .Vp = 160, .past = 4,
                                  .capacity = 800, .chunk = 7};
            compare_settings(list, 2, wide, "matmul_gelu_forward", SAME_BITS);
        }
    }
}

TEST(a_bf16_residual_stream_has_the_same_bits_for_any_threads_and_passes) {
    EACH_BF16_RESIDUAL(b) {
        const Setting list[] = {{b, with_threads(FAST, 1)}, {b, with_threads(FAST, 7)}, {b, with_threads(UNFUSED, 2)}};
        compare_residual_ops(list, 3, OP_SIZES_SMALL, SAME_BITS);
        compare_residual_ops(list, 3, BLOCKS, SAME_BITS);
    }
}

TEST(layernorm_gives_the_same_bits_in_one_pass_and_in_two) {
    EACH_CPU_BACKEND(b) {
        const Setting list[] = {{b, FAST}, {b, UNFUSED}};
        compare_settings(list, 2, OP_SIZES_SMALL, "residual_layernorm", SAME_BITS);
    }
}

// So many rows that the blocks of layernorm_backward are larger than LEAST_ROWS.
TEST(layernorm_backward_sums_any_number_of_rows) {
    const OpSizes many_rows = {.B = 5, .T = 1003, .C = 24, .NH = 3, .OC = 75, .V = 133, .Vp = 160, .past = 4,
                               .capacity = 1100, .chunk = 7};
    const Tolerance long_sums = {BY_NUMBER, 5e-6}; // the plain loops sum all rows one by one
    EACH_CPU_BACKEND(b) {
        const Setting list[] = {{b, with_threads(PLAIN, 1)}, {b, with_threads(FAST, 3)}};
        compare_settings(list, 2, many_rows, "layernorm_backward", long_sums);
    }
}

TEST_MAIN()
