#include "gpt2.h"
#include "stored.h"

// ---------------------------------------------------------------------------------------------------------------------
// memory

#define PARAM_ROW(field, when, num_rows, num_cols, used, first, file, hf, in_gguf)                         \
    {.name = #field, .unit = 1, .repeat = when, .rows = (size_t)(num_rows), .cols = (size_t)(num_cols),    \
     .used_rows = (size_t)(used), .init = first, .layout = file, .hf_name = hf, .gguf_name = in_gguf},
#define BYTES_OF_float sizeof(float)
#define BYTES_OF_int sizeof(int)
#define BYTES_OF_Stored b->element_bytes
#define BYTES_OF_Residual b->residual_bytes
#define ACT_ROW(type, field, when, num_rows, num_cols)                                                     \
    {.name = #field, .unit = BYTES_OF_##type, .repeat = when, .rows = (size_t)(num_rows),                  \
     .cols = (size_t)(num_cols), .used_rows = (size_t)(num_rows)},

TensorTable gpt2_params_table(const GPT2Config* m, int shards) {
    const int C = m->channels, V = m->vocab_size, Vp = m->padded_vocab_size, maxT = m->max_seq_len;
    const Tensor rows[] = {GPT2_PARAMS(PARAM_ROW)};
    return tensors_layout_in_shards(rows, sizeof rows / sizeof *rows, m->num_layers, shards);
}

static TensorTable gpt2_acts_table(const Backend* b, const GPT2Config* m, int B, int T, Keep keep, size_t rest) {
    const int C = m->channels, Vp = m->padded_vocab_size, NH = m->num_heads;
    const size_t N = (size_t)B * T, chunk = (size_t)b->classifier_chunk((int)N);
    const size_t train = keep != FORWARD_ONLY, rounded = train && !residual_is_stored(b);
    const Repeat residual = keep == FORWARD_ONLY ? ONCE : EACH;
    const Repeat kept = keep == KEEP_ALL || keep == RECOMPUTE_GELU ? EACH : ONCE;
    const Repeat kept_gelu = keep == KEEP_ALL ? EACH : ONCE;
    const Tensor rows[] = {GPT2_ACTS(ACT_ROW)};
    return tensors_layout(rows, sizeof rows / sizeof *rows, m->num_layers);
}

void gpt2_layout(GPT2* g, const Backend* backend, const GPT2Config* config, int B, int T, Keep keep, int shards) {
    memset(g, 0, sizeof *g);
    g->backend = backend;
    g->config = *config;
    g->B = B;
    g->T = T;
    g->keep = keep;
    g->eot = NO_DOCUMENTS;
    g->params_table = gpt2_params_table(config, shards);
    g->acts_table = gpt2_acts_table(backend, config, B, T, keep, 0);
}

void gpt2_keep_rest(GPT2* g) {
    g->acts_table = gpt2_acts_table(g->backend, &g->config, g->B, g->T, g->keep, g->keep != FORWARD_ONLY);
}

size_t gpt2_batch_ints(const GPT2* g) { return (size_t)3 * g->B * g->T; }

void gpt2_memory(const GPT2* g, MemoryLine line[GPT2_MEMORY_LINES]) {
    const size_t n = g->params_table.size, train = g->keep != FORWARD_ONLY;
    const MemoryLine lines[GPT2_MEMORY_LINES] = {
        {"parameters", n * g->backend->element_bytes, offsetof(GPT2, params), false},
        {"gradients", train * n * sizeof(float), offsetof(GPT2, grads), false},
        {"activations", g->acts_table.size, offsetof(GPT2, acts), false},
        {"batches", 2 * gpt2_batch_ints(g) * sizeof(int), offsetof(GPT2, batches), false},
        {"sums", NUM_SUMS * sizeof(double), offsetof(GPT2, sums), false},
    };
    memcpy(line, lines, sizeof lines);
}

void memory_lines_alloc(const Backend* b, void* owner, const MemoryLine* line, int count) {
    for (int i = 0; i < count; i++) {
        void* (*const alloc)(size_t, const char*) = line[i].in_host ? b->state_alloc : b->device_alloc;
        void* p = line[i].bytes ? alloc(line[i].bytes, line[i].what) : NULL;
        memcpy((char*)owner + line[i].field, &p, sizeof p);
    }
}

