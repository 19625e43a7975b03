// Every operation of ops.h once: its tensors by name, what it does with each, and the call. The one list behind the
// checks of gradients (test_cpu.c), of one device against another (`check`) and of speed (`bench ops`).
//
// A case is one function that runs several times: first to declare its tensors and its work, then, with memory behind
// them, to prepare and to make the call. Gradients are found by name: a backward operation's `dinp` is the gradient of
// its forward operation's `inp`.
#pragma once
#include "gpt2.h"
#include "harness.h"

typedef enum { CASE_DECLARE, CASE_PREPARE, CASE_CALL } CaseStage;

typedef struct {
    OpSizes size;
    float dloss;
    AdamW hyper, *device_hyper;
    OpTensor tensor[MAX_OP_TENSORS];
    size_t touched[MAX_OP_TENSORS]; // elements of each tensor that the operation needs
    double flops;                   // operations it needs
    int count, next;
    CaseStage stage;
} OpCase;

typedef struct {
    const char* name;
    void (*function)(OpCase* c);
    const char* backward; // the operation that computes its gradients, or NULL
} OpEntry;

static inline size_t op_bytes(const OpTensor* t) {
    const size_t size = t->elem == ELEM_FLOATX  ? sizeof(floatX)
                        : t->elem == ELEM_FLOAT ? sizeof(float)
                        : t->elem == ELEM_INT   ? sizeof(int)
                                                : sizeof(double);
    return t->n * size;
}

static inline void* op_tensor(OpCase* c, const char* name, Role role, Elem elem, size_t n) {
    if (c->stage != CASE_DECLARE) { return c->tensor[c->next++].data; }
    const OpTensor t = {name, role, elem, n, NULL};
    c->touched[c->count] = n;
    c->tensor[c->count++] = t;
    return NULL;
}

// What the operation cannot do without. Bytes are those that have to move between memory and processor, if caches held
// nothing before and everything during the operation: inputs and outputs once, sums in both directions, scratch never.
static inline OpCost op_cost(const OpCase* c) {
    OpCost cost = {c->flops, 0, 0, 0};
    for (int i = 0; i < c->count; i++) {
        const OpTensor* t = &c->tensor[i];
        const double bytes = (double)op_bytes(t) * ((double)c->touched[i] / (double)t->n);
        if (t->role == ROLE_READ || t->role == ROLE_ADD) { cost.read += bytes; }
        if (t->role == ROLE_WRITE || t->role == ROLE_ADD) { cost.written += bytes; }
        if (t->role != ROLE_SCRATCH) { cost.items = fmax(cost.items, (double)c->touched[i]); }
    }
    return cost;
}

#define X(role, name, n) floatX* name = (floatX*)op_tensor(c, #name, ROLE_##role, ELEM_FLOATX, n)
#define F(role, name, n) float* name = (float*)op_tensor(c, #name, ROLE_##role, ELEM_FLOAT, n)
#define I(role, name, n) int* name = (int*)op_tensor(c, #name, ROLE_##role, ELEM_INT, n)
#define D(role, name, n) double* name = (double*)op_tensor(c, #name, ROLE_##role, ELEM_DOUBLE, n)
#define OP_CASE(op) static inline void op_case_##op(OpCase* c)
#define SIZES                                                                                                      \
    const OpSizes* s = &c->size;                                                                                   \
    const int B = s->B, T = s->T, C = s->C, NH = s->NH, OC = s->OC, V = s->V, Vp = s->Vp;                          \
    const size_t N = (size_t)B * T, rows = min_size(N, (size_t)V); /* of an embedding that N tokens need */        \
    const double scores = 0.5 * B * T * (T + 1.0); /* of one head's causal attention */                            \
    const int chunk = s->chunk ? s->chunk : (int)min_size(N, (size_t)classifier_chunk(C));                         \
    (void)B, (void)T, (void)C, (void)NH, (void)OC, (void)V, (void)Vp, (void)N, (void)chunk, (void)rows, (void)scores
