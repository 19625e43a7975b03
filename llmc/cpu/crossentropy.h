// The classifier: logits, softmax over the first V columns, cross-entropy and both gradients. Rows are done in chunks,
// so that the logits (N,Vp), the largest tensor of a GPT-2, are never held in full.
#pragma once
#include "device.h"
#include "matmul.h"
#include "vec.h"

// Returns the loss of one row of logits. If dloss != 0, replaces the logits by their gradient, dloss * (softmax -
// onehot(target)), which is exactly zero in the padding columns V..Vp: padded rows of the embedding never change.
static inline float softmax_row_plain(Stored* row, int target, float dloss, int V, int Vp) {
    float max = -INFINITY, sum = 0;
    for (int v = 0; v < V; v++) { max = fmaxf(max, to_float(row[v])); }
    for (int v = 0; v < V; v++) { sum += expf(to_float(row[v]) - max); }
    const float loss = max + logf(sum) - to_float(row[target]);
    if (dloss == 0.0f) { return loss; }
    for (int v = 0; v < V; v++) {
        const float onehot = v == target ? dloss : 0.0f;
        row[v] = to_stored(expf(to_float(row[v]) - max) * (dloss / sum) - onehot);
    }
    for (int v = V; v < Vp; v++) { row[v] = to_stored(0.0f); }
    return loss;
}

