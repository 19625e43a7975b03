// `bench ladder` and `bench ops`: rungs and their tolerances, processes of their own, what is written, rooflines.
#include "llmc/bench/ladder.h"
#include "llmc/base/text_stream.h"
#include "llmc/bench/ladder_results.h"
#include "llmc/bench/ops.h"
#include "llmc/log/metrics.h"
#include "test/test.h"
#include <signal.h>
#include <sys/mman.h>

// ---------------------------------------------------------------------------------------------------------------------
// the ladder

// A ladder of three rungs that was run: the second has a wrong loss, the third did not fit.
static Ladder example_ladder(Config* config) {
    config_defaults(config);
    Ladder l = {.config = config, .kind = &CPU_LADDER, .steps = 5, .count = 3};
    l.plan.model = "a model";
    l.plan.dtype = dtype_fp32;
    snprintf(l.device, sizeof l.device, "a <processor> & more");
    for (int i = 0; i < l.count; i++) { l.rung[i] = CPU_LADDER.rungs[i]; }
    for (int i = 0; i < 2; i++) {
        RungResult* r = &l.result[i];
        r->ran = true;
        r->threads = 1;
        r->ms = 20 - 10 * i;
        r->tokens_per_second = 100 * (i + 1);
        r->flops = 1e9 * (i + 1);
        r->peak_flops = 8e9;
        r->plan_bytes = (size_t)1 << 30;
        r->peak_bytes = r->plan_bytes << i;
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
    l.result[1].loss = 0.8 * l.result[0].loss; // too low is wrong, too
    rung_compare(&l, 1, 0, 0);
    EXPECT(!rung_is_ok(&l.result[1]));
    EXPECT_NEAR(l.result[1].loss_error, 0.2, 1e-12);
    l.result[0].loss = (double)NAN;
    EXPECT(!rung_is_ok(&l.result[0]));
}

TEST(each_rung_is_one_switch_on_top_of_the_one_before) {
    const LadderKind* kinds[2] = {&CPU_LADDER, &GPU_LADDER};
    for (int k = 0; k < 2; k++) {
        EXPECT(kinds[k]->count <= MAX_RUNGS && kinds[k]->rungs[0].kernels == kernels_plain);
        for (int i = 1; i < kinds[k]->count; i++) {
            const Rung *a = &kinds[k]->rungs[i - 1], *b = &kinds[k]->rungs[i];
            const int turned_on = (b->fused - a->fused) + (a->attention != b->attention) +
                                  (b->pad_vocab - a->pad_vocab) + (b->graph - a->graph);
            const int others = (a->dtype != b->dtype) + (a->residual != b->residual) +
                               (a->kernels != b->kernels) + (a->threads != b->threads);
            EXPECT(turned_on + others == 1 && turned_on >= 0);
        }
    }
}

TEST(tolerances_follow_the_coarser_type) {
    EXPECT(loss_tolerance(dtype_fp8, dtype_bf16) > loss_tolerance(dtype_bf16, dtype_tf32));
    EXPECT(loss_tolerance(dtype_fp32, dtype_fp32) < loss_tolerance(dtype_fp32, dtype_tf32));
    EXPECT(loss_tolerance(dtype_tf32, dtype_bf16) == loss_tolerance(dtype_bf16, dtype_tf32));
}

TEST(threads_and_graphs_must_not_change_the_loss_at_all) {
    Rung a = CPU_LADDER.rungs[1], b = a;
    b.threads = ALL_THREADS;
    b.graph = 1;
    EXPECT(rung_tolerance(&a, &b, true) == 0);
    EXPECT(rung_tolerance(&a, &b, false) == loss_tolerance(dtype_fp32, dtype_fp32)); // they were chosen differently
    b.fused = 1;
    EXPECT(rung_tolerance(&a, &b, true) == loss_tolerance(dtype_fp32, dtype_fp32));
    b = a;
    b.pad_vocab = 1;
    EXPECT(rung_tolerance(&a, &b, true) == loss_tolerance(dtype_fp32, dtype_fp32));
    b.dtype = dtype_bf16;
    EXPECT(rung_tolerance(&a, &b, true) == loss_tolerance(dtype_fp32, dtype_bf16));
}

TEST(rungs_that_chose_other_kernels_may_differ_a_little) {
    Config config;
    Ladder l = example_ladder(&config);
    l.rung[1] = l.rung[0];
    l.result[1].loss = l.result[0].loss * (1 + 1e-6);
    rung_compare(&l, 1, 0, 0);
    EXPECT(l.result[1].tolerance == 0 && !rung_is_ok(&l.result[1]));
    snprintf(l.result[1].kernels, sizeof l.result[1].kernels, "attention=cudnn");
    rung_compare(&l, 1, 0, 0);
    EXPECT(l.result[1].tolerance > 0 && rung_is_ok(&l.result[1]));
}

static const Backend* find_all(enum dtype dtype, enum cpu cpu) {
    static const Backend bf16_residual, backend = {.with_bf16_residual = &bf16_residual};
    (void)dtype, (void)cpu;
    return &backend;
}

static const Backend* find_no_bf16(enum dtype dtype, enum cpu cpu) {
    return dtype != dtype_bf16 ? find_all(dtype, cpu) : NULL;
}

static Ladder chosen_ladder(const Backend* (*find)(enum dtype dtype, enum cpu cpu), int threads) {
    static Config config;
    config_defaults(&config);
    Ladder l = {.config = &config, .kind = &CPU_LADDER, .threads = threads};
    ladder_choose(&l, find);
    return l;
}

TEST(rungs_that_this_machine_cannot_do_are_left_out) {
    const Ladder all = chosen_ladder(find_all, 2), one = chosen_ladder(find_all, 1);
    const Ladder fp32 = chosen_ladder(find_no_bf16, 2);
    EXPECT(all.count == CPU_LADDER.count && one.count == all.count - 1 && fp32.count == all.count - 1);
    EXPECT(one.rung[one.count - 1].threads == 1);
    for (int i = 0; i < fp32.count; i++) { EXPECT(fp32.rung[i].dtype == dtype_fp32); }
    EXPECT(!strcmp(fp32.rung[fp32.count - 1].name, all.rung[all.count - 1].name));
}

static const Backend a_fp16_backend = {.storage = "fp16"};
static const Backend* find_turings(enum dtype dtype, enum cpu cpu) {
    (void)cpu;
    return dtype == dtype_auto || dtype == dtype_fp16 ? &a_fp16_backend : find_all(dtype, cpu);
}

TEST(rungs_in_bf16_are_in_fp16_on_turing) {
    static Config config;
    config_defaults(&config);
    Ladder l = {.config = &config, .kind = &GPU_LADDER, .on_gpu = true, .threads = 2};
    ladder_choose(&l, find_turings);
    EXPECT(l.count == GPU_LADDER.count - 1 && !strcmp(l.rung[4].name, "fp16"));
    for (int i = 0, k = 0; i < l.count; i++, k++) {
        k += !strcmp(GPU_LADDER.rungs[k].name, "residual stream"); // left out
        const Rung* r = &GPU_LADDER.rungs[k];
        EXPECT(l.rung[i].dtype == (r->dtype == dtype_bf16 ? dtype_fp16 : r->dtype));
        EXPECT(i == 4 || !strcmp(l.rung[i].name, r->name));
    }
}

static void touch_memory(Ladder* l, int mib) {
    volatile char* memory = alloc_or_die((size_t)mib << 20, 1, "a test");
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
    Ladder* l = mmap(NULL, sizeof *l, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    size_t large = 0, small = 0;
    EXPECT(in_child(touch_memory, l, 64, &large) == EXIT_DONE && l->result[0].ran);
    EXPECT(in_child(touch_memory, l, 1, &small) == EXIT_DONE);
    EXPECT(large >= (size_t)64 << 20 && small < large - ((size_t)32 << 20));
    EXPECT(in_child(fail_at_run_time, l, EXIT_USAGE, &small) == EXIT_USAGE);
    EXPECT(in_child(be_killed, l, SIGKILL, &small) == 128 + SIGKILL);
    munmap(l, sizeof *l);
}

TEST(the_ladder_is_written_as_json_and_as_a_picture) {
    Error err;
    Config config;
    Ladder l = example_ladder(&config);
    l.result[1].loss = (double)NAN; // must not make the file unreadable
    l.given = (BenchGiven){.out = test_path("ladder"), .command = "bench ladder", .options = json_object()};
    ladder_write(&l);
    char *path = test_path("ladder/ladder.json"), *picture = test_path("ladder/ladder.svg");
    json_t *record = json_load_file(path, 0, NULL), *rungs = json_object_get(record, "rungs");
    EXPECT(json_array_size(rungs) == 3 && !strcmp(record_text(record, "device"), l.device));
    EXPECT(json_is_true(json_object_get(json_array_get(rungs, 0), "ok")));
    EXPECT_NEAR(json_real_value(json_object_get(json_array_get(rungs, 0), "mfu")), 0.125, 1e-15);
    EXPECT_NEAR(json_real_value(json_object_get(json_array_get(rungs, 0), "peak_gflop_s")), 8, 1e-12);
    EXPECT(json_is_false(json_object_get(json_array_get(rungs, 1), "ok")));
    EXPECT(json_is_null(json_object_get(json_array_get(rungs, 1), "loss")));
    EXPECT(json_is_false(json_object_get(json_array_get(rungs, 2), "ran")));
    char* text = read_file(picture, NULL, &err);
    EXPECT(text && strstr(text, "a &#60;processor&#62; &#38; more") && strstr(text, "wrong loss"));
    EXPECT(text && strstr(text, "does not fit into memory") && strstr(text, "</svg>"));
    EXPECT(text && strstr(text, "class=\"memory\" x=\"860\" y=\"50\" width=\"85.0\"")); // half of the longest
    free(text);
    json_decref(record);
}

// ---------------------------------------------------------------------------------------------------------------------
// operations

TEST(the_limit_is_the_longer_of_the_two_times) {
    BenchOps b = {.bandwidth = 1e9, .peak_flops = 4e9};
    bool by_memory;
    const OpTime matmul = {8e6, 1e6, 4e-3}, copy = {1e6, 1e6, 4e-3}; // flops, bytes, seconds
    EXPECT_NEAR(op_reached(&b, &matmul, &by_memory), 0.5, 1e-12);
    EXPECT(!by_memory);
    EXPECT_NEAR(op_reached(&b, &copy, &by_memory), 0.25, 1e-12);
    EXPECT(by_memory);
    char text[32];
    b.is_emulated = true; // its speed says nothing
    EXPECT(!strcmp(percent_text(text, op_reached(&b, &copy, &by_memory)), "-"));
    EXPECT(!strcmp(percent_text(text, 0.125), "12.5%"));
}

TEST(operations_are_chosen_by_their_names) {
    const char* words[] = {"gelu", "backward qkv"};
    BenchOps b = {.words = (char**)words};
    EXPECT(op_is_asked_for(&b, "adamw_update", ""));
    b.num_words = 2;
    EXPECT(op_is_asked_for(&b, "matmul_gelu_forward", "fc") && op_is_asked_for(&b, "matmul_backward", "qkv"));
    EXPECT(!op_is_asked_for(&b, "matmul_backward", "fc") && !op_is_asked_for(&b, "adamw_update", ""));
}

// ---------------------------------------------------------------------------------------------------------------------
// the roofline

// Returns the y of point number `i` in the picture; the points come before the list.
static double point_y(const char* svg, int i) {
    for (; svg && i >= 0; i--) { svg = strstr(svg + 1, "<circle class=\"by-"); }
    return svg ? strtod(strstr(svg, "cy=\"") + 4, NULL) : (double)NAN;
}

static char* drawn(const Roofline* r) {
    char* svg;
    size_t size;
    FILE* f = open_text_stream(&svg, &size, "a picture");
    draw_roofline(f, r);
    close_text_stream(f, "a picture");
    return svg;
}

// The measured roof in the picture: where its slope begins, and the ridge.
typedef struct {
    double x, y, ridge_x, ridge_y;
} Roof;

static Roof roof_of(const char* svg) {
    Roof r = {.x = 0};
    const char* path = strstr(svg, "class=\"roof\" d=\"M");
    EXPECT(path && sscanf(strchr(path, 'M'), "M%lf %lfL%lf %lfH", &r.x, &r.y, &r.ridge_x, &r.ridge_y) == 4);
    return r;
}

enum { LEFT_EDGE = 66, LOWER_EDGE = 430 }; // of the plot

TEST(points_lie_where_their_numbers_say) {
    RooflinePoint point[4] = {{"at the ridge", "", 4, 4e9, 1, 1, true},
                              {"at half the peak", "", 100, 2e9, 1, 0.5, false},
                              {"at a tenth of it", "", 100, 4e8, 1, 0.1, false},
                              {"far below", "", 1, 1, 1, 1e-9, true}};
    char* svg = drawn(&(Roofline){"<a machine>", "in a test", 1e9, 4e9, 2e9, 5e9, point, 4});
    const Roof roof = roof_of(svg);
    const double decade = point_y(svg, 2) - point_y(svg, 0);
    EXPECT_NEAR(point_y(svg, 0), roof.ridge_y, 0.1);
    EXPECT_NEAR(point_y(svg, 1) - roof.ridge_y, decade * log10(2), 0.2);
    EXPECT_NEAR(point_y(svg, 3), LOWER_EDGE, 0.1);
    EXPECT_NEAR(roof.x, LEFT_EDGE, 0.1); // at 1 FLOP for each byte, a fourth of the peak
    EXPECT_NEAR(roof.y - roof.ridge_y, decade * log10(4), 0.2);
    EXPECT(strstr(svg, "by data sheet") && strstr(svg, "&#60;a machine&#62;") && strstr(svg, "<title>far below "));
    free(svg);
}

// The axes begin at 1 FLOP for each byte and at 1 GFLOP/s, twice what memory allows there; they end at 100 and 8.
TEST(a_roof_that_enters_from_below_keeps_its_slope) {
    RooflinePoint point = {"a matmul", "", 100, 3e9, 1, 0.75, false};
    char* svg = drawn(&(Roofline){"a machine", "in a test", 0.5e9, 4e9, 0, 0, &point, 1});
    const Roof roof = roof_of(svg);
    EXPECT_NEAR(roof.y, LOWER_EDGE, 0.1);
    EXPECT_NEAR((roof.x - LEFT_EDGE) / (roof.ridge_x - LEFT_EDGE), log10(2) / log10(8), 1e-3);
    free(svg);
}

TEST_MAIN()
