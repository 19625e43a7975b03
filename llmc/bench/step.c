#include "step.h"

// ---------------------------------------------------------------------------------------------------------------------
// the lists

const OpLayer OP_LAYERS[NUM_OP_LAYERS] = {
    {"matmul_forward", "qkv", 1, 3},         {"matmul_forward", "attproj", 1, 1},
    {"matmul_forward", "fc", 1, 4},          {"matmul_forward", "fcproj", 4, 1},
    {"matmul_backward", "qkv", 1, 3},        {"matmul_backward", "attproj", 1, 1},
    {"matmul_backward", "fc", 1, 4},         {"matmul_backward", "fcproj", 4, 1},
    {"matmul_gelu_forward", "fc", 1, 4},     {"gelu_matmul_forward", "fcproj", 4, 1},
    {"matmul_gelu_backward", "fcproj", 4, 1}, {"gelu_forward", "fc", 4, 1},
};

const char* const STEP_PARTS[NUM_PARTS] = {"embedding", "linear layers", "attention",
                                           "layernorm", "classifier",    "update"};

const char ZERO[] = "device_zero", CAST_WEIGHTS[] = "params_changed";

const StepOp STEP_OPS[NUM_STEP_OPS] = {
    // op, layer, part, and runs: batch, each, all, gelu, step
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
    {CAST_WEIGHTS, "fp8", PART_UPDATE, 0, 0, 0, 0, 1}, // with --dtype fp8 alone
};

// ---------------------------------------------------------------------------------------------------------------------
// kernels of a linear layer

Kernel* add_kernel(KernelList* k, WorkKind work, int launches, double flops, double read, double written) {
    if (k->count == (int)(sizeof k->kernel / sizeof *k->kernel)) { fatal("an operation has more than 8 kernels"); }
    const Kernel kernel = {work, launches, flops, read, written};
    k->kernel[k->count] = kernel;
    return &k->kernel[k->count++];
}

static WorkKind matmul_work(const Step* s) { return s->plain ? WORK_PLAIN_MATMUL : WORK_MATMUL; }

static bool step_fuses_gelu(const Step* s) {
    return gpu_fuses_gelu(s->fused && !s->plain, s->gpu->major, s->element_bytes);
}

enum { FP8_SCALE_BYTES = 16 }; // sizeof(Fp8Scale): each cast begins by zeroing one

// Lists the kernels of a linear layer forward (matmul.cuh). `out`: bytes of the layer's output. With `gelu`, GELU
// follows: in the matmul's epilogue, or as a kernel of its own (`apart`), which writes the second output.
static void linear_forward(const Step* s, KernelList* k, const OpCost* c, double out, bool gelu) {
    const bool with_gelu = gelu && step_fuses_gelu(s), apart = gelu && !with_gelu;
    add_kernel(k, matmul_work(s), 1, c->flops, c->read, c->written - (apart ? out : 0));
    if (!s->fused && !s->plain) { add_kernel(k, WORK_ELEMENTS, 1, 0, out, out); } // the bias
    if (apart) { add_kernel(k, WORK_ELEMENTS, 1, 0, out, out); }
}

// Lists the kernels of a linear layer backward. inp, out: bytes of the layer's input and output. Both matmuls read the
// gradient of the output. The gradient of the bias is summed in an epilogue and added by add_vector() (matmul.cuh), or
// by kernels that read the gradient of the output a third time.
static void linear_backward(const Step* s, KernelList* k, const OpCost* c, double inp, double out, int OC, bool gelu) {
    const bool apart = gelu && !step_fuses_gelu(s), fused = s->fused && !s->plain;
    add_kernel(k, matmul_work(s), 2, c->flops, c->read + out - (apart ? inp : 0), c->written);
    if (apart) { add_kernel(k, WORK_ELEMENTS, 1, 0, 2 * inp, inp); }
    if (fused) { add_kernel(k, WORK_ELEMENTS, 1, 0, 8.0 * OC, 4.0 * OC); }
    else { add_kernel(k, WORK_ELEMENTS, 2, 0, out, 0); }
}

