// GPT-2 (Radford et al. 2019), written once in terms of llmc/ops.h and floatX: pre-layernorm blocks, learned positions,
// tanh GELU, biases everywhere but in the classifier, whose weight is the token embedding. No dropout.
//
// It is compiled once for each storage type, so it includes no kernels: see train_gpt2.c for the order.
#pragma once
#include "comm.h"
#include "models.h"
#include "ops.h"

// Every parameter in memory order: field, once or for each layer, rows, columns, rows in use, initial value, how its
// matrix lies in a Hugging Face file, its name there. Two-dimensional parameters decay. All sums, files, reports and
// views follow from this list. Matrices of linear layers lie (out, in); Hugging Face's Conv1D has them (in, out).
#define GPT2_PARAMS(_)                                                                        \
    _(wte,      ONCE, Vp,    C,     V,     INIT_NORMAL,   AS_IS,      "wte.weight")           \
    _(wpe,      ONCE, maxT,  C,     maxT,  INIT_POSITION, AS_IS,      "wpe.weight")           \
    _(ln1w,     EACH, 1,     C,     1,     INIT_ONE,      AS_IS,      "h.%d.ln_1.weight")     \
    _(ln1b,     EACH, 1,     C,     1,     INIT_ZERO,     AS_IS,      "h.%d.ln_1.bias")       \
    _(qkvw,     EACH, 3 * C, C,     3 * C, INIT_NORMAL,   TRANSPOSED, "h.%d.attn.c_attn.weight") \
    _(qkvb,     EACH, 1,     3 * C, 1,     INIT_ZERO,     AS_IS,      "h.%d.attn.c_attn.bias") \
    _(attprojw, EACH, C,     C,     C,     INIT_RESIDUAL, TRANSPOSED, "h.%d.attn.c_proj.weight") \
    _(attprojb, EACH, 1,     C,     1,     INIT_ZERO,     AS_IS,      "h.%d.attn.c_proj.bias") \
    _(ln2w,     EACH, 1,     C,     1,     INIT_ONE,      AS_IS,      "h.%d.ln_2.weight")     \
    _(ln2b,     EACH, 1,     C,     1,     INIT_ZERO,     AS_IS,      "h.%d.ln_2.bias")       \
    _(fcw,      EACH, 4 * C, C,     4 * C, INIT_NORMAL,   TRANSPOSED, "h.%d.mlp.c_fc.weight") \
    _(fcb,      EACH, 1,     4 * C, 1,     INIT_ZERO,     AS_IS,      "h.%d.mlp.c_fc.bias")   \
    _(fcprojw,  EACH, C,     4 * C, C,     INIT_RESIDUAL, TRANSPOSED, "h.%d.mlp.c_proj.weight") \
    _(fcprojb,  EACH, 1,     C,     1,     INIT_ZERO,     AS_IS,      "h.%d.mlp.c_proj.bias") \
    _(lnfw,     ONCE, 1,     C,     1,     INIT_ONE,      AS_IS,      "ln_f.weight")          \
    _(lnfb,     ONCE, 1,     C,     1,     INIT_ZERO,     AS_IS,      "ln_f.bias")

