// What `check` and `bench ladder` judge by: the measure of a difference, bounds, the numbers that operations are given.
#include "../llmc/bench.h"
#include "../llmc/check.h"
#include "test.h"

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

TEST(what_is_not_finite_is_within_no_bound) {
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
    const double bf16 = bounds_of("bf16")->rounded;
    EXPECT(d.error <= bf16 && !is_within(&d, bf16));
    for (int i = 0; i < N; i++) { got[i] = round_to_bf16(want[i]); }
    const Difference rounded = compare(got, want, N);
    EXPECT(is_within(&rounded, bounds_of("bf16")->stored) && !is_within(&rounded, bounds_of("bf16")->exact));
}

TEST(bounds_follow_the_type_and_what_the_operation_does) {
    const Bounds *fp32 = bounds_of("fp32"), *tf32 = bounds_of("tf32"), *bf16 = bounds_of("bf16");
    EXPECT(op_bound(tf32, "layernorm_forward", ELEM_FLOATX) == fp32->exact); // TF32 is for products alone
    EXPECT(op_bound(tf32, "matmul_forward", ELEM_FLOATX) == tf32->rounded);
    EXPECT(op_bound(bf16, "layernorm_forward", ELEM_FLOAT) == bf16->exact);
    EXPECT(op_bound(bf16, "layernorm_forward", ELEM_FLOATX) == bf16->stored);
    EXPECT(op_bound(bf16, "matmul_gelu_backward", ELEM_FLOAT) == bf16->product);
    EXPECT(op_bound(bf16, "attention_forward", ELEM_FLOATX) == bf16->rounded);
    EXPECT(op_bound(bf16, "classifier_loss", ELEM_FLOAT) == bf16->logits);
    EXPECT_DEATH(EXIT_RUNTIME, "no bounds for --dtype fp8", bounds_of("fp8"));
    EXPECT(loss_tolerance("fp32", "fp32") < loss_tolerance("fp32", "tf32"));
    EXPECT(loss_tolerance("tf32", "bf16") == loss_tolerance("bf16", "tf32"));
}

TEST(bf16_is_rounded_to_nearest_even) {
    EXPECT(round_to_bf16(1.0) == 1.0 && round_to_bf16(1.00390625) == 1.0 && round_to_bf16(1.01171875) == 1.015625);
    EXPECT(round_to_bf16(-1.005) == -1.0078125 && isnan(round_to_bf16((double)NAN)));
}

