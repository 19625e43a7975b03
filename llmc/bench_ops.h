// `bench ops`: each operation of op_cases.h by itself, at the shapes of a model, beside what limits it: as a table, as
// JSON, and as a roofline. On a GPU whose data sheet is known (gpus.h), beside what bench_predict.h expects of it too.
//
// The limit is the least time that the machine needs: for the bytes at the speed of a copy, for the arithmetic at its
// peak, whichever is longer. Runs begin with cold caches: in training, other layers come between two uses of a
// weight. What one operation leaves in the caches for the next is lost here, so their times add up to more than a step.
// What is written may still be in the caches when a run ends, while a copy of much memory waits for it, and reads what
// it overwrites besides: small tensors can therefore beat that limit.
#pragma once
#include "bench_predict.h"
#include "roofline.h"

enum { MAX_OP_ROWS = 64 };

typedef struct {
    Config* config;
    const Harness* harness;
    const GpuFacts* gpu; // NULL: a CPU, or a GPU that is not in the table
    Step step;           // if there is one
    GPT2Config shape;
    double bandwidth, peak_flops; // bytes and operations per second, measured: of a copy and of a large matmul
    double published_flops;       // by data sheet; 0: not known
    RooflinePoint row[MAX_OP_ROWS];
    int count;
    json_t* rows;
} BenchOps;

// The part of its limit that a run reached.
static inline double op_reached(const BenchOps* b, const OpTime* t, bool* by_memory) {
    const double memory = t->bytes / b->bandwidth, arithmetic = t->flops / b->peak_flops;
    *by_memory = memory > arithmetic;
    return fmax(memory, arithmetic) / t->seconds;
}

// What bench_predict.h expects of one run.
static inline double predicted_seconds(const BenchOps* b, const char* name, const OpSizes* sizes) {
    const KernelList k = op_kernels(&b->step, name, sizes);
    return predict_kernels(&b->step, &k, 1).seconds;
}

static inline void bench_op(BenchOps* b, int op, const char* layer, const OpSizes* sizes) {
    bool by_memory;
    const char* name = b->harness->op_name(op);
    const OpTime t = b->harness->op_time(op, sizes);
    if (!(t.flops > 0)) { fatal("%s: op_cases.h does not say how many FLOPS it takes", name); }
    const double reached = op_reached(b, &t, &by_memory);
    const char* limit = by_memory ? "memory" : "arithmetic";
    printf("%-27s %-8s %10.3f", name, layer, 1e3 * t.seconds);
    if (b->gpu) { printf(" %10.3f", 1e3 * predicted_seconds(b, name, sizes)); }
    printf(" %10.2f %10.1f %10.3f %10.1f %7.1f%% of %s\n", t.bytes / 1e6, t.bytes / t.seconds / 1e9, t.flops / 1e9,
           t.flops / t.seconds / 1e9, 100 * reached, limit);
    fflush(stdout);
    if (b->count == MAX_OP_ROWS) { fatal("bench ops: more than %d rows", MAX_OP_ROWS); }
    const double ms = 1e3 * t.seconds;
    const RooflinePoint point = {name, layer, t.flops / t.bytes, t.flops / t.seconds, ms, reached, by_memory};
    b->row[b->count++] = point;
    json_t* row =
        json_pack("{s:s, s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:s, s:f}", "name", name, "layer", layer, "ms",
                  1e3 * t.seconds, "bytes", t.bytes, "gb_s", t.bytes / t.seconds / 1e9, "flops", t.flops, "gflop_s",
                  t.flops / t.seconds / 1e9, "intensity", point.intensity, "limit", limit, "reached", reached);
    if (!row) { fatal("%s: a time that JSON cannot hold", name); }
    if (b->gpu) { json_object_set_new(row, "predicted_ms", json_real(1e3 * predicted_seconds(b, name, sizes))); }
    json_array_append_new(b->rows, row);
}

// Whether one of the words after `bench ops` is part of "name layer".
static inline bool op_is_asked_for(const Config* c, const char* name, const char* layer) {
    char* full = format("%s %s", name, layer);
    bool asked = c->num_args == 1;
    for (int i = 1; i < c->num_args; i++) { asked = asked || strstr(full, c->args[i]); }
    free(full);
    return asked;
}

