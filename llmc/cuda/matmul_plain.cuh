// The description of a matmul, and a plain kernel for it. The kernel is the first rung of the ladder (--kernels plain),
// and runs where cuBLASLt has no algorithm.
//
// Tiling: each block computes a square tile of the output. It loads slices along the depth into shared memory, so that
// an element is read from global memory once per tile (Volkov & Demmel 2008, "Benchmarking GPUs to tune dense linear
// algebra"). Each thread keeps a small square of sums in registers.
#pragma once
#include "device.cuh"

// The epilogue, which cuBLASLt applies to the output before it is stored. The plain kernel supports FUSE_NOTHING and
// FUSE_BIAS only.
typedef enum {
    FUSE_NOTHING,
    FUSE_BIAS,          // + bias
    FUSE_BIAS_GELU,     // + bias, stored in pre; then GELU
    FUSE_GELU_BACKWARD, // * gelu'(pre)
} Fusion;

// Element types of an operand. The plain kernel supports AS_FLOATX only.
typedef enum { AS_FLOATX, AS_E4M3, AS_E5M2 } Storage;

// Returns the elements from one matrix of a stack to the next. All are as aligned as the first: to 16 bytes.
static inline HOST_DEVICE size_t stack_stride(int rows, int cols) {
    const size_t width = 16 / sizeof(floatX);
    return ((size_t)rows * cols + width - 1) / width * width;
}

namespace { // has members of type floatX: see device.cuh
// out (rows,cols) = a (rows,depth) @ b (depth,cols), row-major and dense.
struct Matmul {
    int batch; // matmuls of this shape, at least 1. If there are several, a, b, add and out are stacks (stack_stride)
    int rows, cols, depth;
    const void *a, *b;
    Storage a_storage, b_storage;
    const float *a_scale, *b_scale; // FP8: the elements are multiplied by these; in device memory
    bool a_transposed; // a lies in memory as (depth,rows)
    bool b_transposed; // b lies in memory as (cols,depth)
    floatX* out;       // (rows,cols), set; NULL: the result goes to sum
    float* sum;        // (rows,cols), set or added to
    GradMode sum_mode;
    const floatX* add; // (rows,cols): out = scale * a @ b + add_scale * add; NULL: out = a @ b
    float scale, add_scale;
    Fusion fusion;
    const floatX* bias; // (cols)
    floatX* pre;        // (rows,cols)
};
} // namespace

// A slice is 64 x 16 elements, four for each of the 16 x 16 threads. A thread owns 4 x 4 elements of the output.
static constexpr int TILE = 64, SLICE = 16, OWN = 4, TILE_THREADS = TILE / OWN;
static constexpr int TILE_BLOCKS_PER_SM = 3; // bounds the registers: four would spill
// Rows of a slice are padded in shared memory. This spreads a column over the banks and keeps a thread's four elements
// aligned for 128-bit reads.
static constexpr int SLICE_PADDING = 4;
struct alignas(16) Slice {
    float x[SLICE][TILE + SLICE_PADDING];
};

// slice->x[k][i] = element (from + i, depth_from + k) of a matrix (size,depth); 0 outside of it. A transposed matrix
// lies in memory as (depth,size). Neighbouring threads read neighbouring addresses in both cases.
static __device__ inline void load_slice(Slice* slice, const floatX* matrix, bool transposed, int size, int depth,
                                         size_t from, size_t depth_from) {
    const int thread = threadIdx.y * TILE_THREADS + threadIdx.x;
    for (int at = thread; at < TILE * SLICE; at += TILE_THREADS * TILE_THREADS) {
        const int i = transposed ? at % TILE : at / SLICE, k = transposed ? at / TILE : at % SLICE;
        const size_t row = from + i, col = depth_from + k;
        float x = 0;
        if (row < (size_t)size && col < (size_t)depth) {
            x = to_float(matrix[transposed ? col * size + row : row * depth + col]);
        }
        slice->x[k][i] = x;
    }
}

// Block (x,y,z) computes the tile at row x * TILE and column y * TILE of matmul z. Rows are x, because a grid may be
// long in x only.
static __global__ void __launch_bounds__(TILE_THREADS * TILE_THREADS, TILE_BLOCKS_PER_SM)
matmul_plain_kernel(Matmul m) {
    __shared__ Slice a, b;
    const size_t tile_row = (size_t)blockIdx.x * TILE, tile_col = (size_t)blockIdx.y * TILE, z = blockIdx.z;
    const floatX* const a_matrix = (const floatX*)m.a + z * stack_stride(m.rows, m.depth);
    const floatX* const b_matrix = (const floatX*)m.b + z * stack_stride(m.depth, m.cols);
    const size_t out_matrix = z * stack_stride(m.rows, m.cols);
    float sums[OWN][OWN] = {{0}};
    for (size_t k = 0; k < (size_t)m.depth; k += SLICE) {
        load_slice(&a, a_matrix, m.a_transposed, m.rows, m.depth, tile_row, k);
        load_slice(&b, b_matrix, !m.b_transposed, m.cols, m.depth, tile_col, k);
        __syncthreads();
        for (int s = 0; s < SLICE; s++) {
            float x[OWN], y[OWN];
            for (int i = 0; i < OWN; i++) { x[i] = a.x[s][threadIdx.y * OWN + i]; }
            for (int j = 0; j < OWN; j++) { y[j] = b.x[s][threadIdx.x * OWN + j]; }
            for (int i = 0; i < OWN; i++) {
                for (int j = 0; j < OWN; j++) { sums[i][j] += x[i] * y[j]; }
            }
        }
        __syncthreads();
    }
    for (int i = 0; i < OWN; i++) {
        const size_t row = tile_row + threadIdx.y * OWN + i;
        for (int j = 0; j < OWN; j++) {
            const size_t col = tile_col + threadIdx.x * OWN + j, at = row * m.cols + col;
            if (row >= (size_t)m.rows || col >= (size_t)m.cols) { continue; }
            const float x = m.bias  ? sums[i][j] + to_float(m.bias[col])
                            : m.add ? m.scale * sums[i][j] + m.add_scale * to_float(m.add[out_matrix + at])
                                    : sums[i][j];
            if (m.out) {
                m.out[out_matrix + at] = to_floatX(x);
            } else {
                m.sum[at] = m.sum_mode == GRADS_SET ? x : m.sum[at] + x;
            }
        }
    }
}

static inline void matmul_plain(const Matmul* m) {
    const dim3 blocks((unsigned)ceil_div(m->rows, TILE), (unsigned)ceil_div(m->cols, TILE), (unsigned)m->batch);
    matmul_plain_kernel<<<blocks, dim3(TILE_THREADS, TILE_THREADS), 0, gpu.stream>>>(*m);
    cuda_launched("matmul_plain");
}
