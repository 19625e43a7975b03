#include "rungs.h"
#include "../train/backends.h"

// ---------------------------------------------------------------------------------------------------------------------
// rungs

// Flash attention comes before the types: in bf16 the plain kernel of attention takes ten times as long as all else (on
// an H100), and would hide what they bring.
static const Rung GPU_RUNGS[] = {
    {"plain kernels, fp32", dtype_fp32, residual_fp32, kernels_plain, 0, attention_plain, 0, 0, ALL_THREADS},
    {"cuBLASLt, fp32", dtype_fp32, residual_fp32, kernels_fast, 0, attention_plain, 0, 0, ALL_THREADS},
    {"flash attention", dtype_fp32, residual_fp32, kernels_fast, 0, attention_auto, 0, 0, ALL_THREADS},
    {"tf32", dtype_tf32, residual_fp32, kernels_fast, 0, attention_auto, 0, 0, ALL_THREADS},
    {"bf16", dtype_bf16, residual_fp32, kernels_fast, 0, attention_auto, 0, 0, ALL_THREADS},
    {"fused", dtype_bf16, residual_fp32, kernels_fast, 1, attention_auto, 0, 0, ALL_THREADS},
    {"padded vocabulary", dtype_bf16, residual_fp32, kernels_fast, 1, attention_auto, 1, 0, ALL_THREADS},
    {"CUDA graphs", dtype_bf16, residual_fp32, kernels_fast, 1, attention_auto, 1, 1, ALL_THREADS},
    {"residual stream", dtype_bf16, residual_bf16, kernels_fast, 1, attention_auto, 1, 1, ALL_THREADS},
    {"fp8", dtype_fp8, residual_bf16, kernels_fast, 1, attention_auto, 1, 1, ALL_THREADS},
};

static const Rung CPU_RUNGS[] = {
    {"plain loops", dtype_fp32, residual_fp32, kernels_plain, 0, attention_plain, 0, 0, 1},
    {"vectors and blocks", dtype_fp32, residual_fp32, kernels_fast, 0, attention_plain, 0, 0, 1},
    {"fused", dtype_fp32, residual_fp32, kernels_fast, 1, attention_plain, 0, 0, 1},
    {"flash attention", dtype_fp32, residual_fp32, kernels_fast, 1, attention_auto, 0, 0, 1},
    {"bf16", dtype_bf16, residual_fp32, kernels_fast, 1, attention_auto, 0, 0, 1},
    {"padded vocabulary", dtype_bf16, residual_fp32, kernels_fast, 1, attention_auto, 1, 0, 1},
    {"all threads", dtype_bf16, residual_fp32, kernels_fast, 1, attention_auto, 1, 0, ALL_THREADS},
};

// A GPU needs three warm-up steps: CUDA graphs are recorded in the second and, for the other batch buffer, the third.
// The other numbers are chosen, not measured.
const LadderKind GPU_LADDER = {GPU_RUNGS, sizeof GPU_RUNGS / sizeof *GPU_RUNGS, 3, 10};
const LadderKind CPU_LADDER = {CPU_RUNGS, sizeof CPU_RUNGS / sizeof *CPU_RUNGS, 1, 5};

const double LADDER_LR = 3e-5;

const char* const DECIDED[NUM_DECIDED] = {"dtype", "residual",  "kernels", "attention",
                                          "fused", "pad_vocab", "graph"};

// Largest relative difference of that loss from the rung before, by the coarser of the two types: ten to twenty times
// what 124M shows: fp8 2.9e-4, bf16 1.1e-4, tf32 5.1e-6 (dev/bench/results/gpu), fp32 4.8e-8 (on a CPU). fp16: bf16's.
typedef struct {
    enum dtype dtype;
    double tolerance;
} LossTolerance;

static const LossTolerance LOSS_TOLERANCES[] = { // coarsest first
    {dtype_fp8, 3e-3}, {dtype_bf16, 1e-3}, {dtype_fp16, 1e-3}, {dtype_tf32, 1e-4}, {dtype_fp32, 1e-6}};

double loss_tolerance(enum dtype a, enum dtype b) {
    for (size_t i = 0; i < sizeof LOSS_TOLERANCES / sizeof *LOSS_TOLERANCES; i++) {
        const LossTolerance* t = &LOSS_TOLERANCES[i];
        if (t->dtype == a || t->dtype == b) { return t->tolerance; }
    }
    fatal("the ladder has no tolerance for %s", dtype_names[a]);
}

double rung_tolerance(const Rung* a, const Rung* b, bool same_kernels) {
    const bool same = same_kernels && a->dtype == b->dtype && a->residual == b->residual && a->kernels == b->kernels &&
                      a->fused == b->fused && a->attention == b->attention &&
                      a->pad_vocab == b->pad_vocab;
    return same ? 0 : loss_tolerance(a->dtype, b->dtype);
}

void ladder_choose(Ladder* l, const Backend* (*find)(enum dtype dtype, enum cpu cpu)) {
    for (int i = 0; i < l->kind->count; i++) {
        Rung r = l->kind->rungs[i];
        const Rung* below = l->count > 0 ? &l->kind->rungs[i - 1] : NULL; // no rung comes before the first
        if (l->on_gpu && r.dtype == dtype_bf16) { // fp16 on a GPU without bf16
            r.dtype = dtype_of_storage(find(dtype_auto, l->config->cpu));
            if (!strcmp(r.name, "bf16")) { r.name = dtype_names[r.dtype]; }
        }
        if (!find(r.dtype, l->config->cpu)) {
            if (!below || below->dtype != r.dtype) {
                notice("this program has no %s kernels for this processor: rung '%s' is left out", dtype_names[r.dtype],
                       r.name);
                continue;
            }
            r.dtype = l->rung[l->count - 1].dtype;
        }
        if (r.residual != residual_fp32 && !find(r.dtype, l->config->cpu)->with_bf16_residual) {
            notice("%s has no residual stream in bf16: rung '%s' is left out", dtype_names[r.dtype], r.name);
            continue;
        }
        if (l->threads == 1 && below && below->threads != r.threads) {
            notice("there is one processor, or --threads 1: rung '%s' is left out", r.name);
            continue;
        }
        l->rung[l->count++] = r;
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// comparing

bool rung_is_ok(const RungResult* r) { return isfinite(r->loss) && r->loss_error <= r->tolerance; }

void rung_compare(Ladder* l, int index, int first, int before) {
    RungResult* r = &l->result[index];
    if (!r->ran) { return; }
    r->gain = before >= 0 ? r->tokens_per_second / l->result[before].tokens_per_second : 1.0;
    r->total_gain = first >= 0 ? r->tokens_per_second / l->result[first].tokens_per_second : 1.0;
    if (before >= 0) {
        const RungResult* last = &l->result[before];
        r->tolerance = rung_tolerance(&l->rung[before], &l->rung[index], !strcmp(last->kernels, r->kernels));
        r->loss_error = fabs(r->loss / last->loss - 1.0);
    }
    l->failed += !rung_is_ok(r);
}
