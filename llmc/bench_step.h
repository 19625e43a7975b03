// One training step as a list: which operations of ops.h it runs, how often, and which kernels an operation comes to on
// a GPU. Operations and bytes that cannot be done without come from op_cases.h, through the harness; what is added here
// is what our kernels do beside that: passes that are not fused, tensors that two kernels read.
//
// Bytes are those between a GPU's memory and its chip: a kernel reads each of its tensors once, and finds nothing in
// the caches of what the kernel before it left there.
#pragma once
#include "bench_record.h"
#include "gpus.h"

// The linear layers that an operation serves, by channels in and out; all others run once, for the widest layer's
// sizes.
typedef struct {
    const char *op, *layer;
    int in, out; // multiples of the model's channels
} OpLayer;

static const OpLayer OP_LAYERS[] = {
    {"matmul_forward", "qkv", 1, 3},         {"matmul_forward", "attproj", 1, 1},
    {"matmul_forward", "fc", 1, 4},          {"matmul_forward", "fcproj", 4, 1},
    {"matmul_backward", "qkv", 1, 3},        {"matmul_backward", "attproj", 1, 1},
    {"matmul_backward", "fc", 1, 4},         {"matmul_backward", "fcproj", 4, 1},
    {"matmul_gelu_forward", "fc", 1, 4},     {"gelu_matmul_forward", "fcproj", 4, 1},
    {"matmul_gelu_backward", "fcproj", 4, 1}, {"gelu_forward", "fc", 4, 1},
};
enum { NUM_OP_LAYERS = sizeof OP_LAYERS / sizeof *OP_LAYERS };

// What a step runs, in this order. Times: in a micro-batch; in each layer; in each layer besides, with --recompute all,
// or gelu; once in a step, over all parameters.
typedef enum { PART_EMBED, PART_LINEAR, PART_ATTENTION, PART_NORM, PART_CLASSIFIER, PART_UPDATE, NUM_PARTS } StepPart;
static const char* const STEP_PARTS[NUM_PARTS] = {"embedding", "linear layers", "attention", "layernorm", "classifier",
                                                  "update"};
typedef struct {
    const char *op, *layer;
    StepPart part;
    int batch, each, all, gelu, step;
} StepOp;

static const char ZERO[] = "device_zero"; // not an operation of ops.h
static const StepOp STEP_OPS[] = {
    {"encoder_forward", "", PART_EMBED, 1, 0, 0, 0, 0},
    {"layernorm_forward", "", PART_NORM, 1, 0, 1, 0, 0}, // the others are fused with an addition
    {"matmul_forward", "qkv", PART_LINEAR, 0, 1, 1, 0, 0},
    {"attention_forward", "", PART_ATTENTION, 0, 1, 1, 0, 0},
    {"matmul_forward", "attproj", PART_LINEAR, 0, 1, 1, 0, 0},
    {"residual_layernorm_forward", "", PART_NORM, 0, 2, 1, 0, 0},
    {"matmul_gelu_forward", "fc", PART_LINEAR, 0, 1, 1, 0, 0},
    {"matmul_forward", "fcproj", PART_LINEAR, 0, 1, 0, 0, 0},
    {"classifier_backward", "", PART_CLASSIFIER, 1, 0, 0, 0, 0},
    {"loss_add", "", PART_CLASSIFIER, 1, 0, 0, 0, 0},
    {ZERO, "residual", PART_NORM, 1, 0, 0, 0, 0},
    {"gelu_forward", "fc", PART_LINEAR, 0, 0, 0, 1, 0},
    {"matmul_gelu_backward", "fcproj", PART_LINEAR, 0, 1, 0, 0, 0},
    {"matmul_backward", "fc", PART_LINEAR, 0, 1, 0, 0, 0},
    {"layernorm_backward", "", PART_NORM, 1, 2, 0, 0, 0},
    {"matmul_backward", "attproj", PART_LINEAR, 0, 1, 0, 0, 0},
    {"attention_backward", "", PART_ATTENTION, 0, 1, 0, 0, 0},
    {"matmul_backward", "qkv", PART_LINEAR, 0, 1, 0, 0, 0},
    {"encoder_backward", "", PART_EMBED, 1, 0, 0, 0, 0},
    {ZERO, "gradients", PART_UPDATE, 0, 0, 0, 0, 1},
    {"norm_squared", "", PART_UPDATE, 0, 0, 0, 0, 1},
    {"adamw_update", "", PART_UPDATE, 0, 0, 0, 0, 1},
};
enum { NUM_STEP_OPS = sizeof STEP_OPS / sizeof *STEP_OPS };

