// The linear layers, by cuBLASLt. Weights lie (out,in), as in PyTorch: out = inp @ weight^T + bias.
//
// With gpu.fused the bias, GELU and the gradients of both are left to the library, which does them while the product
// is still in registers, and so saves the way to memory and back. Every fused form has an unfused one behind it, for
// --fused 0 and for where the library has no algorithm.
#pragma once
#include "../ops.h"
#include "column_sums.cuh"
#include "cublaslt.cuh"
#include "gelu.cuh"
#include "vector.cuh"

// ---------------------------------------------------------------------------------------------------------------------
// kernels

// out (N,OC) += bias (OC). A thread keeps its part of the bias and goes down the rows.
template <int WIDTH>
static __global__ void add_bias_kernel(floatX* out, const floatX* bias, int N, int OC) {
    const size_t o = ((size_t)blockIdx.y * blockDim.x + threadIdx.x) * WIDTH;
    if (o >= (size_t)OC) { return; }
    float b[WIDTH], x[WIDTH];
    load_floats(b, bias + o);
    for (size_t n = (size_t)blockIdx.x * blockDim.y + threadIdx.y; n < (size_t)N; n += (size_t)gridDim.x * blockDim.y) {
        load_floats(x, out + n * OC + o);
        for (int k = 0; k < WIDTH; k++) { x[k] += b[k]; }
        store_floats(out + n * OC + o, x);
    }
}

// sums (n) += x (n), short vectors.
static __global__ void add_vector_kernel(float* sums, const float* x, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { sums[i] += x[i]; }
}

// ---------------------------------------------------------------------------------------------------------------------
// launchers

static inline void add_bias(floatX* out, const floatX* bias, int N, int OC) {
    enum { WIDE = FLOATX_WIDTH, BLOCKS_ON_SM = 16 };
    const dim3 threads(WARP_SIZE, WARPS_IN_BLOCK);
    const unsigned down = (unsigned)min_size(ceil_div(N, WARPS_IN_BLOCK), (size_t)BLOCKS_ON_SM * gpu.num_sms);
    if (is_wide<WIDE>(out, OC) && is_wide<WIDE>(bias, OC)) {
        const dim3 blocks(down, blocks_for(OC, WARP_SIZE * WIDE));
        add_bias_kernel<WIDE><<<blocks, threads, 0, gpu.stream>>>(out, bias, N, OC);
    } else {
        const dim3 blocks(down, blocks_for(OC, WARP_SIZE));
        add_bias_kernel<1><<<blocks, threads, 0, gpu.stream>>>(out, bias, N, OC);
    }
    cuda_launched("add_bias");
}

static inline void add_vector(float* sums, const float* x, int n) {
    add_vector_kernel<<<blocks_for(n, THREADS_IN_BLOCK), THREADS_IN_BLOCK, 0, gpu.stream>>>(sums, x, n);
    cuda_launched("add_vector");
}

// A product with nothing fused into it.
static inline void multiply(const Matmul* m) {
    if (!gpu.plain) {
        if (cublaslt_matmul(m)) { return; }
        static bool is_told;
        if (!is_told) {
            notice(
                "cuBLASLt has no algorithm for a matmul of this shape (%d x %d x %d, the first such): our slow plain "
                "kernel does it",
                m->rows, m->cols, m->depth);
        }
        is_told = true;
    }
    matmul_plain(m);
}

static inline Matmul matmul_of(const floatX* a, const floatX* b, int rows, int cols, int depth) {
    Matmul m;
    memset(&m, 0, sizeof m);
    m.a = a;
    m.b = b;
    m.rows = rows;
    m.cols = cols;
    m.depth = depth;
    return m;
}

// out (N,OC) = inp (N,C) @ weight (OC,C)^T
static inline Matmul forward_product(floatX* out, const floatX* inp, const floatX* weight, int N, int C, int OC) {
    Matmul m = matmul_of(inp, weight, N, OC, C);
    m.b_transposed = true;
    m.out = out;
    return m;
}

