#include "predict.h"
#include "../train/backends.h"
#include "attention_model.h"
#include <strings.h>

// The assumed part of the data sheet's peak that a kernel reaches, on GPUs before Hopper and from Hopper on. 0:
// computed by matmul_model.h or attention_model.h.
//
// cuDNN's attention, not causal, with heads of 64 and 1024 tokens, has been measured on an H100 at 0.38 of the peak
// forward and 0.35 backward (Shah et al. 2024, FlashAttention-3). Three quarters of that are assumed, because a causal
// mask leaves tiles half empty, and we ask for a deterministic backward. On an A100 it took 0.82 of the time of
// PyTorch's flash attention, which is FlashAttention-2: three quarters of 0.49 and 0.38 (attention_model.h) over 0.82.
typedef struct {
    const char* what;
    const char* peak; // the dtype whose peak (gpu_peak_flops) bounds it, where bf16 stands for fp16 too; NULL: the
                      // dtype of the matmuls' factors
    double before_hopper, hopper;
} Efficiency;

static const Efficiency EFFICIENCIES[NUM_WORKS] = {
    {"matmuls by cuBLASLt", NULL, 0, 0},               {"matmuls in FP8 by cuBLASLt", "fp8", 0, 0},
    {"plain matmuls", "fp32", 0.15, 0.10},             {"flash attention, forward", "bf16", 0, 0},
    {"flash attention, backward", "bf16", 0, 0},       {"flash attention in fp32", "fp32", 0.25, 0.25},
    {"cuDNN's attention, forward", "bf16", 0.45, 0.28}, {"cuDNN's attention, backward", "bf16", 0.35, 0.26},
    {"attention by plain kernels", "fp32", 0.05, 0.05}, {"element by element", "fp32", 0.25, 0.25},
};

static bool is_flash(WorkKind work) { return work == WORK_FLASH_FORWARD || work == WORK_FLASH_BACKWARD; }
static bool is_library_matmul(WorkKind work) { return work == WORK_MATMUL || work == WORK_FP8_MATMUL; }

double efficiency_of(const Step* s, WorkKind work) {
    if (is_library_matmul(work)) { return matmul_sustained(s->gpu, work_dtype(s, work), MEMORY_EFFICIENCY); }
    if (is_flash(work)) { // a GPU whose power limits its matmuls (T4) is no faster in attention
        const double most = matmul_sustained(s->gpu, work_dtype(s, work), MEMORY_EFFICIENCY);
        return fmin(flash_part_of_peak(s->gpu, work == WORK_FLASH_FORWARD, s->T), most);
    }
    return s->gpu->major >= 9 ? EFFICIENCIES[work].hopper : EFFICIENCIES[work].before_hopper;
}

double step_gap(const Step* s) { return s->graph ? GRAPH_KERNEL_GAP : KERNEL_GAP; }

const char* work_dtype(const Step* s, WorkKind work) {
    const char* peak = EFFICIENCIES[work].peak;
    if (peak && !strcmp(peak, "bf16") && !strcmp(s->dtype, "fp16")) { return "fp16"; }
    return peak ? peak : s->fp8 ? "bf16" : s->dtype;
}

// Bytes per second, from and to memory.
static double step_bandwidth(const Step* s) { return 1e9 * s->gpu->memory * MEMORY_EFFICIENCY; }

// Adds the time of a matmul by cuBLASLt to the two sums, by what bounds each of its terms.
static void add_matmul_time(const Step* s, const Kernel* k, double times, Prediction* p) {
    const char* dtype = work_dtype(s, k->work);
    const MatmulSize* m = &k->size;
    const double factors = matmul_factor_bytes(dtype) * ((double)m->rows + m->cols) * m->depth;
    const MatmulBytes bytes = {factors, fmax((k->read + k->written) / k->launches - factors, 0), step_bandwidth(s)};
    const double flops = gpu_peak_flops(s->gpu, dtype) * efficiency_of(s, k->work) / s->gpu->sms;
    const MatmulTime t = matmul_time(s->gpu, flops, m, &bytes);
    const double sums = t.bound_by_sums ? t.sums : 0;
    p->arithmetic_seconds += times * k->launches * sums;
    p->memory_seconds += times * k->launches * (t.seconds - sums);
}

