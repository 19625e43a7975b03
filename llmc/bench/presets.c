#include "presets.h"
#include "predict.h"

enum { GPU_GB = 80, GPU_REST_GB = 8, MOST_ROWS = 64 }; // rest: kernels, libraries, CUDA; both chosen, not measured

// Returns the largest power of two, up to MOST_ROWS and to a GPU's share of a step, with which a micro-batch fits; 0:
// none.
static int rows_that_fit(const Plan* p) {
    MemoryLine line[PLAN_MEMORY_LINES];
    const long long share = p->total_batch_size / p->T;
    Plan tried = *p;
    for (tried.B = MOST_ROWS; tried.B > 0; tried.B /= 2) {
        const size_t bytes = plan_memory(&tried, line);
        if (share % tried.B == 0 && bytes <= (size_t)(GPU_GB - GPU_REST_GB) * 1000000000) { return tried.B; }
    }
    return 0;
}

// Returns the options of a preset.
static Config preset_config(int i) {
    Error err;
    Config c;
    config_defaults(&c);
    if (!config_set(&c, config_find("preset"), preset_name(i), FROM_COMMAND_LINE, &err)) { fatal("%s", err.text); }
    preset_apply(&c);
    return c;
}

PresetCost preset_cost(int i) {
    Config c = preset_config(i);
    PresetCost cost = {.steps = c.max_steps, .step_tokens = c.total_batch_size};
    cost.tokens = (double)cost.steps * (double)cost.step_tokens;
    c.total_batch_size /= MACHINE_GPUS;
    c.batch_size = 1;
    for (int m = 0; m < NUM_MACHINES; m++) {
        const GpuFacts* gpu = gpu_find(MACHINES[m].gpu);
        Plan plan = bench_plan(bench_backend(&c, "bf16"), "bf16", &c, 0);
        plan.shards = MACHINE_GPUS;
        plan.B = cost.B[m] = rows_that_fit(&plan);
        cost.seconds[m] = NAN;
        if (!plan.B) { continue; }
        const Step s = step_of(&plan, &c, gpu);
        const double all = predict_step(&s, NUM_PARTS).seconds, update = predict_step(&s, PART_UPDATE).seconds;
        cost.seconds[m] = training_factor(gpu) * (all - update + update / MACHINE_GPUS);
    }
    return cost;
}

int bench_presets(void) {
    printf("%-11s %7s %9s %7s", "", "", "tokens", "tokens");
    for (int m = 0; m < NUM_MACHINES; m++) {
        char* title = format("%s, $%.0f an hour", MACHINES[m].name, MACHINES[m].price);
        printf("   %24s", title);
        free(title);
    }
    printf("\n%-11s %7s %9s %7s", "preset", "steps", "a step", "in all");
    for (int m = 0; m < NUM_MACHINES; m++) { printf("   %2s %7s %6s %6s", "B", "ms", "hours", "$"); }
    putchar('\n');
    for (int i = 0; preset_name(i); i++) {
        const PresetCost cost = preset_cost(i);
        printf("%-11s %7lld %9lld %6.4gB", preset_name(i), cost.steps, cost.step_tokens, cost.tokens / 1e9);
        for (int m = 0; m < NUM_MACHINES; m++) {
            const double hours = (double)cost.steps * cost.seconds[m] / 3600;
            if (cost.B[m]) {
                printf("   %2d %7.1f %6.*f %6.0f", cost.B[m], 1e3 * cost.seconds[m], hours < 100, hours,
                       MACHINES[m].price * hours);
            } else {
                printf("   %2s %7s %6s %6s", "-", "-", "-", "-");
            }
        }
        putchar('\n');
    }
    puts("\nMilliseconds, hours and dollars are PREDICTED by the method of bench predict, in bf16 with --zero 1. B:\n"
         "the micro-batch assumed; -: none fits. Full steps are assumed: a run with --batch_ramp takes longer.\n"
         "\nWhat the run reaches:");
    for (int i = 0; preset_name(i); i++) { printf("%-11s %s\n", preset_name(i), preset_outcome(i)); }
    return EXIT_DONE;
}
