// `bench predict GPU`: how long a training step should take on a GPU that nobody needs to have, operation by operation.
// A prediction: computed from the list of what a step runs (bench_step.h), data sheets (gpus.h) and the efficiencies
// below, which are assumptions until a GPU has run the program.
//
// A kernel takes the longer of two times, that of its bytes and that of its arithmetic, each at its efficiency, and
// KERNEL_GAP besides.
#pragma once
#include "bench_step.h"
#include <strings.h>

static const double KERNEL_GAP = 2e-6; // seconds to start a kernel and to end it, while others wait

// The assumptions, all of them: parts of the data sheet's figure that a kernel reaches, on GPUs before Hopper and from
// Hopper on. The best matmuls published reach 0.87 of an A100's bf16 peak and 0.80 of an H100's; those of a small model
// are less deep. FlashAttention-2, not causal, heads of 64, 1024 tokens, reaches 0.31 and 0.24 of an H100's peak
// forward and backward; ours is simpler, and its backward computes the scores twice.
typedef struct {
    const char* what;
    const char* peak; // of which figure: the dtype of gpu_peak_flops; NULL: of the products' own
    double before_hopper, hopper;
} Efficiency;

static const double MEMORY_EFFICIENCY = 0.80; // of the data sheet's bandwidth
static const Efficiency EFFICIENCIES[NUM_WORKS] = {
    {"products by cuBLASLt", NULL, 0.70, 0.60},     {"plain products", "fp32", 0.15, 0.10},
    {"flash attention, forward", "bf16", 0.30, 0.20}, {"flash attention, backward", "bf16", 0.22, 0.14},
    {"flash attention in fp32", "fp32", 0.25, 0.25}, {"attention by simple kernels", "fp32", 0.05, 0.05},
    {"element by element", "fp32", 0.25, 0.25},
};

static inline double efficiency_of(const GpuFacts* gpu, WorkKind work) {
    return gpu->major >= 9 ? EFFICIENCIES[work].hopper : EFFICIENCIES[work].before_hopper;
}

// What an operation comes to, in all its runs in a step.
typedef struct {
    double times, launches, flops, product_flops, read, written; // product_flops: without element by element
    double seconds, memory_seconds, arithmetic_seconds;          // the latter two: what bounds its kernels
} Prediction;

static inline Prediction predict_kernels(const Step* s, const KernelList* k, double times) {
    Prediction p = {times, 0, 0, 0, 0, 0, 0, 0, 0};
    for (int i = 0; i < k->count; i++) {
        const Kernel* kernel = &k->kernel[i];
        const Efficiency* e = &EFFICIENCIES[kernel->work];
        const double peak = gpu_peak_flops(s->gpu, e->peak ? e->peak : s->dtype) * efficiency_of(s->gpu, kernel->work);
        const double memory = (kernel->read + kernel->written) / (1e9 * s->gpu->memory * MEMORY_EFFICIENCY);
        const double arithmetic = kernel->flops / peak;
        p.launches += times * kernel->launches;
        p.flops += times * kernel->flops;
        p.product_flops += kernel->work == WORK_ELEMENTS ? 0 : times * kernel->flops;
        p.read += times * kernel->read;
        p.written += times * kernel->written;
        *(memory > arithmetic ? &p.memory_seconds : &p.arithmetic_seconds) += times * fmax(memory, arithmetic);
    }
    p.seconds = p.memory_seconds + p.arithmetic_seconds + KERNEL_GAP * p.launches;
    return p;
}

static inline void prediction_add(Prediction* sum, const Prediction* p) {
    sum->times += p->times;
    sum->launches += p->launches;
    sum->flops += p->flops;
    sum->product_flops += p->product_flops;
    sum->read += p->read;
    sum->written += p->written;
    sum->seconds += p->seconds;
    sum->memory_seconds += p->memory_seconds;
    sum->arithmetic_seconds += p->arithmetic_seconds;
}

static inline Prediction predict_row(const Step* s, const StepOp* row) {
    const KernelList k = step_kernels(s, row);
    return predict_kernels(s, &k, step_times(s, row));
}