void memory_lines_free(const Backend* b, void* owner, const MemoryLine* line, int count) {
    for (int i = 0; i < count; i++) {
        void* p = NULL;
        memcpy(&p, (char*)owner + line[i].field, sizeof p);
        if (!line[i].bytes || !p) { continue; }
        if (line[i].in_host) { b->state_free(p, line[i].bytes); }
        else { b->device_free(p, line[i].bytes); }
    }
}

// Points tokens, targets and order, n each, into the other one of the two batches, so that it can be uploaded while the
// device still works on the current one.
static void gpt2_next_batch(GPT2* g, size_t n) {
    g->tokens = g->batches + (g->tokens == g->batches ? gpt2_batch_ints(g) : 0);
    g->targets = g->tokens + n;
    g->order = g->targets + n;
}

void gpt2_upload(GPT2* g, const int* batch, size_t n) {
    gpt2_next_batch(g, n);
    g->backend->device_upload(g->tokens, batch, 3 * n * sizeof *batch);
}

void gpt2_alloc(GPT2* g) {
    MemoryLine line[GPT2_MEMORY_LINES];
    gpt2_memory(g, line);
    memory_lines_alloc(g->backend, g, line, GPT2_MEMORY_LINES);
    gpt2_next_batch(g, (size_t)g->B * g->T);
    g->backend->device_sync(); // an upload does not wait for the queued zeroing of its memory
}

void gpt2_free(GPT2* g) {
    MemoryLine line[GPT2_MEMORY_LINES];
    for (int mode = GRADS_ADD; mode <= GRADS_SET; mode++) { g->backend->device_forget(&g->micro_step[mode]); }
    gpt2_memory(g, line);
    memory_lines_free(g->backend, g, line, GPT2_MEMORY_LINES);
    memset(g, 0, sizeof *g);
}

void gpt2_put(const GPT2* g, size_t begin, const float* host, size_t n) {
    const Backend* b = g->backend;
    Stored* to = stored_at(b, g->params, begin);
    if (b->element_bytes == sizeof(float)) {
        b->device_copy_in(to, host, n * sizeof *host);
        return;
    }
    uint16_t* rounded = alloc_or_die(n, sizeof *rounded, "weights in 16 bits");
    const bool in_fp16 = stores_fp16(b);
    #pragma omp parallel for
    for (size_t i = 0; i < n; i++) { rounded[i] = in_fp16 ? fp16_nearest(host[i]) : bf16_nearest(host[i]); }
    b->device_copy_in(to, rounded, n * sizeof *rounded);
    free(rounded);
}

size_t kv_cache_bytes(const Backend* b, const GPT2Config* m, int slots, int capacity) {
    return (size_t)m->num_layers * (size_t)slots * (size_t)capacity * 2 * (size_t)m->channels * b->element_bytes;
}

KVCache kv_cache_alloc(const GPT2* g, int slots, int capacity) {
    const Backend* b = g->backend;
    const size_t bytes = kv_cache_bytes(b, &g->config, slots, capacity);
    return (KVCache){.memory = b->device_alloc(bytes, "the cache of keys and values"),
                     .slots = slots,
                     .capacity = capacity,
                     .length = alloc_or_die((size_t)slots, sizeof(int), "lengths of sequences")};
}

void kv_cache_free(const GPT2* g, KVCache* cache) {
    g->backend->device_free(cache->memory, kv_cache_bytes(g->backend, &g->config, cache->slots, cache->capacity));
    free(cache->length);
}

// Returns the keys and values of a slot in a layer.
static Stored* kv_cache_at(const GPT2* g, const KVCache* cache, int l, int slot) {
    const size_t n = (size_t)l * (size_t)cache->slots + (size_t)slot;
    return stored_at(g->backend, cache->memory, n * (size_t)cache->capacity * 2 * (size_t)g->config.channels);
}

void kv_cache_copy(const GPT2* g, KVCache* cache, int to, int from, int positions) {
    const size_t bytes = (size_t)positions * 2 * (size_t)g->config.channels * g->backend->element_bytes;
    for (int l = 0; l < g->config.num_layers; l++) {
        g->backend->device_copy(kv_cache_at(g, cache, l, to), kv_cache_at(g, cache, l, from), bytes);
    }
    cache->length[to] = positions;
}

static int kv_cache_slot(const KVCache* cache, int row) { return cache->rows ? cache->rows[row] : row; }