#define PREPARE(call) if (c->stage == CASE_PREPARE) { call; }
#define RUN(call) if (c->stage == CASE_CALL) { call; }
// The operation needs `n` elements of the tensor declared last, not all.
#define TOUCHES(n) if (c->stage == CASE_DECLARE) { c->touched[c->count - 1] = (n); }
// What the operation computes: a multiply-add is two; a division, a root, exp and tanh are one. Where there are matrix
// products only those count; of causal attention, those of the scores that are not masked.
#define FLOPS(formula) c->flops = (formula)

OP_CASE(encoder_forward) {
    SIZES;
    FLOPS(1.0 * N * C);
    F(WRITE, out, N * C);
    I(READ, tokens, N);
    X(READ, wte, (size_t)V * C);
    TOUCHES(rows * C);
    X(READ, wpe, (size_t)T * C);
    RUN(encoder_forward(out, tokens, wte, wpe, B, T, C))
}
OP_CASE(encoder_backward) {
    SIZES;
    FLOPS(2.0 * N * C);
    F(ADD, dwte, (size_t)V * C);
    TOUCHES(rows * C);
    F(ADD, dwpe, (size_t)T * C);
    F(READ, dout, N * C);
    I(READ, tokens, N);
    I(READ, order, N);
    RUN(encoder_backward(dwte, dwpe, dout, tokens, order, B, T, C))
}
OP_CASE(layernorm_forward) {
    SIZES;
    FLOPS(8.0 * N * C);
    X(WRITE, out, N * C);
    F(WRITE, mean, N);
    F(WRITE, rstd, N);
    F(READ, inp, N * C);
    X(READ, weight, C);
    X(READ, bias, C);
    RUN(layernorm_forward(out, mean, rstd, inp, weight, bias, (int)N, C))
}
OP_CASE(layernorm_backward) {
    SIZES;
    FLOPS(14.0 * N * C);
    F(ADD, dinp, N * C);
    X(WRITE, dinp_x, N * C);
    F(ADD, dweight, C);
    F(ADD, dbias, C);
    X(READ, dout, N * C);
    F(READ, inp, N * C);
    X(READ, weight, C);
    F(READ, mean, N);
    F(READ, rstd, N);
    RUN(layernorm_backward(dinp, dinp_x, dweight, dbias, dout, inp, weight, mean, rstd, (int)N, C))
}
OP_CASE(residual_layernorm_forward) {
    SIZES;
    FLOPS(9.0 * N * C);
    F(WRITE, residual, N * C);
    X(WRITE, out, N * C);
    F(WRITE, mean, N);
    F(WRITE, rstd, N);
    F(READ, inp1, N * C);
    X(READ, inp2, N * C);
    X(READ, weight, C);
    X(READ, bias, C);
    RUN(residual_layernorm_forward(residual, out, mean, rstd, inp1, inp2, weight, bias, (int)N, C))
}
OP_CASE(matmul_forward) {
    SIZES;
    FLOPS(2.0 * N * C * OC);
    X(WRITE, out, N * OC);
    X(READ, inp, N * C);
    X(READ, weight, (size_t)OC * C);
    X(READ, bias, OC);
    RUN(matmul_forward(out, inp, weight, bias, (int)N, C, OC))
}
OP_CASE(matmul_backward) {
    SIZES;
    FLOPS(4.0 * N * C * OC);
    X(WRITE, dinp, N * C);
    F(ADD, dweight, (size_t)OC * C);
    F(ADD, dbias, OC);
    X(READ, dout, N * OC);
    X(READ, inp, N * C);
    X(READ, weight, (size_t)OC * C);
    RUN(matmul_backward(dinp, dweight, dbias, dout, inp, weight, (int)N, C, OC))
}
OP_CASE(matmul_gelu_forward) {
    SIZES;
    FLOPS(2.0 * N * C * OC);
    X(WRITE, out, N * OC);
    X(WRITE, pre, N * OC);
    X(READ, inp, N * C);
    X(READ, weight, (size_t)OC * C);
    X(READ, bias, OC);
    RUN(matmul_gelu_forward(out, pre, inp, weight, bias, (int)N, C, OC))
}
// gelu, then a linear layer: the forward operation that matmul_gelu_backward is the gradient of
OP_CASE(gelu_matmul_forward) {
    SIZES;
    FLOPS(2.0 * N * C * OC);
    X(WRITE, out, N * OC);
    X(WRITE, inp, N * C);
    X(READ, pre, N * C);
    X(READ, weight, (size_t)OC * C);
    X(READ, bias, OC);
    RUN(gelu_forward(inp, pre, N * C); matmul_forward(out, inp, weight, bias, (int)N, C, OC))
}
OP_CASE(matmul_gelu_backward) {
    SIZES;
    FLOPS(4.0 * N * C * OC);
    X(WRITE, dpre, N * C);
    F(ADD, dweight, (size_t)OC * C);
    F(ADD, dbias, OC);
    X(READ, dout, N * OC);
    X(READ, inp, N * C);
    X(READ, pre, N * C);
    X(READ, weight, (size_t)OC * C);
    RUN(matmul_gelu_backward(dpre, dweight, dbias, dout, inp, pre, weight, (int)N, C, OC))
}
OP_CASE(gelu_forward) {
    SIZES;
    FLOPS(9.0 * N * C);
    X(WRITE, out, N * C);
    X(READ, inp, N * C);
    RUN(gelu_forward(out, inp, N * C))
}
OP_CASE(attention_forward) {
    SIZES;
    FLOPS(4.0 * C * scores);
    X(WRITE, out, N * C);
    F(WRITE, lse, N * NH);
    X(READ, qkv, N * 3 * C);
    RUN(attention_forward(out, lse, qkv, B, T, C, NH))
}
OP_CASE(attention_backward) {
    SIZES;
    FLOPS(10.0 * C * scores);
    X(WRITE, dqkv, N * 3 * C);
    F(SCRATCH, delta, N * NH);
    X(READ, dout, N * C);
    X(READ, out, N * C);
    F(READ, lse, N * NH);
    X(READ, qkv, N * 3 * C);
    RUN(attention_backward(dqkv, delta, dout, out, lse, qkv, B, T, C, NH))
}
OP_CASE(attention_cached) {
    SIZES;
    FLOPS(4.0 * C * (scores + (double)N * s->past));
    X(WRITE, out, N * C);
    X(ADD, cache, (size_t)B * s->capacity * 2 * C);
    TOUCHES((size_t)B * (s->past + T) * C); // earlier positions are read and new ones written: each half of ADD
    X(READ, qkv, N * 3 * C);
    RUN(attention_cached(out, cache, qkv, B, T, s->past, s->capacity, C, NH))
}
OP_CASE(classifier_loss) {
    SIZES;
    FLOPS(2.0 * N * C * V);
    F(WRITE, losses, N);
    X(SCRATCH, logits, (size_t)chunk * Vp);
    X(READ, inp, N * C);
    X(READ, weight, (size_t)Vp * C);
    I(READ, targets, N);
    RUN(classifier_loss(losses, logits, inp, weight, targets, chunk, (int)N, C, V, Vp))
}
OP_CASE(classifier_backward) {
    SIZES;
    FLOPS(6.0 * N * C * V);
    F(WRITE, losses, N);
    X(WRITE, dinp, N * C);
    F(ADD, dweight, (size_t)Vp * C);
    X(SCRATCH, logits, (size_t)chunk * Vp);
    X(READ, inp, N * C);
    X(READ, weight, (size_t)Vp * C);
    I(READ, targets, N);
    RUN(classifier_backward(losses, dinp, dweight, logits, inp, weight, targets, c->dloss, chunk, (int)N, C, V, Vp))
}
OP_CASE(classifier_logits) {
    SIZES;
    FLOPS(2.0 * N * C * V);
    F(WRITE, out, N * V);
    X(SCRATCH, logits, (size_t)chunk * Vp);
    X(READ, inp, N * C);
    X(READ, weight, (size_t)Vp * C);
    RUN(classifier_logits(out, logits, inp, weight, chunk, (int)N, C, V, Vp))
}
OP_CASE(loss_add) {
    SIZES;
    FLOPS(1.0 * N);
    D(ADD, total, 1);
    F(READ, losses, N);
    RUN(loss_add(total, losses, (int)N))
}
OP_CASE(norm_squared) {
    SIZES;
    FLOPS(2.0 * N * C);
    D(ADD, out, 1);
    F(READ, x, N * C);
    RUN(norm_squared(out, x, N * C))
}
OP_CASE(adamw_update) {
    SIZES;
    const Tensor list[] = {{"matrix", 1, ONCE, (size_t)OC, (size_t)C, (size_t)OC, INIT_ZERO, AS_IS, NULL, 0, 0, 0},
                           {"vector", 1, EACH, 1, (size_t)C, 1, INIT_ZERO, AS_IS, NULL, 0, 0, 0}};
    const TensorTable table = tensors_layout(list, 2, 2);
    const size_t n = table.size, begin = n / 5, end = n - n / 7; // a range that cuts tensors
    FLOPS(17.0 * (double)(end - begin));
    F(ADD, masters, n);
    TOUCHES(end - begin);
    X(WRITE, params, n);
    TOUCHES(end - begin);
    F(ADD, m, n);
    TOUCHES(end - begin);
    F(ADD, v, n);
    TOUCHES(end - begin);
    F(READ, grads, n);
    TOUCHES(end - begin);
    D(READ, norm, 1);
    PREPARE(device_copy_in(c->device_hyper, &c->hyper, sizeof c->hyper);
            params_round(params, masters, n)) // outside the range params stay what they are
    RUN(adamw_update(params + begin, masters + begin, m + begin, v + begin, grads + begin, norm, c->device_hyper,
                     &table, begin, end))
}