// Adds the time of any other kernel to the sum of what bounds it.
static void add_kernel_time(const Step* s, const Kernel* k, double times, Prediction* p) {
    const double peak = gpu_peak_flops(s->gpu, work_dtype(s, k->work)) * efficiency_of(s, k->work);
    const double memory = (k->read + k->written) / step_bandwidth(s), arithmetic = k->flops / peak;
    *(memory > arithmetic ? &p->memory_seconds : &p->arithmetic_seconds) += times * fmax(memory, arithmetic);
}

Prediction predict_kernels(const Step* s, const KernelList* k, double times) {
    Prediction p = {.times = times};
    for (int i = 0; i < k->count; i++) {
        const Kernel* kernel = &k->kernel[i];
        p.launches += times * kernel->launches;
        p.flops += times * kernel->flops;
        p.matmul_flops += kernel->work == WORK_ELEMENTS ? 0 : times * kernel->flops;
        p.read += times * kernel->read;
        p.written += times * kernel->written;
        if (is_library_matmul(kernel->work)) { add_matmul_time(s, kernel, times, &p); }
        else { add_kernel_time(s, kernel, times, &p); }
    }
    p.gap_seconds = step_gap(s) * p.launches;
    p.seconds = p.memory_seconds + p.arithmetic_seconds + p.gap_seconds;
    return p;
}

static void prediction_add(Prediction* sum, const Prediction* p) {
    sum->times += p->times;
    sum->launches += p->launches;
    sum->flops += p->flops;
    sum->matmul_flops += p->matmul_flops;
    sum->read += p->read;
    sum->written += p->written;
    sum->seconds += p->seconds;
    sum->memory_seconds += p->memory_seconds;
    sum->arithmetic_seconds += p->arithmetic_seconds;
    sum->gap_seconds += p->gap_seconds;
}

// Predicts all runs of a row. Weights are cast outside of any graph.
static Prediction predict_row(const Step* s, const StepOp* row) {
    Step as_run = *s;
    as_run.graph = s->graph && row->op != CAST_WEIGHTS;
    const KernelList k = step_kernels(s, row);
    return predict_kernels(&as_run, &k, step_times(s, row));
}

Prediction predict_step(const Step* s, StepPart part) {
    Prediction sum = {.times = 0};
    for (int i = 0; i < NUM_STEP_OPS; i++) {
        if (part != NUM_PARTS && STEP_OPS[i].part != part) { continue; }
        const Prediction p = predict_row(s, &STEP_OPS[i]);
        prediction_add(&sum, &p);
    }
    return sum;
}

double training_factor(const GpuFacts* gpu) { return gpu->major >= 9 ? 1.20 : 1.09; }

const char* prediction_bound(const Prediction* p) {
    return p->gap_seconds > fmax(p->memory_seconds, p->arithmetic_seconds) ? "launches"
           : p->memory_seconds > p->arithmetic_seconds                     ? "memory"
                                                                           : "arithmetic";
}

// ---------------------------------------------------------------------------------------------------------------------
// GPU and step

// Copies the letters and digits of a name, in lower case.
static void plain_name(char* to, size_t room, const char* name) {
    size_t n = 0;
    for (; *name && n + 1 < room; name++) {
        const bool upper = *name >= 'A' && *name <= 'Z';
        const bool other = (*name >= 'a' && *name <= 'z') || (*name >= '0' && *name <= '9');
        if (upper || other) { to[n++] = (char)(upper ? *name - 'A' + 'a' : *name); }
    }
    to[n] = 0;
}