// Returns true if a layer's matmuls are in FP8 (fp8_supports in matmul.cuh).
static bool step_in_fp8(const Step* s, const OpSizes* z) {
    return s->fp8 && s->B * s->T % FP8_MULTIPLE == 0 && z->C % FP8_MULTIPLE == 0 && z->OC % FP8_MULTIPLE == 0;
}

// Lists the kernels that cast n bf16 elements (fp8.cuh): one zeroes the scale, one finds the largest magnitude, one
// reads the elements again and writes `copies` of them.
static void fp8_cast_kernels(KernelList* k, double n, int copies) {
    add_kernel(k, WORK_ELEMENTS, 3, 0, 2 * (2 * n), FP8_SCALE_BYTES + copies * n);
}

// Lists the kernels of a layer in FP8 forward. Its matmul reads one byte of each element where `c` counts two. Only the
// bias is fused. inp, out, weight: elements, not bytes.
static void fp8_forward(const Step* s, KernelList* k, const OpCost* c, double inp, double out, double weight,
                        bool gelu) {
    fp8_cast_kernels(k, inp, 1);
    add_kernel(k, WORK_FP8_MATMUL, 1, c->flops, c->read - inp - weight, c->written - (gelu ? 2 * out : 0));
    if (!s->fused) { add_kernel(k, WORK_ELEMENTS, 1, 0, 2 * out, 2 * out); } // the bias
    if (gelu) { add_kernel(k, WORK_ELEMENTS, 1, 0, 2 * out, 2 * out); }
}

// The same backward. Two copies of the output's gradient are cast, one of them transposed, and one of the input,
// transposed.
static void fp8_backward(KernelList* k, const OpCost* c, double inp, double out, double weight, bool gelu) {
    fp8_cast_kernels(k, out, 2);
    fp8_cast_kernels(k, inp, 1);
    add_kernel(k, WORK_FP8_MATMUL, 2, c->flops, c->read - inp - weight - (gelu ? 2 * inp : 0), c->written);
    if (gelu) { add_kernel(k, WORK_ELEMENTS, 1, 0, 2 * (2 * inp), 2 * inp); }
    add_kernel(k, WORK_ELEMENTS, 2, 0, 2 * out, 0); // the bias's gradient
}

// ---------------------------------------------------------------------------------------------------------------------
// kernels of other operations

static WorkKind attention_work(const Step* s, bool forward) {
    if (s->attention == ATTENTION_BY_CUDNN) { return forward ? WORK_CUDNN_FORWARD : WORK_CUDNN_BACKWARD; }
    return s->attention == ATTENTION_PLAIN     ? WORK_PLAIN_ATTENTION
           : s->element_bytes == sizeof(float) ? WORK_FLASH_FP32
           : forward                           ? WORK_FLASH_FORWARD
                                               : WORK_FLASH_BACKWARD;
}

// attention.cuh, flash.cuh. Backward is one kernel for the sums of dout * out, and two that each read q, k, v and dout.
// cuDNN has one instead of these two, assumed to work like FlashAttention-2's: the gradient of q is summed in fp32, and
// converted at the end.
static void attention_kernels(const Step* s, KernelList* k, const OpCost* c, bool forward) {
    const double tokens = (double)s->B * s->T, rows = tokens * s->shape.channels * (double)s->element_bytes;
    const double statistic = 4.0 * tokens * s->shape.num_heads;
    if (forward) {
        add_kernel(k, attention_work(s, true), 1, c->flops, c->read, c->written);
        return;
    }
    add_kernel(k, WORK_ELEMENTS, 1, 0, 2 * rows, statistic);
    if (s->attention == ATTENTION_BY_CUDNN) {
        const double sums = 4 * rows / (double)s->element_bytes;
        add_kernel(k, WORK_CUDNN_BACKWARD, 1, c->flops, 4 * rows + 2 * statistic, c->written - rows + sums);
        add_kernel(k, WORK_ELEMENTS, 1, 0, sums, rows);
        return;
    }
    add_kernel(k, attention_work(s, false), 2, c->flops, 2 * (4 * rows + 2 * statistic), c->written);
}