// The step in all, or one part of it (NUM_PARTS: all).
static inline Prediction predict_step(const Step* s, StepPart part) {
    Prediction sum = {0, 0, 0, 0, 0, 0, 0, 0, 0};
    for (int i = 0; i < NUM_STEP_OPS; i++) {
        if (part != NUM_PARTS && STEP_OPS[i].part != part) { continue; }
        const Prediction p = predict_row(s, &STEP_OPS[i]);
        prediction_add(&sum, &p);
    }
    return sum;
}

static inline const char* prediction_bound(const Prediction* p) {
    const double gaps = KERNEL_GAP * p->launches;
    return gaps > fmax(p->memory_seconds, p->arithmetic_seconds)   ? "launches"
           : p->memory_seconds > p->arithmetic_seconds ? "memory"
                                                       : "arithmetic";
}

// ---------------------------------------------------------------------------------------------------------------------
// which GPU, which step

// Letters and digits of a name, in lower case.
static inline void plain_name(char* to, size_t room, const char* name) {
    size_t n = 0;
    for (; *name && n + 1 < room; name++) {
        const bool upper = *name >= 'A' && *name <= 'Z',
                   kept = (*name >= 'a' && *name <= 'z') || (*name >= '0' && *name <= '9');
        if (upper || kept) { to[n++] = (char)(upper ? *name - 'A' + 'a' : *name); }
    }
    to[n] = 0;
}

// The GPU whose name, or whose alias, is this one, else the first whose alias has it as a part: "h100", "RTX 4090".
static inline const GpuFacts* gpu_find(const char* asked) {
    char want[128], alias[128], name[128];
    const GpuFacts* part = NULL;
    plain_name(want, sizeof want, asked);
    for (int i = 0; *want && i < NUM_GPUS; i++) {
        plain_name(alias, sizeof alias, GPUS[i].alias);
        plain_name(name, sizeof name, GPUS[i].name);
        if (!strcmp(want, alias) || !strcmp(want, name)) { return &GPUS[i]; }
        if (!part && strstr(alias, want)) { part = &GPUS[i]; }
    }
    return part;
}

static inline const GpuFacts* gpu_asked_for(const Config* c) {
    char* asked = format("%s", "");
    for (int i = 1; i < c->num_args; i++) {
        char* longer = format("%s%s%s", asked, i > 1 ? " " : "", c->args[i]);
        free(asked);
        asked = longer;
    }
    const GpuFacts* gpu = gpu_find(asked);
    if (gpu) {
        free(asked);
        return gpu;
    }
    char names[1024] = "";
    for (int i = 0; i < NUM_GPUS; i++) {
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", i ? ", " : "", GPUS[i].alias);
    }
    usage_error("bench predict '%s': not a GPU of llmc/gpus.h; give one of: %s", asked, names);
}

// What --dtype stores: the harness of that type knows the operations' bytes.
static inline const char* storage_of(const char* dtype) { return is_one_of(dtype, "fp32|tf32") ? "fp32" : "bf16"; }

// The step that the options describe, on a GPU. They have been resolved.
static inline Step step_of(const Harness* h, const Config* c, const GPT2Config* shape, const GpuFacts* gpu) {
    Step s;
    memset(&s, 0, sizeof s);
    s.harness = h;
    s.shape = *shape;
    s.B = (int)c->batch_size;
    s.T = (int)c->seq_len;
    s.micro_batches = (double)c->total_batch_size / ((double)s.B * s.T);
    s.parameters = (double)h->model_table(shape).size;
    s.elem = strcmp(storage_of(c->dtype), "fp32") ? 2 : 4;
    s.dtype = c->dtype;
    s.recompute = c->recompute;
    s.plain = !strcmp(c->kernels, "plain");
    s.fused = c->fused != 0;
    s.attention = c->flash && !s.plain ? ATTENTION_FLASH : ATTENTION_SIMPLE;
    s.gpu = gpu;
    return s;
}

// ---------------------------------------------------------------------------------------------------------------------
// tables