// How attention is done. By matmuls: as in PyTorch before flash attention, with scores (B,NH,T,T) in memory. This
// program has no such form; it is here to be compared with.
typedef enum { ATTENTION_BY_MATMULS, ATTENTION_SIMPLE, ATTENTION_FLASH } AttentionForm;

typedef struct {
    const Harness* harness; // of the storage type; asked for costs alone
    GPT2Config shape;
    int B, T;
    double micro_batches, parameters;
    size_t elem; // bytes of a floatX
    const char *dtype, *recompute;
    bool plain, fused;
    AttentionForm attention;
    const GpuFacts* gpu;
} Step;

// What a kernel's arithmetic is limited by (EFFICIENCIES in bench_predict.h).
typedef enum { WORK_PRODUCT, WORK_PLAIN_PRODUCT, WORK_FLASH_FORWARD, WORK_FLASH_BACKWARD, WORK_FLASH_FP32,
               WORK_SIMPLE_ATTENTION, WORK_ELEMENTS, NUM_WORKS } WorkKind;

// One launch, or several of a kind.
typedef struct {
    WorkKind work;
    int launches;
    double flops, read, written; // in all launches
} Kernel;

typedef struct {
    Kernel kernel[8];
    int count;
} KernelList;

static inline Kernel* add_kernel(KernelList* k, WorkKind work, int launches, double flops, double read, double written) {
    if (k->count == (int)(sizeof k->kernel / sizeof *k->kernel)) { fatal("an operation of more kernels than 8"); }
    const Kernel kernel = {work, launches, flops, read, written};
    k->kernel[k->count] = kernel;
    return &k->kernel[k->count++];
}

static inline WorkKind product_work(const Step* s) { return s->plain ? WORK_PLAIN_PRODUCT : WORK_PRODUCT; }
static inline bool step_fuses_gelu(const Step* s) {
    return gpu_fuses_gelu(s->fused && !s->plain, s->gpu->major, s->elem);
}

// ---------------------------------------------------------------------------------------------------------------------
// kernels of an operation

// matmul.cuh. inp and out: bytes of the layer's input and output.
static inline void linear_forward(const Step* s, KernelList* k, const OpCost* c, double out, bool gelu) {
    const bool with_gelu = gelu && step_fuses_gelu(s), apart = gelu && !with_gelu;
    add_kernel(k, product_work(s), 1, c->flops, c->read, c->written - (apart ? out : 0));
    if (!s->fused && !s->plain) { add_kernel(k, WORK_ELEMENTS, 1, 0, out, out); } // the bias
    if (apart) { add_kernel(k, WORK_ELEMENTS, 1, 0, out, out); }
}

// Two products read the gradient of the output; the bias's gradient comes with one of them, or reads it again.
static inline void linear_backward(const Step* s, KernelList* k, const OpCost* c, double inp, double out, int OC,
                                   bool gelu) {
    const bool apart = gelu && !step_fuses_gelu(s), fused = s->fused && !s->plain;
    add_kernel(k, product_work(s), 2, c->flops, c->read + out - (apart ? inp : 0), c->written);
    if (apart) { add_kernel(k, WORK_ELEMENTS, 1, 0, 2 * inp, inp); }
    if (fused) { add_kernel(k, WORK_ELEMENTS, 1, 0, 8.0 * OC, 4.0 * OC); }
    else { add_kernel(k, WORK_ELEMENTS, 2, 0, out, 0); }
}