// Every activation: type, field, kept for each layer or once for all, rows, columns. `kept` and `kept_gelu` are EACH
// unless backward computes those again (--recompute) or there is no backward. The scratch of backward has no rows
// (`train` = 0) where nothing is trained.
#define GPT2_ACTS(_)                                                                     \
    _(float,  residual1, residual, N,     C)  /* what enters the block */                \
    _(floatX, ln1,       kept, N,         C)                                             \
    _(float,  ln1_mean,  kept, 1,         N)                                             \
    _(float,  ln1_rstd,  kept, 1,         N)                                             \
    _(floatX, qkv,       kept, N,         3 * C)                                         \
    _(float,  lse,       kept, (size_t)B * NH, T)                                             \
    _(floatX, atty,      kept, N,         C)                                             \
    _(float,  residual2, kept, N,         C)  /* between attention and MLP */            \
    _(floatX, ln2,       kept, N,         C)                                             \
    _(float,  ln2_mean,  kept, 1,         N)                                             \
    _(float,  ln2_rstd,  kept, 1,         N)                                             \
    _(floatX, fch,       kept, N,         4 * C)                                         \
    _(floatX, fch_gelu,  kept_gelu, N,    4 * C)                                         \
    _(floatX, proj,      ONCE, N,         C)  /* what a block's half adds to the stream */ \
    _(float,  residualf, ONCE, N,         C)  /* what leaves the last block */           \
    _(floatX, lnf,       ONCE, N,         C)                                             \
    _(float,  lnf_mean,  ONCE, 1,         N)                                             \
    _(float,  lnf_rstd,  ONCE, 1,         N)                                             \
    _(floatX, logits,    ONCE, chunk,     Vp) /* scratch of the classifier */            \
    _(float,  losses,    ONCE, 1,         N)                                             \
    _(float,  dresidual, ONCE, train * N, C)                                             \
    _(floatX, dresidual_x, ONCE, rounded * N, C)                                         \
    _(floatX, dbtc,      ONCE, train * N, C)                                             \
    _(floatX, dbt4c,     ONCE, train * N, 4 * C)                                         \
    _(float,  delta,     ONCE, train * B * NH, T) /* scratch of attention's backward */

#define PARAM_FIELD(field, ...) floatX* field;
#define GRAD_FIELD(field, ...) float* field;
#define ACT_FIELD(type, field, ...) type* field;
typedef struct { GPT2_PARAMS(PARAM_FIELD) } Params;
typedef struct { GPT2_PARAMS(GRAD_FIELD) } Grads;
typedef struct { GPT2_ACTS(ACT_FIELD) } Acts;

typedef enum { FORWARD_ONLY, KEEP_ALL, RECOMPUTE_GELU, RECOMPUTE_ALL } Keep;

// Called when the gradients of a range of the parameters' layout will not change any more in this step, so that they
// can be added up over processes while the layers below are still being worked on.
typedef void (*GradsReady)(void* context, float* grads, TensorRange range);

// Keys and values of a sequence that is being generated: attention_cached's cache for each layer, B = 1.
typedef struct {
    floatX* memory;
    int length, capacity;
} KVCache;

// What a step adds up: losses, processes that were asked to stop, the squared norm of the gradient.
enum { SUM_LOSS, SUM_STOP, SUM_NORM, NUM_SUMS };

// Host memory that is copied to and from the device while work goes on there.
typedef struct Mailbox {
    double sums[NUM_SUMS], stop;
    AdamW hyper;
} Mailbox;

typedef struct {
    GPT2Config config;
    int B, T; // the most that memory was laid out for
    Keep keep;
    TensorTable params_table, acts_table;
    Comm* sharers; // ZeRO-1: each of these processes keeps masters and moments of its shards alone; NULL: all is here
    // device memory
    floatX* params;
    float* masters; // the parameters in fp32; params itself if floatX is float
    float *grads, *m, *v;
    char* acts;
    int* batches;                  // two of (3,B,T): the next one comes in while one is worked on
    int *tokens, *targets, *order; // (B,T) each, in one of them
    double* sums;                  // NUM_SUMS
    AdamW* hyper;
    Mailbox* mailbox;
    size_t kv_size; // elements of a KVCache
    Recording *micro_step, *norm, *update;
} GPT2;

// ---------------------------------------------------------------------------------------------------------------------
// memory