// dinp (N,C) = dout (N,OC) @ weight (OC,C)
static inline Matmul backward_inp_product(floatX* dinp, const floatX* dout, const floatX* weight, int N, int C,
                                          int OC) {
    Matmul m = matmul_of(dout, weight, N, C, OC);
    m.out = dinp;
    return m;
}

// dweight (OC,C) += dout (N,OC)^T @ inp (N,C)
static inline Matmul backward_weight_product(float* dweight, const floatX* dout, const floatX* inp, int N, int C,
                                             int OC) {
    Matmul m = matmul_of(dout, inp, OC, C, N);
    m.a_transposed = true;
    m.sum = dweight;
    return m;
}

OP void matmul_forward(floatX* out, const floatX* inp, const floatX* weight, const floatX* bias, int N, int C, int OC) {
    const Matmul simple = forward_product(out, inp, weight, N, C, OC);
    Matmul fused = simple;
    fused.fusion = FUSE_BIAS;
    fused.bias = bias;
    if (bias && gpu.plain) {
        matmul_plain(&fused);
        return;
    }
    if (bias && gpu.fused && cublaslt_matmul(&fused)) { return; }
    multiply(&simple);
    if (bias) { add_bias(out, bias, N, OC); }
}

OP void matmul_gelu_forward(floatX* out, floatX* pre, const floatX* inp, const floatX* weight, const floatX* bias,
                            int N, int C, int OC) {
    Matmul fused = forward_product(out, inp, weight, N, C, OC);
    fused.fusion = FUSE_BIAS_GELU;
    fused.bias = bias;
    fused.pre = pre;
    if (gpu.gelu_forward_fused && cublaslt_matmul(&fused)) { return; }
    matmul_forward(pre, inp, weight, bias, N, C, OC);
    gelu_forward(out, pre, (size_t)N * OC);
}

// dweight (OC,C) += and dbias (OC) +=. Fused, the sums for dbias come with the product, which reads dout anyway. The
// library can only set them, so they wait in scratch memory until they are added: a short vector.
static inline void matmul_backward_weight_bias(float* dweight, float* dbias, const floatX* dout, const floatX* inp,
                                               int N, int C, int OC) {
    const Matmul simple = backward_weight_product(dweight, dout, inp, N, C, OC);
    Matmul fused = simple;
    fused.fusion = FUSE_A_SUMS;
    fused.a_sums = (float*)gpu.scratch;
    if (gpu.fused && OC * sizeof(float) <= SCRATCH_BYTES && cublaslt_matmul(&fused)) {
        add_vector(dbias, fused.a_sums, OC);
        return;
    }
    multiply(&simple);
    add_column_sums(dbias, dout, N, OC);
}

OP void matmul_backward(floatX* dinp, float* dweight, float* dbias, const floatX* dout, const floatX* inp,
                        const floatX* weight, int N, int C, int OC) {
    const Matmul to_inp = backward_inp_product(dinp, dout, weight, N, C, OC);
    multiply(&to_inp);
    matmul_backward_weight_bias(dweight, dbias, dout, inp, N, C, OC);
}

OP void matmul_gelu_backward(floatX* dinp, float* dweight, float* dbias, const floatX* dout, const floatX* inp,
                             const floatX* pre, const floatX* weight, int N, int C, int OC) {
    const Matmul simple = backward_inp_product(dinp, dout, weight, N, C, OC);
    Matmul fused = simple;
    fused.fusion = FUSE_GELU_BACKWARD;
    fused.pre = (floatX*)pre; // only read
    if (!gpu.gelu_backward_fused || !cublaslt_matmul(&fused)) {
        multiply(&simple);
        gelu_backward_inplace(dinp, pre, (size_t)N * C);
    }
    matmul_backward_weight_bias(dweight, dbias, dout, inp, N, C, OC);
}