#define OP_ENTRY(op, backward) {#op, op_case_##op, backward}
static const OpEntry OPS[] = {
    OP_ENTRY(encoder_forward, "encoder_backward"),
    OP_ENTRY(encoder_backward, NULL),
    OP_ENTRY(layernorm_forward, "layernorm_backward"),
    OP_ENTRY(layernorm_backward, NULL),
    OP_ENTRY(residual_layernorm_forward, NULL),
    OP_ENTRY(matmul_forward, "matmul_backward"),
    OP_ENTRY(matmul_backward, NULL),
    OP_ENTRY(matmul_gelu_forward, NULL),
    OP_ENTRY(gelu_matmul_forward, "matmul_gelu_backward"),
    OP_ENTRY(matmul_gelu_backward, NULL),
    OP_ENTRY(gelu_forward, NULL),
    OP_ENTRY(attention_forward, "attention_backward"),
    OP_ENTRY(attention_backward, NULL),
    OP_ENTRY(attention_cached, NULL),
    OP_ENTRY(classifier_loss, "classifier_backward"),
    OP_ENTRY(classifier_backward, NULL),
    OP_ENTRY(classifier_logits, NULL),
    OP_ENTRY(loss_add, NULL),
    OP_ENTRY(norm_squared, NULL),
    OP_ENTRY(adamw_update, NULL),
};
enum { NUM_OPS = sizeof OPS / sizeof *OPS };
#undef X
#undef F
#undef I
#undef D
#undef OP_CASE
#undef SIZES
#undef PREPARE
#undef RUN
#undef TOUCHES
#undef FLOPS
#undef OP_ENTRY

