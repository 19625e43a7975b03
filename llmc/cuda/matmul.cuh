// Linear layers, by cuBLASLt. Weights are (out,in), as in PyTorch: out = inp @ weight^T + bias.
//
// Epilogue fusion: with gpu.fused the library computes the bias, GELU and its gradient while the output is still in
// registers, which saves a pass over memory. Each fused form has an unfused one, for --fused 0 and where the library
// has no algorithm.
#pragma once
#include "column_sums.cuh"
#include "cublaslt.cuh"
#include "fp8.cuh"
#include "gelu.cuh"
#include "vector.cuh"

// ---------------------------------------------------------------------------------------------------------------------
// kernels

// out (N,OC) += bias (OC). A thread keeps its columns of the bias in registers and loops over rows.
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

// ---------------------------------------------------------------------------------------------------------------------
// launchers

static inline void add_bias(floatX* out, const floatX* bias, int N, int OC) {
    constexpr int WIDE = FLOATX_WIDTH, BLOCKS_PER_SM = 16;
    const bool wide = is_wide<WIDE>(OC, out, bias);
    const auto kernel = wide ? add_bias_kernel<WIDE> : add_bias_kernel<1>;
    const unsigned down = (unsigned)min_size(ceil_div(N, WARPS_IN_BLOCK), (size_t)BLOCKS_PER_SM * gpu.num_sms);
    const dim3 blocks(down, blocks_for(OC, WARP_SIZE * (wide ? WIDE : 1))), threads(WARP_SIZE, WARPS_IN_BLOCK);
    kernel<<<blocks, threads, 0, gpu.stream>>>(out, bias, N, OC);
    cuda_launched("add_bias");
}

// Queues a matmul without fusion, by cuBLASLt or by the plain kernel.
static inline void multiply(const Matmul* m) {
    if (!gpu.plain) {
        if (cublaslt_matmul(m)) { return; }
        static bool is_reported;
        if (!is_reported) {
            notice("cuBLASLt has no algorithm for a matmul of %d x %d x %d: the slow plain kernel runs instead, also "
                   "for further such shapes",
                   m->rows, m->cols, m->depth);
        }
        is_reported = true;
    }
    matmul_plain(m);
}

static inline Matmul matmul_of(const floatX* a, const floatX* b, int rows, int cols, int depth) {
    Matmul m;
    memset(&m, 0, sizeof m);
    m.a = a;
    m.b = b;
    m.batch = 1;
    m.rows = rows;
    m.cols = cols;
    m.depth = depth;
    return m;
}

// out (N,OC) = inp (N,C) @ weight (OC,C)^T
static inline Matmul forward_matmul(floatX* out, const floatX* inp, const floatX* weight, int N, int C, int OC) {
    Matmul m = matmul_of(inp, weight, N, OC, C);
    m.b_transposed = true;
    m.out = out;
    return m;
}

// dinp (N,C) = dout (N,OC) @ weight (OC,C)
static inline Matmul backward_inp_matmul(floatX* dinp, const floatX* dout, const floatX* weight, int N, int C,
                                         int OC) {
    Matmul m = matmul_of(dout, weight, N, C, OC);
    m.out = dinp;
    return m;
}

// dweight (OC,C) = or += dout (N,OC)^T @ inp (N,C)
static inline Matmul backward_weight_matmul(float* dweight, const floatX* dout, const floatX* inp, GradMode mode, int N,
                                            int C, int OC) {
    Matmul m = matmul_of(dout, inp, OC, C, N);
    m.a_transposed = true;
    m.sum = dweight;
    m.sum_mode = mode;
    return m;
}

// ---------------------------------------------------------------------------------------------------------------------
// linear layers in FP8 (fp8.cuh): return false where FP8 cannot be used; the caller then computes in floatX

static inline bool is_fp8_multiple(const void* p, int columns) {
    return (uintptr_t)p % FP8_MULTIPLE == 0 && columns % FP8_MULTIPLE == 0;
}

// Returns true if the shapes suit FP8. Reports an unsuitable layer once, but not an unsuitable N: generation computes
// one token at a time, which is no multiple of 16.
static inline bool fp8_supports(const floatX* inp, const floatX* weight, int N, int C, int OC) {
    static bool is_reported;
    const bool fits = is_fp8_multiple(inp, C) && is_fp8_multiple(weight, OC);
    if (!fits && !is_reported) {
        notice("a layer of %d x %d is computed in bf16: FP8 needs multiples of %d", C, OC, FP8_MULTIPLE);
        is_reported = true;
    }
    return fits && N % FP8_MULTIPLE == 0;
}

static inline bool fp8_multiply(const Matmul* m) {
    static bool is_reported;
    if (cublaslt_matmul(m)) { return true; }
    if (!is_reported && m->fusion == FUSE_NOTHING) {
        notice("cuBLASLt has no FP8 algorithm for a matmul of %d x %d x %d: it is computed in bf16, as are further "
               "such shapes",
               m->rows, m->cols, m->depth);
        is_reported = true;
    }
    return false;
}

// Returns `m` with its factors in FP8, both with the depth innermost.
static inline Matmul in_fp8(Matmul m, Storage a_storage, const uint8_t* a, const Fp8Scale* a_scale, const uint8_t* b,
                            const Fp8Scale* b_scale) {
    m.a = a;
    m.b = b;
    m.a_storage = a_storage;
    m.b_storage = AS_E4M3;
    m.a_scale = &a_scale->inverse;
    m.b_scale = &b_scale->inverse;
    m.a_transposed = false;
    m.b_transposed = true;
    return m;
}

