// Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/), one matrix after another: momentum, five steps
// of the Newton-Schulz iteration that makes the update nearly orthogonal, and the new weights. backend.h has the
// formulas.
//
// All products are one function, out = add * addend + mul * (a @ b): first plain loops, then the blocked matmul of
// gemm.h. X X^T and A A are symmetric: their blocks above the diagonal are copied from those below.
#pragma once
#include "gemm.h"
#include "norm.h"

// ---------------------------------------------------------------------------------------------------------------------
// products

typedef struct {
    Stored* out;          // (M,N)
    const Stored* addend; // (M,N), or NULL
    float add, mul;
    Matrix a, b;          // (M,K), (K,N)
    int M, N, K;
    bool is_symmetric;    // out (M,M)
} MuonProduct;

// The epilogue of gemm.h: stores `cols` elements of a row of p->out.
static inline void muon_finish(const void* product, size_t row, size_t col, const float* sums, int cols) {
    const MuonProduct* p = product;
    const size_t width = (size_t)p->N;
    Stored* out = p->out + row * width + col;
    const Stored* addend = p->addend ? p->addend + row * width + col : NULL;
    for (int c = 0; c < cols; c++) {
        const float added = addend ? p->add * to_float(addend[c]) : 0.0f;
        out[c] = to_stored(added + p->mul * sums[c]);
    }
}

// The same where p->out is symmetric: elements below the diagonal are stored above it too.
static inline void muon_finish_symmetric(const void* product, size_t row, size_t col, const float* sums, int cols) {
    const MuonProduct* p = product;
    const size_t width = (size_t)p->N;
    muon_finish(product, row, col, sums, cols);
    for (size_t c = col; c < min_size(col + (size_t)cols, row); c++) {
        p->out[c * width + row] = p->out[row * width + c];
    }
}

static inline void muon_product_plain(const MuonProduct* p) {
    enum { BLOCK = 64 };
    #pragma omp parallel for
    for (int i = 0; i < p->M; i++) {
        for (int begin = 0; begin < p->N; begin += BLOCK) {
            const int width = min_int(BLOCK, p->N - begin);
            float sum[BLOCK] = {0};
            for (int k = 0; k < p->K; k++) {
                const float x = to_float(p->a.x[(size_t)i * p->a.row + (size_t)k * p->a.col]);
                const Stored* y = p->b.x + (size_t)k * p->b.row + (size_t)begin * p->b.col;
                for (int j = 0; j < width; j++) { sum[j] += x * to_float(y[(size_t)j * p->b.col]); }
            }
            muon_finish(p, (size_t)i, (size_t)begin, sum, width);
        }
    }
}

// Computes the blocks on and below the diagonal, each in one thread. Smaller blocks for more threads; how an element is
// summed does not depend on them.
static inline void gemm_symmetric(const Gemm* g) {
    enum { LARGEST = 384, SMALLEST = 96 };
    int block = LARGEST, pieces = 0;
    for (;; block /= 2) {
        pieces = (int)ceil_div((size_t)g->M, (size_t)block);
        if (block / 2 < SMALLEST || pieces * (pieces + 1) / 2 >= 4 * cpu.threads) { break; }
    }
    #pragma omp parallel for schedule(dynamic)
    for (int task = 0; task < pieces * (pieces + 1) / 2; task++) {
        int y = 0, x = task; // row y of the triangle has y + 1 blocks
        while (x > y) { x -= ++y; }
        const Range all = {0, g->M};
        gemm_rectangle(g, range_piece(all, 1, pieces, y), range_piece(all, 1, pieces, x));
    }
}

static inline void muon_product(const MuonProduct* p) {
    if (cpu.kernels == KERNELS_PLAIN) {
        muon_product_plain(p);
        return;
    }
    const Gemm g = {.a = p->a, .b = p->b, .M = p->M, .N = p->N, .K = p->K,
                    .finish = p->is_symmetric ? muon_finish_symmetric : muon_finish, .result = p,
                    .reads = {p->addend, sizeof(Stored)}};
    if (p->is_symmetric) { gemm_symmetric(&g); }
    else { gemm(&g); }
}

// ---------------------------------------------------------------------------------------------------------------------
// one matrix

// Memory of one matrix: X (m,n) with m <= n, its successor, and A and B (m,m).
typedef struct {
    int m, n;
    bool transposed; // X is the transposed update
    Stored *x, *next, *a, *b;
} MuonScratch;

// Lays out the memory of a matrix and returns its bytes. If `memory` is NULL, only returns the bytes.
static inline size_t muon_memory(MuonScratch* s, char* memory, int rows, int cols) {
    size_t used = 0;
    *s = (MuonScratch){.m = min_int(rows, cols), .n = max_int(rows, cols), .transposed = rows > cols};
    const size_t of_x = (size_t)s->m * (size_t)s->n, of_a = (size_t)s->m * (size_t)s->m;
    s->x = scratch_part(memory, &used, of_x, sizeof(Stored));
    s->next = scratch_part(memory, &used, of_x, sizeof(Stored));
    s->a = scratch_part(memory, &used, of_a, sizeof(Stored));
    s->b = scratch_part(memory, &used, of_a, sizeof(Stored));
    return used;
}

// Matrices are taken in turn, so their number does not matter.
static inline size_t muon_bytes(int count, int rows, int cols) {
    MuonScratch s;
    return count > 0 ? muon_memory(&s, NULL, rows, cols) : 0;
}
static inline int muon_at_a_time(int count, int rows, int cols) {
    (void)rows, (void)cols;
    return min_int(count, 1);
}