// Returns the number of sequences from `row` on whose slots are neighbours and hold equally many positions.
static int kv_cache_run(const KVCache* cache, int row, int B) {
    const int slot = kv_cache_slot(cache, row);
    int n = 1;
    while (row + n < B && kv_cache_slot(cache, row + n) == slot + n && cache->length[slot + n] == cache->length[slot]) {
        n++;
    }
    return n;
}

Params params_at(const GPT2* g, int layer) {
    Params p;
    tensors_bind(&p, sizeof p, &g->params_table, g->params, g->backend->element_bytes, layer);
    return p;
}

Grads grads_at(const GPT2* g, int layer) {
    Grads d;
    tensors_bind(&d, sizeof d, &g->params_table, g->grads, sizeof(float), layer);
    return d;
}

Acts acts_at(const GPT2* g, int layer) {
    Acts a;
    tensors_bind(&a, sizeof a, &g->acts_table, g->acts, 1, layer);
    return a;
}

// ---------------------------------------------------------------------------------------------------------------------
// forward

static void gpt2_attention_cached(const GPT2* g, int l, int B, int T, const KVCache* cache) {
    const Backend* b = g->backend;
    const int C = g->config.channels;
    const Acts a = acts_at(g, l);
    for (int row = 0, n; row < B; row += n) {
        const int slot = kv_cache_slot(cache, row);
        const size_t first = (size_t)row * (size_t)T * (size_t)C;
        n = kv_cache_run(cache, row, B);
        b->attention_cached(stored_at(b, a.atty, first), a.lse, kv_cache_at(g, cache, l, slot),
                            stored_at(b, a.qkv, 3 * first), n, T, cache->length[slot], cache->capacity, C,
                            g->config.num_heads);
    }
}

// Computes block `l`, from residual1 and ln1 to the input of its last matmul: all activations that backward reads.
static void gpt2_block_forward(const GPT2* g, int l, int B, int T, KVCache* cache) {
    const Backend* b = g->backend;
    const int N = B * T, C = g->config.channels, NH = g->config.num_heads;
    const Params p = params_at(g, l);
    const Acts a = acts_at(g, l);
    b->matmul_forward(a.qkv, a.ln1, p.qkvw, p.qkvb, N, C, 3 * C);
    if (cache) { gpt2_attention_cached(g, l, B, T, cache); }
    else { b->attention_forward(a.atty, a.atty_rest, a.lse, a.qkv, gpt2_documents(g, a.starts), B, T, C, NH); }
    b->matmul_forward(a.proj, a.atty, p.attprojw, p.attprojb, N, C, C);
    b->residual_layernorm_forward(a.residual2, a.ln2, a.ln2_mean, a.ln2_rstd, a.residual1, a.proj, p.ln2w, p.ln2b, N,
                                  C);
    b->matmul_gelu_forward(a.fch_gelu, a.fch, a.ln2, p.fcw, p.fcb, N, C, 4 * C);
}

void gpt2_embed(const GPT2* g, int B, int T, const KVCache* cache) {
    const Backend* b = g->backend;
    const int N = B * T, C = g->config.channels;
    const Params p = params_at(g, 0);
    const Acts a = acts_at(g, 0);
    if (g->eot != NO_DOCUMENTS && !cache) { b->document_bounds(a.starts, a.ends, g->tokens, g->eot, B, T); }
    for (int row = 0, n; row < B; row += n) {
        const size_t first = (size_t)row * (size_t)T;
        const int past = cache ? cache->length[kv_cache_slot(cache, row)] : 0;
        n = cache ? kv_cache_run(cache, row, B) : B;
        b->encoder_forward(residual_at(b, a.residual1, first * (size_t)C), g->tokens + first, p.wte,
                           stored_at(b, p.wpe, (size_t)past * (size_t)C), n, T, C);
    }
    b->layernorm_forward(a.ln1, a.ln1_mean, a.ln1_rstd, a.residual1, p.ln1w, p.ln1b, N, C);
}