static inline bool step_has(const Step* s, WorkKind work) {
    for (int i = 0; i < NUM_STEP_OPS; i++) {
        const KernelList k = step_kernels(s, &STEP_OPS[i]);
        for (int j = 0; j < k.count; j++) {
            if (k.kernel[j].work == work && step_times(s, &STEP_OPS[i]) > 0) { return true; }
        }
    }
    return false;
}

static inline void print_assumptions(const Step* s) {
    puts("A PREDICTION: computed, not measured. Assumed:");
    printf("  %-30s %3.0f%% of %.5g GB/s\n", "memory", 100 * MEMORY_EFFICIENCY, s->gpu->memory);
    for (int w = 0; w < NUM_WORKS; w++) {
        const Efficiency* e = &EFFICIENCIES[w];
        const char* dtype = e->peak ? e->peak : s->dtype;
        if (!step_has(s, (WorkKind)w)) { continue; }
        printf("  %-30s %3.0f%% of %.5g TFLOP/s (%s)\n", e->what, 100 * efficiency_of(s->gpu, (WorkKind)w),
               gpu_peak_flops(s->gpu, dtype) / 1e12, dtype);
    }
    printf("  %-30s %3.0f us for each\n", "starting and ending a kernel", 1e6 * KERNEL_GAP);
    printf("\n%-27s %-9s %6s %8s %10s %10s %10s %8s %-10s %9s %6s\n", "operation", "layer", "times", "launches",
           "GFLOP", "MB read", "written", "FLOP/B", "bound by", "ms", "share");
}

static inline double intensity(const Prediction* p) { return p->flops / (p->read + p->written); }

static inline void print_prediction(const char* op, const char* layer, const Prediction* p, double total_seconds) {
    printf("%-27s %-9s %6.0f %8.0f %10.2f %10.1f %10.1f %8.2f %-10s %9.3f %5.1f%%\n", op, layer, p->times, p->launches,
           p->flops / 1e9, p->read / 1e6, p->written / 1e6, intensity(p), prediction_bound(p), 1e3 * p->seconds,
           100 * p->seconds / total_seconds);
}

static inline json_t* prediction_json(const char* op, const char* layer, const Prediction* p) {
    return json_pack("{s:s, s:s, s:f, s:f, s:f, s:f, s:f, s:s, s:f}", "name", op, "layer", layer, "times", p->times,
                     "launches", p->launches, "flops", p->flops, "bytes_read", p->read, "bytes_written", p->written,
                     "bound", prediction_bound(p), "predicted_ms", 1e3 * p->seconds);
}

// Bytes that a token moves through memory, by part of the step, in three forms of the same model.
typedef struct {
    const char* name;
    bool fused;
    AttentionForm attention;
} StepForm;
static const StepForm STEP_FORMS[] = {
    {"attention by matmuls, unfused", false, ATTENTION_BY_MATMULS},
    {"flash attention, unfused", false, ATTENTION_FLASH},
    {"flash attention, fused", true, ATTENTION_FLASH},
};
enum { NUM_FORMS = sizeof STEP_FORMS / sizeof *STEP_FORMS };

static inline json_t* print_bytes_per_token(const Step* step) {
    const double tokens = step->micro_batches * step->B * step->T;
    json_t* forms = json_array();
    puts("\nKB through memory for each token (attention by matmuls is PyTorch's before flash attention; this program "
         "has none)");
    printf("%-30s", "");
    for (int part = 0; part < NUM_PARTS; part++) { printf(" %13s", STEP_PARTS[part]); }
    printf(" %10s %9s %9s\n", "in all", "launches", "ms");
    for (int i = 0; i < NUM_FORMS; i++) {
        Step s = *step;
        s.plain = false;
        s.fused = STEP_FORMS[i].fused;
        s.attention = STEP_FORMS[i].attention;
        const Prediction all = predict_step(&s, NUM_PARTS);
        json_t* form = json_pack("{s:s, s:f, s:f, s:f}", "name", STEP_FORMS[i].name, "bytes_per_token",
                                 (all.read + all.written) / tokens, "launches", all.launches, "predicted_ms",
                                 1e3 * all.seconds);
        printf("%-30s", STEP_FORMS[i].name);
        for (int part = 0; part < NUM_PARTS; part++) {
            const Prediction p = predict_step(&s, (StepPart)part);
            printf(" %13.1f", (p.read + p.written) / tokens / 1e3);
            json_object_set_new(form, STEP_PARTS[part], json_real((p.read + p.written) / tokens));
        }
        printf(" %10.1f %9.0f %9.2f\n", (all.read + all.written) / tokens / 1e3, all.launches, 1e3 * all.seconds);
        json_array_append_new(forms, form);
    }
    return forms;
}