// Scaling, masking, softmax and their gradients are kernels that read and write all scores in memory. Matmuls are done
// in full; half of the scores are masked afterwards.
static void attention_by_matmuls(const Step* s, KernelList* k, bool forward) {
    const double tokens = (double)s->B * s->T, C = s->shape.channels, x = (double)s->element_bytes;
    const double rows = tokens * C * x;
    const double scores = tokens * s->T * s->shape.num_heads * x, flops = 2 * tokens * s->T * C;
    const WorkKind work = matmul_work(s);
    if (forward) {
        add_kernel(k, work, 1, flops, 2 * rows, scores);
        add_kernel(k, WORK_ELEMENTS, 3, 0, 3 * scores, 3 * scores);
        add_kernel(k, work, 1, flops, scores + rows, rows);
        return;
    }
    add_kernel(k, work, 2, 2 * flops, scores + 3 * rows, scores + rows); // gradients of probabilities and v
    add_kernel(k, WORK_ELEMENTS, 3, 0, 4 * scores, 3 * scores);
    add_kernel(k, work, 2, 2 * flops, 2 * (scores + rows), 2 * rows); // gradients of q and k
}

// crossentropy.cuh. For each chunk of rows, a matmul writes the logits, softmax replaces them by their gradient, and
// two matmuls read that. Two of the three matmuls read the weight; the third adds to the weight's gradient.
static void classifier_kernels(const Step* s, KernelList* k, const OpCost* c, bool backward) {
    const double tokens = (double)s->B * s->T, x = (double)s->element_bytes, Vp = s->shape.padded_vocab_size;
    const double weight = Vp * s->shape.channels, logits = tokens * Vp * x;
    const int chunks = (int)ceil(tokens / gpu_classifier_chunk(s->element_bytes));
    if (!backward) {
        add_kernel(k, matmul_work(s), chunks, c->flops, c->read + (chunks - 1) * weight * x, c->written + logits);
        add_kernel(k, WORK_ELEMENTS, chunks, 0, logits, 0);
        return;
    }
    const double inp = tokens * s->shape.channels * x;
    const double again = (chunks - 1) * weight * 4; // each further chunk reads and writes the weight's gradient again
    add_kernel(k, matmul_work(s), 3 * chunks, c->flops,
               c->read + inp + (2 * chunks - 1) * weight * x + 2 * logits + again, c->written + logits + again);
    add_kernel(k, WORK_ELEMENTS, chunks, 0, logits, logits);
}

static bool is_op(const char* name, const char* other) { return !strcmp(name, other); }

// Lists the kernels of an operation on a linear layer; returns false for other operations.
static bool layer_kernels(const Step* s, KernelList* k, const char* name, const OpSizes* z, OpCost c) {
    const double tokens = (double)s->B * s->T, inp = tokens * z->C, out = tokens * z->OC, x = (double)s->element_bytes;
    const double weight = (double)z->C * z->OC;
    const bool before = is_op(name, "gelu_matmul_forward"), after = is_op(name, "matmul_gelu_forward");
    if (before || after || is_op(name, "matmul_forward")) {
        if (before) {
            add_kernel(k, WORK_ELEMENTS, 1, 0, x * inp, x * inp);
            c.written -= x * inp;
        }
        if (step_in_fp8(s, z)) { fp8_forward(s, k, &c, inp, out, weight, after); }
        else { linear_forward(s, k, &c, x * out, after); }
        return true;
    }
    const bool gelu = is_op(name, "matmul_gelu_backward");
    if (!gelu && !is_op(name, "matmul_backward")) { return false; }
    if (step_in_fp8(s, z)) { fp8_backward(k, &c, inp, out, weight, gelu); }
    else { linear_backward(s, k, &c, x * inp, x * out, z->OC, gelu); }
    return true;
}