static inline const OpEntry* op_find(const char* name) {
    for (int i = 0; i < NUM_OPS; i++) {
        if (!strcmp(OPS[i].name, name)) { return &OPS[i]; }
    }
    fatal("no operation %s in op_cases.h", name);
}

static inline OpTensor* op_find_tensor(OpCase* c, const char* name) {
    for (int i = 0; i < c->count; i++) {
        if (!strcmp(c->tensor[i].name, name)) { return &c->tensor[i]; }
    }
    return NULL;
}

// ---------------------------------------------------------------------------------------------------------------------
// values, as doubles on the host

// The tensor becomes `values`; NaN if that is NULL.
static inline void op_put(const OpTensor* t, const double* values) {
    void* host = alloc_or_die(op_bytes(t), 1, t->name);
    for (size_t i = 0; i < t->n; i++) {
        const double x = values ? values[i] : (double)NAN;
        switch (t->elem) {
        case ELEM_FLOATX: ((floatX*)host)[i] = to_floatX((float)x); break;
        case ELEM_FLOAT: ((float*)host)[i] = (float)x; break;
        case ELEM_DOUBLE: ((double*)host)[i] = x; break;
        case ELEM_INT: ((int*)host)[i] = (int)x; break;
        }
    }
    device_copy_in(t->data, host, op_bytes(t));
    free(host);
}

