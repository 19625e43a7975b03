// Every operation of llmc/ops.h once: its tensors by name, what it does with each, and the call. The one list behind the
// checks of gradients (test_cpu.c), of one device against another, and the timings.
//
// A case is one function that runs twice: first to declare its tensors, then, with memory behind them, to make the call.
// Gradients are found by name: a backward operation's `dinp` is the gradient of its forward operation's `inp`.
#pragma once
#include "../llmc/gpt2.h"
#include "../llmc/rng.h"

typedef enum { ROLE_READ, ROLE_WRITE, ROLE_ADD, ROLE_SCRATCH } Role;
typedef enum { ELEM_FLOATX, ELEM_FLOAT, ELEM_INT, ELEM_DOUBLE } Elem;

typedef struct {
    const char* name;
    Role role;
    Elem elem;
    size_t n;
    void* data; // device memory
} OpTensor;

enum { MAX_OP_TENSORS = 16 };
typedef struct {
    int B, T, C, NH, OC, V, Vp, past, capacity; // sizes
    float dloss;
    AdamW hyper;
    OpTensor tensor[MAX_OP_TENSORS];
    int count, next;
    bool run;
} OpCase;

typedef void (*OpFunction)(OpCase*);
typedef struct {
    const char* name;
    OpFunction function;
    const char* backward; // the operation that computes its gradients, or NULL
} OpEntry;

static inline size_t op_elem_size(Elem e) {
    return e == ELEM_FLOATX ? sizeof(floatX) : e == ELEM_FLOAT ? sizeof(float) : e == ELEM_INT ? sizeof(int) : sizeof(double);
}

static inline void* op_tensor(OpCase* c, const char* name, Role role, Elem elem, size_t n) {
    if (c->run) { return c->tensor[c->next++].data; }
    OpTensor t = {name, role, elem, n, device_alloc(n * op_elem_size(elem), name)};
    c->tensor[c->count++] = t;
    return NULL;
}

#define X(role, name, n) floatX* name = (floatX*)op_tensor(c, #name, ROLE_##role, ELEM_FLOATX, n)
#define F(role, name, n) float* name = (float*)op_tensor(c, #name, ROLE_##role, ELEM_FLOAT, n)
#define I(role, name, n) int* name = (int*)op_tensor(c, #name, ROLE_##role, ELEM_INT, n)
#define D(role, name, n) double* name = (double*)op_tensor(c, #name, ROLE_##role, ELEM_DOUBLE, n)
#define OP_CASE(op) static void op_case_##op(OpCase* c)
#define SIZES                                                                                                              \
    const int B = c->B, T = c->T, C = c->C, NH = c->NH, OC = c->OC, V = c->V, Vp = c->Vp;                                  \
    const size_t N = (size_t)B * T;                                                                                        \
    (void)B, (void)T, (void)C, (void)NH, (void)OC, (void)V, (void)Vp, (void)N
#define RUN(call) if (c->run) { call; }

