// What `check` and `bench` judge by: the measure of a difference, bounds, the numbers that operations are given, rungs.
#include "../llmc/bench.h"
#include "../llmc/check.h"
#include "test.h"
#include <signal.h>

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
    EXPECT_DEATH(EXIT_RUNTIME, "no bounds for --dtype fp4", bounds_of("fp4"));
    const Bounds* fp8 = bounds_of("fp8"); // for linear layers alone, and gradients are coarser
    EXPECT(op_bound(fp8, "matmul_gelu_backward", ELEM_FLOAT) == fp8->linear);
    EXPECT(op_bound(fp8, "matmul_forward", ELEM_FLOATX) == fp8->linear / 2);
    EXPECT(op_bound(fp8, "attention_forward", ELEM_FLOATX) == bf16->rounded);
    EXPECT(op_bound(fp8, "classifier_backward", ELEM_FLOAT) == bf16->logits);
    EXPECT(loss_tolerance("fp8", "bf16") > loss_tolerance("bf16", "tf32"));
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

// A ladder of three rungs that was run: the second has a wrong loss, the third did not fit.
static Ladder example_ladder(Config* config) {
    Ladder l;
    memset(&l, 0, sizeof l);
    config_defaults(config);
    l.config = config;
    l.kind = &CPU_LADDER;
    l.count = 3;
    snprintf(l.device, sizeof l.device, "a <processor> & more");
    for (int i = 0; i < l.count; i++) { l.rung[i] = CPU_RUNGS[i]; }
    for (int i = 0; i < 2; i++) {
        RungResult* r = &l.result[i];
        r->ran = true;
        r->threads = 1;
        r->ms = 20 - 10 * i;
        r->tokens_per_second = 100 * (i + 1);
        r->flops = 1e9 * (i + 1);
        r->peak_flops = 8e9;
        r->peak_bytes = r->plan_bytes = (size_t)1 << 30;
        r->loss = 5.0 + i;
    }
    snprintf(l.result[2].why_not, sizeof l.result[2].why_not, "does not fit into memory");
    rung_compare(&l, 0, -1, -1);
    rung_compare(&l, 1, 0, 0);
    rung_compare(&l, 2, 0, 1);
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

TEST(each_rung_is_one_switch_on_top_of_the_one_before) {
    const LadderKind* kinds[2] = {&CPU_LADDER, &GPU_LADDER};
    for (int k = 0; k < 2; k++) {
        EXPECT(kinds[k]->count <= MAX_RUNGS && !strcmp(kinds[k]->rungs[0].kernels, "plain"));
        for (int i = 1; i < kinds[k]->count; i++) {
            const Rung *a = &kinds[k]->rungs[i - 1], *b = &kinds[k]->rungs[i];
            const int turned_on = (b->fused - a->fused) + (b->flash - a->flash) + (b->pad_vocab - a->pad_vocab) +
                                  (b->graph - a->graph);
            const int others = (strcmp(a->dtype, b->dtype) != 0) + (strcmp(a->kernels, b->kernels) != 0) +
                               (a->threads != b->threads);
            EXPECT(turned_on + others == 1 && turned_on >= 0);
        }
    }
}

TEST(threads_and_graphs_must_not_change_the_loss_at_all) {
    Rung a = CPU_RUNGS[1], b = a;
    b.threads = ALL_THREADS;
    b.graph = 1;
    EXPECT(rung_tolerance(&a, &b) == 0);
    b.fused = 1;
    EXPECT(rung_tolerance(&a, &b) == loss_tolerance("fp32", "fp32"));
    b.dtype = "bf16";
    EXPECT(rung_tolerance(&a, &b) == loss_tolerance("fp32", "bf16"));
}

static const Trainer* find_all(const char* dtype) {
    static const Trainer trainer;
    (void)dtype;
    return &trainer;
}
static const Trainer* find_no_bf16(const char* dtype) { return strcmp(dtype, "bf16") ? find_all(dtype) : NULL; }

static Ladder chosen_ladder(FindTrainer find, int threads) {
    Ladder l;
    memset(&l, 0, sizeof l);
    l.kind = &CPU_LADDER;
    l.find = find;
    l.threads = threads;
    ladder_choose(&l);
    return l;
}

TEST(rungs_that_this_machine_cannot_do_are_left_out) {
    const Ladder all = chosen_ladder(find_all, 2), one = chosen_ladder(find_all, 1);
    const Ladder fp32 = chosen_ladder(find_no_bf16, 2);
    EXPECT(all.count == CPU_LADDER.count && one.count == all.count - 1 && fp32.count == all.count - 1);
    EXPECT(one.rung[one.count - 1].threads == 1);
    for (int i = 0; i < fp32.count; i++) { EXPECT(!strcmp(fp32.rung[i].dtype, "fp32")); }
    EXPECT(!strcmp(fp32.rung[fp32.count - 1].name, all.rung[all.count - 1].name));
}

static void touch_memory(Ladder* l, int mib) {
    volatile char* memory = (volatile char*)alloc_or_die((size_t)mib << 20, 1, "a test");
    for (size_t i = 0; i < (size_t)mib << 20; i += 1024) { memory[i] = 1; }
    l->result[0].ran = true;
}
static void fail_at_run_time(Ladder* l, int code) {
    (void)l;
    exit(code);
}
static void be_killed(Ladder* l, int signal) {
    (void)l;
    raise(signal);
}

TEST(a_rung_has_memory_and_an_end_of_its_own) {
    Ladder* l = (Ladder*)mmap(NULL, sizeof *l, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    size_t large = 0, small = 0;
    EXPECT(in_child(touch_memory, l, 64, &large) == EXIT_DONE && l->result[0].ran);
    EXPECT(in_child(touch_memory, l, 1, &small) == EXIT_DONE);
    EXPECT(large >= (size_t)64 << 20 && small < large - ((size_t)32 << 20));
    EXPECT(in_child(fail_at_run_time, l, EXIT_USAGE, &small) == EXIT_USAGE);
    EXPECT(in_child(be_killed, l, SIGKILL, &small) == 128 + SIGKILL);
    munmap(l, sizeof *l);
}

TEST(the_ladder_is_written_as_json_and_as_a_page) {
    Error err;
    Config config;
    Ladder l = example_ladder(&config);
    l.result[1].loss = (double)NAN; // must not make the file unreadable
    config.out = format("%s/ladder", test_folder);
    ladder_write(&l);
    char *path = format("%s/ladder.json", config.out), *page = format("%s/ladder.html", config.out);
    char* picture = format("%s/ladder.svg", config.out);
    json_t *record = json_load_file(path, 0, NULL), *rungs = json_object_get(record, "rungs");
    EXPECT(json_array_size(rungs) == 3 && !strcmp(record_text(record, "device"), l.device));
    EXPECT(json_is_true(json_object_get(json_array_get(rungs, 0), "ok")));
    EXPECT_NEAR(json_real_value(json_object_get(json_array_get(rungs, 0), "mfu")), 0.125, 1e-15);
    EXPECT(json_is_false(json_object_get(json_array_get(rungs, 1), "ok")));
    EXPECT(json_is_null(json_object_get(json_array_get(rungs, 1), "loss")));
    EXPECT(json_is_false(json_object_get(json_array_get(rungs, 2), "ran")));
    const char* paths[2] = {page, picture};
    for (int i = 0; i < 2; i++) {
        char* text = read_file(paths[i], NULL, &err);
        EXPECT(text && strstr(text, "a &#60;processor&#62; &#38; more") && strstr(text, "wrong loss"));
        EXPECT(text && strstr(text, "does not fit into memory") && strstr(text, "</svg>"));
        free(text);
    }
    json_decref(record);
    free(path);
    free(page);
    free(picture);
}

// ---------------------------------------------------------------------------------------------------------------------
// operations

TEST(the_limit_is_the_longer_of_the_two_times) {
    BenchOps b;
    bool by_memory;
    memset(&b, 0, sizeof b);
    b.bandwidth = 1e9;
    b.peak_flops = 4e9;
    const OpTime product = {8e6, 1e6, 4e-3}, copy = {1e6, 1e6, 4e-3}; // flops, bytes, seconds
    EXPECT_NEAR(op_reached(&b, &product, &by_memory), 0.5, 1e-12);
    EXPECT(!by_memory);
    EXPECT_NEAR(op_reached(&b, &copy, &by_memory), 0.25, 1e-12);
    EXPECT(by_memory);
}

TEST(operations_are_chosen_by_their_names) {
    Config c;
    const char* args[3] = {"ops", "gelu", "backward qkv"};
    memset(&c, 0, sizeof c);
    c.args = (char**)args;
    c.num_args = 1;
    EXPECT(op_is_asked_for(&c, "adamw_update", ""));
    c.num_args = 3;
    EXPECT(op_is_asked_for(&c, "matmul_gelu_forward", "fc") && op_is_asked_for(&c, "matmul_backward", "qkv"));
    EXPECT(!op_is_asked_for(&c, "matmul_backward", "fc") && !op_is_asked_for(&c, "adamw_update", ""));
}

// ---------------------------------------------------------------------------------------------------------------------
// the roofline

TEST(points_lie_where_their_numbers_say) {
    RooflinePoint point[3] = {{"on the slope", "", 0.1, 1e8, 1, 1, true},
                              {"at half the peak", "", 100, 2e9, 1, 0.5, false},
                              {"far below", "", 1, 1, 1, 1e-9, true}};
    const Roofline r = {"a machine", 1e9, 4e9, 0, 0, point, 3};
    const RoofScale s = roof_scale(&r);
    const RoofMarks m = roof_marks(&r, &s);
    EXPECT(s.left <= -1 && s.right >= 2);
    EXPECT_NEAR(m.dot[0].y, roof_above(&m, m.dot[0].x), 1e-6);
    EXPECT_NEAR(m.dot[1].y - roof_above(&m, m.dot[1].x), (ROOF_BOTTOM - ROOF_TOP) * log10(2) / (s.top - s.bottom),
                1e-6);
    EXPECT_NEAR(m.dot[2].y, ROOF_BOTTOM, 1e-9);
}

TEST(numbers_do_not_cover_each_other) {
    enum { N = 30 };
    RooflinePoint point[N];
    for (int i = 0; i < N; i++) {
        const RooflinePoint p = {"op", "", 50 + i % 5, 2e9 + 1e7 * i, 1, 0.5, false};
        point[i] = p;
    }
    const Roofline r = {"<a machine>", 1e9, 4e9, 2e9, 5e9, point, N};
    const RoofScale s = roof_scale(&r);
    const RoofMarks m = roof_marks(&r, &s);
    for (int i = 0; i < N; i++) {
        for (int j = 0; j < i; j++) {
            EXPECT(fabs(m.mark[i].x - m.mark[j].x) >= 18 || fabs(m.mark[i].y - m.mark[j].y) >= 12);
        }
        EXPECT(fabs(m.mark[i].y - roof_above(&m, m.mark[i].x)) > 6);
    }
    Page page = {NULL, 0, 0};
    page_roofline(&page, &r);
    EXPECT(strstr(page.text, "by data sheet") && strstr(page.text, ">30</text>") && !strstr(page.text, "<a machine>"));
    free(page.text);
}

TEST_MAIN()