static inline void softmax_rows_plain(float* losses, Stored* logits, const int* targets, float dloss, int rows, int V,
                                      int Vp) {
    #pragma omp parallel for
    for (int n = 0; n < rows; n++) {
        losses[n] = softmax_row_plain(logits + (size_t)n * Vp, targets[n], dloss, V, Vp);
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// fast: softmax begins where the logits are made, block by block of a row. It stores exp(logit - reference), not
// logits. The reference of a row is about the logit of its target, which a dot product gives beforehand, so that the
// row's exponentials add up to about exp(loss). A block with a far larger logit has its maximum for a reference (as in
// online softmax: Milakov & Gimelshein 2018).
//
// The gradient is exps * dloss / sum. The matmuls apply this factor, to rows of dinp and, for dweight, to rows of inp.
// Only fp16, very few rows, and rows with such a block need a pass over exps.

// Columns of a block. Blocks begin at its multiples whichever thread computes them, so that sums do not depend on it.
enum { SOFTMAX_BLOCK = 96 };
static_assert(COLUMNS % SOFTMAX_BLOCK == 0 && SOFTMAX_BLOCK % NR == 0, "blocks are made of whole tiles");

// The most by which a logit may exceed the reference of its row; chosen. exp(40) is 2e17, and V of them 1e22: neither
// they nor dloss / their sum leave the range of fp32 and bf16. fp16: each block has its maximum for a reference.
static const float MAX_EXCESS = FLOATX_IS(fp16) ? -INFINITY : 40.0f;

// In fp16 small exponentials would be denormals, which have few digits.
static const float EXP_SCALE = FLOATX_IS(fp16) ? 0x1p15f : 1.0f;

typedef struct {
    const int* targets;
    int V, Vp, blocks;
    float* row_references; // (N)
    float* references;     // (N,blocks): the row's, or the maximum of the block; softmax_end makes factors of them
    float* sums;           // (N,blocks) of exp(logit - reference)
    float* at_target;      // (N) the target's logit
    Stored* exps;          // (N,Vp) EXP_SCALE exp(logit - reference); 0 from column V on. NULL: not wanted
    bool past_caches;      // of exps
    float* scales;         // (N): rows of exps times these are the gradient; NULL: exps become the gradient
    Stored* scaled_inp;    // (N,C): inp times scales
} Softmax;

// Lays out scratch memory and returns its bytes. If `memory` is NULL, only returns the bytes.
static inline size_t softmax_memory(Softmax* s, char* memory, int N, int C, int Vp) {
    size_t used = 0;
    s->blocks = (int)ceil_div((size_t)Vp, SOFTMAX_BLOCK);
    s->row_references = scratch_part(memory, &used, (size_t)N, sizeof(float));
    s->references = scratch_part(memory, &used, (size_t)N * (size_t)s->blocks, sizeof(float));
    s->sums = scratch_part(memory, &used, (size_t)N * (size_t)s->blocks, sizeof(float));
    s->scales = scratch_part(memory, &used, (size_t)N, sizeof(float));
    s->scaled_inp = scratch_part(memory, &used, (size_t)N * (size_t)C, sizeof(Stored));
    return used;
}

// Returns the maximum of n numbers, a multiple of SOFTMAX_BLOCK.
static inline float softmax_max(const float* x, int n) {
    Vec largest = *(const Vec*)x;
    for (int i = LANES; i < n; i += LANES) { largest = vec_larger(*(const Vec*)(x + i), largest); }
    return vec_max(largest);
}

// Sets exps = exp(x - reference) and returns their sum.
static inline float softmax_block_exps(float exps[SOFTMAX_BLOCK], const float x[SOFTMAX_BLOCK], float reference) {
    Vec sum = {0};
    for (int i = 0; i < SOFTMAX_BLOCK; i += LANES) {
        Vec* v = (Vec*)(exps + i);
        *v = vec_exp(*(const Vec*)(x + i) - reference);
        sum += *v;
    }
    return vec_sum(sum);
}

// The epilogue: begins the softmax of a row in columns [col, col + cols); col is a multiple of SOFTMAX_BLOCK.
static inline void finish_softmax(const void* result, size_t row, size_t col, const float* logits, int cols) {
    const Softmax* s = result;
    const int blocks = (int)ceil_div((size_t)cols, SOFTMAX_BLOCK), used = min_int(cols, s->V - (int)col);
    const int target = s->targets[row] - (int)col;
    const float row_reference = s->row_references[row];
    float *references = s->references + row * (size_t)s->blocks + col / SOFTMAX_BLOCK;
    float *sums = s->sums + row * (size_t)s->blocks + col / SOFTMAX_BLOCK;
    float padded[COLUMNS], exps[COLUMNS] __attribute__((aligned(64)));
    if (target >= 0 && target < cols) { s->at_target[row] = logits[target]; }
    if (used < blocks * SOFTMAX_BLOCK) {
        for (int i = 0; i < COLUMNS; i++) { padded[i] = i < used ? logits[i] : -FLT_MAX; }
        logits = padded;
    }
    const bool exceeds = FLOATX_IS(fp16) || softmax_max(logits, blocks * SOFTMAX_BLOCK) > row_reference + MAX_EXCESS;
    for (int j = 0; j < blocks; j++) {
        const float max = exceeds ? softmax_max(logits + j * SOFTMAX_BLOCK, SOFTMAX_BLOCK) : -INFINITY;
        references[j] = max > row_reference + MAX_EXCESS ? max : row_reference;
    }
    for (int j = 0; j < blocks; j++) {
        const int begin = j * SOFTMAX_BLOCK;
        sums[j] = softmax_block_exps(exps + begin, logits + begin, references[j]);
    }
    if (!s->exps) { return; }
    for (int i = 0; EXP_SCALE != 1.0f && i < used; i++) { exps[i] *= EXP_SCALE; }
    for (int i = used > 0 ? used : 0; i < cols; i++) { exps[i] = 0; }
    Stored* out = s->exps + row * (size_t)s->Vp + col;
    store_row(out, exps, NULL, cols, s->past_caches);
}

// exps = factors[j] * exps in each block j
static inline void softmax_multiply(Stored* exps, const float* factors, int Vp) {
    for (int v = 0; v < Vp; v += SOFTMAX_BLOCK, factors++) {
        const int end = min_int(v + SOFTMAX_BLOCK, Vp);
        if (*factors == 1.0f) { continue; }
        #pragma omp simd
        for (int i = v; i < end; i++) { exps[i] = to_stored(to_float(exps[i]) * *factors); }
    }
}

// Returns the loss of row n. Makes exps, if they are wanted, its gradient, as softmax_row_plain does; or, with scales,
// its gradient / scales[n], and sets that.
static inline float softmax_end(const Softmax* s, int n, float dloss) {
    float* factors = s->references + (size_t)n * (size_t)s->blocks;
    const float *sums = s->sums + (size_t)n * (size_t)s->blocks, at_target = s->at_target[n];
    float max_reference = -INFINITY;
    double sum = 0; // 50257 numbers lose digits in float
    for (int j = 0; j < s->blocks; j++) { max_reference = factors[j] > max_reference ? factors[j] : max_reference; }
    #pragma omp simd
    for (int j = 0; j < s->blocks; j++) { factors[j] = exp_fast(factors[j] - max_reference); }
    #pragma omp simd reduction(+ : sum)
    for (int j = 0; j < s->blocks; j++) { sum += (double)(sums[j] * factors[j]); }
    const float loss = max_reference + (float)log(sum) - at_target;
    if (!s->exps) { return loss; }
    double scale = (double)dloss / sum;
    if (s->scales) {
        s->scales[n] = (float)scale;
        scale = 1;
    }
    for (int j = 0; j < s->blocks; j++) { factors[j] *= (float)scale / EXP_SCALE; }
    Stored* row = s->exps + (size_t)n * (size_t)s->Vp;
    softmax_multiply(row, factors, s->Vp);
    row[s->targets[n]] = to_stored((float)(((double)exp_fast(at_target - max_reference) - sum) * scale));
    return loss;
}

static inline void softmax_begin_blocked(const Softmax* s, const Stored* inp, const Stored* weight, int N, int C) {
    const Matrix a = {inp, (size_t)C, 1}, b = {weight, 1, (size_t)C};
    const Gemm g = {.a = a, .b = b, .packed_b = packed_weight(b, C, s->Vp, N), .M = N, .N = s->Vp, .K = C,
                    .column_unit = SOFTMAX_BLOCK, .finish = finish_softmax, .result = s};
    gemm(&g);
}

// Begins the softmax of logits that are in memory.
static inline void softmax_begin_stored(const Softmax* s, const Stored* logits, int N) {
    #pragma omp parallel for
    for (int n = 0; n < N; n++) {
        for (int v = 0; v < s->Vp; v += COLUMNS) {
            float floats[COLUMNS];
            const int cols = min_int(COLUMNS, s->Vp - v);
            const Stored* x = logits + (size_t)n * s->Vp + v;
            finish_softmax(s, (size_t)n, (size_t)v, dot_floats(floats, x, (size_t)cols), cols);
        }
        past_caches_end();
    }
}

// Returns what softmax_rows_fast needs, in scratch memory. exps may be NULL. scaled: the caller applies scales.
static inline Softmax softmax_open(float* losses, Stored* exps, bool scaled, const int* targets, int N, int C, int V,
                                   int Vp) {
    Softmax s = {.targets = targets, .at_target = losses, .exps = exps, .past_caches = is_past_caches(N, Vp), .V = V,
                 .Vp = Vp};
    softmax_memory(&s, shared_scratch(softmax_memory(&s, NULL, N, C, Vp)), N, C, Vp);
    if (!scaled) { s.scales = NULL; }
    return s;
}

// Sets losses; also exps and scales where these are not NULL. `logits` is scratch; it may be the same memory as exps.
static inline void softmax_rows_fast(float* losses, const Softmax* s, Stored* logits, const Stored* inp,
                                     const Stored* weight, float dloss, int N, int C) {
    if (matmul_forward_is_blocked(N)) {
        #pragma omp parallel for
        for (int n = 0; n < N; n++) {
            s->row_references[n] = dot_row(inp + (size_t)n * C, weight + (size_t)s->targets[n] * C, C);
        }
        softmax_begin_blocked(s, inp, weight, N, C);
    } else {
        matmul_forward(logits, inp, weight, NULL, N, C, s->Vp);
        for (int n = 0; n < N; n++) { s->row_references[n] = to_float(logits[(size_t)n * s->Vp + s->targets[n]]); }
        softmax_begin_stored(s, logits, N);
    }
    #pragma omp parallel for
    for (int n = 0; n < N; n++) { losses[n] = softmax_end(s, n, dloss); }
}

// out (N,C) = rows of inp times scales (N)
static inline void scale_rows(Stored* out, const Stored* inp, const float* scales, int N, int C) {
    #pragma omp parallel for
    for (int n = 0; n < N; n++) {
        for (size_t i = (size_t)n * C; i < (size_t)(n + 1) * C; i++) {
            out[i] = to_stored(to_float(inp[i]) * scales[n]);
        }
    }
}

// Computes the gradients of dinp and dweight from rows of exps and their scales.
static inline void softmax_backward(Stored* dinp, float* dweight, const Softmax* s, const Stored* inp,
                                    const Stored* weight, GradMode mode, int N, int C) {
    const MatmulResult result = {.out = dinp, .scales = s->scales};
    matmul_backward_inp_blocked(result, finish_store_scaled, s->exps, weight, N, C, s->Vp);
    scale_rows(s->scaled_inp, inp, s->scales, N, C);
    matmul_backward_weight(dweight, NULL, s->exps, s->scaled_inp, mode, N, C, s->Vp);
}

// ---------------------------------------------------------------------------------------------------------------------
// the operations

// Each chunk reads the weight and its gradient once more, so larger chunks are faster but take more memory: at 124M in
// fp32, 512 rows take 2% longer than 1024, and 256 rows 7%. bf16 gets 1024 rows, because its matmuls may be several
// times as fast, which makes this traffic a larger part. The logits of a chunk take 103 MB in both types.
static inline int classifier_chunk(int N) {
    return min_int(N, sizeof(Stored) == sizeof(float) ? 512 : 1024);
}

// Sets losses (N) of the rows of inp (N,C). If dloss != 0, sets logits (N,Vp) to the gradient of dloss * their sum;
// else they are scratch. scaled: only the Softmax that is returned has the gradient.
static inline Softmax classifier_rows(float* losses, Stored* logits, const Stored* inp, const Stored* weight,
                                      const int* targets, float dloss, bool scaled, int N, int C, int V, int Vp) {
    Softmax s = {0};
    if (cpu.kernels == KERNELS_PLAIN) {
        matmul_forward(logits, inp, weight, NULL, N, C, Vp);
        softmax_rows_plain(losses, logits, targets, dloss, N, V, Vp);
    } else {
        s = softmax_open(losses, dloss == 0.0f ? NULL : logits, scaled, targets, N, C, V, Vp);
        softmax_rows_fast(losses, &s, logits, inp, weight, dloss, N, C);
    }
    return s;
}

static inline void classifier_loss(float* losses, Stored* logits, const Stored* inp, const Stored* weight,
                                   const int* targets, int chunk, int N, int C, int V, int Vp) {
    for (int n = 0; n < N; n += chunk) {
        const int rows = min_int(chunk, N - n);
        classifier_rows(losses + n, logits, inp + (size_t)n * C, weight, targets + n, 0.0f, false, rows, C, V, Vp);
    }
}

static inline void classifier_backward(float* losses, Stored* dinp, float* dweight, Stored* logits, const Stored* inp,
                                       const Stored* weight, const int* targets, float dloss, GradMode mode, int chunk,
                                       int N, int C, int V, int Vp) {
    for (int n = 0; n < N; n += chunk, mode = GRADS_ADD) {
        const int rows = min_int(chunk, N - n);
        const bool scaled = matmul_is_blocked(rows) && !FLOATX_IS(fp16);
        const Stored* x = inp + (size_t)n * C;
        Stored* dx = dinp + (size_t)n * C;
        const Softmax s = classifier_rows(losses + n, logits, x, weight, targets + n, dloss, scaled, rows, C, V, Vp);
        if (scaled) {
            softmax_backward(dx, dweight, &s, x, weight, mode, rows, C);
        } else {
            matmul_backward_inp(dx, logits, weight, rows, C, Vp);
            matmul_backward_weight(dweight, NULL, logits, x, mode, rows, C, Vp);
        }
    }
}

static inline void classifier_logits(float* out, Stored* logits, const Stored* inp, const Stored* weight, int chunk,
                                     int N, int C, int V, int Vp) {
    for (int n = 0; n < N; n += chunk) {
        const int rows = min_int(chunk, N - n);
        matmul_forward(logits, inp + (size_t)n * C, weight, NULL, rows, C, Vp);
        #pragma omp parallel for if (rows > 1)
        for (int r = 0; r < rows; r++) {
            for (int v = 0; v < V; v++) { out[(size_t)(n + r) * V + v] = to_float(logits[(size_t)r * Vp + v]); }
        }
    }
}

static inline void loss_add(double* total, const float* losses, int N) {
    for (int n = 0; n < N; n++) { *total += (double)losses[n]; }
}
