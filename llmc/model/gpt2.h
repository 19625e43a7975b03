// GPT-2 (Radford et al. 2019), written once over a `const Backend*`: pre-layernorm blocks, learned positions, tanh
// GELU, biases everywhere but in the classifier, whose weight is the token embedding. No dropout.
//
//   gpt2_layout, gpt2_alloc, gpt2_free     memory
//   gpt2_forward, gpt2_loss, gpt2_logits   forward
//   gpt2_backward, gpt2_micro_step         backward: gradients are accumulated over micro-batches
//
// Functions queue work on the model's device and return; optimizer.h has the update.
#pragma once
#include "backend.h"
#include "../options/models.h"
#include "tensors.h"

// Every parameter: field, once or for each layer, rows, columns, rows in use, initial value, layout and name in a
// Hugging Face file, name in a GGUF file. In the names of a layer's, h.LAYER. or blk.LAYER. comes before this.
// Two-dimensional parameters decay. Sizes, files, reports and views follow from this list. (In memory the vectors of a
// layer come before its matrices: tensors.h.) Matrices of linear layers lie (out, in); Hugging Face's Conv1D has them
// (in, out).
#define GPT2_PARAMS(_)                                                                                              \
    _(wte,      ONCE, Vp,    C,     V,     INIT_NORMAL,   AS_IS,      "wte.weight",         "token_embd.weight")    \
    _(wpe,      ONCE, maxT,  C,     maxT,  INIT_POSITION, AS_IS,      "wpe.weight",         "position_embd.weight") \
    _(ln1w,     EACH, 1,     C,     1,     INIT_ONE,      AS_IS,      "ln_1.weight",        "attn_norm.weight")     \
    _(ln1b,     EACH, 1,     C,     1,     INIT_ZERO,     AS_IS,      "ln_1.bias",          "attn_norm.bias")       \
    _(qkvw,     EACH, 3 * C, C,     3 * C, INIT_NORMAL,   TRANSPOSED, "attn.c_attn.weight", "attn_qkv.weight")      \
    _(qkvb,     EACH, 1,     3 * C, 1,     INIT_ZERO,     AS_IS,      "attn.c_attn.bias",   "attn_qkv.bias")        \
    _(attprojw, EACH, C,     C,     C,     INIT_RESIDUAL, TRANSPOSED, "attn.c_proj.weight", "attn_output.weight")   \
    _(attprojb, EACH, 1,     C,     1,     INIT_ZERO,     AS_IS,      "attn.c_proj.bias",   "attn_output.bias")     \
    _(ln2w,     EACH, 1,     C,     1,     INIT_ONE,      AS_IS,      "ln_2.weight",        "ffn_norm.weight")      \
    _(ln2b,     EACH, 1,     C,     1,     INIT_ZERO,     AS_IS,      "ln_2.bias",          "ffn_norm.bias")        \
    _(fcw,      EACH, 4 * C, C,     4 * C, INIT_NORMAL,   TRANSPOSED, "mlp.c_fc.weight",    "ffn_up.weight")        \
    _(fcb,      EACH, 1,     4 * C, 1,     INIT_ZERO,     AS_IS,      "mlp.c_fc.bias",      "ffn_up.bias")          \
    _(fcprojw,  EACH, C,     4 * C, C,     INIT_RESIDUAL, TRANSPOSED, "mlp.c_proj.weight",  "ffn_down.weight")      \
    _(fcprojb,  EACH, 1,     C,     1,     INIT_ZERO,     AS_IS,      "mlp.c_proj.bias",    "ffn_down.bias")        \
    _(lnfw,     ONCE, 1,     C,     1,     INIT_ONE,      AS_IS,      "ln_f.weight",        "output_norm.weight")   \
    _(lnfb,     ONCE, 1,     C,     1,     INIT_ZERO,     AS_IS,      "ln_f.bias",          "output_norm.bias")