static inline bool fp8_matmul_forward(floatX* out, const floatX* inp, const floatX* weight, const floatX* bias, int N,
                                      int C, int OC) {
    if (!gpu.fp8 || !fp8_supports(inp, weight, N, C, OC)) { return false; }
    uint8_t* x = fp8_scratch_of((size_t)N * C);
    Fp8Scale* scale = fp8_scratch.scales;
    const Fp8Weight* w = fp8_weight(weight, OC, C, FP8_ROWS);
    fp8_cast<__NV_E4M3>(x, scale, inp, N, C);
    const Matmul simple = in_fp8(forward_matmul(out, inp, weight, N, C, OC), AS_E4M3, x, scale, w->rows, w->scale);
    Matmul fused = simple;
    fused.fusion = FUSE_BIAS;
    fused.bias = bias;
    if (gpu.fused && fp8_multiply(&fused)) { return true; }
    if (!fp8_multiply(&simple)) { return false; }
    add_bias(out, bias, N, OC);
    return true;
}

// Computes the gradients of inp and weight. The weight's comes last, because it may be added to: if either matmul has
// no algorithm, the caller can still compute both in floatX.
static inline bool fp8_matmul_backward(floatX* dinp, float* dweight, const floatX* dout, const floatX* inp,
                                       const floatX* weight, GradMode mode, int N, int C, int OC) {
    if (!gpu.fp8 || !fp8_supports(inp, weight, N, C, OC)) { return false; }
    uint8_t* d = fp8_scratch_of((size_t)N * (2 * (size_t)OC + C));
    uint8_t* d_transposed = d + (size_t)N * OC;
    uint8_t* x_transposed = d_transposed + (size_t)N * OC;
    Fp8Scale *d_scale = &fp8_scratch.scales[0], *x_scale = &fp8_scratch.scales[1];
    const Fp8Weight* w = fp8_weight(weight, OC, C, FP8_TRANSPOSED);
    fp8_cast_transpose<__NV_E5M2>(d, d_transposed, d_scale, dout, N, OC);
    fp8_cast_transpose<__NV_E4M3>(NULL, x_transposed, x_scale, inp, N, C);
    const Matmul to_inp =
        in_fp8(backward_inp_matmul(dinp, dout, weight, N, C, OC), AS_E5M2, d, d_scale, w->transposed, w->scale);
    const Matmul to_weight = in_fp8(backward_weight_matmul(dweight, dout, inp, mode, N, C, OC), AS_E5M2, d_transposed,
                                    d_scale, x_transposed, x_scale);
    return fp8_multiply(&to_inp) && fp8_multiply(&to_weight);
}

// ---------------------------------------------------------------------------------------------------------------------
// linear layers

// matmul_forward() without FP8; bias may be NULL.
static inline void matmul_forward_floatX(floatX* out, const floatX* inp, const floatX* weight, const floatX* bias,
                                         int N, int C, int OC) {
    const Matmul simple = forward_matmul(out, inp, weight, N, C, OC);
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

static inline void matmul_forward(floatX* out, const floatX* inp, const floatX* weight, const floatX* bias, int N,
                                  int C, int OC) {
    if (!fp8_matmul_forward(out, inp, weight, bias, N, C, OC)) {
        matmul_forward_floatX(out, inp, weight, bias, N, C, OC);
    }
}

static inline void matmul_gelu_forward(floatX* out, floatX* pre, const floatX* inp, const floatX* weight,
                                       const floatX* bias, int N, int C, int OC) {
    if (fp8_matmul_forward(pre, inp, weight, bias, N, C, OC)) {
        gelu_forward(out, pre, (size_t)N * OC);
        return;
    }
    Matmul fused = forward_matmul(out, inp, weight, N, C, OC);
    fused.fusion = FUSE_BIAS_GELU;
    fused.bias = bias;
    fused.pre = pre;
    if (gpu.gelu_fused[PASS_FORWARD] && cublaslt_matmul(&fused)) { return; }
    matmul_forward_floatX(pre, inp, weight, bias, N, C, OC);
    gelu_forward(out, pre, (size_t)N * OC);
}

// pre NULL: there is no GELU before the layer, and dinp is the gradient of inp. cuBLASLt can sum dout for dbias in the
// weight's matmul (EPILOGUE_BGRADB), but a kernel of its own was faster (H200, 124M, 65,536 tokens: 0.554 in place of
// 0.624 ms for 3072 x 768, 0.454 of 0.467 for 768 x 3072).
static inline void matmul_gelu_backward(floatX* dinp, float* dweight, float* dbias, const floatX* dout,
                                        const floatX* inp, const floatX* pre, const floatX* weight, GradMode mode,
                                        int N, int C, int OC) {
    const Matmul to_inp = backward_inp_matmul(dinp, dout, weight, N, C, OC);
    const Matmul to_weight = backward_weight_matmul(dweight, dout, inp, mode, N, C, OC);
    Matmul fused = to_inp;
    fused.fusion = FUSE_GELU_BACKWARD;
    fused.pre = (floatX*)pre; // not written
    const bool is_fp8 = fp8_matmul_backward(dinp, dweight, dout, inp, weight, mode, N, C, OC);
    const bool is_fused = !is_fp8 && pre && gpu.gelu_fused[PASS_BACKWARD] && cublaslt_matmul(&fused);
    if (!is_fp8 && !is_fused) { multiply(&to_inp); }
    if (pre && !is_fused) { gelu_backward_inplace(dinp, pre, (size_t)N * C); }
    if (!is_fp8) { multiply(&to_weight); }
    add_column_sums(dbias, dout, N, OC);
}

static inline void matmul_backward(floatX* dinp, float* dweight, float* dbias, const floatX* dout, const floatX* inp,
                                   const floatX* weight, GradMode mode, int N, int C, int OC) {
    matmul_gelu_backward(dinp, dweight, dbias, dout, inp, NULL, weight, mode, N, C, OC);
}