// ---------------------------------------------------------------------------------------------------------------------
// the command

static inline const Harness* predict_options(Config* c, FindTrainer find, const GpuFacts* gpu, GPT2Config* shape) {
    if (!strcmp(c->dtype, "auto")) { c->dtype = "bf16"; }
    if (!is_one_of(c->kernels, "fast|plain")) {
        usage_error("bench predict: --kernels takes fast or plain, those of a GPU");
    }
    if (c->batch_size == 0) { usage_error("bench predict: --batch_size auto needs a GPU to look at; give a number"); }
    if (!(gpu_peak_flops(gpu, c->dtype) > 0)) {
        usage_error("--dtype %s: the %s has no such products", c->dtype, gpu->alias);
    }
    const Trainer* trainer = find(storage_of(c->dtype));
    if (!trainer) { usage_error("--dtype %s: this program has none for this processor", c->dtype); }
    trainer->harness->resolve(c, shape);
    return trainer->harness;
}

static inline int bench_predict(Config* c, FindTrainer find) {
    GPT2Config shape;
    const GpuFacts* gpu = gpu_asked_for(c);
    const Harness* h = predict_options(c, find, gpu, &shape);
    const Step s = step_of(h, c, &shape, gpu);
    const Prediction all = predict_step(&s, NUM_PARTS);
    const double tokens = (double)c->total_batch_size, flops = h->model_plan(c, &shape).flops_per_token * tokens;
    const double mfu = flops / all.seconds / gpu_peak_flops(gpu, s.dtype);
    json_t* rows = json_array();
    printf("predicted: %s, %s, %s kernels%s%s, %.0f x %d x %d tokens of %s, --recompute %s\n", gpu->name, s.dtype,
           c->kernels, s.fused && !s.plain ? ", fused" : "", s.attention == ATTENTION_FLASH ? ", flash attention" : "",
           s.micro_batches, s.B, s.T, c->model, s.recompute);
    print_assumptions(&s);
    for (int i = 0; i < NUM_STEP_OPS; i++) {
        const StepOp* row = &STEP_OPS[i];
        const Prediction p = predict_row(&s, row);
        if (p.times == 0) { continue; }
        print_prediction(row->op, row->layer, &p, all.seconds);
        json_array_append_new(rows, prediction_json(row->op, row->layer, &p));
    }
    print_prediction("step", "", &all, all.seconds);
    printf(
        "\npredicted step: %.2f ms, %.0f tok/s, %.1f%% %s MFU (memory %.1f ms, arithmetic %.1f ms, launches %.1f ms)\n",
        1e3 * all.seconds, tokens / all.seconds, 100 * mfu, s.dtype, 1e3 * all.memory_seconds,
        1e3 * all.arithmetic_seconds, 1e3 * KERNEL_GAP * all.launches);
    json_t* forms = print_bytes_per_token(&s);
    json_t* record =
        bench_record("prediction: computed, not measured", c, &shape, gpu->name, NAN, config_to_json(c), "ops", rows);
    if (record) {
        json_object_set_new(record, "predicted_ms", json_real(1e3 * all.seconds));
        json_object_set_new(record, "predicted_tok_s", json_real(tokens / all.seconds));
        json_object_set_new(record, "predicted_mfu", json_real(mfu));
    }
    json_object_set_new(record, "forms", forms);
    if (!*c->out) {
        json_decref(record);
        return EXIT_DONE;
    }
    bench_write_json(c->out, "predict.json", record);
    printf("%s/predict.json\n", c->out);
    return EXIT_DONE;
}