static inline WorkKind attention_work(const Step* s, bool forward) {
    return s->attention == ATTENTION_SIMPLE ? WORK_SIMPLE_ATTENTION
           : s->elem == 4                   ? WORK_FLASH_FP32
           : forward                        ? WORK_FLASH_FORWARD
                                            : WORK_FLASH_BACKWARD;
}

// attention.cuh, flash.cuh. Backward is one kernel for the sums of dout * out, and two that each read q, k, v and dout.
static inline void attention_kernels(const Step* s, KernelList* k, const OpCost* c, bool forward) {
    const double tokens = (double)s->B * s->T, rows = tokens * s->shape.channels * (double)s->elem;
    const double statistic = 4.0 * tokens * s->shape.num_heads;
    if (forward) {
        add_kernel(k, attention_work(s, true), 1, c->flops, c->read, c->written);
        return;
    }
    add_kernel(k, WORK_ELEMENTS, 1, 0, 2 * rows, statistic);
    add_kernel(k, attention_work(s, false), 2, c->flops, 2 * (4 * rows + 2 * statistic), c->written);
}

// Scores and what follows them go to memory and back: scaled, masked, softmax and its gradient, each a pass of its own.
// Products are made in full, half of their results then being masked.
static inline void textbook_attention(const Step* s, KernelList* k, bool forward) {
    const double tokens = (double)s->B * s->T, C = s->shape.channels, x = (double)s->elem, rows = tokens * C * x;
    const double scores = tokens * s->T * s->shape.num_heads * x, product = 2 * tokens * s->T * C;
    const WorkKind work = product_work(s);
    if (forward) {
        add_kernel(k, work, 1, product, 2 * rows, scores);
        add_kernel(k, WORK_ELEMENTS, 3, 0, 3 * scores, 3 * scores);
        add_kernel(k, work, 1, product, scores + rows, rows);
        return;
    }
    add_kernel(k, work, 2, 2 * product, scores + 3 * rows, scores + rows); // of probabilities and of v
    add_kernel(k, WORK_ELEMENTS, 3, 0, 4 * scores, 3 * scores);
    add_kernel(k, work, 2, 2 * product, 2 * (scores + rows), 2 * rows);
}

// crossentropy.cuh: for each chunk of rows, logits are written once and read twice by products, and go through the
// softmax in place; the weight is read twice, its gradient added to once.
static inline void classifier_kernels(const Step* s, KernelList* k, const OpCost* c, bool backward) {
    const double tokens = (double)s->B * s->T, x = (double)s->elem, Vp = s->shape.padded_vocab_size;
    const double weight = Vp * s->shape.channels, logits = tokens * Vp * x;
    const int chunks = (int)ceil(tokens / gpu_classifier_chunk(s->elem));
    if (!backward) {
        add_kernel(k, product_work(s), chunks, c->flops, c->read + (chunks - 1) * weight * x, c->written + logits);
        add_kernel(k, WORK_ELEMENTS, chunks, 0, logits, 0);
        return;
    }
    const double inp = tokens * s->shape.channels * x, again = (chunks - 1) * weight * 4;
    add_kernel(k, product_work(s), 3 * chunks, c->flops,
               c->read + inp + (2 * chunks - 1) * weight * x + 2 * logits + again, c->written + logits + again);
    add_kernel(k, WORK_ELEMENTS, chunks, 0, logits, logits);
}

static inline int harness_op(const Harness* h, const char* name) {
    for (int op = 0; h->op_name(op); op++) {
        if (!strcmp(h->op_name(op), name)) { return op; }
    }
    fatal("no operation %s", name);
}

static inline bool is_op(const char* name, const char* other) { return !strcmp(name, other); }

