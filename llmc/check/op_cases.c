#include "op_cases.h"

// ---------------------------------------------------------------------------------------------------------------------
// sizes

const OpSizes OP_SIZES_SMALL = {.B = 3, .T = 13, .C = 42, .NH = 3, .OC = 75, .V = 133, .Vp = 160, .past = 4,
                                .capacity = 19, .chunk = 7};
const OpSizes OP_SIZES_TILES = {.B = 1, .T = 197, .C = 80, .NH = 2, .OC = 80, .V = 133, .Vp = 160, .past = 0,
                                .capacity = 300, .chunk = 7};
const OpSizes OP_SIZES_BLOCKS = {.B = 2, .T = 104, .C = 48, .NH = 2, .OC = 80, .V = 133, .Vp = 160, .past = 4,
                                 .capacity = 114, .chunk = 48};

OpSizes op_sizes_of(const GPT2Config* m, int B, int T) {
    const int past = T / 2 + 1;
    return (OpSizes){.B = B,
                     .T = T,
                     .C = m->channels,
                     .NH = m->num_heads,
                     .OC = 4 * m->channels,
                     .V = m->vocab_size,
                     .Vp = m->padded_vocab_size,
                     .past = past,
                     .capacity = past + T + 1};
}

// ---------------------------------------------------------------------------------------------------------------------
// macros of the list

// Declares the next tensor, or returns its memory.
static void* op_tensor(OpCase* c, const char* name, Role role, Elem elem, size_t n) {
    if (c->stage != CASE_DECLARE) { return c->tensor[c->next++].data; }
    const OpTensor t = {.name = name, .role = role, .elem = elem, .n = n};
    c->touched[c->count] = n;
    c->tensor[c->count++] = t;
    return NULL;
}

#define S(role, name, n) Stored* name = op_tensor(c, #name, ROLE_##role, ELEM_STORED, n)
#define R(role, name, n) Residual* name = op_tensor(c, #name, ROLE_##role, ELEM_RESIDUAL, n)
#define F(role, name, n) float* name = op_tensor(c, #name, ROLE_##role, ELEM_FLOAT, n)
#define I(role, name, n) int* name = op_tensor(c, #name, ROLE_##role, ELEM_INT, n)
#define D(role, name, n) double* name = op_tensor(c, #name, ROLE_##role, ELEM_DOUBLE, n)