static inline void op_get(const OpTensor* t, double* values) {
    void* host = alloc_or_die(op_bytes(t), 1, t->name);
    device_copy_out(host, t->data, op_bytes(t));
    for (size_t i = 0; i < t->n; i++) {
        switch (t->elem) {
        case ELEM_FLOATX: values[i] = to_float(((floatX*)host)[i]); break;
        case ELEM_FLOAT: values[i] = ((float*)host)[i]; break;
        case ELEM_DOUBLE: values[i] = ((double*)host)[i]; break;
        case ELEM_INT: values[i] = ((int*)host)[i]; break;
        }
    }
    free(host);
}

// What a tensor holds; the caller frees it.
static inline double* op_values(const OpTensor* t) {
    double* values = (double*)alloc_or_die(t->n, sizeof *values, t->name);
    op_get(t, values);
    return values;
}

// ---------------------------------------------------------------------------------------------------------------------
// running a case

// The tensors of an operation, without memory.
static inline OpCase op_declare(const OpEntry* op, const OpSizes* sizes) {
    OpCase c;
    const AdamW hyper = {1e-2f, 0.9f, 0.95f, 1e-8f, 0.1f, 1.0f, 3, 0};
    memset(&c, 0, sizeof c);
    c.size = *sizes;
    c.dloss = 0.37f;
    c.hyper = hyper;
    op->function(&c);
    return c;
}

static inline void op_alloc(OpCase* c) {
    c->device_hyper = (AdamW*)device_alloc(sizeof c->hyper, "hyper");
    for (int i = 0; i < c->count; i++) { c->tensor[i].data = device_alloc(op_bytes(&c->tensor[i]), c->tensor[i].name); }
}

// A case that is ready to run, filled as op_fill says.
static inline OpCase op_open(const OpEntry* op, const OpSizes* sizes, uint64_t seed) {
    OpCase c = op_declare(op, sizes);
    double* values[MAX_OP_TENSORS] = {NULL};
    op_alloc(&c);
    for (int i = 0; i < c.count; i++) {
        values[i] = (double*)alloc_or_die(c.tensor[i].n, sizeof *values[i], c.tensor[i].name);
    }
    op_fill(values, c.tensor, c.count, sizes, seed);
    for (int i = 0; i < c.count; i++) {
        op_put(&c.tensor[i], values[i]);
        free(values[i]);
    }
    params_changed(); // weights of an earlier case may have stood at the same address
    return c;
}

static inline void op_stage(OpCase* c, const OpEntry* op, CaseStage stage) {
    c->stage = stage;
    c->next = 0;
    op->function(c);
}

static inline void op_run(OpCase* c, const OpEntry* op) {
    op_stage(c, op, CASE_PREPARE);
    op_stage(c, op, CASE_CALL);
    device_sync();
}

static inline void op_close(OpCase* c) {
    for (int i = 0; i < c->count; i++) { device_free(c->tensor[i].data, op_bytes(&c->tensor[i])); }
    device_free(c->device_hyper, sizeof c->hyper);
    c->count = 0;
}
