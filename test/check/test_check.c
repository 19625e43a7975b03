// The judgement of `check`: the measure of a difference, bounds, the inputs of operations, and that faults of an
// operation are found.
#include "llmc/check/check_op.h"
#include "llmc/check/op_run.h"
#include "llmc/base/rng.h"
#include "llmc/base/rounding.h"
#include "test/test.h"

TEST(equal_tensors_do_not_differ) {
    const double x[3] = {1, -2, 3}, zero[3] = {0, 0, 0};
    const Difference same = compare(x, x, 3), zeros = compare(zero, zero, 3);
    EXPECT(same.error == 0 && same.worst == 0);
    EXPECT_NEAR(same.cosine, 1, 1e-15);
    EXPECT(zeros.error == 0 && zeros.worst == 0 && zeros.cosine == 1);
}

TEST(a_difference_is_relative_to_what_is_wanted) {
    const double want[4] = {3, 4, 0, 0}, got[4] = {3, 4, 0.5, 0}, twice[4] = {6, 8, 0, 0}, turned[4] = {-4, 3, 0, 0};
    const Difference d = compare(got, want, 4);
    EXPECT_NEAR(d.error, 0.1, 1e-15);
    EXPECT_NEAR(d.worst, 0.5 / 2.5, 1e-15); // the element is 0, the root mean square 2.5
    EXPECT_NEAR(compare(twice, want, 4).error, 1, 1e-15);
    EXPECT_NEAR(compare(twice, want, 4).cosine, 1, 1e-15);
    EXPECT_NEAR(compare(turned, want, 4).cosine, 0, 1e-15);
}

TEST(zero_where_something_is_wanted_and_something_where_zero_is) {
    const double x[2] = {1e-30, 0}, zero[2] = {0, 0};
    const Difference nothing = compare(zero, x, 2), something = compare(x, zero, 2);
    EXPECT(nothing.error == 1 && nothing.cosine == 0);
    EXPECT(isinf(something.error) && !is_within(&something, 1e9));
}

TEST(a_layer_that_is_not_finite_is_not_hidden_by_the_next) {
    const Tensor t = {.name = "w", .rows = 1, .used_rows = 1, .cols = 2, .layers = 3, .stride = TENSOR_ALIGN};
    float got[3 * TENSOR_ALIGN] = {0}, want[3 * TENSOR_ALIGN] = {0};
    for (int l = 0; l < 3; l++) { got[tensor_at(&t, l)] = want[tensor_at(&t, l)] = 1; }
    got[tensor_at(&t, 1)] = 1.25f;
    EXPECT_NEAR(compare_layers(got, want, NULL, &t).error, 0.25, 1e-7);
    got[tensor_at(&t, 1)] = (float)NAN;
    got[tensor_at(&t, 2)] = 1.5f;
    EXPECT(isnan(compare_layers(got, want, NULL, &t).error));
}

// Weights of 100 that have moved by 1: errors are those of the change. All are of the layer with the largest error, but
// `rest`, which is the largest of any layer: here of the other one.
TEST(changes_are_compared_from_where_they_began) {
    const Tensor t = {.name = "w", .rows = 1, .used_rows = 1, .cols = 4, .layers = 2, .stride = TENSOR_ALIGN};
    float from[2 * TENSOR_ALIGN], want[2 * TENSOR_ALIGN], got[2 * TENSOR_ALIGN];
    for (int i = 0; i < 2 * TENSOR_ALIGN; i++) { from[i] = 100, got[i] = want[i] = 101; }
    for (int i = 0; i < 4; i++) { got[tensor_at(&t, 0) + (size_t)i] = 101.5f; }
    got[tensor_at(&t, 1) + 2] = 99; // turned around
    const Difference change = compare_layers(got, want, from, &t), whole = compare_layers(got, want, NULL, &t);
    EXPECT_NEAR(change.error, 1, 1e-6);
    EXPECT_NEAR(change.rest, sqrt(3) / 4, 1e-6);
    EXPECT(whole.error < 0.02);
}