// Every activation: type, field, in memory once for EACH layer or ONCE for all, rows, columns. N = B*T; `chunk` rows of
// logits exist at a time. `residual` is EACH in training; `kept` and `kept_gelu` are EACH in training, unless backward
// computes those activations again (--recompute). `train` is 1, or 0 where nothing is trained: the scratch of backward
// then has no rows. `rounded` is `train`, but 0 where Residual is Stored: dresidual then needs no rounded copy. `rest`
// is `train` after gpt2_keep_rest(), else 0.
#define GPT2_ACTS(_)                                                                                             \
    _(Residual, residual1,        residual,  N,              C)      /* enters the block */                      \
    _(Stored,   ln1,              kept,      N,              C)                                                  \
    _(float,    ln1_mean,         kept,      1,              N)                                                  \
    _(float,    ln1_rstd,         kept,      1,              N)                                                  \
    _(Stored,   qkv,              kept,      N,              3 * C)                                              \
    _(float,    lse,              kept,      (size_t)B * NH, T)                                                  \
    _(Stored,   atty,             kept,      N,              C)                                                  \
    _(Stored,   atty_rest,        kept,      rest * N,       C)      /* what rounding took from atty */          \
    _(Residual, residual2,        kept,      N,              C)      /* between attention and MLP */             \
    _(Stored,   ln2,              kept,      N,              C)                                                  \
    _(float,    ln2_mean,         kept,      1,              N)                                                  \
    _(float,    ln2_rstd,         kept,      1,              N)                                                  \
    _(Stored,   fch,              kept,      N,              4 * C)                                              \
    _(Stored,   fch_gelu,         kept_gelu, N,              4 * C)                                              \
    _(Stored,   proj,             ONCE,      N,              C)      /* added to the stream by a block's half */ \
    _(Residual, residualf,        ONCE,      N,              C)      /* leaves the last block */                 \
    _(Stored,   lnf,              ONCE,      N,              C)                                                  \
    _(float,    lnf_mean,         ONCE,      1,              N)                                                  \
    _(float,    lnf_rstd,         ONCE,      1,              N)                                                  \
    _(Stored,   logits,           ONCE,      chunk,          Vp)     /* scratch of the classifier */             \
    _(float,    losses,           ONCE,      1,              N)                                                  \
    _(int,      starts,           ONCE,      B,              T)      /* of documents (GPT2.eot) */               \
    _(int,      ends,             ONCE,      B,              T)                                                  \
    _(Residual, dresidual,        ONCE,      train * N,      C)                                                  \
    _(Stored,   dresidual_stored, ONCE,      rounded * N,    C)                                                  \
    _(Stored,   dbtc,             ONCE,      train * N,      C)      /* scratch of backward */                   \
    _(Stored,   dbt4c,            ONCE,      train * N,      4 * C)  /* scratch of backward */                   \
    _(float,    delta,            ONCE,      train * B * NH, T)      /* scratch of attention's backward */

#define PARAM_FIELD(field, ...) Stored* field;
#define GRAD_FIELD(field, ...) float* field;
#define ACT_FIELD(type, field, ...) type* field;
typedef struct { GPT2_PARAMS(PARAM_FIELD) } Params;
typedef struct { GPT2_PARAMS(GRAD_FIELD) } Grads;
typedef struct { GPT2_ACTS(ACT_FIELD) } Acts;

// The activations that a model keeps for backward (--recompute); FORWARD_ONLY: there is no backward.
typedef enum { FORWARD_ONLY, KEEP_ALL, RECOMPUTE_GELU, RECOMPUTE_ALL } Keep;

// Called when the gradients of a range of the parameters' layout are final for this step, so that they can be reduced
// over ranks while backward goes on with the layers below.
typedef void (*GradsReady)(void* context, float* grads, TensorRange range);

// Keys and values of sequences that are being generated, in the form that attention_cached reads. Each is in a slot,
// and has a length of its own.
typedef struct {
    Stored* memory;  // device memory, (L,slots,capacity,2,C)
    int slots, capacity;
    int* length;     // (slots) positions that a slot holds
    const int* rows; // slots of the sequences of the next gpt2_forward(); NULL: 0, 1, ... Neighbours of equal length go
                     // through embedding and attention together
} KVCache;

// Sums of a step, in device memory: of the losses, of three votes of the ranks (ranks.c), of the gradient's squares
// (optimizer.c). Those before SUM_NORM are all-reduced, SUM_NORM with ZeRO alone.
enum { SUM_LOSS, SUM_STOP, SUM_SAVE, SUM_SLOW, SUM_NORM, NUM_SUMS };

enum { NO_DOCUMENTS = -1 }; // a GPT2.eot that no token is

typedef struct {
    const Backend* backend;
    GPT2Config config;
    int B, T; // memory is laid out for micro-batches of up to B*T tokens
    Keep keep;
    int eot; // the first token of each document, which attention does not leave; NO_DOCUMENTS after gpt2_layout()
    TensorTable params_table, acts_table;
    // device memory
    Stored* params;
    float* grads;
    char* acts;
    int* batches;                  // two of (3,B,T): one is uploaded while the other one is worked on
    int *tokens, *targets, *order; // (B,T) each, in one of the two
    double* sums;                  // NUM_SUMS
    GradMode grad_mode;            // of the next backward pass
    Recording* micro_step[2];      // for each GradMode
} GPT2;

// ---------------------------------------------------------------------------------------------------------------------
// memory

// A piece of device memory, or of host memory by state_alloc(): its name in the memory report, its size, and the offset
// in bytes of its pointer in the struct that owns it.
typedef struct {
    const char* what;
    size_t bytes, field;
    bool in_host;
} MemoryLine;

// Returns the parameters' layout. Each range of it (tensors_range) can be divided into `shards` equal parts.
TensorTable gpt2_params_table(const GPT2Config* m, int shards);

