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
    {"muon_update", "attention", PART_UPDATE, 0, 0, 0, 0, 1}, // with --optimizer muon alone, as the next two
    {"muon_update", "fc", PART_UPDATE, 0, 0, 0, 0, 1},
    {"muon_update", "fcproj", PART_UPDATE, 0, 0, 0, 0, 1},
    {CAST_WEIGHTS, "fp8", PART_UPDATE, 0, 0, 0, 0, 1}, // with --dtype fp8 alone
};

// ---------------------------------------------------------------------------------------------------------------------
// kernels of a linear layer

Kernel* add_kernel(KernelList* k, WorkKind work, int launches, double flops, double read, double written) {
    if (k->count == (int)(sizeof k->kernel / sizeof *k->kernel)) { fatal("an operation has more than 8 kernels"); }
    const Kernel kernel = {.work = work, .launches = launches, .flops = flops, .read = read, .written = written};
    k->kernel[k->count] = kernel;
    return &k->kernel[k->count++];
}

Kernel* add_matmul(KernelList* k, WorkKind work, int launches, MatmulSize size, double read, double written) {
    const double flops = 2.0 * size.rows * size.cols * size.depth;
    Kernel* kernel = add_kernel(k, work, launches, launches * flops, read, written);
    kernel->size = size;
    return kernel;
}

static WorkKind matmul_work(const Step* s) { return s->plain ? WORK_PLAIN_MATMUL : WORK_MATMUL; }

static bool step_fuses_gelu(const Step* s) {
    return gpu_fuses_gelu(s->fused && !s->plain, s->gpu->major, s->element_bytes);
}

enum { FP8_SCALE_BYTES = 16 }; // sizeof(Fp8Scale): each cast begins by zeroing one

// The matmuls of a linear layer with N rows: forward, and backward to its input and to its weight.
static MatmulSize forward_size(int N, const OpSizes* z) { return (MatmulSize){N, z->OC, z->C}; }
static MatmulSize backward_inp_size(int N, const OpSizes* z) { return (MatmulSize){N, z->C, z->OC}; }
static MatmulSize backward_weight_size(int N, const OpSizes* z) { return (MatmulSize){z->OC, z->C, N}; }

// Lists the kernels of a linear layer forward (matmul.cuh). With `gelu`, GELU follows: in the matmul's epilogue, or as
// a kernel of its own (`apart`), which writes the second output.
static void linear_forward(const Step* s, KernelList* k, const OpCost* c, const OpSizes* z, bool gelu) {
    const int N = s->B * s->T;
    const double out = (double)N * z->OC * (double)s->element_bytes;
    const bool apart = gelu && (s->gelu_apart || !step_fuses_gelu(s));
    add_matmul(k, matmul_work(s), 1, forward_size(N, z), c->read, c->written - (apart ? out : 0));
    if (!s->fused && !s->plain) { add_kernel(k, WORK_ELEMENTS, 1, 0, out, out); } // the bias
    if (apart) { add_kernel(k, WORK_ELEMENTS, 1, 0, out, out); }
}

