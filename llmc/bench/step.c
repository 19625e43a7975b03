// `bench step`: lists the operations of a training step with their arithmetic and bytes, as check/recorder.h records
// them: as a table and as JSON. Needs no device. dev/bench/predict.py predicts a step on a GPU from the list.
#include "bench.h"
#include "../check/recorder.h"
#include "../options/models.h"
#include "../train/backends.h"
#include "record.h"

static void print_step_op(const char* name, const char* layer, int runs, const OpCost* cost) {
    printf("%-27s %-9s %6d %12.3f %12.3f %12.3f\n", name, layer, runs, cost->flops / 1e9, cost->read / 1e6,
           cost->written / 1e6);
}

// Prints the operations and their sum. Returns their records.
static json_t* print_step_ops(const Backend* b, const StepOps* ops) {
    json_t* rows = json_array();
    OpCost all = {.flops = 0};
    int runs = 0;
    for (int i = 0; i < ops->count; i++) {
        const StepOp* op = &ops->op[i];
        const OpCost cost = step_op_cost(b, op);
        print_step_op(op_name(op->op), op->layer, op->runs, &cost);
        json_array_append_new(rows, json_pack("{s:s, s:s, s:i, s:f, s:f, s:f}", "name", op_name(op->op), "layer",
                                              op->layer, "runs", op->runs, "flops", cost.flops, "bytes_read",
                                              cost.read, "bytes_written", cost.written));
        runs += op->runs;
        all.flops += cost.flops;
        all.read += cost.read;
        all.written += cost.written;
    }
    print_step_op("step", "", runs, &all);
    return rows;
}

int bench_step(const Config* given) {
    Config config = *given, *c = &config;
    GPT2 g;
    preset_apply(c);
    if (c->batch_size == 0) { usage_error("bench step: --batch_size auto needs a device to look at; give a number"); }
    const Backend* b = bench_backend(c, storage_of_dtype(c->dtype)); // of a CPU too, for the sizes of its elements
    const Plan plan = bench_plan(b, bench_dtype(c, b), c, 0);
    const StepOps ops = record_step(&plan);
    plan_layout(&plan, &g);
    printf("step: %s, %s%s, %lld tokens, %d x %d at a time, --recompute %s, --optimizer %s\n", plan.model,
           dtype_names[plan.dtype],
           residual_note(b), plan.total_batch_size, plan.B, plan.T, recompute_names[c->recompute],
           optimizer_names[c->optimizer]);
    printf("%-27s %-9s %6s %12s %12s %12s\n", "operation", "layer", "runs", "GFLOP", "MB read", "written");
    json_t* rows = print_step_ops(b, &ops);
    const BenchGiven written = bench_given(c, &plan);
    json_t* record = bench_record("step", &written, &plan, "", (double)NAN, "ops", rows);
    json_object_set_new(record, "mfu_flops",
                        json_real(gpt2_flops_per_token(&g, plan.T) * (double)plan.total_batch_size));
    json_object_set_new(record, "element_bytes", json_integer((json_int_t)b->element_bytes));
    bench_write_json(c->out, "step.json", record);
    return EXIT_DONE;
}