// The kernels that an operation comes to, once, at the given sizes.
static inline KernelList op_kernels(const Step* s, const char* name, const OpSizes* z) {
    const OpCost c = s->harness->op_cost(harness_op(s->harness, name), z);
    const double tokens = (double)s->B * s->T, inp = tokens * z->C * (double)s->elem,
                 out = tokens * z->OC * (double)s->elem;
    KernelList k;
    memset(&k, 0, sizeof k);
    if (is_op(name, "matmul_forward")) { linear_forward(s, &k, &c, out, false); }
    else if (is_op(name, "matmul_gelu_forward")) { linear_forward(s, &k, &c, out, true); }
    else if (is_op(name, "matmul_backward")) { linear_backward(s, &k, &c, inp, out, z->OC, false); }
    else if (is_op(name, "matmul_gelu_backward")) { linear_backward(s, &k, &c, inp, out, z->OC, true); }
    else if (!strncmp(name, "classifier", 10)) { classifier_kernels(s, &k, &c, is_op(name, "classifier_backward")); }
    else if (is_op(name, "attention_forward") || is_op(name, "attention_backward")) {
        const bool forward = is_op(name, "attention_forward");
        if (s->attention == ATTENTION_BY_MATMULS) { textbook_attention(s, &k, forward); }
        else { attention_kernels(s, &k, &c, forward); }
    } else if (is_op(name, "gelu_matmul_forward")) {
        add_kernel(&k, product_work(s), 2, c.flops, c.read, c.written);
    } else if (is_op(name, "attention_cached")) {
        add_kernel(&k, WORK_SIMPLE_ATTENTION, 2, c.flops, c.read, c.written);
    } else {
        const bool sums_columns = is_op(name, "layernorm_backward"), embeds = is_op(name, "encoder_backward");
        const int launches = sums_columns || embeds ? 3 : is_op(name, "norm_squared") ? 2 : 1;
        add_kernel(&k, WORK_ELEMENTS, launches, c.flops, c.read + (embeds ? 4 * tokens * z->C : 0), c.written);
    }
    return k;
}

// ---------------------------------------------------------------------------------------------------------------------
// the step

// How often a step runs a row of STEP_OPS.
static inline double step_times(const Step* s, const StepOp* row) {
    const int again = !strcmp(s->recompute, "all") ? row->all : !strcmp(s->recompute, "gelu") ? row->gelu : 0;
    return row->step + s->micro_batches * (row->batch + (row->each + again) * (double)s->shape.num_layers);
}

// A row's sizes: those of its linear layer, if it is of one.
static inline OpSizes step_sizes(const Step* s, const char* op, const char* layer) {
    OpSizes sizes = op_sizes_of(&s->shape, s->B, s->T);
    for (int i = 0; i < NUM_OP_LAYERS; i++) {
        if (strcmp(OP_LAYERS[i].op, op) || strcmp(OP_LAYERS[i].layer, layer)) { continue; }
        sizes.C = OP_LAYERS[i].in * s->shape.channels;
        sizes.OC = OP_LAYERS[i].out * s->shape.channels;
    }
    return sizes;
}

// The kernels of a row, once. An operation over all parameters is one over fewer, scaled up.
static inline KernelList step_kernels(const Step* s, const StepOp* row) {
    KernelList k;
    if (row->op == ZERO) {
        const double n = row->step ? s->parameters : (double)s->B * s->T * s->shape.channels;
        memset(&k, 0, sizeof k);
        add_kernel(&k, WORK_ELEMENTS, 1, 0, 0, 4 * n);
        return k;
    }
    const OpSizes sizes = step_sizes(s, row->op, row->layer);
    k = op_kernels(s, row->op, &sizes);
    if (row->step) {
        const double scale = s->parameters / s->harness->op_cost(harness_op(s->harness, row->op), &sizes).items;
        k.kernel[0].flops *= scale;
        k.kernel[0].read *= scale;
        k.kernel[0].written *= scale;
    }
    return k;
}