TEST(inputs_are_filled_and_outputs_are_not) {
    const OpSizes sizes = op_sizes_small();
    enum { N = 39, TENSORS = 5 };
    const OpTensor tensors[TENSORS] = {{"out", ROLE_WRITE, ELEM_FLOATX, N, NULL},
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
// a device that computes out = 2 inp, sum += inp, with a fault of choice

typedef enum { NO_FAULT, SETS_SUM, LEAVES_ONE_OUT, WRITES_INPUT } Fault;
static Fault fault;
enum { FAKE_N = 10 };

static void fake_open(const Config* config) { (void)config; }

static const char* fake_op_name(int op) { return op == 0 ? "fake" : NULL; }

static int fake_op_tensors(int op, const OpSizes* sizes, OpTensor tensors[MAX_OP_TENSORS]) {
    static const OpTensor all[4] = {{"out", ROLE_WRITE, ELEM_FLOAT, FAKE_N, NULL},
                                    {"sum", ROLE_ADD, ELEM_FLOAT, FAKE_N, NULL},
                                    {"inp", ROLE_READ, ELEM_FLOATX, FAKE_N, NULL},
                                    {"scratch", ROLE_SCRATCH, ELEM_FLOAT, FAKE_N, NULL}};
    (void)op, (void)sizes;
    memcpy(tensors, all, sizeof all);
    return 4;
}

static void fake_op_run(int op, const OpSizes* sizes, double* const* values) {
    (void)op, (void)sizes;
    for (int i = 0; i < FAKE_N; i++) {
        values[0][i] = 2 * values[2][i];
        values[1][i] += values[2][i];
    }
    EXPECT(values[3] == NULL);
}

static void faulty_op_run(int op, const OpSizes* sizes, double* const* values) {
    const double out = values[0][3], sum = values[1][3];
    fake_op_run(op, sizes, values);
    if (fault == SETS_SUM) { values[1][3] -= sum; }
    if (fault == LEAVES_ONE_OUT) { values[0][3] = out; }
    if (fault == WRITES_INPUT) { values[2][3] += 1; }
}

// How many comparisons of the fake operation fail; what it prints is thrown away.
static int failures_with(Fault which) {
    Harness device, reference;
    Check k;
    const OpSizes sizes = op_sizes_small();
    memset(&device, 0, sizeof device);
    device.open = fake_open;
    device.op_name = fake_op_name;
    device.op_tensors = fake_op_tensors;
    reference = device;
    reference.op_run = fake_op_run;
    device.op_run = faulty_op_run;
    memset(&k, 0, sizeof k);
    k.device = &device;
    k.reference = &reference;
    k.bounds = bounds_of("fp32");
    fault = which;
    fflush(stdout);
    const int kept = dup(STDOUT_FILENO), nowhere = open("/dev/null", O_WRONLY);
    dup2(nowhere, STDOUT_FILENO);
    check_op(&k, 0, &sizes);
    dup2(kept, STDOUT_FILENO);
    close(kept);
    close(nowhere);
    EXPECT(k.compared == 2 + (which == WRITES_INPUT));
    return k.failed;
}

TEST(an_operation_with_a_fault_fails) {
    EXPECT(failures_with(NO_FAULT) == 0);
    EXPECT(failures_with(SETS_SUM) == 1);
    EXPECT(failures_with(LEAVES_ONE_OUT) == 1);
    EXPECT(failures_with(WRITES_INPUT) == 1);
}

// ---------------------------------------------------------------------------------------------------------------------
// the ladder

TEST(the_median_is_the_middle) {
    double odd[3] = {3, 1, 2}, even[4] = {4, 1, 3, 2};
    EXPECT(median(odd, 3) == 2 && median(even, 4) == 2.5);
}

// A ladder that was run, with one rung that has a wrong loss and one that did not fit.
static Ladder example_ladder(Config* config) {
    Ladder l;
    memset(&l, 0, sizeof l);
    config_defaults(config);
    l.config = config;
    l.rungs = CPU_RUNGS;
    l.count = NUM_CPU_RUNGS;
    l.device = "a <processor> & more";
    for (int i = 0; i < l.count; i++) { l.result[i].rung = &CPU_RUNGS[i]; }
    for (int i = 0; i < 2; i++) {
        l.result[i].ran = true;
        l.result[i].ms = 20 - 10 * i;
        l.result[i].tokens_per_second = 100 * (i + 1);
        l.result[i].loss = 5.0 + i;
    }
    rung_compare(&l, &l.result[0], NULL, NULL);
    rung_compare(&l, &l.result[1], &l.result[0], &l.result[0]);
    rung_compare(&l, &l.result[2], &l.result[0], &l.result[1]);
    return l;
}

TEST(a_rung_with_another_loss_fails) {
    Config config;
    Ladder l = example_ladder(&config);
    EXPECT(l.failed == 1 && rung_is_ok(&l.result[0]) && !rung_is_ok(&l.result[1]));
    EXPECT_NEAR(l.result[1].gain, 2, 1e-12);
    EXPECT_NEAR(l.result[1].loss_error, 0.2, 1e-12);
    l.result[0].loss = (double)NAN;
    EXPECT(!rung_is_ok(&l.result[0]));
}

TEST(the_ladder_is_written_as_json_and_as_a_page) {
    Error err;
    Config config;
    Ladder l = example_ladder(&config);
    l.result[1].loss = (double)NAN; // must not make the file unreadable
    config.out = format("%s/ladder", test_folder);
    ladder_write(&l);
    char *path = format("%s/ladder.json", config.out), *page = format("%s/ladder.html", config.out);
    json_t *record = json_load_file(path, 0, NULL), *rungs = json_object_get(record, "rungs");
    EXPECT(json_array_size(rungs) == 3 && !strcmp(record_text(record, "device"), l.device));
    EXPECT(json_is_true(json_object_get(json_array_get(rungs, 0), "ok")));
    EXPECT(json_is_false(json_object_get(json_array_get(rungs, 1), "ok")));
    EXPECT(json_is_null(json_object_get(json_array_get(rungs, 1), "loss")));
    EXPECT(json_is_false(json_object_get(json_array_get(rungs, 2), "ran")));
    char* text = read_file(page, NULL, &err);
    EXPECT(text && strstr(text, "a &#60;processor&#62; &#38; more") && strstr(text, "wrong loss"));
    EXPECT(text && strstr(text, "does not fit into memory"));
    free(text);
    json_decref(record);
    free(path);
    free(page);
}

TEST_MAIN()