const GpuFacts* gpu_find(const char* asked) {
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

// Returns the GPU that the arguments after `bench predict` name; a usage error if there is none.
static const GpuFacts* gpu_asked_for(const Config* c) {
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
    usage_error("bench predict '%s': not a GPU of llmc/cuda/gpus.h; give one of: %s", asked, names);
}

Step step_of(const Plan* p, const Config* c, const GpuFacts* gpu) {
    const size_t element_bytes = strcmp(storage_of_dtype(p->dtype), "fp32") ? 2 : 4;
    const bool plain = !strcmp(c->kernels, "plain"), is_simple = plain || !c->flash || !strcmp(c->attention, "plain");
    const Step s = {.backend = p->backend,
                    .shape = p->shape,
                    .B = p->B,
                    .T = p->T,
                    .keep = p->keep,
                    .micro_batches = (double)p->total_batch_size / ((double)p->B * p->T),
                    .parameters = (double)gpt2_params_table(&p->shape, 1).size,
                    .element_bytes = element_bytes,
                    .classifier_chunk = gpu_classifier_chunk(element_bytes),
                    .dtype = p->dtype,
                    .plain = plain,
                    .fused = c->fused != 0,
                    .graph = c->graph != 0,
                    .fp8 = !strcmp(p->dtype, "fp8"),
                    .muon = p->rates.kind == OPTIMIZER_MUON,
                    .attention = is_simple                        ? ATTENTION_PLAIN
                                 : !strcmp(c->attention, "cudnn") ? ATTENTION_BY_CUDNN
                                                                  : ATTENTION_FLASH,
                    .gpu = gpu};
    return s;
}

// ---------------------------------------------------------------------------------------------------------------------
// tables

bool step_has(const Step* s, WorkKind work) {
    for (int i = 0; i < NUM_STEP_OPS; i++) {
        const KernelList k = step_kernels(s, &STEP_OPS[i]);
        for (int j = 0; j < k.count; j++) {
            if (k.kernel[j].work == work && step_times(s, &STEP_OPS[i]) > 0) { return true; }
        }
    }
    return false;
}

static void print_assumptions(const Step* s) {
    puts("A PREDICTION: computed, not measured. Assumed:");
    printf("  %-30s %3.0f%% of %.5g GB/s\n", "memory", 100 * MEMORY_EFFICIENCY, s->gpu->memory);
    for (int w = 0; w < NUM_WORKS; w++) {
        const WorkKind work = (WorkKind)w;
        const char *dtype = work_dtype(s, work), *source = "";
        if (!step_has(s, work)) { continue; }
        if (is_library_matmul(work)) { source = ", by the fastest published; tiles in waves, results from memory"; }
        if (is_flash(work)) { source = ", by its machine code and FlashAttention-2"; }
        printf("  %-30s %3.0f%% of %.5g TFLOP/s (%s)%s\n", EFFICIENCIES[w].what, 100 * efficiency_of(s, work),
               gpu_peak_flops(s->gpu, dtype) / 1e12, dtype, source);
    }
    printf("  %-30s %3.0f us for each, %s\n", "starting and ending a kernel", 1e6 * step_gap(s),
           s->graph ? "from a graph" : "launched one by one");
    printf("\n%-27s %-9s %6s %8s %10s %10s %10s %8s %-10s %9s %6s\n", "operation", "layer", "times", "launches",
           "GFLOP", "MB read", "written", "FLOP/B", "bound by", "ms", "share");
}

static double intensity(const Prediction* p) { return p->flops / (p->read + p->written); }

static void print_prediction(const char* op, const char* layer, const Prediction* p, double total_seconds) {
    printf("%-27s %-9s %6.0f %8.0f %10.2f %10.1f %10.1f %8.2f %-10s %9.3f %5.1f%%\n", op, layer, p->times, p->launches,
           p->flops / 1e9, p->read / 1e6, p->written / 1e6, intensity(p), prediction_bound(p), 1e3 * p->seconds,
           100 * p->seconds / total_seconds);
}

static json_t* prediction_json(const char* op, const char* layer, const Prediction* p) {
    return json_pack("{s:s, s:s, s:f, s:f, s:f, s:f, s:f, s:s, s:f}", "name", op, "layer", layer, "times", p->times,
                     "launches", p->launches, "flops", p->flops, "bytes_read", p->read, "bytes_written", p->written,
                     "bound", prediction_bound(p), "predicted_ms", 1e3 * p->seconds);
}

// Three ways to run a step; print_bytes_per_token() compares their bytes by part of the step.
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

static json_t* print_bytes_per_token(const Step* step) {
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

// Plans a step on this GPU; a usage error if the options contradict each other or the GPU cannot do them.
static Plan predict_plan(const Config* c, const GpuFacts* gpu) {
    const char* dtype = strcmp(c->dtype, "auto") ? c->dtype : gpu_peak_flops(gpu, "bf16") > 0 ? "bf16" : "fp16";
    const DeviceOptions options = device_options(c, dtype);
    if (!strcmp(c->attention, "cudnn") && !strcmp(storage_of_dtype(dtype), "fp32")) {
        usage_error("--attention cudnn: cuDNN's attention is for --dtype bf16 or fp16: give one, or --attention flash");
    }
    if (options.fp8 && options.plain) {
        usage_error("--dtype fp8: the plain kernels have no FP8: give --dtype bf16");
    }
    if (c->batch_size == 0) { usage_error("bench predict: --batch_size auto needs a GPU to look at; give a number"); }
    if (!(gpu_peak_flops(gpu, dtype) > 0)) {
        usage_error("--dtype %s: the %s has no matmuls of that type", dtype, gpu->alias);
    }
    return bench_plan(bench_backend(c, storage_of_dtype(dtype)), dtype, c, 0);
}

static double flops_per_token(const Plan* p) {
    GPT2 g;
    plan_layout(p, &g);
    return gpt2_flops_per_token(&g, p->T);
}

static void print_step(const Step* s, const Plan* p, const Config* c) {
    const char* attention = s->attention == ATTENTION_FLASH      ? ", flash attention"
                            : s->attention == ATTENTION_BY_CUDNN ? ", cuDNN's attention"
                                                                 : "";
    printf("predicted: %s, %s%s, %s kernels%s%s%s%s, %.0f x %d x %d tokens of %s, --recompute %s\n", s->gpu->name,
           s->dtype, residual_note(s->backend), c->kernels, s->fused && !s->plain ? ", fused" : "", attention,
           s->graph ? ", CUDA graphs" : "", s->muon ? ", Muon" : "", s->micro_batches, s->B, s->T, p->model,
           c->recompute);
}

// Prints the operations of a step; returns them as JSON.
static json_t* print_operations(const Step* s, const Prediction* all) {
    json_t* rows = json_array();
    for (int i = 0; i < NUM_STEP_OPS; i++) {
        const StepOp* row = &STEP_OPS[i];
        const Prediction p = predict_row(s, row);
        if (p.times == 0) { continue; }
        print_prediction(row->op, row->layer, &p, all->seconds);
        json_array_append_new(rows, prediction_json(row->op, row->layer, &p));
    }
    print_prediction("step", "", all, all->seconds);
    return rows;
}

int bench_predict(const Config* c) {
    const GpuFacts* gpu = gpu_asked_for(c);
    const Plan plan = predict_plan(c, gpu);
    const Step s = step_of(&plan, c, gpu);
    const Prediction all = predict_step(&s, NUM_PARTS);
    const double tokens = (double)plan.total_batch_size;
    const double training = training_factor(gpu) * all.seconds;
    const double mfu = flops_per_token(&plan) * tokens / all.seconds / gpu_peak_flops(gpu, s.dtype);
    print_step(&s, &plan, c);
    print_assumptions(&s);
    json_t* rows = print_operations(&s, &all);
    printf(
        "\npredicted step: %.2f ms, %.0f tok/s, %.1f%% %s MFU (memory %.1f ms, arithmetic %.1f ms, launches %.1f ms)\n",
        1e3 * all.seconds, tokens / all.seconds, 100 * mfu, s.dtype, 1e3 * all.memory_seconds,
        1e3 * all.arithmetic_seconds, 1e3 * all.gap_seconds);
    printf("in training: %.2f ms, %.0f tok/s, %.1f%% %s MFU (%.2f times the predicted step: so were llm.c's published "
           "steps on such a GPU)\n",
           1e3 * training, tokens / training, 100 * mfu / training_factor(gpu), s.dtype, training_factor(gpu));
    json_t* forms = print_bytes_per_token(&s);
    json_t* record = bench_record("prediction: computed, not measured", c, &plan, gpu->name, NAN, "ops", rows);
    if (record) {
        json_object_set_new(record, "predicted_ms", json_real(1e3 * all.seconds));
        json_object_set_new(record, "predicted_tok_s", json_real(tokens / all.seconds));
        json_object_set_new(record, "predicted_mfu", json_real(mfu));
        json_object_set_new(record, "training_ms", json_real(1e3 * training));
        json_object_set_new(record, "training_tok_s", json_real(tokens / training));
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