// Lists the kernels of a linear layer backward. Both matmuls read the gradient of the output. That to the input reads
// the weight, and with GELU in its epilogue what went into GELU; that to the weight reads and writes the weight's
// gradient. The gradient of the bias is summed in an epilogue and added by add_vector() (matmul.cuh), or by kernels
// that read the gradient of the output a third time.
static void linear_backward(const Step* s, KernelList* k, const OpCost* c, const OpSizes* z, bool gelu) {
    const int N = s->B * s->T;
    const double x = (double)s->element_bytes, inp = x * N * z->C, out = x * N * z->OC;
    const double weight = x * z->C * z->OC;
    const bool apart = gelu && (s->gelu_gradient_apart || !step_fuses_gelu(s));
    const double to_inp = out + weight + (gelu && !apart ? inp : 0);
    add_matmul(k, matmul_work(s), 1, backward_inp_size(N, z), to_inp, inp);
    add_matmul(k, matmul_work(s), 1, backward_weight_size(N, z), c->read + out - (apart ? inp : 0) - to_inp,
               c->written - inp);
    if (apart) { add_kernel(k, WORK_ELEMENTS, 1, 0, 2 * inp, inp); }
    if (s->fused && !s->plain && !s->bias_gradient_apart) {
        add_kernel(k, WORK_ELEMENTS, 1, 0, 8.0 * z->OC, 4.0 * z->OC);
    } else { add_kernel(k, WORK_ELEMENTS, 2, 0, out, 0); }
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
// bias is fused.
static void fp8_forward(const Step* s, KernelList* k, const OpCost* c, const OpSizes* z, bool gelu) {
    const int N = s->B * s->T;
    const double inp = (double)N * z->C, out = (double)N * z->OC, weight = (double)z->C * z->OC;
    fp8_cast_kernels(k, inp, 1);
    add_matmul(k, WORK_FP8_MATMUL, 1, forward_size(N, z), c->read - inp - weight, c->written - (gelu ? 2 * out : 0));
    if (!s->fused) { add_kernel(k, WORK_ELEMENTS, 1, 0, 2 * out, 2 * out); } // the bias
    if (gelu) { add_kernel(k, WORK_ELEMENTS, 1, 0, 2 * out, 2 * out); }
}

// The same backward. Two copies of the output's gradient are cast, one of them transposed, and one of the input,
// transposed.
static void fp8_backward(const Step* s, KernelList* k, const OpCost* c, const OpSizes* z, bool gelu) {
    const int N = s->B * s->T;
    const double inp = (double)N * z->C, out = (double)N * z->OC, weight = (double)z->C * z->OC;
    fp8_cast_kernels(k, out, 2);
    fp8_cast_kernels(k, inp, 1);
    add_matmul(k, WORK_FP8_MATMUL, 1, backward_inp_size(N, z), out + weight, 2 * inp);
    add_matmul(k, WORK_FP8_MATMUL, 1, backward_weight_size(N, z),
               c->read - inp - weight - (gelu ? 2 * inp : 0) - out - weight, c->written - 2 * inp);
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
// in full; half of the scores are masked afterwards. All heads' matmuls are one launch: here one tall matmul.
static void attention_by_matmuls(const Step* s, KernelList* k, bool forward) {
    const int rows = s->B * s->T * s->shape.num_heads, HS = s->shape.channels / s->shape.num_heads;
    const double bytes = (double)rows * HS * (double)s->element_bytes; // of q, k, v or out
    const double scores = (double)rows * s->T * (double)s->element_bytes;
    const MatmulSize to_scores = {rows, s->T, HS}, from_scores = {rows, HS, s->T};
    const WorkKind work = matmul_work(s);
    if (forward) {
        add_matmul(k, work, 1, to_scores, 2 * bytes, scores);
        add_kernel(k, WORK_ELEMENTS, 3, 0, 3 * scores, 3 * scores);
        add_matmul(k, work, 1, from_scores, scores + bytes, bytes);
        return;
    }
    add_matmul(k, work, 1, to_scores, 2 * bytes, scores);           // gradient of probabilities
    add_matmul(k, work, 1, from_scores, scores + bytes, bytes);     // of v
    add_kernel(k, WORK_ELEMENTS, 3, 0, 4 * scores, 3 * scores);
    add_matmul(k, work, 2, from_scores, 2 * (scores + bytes), 2 * bytes); // of q and k
}

// crossentropy.cuh. For each chunk of rows, a matmul writes the logits, softmax replaces them by their gradient, and
// two matmuls read that. Two of the three matmuls read the weight; the third adds to the weight's gradient, which each
// further chunk reads and writes again. The padded part of the vocabulary is summed too, but no FLOPs are counted for
// it.
static void classifier_kernels(const Step* s, KernelList* k, const OpCost* c, bool backward) {
    const double tokens = (double)s->B * s->T, x = (double)s->element_bytes;
    const int C = s->shape.channels, Vp = s->shape.padded_vocab_size;
    const double weight = (double)Vp * C, logits = tokens * Vp * x, inp = tokens * C * x;
    const int chunks = (int)ceil(tokens / s->classifier_chunk), rows = (int)ceil(tokens / chunks);
    const MatmulSize size[] = {{rows, Vp, C}, {rows, C, Vp}, {Vp, C, rows}};
    const double read[] = {inp + chunks * weight * x, logits + chunks * weight * x, logits + inp + chunks * weight * 4};
    const double written[] = {logits, inp, chunks * weight * 4};
    const int matmuls = backward ? 3 : 1;
    for (int i = 0; i < matmuls; i++) {
        add_matmul(k, matmul_work(s), chunks, size[i], read[i], written[i])->flops = c->flops / matmuls;
        if (i == 0) { add_kernel(k, WORK_ELEMENTS, chunks, 0, logits, backward ? logits : 0); }
    }
}

// muon.cuh, for `count` matrices of one shape, in stacks. The matmuls of a stack are one launch: here one tall matmul.
// The first reads X as both of its factors, the others add a matrix.
static void muon_kernels(const Step* s, KernelList* k, int count, int rows, int cols) {
    enum { STEPS = MUON_STEPS };
    const int stack = gpu_muon_at_a_time(count, rows, cols), stacks = stack ? (count + stack - 1) / stack : 0;
    const int side = min_int(rows, cols), length = rows + cols - side;
    const double n = (double)count * rows * cols, X = n * (double)s->element_bytes;
    const double A = (double)count * side * side * (double)s->element_bytes;
    const MatmulSize gram = {stack * side, side, length}, square = {stack * side, side, side},
                     product = {stack * length, side, side};
    add_kernel(k, WORK_ELEMENTS, stacks, 6 * n, 8 * n, 0);          // the norms of gradients and momentum
    add_kernel(k, WORK_ELEMENTS, stacks, 7 * n, 8 * n, 4 * n + X);
    // flops: the last stack may be smaller than the others
    const double square_flops = STEPS * 2.0 * count * side * side;
    add_matmul(k, matmul_work(s), STEPS * stacks, gram, STEPS * 2 * X, STEPS * A)->flops = square_flops * length;
    add_matmul(k, matmul_work(s), STEPS * stacks, square, STEPS * 3 * A, STEPS * A)->flops = square_flops * side;
    add_matmul(k, matmul_work(s), STEPS * stacks, product, STEPS * (A + 2 * X), STEPS * X)->flops =
        square_flops * length;
    add_kernel(k, WORK_ELEMENTS, stacks, 7 * n, X + 4 * n, X + 4 * n); // the weights
}

static bool is_op(const char* name, const char* other) { return !strcmp(name, other); }

// Lists the kernels of an operation on a linear layer; returns false for other operations.
static bool layer_kernels(const Step* s, KernelList* k, const char* name, const OpSizes* z, OpCost c) {
    const double inp = (double)s->B * s->T * z->C * (double)s->element_bytes;
    const bool before = is_op(name, "gelu_matmul_forward"), after = is_op(name, "matmul_gelu_forward");
    if (before || after || is_op(name, "matmul_forward")) {
        if (before) {
            add_kernel(k, WORK_ELEMENTS, 1, 0, inp, inp);
            c.written -= inp;
        }
        if (step_in_fp8(s, z)) { fp8_forward(s, k, &c, z, after); }
        else { linear_forward(s, k, &c, z, after); }
        return true;
    }
    const bool gelu = is_op(name, "matmul_gelu_backward");
    if (!gelu && !is_op(name, "matmul_backward")) { return false; }
    if (step_in_fp8(s, z)) { fp8_backward(s, k, &c, z, gelu); }
    else { linear_backward(s, k, &c, z, gelu); }
    return true;
}

KernelList op_kernels(const Step* s, const char* name, const OpSizes* z) {
    OpCost c = op_cost(s->backend, op_number(name), z);
    const double tokens = (double)s->B * s->T;
    KernelList k = {.count = 0};
    if (layer_kernels(s, &k, name, z, c)) { return k; }
    if (!strncmp(name, "classifier", 10)) { classifier_kernels(s, &k, &c, is_op(name, "classifier_backward")); }
    else if (strstr(name, "attention_forward") || strstr(name, "attention_backward")) { // within documents or not
        const bool forward = strstr(name, "attention_forward") != NULL;
        if (s->attention == ATTENTION_BY_MATMULS) { attention_by_matmuls(s, &k, forward); }
        else { attention_kernels(s, &k, &c, forward); }
    } else if (is_op(name, "muon_update")) {
        muon_kernels(s, &k, 3, z->OC, z->C); // the case's third matrix lies across, and takes as long
    } else if (is_op(name, "attention_cached")) {
        add_kernel(&k, WORK_PLAIN_ATTENTION, 2, c.flops, c.read, c.written);
    } else {
        const bool sums_columns = is_op(name, "layernorm_backward"), embeds = is_op(name, "encoder_backward");
        const int launches = sums_columns || embeds ? 3 : is_op(name, "norm_squared") ? 2 : 1; // as in cuda/*.cuh
        c.read += embeds ? tokens * z->C * (double)s->backend->residual_bytes : 0; // for wte and for wpe
        add_kernel(&k, WORK_ELEMENTS, launches, c.flops, c.read, c.written);
    }
    return k;
}

// ---------------------------------------------------------------------------------------------------------------------
// the step

double step_times(const Step* s, const StepOp* row) {
    if ((row->op == CAST_WEIGHTS && !s->fp8) || (is_op(row->op, "muon_update") && !s->muon)) { return 0; }
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

// Muon's update of all matrices of a shape: the queries', keys', values' and output's of attention, or a layer's of the
// MLP.
static void muon_layer_kernels(const Step* s, KernelList* k, const char* layer) {
    const int C = s->shape.channels, L = s->shape.num_layers;
    if (is_op(layer, "attention")) { muon_kernels(s, k, 4 * L, C, C); }
    else { muon_kernels(s, k, L, is_op(layer, "fc") ? 4 * C : C, is_op(layer, "fc") ? C : 4 * C); }
}

KernelList step_kernels(const Step* s, const StepOp* row) {
    KernelList k = {.count = 0};
    if (row->op == CAST_WEIGHTS) {
        fp8_weights_kernels(s, &k);
        return k;
    }
    if (row->op == ZERO) {
        const double residual = (double)s->B * s->T * s->shape.channels * (double)s->backend->residual_bytes;
        add_kernel(&k, WORK_ELEMENTS, 1, 0, 0, row->step ? 4 * s->parameters : residual);
        return k;
    }
    if (is_op(row->op, "muon_update")) {
        muon_layer_kernels(s, &k, row->layer);
        return k;
    }
    const OpSizes sizes = step_sizes(s, row->op, row->layer);
    k = op_kernels(s, row->op, &sizes);
    if (row->step) { // the operation runs over all parameters, its case over a few: scale the work up
        const double C = s->shape.channels, matrices = 12 * C * C * s->shape.num_layers;
        const bool skips_matrices = s->muon && is_op(row->op, "adamw_update");
        if (skips_matrices) { k.kernel[0].launches = s->shape.num_layers + 2; } // ranges of the layout
        const double elements = s->parameters - (skips_matrices ? matrices : 0);
        const double scale = elements / op_cost(s->backend, op_number(row->op), &sizes).items;
        k.kernel[0].flops *= scale;
        k.kernel[0].read *= scale;
        k.kernel[0].written *= scale;
    }
    return k;
}