TEST(one_element_that_turned_around_counts_only_where_weights_are_exact) {
    const Difference d = {.error = 0.5, .rest = 0.01};
    EXPECT(change_error(bounds_of(dtype_fp32), &d) == d.error && change_error(bounds_of(dtype_tf32), &d) == d.error);
    EXPECT(change_error(bounds_of(dtype_bf16), &d) == d.rest && change_error(bounds_of(dtype_fp8), &d) == d.rest);
}

TEST(non_finite_numbers_are_within_no_bound) {
    const double bad[3] = {(double)NAN, (double)INFINITY, -(double)INFINITY};
    for (int i = 0; i < 3; i++) {
        const double good[2] = {1, 1}, broken[2] = {1, bad[i]};
        const Difference got = compare(broken, good, 2), want = compare(good, broken, 2);
        const Difference both = compare(broken, broken, 2);
        EXPECT(!is_within(&got, INFINITY) && !is_within(&want, INFINITY) && !is_within(&both, INFINITY));
    }
}

// The error of a whole tensor does not show it; the worst element does.
TEST(one_wrong_element_in_a_million_is_found) {
    enum { N = 1000000 };
    static double want[N], got[N];
    for (int i = 0; i < N; i++) { got[i] = want[i] = (double)rng_normal(1, RNG_TEST, (uint64_t)i); }
    got[N / 3] += 1;
    const Difference d = compare(got, want, N);
    const double bf16 = bounds_of(dtype_bf16)->rounded;
    EXPECT(d.error <= bf16 && !is_within(&d, bf16));
    for (int i = 0; i < N; i++) { got[i] = bf16_value(bf16_nearest((float)want[i])); }
    const Difference rounded = compare(got, want, N);
    EXPECT(is_within(&rounded, bounds_of(dtype_bf16)->stored) && !is_within(&rounded, bounds_of(dtype_bf16)->exact));
}

TEST(bounds_follow_the_type_and_what_the_operation_does) {
    const Bounds *fp32 = bounds_of(dtype_fp32), *tf32 = bounds_of(dtype_tf32), *bf16 = bounds_of(dtype_bf16);
    const Backend wide = {.residual_bytes = 4}, narrow = {.residual_bytes = 2};
    EXPECT(op_bound(tf32, &wide, "layernorm_forward", ELEM_STORED) == fp32->exact); // TF32 is for matmuls only
    EXPECT(op_bound(tf32, &wide, "matmul_forward", ELEM_STORED) == tf32->rounded);
    EXPECT(op_bound(bf16, &wide, "layernorm_forward", ELEM_FLOAT) == bf16->exact);
    EXPECT(op_bound(bf16, &wide, "layernorm_forward", ELEM_STORED) == bf16->stored);
    EXPECT(op_bound(bf16, &wide, "matmul_gelu_backward", ELEM_FLOAT) == bf16->matmul);
    EXPECT(op_bound(bf16, &wide, "attention_forward", ELEM_STORED) == bf16->rounded);
    EXPECT(op_bound(bf16, &wide, "classifier_loss", ELEM_FLOAT) == bf16->logits);
    EXPECT(op_bound(bf16, &wide, "muon_update", ELEM_STORED) == bf16->muon);
    const Bounds* fp16 = bounds_of(dtype_fp16); // has three bits more
    EXPECT(fp16->rounded == bf16->rounded / 8 && fp16->stored == bf16->stored / 8 && fp16->loss == bf16->loss / 8);
    EXPECT_DEATH(EXIT_RUNTIME, "no bounds for --dtype auto", bounds_of(dtype_auto));
    EXPECT(op_bound(bf16, &wide, "residual_layernorm_forward", ELEM_RESIDUAL) == bf16->exact);
    EXPECT(op_bound(bf16, &narrow, "residual_layernorm_forward", ELEM_RESIDUAL) == bf16->stored);
    EXPECT(op_bound(bf16, &narrow, "residual_layernorm_forward", ELEM_FLOAT) == bf16->twice); // of rounded sums
    EXPECT(op_bound(bf16, &narrow, "layernorm_backward", ELEM_FLOAT) == bf16->exact);
    const Bounds* fp8 = bounds_of(dtype_fp8); // for linear layers only; gradients are coarser
    EXPECT(op_bound(fp8, &wide, "matmul_gelu_backward", ELEM_FLOAT) == fp8->linear);
    EXPECT(op_bound(fp8, &wide, "matmul_forward", ELEM_STORED) == fp8->linear / 2);
    EXPECT(op_bound(fp8, &wide, "attention_forward", ELEM_STORED) == bf16->rounded);
    EXPECT(op_bound(fp8, &wide, "classifier_backward", ELEM_FLOAT) == bf16->logits);
}