// The gradient of a weight, of an operation that has a GradMode.
#define GRADIENT(name, n)                                                                                          \
    float* name = op_tensor(c, #name, mode == GRADS_SET ? ROLE_WRITE : ROLE_ADD, ELEM_FLOAT, n)

#define OP_CASE(op) static void op_case_##op(OpCase* c)
#define SIZES                                                                                                      \
    const Backend* b = c->backend;                                                                                 \
    const OpSizes* s = &c->size;                                                                                   \
    const int B = s->B, T = s->T, C = s->C, NH = s->NH, OC = s->OC, V = s->V, Vp = s->Vp;                          \
    const size_t N = (size_t)B * T, rows = min_size(N, (size_t)V); /* rows of wte that N tokens read */            \
    const double scores = 0.5 * B * T * (T + 1.0); /* of one head: unmasked pairs of query and key */              \
    const int chunk = s->chunk ? s->chunk : b->classifier_chunk((int)N);                                           \
    (void)B, (void)T, (void)C, (void)NH, (void)OC, (void)V, (void)Vp, (void)N, (void)chunk, (void)rows, (void)scores
#define PREPARE(call) if (c->stage == CASE_PREPARE) { call; }
#define RUN(call) if (c->stage == CASE_CALL) { call; }

// The operation needs `n` elements of the tensor declared last, not all.
#define TOUCHES(n) if (c->stage == CASE_DECLARE) { c->touched[c->count - 1] = (n); }

// The arithmetic of the operation: a multiply-add counts as two; a division, a root, exp and tanh as one. If there are
// matmuls, only those count; in causal attention, only scores that are not masked.
#define FLOPS(formula) c->flops = (formula)

// ---------------------------------------------------------------------------------------------------------------------
// the list

OP_CASE(encoder_forward) {
    SIZES;
    FLOPS(1.0 * N * C);
    R(WRITE, out, N * C);
    I(READ, tokens, N);
    S(READ, wte, (size_t)V * C);
    TOUCHES(rows * C);
    S(READ, wpe, (size_t)T * C);
    RUN(b->encoder_forward(out, tokens, wte, wpe, B, T, C))
}

OP_CASE(encoder_backward) {
    SIZES;
    FLOPS(2.0 * N * C);
    F(ADD, dwte, (size_t)V * C);
    TOUCHES(rows * C);
    F(ADD, dwpe, (size_t)T * C);
    R(READ, dout, N * C);
    I(READ, tokens, N);
    I(READ, order, N);
    RUN(b->encoder_backward(dwte, dwpe, dout, tokens, order, B, T, C))
}

OP_CASE(layernorm_forward) {
    SIZES;
    FLOPS(8.0 * N * C);
    S(WRITE, out, N * C);
    F(WRITE, mean, N);
    F(WRITE, rstd, N);
    R(READ, inp, N * C);
    S(READ, weight, C);
    S(READ, bias, C);
    RUN(b->layernorm_forward(out, mean, rstd, inp, weight, bias, (int)N, C))
}

OP_CASE(layernorm_backward) {
    SIZES;
    FLOPS(14.0 * N * C);
    R(ADD, dinp, N * C);
    S(WRITE, dinp_stored, N * C);
    TOUCHES(residual_is_stored(b) ? 0 : N * C); // 0: the model has no such copy
    F(ADD, dweight, C);
    F(ADD, dbias, C);
    S(READ, dout, N * C);
    R(READ, inp, N * C);
    S(READ, weight, C);
    F(READ, mean, N);
    F(READ, rstd, N);
    RUN(b->layernorm_backward(dinp, dinp_stored, dweight, dbias, dout, inp, weight, mean, rstd, (int)N, C))
}

OP_CASE(residual_layernorm_forward) {
    SIZES;
    FLOPS(9.0 * N * C);
    R(WRITE, residual, N * C);
    S(WRITE, out, N * C);
    F(WRITE, mean, N);
    F(WRITE, rstd, N);
    R(READ, inp1, N * C);
    S(READ, inp2, N * C);
    S(READ, weight, C);
    S(READ, bias, C);
    RUN(b->residual_layernorm_forward(residual, out, mean, rstd, inp1, inp2, weight, bias, (int)N, C))
}

OP_CASE(matmul_forward) {
    SIZES;
    FLOPS(2.0 * N * C * OC);
    S(WRITE, out, N * OC);
    S(READ, inp, N * C);
    S(READ, weight, (size_t)OC * C);
    S(READ, bias, OC);
    RUN(b->matmul_forward(out, inp, weight, bias, (int)N, C, OC))
}

static void matmul_backward_in(OpCase* c, GradMode mode) {
    SIZES;
    FLOPS(4.0 * N * C * OC);
    S(WRITE, dinp, N * C);
    GRADIENT(dweight, (size_t)OC * C);
    F(ADD, dbias, OC);
    S(READ, dout, N * OC);
    S(READ, inp, N * C);
    S(READ, weight, (size_t)OC * C);
    RUN(b->matmul_backward(dinp, dweight, dbias, dout, inp, weight, mode, (int)N, C, OC))
}

OP_CASE(matmul_backward) { matmul_backward_in(c, GRADS_ADD); }
OP_CASE(first_matmul_backward) { matmul_backward_in(c, GRADS_SET); }

OP_CASE(matmul_gelu_forward) {
    SIZES;
    FLOPS(2.0 * N * C * OC);
    S(WRITE, out, N * OC);
    S(WRITE, pre, N * OC);
    S(READ, inp, N * C);
    S(READ, weight, (size_t)OC * C);
    S(READ, bias, OC);
    RUN(b->matmul_gelu_forward(out, pre, inp, weight, bias, (int)N, C, OC))
}

// GELU, then a linear layer: matmul_gelu_backward computes its gradients
OP_CASE(gelu_matmul_forward) {
    SIZES;
    FLOPS(2.0 * N * C * OC);
    S(WRITE, out, N * OC);
    S(WRITE, inp, N * C);
    S(READ, pre, N * C);
    S(READ, weight, (size_t)OC * C);
    S(READ, bias, OC);
    RUN(b->gelu_forward(inp, pre, N * C); b->matmul_forward(out, inp, weight, bias, (int)N, C, OC))
}

static void matmul_gelu_backward_in(OpCase* c, GradMode mode) {
    SIZES;
    FLOPS(4.0 * N * C * OC);
    S(WRITE, dpre, N * C);
    GRADIENT(dweight, (size_t)OC * C);
    F(ADD, dbias, OC);
    S(READ, dout, N * OC);
    S(READ, inp, N * C);
    S(READ, pre, N * C);
    S(READ, weight, (size_t)OC * C);
    RUN(b->matmul_gelu_backward(dpre, dweight, dbias, dout, inp, pre, weight, mode, (int)N, C, OC))
}

OP_CASE(matmul_gelu_backward) { matmul_gelu_backward_in(c, GRADS_ADD); }
OP_CASE(first_matmul_gelu_backward) { matmul_gelu_backward_in(c, GRADS_SET); }

OP_CASE(gelu_forward) {
    SIZES;
    FLOPS(9.0 * N * C);
    S(WRITE, out, N * C);
    S(READ, inp, N * C);
    RUN(b->gelu_forward(out, inp, N * C))
}

int op_document_end(const OpSizes* s, int b, int k, int begin) {
    const int length[] = {2 * s->T / 5, s->T / 4, 1, 16, 1, 5}, count = sizeof length / sizeof *length;
    return min_int(s->T, begin + max_int(1, length[(b + k) % count]));
}

// Returns the unmasked pairs of query and key of one head.
static double document_scores(const OpSizes* s) {
    double scores = 0;
    for (int b = 0; b < s->B; b++) {
        for (int k = 0, begin = 0, end; begin < s->T; k++, begin = end) {
            end = op_document_end(s, b, k, begin);
            scores += 0.5 * (end - begin) * (end - begin + 1.0);
        }
    }
    return scores;
}

// EXACT: --attention exact. What rounding takes differs between devices: it is not compared, but read by backward.
typedef enum { ALL_TOKENS, EXACT, WITHIN_DOCUMENTS } AttentionKind;

static void attention_forward_of(OpCase* c, AttentionKind kind) {
    SIZES;
    FLOPS(4.0 * C * (kind == WITHIN_DOCUMENTS ? document_scores(s) : scores));
    S(WRITE, out, N * C);
    Stored* rest = kind == EXACT ? op_tensor(c, "rest", ROLE_SCRATCH, ELEM_STORED, N * C) : NULL;
    F(WRITE, lse, N * NH);
    S(READ, qkv, N * 3 * C);
    int* starts = kind == WITHIN_DOCUMENTS ? op_tensor(c, "starts", ROLE_READ, ELEM_INT, N) : NULL;
    RUN(b->attention_forward(out, rest, lse, qkv, starts, B, T, C, NH))
}

static void attention_backward_of(OpCase* c, AttentionKind kind) {
    SIZES;
    FLOPS(10.0 * C * (kind == WITHIN_DOCUMENTS ? document_scores(s) : scores));
    S(WRITE, dqkv, N * 3 * C);
    F(SCRATCH, delta, N * NH);
    S(READ, dout, N * C);
    S(READ, out, N * C);
    Stored* rest = kind == EXACT ? op_tensor(c, "rest", ROLE_READ, ELEM_STORED, N * C) : NULL;
    F(READ, lse, N * NH);
    S(READ, qkv, N * 3 * C);
    int* starts = kind == WITHIN_DOCUMENTS ? op_tensor(c, "starts", ROLE_READ, ELEM_INT, N) : NULL;
    int* ends = kind == WITHIN_DOCUMENTS ? op_tensor(c, "ends", ROLE_READ, ELEM_INT, N) : NULL;
    RUN(b->attention_backward(dqkv, delta, dout, out, rest, lse, qkv, starts, ends, B, T, C, NH))
}

OP_CASE(attention_forward) { attention_forward_of(c, ALL_TOKENS); }
OP_CASE(attention_backward) { attention_backward_of(c, ALL_TOKENS); }
OP_CASE(exact_attention_forward) { attention_forward_of(c, EXACT); }
OP_CASE(exact_attention_backward) { attention_backward_of(c, EXACT); }
OP_CASE(document_attention_forward) { attention_forward_of(c, WITHIN_DOCUMENTS); }
OP_CASE(document_attention_backward) { attention_backward_of(c, WITHIN_DOCUMENTS); }

OP_CASE(document_bounds) {
    SIZES;
    FLOPS(1.0 * N);
    I(WRITE, starts, N);
    I(WRITE, ends, N);
    I(READ, text, N);
    RUN(b->document_bounds(starts, ends, text, 0, B, T))
}

OP_CASE(attention_cached) {
    SIZES;
    FLOPS(4.0 * C * (scores + (double)N * s->past));
    S(WRITE, out, N * C);
    F(SCRATCH, lse, N * NH);
    TOUCHES(s->past ? 0 : N * NH); // only a prompt uses it
    S(ADD, cache, (size_t)B * s->capacity * 2 * C);
    TOUCHES((size_t)B * (s->past + T) * C); // ADD counts it twice; the past is only read, T rows are only written
    S(READ, qkv, N * 3 * C);
    RUN(b->attention_cached(out, lse, cache, qkv, B, T, s->past, s->capacity, C, NH))
}

OP_CASE(classifier_loss) {
    SIZES;
    FLOPS(2.0 * N * C * V);
    F(WRITE, losses, N);
    S(SCRATCH, logits, (size_t)chunk * Vp);
    S(READ, inp, N * C);
    S(READ, weight, (size_t)Vp * C);
    I(READ, targets, N);
    RUN(b->classifier_loss(losses, logits, inp, weight, targets, chunk, (int)N, C, V, Vp))
}

static void classifier_backward_in(OpCase* c, GradMode mode) {
    SIZES;
    FLOPS(6.0 * N * C * V);
    F(WRITE, losses, N);
    S(WRITE, dinp, N * C);
    GRADIENT(dweight, (size_t)Vp * C);
    S(SCRATCH, logits, (size_t)chunk * Vp);
    S(READ, inp, N * C);
    S(READ, weight, (size_t)Vp * C);
    I(READ, targets, N);
    RUN(b->classifier_backward(losses, dinp, dweight, logits, inp, weight, targets, c->dloss, mode, chunk, (int)N, C, V,
                               Vp))
}

OP_CASE(classifier_backward) { classifier_backward_in(c, GRADS_ADD); }
OP_CASE(first_classifier_backward) { classifier_backward_in(c, GRADS_SET); }

OP_CASE(classifier_logits) {
    SIZES;
    FLOPS(2.0 * N * C * V);
    F(WRITE, out, N * V);
    S(SCRATCH, logits, (size_t)chunk * Vp);
    S(READ, inp, N * C);
    S(READ, weight, (size_t)Vp * C);
    RUN(b->classifier_logits(out, logits, inp, weight, chunk, (int)N, C, V, Vp))
}

OP_CASE(loss_add) {
    SIZES;
    FLOPS(1.0 * N);
    D(ADD, total, 1);
    F(READ, losses, N);
    RUN(b->loss_add(total, losses, (int)N))
}

OP_CASE(norm_squared) {
    SIZES;
    FLOPS(2.0 * N * C);
    D(ADD, out, 1);
    F(READ, x, N * C);
    RUN(b->norm_squared(out, x, N * C))
}

OP_CASE(adamw_update) {
    SIZES;
    const size_t height = (size_t)OC, width = (size_t)C;
    const Tensor list[] = {
        {.name = "matrix", .unit = 1, .repeat = ONCE, .rows = height, .cols = width, .used_rows = height},
        {.name = "vector", .unit = 1, .repeat = EACH, .rows = 1, .cols = width, .used_rows = 1}};
    const TensorTable table = tensors_layout(list, 2, 2);
    const size_t n = table.size, begin = n / 5, end = n - n / 7; // a range that cuts tensors
    FLOPS(17.0 * (double)(end - begin));
    F(ADD, masters, n);
    TOUCHES(end - begin);
    S(WRITE, params, n);
    TOUCHES(end - begin);
    F(ADD, m, n);
    TOUCHES(end - begin);
    F(ADD, v, n);
    TOUCHES(end - begin);
    F(READ, grads, n);
    TOUCHES(end - begin);
    D(READ, norm, 1);
    PREPARE(b->device_copy_in(c->device_hyper, &c->hyper, sizeof c->hyper);
            b->params_round(params, masters, n, 0, (Rounding){0})) // outside the range, params stay these
    RUN(b->adamw_update(stored_at(b, params, begin), masters + begin, m + begin, v + begin, grads + begin, norm,
                        &c->device_hyper->adamw, &table, begin, end))
}

// Two matrices of the shape of a linear layer, and one transposed.
OP_CASE(muon_update) {
    SIZES;
    enum { COUNT = 2 };
    const size_t n = (size_t)OC * C, all = (COUNT + 1) * n;
    const double least = fmin(OC, C), most = fmax(OC, C), steps = MUON_STEPS;
    const size_t scratch_bytes = max_size(b->muon_bytes(COUNT, OC, C), b->muon_bytes(1, C, OC));
    FLOPS((COUNT + 1) * (steps * 2 * (2 * least * least * most + least * least * least) + 20.0 * (double)n));
    F(ADD, masters, all);
    S(WRITE, params, all);
    F(ADD, m, all);
    F(READ, grads, all);
    D(READ, norm, 1);
    F(SCRATCH, scratch, ceil_div(scratch_bytes, sizeof(float)));
    MuonMatrix list[COUNT + 1];
    for (size_t i = 0; i < COUNT + 1 && masters; i++) {
        list[i] = (MuonMatrix){stored_at(b, params, i * n), masters + i * n, m + i * n, grads + i * n, i * n};
    }
    PREPARE(b->device_copy_in(c->device_hyper, &c->hyper, sizeof c->hyper))
    RUN(b->muon_update(list, COUNT, OC, C, norm, &c->device_hyper->muon, scratch);
        b->muon_update(list + COUNT, 1, C, OC, norm, &c->device_hyper->muon, scratch))
}

// ---------------------------------------------------------------------------------------------------------------------
// lookup

typedef struct {
    const char* name;
    void (*function)(OpCase* c);
    const char* backward; // the operation that computes its gradients, or NULL
} OpEntry;

#define OP_ENTRY(op, backward) {#op, op_case_##op, backward}
static const OpEntry OPS[] = {
    OP_ENTRY(encoder_forward, "encoder_backward"),
    OP_ENTRY(encoder_backward, NULL),
    OP_ENTRY(layernorm_forward, "layernorm_backward"),
    OP_ENTRY(layernorm_backward, NULL),
    OP_ENTRY(residual_layernorm_forward, NULL),
    OP_ENTRY(matmul_forward, "matmul_backward"),
    OP_ENTRY(matmul_backward, NULL),
    OP_ENTRY(first_matmul_backward, NULL),
    OP_ENTRY(matmul_gelu_forward, NULL),
    OP_ENTRY(gelu_matmul_forward, "matmul_gelu_backward"),
    OP_ENTRY(matmul_gelu_backward, NULL),
    OP_ENTRY(first_matmul_gelu_backward, NULL),
    OP_ENTRY(gelu_forward, NULL),
    OP_ENTRY(attention_forward, "attention_backward"),
    OP_ENTRY(attention_backward, NULL),
    OP_ENTRY(exact_attention_forward, "exact_attention_backward"),
    OP_ENTRY(exact_attention_backward, NULL),
    OP_ENTRY(document_attention_forward, "document_attention_backward"),
    OP_ENTRY(document_attention_backward, NULL),
    OP_ENTRY(document_bounds, NULL),
    OP_ENTRY(attention_cached, NULL),
    OP_ENTRY(classifier_loss, "classifier_backward"),
    OP_ENTRY(classifier_backward, NULL),
    OP_ENTRY(first_classifier_backward, NULL),
    OP_ENTRY(classifier_logits, NULL),
    OP_ENTRY(loss_add, NULL),
    OP_ENTRY(norm_squared, NULL),
    OP_ENTRY(adamw_update, NULL),
    OP_ENTRY(muon_update, NULL),
};
enum { NUM_OPS = sizeof OPS / sizeof *OPS };

const char* op_name(int op) { return op < NUM_OPS ? OPS[op].name : NULL; }

int op_number(const char* name) {
    for (int op = 0; op < NUM_OPS; op++) {
        if (!strcmp(OPS[op].name, name)) { return op; }
    }
    fatal("no operation %s in check/op_cases.c", name);
}

int op_backward(int op) { return OPS[op].backward ? op_number(OPS[op].backward) : -1; }

OpCase op_declare(const Backend* b, int op, const OpSizes* sizes) {
    const AdamW adamw = {.lr = {1e-2f, 2e-2f, 3e-2f}, .weight_decay = {0.1f, 0.2f, 0.05f}, .beta1 = 0.9f,
                         .beta2 = 0.95f, .eps = 1e-8f, .grad_clip = 1.0f, .grad_scale = 0.25, .step = 3,
                         .cautious = true};
    // A rate so large that the update is about as large as the weights. So little decay that an element may or may not
    // decay: where the update is almost 0, rounding decides its sign. In fp32 the tensor's error still shows the decay.
    const Muon muon = {.lr = 4.0f, .momentum = 0.9f, .weight_decay = 8e-6f, .cautious = true, .grad_scale = 0.25};
    OpCase c = {.backend = b, .op = op, .size = *sizes, .dloss = 0.37f, .hyper = {adamw, muon}};
    OPS[op].function(&c);
    return c;
}

void op_stage(OpCase* c, CaseStage stage) {
    c->stage = stage;
    c->next = 0;
    OPS[c->op].function(c);
}

static size_t elem_bytes(const Backend* b, Elem elem) {
    return elem == ELEM_STORED     ? b->element_bytes
           : elem == ELEM_RESIDUAL ? b->residual_bytes
           : elem == ELEM_FLOAT    ? sizeof(float)
           : elem == ELEM_INT      ? sizeof(int)
                                   : sizeof(double);
}

size_t op_bytes(const OpCase* c, const OpTensor* t) { return t->n * elem_bytes(c->backend, t->elem); }

OpCost op_cost(const Backend* b, int op, const OpSizes* sizes) {
    const OpCase c = op_declare(b, op, sizes);
    OpCost cost = {.flops = c.flops};
    for (int i = 0; i < c.count; i++) {
        const OpTensor* t = &c.tensor[i];
        const double bytes = (double)op_bytes(&c, t) * ((double)c.touched[i] / (double)t->n);
        if (t->role == ROLE_READ || t->role == ROLE_ADD) { cost.read += bytes; }
        if (t->role == ROLE_WRITE || t->role == ROLE_ADD) { cost.written += bytes; }
        if (t->role != ROLE_SCRATCH) { cost.items = fmax(cost.items, (double)c.touched[i]); }
    }
    return cost;
}
