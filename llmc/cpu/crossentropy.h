// The classifier: logits, softmax over the first V columns, cross-entropy and both gradients. Rows are done in chunks,
// so that the logits (N,Vp), the largest tensor of a GPT-2, are never held in full.
#pragma once
#include "device.h"
#include "math.h"
#include "matmul.h"
#include <float.h>

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
// fast: softmax begins where the logits are made, block by block of a row (online softmax: Milakov & Gimelshein 2018).
// Not the logits are stored but exp(logit - maximum of the block), so that one multiplication makes the gradient of it
// once maximum and sum of the row are known. For the loss alone nothing is stored.

// Columns of a block. Blocks begin at its multiples whichever thread computes them, so that sums do not depend on it.
enum { SOFTMAX_BLOCK = 96 };
static_assert(COLUMNS % SOFTMAX_BLOCK == 0 && SOFTMAX_BLOCK % NR == 0, "blocks are made of whole tiles");

// In fp16 small exponentials would be denormals, which have few digits.
static const float EXP_SCALE = FLOATX_IS(fp16) ? 0x1p15f : 1.0f;

typedef struct {
    Stored* exps;     // (N,Vp) EXP_SCALE exp(logit - maximum of its block); 0 from column V on. NULL: not wanted
    float* maxima;    // (N,blocks)
    float* sums;      // (N,blocks) of exp(logit - maximum)
    float* at_target; // (N) the target's logit
    const int* targets;
    int V, Vp, blocks;
    bool past_caches; // of exps
} Softmax;

static inline size_t softmax_scratch_bytes(int N, int Vp) {
    return 2 * (size_t)N * ceil_div((size_t)Vp, SOFTMAX_BLOCK) * sizeof(float);
}

// Keeps DOT_LANES maxima side by side: compilers do not vectorize one.
static inline float softmax_block_max(const float x[SOFTMAX_BLOCK]) {
    float best[DOT_LANES] __attribute__((aligned(64)));
    memcpy(best, x, sizeof best);
    #pragma GCC unroll 24
    for (int i = DOT_LANES; i < SOFTMAX_BLOCK; i += DOT_LANES) {
        #pragma omp simd
        for (int j = 0; j < DOT_LANES; j++) { best[j] = x[i + j] > best[j] ? x[i + j] : best[j]; }
    }
#ifdef __AVX512F__
    return _mm512_reduce_max_ps(*(const __m512*)best);
#else
    #pragma GCC unroll 4
    for (int half = DOT_LANES / 2; half > 0; half /= 2) {
        #pragma GCC unroll 8
        for (int j = 0; j < half; j++) { best[j] = best[j + half] > best[j] ? best[j + half] : best[j]; }
    }
    return best[0];
#endif
}

// Sets exps = exp(x - max) and returns their sum.
static inline float softmax_block_exps(float exps[SOFTMAX_BLOCK], const float x[SOFTMAX_BLOCK], float max) {
    DotVec sum = {0};
    #pragma omp simd
    for (int i = 0; i < SOFTMAX_BLOCK; i++) { exps[i] = exp_fast(x[i] - max); }
    for (int i = 0; i < SOFTMAX_BLOCK; i += DOT_LANES) { sum += *(const DotVec*)(exps + i); }
    return dot_lanes(sum);
}

// The epilogue: begins the softmax of a row in columns [col, col + cols); col is a multiple of SOFTMAX_BLOCK.
static inline void finish_softmax(const void* result, size_t row, size_t col, const float* logits, int cols) {
    const Softmax* s = result;
    const int blocks = (int)ceil_div((size_t)cols, SOFTMAX_BLOCK), used = min_int(cols, s->V - (int)col);
    const int target = s->targets[row] - (int)col;
    float *maxima = s->maxima + row * (size_t)s->blocks + col / SOFTMAX_BLOCK;
    float *sums = s->sums + row * (size_t)s->blocks + col / SOFTMAX_BLOCK;
    float padded[COLUMNS], exps[COLUMNS] __attribute__((aligned(64)));
    if (target >= 0 && target < cols) { s->at_target[row] = logits[target]; }
    if (used < blocks * SOFTMAX_BLOCK) {
        for (int i = 0; i < blocks * SOFTMAX_BLOCK; i++) { padded[i] = i < used ? logits[i] : -FLT_MAX; }
        logits = padded;
    }
    for (int j = 0; j < blocks; j++) { maxima[j] = softmax_block_max(logits + j * SOFTMAX_BLOCK); }
    for (int j = 0; j < blocks; j++) {
        const int begin = j * SOFTMAX_BLOCK;
        sums[j] = softmax_block_exps(exps + begin, logits + begin, maxima[j]);
    }
    if (!s->exps) { return; }
    for (int i = 0; i < used; i++) { exps[i] *= EXP_SCALE; }
    for (int i = used > 0 ? used : 0; i < cols; i++) { exps[i] = 0; }
    Stored* out = s->exps + row * (size_t)s->Vp + col;
    if (s->past_caches) { store_row_past_caches(out, exps, cols); }
    else { store_row(out, exps, NULL, cols); }
}