// Fills the tables and sizes of `g`; allocates nothing. shards: ranks that shard the optimizer's state (ZeRO-1), or 1.
void gpt2_layout(GPT2* g, const Backend* backend, const GPT2Config* config, int B, int T, Keep keep, int shards);

// After gpt2_layout(): keeps what rounding takes from the output of attention too (--attention exact), unless there is
// no backward.
void gpt2_keep_rest(GPT2* g);

// Lists what gpt2_alloc() will allocate, after gpt2_layout().
enum { GPT2_MEMORY_LINES = 5 };
void gpt2_memory(const GPT2* g, MemoryLine line[GPT2_MEMORY_LINES]);

// Allocates after gpt2_layout(); the caller made sure that there is room (plan.h). Everything is zero.
void gpt2_alloc(GPT2* g);
void gpt2_free(GPT2* g);

// Allocates or frees `count` pieces of memory through the pointers in `owner`; size 0 gives NULL.
void memory_lines_alloc(const Backend* b, void* owner, const MemoryLine* line, int count);
void memory_lines_free(const Backend* b, void* owner, const MemoryLine* line, int count);

// Sets n parameters of a model without an optimizer, from element `begin` of the layout on, rounded to Stored. Call
// params_changed() when all are set. (A model that is trained: optimizer_put().)
void gpt2_put(const GPT2* g, size_t begin, const float* host, size_t n);

// A cache for `slots` sequences of up to `capacity` positions; kv_cache_free() frees it.
size_t kv_cache_bytes(const Backend* b, const GPT2Config* m, int slots, int capacity);
KVCache kv_cache_alloc(const GPT2* g, int slots, int capacity);
void kv_cache_free(const GPT2* g, KVCache* cache);

// Queues copying the first `positions` of slot `from` to slot `to`, which then holds nothing else.
void kv_cache_copy(const GPT2* g, KVCache* cache, int to, int from, int positions);

// Return pointers to all tensors of a layer, and to those that exist once.
Params params_at(const GPT2* g, int layer);
Grads grads_at(const GPT2* g, int layer);
Acts acts_at(const GPT2* g, int layer);

// Returns acts.starts or acts.ends as attention takes them: NULL if it does not stop at documents.
static inline const int* gpt2_documents(const GPT2* g, const int* bounds) {
    return g->eot == NO_DOCUMENTS ? NULL : bounds;
}

// Returns the number of ints in the largest batch: tokens, targets and order, B*T each.
size_t gpt2_batch_ints(const GPT2* g);

// Queues the upload of a batch: tokens, targets and order (n each, one behind another, in host_alloc memory that must
// not change until the next upload). Operations called afterwards use this batch.
void gpt2_upload(GPT2* g, const int* batch, size_t n);

// ---------------------------------------------------------------------------------------------------------------------
// forward

// Computes the residual stream that enters block 0, and its layernorm, from g->tokens (B,T). cache: as gpt2_forward's.
// Without one, also finds the documents of these tokens.
void gpt2_embed(const GPT2* g, int B, int T, const KVCache* cache);

// Computes the classifier's input, acts.lnf (B*T,C), from g->tokens (B,T). With a cache (else NULL), the tokens of each
// sequence follow those that its slot holds, and are added to it. B*T is at most what was allocated. With a cache a
// sequence is one document, whatever g->eot is.
void gpt2_forward(const GPT2* g, int B, int T, KVCache* cache);

// After gpt2_forward: adds the losses of g->targets (B,T) to sums[SUM_LOSS].
void gpt2_loss(GPT2* g, int B, int T);

// After gpt2_forward: writes logits (count,V), which lie in device memory, for rows first .. first+count-1 of B*T.
void gpt2_logits(GPT2* g, float* logits, int first, int count);

// ---------------------------------------------------------------------------------------------------------------------
// backward

// Begins a step: zeroes the sums and the gradients, but for those that the next backward pass sets (GradMode).
void gpt2_zero_grads(GPT2* g);

// Ends the micro-batches of a rank without a last one: if no backward pass ran, zeroes what it would have set.
void gpt2_no_backward(GPT2* g);

// After gpt2_forward: adds the gradient of dloss * sum(losses) to grads, or sets it (GradMode), and adds the losses to
// sums[SUM_LOSS]. `ready` (or NULL) is called for each range of gradients that is finished.
void gpt2_backward(GPT2* g, int B, int T, float dloss, GradsReady ready, void* context);

// Forward and backward of the uploaded batch, as gpt2_backward says. A full micro-batch, of any T, whose gradients are
// not reduced is replayed as a CUDA graph.
void gpt2_micro_step(GPT2* g, int B, int T, float dloss, GradsReady ready, void* context);

// Returns the floating-point operations that training takes for a token of a sequence of T. They are counted as in
// llm.c, so that MFU can be compared (Chowdhery et al. 2022, appendix B): two for each parameter forward and four
// backward, positions and padding included; and for attention half of the appendix' 12 L C T, since half of the scores
// are masked.
double gpt2_flops_per_token(const GPT2* g, int T);
