// Muon (Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks") for matrices of one shape: the
// momentum, Newton-Schulz steps that orthogonalize its direction, and the update of the weights.
//
// The matrices of a list are computed many at a time, as stacks in scratch memory (stack_stride): each kernel and each
// matmul is one launch for all of them. A single matrix of GPT-2 124M has too few tiles to fill a large GPU.
//
// No matrix is transposed. If it has more rows than columns, its Gram matrix is X^T X, of the shorter side as well, and
// factors stand on its right: X (b A + c A A) is the transpose of what backend.h writes down.
//
// The direction u is computed twice: once for its norm, and again to be stored, divided by the norm. Gradients and
// momentum are read twice, which costs 4 bytes of an element more than to store u and to read it back would in bf16;
// but a u that is not yet divided leaves fp16's range, and would be rounded twice.
#pragma once
#include "../base/rounding.h"
#include "matmul.cuh"

// Returns how many of a list's matrices are computed at a time, in one stack. Their Gram matrices, outputs of the
// smallest products, then have eight waves of tiles of 128 x 128 on an H100's 132 multiprocessors, or at least half as
// many: more would take memory and gain little. A longer list is cut into stacks of almost equal length.
static constexpr size_t MUON_TILES = 8 * 132, MUON_MATRICES = 64;
static inline int muon_at_a_time(int count, int rows, int cols) {
    if (!count) { return 0; }
    const size_t side = ceil_div((size_t)min_int(rows, cols), 128);
    const size_t most = min_size(ceil_div(MUON_TILES, side * side), MUON_MATRICES);
    return (int)ceil_div((size_t)count, ceil_div((size_t)count, most));
}

// Matrices of a launch, as a kernel parameter.
typedef struct {
    MuonMatrix matrix[MUON_MATRICES];
} MuonStack;
static_assert(sizeof(MuonStack) <= 3 << 10, "the parameters of a kernel may have 4 KB in all");

// The elements of a matrix are divided among blocks in parts, at most MUON_PARTS. How, depends on their number only, so
// that sums over them have the same bits on every GPU.
static constexpr int MUON_PARTS = THREADS_IN_BLOCK; // so each thread of a block adds the sum of one

// ---------------------------------------------------------------------------------------------------------------------
// kernels: block (p,i) has part p of matrix i. A thread takes WIDTH elements at a time; n and `part` are multiples of
// it.

// Returns the direction u of elements i .. i + WIDTH - 1 of a matrix in u, and their new momentum in m.
template <int WIDTH>
static __device__ inline void muon_direction(float (&u)[WIDTH], float (&m)[WIDTH], const MuonMatrix& matrix,
                                             const Muon& hyper, size_t i) {
    const float momentum = hyper.momentum, grad_scale = (float)hyper.grad_scale;
    float grad[WIDTH];
    load_floats(grad, matrix.grads + i);
    load_floats(m, matrix.m + i);
    for (int k = 0; k < WIDTH; k++) {
        const float g = grad_scale * grad[k];
        m[k] = momentum * m[k] + (1.0f - momentum) * g;
        u[k] = (1.0f - momentum) * g + momentum * m[k];
    }
}

// squares (matrices,parts) = the sums of squares of u.
template <int WIDTH>
static __global__ void muon_squares_kernel(double* squares, const MuonStack list, const Muon* hyper, size_t n,
                                           size_t part) {
    const Muon h = *hyper;
    const MuonMatrix& matrix = list.matrix[blockIdx.y];
    const size_t begin = blockIdx.x * part, end = begin + part < n ? begin + part : n;
    double sum = 0;
    for (size_t i = begin + threadIdx.x * WIDTH; i < end; i += blockDim.x * WIDTH) {
        float u[WIDTH], m[WIDTH];
        muon_direction(u, m, matrix, h, i);
        for (int k = 0; k < WIDTH; k++) { sum += (double)u[k] * (double)u[k]; }
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) { squares[blockIdx.y * gridDim.x + blockIdx.x] = sum; }
}

