#include "check.h"
#include "../base/host_memory.h"
#include "../train/weights.h"
#include "check_op.h"
#include "check_training.h"

// ---------------------------------------------------------------------------------------------------------------------
// operations

enum { ATTENTION_OPS = 1, OTHER_OPS = 2, ALL_OPS = ATTENTION_OPS | OTHER_OPS };

static void check_ops(Check* k, const OpSizes* s, int ops, const char* title) {
    printf("\n%s: B=%d T=%d C=%d NH=%d OC=%d V=%d (%d in memory)\n", title, s->B, s->T, s->C, s->NH, s->OC, s->V,
           s->Vp);
    printf("%-28s %-12s %12s %10s %10s %10s %10s\n", "operation", "tensor", "elements", "error", "bound", "worst",
           "bound");
    for (int op = 0; op_name(op); op++) {
        if (ops & (strstr(op_name(op), "attention") ? ATTENTION_OPS : OTHER_OPS)) { check_op(k, op, s); }
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// the command

// A model for the CPU against itself, and a smaller one for an emulated GPU, so that `check` ends within a minute.
static const char CPU_MODEL[] = "L=2,H=4,C=256,T=64,V=1003", EMULATED_MODEL[] = "L=2,H=2,C=32,T=16,V=130";

enum { CHECK_TOKENS = 64 }; // --seq_len, if it is not given

// Returns the options of `config`, with check's own defaults for those that the user did not give.
static Config check_options(const Config* config, const Backend* device) {
    Config c = *config;
    const bool is_named = config_source(&c, "model") > FROM_DEFAULT || strcmp(c.init, "random");
    if (!is_named && device->is_host) { c.model = CPU_MODEL; }
    if (!is_named && device_is_emulated(device)) {
        printf("emulated GPU: checking a small model; give --model for another\n");
        c.model = EMULATED_MODEL;
    }
    if (c.batch_size == 0) { c.batch_size = 4; }
    return c;
}

// Returns the device's plan, before its batch is reduced; ends the program if there is none.
static Plan check_plan(const Config* c, const Backend* device, enum dtype dtype) {
    Error err;
    Plan plan;
    Comm alone = comm_alone();
    const char* folder = init_folder(c);
    if (!plan_make(&plan, device, dtype, c, folder, &err) || !plan_check_effects(&plan, c, &err) ||
        !plan_batch(&plan, &alone, &err)) {
        usage_error("%s", err.text);
    }
    if (config_source(c, "seq_len") == FROM_DEFAULT) { plan.T = min_int(plan.T, CHECK_TOKENS); }
    plan.samples = 0;
    // AdamW divides by the gradient's own size. With its usual epsilon the first step is lr * sign(gradient), and an
    // element whose gradient is rounding error moves by lr, one way or the other: nothing to compare.
    plan.rates.peak.adamw.eps = 1e-4f;
    return plan;
}

// Returns the bytes of host memory that the reference takes: its model, three traces, and the classifier's weight and
// its gradient, in doubles for both sides and as they are stored.
static size_t reference_bytes(const Plan* reference) {
    const TensorTable table = gpt2_params_table(&reference->shape, 1);
    return plan_bytes(reference) + 9 * table.size * sizeof(float) + 6 * tensors_largest(&table) * sizeof(double);
}

// Halves the batch until the reference fits into memory and takes at most MOST_SECONDS, or LEAST_TOKENS are reached.
// The shape of the model and the kernels stay.
static void reduce_batch(const Check* k, Plan* plan) {
    enum { MOST_SECONDS = 300, LEAST_TOKENS = 32 };
    const double part_of_peak = k->reference_options.plain ? 0.02 : 0.3; // that the reference reaches at least; chosen
    const double flops = k->reference->device_peak_flops() * part_of_peak;
    const int B = plan->B, T = plan->T;
    for (;;) {
        GPT2 g;
        Plan reference = *plan;
        reference.backend = k->reference;
        reference.keep = KEEP_ALL;
        plan_layout(&reference, &g);
        const int tokens = plan->B * plan->T;
        const size_t bytes = reference_bytes(&reference), available = host_memory_available();
        const double seconds = gpt2_flops_per_token(&g, g.T) * tokens * CHECK_STEPS * CHECK_MICRO_BATCHES / flops;
        if (bytes <= available && (seconds <= MOST_SECONDS || tokens <= LEAST_TOKENS)) { break; }
        if (tokens <= LEAST_TOKENS) {
            fatal("not enough memory for the reference: %.1f MiB are needed, %.1f MiB are available; give a --model "
                  "with fewer layers", in_mib(bytes), in_mib(available));
        }
        if (plan->B > 1) { plan->B = (plan->B + 1) / 2; }
        else { plan->T = (plan->T + 1) / 2; }
    }
    if (plan->B == B && plan->T == T) { return; }
    printf("reduced from %d x %d to %d x %d tokens: more would take the reference longer than %d minutes, or more "
           "memory than there is\n", B, T, plan->B, plan->T, MOST_SECONDS / 60);
}

static void print_heading(const Check* k, const Plan* p, enum attention attention) {
    const GPT2Config* m = &p->shape;
    printf("check: %s, %s%s, %s kernels, --fused %d, %s attention\n", k->device->device_name(), dtype_names[p->dtype],
           residual_note(k->device), k->device->level ? k->device->level : p->device.plain ? "plain" : "fast",
           k->device_options.fused, attention_names[attention]);
    printf("against: %s, fp32, %s kernels\n", k->reference->device_name(),
           k->reference_options.plain ? "plain" : "fast");
    printf("model: L=%d H=%d C=%d T=%d V=%d (%d in memory), %d x %d tokens\n", m->num_layers, m->num_heads,
           m->channels, m->max_seq_len, m->vocab_size, m->padded_vocab_size, p->B, p->T);
}

int check_command(const Config* config, const Backend* device, enum dtype dtype, const Backend* reference) {
    Comm alone = comm_alone();
    Check k = {.device = device, .reference = reference, .bounds = bounds_of(dtype)};
    if (device->is_host && config->kernels == kernels_plain) {
        usage_error("check --kernels plain: on the CPU the plain kernels are what the others are checked against");
    }
    k.device_options = device_options(config, dtype);
    k.reference_options = (DeviceOptions){
        .threads = (int)config->threads, .plain = device->is_host, .fused = true, .flash = true};
    open_device(device, &k.device_options, &alone);
    if (!device->is_host) { k.device_options.threads = 0; } // --threads is the reference's
    const Config c = check_options(config, device);
    Plan plan = check_plan(&c, device, dtype);
    reference->device_open(&k.reference_options);
    print_heading(&k, &plan, c.attention);
    reduce_batch(&k, &plan);
    const OpSizes given = op_sizes_of(&plan.shape, plan.B, plan.T);
    check_ops(&k, &given, ALL_OPS, "operations in the shapes of the model");
    check_ops(&k, &OP_SIZES_SMALL, ALL_OPS, "operations in shapes full of tails");
    check_ops(&k, &OP_SIZES_BLOCKS, OTHER_OPS, "operations in shapes of several blocks");
    check_ops(&k, &OP_SIZES_TILES, ATTENTION_OPS, "attention over many tiles");
    check_training(&k, &plan, config_source(&c, "recompute") == FROM_DEFAULT);
    printf("\n%d comparisons, %d failed\n", k.compared, k.failed);
    return k.failed ? EXIT_CHECK_FAILED : EXIT_DONE;
}
