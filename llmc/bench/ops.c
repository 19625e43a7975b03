#include "ops.h"
#include "../check/trial.h"
#include "../cpu/choices.h"
#include "../base/json.h"
#include "../base/text_stream.h"

double op_reached(const BenchOps* b, const OpTime* t, bool* by_memory) {
    const double memory = t->bytes / b->bandwidth, arithmetic = t->flops / b->peak_flops;
    *by_memory = memory > arithmetic;
    return b->is_emulated ? (double)NAN : fmax(memory, arithmetic) / t->seconds;
}

static void bench_op(BenchOps* b, const StepOp* op) {
    bool by_memory;
    char percent[32];
    const char *name = op_name(op->op), *layer = op->layer;
    const OpTime t = op_time(b->plan.backend, op->op, &op->size);
    if (!(t.flops > 0)) { fatal("%s: op_cases.c does not say how many FLOPS it takes", name); }
    const double reached = op_reached(b, &t, &by_memory);
    const char* limit = by_memory ? "memory" : "arithmetic";
    printf("%-27s %-8s %10.3f %10.2f %10.1f %10.3f %10.1f %8s of %s\n", name, layer, 1e3 * t.seconds, t.bytes / 1e6,
           t.bytes / t.seconds / 1e9, t.flops / 1e9, t.flops / t.seconds / 1e9, percent_text(percent, reached), limit);
    fflush(stdout);
    const RooflinePoint point = {.name = name,
                                 .layer = layer,
                                 .intensity = t.flops / t.bytes,
                                 .flops = t.flops / t.seconds,
                                 .ms = 1e3 * t.seconds,
                                 .reached = reached,
                                 .by_memory = by_memory};
    b->row[b->count++] = point;
    json_t* row = json_pack("{s:s, s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:s, s:o}", "name", name, "layer", layer, "ms",
                            point.ms, "bytes", t.bytes, "gb_s", t.bytes / t.seconds / 1e9, "flops", t.flops, "gflop_s",
                            t.flops / t.seconds / 1e9, "intensity", point.intensity, "limit", limit, "reached",
                            json_float(reached));
    if (!row) { fatal("%s: a time that JSON cannot hold", name); }
    json_array_append_new(b->rows, row);
}

// Returns true if a word is part of "name layer".
static bool is_in_name(const char* word, const char* name, const char* layer) {
    char* full = format("%s %s", name, layer);
    const bool found = strstr(full, word) != NULL;
    free(full);
    return found;
}

bool op_is_asked_for(const BenchOps* b, const char* name, const char* layer) {
    bool asked = b->num_words == 0;
    for (int i = 0; i < b->num_words; i++) { asked = asked || is_in_name(b->words[i], name, layer); }
    return asked;
}

// Returns the sizes of an operation that the step does not have. Those of generation add the last token to B sequences.
static OpSizes sizes_beside_step(const Plan* p, int op) {
    OpSizes s = op_sizes_of(&p->shape, p->B, p->T);
    if (is_one_of(op_name(op), "attention_cached|classifier_logits")) {
        s.T = 1;
        s.past = p->T - 1;
        s.capacity = p->T;
    }
    return s;
}

static bool is_in_step(const StepOps* step, int op) {
    int i = 0;
    while (i < step->count && step->op[i].op != op) { i++; }
    return i < step->count;
}

// Lists what can be timed: the operations of a step, then all others of op_cases.h, at the model's shapes.
static StepOps list_ops(const Plan* p) {
    const StepOps step = record_step(p);
    StepOps ops = step;
    for (int op = 0; op_name(op); op++) {
        if (is_in_step(&step, op)) { continue; }
        if (ops.count == MAX_STEP_OPS) { fatal("bench ops: more than %d rows", MAX_STEP_OPS); }
        ops.op[ops.count++] = (StepOp){.op = op, .layer = "", .size = sizes_beside_step(p, op)};
    }
    return ops;
}