// Updates the momentum; x, a stack, = u / (|u| + 1e-7).
template <int WIDTH>
static __global__ void muon_momentum_kernel(floatX* x, const MuonStack list, const double* squares,
                                            const double* grad_norm_squared, const Muon* hyper, size_t n, size_t part,
                                            size_t stride) {
    const double sum = threadIdx.x < gridDim.x ? squares[blockIdx.y * gridDim.x + threadIdx.x] : 0.0;
    const float scale = 1.0f / ((float)sqrt(block_sum(sum)) + 1e-7f);
    if (!isfinite(*grad_norm_squared)) { return; }
    const Muon h = *hyper;
    const MuonMatrix& matrix = list.matrix[blockIdx.y];
    floatX* const x_matrix = x + blockIdx.y * stride;
    const size_t begin = blockIdx.x * part, end = begin + part < n ? begin + part : n;
    for (size_t i = begin + threadIdx.x * WIDTH; i < end; i += blockDim.x * WIDTH) {
        float u[WIDTH], m[WIDTH];
        muon_direction(u, m, matrix, h, i);
        for (int k = 0; k < WIDTH; k++) { u[k] *= scale; }
        store_floats(matrix.m + i, m);
        store_floats(x_matrix + i, u);
    }
}

// Updates masters and params by the orthogonalized direction x, a stack, times `scale`.
template <int WIDTH>
static __global__ void muon_weights_kernel(const MuonStack list, const floatX* x, const double* grad_norm_squared,
                                           const Muon* hyper, float scale, size_t n, size_t part, size_t stride) {
    const MuonMatrix& matrix = list.matrix[blockIdx.y];
    if (!isfinite(*grad_norm_squared) || !matrix.params) { return; }
    const Muon h = *hyper;
    const bool stochastic = sizeof(floatX) < sizeof(float) && h.rounding_seed != 0;
    const floatX* const x_matrix = x + blockIdx.y * stride;
    const size_t begin = blockIdx.x * part, end = begin + part < n ? begin + part : n;
    for (size_t i = begin + threadIdx.x * WIDTH; i < end; i += blockDim.x * WIDTH) {
        float update[WIDTH], master[WIDTH];
        load_floats(update, x_matrix + i);
        load_floats(master, matrix.masters + i);
        for (int k = 0; k < WIDTH; k++) {
            update[k] *= scale;
            const float decay = h.cautious && update[k] * master[k] < 0 ? 0.0f : h.weight_decay;
            master[k] -= h.lr * (update[k] + decay * master[k]);
        }
        store_floats(matrix.masters + i, master);
        for (int k = 0; stochastic && k < WIDTH; k++) {
            master[k] = rounded_at_random(master[k], h.rounding_seed, h.step, matrix.begin + i + k);
        }
        store_floats((floatX*)matrix.params + i, master);
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// launchers

namespace { // depends on floatX: see device.cuh
// A chunk of a list: its stacks, and how its elements are divided.
struct MuonChunk {
    MuonStack list;
    int count, rows, cols;
    size_t n, part, stride;  // elements of a matrix, of a part, from one matrix to the next
    floatX *x, *next_x;      // (count,rows,cols)
    floatX *gram, *factor;   // (count,side,side): A and B
};
} // namespace

static inline size_t muon_bytes(int count, int rows, int cols) {
    const int side = min_int(rows, cols);
    const size_t elements = 2 * stack_stride(rows, cols) + 2 * stack_stride(side, side);
    return (size_t)muon_at_a_time(count, rows, cols) * elements * sizeof(floatX);
}

static inline MuonChunk muon_chunk(const MuonMatrix* matrices, int count, int rows, int cols, void* scratch) {
    MuonChunk c;
    const int side = min_int(rows, cols);
    memset(&c, 0, sizeof c);
    memcpy(c.list.matrix, matrices, (size_t)count * sizeof *matrices);
    c.count = count;
    c.rows = rows;
    c.cols = cols;
    c.n = (size_t)rows * (size_t)cols;
    c.part = round_up(ceil_div(c.n, MUON_PARTS), THREADS_IN_BLOCK * FLOAT_WIDTH);
    c.stride = stack_stride(rows, cols);
    c.x = (floatX*)scratch;
    c.next_x = c.x + (size_t)count * c.stride;
    c.gram = c.next_x + (size_t)count * c.stride;
    c.factor = c.gram + (size_t)count * stack_stride(side, side);
    return c;
}

static inline bool muon_is_wide(const MuonChunk* c) {
    bool is_wide_everywhere = is_wide<FLOAT_WIDTH>(c->n, c->x);
    for (int i = 0; i < c->count; i++) {
        const MuonMatrix* m = &c->list.matrix[i];
        is_wide_everywhere = is_wide_everywhere &&
                             is_wide<FLOAT_WIDTH>(c->n, (const floatX*)m->params, m->masters, m->m, m->grads);
    }
    return is_wide_everywhere;
}

// Queues out = a @ b for each matrix of the chunk, or with `add` out = scale * a @ b + add_scale * add.
static inline void muon_multiply(const MuonChunk* c, Matmul m, floatX* out, const floatX* add, float scale,
                                 float add_scale) {
    m.batch = c->count;
    m.out = out;
    m.add = add;
    m.scale = scale;
    m.add_scale = add_scale;
    multiply(&m);
}

// Five Newton-Schulz steps on x: singular values from 0.002 to 1 move to 0.68 to 1.20.
static inline void muon_orthogonalize(MuonChunk* c) {
    const int rows = c->rows, cols = c->cols, side = min_int(rows, cols);
    const bool is_tall = rows > cols;
    for (int step = 0; step < MUON_STEPS; step++) {
        Matmul gram = matmul_of(c->x, c->x, side, side, is_tall ? rows : cols); // X^T X or X X^T
        gram.a_transposed = is_tall;
        gram.b_transposed = !is_tall;
        const Matmul square = matmul_of(c->gram, c->gram, side, side, side);
        const Matmul product = is_tall ? matmul_of(c->x, c->factor, rows, cols, side)
                                       : matmul_of(c->factor, c->x, rows, cols, side);
        muon_multiply(c, gram, c->gram, NULL, 1.0f, 0.0f);
        muon_multiply(c, square, c->factor, c->gram, MUON_C, MUON_B);
        muon_multiply(c, product, c->next_x, c->x, 1.0f, MUON_A);
        floatX* last = c->x;
        c->x = c->next_x;
        c->next_x = last;
    }
}

template <int WIDTH>
static inline void muon_chunk_update(MuonChunk* c, const double* grad_norm_squared, const Muon* hyper) {
    double* squares = (double*)gpu.scratch;
    static_assert(MUON_MATRICES * MUON_PARTS * sizeof *squares <= SCRATCH_BYTES, "sums of squares need more scratch");
    const dim3 blocks(blocks_for(c->n, c->part), (unsigned)c->count);
    const float scale = sqrtf(fmaxf(1.0f, (float)c->rows / (float)c->cols));
    muon_squares_kernel<WIDTH><<<blocks, THREADS_IN_BLOCK, 0, gpu.stream>>>(squares, c->list, hyper, c->n, c->part);
    cuda_launched("muon_squares");
    muon_momentum_kernel<WIDTH><<<blocks, THREADS_IN_BLOCK, 0, gpu.stream>>>(
        c->x, c->list, squares, grad_norm_squared, hyper, c->n, c->part, c->stride);
    cuda_launched("muon_momentum");
    muon_orthogonalize(c);
    muon_weights_kernel<WIDTH><<<blocks, THREADS_IN_BLOCK, 0, gpu.stream>>>(c->list, c->x, grad_norm_squared, hyper,
                                                                            scale, c->n, c->part, c->stride);
    cuda_launched("muon_weights");
}

static inline void muon_update(const MuonMatrix* matrices, int count, int rows, int cols,
                               const double* grad_norm_squared, const Muon* hyper, void* scratch) {
    const int at_a_time = muon_at_a_time(count, rows, cols);
    for (int i = 0; i < count; i += at_a_time) {
        MuonChunk chunk = muon_chunk(matrices + i, min_int(at_a_time, count - i), rows, cols, scratch);
        if (muon_is_wide(&chunk)) { muon_chunk_update<FLOAT_WIDTH>(&chunk, grad_norm_squared, hyper); }
        else { muon_chunk_update<1>(&chunk, grad_norm_squared, hyper); }
    }
}