OP_CASE(encoder_forward) {
    SIZES;
    F(WRITE, out, N * C); I(READ, tokens, N); X(READ, wte, V * C); X(READ, wpe, T * C);
    RUN(encoder_forward(out, tokens, wte, wpe, B, T, C))
}
OP_CASE(encoder_backward) {
    SIZES;
    F(ADD, dwte, V * C); F(ADD, dwpe, T * C); F(READ, dout, N * C); I(READ, tokens, N); I(READ, order, N);
    RUN(encoder_backward(dwte, dwpe, dout, tokens, order, B, T, C))
}
OP_CASE(layernorm_forward) {
    SIZES;
    X(WRITE, out, N * C); F(WRITE, mean, N); F(WRITE, rstd, N); F(READ, inp, N * C); X(READ, weight, C); X(READ, bias, C);
    RUN(layernorm_forward(out, mean, rstd, inp, weight, bias, (int)N, C))
}
OP_CASE(layernorm_backward) {
    SIZES;
    F(ADD, dinp, N * C); X(WRITE, dinp_x, N * C); F(ADD, dweight, C); F(ADD, dbias, C);
    X(READ, dout, N * C); F(READ, inp, N * C); X(READ, weight, C); F(READ, mean, N); F(READ, rstd, N);
    RUN(layernorm_backward(dinp, dinp_x, dweight, dbias, dout, inp, weight, mean, rstd, (int)N, C))
}
OP_CASE(residual_layernorm_forward) {
    SIZES;
    F(WRITE, residual, N * C); X(WRITE, out, N * C); F(WRITE, mean, N); F(WRITE, rstd, N);
    F(READ, inp1, N * C); X(READ, inp2, N * C); X(READ, weight, C); X(READ, bias, C);
    RUN(residual_layernorm_forward(residual, out, mean, rstd, inp1, inp2, weight, bias, (int)N, C))
}
OP_CASE(matmul_forward) {
    SIZES;
    X(WRITE, out, N * OC); X(READ, inp, N * C); X(READ, weight, (size_t)OC * C); X(READ, bias, OC);
    RUN(matmul_forward(out, inp, weight, bias, (int)N, C, OC))
}
OP_CASE(matmul_backward) {
    SIZES;
    X(WRITE, dinp, N * C); F(ADD, dweight, (size_t)OC * C); F(ADD, dbias, OC);
    X(READ, dout, N * OC); X(READ, inp, N * C); X(READ, weight, (size_t)OC * C);
    RUN(matmul_backward(dinp, dweight, dbias, dout, inp, weight, (int)N, C, OC))
}
OP_CASE(matmul_gelu_forward) {
    SIZES;
    X(WRITE, out, N * OC); X(WRITE, pre, N * OC); X(READ, inp, N * C); X(READ, weight, (size_t)OC * C); X(READ, bias, OC);
    RUN(matmul_gelu_forward(out, pre, inp, weight, bias, (int)N, C, OC))
}
// gelu, then a linear layer: the forward operation that matmul_gelu_backward is the gradient of
OP_CASE(gelu_matmul_forward) {
    SIZES;
    X(WRITE, out, N * OC); X(WRITE, inp, N * C); X(READ, pre, N * C); X(READ, weight, (size_t)OC * C); X(READ, bias, OC);
    RUN(gelu_forward(inp, pre, N * C); matmul_forward(out, inp, weight, bias, (int)N, C, OC))
}
OP_CASE(matmul_gelu_backward) {
    SIZES;
    X(WRITE, dpre, N * C); F(ADD, dweight, (size_t)OC * C); F(ADD, dbias, OC);
    X(READ, dout, N * OC); X(READ, inp, N * C); X(READ, pre, N * C); X(READ, weight, (size_t)OC * C);
    RUN(matmul_gelu_backward(dpre, dweight, dbias, dout, inp, pre, weight, (int)N, C, OC))
}
OP_CASE(gelu_forward) {
    SIZES;
    X(WRITE, out, N * C); X(READ, inp, N * C);
    RUN(gelu_forward(out, inp, N * C))
}
OP_CASE(attention_forward) {
    SIZES;
    X(WRITE, out, N * C); F(WRITE, lse, N * NH); X(READ, qkv, N * 3 * C);
    RUN(attention_forward(out, lse, qkv, B, T, C, NH))
}
OP_CASE(attention_backward) {
    SIZES;
    X(WRITE, dqkv, N * 3 * C); F(SCRATCH, delta, N * NH); X(READ, dout, N * C); X(READ, out, N * C); F(READ, lse, N * NH); X(READ, qkv, N * 3 * C);
    RUN(attention_backward(dqkv, delta, dout, out, lse, qkv, B, T, C, NH))
}
OP_CASE(attention_cached) {
    SIZES;
    X(WRITE, out, N * C); X(ADD, cache, (size_t)B * c->capacity * 2 * C); X(READ, qkv, N * 3 * C);
    RUN(attention_cached(out, cache, qkv, B, T, c->past, c->capacity, C, NH))
}
enum { OP_CHUNK = 7 }; // rows of logits at a time: does not divide N
OP_CASE(classifier_loss) {
    SIZES;
    F(WRITE, losses, N); X(WRITE, logits, (size_t)OP_CHUNK * Vp); X(READ, inp, N * C); X(READ, weight, (size_t)Vp * C);
    I(READ, targets, N);
    RUN(classifier_loss(losses, logits, inp, weight, targets, OP_CHUNK, (int)N, C, V, Vp))
}
OP_CASE(classifier_backward) {
    SIZES;
    F(WRITE, losses, N); X(WRITE, dinp, N * C); F(ADD, dweight, (size_t)Vp * C); X(WRITE, logits, (size_t)OP_CHUNK * Vp);
    X(READ, inp, N * C); X(READ, weight, (size_t)Vp * C); I(READ, targets, N);
    RUN(classifier_backward(losses, dinp, dweight, logits, inp, weight, targets, c->dloss, OP_CHUNK, (int)N, C, V, Vp))
}
OP_CASE(classifier_logits) {
    SIZES;
    F(WRITE, out, N * V); X(WRITE, logits, (size_t)OP_CHUNK * Vp); X(READ, inp, N * C); X(READ, weight, (size_t)Vp * C);
    RUN(classifier_logits(out, logits, inp, weight, OP_CHUNK, (int)N, C, V, Vp))
}
OP_CASE(loss_add) {
    SIZES;
    D(ADD, total, 1); F(READ, losses, N);
    RUN(loss_add(total, losses, (int)N))
}
OP_CASE(norm_squared) {
    SIZES;
    D(WRITE, out, 1); F(READ, x, N * C);
    RUN(norm_squared(out, x, N * C))
}
OP_CASE(adamw_update) {
    SIZES;
    const Tensor rows[] = {{"matrix", 1, ONCE, (size_t)OC, (size_t)C, (size_t)OC, INIT_ZERO, AS_IS, NULL, 0, 0, 0},
                           {"vector", 1, EACH, 1, (size_t)C, 1, INIT_ZERO, AS_IS, NULL, 0, 0, 0}};
    const TensorTable table = tensors_layout(rows, 2, 2);
    const size_t n = table.size, begin = n / 5, end = n - n / 7; // a range that cuts tensors
    F(ADD, masters, n); X(WRITE, params, n); F(ADD, m, n); F(ADD, v, n); F(READ, grads, n); D(READ, norm, 1);
    RUN(AdamW* hyper = (AdamW*)device_alloc(sizeof *hyper, "hyper");
        device_copy_in(hyper, &c->hyper, sizeof *hyper);
        params_round(params, masters, n); // outside the range params stay what they are
        adamw_update(params, masters, m, v, grads, norm, hyper, &table, begin, end);
        device_free(hyper, sizeof *hyper))
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

// ---------------------------------------------------------------------------------------------------------------------
// running a case

// A case with tails everywhere: nothing is a multiple of a vector, a tile or a block.
static inline OpCase op_sizes_small(void) {
    OpCase c;
    memset(&c, 0, sizeof c);
    c.B = 3, c.T = 13, c.C = 42, c.NH = 3, c.OC = 75, c.V = 133, c.Vp = 160, c.past = 4, c.capacity = 19;
    c.dloss = 0.37f;
    AdamW hyper = {1e-2f, 0.9f, 0.95f, 1e-8f, 0.1f, 1.0f, 3, 0};
    c.hyper = hyper;
    return c;
}

static inline const OpEntry* op_find(const char* name) {
    for (int i = 0; i < NUM_OPS; i++) {
        if (!strcmp(OPS[i].name, name)) { return &OPS[i]; }
    }
    fatal("no operation %s in test/ops.h", name);
}

static inline OpTensor* op_find_tensor(OpCase* c, const char* name) {
    for (int i = 0; i < c->count; i++) {
        if (!strcmp(c->tensor[i].name, name)) { return &c->tensor[i]; }
    }
    return NULL;
}

// Values for a host copy of a tensor: reproducible, of a size that suits its name.
static inline void op_fill(void* host, const OpTensor* t, const OpCase* c, uint64_t seed) {
    const bool positive = !strcmp(t->name, "v") || !strcmp(t->name, "norm"), sorted = !strcmp(t->name, "order");
    for (size_t i = 0; i < t->n; i++) {
        const float x = 0.5f * rng_normal(seed, RNG_TEST, i);
        switch (t->elem) {
        case ELEM_FLOATX: ((floatX*)host)[i] = to_floatX(x); break;
        case ELEM_FLOAT: ((float*)host)[i] = positive ? x * x : x; break;
        case ELEM_DOUBLE: ((double*)host)[i] = positive ? 4.0 + x * x : x; break;
        case ELEM_INT: ((int*)host)[i] = sorted ? (int)i : (int)(rng_u64(seed, RNG_TEST, i) % (uint64_t)c->V); break;
        }
    }
}

static inline void op_open(OpCase* c, const OpEntry* op, uint64_t seed) {
    op->function(c);
    for (int i = 0; i < c->count; i++) {
        OpTensor* t = &c->tensor[i];
        void* host = alloc_or_die(t->n, op_elem_size(t->elem), t->name);
        op_fill(host, t, c, mix64(seed) + (uint64_t)i);
        device_copy_in(t->data, host, t->n * op_elem_size(t->elem));
        free(host);
    }
    OpTensor *order = op_find_tensor(c, "order"), *tokens = op_find_tensor(c, "tokens");
    if (!order) { return; }
    int* ids = (int*)alloc_or_die(2 * order->n, sizeof *ids, "order");
    device_copy_out(ids, tokens->data, order->n * sizeof *ids);
    size_t at = order->n;
    for (int v = 0; v < c->V; v++) {
        for (size_t i = 0; i < order->n; i++) {
            if (ids[i] == v) { ids[at++] = (int)i; }
        }
    }
    device_copy_in(order->data, ids + order->n, order->n * sizeof *ids);
    free(ids);
}

static inline void op_run(OpCase* c, const OpEntry* op) {
    c->run = true;
    c->next = 0;
    op->function(c);
    device_sync();
}

static inline void op_close(OpCase* c) {
    for (int i = 0; i < c->count; i++) { device_free(c->tensor[i].data, c->tensor[i].n * op_elem_size(c->tensor[i].elem)); }
    c->count = 0;
}

// A tensor as doubles on the host; the caller frees them.
static inline double* op_values(const OpTensor* t) {
    void* host = alloc_or_die(t->n, op_elem_size(t->elem), t->name);
    double* out = (double*)alloc_or_die(t->n, sizeof *out, t->name);
    device_copy_out(host, t->data, t->n * op_elem_size(t->elem));
    for (size_t i = 0; i < t->n; i++) {
        switch (t->elem) {
        case ELEM_FLOATX: out[i] = to_float(((floatX*)host)[i]); break;
        case ELEM_FLOAT: out[i] = ((float*)host)[i]; break;
        case ELEM_DOUBLE: out[i] = ((double*)host)[i]; break;
        case ELEM_INT: out[i] = ((int*)host)[i]; break;
        }
    }
    free(host);
    return out;
}

// |a - b| / |b| in the Euclidean norm: the one measure of how far two tensors are apart.
static inline double relative_error(const double* a, const double* b, size_t n) {
    double difference = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        difference += (a[i] - b[i]) * (a[i] - b[i]);
        size += b[i] * b[i];
    }
    return size > 0 ? sqrt(difference / size) : sqrt(difference);
}