// Ends the program if a word after `bench ops` is part of no operation's name.
static void require_ops(const BenchOps* b, const StepOps* ops) {
    for (int i = 0; i < b->num_words; i++) {
        bool found = false;
        for (int k = 0; k < ops->count; k++) {
            found = found || is_in_name(b->words[i], op_name(ops->op[k].op), ops->op[k].layer);
        }
        if (found) { continue; }
        usage_error("bench ops: no operation has '%s' in its name; without words all are timed", b->words[i]);
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// files

static void write_picture(const BenchOps* b, const char* out) {
    static const char name[] = "ops.svg";
    const Plan* p = &b->plan;
    char *picture, *title = format("%s: %s, %d x %d tokens, %s%s", p->backend->device_name(), p->model, p->B, p->T,
                                   dtype_names[p->dtype], residual_note(p->backend));
    size_t size;
    FILE* svg = open_text_stream(&picture, &size, name);
    draw_roofline(svg, &(Roofline){.device = title,
                                   .peak_name = p->backend->is_host ? "multiplying in registers" : "in a large matmul",
                                   .copy_bandwidth = b->bandwidth,
                                   .peak_flops = b->peak_flops,
                                   .published_bandwidth = b->gpu ? 1e9 * b->gpu->memory : 0,
                                   .published_flops = b->published_flops,
                                   .point = b->row,
                                   .count = b->count});
    close_text_stream(svg, name);
    bench_write(out, name, picture);
    free(picture);
    free(title);
}

// Writes ops.json and ops.svg into --out, unless that is empty.
static void ops_write(const BenchOps* b) {
    const char* out = b->given.out;
    json_t* record =
        bench_record("ops", &b->given, &b->plan, b->plan.backend->device_name(), b->bandwidth, "ops", b->rows);
    json_object_set_new(record, "peak_gflop_s", json_real(b->peak_flops / 1e9));
    if (b->tile_flops > 0) { json_object_set_new(record, "tile_gflop_s", json_real(b->tile_flops / 1e9)); }
    if (b->gpu) { json_object_set_new(record, "published_gflop_s", json_real(b->published_flops / 1e9)); }
    json_object_set_new(record, "device_kernels", json_string(b->plan.backend->device_kernels()));
    bench_write_json(out, "ops.json", record);
    write_picture(b, out);
}

// ---------------------------------------------------------------------------------------------------------------------
// the command

// Makes a GPU's choices as training with these options does: the algorithms of matmuls and the variants (autotune.h).
// They stay when the model is freed. Returns a line for the heading.
static const char* choose_as_training_does(const BenchOps* b) {
    Error err;
    Trial* trial = trial_open(&b->plan, NULL, &err);
    if (!trial) {
        notice("bench ops: nothing is tuned, since training as given does not fit: %s", err.text);
        return "the first algorithm of cuBLASLt's heuristic for each";
    }
    trial_close(trial);
    if (b->plan.device.plain) { return "plain loops"; }
    return b->plan.tune == tune_0 ? "the first algorithm of cuBLASLt's heuristic for each, as with --tune 0"
                                     : "the fastest algorithm for each, as in training";
}

static void print_ops_heading(const BenchOps* b) {
    const Plan* p = &b->plan;
    const char* chosen = p->backend->is_host ? NULL : choose_as_training_does(b);
    const char* kernels = p->device.plain ? "plain" : "fast";
    printf("ops: %s, %s%s, %s kernels, %d x %d tokens of %s\n", p->backend->device_name(), dtype_names[p->dtype],
           residual_note(p->backend), chosen ? p->backend->device_kernels() : kernels, p->B, p->T, p->model);
    if (chosen) { printf("matmuls: %s\n", chosen); }
    if (p->backend->is_host && !p->device.plain) {
        const bool in_place = p->dtype == dtype_fp32 && choices_here().reads_columns;
        printf("kernels: %s; columns of transposed operands are %s\n", p->backend->level,
               in_place ? "read where they lie" : "packed");
    }
    printf("limits, measured: memory moves %.1f GB/s when it is copied, ", b->bandwidth / 1e9);
    if (p->backend->is_host) {
        printf("multiply-adds in registers do %.1f GFLOP/s, tiles in caches %.1f", b->peak_flops / 1e9,
               b->tile_flops / 1e9);
    } else {
        printf("a large matmul does %.1f GFLOP/s", b->peak_flops / 1e9);
    }
    if (b->gpu) { printf("; by data sheet %.1f and %.1f", b->gpu->memory, b->published_flops / 1e9); }
    putchar('\n');
    printf("the best of several runs; before each, caches are filled with %d MiB of something else\n"
           "(beyond 100%%: the output had not left the caches when the run ended)\n", COLD_MIB);
    printf("%-27s %-8s %10s %10s %10s %10s %10s %s\n", "operation", "layer", "ms", "MB", "GB/s", "GFLOP", "GFLOP/s",
           " reached");
}

int bench_ops(const Config* config) {
    Comm alone = comm_alone();
    const Plan plan = bench_open(config, &alone);
    const Backend* device = plan.backend;
    const StepOps ops = list_ops(&plan);
    const GpuFacts* gpu = gpu_named(device->device_name());
    BenchOps b = {.given = bench_given(config, &plan),
                  .words = config->args + 1,
                  .num_words = config->num_args - 1,
                  .plan = plan,
                  .bandwidth = device->device_copy_bandwidth(),
                  .peak_flops = device->is_host ? device->device_peak_flops() : device->device_matmul_flops(),
                  .tile_flops = device->is_host ? device->device_matmul_flops() : 0,
                  .is_emulated = device_is_emulated(device),
                  .gpu = gpu,
                  .published_flops = gpu ? gpu_peak_flops(gpu, dtype_names[plan.dtype]) : 0,
                  .rows = json_array()};
    require_ops(&b, &ops);
    print_ops_heading(&b);
    for (int i = 0; i < ops.count; i++) {
        const StepOp* op = &ops.op[i];
        if (op_is_asked_for(&b, op_name(op->op), op->layer)) { bench_op(&b, op); }
    }
    ops_write(&b);
    return EXIT_DONE;
}