// Computes block `l`, and the layernorm that follows it, for the next block or for the classifier.
static void gpt2_layer(const GPT2* g, int l, int B, int T, KVCache* cache) {
    const Backend* b = g->backend;
    const int N = B * T, C = g->config.channels, last = l == g->config.num_layers - 1;
    const Acts a = acts_at(g, l), next = acts_at(g, last ? l : l + 1);
    const Params p = params_at(g, last ? l : l + 1);
    const Params mine = params_at(g, l);
    b->device_range_push("forward of layer", l);
    gpt2_block_forward(g, l, B, T, cache);
    b->matmul_forward(a.proj, a.fch_gelu, mine.fcprojw, mine.fcprojb, N, 4 * C, C);
    if (last) {
        b->residual_layernorm_forward(a.residualf, a.lnf, a.lnf_mean, a.lnf_rstd, a.residual2, a.proj, p.lnfw, p.lnfb,
                                      N, C);
    } else {
        b->residual_layernorm_forward(next.residual1, next.ln1, next.ln1_mean, next.ln1_rstd, a.residual2, a.proj,
                                      p.ln1w, p.ln1b, N, C);
    }
    b->device_range_pop();
}

void gpt2_forward(const GPT2* g, int B, int T, KVCache* cache) {
    gpt2_embed(g, B, T, cache);
    for (int l = 0; l < g->config.num_layers; l++) { gpt2_layer(g, l, B, T, cache); }
    for (int row = 0; cache && row < B; row++) { cache->length[kv_cache_slot(cache, row)] += T; }
}

void gpt2_loss(GPT2* g, int B, int T) {
    const Backend* b = g->backend;
    const GPT2Config* m = &g->config;
    const Params p = params_at(g, 0);
    const Acts a = acts_at(g, 0);
    b->classifier_loss(a.losses, a.logits, a.lnf, p.wte, g->targets, b->classifier_chunk(B * T), B * T, m->channels,
                       m->vocab_size, m->padded_vocab_size);
    b->loss_add(&g->sums[SUM_LOSS], a.losses, B * T);
}

void gpt2_logits(GPT2* g, float* logits, int first, int count) {
    const Backend* b = g->backend;
    const GPT2Config* m = &g->config;
    const Params p = params_at(g, 0);
    const Acts a = acts_at(g, 0);
    const Stored* rows = stored_at(b, a.lnf, (size_t)first * m->channels);
    b->classifier_logits(logits, a.logits, rows, p.wte, b->classifier_chunk(count), count, m->channels,
                         m->vocab_size, m->padded_vocab_size);
}

// ---------------------------------------------------------------------------------------------------------------------
// backward

static void zero_range(const GPT2* g, TensorRange r) {
    g->backend->device_zero(g->grads + r.begin, r.size * sizeof *g->grads);
}

void gpt2_zero_grads(GPT2* g) {
    // all between operands, padding too: a reduce-scatter leaves partial sums there
    for (size_t at = 0; at < g->params_table.size;) {
        const TensorRange operand = tensors_next_operand(&g->params_table, at);
        if (operand.begin > at) { zero_range(g, (TensorRange){at, operand.begin - at}); }
        at = operand.begin + operand.size;
    }
    g->backend->device_zero(g->sums, NUM_SUMS * sizeof(double));
    g->grad_mode = GRADS_SET;
}

// Returns the mode of a backward pass that begins.
static GradMode take_grad_mode(GPT2* g) {
    const GradMode mode = g->grad_mode;
    g->grad_mode = GRADS_ADD;
    return mode;
}

void gpt2_no_backward(GPT2* g) {
    if (take_grad_mode(g) == GRADS_SET) { zero_range(g, (TensorRange){0, g->params_table.size}); }
}

// Computes the gradients of block `l`. d (N,C) holds the gradient of the block's output and receives the gradient of
// its input; dx is d rounded to Stored.
static void gpt2_block_backward(GPT2* g, int l, int B, int T, GradMode mode, Residual* d, Stored* dx) {
    const Backend* b = g->backend;
    const int N = B * T, C = g->config.channels, NH = g->config.num_heads;
    const Params p = params_at(g, l);
    const Grads dp = grads_at(g, l);
    const Acts a = acts_at(g, l);
    b->device_range_push("backward of layer", l);
    if (g->keep == RECOMPUTE_ALL) {
        b->layernorm_forward(a.ln1, a.ln1_mean, a.ln1_rstd, a.residual1, p.ln1w, p.ln1b, N, C);
        gpt2_block_forward(g, l, B, T, NULL);
    } else if (g->keep == RECOMPUTE_GELU) {
        b->gelu_forward(a.fch_gelu, a.fch, (size_t)N * 4 * C);
    }
    b->matmul_gelu_backward(a.dbt4c, dp.fcprojw, dp.fcprojb, dx, a.fch_gelu, a.fch, p.fcprojw, mode, N, 4 * C, C);
    b->matmul_backward(a.dbtc, dp.fcw, dp.fcb, a.dbt4c, a.ln2, p.fcw, mode, N, C, 4 * C);
    b->layernorm_backward(d, dx, dp.ln2w, dp.ln2b, a.dbtc, a.residual2, p.ln2w, a.ln2_mean, a.ln2_rstd, N, C);
    b->matmul_backward(a.dbtc, dp.attprojw, dp.attprojb, dx, a.atty, p.attprojw, mode, N, C, C);
    b->attention_backward(a.dbt4c, a.delta, a.dbtc, a.atty, a.atty_rest, a.lse, a.qkv, gpt2_documents(g, a.starts),
                          gpt2_documents(g, a.ends), B, T, C, NH);
    b->matmul_backward(a.dbtc, dp.qkvw, dp.qkvb, a.dbt4c, a.ln1, p.qkvw, mode, N, C, 3 * C);
    b->layernorm_backward(d, dx, dp.ln1w, dp.ln1b, a.dbtc, a.residual1, p.ln1w, a.ln1_mean, a.ln1_rstd, N, C);
    b->device_range_pop();
}