TEST(inputs_are_filled_and_outputs_are_not) {
    const OpSizes sizes = OP_SIZES_SMALL;
    enum { N = 39, TENSORS = 5 };
    const OpTensor tensors[TENSORS] = {{"out", ROLE_WRITE, ELEM_STORED, N, NULL},
                                       {"dwte", ROLE_ADD, ELEM_FLOAT, N, NULL},
                                       {"tokens", ROLE_READ, ELEM_INT, N, NULL},
                                       {"order", ROLE_READ, ELEM_INT, N, NULL},
                                       {"delta", ROLE_SCRATCH, ELEM_FLOAT, N, NULL}};
    double out[N], dwte[N], tokens[N], order[N], *values[TENSORS] = {out, dwte, tokens, order, NULL};
    op_fill(values, tensors, TENSORS, &sizes, 1);
    for (int i = 0; i < N; i++) {
        EXPECT(isnan(out[i]) && isfinite(dwte[i]) && dwte[i] != 0);
        EXPECT(tokens[i] >= 0 && tokens[i] < sizes.V);
        if (i == 0) { continue; }
        const double before = tokens[(int)order[i - 1]], here = tokens[(int)order[i]];
        EXPECT(before < here || (before == here && order[i - 1] < order[i]));
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// a backend whose layernorm_backward has a fault

extern const Backend cpu_fp32_generic;

typedef enum { NO_FAULT, SETS_A_SUM, LEAVES_ONE_OUT, WRITES_TO_AN_INPUT } Fault;
static Fault fault;

static void faulty_layernorm_backward(Residual* dinp, Stored* dinp_stored, float* dweight, float* dbias,
                                      const Stored* dout, const Residual* inp, const Stored* weight, const float* mean,
                                      const float* rstd, int N, int C) {
    const float before = dweight[3];
    cpu_fp32_generic.layernorm_backward(dinp, dinp_stored, dweight, dbias, dout, inp, weight, mean, rstd, N, C);
    if (fault == SETS_A_SUM) { dweight[3] -= before; }
    if (fault == LEAVES_ONE_OUT) { ((float*)dinp_stored)[3] = NAN; }
    if (fault == WRITES_TO_AN_INPUT) { ((float*)inp)[3] += 1; }
}

// Returns the number of failed comparisons of the operation; discards its lines.
static int failures_with(Fault which) {
    Backend device = cpu_fp32_generic;
    device.layernorm_backward = faulty_layernorm_backward;
    Check k = {.device = &device, .reference = &cpu_fp32_generic, .bounds = bounds_of(dtype_fp32)};
    const OpSizes sizes = OP_SIZES_SMALL;
    fault = which;
    fflush(stdout);
    const int terminal = dup(STDOUT_FILENO), nowhere = open("/dev/null", O_WRONLY);
    dup2(nowhere, STDOUT_FILENO);
    check_op(&k, op_number("layernorm_backward"), &sizes);
    dup2(terminal, STDOUT_FILENO);
    close(terminal);
    close(nowhere);
    EXPECT(k.compared == 4 + (which == WRITES_TO_AN_INPUT)); // outputs, and an input only if it has changed
    return k.failed;
}

TEST(an_operation_with_a_fault_fails) {
    EXPECT(failures_with(NO_FAULT) == 0);
    EXPECT(failures_with(SETS_A_SUM) == 1);
    EXPECT(failures_with(LEAVES_ONE_OUT) == 1);
    EXPECT(failures_with(WRITES_TO_AN_INPUT) == 1);
}

TEST_MAIN()