KernelList op_kernels(const Step* s, const char* name, const OpSizes* z) {
    const OpCost c = op_cost(s->backend, op_number(name), z);
    const double tokens = (double)s->B * s->T;
    KernelList k = {.count = 0};
    if (layer_kernels(s, &k, name, z, c)) { return k; }
    if (!strncmp(name, "classifier", 10)) { classifier_kernels(s, &k, &c, is_op(name, "classifier_backward")); }
    else if (is_op(name, "attention_forward") || is_op(name, "attention_backward")) {
        const bool forward = is_op(name, "attention_forward");
        if (s->attention == ATTENTION_BY_MATMULS) { attention_by_matmuls(s, &k, forward); }
        else { attention_kernels(s, &k, &c, forward); }
    } else if (is_op(name, "attention_cached")) {
        add_kernel(&k, WORK_PLAIN_ATTENTION, 2, c.flops, c.read, c.written);
    } else {
        const bool sums_columns = is_op(name, "layernorm_backward"), embeds = is_op(name, "encoder_backward");
        const int launches = sums_columns || embeds ? 3 : is_op(name, "norm_squared") ? 2 : 1; // as in cuda/*.cuh
        add_kernel(&k, WORK_ELEMENTS, launches, c.flops, c.read + (embeds ? 4 * tokens * z->C : 0), c.written);
    }
    return k;
}

// ---------------------------------------------------------------------------------------------------------------------
// the step

double step_times(const Step* s, const StepOp* row) {
    if (row->op == CAST_WEIGHTS && !s->fp8) { return 0; }
    const int again = s->keep == RECOMPUTE_ALL ? row->all : s->keep == RECOMPUTE_GELU ? row->gelu : 0;
    return row->step + s->micro_batches * (row->batch + (row->each + again) * (double)s->shape.num_layers);
}

// Returns the sizes of a row: those of its linear layer, if it has one.
static OpSizes step_sizes(const Step* s, const char* op, const char* layer) {
    OpSizes sizes = op_sizes_of(&s->shape, s->B, s->T);
    for (int i = 0; i < NUM_OP_LAYERS; i++) {
        if (strcmp(OP_LAYERS[i].op, op) || strcmp(OP_LAYERS[i].layer, layer)) { continue; }
        sizes.C = OP_LAYERS[i].in * s->shape.channels;
        sizes.OC = OP_LAYERS[i].out * s->shape.channels;
    }
    return sizes;
}

// Casts the weights of all blocks to FP8, each with its transpose.
static void fp8_weights_kernels(const Step* s, KernelList* k) {
    for (int i = 0; i < NUM_OP_LAYERS; i++) {
        const OpLayer* l = &OP_LAYERS[i];
        const OpSizes z = step_sizes(s, l->op, l->layer);
        if (strcmp(l->op, "matmul_backward") || !step_in_fp8(s, &z)) { continue; }
        fp8_cast_kernels(k, (double)z.C * z.OC, 2);
        Kernel* each = &k->kernel[k->count - 1];
        each->launches *= s->shape.num_layers;
        each->read *= s->shape.num_layers;
        each->written *= s->shape.num_layers;
    }
}

KernelList step_kernels(const Step* s, const StepOp* row) {
    KernelList k = {.count = 0};
    if (row->op == CAST_WEIGHTS) {
        fp8_weights_kernels(s, &k);
        return k;
    }
    if (row->op == ZERO) {
        const double n = row->step ? s->parameters : (double)s->B * s->T * s->shape.channels;
        add_kernel(&k, WORK_ELEMENTS, 1, 0, 0, 4 * n);
        return k;
    }
    const OpSizes sizes = step_sizes(s, row->op, row->layer);
    k = op_kernels(s, row->op, &sizes);
    if (row->step) { // the operation runs over all parameters, its case over a few: scale the work up
        const double scale = s->parameters / op_cost(s->backend, op_number(row->op), &sizes).items;
        k.kernel[0].flops *= scale;
        k.kernel[0].read *= scale;
        k.kernel[0].written *= scale;
    }
    return k;
}