// Element i of the Nesterov update, from the new momentum.
static inline float muon_direction(const MuonMatrix* w, size_t i, float scale, float momentum) {
    return (1.0f - momentum) * (scale * w->grads[i]) + momentum * w->m[i];
}

// Updates the momentum. Returns the norm of the update: with a fixed number of partial sums, as in norm.h.
static inline float muon_momentum(const MuonMatrix* w, size_t n, float scale, float momentum) {
    double parts[NORM_PARTS], sum = 0;
    const size_t part = ceil_div(n, NORM_PARTS);
    #pragma omp parallel for
    for (int p = 0; p < NORM_PARTS; p++) {
        const size_t begin = min_size(n, (size_t)p * part), end = min_size(n, begin + part);
        double squares = 0;
        #pragma omp simd reduction(+ : squares)
        for (size_t i = begin; i < end; i++) {
            w->m[i] = momentum * w->m[i] + (1.0f - momentum) * (scale * w->grads[i]);
            const double u = (double)muon_direction(w, i, scale, momentum);
            squares += u * u;
        }
        parts[p] = squares;
    }
    for (int p = 0; p < NORM_PARTS; p++) { sum += parts[p]; }
    return (float)sqrt(sum);
}

// The side of square blocks in which a matrix and its transposed are read and written together: 32 rows of 32 floats
// stay in L1.
enum { MUON_BLOCK = 32 };

// Runs `statement` for each element i = r * cols + c of a matrix, whose place in s->x is `at`.
#define MUON_EACH(s, rows, cols, statement)                                                                        \
    _Pragma("omp parallel for")                                                                                    \
    for (int r0 = 0; r0 < (rows); r0 += MUON_BLOCK) {                                                              \
        for (int c0 = 0; c0 < (cols); c0 += MUON_BLOCK) {                                                          \
            for (int r = r0; r < min_int(r0 + MUON_BLOCK, (rows)); r++) {                                          \
                for (int c = c0; c < min_int(c0 + MUON_BLOCK, (cols)); c++) {                                      \
                    const size_t i = (size_t)r * (size_t)(cols) + (size_t)c;                                       \
                    const size_t at = (s)->transposed ? (size_t)c * (size_t)(rows) + (size_t)r : i;                \
                    statement;                                                                                     \
                }                                                                                                  \
            }                                                                                                      \
        }                                                                                                          \
    }

// Moves the singular values of s->x near 1.
static inline void newton_schulz(MuonScratch* s) {
    const size_t m = (size_t)s->m, n = (size_t)s->n;
    for (int step = 0; step < MUON_STEPS; step++) {
        const MuonProduct a = {.out = s->a, .mul = 1, .a = {s->x, n, 1}, .b = {s->x, 1, n},
                               .M = s->m, .N = s->m, .K = s->n, .is_symmetric = true};
        const MuonProduct b = {.out = s->b, .addend = s->a, .add = MUON_B, .mul = MUON_C, .a = {s->a, m, 1},
                               .b = {s->a, m, 1}, .M = s->m, .N = s->m, .K = s->m, .is_symmetric = true};
        const MuonProduct x = {.out = s->next, .addend = s->x, .add = MUON_A, .mul = 1, .a = {s->b, m, 1},
                               .b = {s->x, n, 1}, .M = s->m, .N = s->n, .K = s->m};
        muon_product(&a);
        muon_product(&b);
        muon_product(&x);
        Stored* const last = s->x;
        s->x = s->next;
        s->next = last;
    }
}

// Sets the new master and parameter of element i; `update` is its element of the orthogonal matrix, scaled.
static inline void muon_element(const MuonMatrix* w, size_t i, float update, const Muon* h) {
    const float master = w->masters[i];
    const float decay = h->cautious && update * master < 0 ? 0.0f : h->weight_decay;
    const float changed = master - h->lr * (update + decay * master);
    w->masters[i] = changed;
    if (sizeof(Stored) == sizeof(float) || h->rounding_seed == 0) {
        w->params[i] = to_stored(changed);
    } else {
        w->params[i] = to_stored(rounded_at_random(changed, h->rounding_seed, h->step, w->begin + i));
    }
}

static inline void muon_update(const MuonMatrix* matrices, int count, int rows, int cols,
                               const double* grad_norm_squared, const Muon* hyper, void* scratch) {
    const Muon h = *hyper;
    if (!isfinite(sqrt(*grad_norm_squared) * h.grad_scale)) { return; }
    const float fan = sqrtf(fmaxf(1.0f, (float)rows / (float)cols)), scale = (float)h.grad_scale;
    for (int k = 0; k < count; k++) {
        const MuonMatrix* w = &matrices[k];
        MuonScratch s;
        muon_memory(&s, scratch, rows, cols);
        const float norm = muon_momentum(w, (size_t)rows * (size_t)cols, scale, h.momentum);
        const float inverse = 1.0f / (norm + 1e-7f);
        MUON_EACH(&s, rows, cols, s.x[at] = to_stored(inverse * muon_direction(w, i, scale, h.momentum)))
        newton_schulz(&s);
        if (!w->params) { continue; }
        MUON_EACH(&s, rows, cols, muon_element(w, i, fan * to_float(s.x[at]), &h))
    }
}