static void backward_in(GPT2* g, int B, int T, float dloss, GradMode mode, GradsReady ready, void* context) {
    const Backend* b = g->backend;
    const GPT2Config* m = &g->config;
    const int N = B * T, L = m->num_layers, C = m->channels;
    const TensorTable* table = &g->params_table;
    const Params p = params_at(g, 0);
    const Grads dp = grads_at(g, 0);
    const Acts a = acts_at(g, 0);
    Stored* dx = residual_is_stored(b) ? (Stored*)a.dresidual : a.dresidual_stored;
    b->device_range_push("classifier", -1);
    b->classifier_backward(a.losses, a.dbtc, dp.wte, a.logits, a.lnf, p.wte, g->targets, dloss, mode,
                           b->classifier_chunk(N), N, C, m->vocab_size, m->padded_vocab_size);
    b->loss_add(&g->sums[SUM_LOSS], a.losses, N);
    b->device_range_pop();
    b->device_zero(a.dresidual, (size_t)N * C * b->residual_bytes);
    b->layernorm_backward(a.dresidual, dx, dp.lnfw, dp.lnfb, a.dbtc, a.residualf, p.lnfw, a.lnf_mean, a.lnf_rstd, N, C);
    if (ready) { ready(context, g->grads, tensors_range(table, L + 1)); }
    for (int l = L - 1; l >= 0; l--) {
        gpt2_block_backward(g, l, B, T, mode, a.dresidual, dx);
        if (ready) { ready(context, g->grads, tensors_range(table, l + 1)); }
    }
    b->encoder_backward(dp.wte, dp.wpe, a.dresidual, g->tokens, g->order, B, T, C);
    if (ready) { ready(context, g->grads, tensors_range(table, 0)); }
}

void gpt2_backward(GPT2* g, int B, int T, float dloss, GradsReady ready, void* context) {
    backward_in(g, B, T, dloss, take_grad_mode(g), ready, context);
}

// Arguments of a recorded micro-step.
typedef struct {
    GPT2* g;
    int* batch;
    float dloss;
    int B, T;
    GradMode mode;
} MicroStep;

static void micro_step_work(const void* arguments) {
    const MicroStep* s = arguments;
    gpt2_forward(s->g, s->B, s->T, NULL);
    backward_in(s->g, s->B, s->T, s->dloss, s->mode, NULL, NULL);
}

void gpt2_micro_step(GPT2* g, int B, int T, float dloss, GradsReady ready, void* context) {
    const Backend* b = g->backend;
    if (ready || B * T != g->B * g->T) {
        gpt2_forward(g, B, T, NULL);
        gpt2_backward(g, B, T, dloss, ready, context);
        return;
    }
    MicroStep step;
    memset(&step, 0, sizeof step); // its padding too
    step.g = g;
    step.batch = g->tokens;
    step.dloss = dloss;
    step.B = B;
    step.T = T;
    step.mode = take_grad_mode(g);
    const char* name = step.mode == GRADS_SET ? "first micro-step" : "micro-step";
    b->device_replay(&g->micro_step[step.mode], name, micro_step_work, &step, sizeof step);
}

double gpt2_flops_per_token(const GPT2* g, int T) {
    const GPT2Config* m = &g->config;
    return 6.0 * (double)g->params_table.size + 6.0 * m->num_layers * (double)m->channels * T;
}