#define PARAM_ROW(field, repeat, rows, cols, used, init, layout, name) \
    {#field, 1, repeat, (size_t)(rows), (size_t)(cols), (size_t)(used), init, layout, name, 0, 0, 0},
#define ACT_ROW(type, field, repeat, rows, cols) \
    {#field, sizeof(type), repeat, (size_t)(rows), (size_t)(cols), (size_t)(rows), INIT_ZERO, AS_IS, NULL, 0, 0, 0},

static inline TensorTable gpt2_params_table_in_shards(const GPT2Config* m, int shards) {
    const int C = m->channels, V = m->vocab_size, Vp = m->padded_vocab_size, maxT = m->max_seq_len;
    const Tensor rows[] = {GPT2_PARAMS(PARAM_ROW)};
    return tensors_layout_in_shards(rows, sizeof rows / sizeof *rows, m->num_layers, shards);
}
static inline TensorTable gpt2_params_table(const GPT2Config* m) { return gpt2_params_table_in_shards(m, 1); }

static inline TensorTable gpt2_acts_table(const GPT2Config* m, int B, int T, Keep keep) {
    const int C = m->channels, Vp = m->padded_vocab_size, NH = m->num_heads;
    const size_t N = (size_t)B * T, chunk = min_size(N, (size_t)classifier_chunk(C));
    const size_t train = keep != FORWARD_ONLY, rounded = train && sizeof(floatX) != sizeof(float);
    const Repeat residual = keep == FORWARD_ONLY ? ONCE : EACH;
    const Repeat kept = keep == KEEP_ALL || keep == RECOMPUTE_GELU ? EACH : ONCE;
    const Repeat kept_gelu = keep == KEEP_ALL ? EACH : ONCE;
    const Tensor rows[] = {GPT2_ACTS(ACT_ROW)};
    return tensors_layout(rows, sizeof rows / sizeof *rows, m->num_layers);
}

// Fills the tables and sizes of `g`; allocates nothing.
static inline void gpt2_layout(GPT2* g, const GPT2Config* config, int B, int T, Keep keep) {
    memset(g, 0, sizeof *g);
    g->config = *config;
    g->B = B;
    g->T = T;
    g->keep = keep;
    g->params_table = gpt2_params_table(config);
    g->acts_table = gpt2_acts_table(config, B, T, keep);
    g->kv_size = (size_t)config->num_layers * (size_t)config->max_seq_len * 2 * (size_t)config->channels;
}

// Shares masters and moments with the other processes (ZeRO-1: Rajbhandari et al. 2020, "ZeRO: Memory Optimizations
// Toward Training Trillion Parameter Models"): after gpt2_layout, before gpt2_alloc.
static inline void gpt2_share(GPT2* g, Comm* sharers) {
    if (!sharers || sharers->size == 1) { return; }
    g->sharers = sharers;
    g->params_table = gpt2_params_table_in_shards(&g->config, sharers->size);
}

// What the model will take, line by line: the one list behind allocating, freeing and printing. `field` is the pointer.
typedef struct {
    const char* what;
    size_t bytes, field;
} MemoryLine;
enum { MEMORY_LINES = 9 };

static inline size_t gpt2_batch_size(const GPT2* g) { return (size_t)3 * g->B * g->T; }

static inline void gpt2_memory(const GPT2* g, MemoryLine line[MEMORY_LINES]) {
    const size_t n = g->params_table.size, train = g->keep != FORWARD_ONLY;
    const size_t kept = g->sharers ? n / (size_t)g->sharers->size : n;
    const MemoryLine lines[MEMORY_LINES] = {
        {"parameters", n * sizeof(floatX), offsetof(GPT2, params)},
        {"master weights", sizeof(floatX) == sizeof(float) ? 0 : kept * sizeof(float), offsetof(GPT2, masters)},
        {"gradients", train * n * sizeof(float), offsetof(GPT2, grads)},
        {"first moments", train * kept * sizeof(float), offsetof(GPT2, m)},
        {"second moments", train * kept * sizeof(float), offsetof(GPT2, v)},
        {"activations", g->acts_table.size, offsetof(GPT2, acts)},
        {"batches", 2 * gpt2_batch_size(g) * sizeof(int), offsetof(GPT2, batches)},
        {"sums", NUM_SUMS * sizeof(double), offsetof(GPT2, sums)},
        {"settings of the optimizer", sizeof(AdamW), offsetof(GPT2, hyper)},
    };
    memcpy(line, lines, sizeof lines);
}

static inline size_t gpt2_bytes(const GPT2* g) {
    MemoryLine line[MEMORY_LINES];
    size_t bytes = 0;
    gpt2_memory(g, line);
    for (int i = 0; i < MEMORY_LINES; i++) { bytes += line[i].bytes; }
    return bytes;
}

// Points tokens, targets and order, n each, into the other of the two batches: one may come in there while the device
// still works on what was in this one.
static inline void gpt2_next_batch(GPT2* g, size_t n) {
    g->tokens = g->batches + (g->tokens == g->batches ? gpt2_batch_size(g) : 0);
    g->targets = g->tokens + n;
    g->order = g->targets + n;
}

static inline void gpt2_alloc(GPT2* g) {
    MemoryLine line[MEMORY_LINES];
    gpt2_memory(g, line);
    for (int i = 0; i < MEMORY_LINES; i++) {
        void* p = line[i].bytes ? device_alloc(line[i].bytes, line[i].what) : NULL;
        memcpy((char*)g + line[i].field, &p, sizeof p);
    }
    if (!g->masters) { g->masters = (float*)g->params; }
    g->mailbox = (Mailbox*)host_alloc(sizeof *g->mailbox, "what goes to and from the device");
    gpt2_next_batch(g, (size_t)g->B * g->T);
    device_sync(); // memory is zero now, also for uploads, which do not wait for that
}

static inline void gpt2_free(GPT2* g) {
    MemoryLine line[MEMORY_LINES];
    device_forget(&g->micro_step);
    device_forget(&g->norm);
    device_forget(&g->update);
    gpt2_memory(g, line);
    for (int i = 0; i < MEMORY_LINES; i++) {
        void* p = NULL;
        memcpy(&p, (char*)g + line[i].field, sizeof p);
        if (line[i].bytes && p) { device_free(p, line[i].bytes); }
    }
    host_free(g->mailbox);
    memset(g, 0, sizeof *g);
}

// Where nothing is trained, masters only serve to load weights: frees them.
static inline void gpt2_free_masters(GPT2* g) {
    if ((void*)g->masters != (void*)g->params) { device_free(g->masters, g->params_table.size * sizeof(float)); }
    g->masters = NULL;
}

static inline KVCache kv_cache_alloc(const GPT2* g) {
    KVCache cache = {(floatX*)device_alloc(g->kv_size * sizeof(floatX), "the cache of keys and values"), 0,
                     g->config.max_seq_len};
    return cache;
}
static inline void kv_cache_free(const GPT2* g, KVCache* cache) {
    device_free(cache->memory, g->kv_size * sizeof(floatX));
}

static inline Params params_at(const GPT2* g, int layer) {
    Params p;
    tensors_bind(&p, sizeof p, &g->params_table, g->params, sizeof(floatX), layer);
    return p;
}
static inline Grads grads_at(const GPT2* g, int layer) {
    Grads d;
    tensors_bind(&d, sizeof d, &g->params_table, g->grads, sizeof(float), layer);
    return d;
}
static inline Acts acts_at(const GPT2* g, int layer) {
    Acts a;
    tensors_bind(&a, sizeof a, &g->acts_table, g->acts, 1, layer);
    return a;
}

// ---------------------------------------------------------------------------------------------------------------------
// what this process keeps of masters and moments

// A range of the parameters' layout, and where it stands in masters, m and v.
typedef struct {
    TensorRange range;
    size_t at;
} Kept;

// All in one piece, or the shards of this process, one of each of the table's ranges.
static inline int gpt2_num_kept(const GPT2* g) { return g->sharers ? tensors_num_ranges(&g->params_table) : 1; }
static inline Kept gpt2_kept(const GPT2* g, int i) {
    Kept k = {{0, g->params_table.size}, 0};
    if (g->sharers) {
        const size_t shards = (size_t)g->sharers->size;
        const TensorRange r = tensors_range(&g->params_table, i);
        k.range.size = r.size / shards;
        k.range.begin = r.begin + (size_t)g->sharers->rank * k.range.size;
        k.at = r.begin / shards;
    }
    return k;
}

// In fp32 the parameters are the masters, and here as a whole.
static inline bool gpt2_is_whole(const GPT2* g, const float* block) {
    return !g->sharers || (const void*)block == (const void*)g->params;
}

// Where masters, m or v have what is kept at k.
static inline float* gpt2_block_at(const GPT2* g, float* block, const Kept* k) {
    return block + (gpt2_is_whole(g, block) ? k->range.begin : k->at);
}

// Puts the n elements from number `begin` of the layout on, or those of them that this process keeps, into masters, m
// or v. They lie in one of the table's ranges.
static inline void gpt2_put(const GPT2* g, float* block, size_t begin, const float* host, size_t n) {
    if (gpt2_is_whole(g, block)) {
        device_copy_in(block + begin, host, n * sizeof(float));
        return;
    }
    for (int i = 0; i < gpt2_num_kept(g); i++) {
        const Kept k = gpt2_kept(g, i);
        const size_t first = max_size(begin, k.range.begin), last = min_size(begin + n, k.range.begin + k.range.size);
        if (first < last) {
            device_copy_in(block + k.at + (first - k.range.begin), host + (first - begin),
                           (last - first) * sizeof(float));
        }
    }
}

// All of masters, m or v, in device memory: the block itself or, put together from all processes' shards, in the memory
// of the gradients, which are lost. Called by all processes at once.
static inline const float* gpt2_whole(GPT2* g, float* block) {
    if (gpt2_is_whole(g, block)) { return block; }
    for (int i = 0; i < gpt2_num_kept(g); i++) {
        const Kept k = gpt2_kept(g, i);
        const TensorRange r = tensors_range(&g->params_table, i);
        device_copy(g->grads + k.range.begin, block + k.at, k.range.size * sizeof(float));
        comm_gather_begin(g->sharers, g->grads + r.begin, r.size * sizeof(float));
    }
    comm_end(g->sharers);
    return g->grads;
}

// Each process's shards of the parameters to all.
static inline void gpt2_gather_params(GPT2* g) {
    if (!g->sharers) { return; }
    for (int i = 0; i < gpt2_num_kept(g); i++) {
        const TensorRange r = tensors_range(&g->params_table, i);
        comm_gather_begin(g->sharers, g->params + r.begin, r.size * sizeof(floatX));
    }
    comm_end(g->sharers);
}

// ---------------------------------------------------------------------------------------------------------------------
// forward

// Block `l`, whose residual1 and ln1 are there, up to the last matmul's input: all that backward looks at.
static inline void gpt2_block_forward(const GPT2* g, int l, int B, int T, KVCache* cache) {
    const int N = B * T, C = g->config.channels, NH = g->config.num_heads;
    const Params p = params_at(g, l);
    const Acts a = acts_at(g, l);
    matmul_forward(a.qkv, a.ln1, p.qkvw, p.qkvb, N, C, 3 * C);
    if (cache) {
        floatX* memory = cache->memory + (size_t)l * cache->capacity * 2 * C;
        attention_cached(a.atty, memory, a.qkv, B, T, cache->length, cache->capacity, C, NH);
    } else {
        attention_forward(a.atty, a.lse, a.qkv, B, T, C, NH);
    }
    matmul_forward(a.proj, a.atty, p.attprojw, p.attprojb, N, C, C);
    residual_layernorm_forward(a.residual2, a.ln2, a.ln2_mean, a.ln2_rstd, a.residual1, a.proj, p.ln2w, p.ln2b, N, C);
    matmul_gelu_forward(a.fch_gelu, a.fch, a.ln2, p.fcw, p.fcb, N, C, 4 * C);
}

// g->tokens (B,T) -> the residual stream that enters block 0, and its layernorm.
static inline void gpt2_embed(const GPT2* g, int B, int T, const KVCache* cache) {
    const int N = B * T, C = g->config.channels;
    const Params p = params_at(g, 0);
    const Acts a = acts_at(g, 0);
    encoder_forward(a.residual1, g->tokens, p.wte, p.wpe + (size_t)(cache ? cache->length : 0) * C, B, T, C);
    layernorm_forward(a.ln1, a.ln1_mean, a.ln1_rstd, a.residual1, p.ln1w, p.ln1b, N, C);
}

// Block `l` and what follows it: the residual stream and its layernorm, for the next block or for the classifier.
// Returns where the stream is.
static inline float* gpt2_layer(const GPT2* g, int l, int B, int T, KVCache* cache) {
    const int N = B * T, C = g->config.channels, last = l == g->config.num_layers - 1;
    const Acts a = acts_at(g, l), b = acts_at(g, last ? l : l + 1);
    const Params p = params_at(g, last ? l : l + 1);
    const Params mine = params_at(g, l);
    device_range_push("forward of layer", l);
    gpt2_block_forward(g, l, B, T, cache);
    matmul_forward(a.proj, a.fch_gelu, mine.fcprojw, mine.fcprojb, N, 4 * C, C);
    if (last) {
        residual_layernorm_forward(a.residualf, a.lnf, a.lnf_mean, a.lnf_rstd, a.residual2, a.proj, p.lnfw, p.lnfb, N,
                                   C);
    } else {
        residual_layernorm_forward(b.residual1, b.ln1, b.ln1_mean, b.ln1_rstd, a.residual2, a.proj, p.ln1w, p.ln1b, N,
                                   C);
    }
    device_range_pop();
    return last ? a.residualf : b.residual1;
}

// g->tokens (B,T) -> acts.lnf (B*T,C), the classifier's input. With a cache, the tokens are those that follow what the
// cache holds, which they join. B * T is at most what was allocated.
static inline void gpt2_forward(const GPT2* g, int B, int T, KVCache* cache) {
    gpt2_embed(g, B, T, cache);
    for (int l = 0; l < g->config.num_layers; l++) { gpt2_layer(g, l, B, T, cache); }
    if (cache) { cache->length += T; }
}

// After gpt2_forward: adds the losses of g->targets (B,T) to sums[SUM_LOSS].
static inline void gpt2_loss(GPT2* g, int B, int T) {
    const GPT2Config* m = &g->config;
    const Params p = params_at(g, 0);
    const Acts a = acts_at(g, 0);
    classifier_loss(a.losses, a.logits, a.lnf, p.wte, g->targets, classifier_chunk(m->channels), B * T, m->channels,
                    m->vocab_size, m->padded_vocab_size);
    loss_add(&g->sums[SUM_LOSS], a.losses, B * T);
}

// After gpt2_forward of B*T tokens: logits (count,V) in device memory, for the rows from `first` on.
static inline void gpt2_logits(GPT2* g, float* logits, int first, int count) {
    const GPT2Config* m = &g->config;
    const Params p = params_at(g, 0);
    const Acts a = acts_at(g, 0);
    const floatX* rows = a.lnf + (size_t)first * m->channels;
    classifier_logits(logits, a.logits, rows, p.wte, classifier_chunk(m->channels), count, m->channels, m->vocab_size,
                      m->padded_vocab_size);
}

// ---------------------------------------------------------------------------------------------------------------------
// backward

// The gradient through block `l`: `d` (N,C) is that of its output and becomes that of its input.
static inline void gpt2_block_backward(GPT2* g, int l, int B, int T, float* d, floatX* dx) {
    const int N = B * T, C = g->config.channels, NH = g->config.num_heads;
    const Params p = params_at(g, l);
    const Grads dp = grads_at(g, l);
    const Acts a = acts_at(g, l);
    device_range_push("backward of layer", l);
    if (g->keep == RECOMPUTE_ALL) {
        layernorm_forward(a.ln1, a.ln1_mean, a.ln1_rstd, a.residual1, p.ln1w, p.ln1b, N, C);
        gpt2_block_forward(g, l, B, T, NULL);
    } else if (g->keep == RECOMPUTE_GELU) {
        gelu_forward(a.fch_gelu, a.fch, (size_t)N * 4 * C);
    }
    matmul_gelu_backward(a.dbt4c, dp.fcprojw, dp.fcprojb, dx, a.fch_gelu, a.fch, p.fcprojw, N, 4 * C, C);
    matmul_backward(a.dbtc, dp.fcw, dp.fcb, a.dbt4c, a.ln2, p.fcw, N, C, 4 * C);
    layernorm_backward(d, dx, dp.ln2w, dp.ln2b, a.dbtc, a.residual2, p.ln2w, a.ln2_mean, a.ln2_rstd, N, C);
    matmul_backward(a.dbtc, dp.attprojw, dp.attprojb, dx, a.atty, p.attprojw, N, C, C);
    attention_backward(a.dbt4c, a.delta, a.dbtc, a.atty, a.lse, a.qkv, B, T, C, NH);
    matmul_backward(a.dbtc, dp.qkvw, dp.qkvb, a.dbt4c, a.ln1, p.qkvw, N, C, 3 * C);
    layernorm_backward(d, dx, dp.ln1w, dp.ln1b, a.dbtc, a.residual1, p.ln1w, a.ln1_mean, a.ln1_rstd, N, C);
    device_range_pop();
}

// After gpt2_forward: adds the gradient of dloss * sum(losses) to grads and the losses to sums[SUM_LOSS]. `ready` (or
// NULL) is told of each range of gradients that is finished.
static inline void gpt2_backward(GPT2* g, int B, int T, float dloss, GradsReady ready, void* context) {
    const GPT2Config* m = &g->config;
    const int N = B * T, L = m->num_layers, C = m->channels;
    const TensorTable* table = &g->params_table;
    const Params p = params_at(g, 0);
    const Grads dp = grads_at(g, 0);
    const Acts a = acts_at(g, 0);
    floatX* dx = sizeof(floatX) == sizeof(float) ? (floatX*)a.dresidual : a.dresidual_x;
    device_range_push("classifier", -1);
    classifier_backward(a.losses, a.dbtc, dp.wte, a.logits, a.lnf, p.wte, g->targets, dloss,
                        classifier_chunk(m->channels), N, C, m->vocab_size, m->padded_vocab_size);
    loss_add(&g->sums[SUM_LOSS], a.losses, N);
    device_range_pop();
    device_zero(a.dresidual, (size_t)N * C * sizeof(float));
    layernorm_backward(a.dresidual, dx, dp.lnfw, dp.lnfb, a.dbtc, a.residualf, p.lnfw, a.lnf_mean, a.lnf_rstd, N, C);
    if (ready) { ready(context, g->grads, tensors_range(table, L + 1)); }
    for (int l = L - 1; l >= 0; l--) {
        gpt2_block_backward(g, l, B, T, a.dresidual, dx);
        if (ready) { ready(context, g->grads, tensors_range(table, l + 1)); }
    }
    encoder_backward(dp.wte, dp.wpe, a.dresidual, g->tokens, g->order, B, T, C);
    if (ready) { ready(context, g->grads, tensors_range(table, 0)); }
}

// What a recording of a micro-step holds by value.
typedef struct {
    GPT2* g;
    int* batch;
    float dloss;
} MicroStep;

static inline void micro_step_work(const void* arguments) {
    const MicroStep* s = (const MicroStep*)arguments;
    gpt2_forward(s->g, s->g->B, s->g->T, NULL);
    gpt2_backward(s->g, s->g->B, s->g->T, s->dloss, NULL, NULL);
}

// Forward and backward of the batch at g->tokens, as gpt2_backward says. Full ones that nobody waits for are replayed.
static inline void gpt2_micro_step(GPT2* g, int B, int T, float dloss, GradsReady ready, void* context) {
    if (ready || B != g->B || T != g->T) {
        gpt2_forward(g, B, T, NULL);
        gpt2_backward(g, B, T, dloss, ready, context);
        return;
    }
    MicroStep step;
    memset(&step, 0, sizeof step); // its padding too
    step.g = g;
    step.batch = g->tokens;
    step.dloss = dloss;
    device_replay(&g->micro_step, "micro-step", micro_step_work, &step, sizeof step);
}

// ---------------------------------------------------------------------------------------------------------------------
// update

static inline void gpt2_zero_grads(GPT2* g) {
    device_zero(g->grads, g->params_table.size * sizeof(float));
    device_zero(g->sums, NUM_SUMS * sizeof(double));
}

// Tells `ready` of all ranges: for a process that has no micro-batch of its own, when others have one.
static inline void gpt2_all_ready(GPT2* g, GradsReady ready, void* context) {
    for (int i = tensors_num_ranges(&g->params_table) - 1; i >= 0; i--) {
        ready(context, g->grads, tensors_range(&g->params_table, i));
    }
}

// Queues whether this process was asked to stop, to be added up over all.
static inline void gpt2_send_stop(GPT2* g, bool stop) {
    g->mailbox->stop = stop;
    device_send(&g->sums[SUM_STOP], &g->mailbox->stop, sizeof g->mailbox->stop);
}

static inline void norm_work(const void* arguments) {
    GPT2* g = *(GPT2* const*)arguments;
    for (int i = 0; i < gpt2_num_kept(g); i++) {
        const Kept k = gpt2_kept(g, i);
        norm_squared(&g->sums[SUM_NORM], g->grads + k.range.begin, k.range.size);
    }
}

// Adds to sums[SUM_NORM] the squared norm of the gradient, or of this process's shards of it; padding is zero and does
// not count.
static inline void gpt2_grad_norm(GPT2* g) { device_replay(&g->norm, "norm", norm_work, &g, sizeof g); }

// Queues the copy of sums to mailbox->sums, there to be read after device_sync().
static inline void gpt2_fetch_sums(GPT2* g) { device_fetch(g->mailbox->sums, g->sums, sizeof g->mailbox->sums); }

// To be called when masters have been written from outside.
static inline void gpt2_masters_changed(GPT2* g) {
    for (int i = 0; i < gpt2_num_kept(g); i++) {
        const Kept k = gpt2_kept(g, i);
        params_round(g->params + k.range.begin, gpt2_block_at(g, g->masters, &k), k.range.size);
    }
    gpt2_gather_params(g);
    params_changed();
}

// The learning rate and the like come from the mailbox, so that a recording can be replayed.
static inline void update_work(const void* arguments) {
    GPT2* g = *(GPT2* const*)arguments;
    device_send(g->hyper, &g->mailbox->hyper, sizeof *g->hyper);
    for (int i = 0; i < gpt2_num_kept(g); i++) {
        const Kept k = gpt2_kept(g, i);
        const size_t begin = k.range.begin, end = begin + k.range.size;
        adamw_update(g->params + begin, gpt2_block_at(g, g->masters, &k), gpt2_block_at(g, g->m, &k),
                     gpt2_block_at(g, g->v, &k), g->grads + begin, &g->sums[SUM_NORM], g->hyper, &g->params_table,
                     begin, end);
    }
}

// Queues one AdamW step, after gpt2_grad_norm. Once in each step that ends with device_sync().
static inline void gpt2_update(GPT2* g, const AdamW* hyper) {
    g->mailbox->hyper = *hyper;
    device_replay(&g->update, "update", update_work, &g, sizeof g);
    gpt2_gather_params(g);
    params_changed();
}