static inline void bench_all_ops(BenchOps* b) {
    const Harness* h = b->harness;
    for (int op = 0; h->op_name(op); op++) {
        const char* name = h->op_name(op);
        OpSizes sizes = op_sizes_of(&b->shape, (int)b->config->batch_size, (int)b->config->seq_len);
        int layers = 0;
        for (int i = 0; i < NUM_OP_LAYERS; i++) {
            const OpLayer* l = &OP_LAYERS[i];
            if (strcmp(l->op, name)) { continue; }
            layers++;
            sizes.C = l->in * b->shape.channels;
            sizes.OC = l->out * b->shape.channels;
            if (op_is_asked_for(b->config, name, l->layer)) { bench_op(b, op, l->layer, &sizes); }
        }
        if (!layers && op_is_asked_for(b->config, name, "")) { bench_op(b, op, "", &sizes); }
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// what is written

static inline Roofline ops_roofline(const BenchOps* b) {
    const Roofline r = {b->harness->device_name(), b->bandwidth, b->peak_flops, b->gpu ? 1e9 * b->gpu->memory : 0,
                        b->published_flops, b->row, b->count};
    return r;
}

static inline void page_ops(Page* page, const BenchOps* b) {
    const Config* c = b->config;
    const Roofline r = ops_roofline(b);
    page_begin(page, "ops");
    page_fact(page, "<header><h1>The operations on ", format("%s", r.device), "</h1>\n");
    page_fact(page, "<p>",
              format("%s, %lld x %lld tokens, %s; each operation by itself, caches cold, the best of several runs",
                     c->model, c->batch_size, c->seq_len, c->dtype),
              "</p>\n");
    page_fact(page, "<p>", given_options(c), "</p></header>\n<figure class=\"wide one\">\n");
    page_roofline(page, &r);
    page_add(page, "</figure>\n");
    page_end(page);
}

// Writes ops.json, ops.html and ops.svg into --out, unless that is empty.
static inline void ops_write(const BenchOps* b) {
    const char* out = b->config->out;
    json_t* record = bench_record("ops", b->config, &b->shape, b->harness->device_name(), b->bandwidth,
                                  config_to_json(b->config), "ops", b->rows);
    if (!*out) {
        json_decref(record);
        return;
    }
    if (record) {
        json_object_set_new(record, "peak_gflop_s", json_real(b->peak_flops / 1e9));
        if (b->gpu) { json_object_set_new(record, "published_gflop_s", json_real(b->published_flops / 1e9)); }
    }
    const Roofline r = ops_roofline(b);
    Page page = {NULL, 0, 0}, picture = {NULL, 0, 0};
    page_ops(&page, b);
    page_roofline(&picture, &r);
    bench_write_json(out, "ops.json", record);
    bench_write(out, "ops.html", page.text);
    bench_write(out, "ops.svg", picture.text);
    free(page.text);
    free(picture.text);
    printf("%s/ops.json\n%s/ops.html\n%s/ops.svg\n", out, out, out);
}

// ---------------------------------------------------------------------------------------------------------------------
// the command

static inline void print_ops_heading(const BenchOps* b) {
    const Config* c = b->config;
    printf("ops: %s, %s, %s kernels, %lld x %lld tokens of %s\n", b->harness->device_name(), c->dtype, c->kernels,
           c->batch_size, c->seq_len, c->model);
    printf("limits, measured: memory moves %.1f GB/s when it is copied, a large matmul does %.1f GFLOP/s",
           b->bandwidth / 1e9, b->peak_flops / 1e9);
    if (b->gpu) { printf("; by data sheet %.1f and %.1f", b->gpu->memory, b->published_flops / 1e9); }
    putchar('\n');
    printf("the best of several runs; before each, caches are filled with %d MiB of something else\n"
           "(beyond 100%%: what was written had not left the caches when the run ended)\n", COLD_MIB);
    printf("%-27s %-8s %10s", "operation", "layer", "ms");
    if (b->gpu) { printf(" %10s", "predicted"); }
    printf(" %10s %10s %10s %10s %s\n", "MB", "GB/s", "GFLOP", "GFLOP/s", " reached");
}

static inline int bench_ops(Config* config, FindTrainer find) {
    BenchOps b;
    memset(&b, 0, sizeof b);
    const Trainer* trainer = find(config->dtype);
    if (!trainer) { usage_error("--dtype %s: this program has none for this device", config->dtype); }
    if (!is_one_of(config->kernels, "fast|plain")) { usage_error("bench ops: --kernels takes fast or plain"); }
    if (!strcmp(config->dtype, "auto")) { config->dtype = trainer->storage; }
    b.config = config;
    b.harness = trainer->harness;
    b.rows = json_array();
    b.harness->open(config);
    bench_resolve(b.harness, config, &b.shape, strcmp(trainer->device, "cpu") != 0);
    b.bandwidth = b.harness->copy_bandwidth();
    b.peak_flops = b.harness->matmul_flops();
    b.gpu = gpu_named(b.harness->device_name());
    if (b.gpu) {
        b.published_flops = gpu_peak_flops(b.gpu, config->dtype);
        b.step = step_of(b.harness, config, &b.shape, b.gpu);
    }
    print_ops_heading(&b);
    bench_all_ops(&b);
    if (!b.count) { usage_error("bench ops: no operation has that in its name"); }
    ops_write(&b);
    return EXIT_DONE;
}