// Returns the loss of row n. If exps are wanted, makes them its gradient, as softmax_row_plain does.
static inline float softmax_end(const Softmax* s, int n, float dloss) {
    float* factors = s->maxima + (size_t)n * (size_t)s->blocks;
    const float *sums = s->sums + (size_t)n * (size_t)s->blocks, at_target = s->at_target[n];
    float max = -INFINITY;
    double sum = 0; // 50257 numbers lose digits in float
    for (int j = 0; j < s->blocks; j++) { max = factors[j] > max ? factors[j] : max; }
    #pragma omp simd
    for (int j = 0; j < s->blocks; j++) { factors[j] = exp_fast(factors[j] - max); }
    for (int j = 0; j < s->blocks; j++) { sum += (double)(sums[j] * factors[j]); }
    const float loss = max + (float)log(sum) - at_target, scale = (float)((double)dloss / sum);
    if (!s->exps) { return loss; }
    Stored* row = s->exps + (size_t)n * (size_t)s->Vp;
    for (int j = 0; j < s->blocks; j++) {
        const float factor = factors[j] * (scale / EXP_SCALE);
        const int end = min_int((j + 1) * SOFTMAX_BLOCK, s->Vp);
        #pragma omp simd
        for (int v = j * SOFTMAX_BLOCK; v < end; v++) { row[v] = to_stored(to_float(row[v]) * factor); }
    }
    row[s->targets[n]] = to_stored(exp_fast(at_target - max) * scale - dloss);
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

static inline void softmax_rows_fast(float* losses, Stored* logits, const Stored* inp, const Stored* weight,
                                     const int* targets, float dloss, int N, int C, int V, int Vp) {
    float* scratch = shared_scratch(softmax_scratch_bytes(N, Vp));
    const int blocks = (int)ceil_div((size_t)Vp, SOFTMAX_BLOCK);
    const Softmax s = {.exps = dloss == 0.0f ? NULL : logits, .maxima = scratch, .sums = scratch + (size_t)N * blocks,
                       .at_target = losses, .targets = targets, .V = V, .Vp = Vp, .blocks = blocks,
                       .past_caches = is_past_caches(N, Vp)};
    if (matmul_forward_is_blocked(N)) {
        softmax_begin_blocked(&s, inp, weight, N, C);
    } else {
        matmul_forward(logits, inp, weight, NULL, N, C, Vp);
        softmax_begin_stored(&s, logits, N);
    }
    #pragma omp parallel for
    for (int n = 0; n < N; n++) { losses[n] = softmax_end(&s, n, dloss); }
}

// ---------------------------------------------------------------------------------------------------------------------
// the operations

// Sets losses (N) of the rows of inp (N,C). If dloss != 0, sets logits (N,Vp) to the gradient of dloss * their sum;
// else they are scratch.
static inline void classifier_rows(float* losses, Stored* logits, const Stored* inp, const Stored* weight,
                                   const int* targets, float dloss, int N, int C, int V, int Vp) {
    if (cpu.kernels == KERNELS_PLAIN) {
        matmul_forward(logits, inp, weight, NULL, N, C, Vp);
        softmax_rows_plain(losses, logits, targets, dloss, N, V, Vp);
    } else {
        softmax_rows_fast(losses, logits, inp, weight, targets, dloss, N, C, V, Vp);
    }
}

// Each chunk reads the weight and its gradient once more, so larger chunks are faster but take more memory: at 124M in
// fp32, 512 rows take 2% longer than 1024, and 256 rows 7%. bf16 gets 1024 rows, because its matmuls may be several
// times as fast, which makes this traffic a larger part. The logits of a chunk take 103 MB in both types.
static inline int classifier_chunk(int C) {
    (void)C;
    return sizeof(Stored) == sizeof(float) ? 512 : 1024;
}

static inline void classifier_loss(float* losses, Stored* logits, const Stored* inp, const Stored* weight,
                                   const int* targets, int chunk, int N, int C, int V, int Vp) {
    for (int n = 0; n < N; n += chunk) {
        const int rows = N - n < chunk ? N - n : chunk;
        classifier_rows(losses + n, logits, inp + (size_t)n * C, weight, targets + n, 0.0f, rows, C, V, Vp);
    }
}

static inline void classifier_backward(float* losses, Stored* dinp, float* dweight, Stored* logits, const Stored* inp,
                                       const Stored* weight, const int* targets, float dloss, int chunk, int N, int C,
                                       int V, int Vp) {
    for (int n = 0; n < N; n += chunk) {
        const int rows = N - n < chunk ? N - n : chunk;
        const Stored* x = inp + (size_t)n * C;
        classifier_rows(losses + n, logits, x, weight, targets + n, dloss, rows, C, V, Vp);
        matmul_backward_inp(dinp + (size_t)n * C, logits, weight, rows, C, Vp);
        matmul_backward_weight(dweight, logits, x, rows, C, Vp);
    }
}

static inline void classifier_logits(float* out, Stored* logits, const Stored* inp, const Stored* weight, int chunk,
                                     int N, int C, int V, int Vp) {
    for (int n = 0; n < N; n += chunk) {
        const int rows = N - n < chunk ? N - n : chunk;
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
