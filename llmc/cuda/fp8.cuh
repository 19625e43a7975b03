// Casts to 8-bit floats, for --dtype fp8 (compute capability 8.9 and later). The matmuls of the transformer blocks read
// FP8 and sum in fp32; everything else, storage included, is as with bf16. Activations and weights are in E4M3 (3 bits
// of mantissa, up to 448), gradients in E5M2 (2 bits, up to 57344): Micikevicius et al. 2022, "FP8 Formats for Deep
// Learning".
//
//   out (N,OC)     = inp (N,C)       @ weight (OC,C)^T     E4M3, E4M3
//   dinp (N,C)     = dout (N,OC)     @ weight^T (C,OC)^T   E5M2, E4M3
//   dweight (OC,C) = or += dout^T (OC,N) @ inp^T (C,N)^T    E5M2, E4M3
//
// cuBLASLt on Ada and Hopper takes FP8 factors only with the depth innermost and sizes that are multiples of 16.
// Backward therefore needs transposed copies, which the cast writes in the same pass.
//
// Scaling: each tensor has one scale, which brings its largest magnitude, amax, to just below the format's largest
// number, so that nothing saturates. A pass over the tensor finds amax before the cast ("current scaling"). The
// alternative, the amax of earlier steps ("delayed scaling"), saves that pass, which is 46 C of the 124 C bytes below.
// But it makes a step depend on a history: a resumed run would have to restore the history, recomputed activations
// would change it, and a sudden outlier would saturate. Scales are powers of two: multiplying by them is exact, so how
// a number is rounded does not depend on the rest of its tensor (except for the smallest numbers). If a tensor is not
// finite, its scale is NaN, and all outputs of its matmul are NaN too: the loss then shows an infinity that the formats
// could hide.
//
// Cost, in bytes per element: forward 2 for amax and 2 + 1 for the cast of inp; backward 2 + 2 + 2 for dout and
// 2 + 2 + 1 for inp; weights 6 once per update. For the four layers of a block these are 124 C bytes per token, against
// 72 C^2 operations. Measured (dev/ladder.md): a step of GPT-2 124M (C = 768) takes 6% longer than in bf16 on an H100,
// and as long on an H200; 1558M (C = 1600) gains 15% and 21%. It would be cheaper if the kernel that writes a tensor
// also computed its amax and cast.
#pragma once
#include "../model/tensors.h"
#include "vector.cuh"
#include <cuda_fp8.h>

typedef __nv_fp8_interpretation_t Fp8Format; // __NV_E4M3 or __NV_E5M2

// cuBLASLt needs rows, columns and addresses of FP8 matrices to be multiples of this many bytes.
static constexpr int FP8_MULTIPLE = 16;

// Scale of a tensor, in device memory.
struct alignas(16) Fp8Scale {
    float inverse; // the FP8 numbers times this are the tensor
    uint32_t amax; // the largest magnitude: the bits of a float
};

// ---------------------------------------------------------------------------------------------------------------------
// kernels: a thread reads or converts FP8_WIDTH elements at a time

static constexpr int FP8_WIDTH = 8;

// Raises scale->amax, which must be 0 before, to the largest |x|. Magnitudes are compared by their bits, which places
// infinity and NaN above all numbers. A maximum does not depend on the order of the atomic operations.
static __global__ void fp8_amax_kernel(Fp8Scale* scale, const floatX* x, size_t n) {
    const size_t stride = (size_t)gridDim.x * blockDim.x * FP8_WIDTH;
    uint32_t most = 0;
    #pragma unroll 2 // keeps several loads in flight
    for (size_t i = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * FP8_WIDTH; i < n; i += stride) {
        float value[FP8_WIDTH];
        load_floats(value, x + i);
        for (int k = 0; k < FP8_WIDTH; k++) { most = max(most, __float_as_uint(value[k]) & 0x7fffffffu); }
    }
    most = block_reduce(most, 0u, [](uint32_t a, uint32_t b) { return max(a, b); });
    if (threadIdx.x == 0) { atomicMax(&scale->amax, most); }
}

// Returns the largest power of two that keeps amax within the format's largest number, 1.75 * 2^top; NaN if amax is not
// finite. The exponent is limited so that the inverse is a normal number: an amax below about 2^-118 in E4M3, or 2^-111
// in E5M2, does not reach the upper end of the format.
template <Fp8Format FORMAT> static __device__ inline float fp8_scale(uint32_t amax) {
    const int top = FORMAT == __NV_E4M3 ? 8 : 15, bias = 127, most = 126;
    const uint32_t infinity = 0x7f800000, mantissa = 0x007fffff, three_quarters = 0x00600000;
    if (amax >= infinity) { return __uint_as_float(infinity | mantissa); }
    const int exponent = top - ((int)(amax >> 23) - bias) - ((amax & mantissa) > three_quarters);
    return __uint_as_float((uint32_t)(min(exponent, most) + bias) << 23);
}

template <Fp8Format FORMAT>
static __device__ inline void fp8_convert(uint8_t (&out)[FP8_WIDTH], const floatX* x, float scale) {
    float value[FP8_WIDTH];
    load_floats(value, x);
    for (int k = 0; k < FP8_WIDTH; k += 2) {
        const float2 two = make_float2(value[k] * scale, value[k + 1] * scale);
        const __nv_fp8x2_storage_t bits = __nv_cvt_float2_to_fp8x2(two, __NV_SATFINITE, FORMAT);
        memcpy(out + k, &bits, sizeof bits);
    }
}
static __device__ inline void fp8_store(uint8_t* p, const uint8_t (&bytes)[FP8_WIDTH]) {
    uint2 word;
    memcpy(&word, bytes, sizeof word);
    *(uint2*)p = word;
}

// out (n) = x * scale
template <Fp8Format FORMAT>
static __global__ void fp8_cast_kernel(uint8_t* out, Fp8Scale* scale, const floatX* x, size_t n) {
    const size_t i = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * FP8_WIDTH;
    const float factor = fp8_scale<FORMAT>(scale->amax);
    if (i == 0) { scale->inverse = 1.0f / factor; }
    if (i >= n) { return; }
    uint8_t bytes[FP8_WIDTH];
    fp8_convert<FORMAT>(bytes, x + i, factor);
    fp8_store(out + i, bytes);
}

// A block casts a tile of 128 x 64, a warp 16 rows of it, a thread FP8_OWN_ROWS rows of FP8_WIDTH columns.
static constexpr int FP8_OWN_ROWS = 4, FP8_TILE_ROWS = FP8_OWN_ROWS * WARP_SIZE, FP8_TILE_COLS = 64;

// transposed (C,N) = x (N,C) * scale; with KEEP_ROWS also rows (N,C) = x * scale. A word of shared memory holds four
// rows of a column. The words of a column are rotated by four for every FP8_WIDTH columns. This avoids bank conflicts
// both when a warp writes (4 words of 8 columns) and when it reads (a column).
template <Fp8Format FORMAT, bool KEEP_ROWS>
static __global__ void __launch_bounds__(THREADS_IN_BLOCK)
fp8_cast_transpose_kernel(uint8_t* rows, uint8_t* transposed, Fp8Scale* scale, const floatX* x, size_t N, size_t C) {
    enum { COLUMN_THREADS = FP8_TILE_COLS / FP8_WIDTH };
    __shared__ uint32_t tile[FP8_TILE_COLS][WARP_SIZE];
    const int lane = threadIdx.x % WARP_SIZE, warp = threadIdx.x / WARP_SIZE;
    const int group = threadIdx.x % COLUMN_THREADS, word = threadIdx.x / COLUMN_THREADS;
    const size_t first_row = (size_t)blockIdx.x * FP8_TILE_ROWS, first_col = (size_t)blockIdx.y * FP8_TILE_COLS;
    const size_t row = first_row + word * FP8_OWN_ROWS, col = first_col + group * FP8_WIDTH;
    const float factor = fp8_scale<FORMAT>(scale->amax);
    if (row == 0 && col == 0) { scale->inverse = 1.0f / factor; }
    if (row < N && col < C) {
        uint8_t bytes[FP8_OWN_ROWS][FP8_WIDTH];
        #pragma unroll
        for (int r = 0; r < FP8_OWN_ROWS; r++) {
            fp8_convert<FORMAT>(bytes[r], x + (row + r) * C + col, factor);
            if (KEEP_ROWS) { fp8_store(rows + (row + r) * C + col, bytes[r]); }
        }
        #pragma unroll
        for (int k = 0; k < FP8_WIDTH; k++) {
            uint32_t four = 0;
            #pragma unroll
            for (int r = 0; r < FP8_OWN_ROWS; r++) { four |= (uint32_t)bytes[r][k] << (8 * r); }
            tile[group * FP8_WIDTH + k][(word + 4 * group) % WARP_SIZE] = four;
        }
    }
    __syncthreads();
    const size_t out_row = first_row + lane * FP8_OWN_ROWS;
    for (int c = warp; c < FP8_TILE_COLS; c += WARPS_IN_BLOCK) {
        if (first_col + c >= C || out_row >= N) { continue; }
        *(uint32_t*)(transposed + (first_col + c) * N + out_row) = tile[c][(lane + 4 * (c / FP8_WIDTH)) % WARP_SIZE];
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// launchers: x (N,C), where N, C and all addresses are multiples of FP8_MULTIPLE

// Sets scale->amax, which the casts read.
static inline void fp8_amax(Fp8Scale* scale, const floatX* x, size_t n) {
    enum { BLOCKS_PER_SM = 8 };
    const size_t blocks = min_size(ceil_div(n, THREADS_IN_BLOCK * FP8_WIDTH), (size_t)BLOCKS_PER_SM * gpu.num_sms);
    device_zero(scale, sizeof *scale);
    fp8_amax_kernel<<<(unsigned)blocks, THREADS_IN_BLOCK, 0, gpu.stream>>>(scale, x, n);
    cuda_launched("fp8_amax");
}

template <Fp8Format FORMAT>
static inline void fp8_cast(uint8_t* out, Fp8Scale* scale, const floatX* x, size_t N, size_t C) {
    fp8_amax(scale, x, N * C);
    const unsigned blocks = blocks_for(N * C, THREADS_IN_BLOCK * FP8_WIDTH);
    fp8_cast_kernel<FORMAT><<<blocks, THREADS_IN_BLOCK, 0, gpu.stream>>>(out, scale, x, N * C);
    cuda_launched("fp8_cast");
}

// rows NULL: only the transpose is written.
template <Fp8Format FORMAT>
static inline void fp8_cast_transpose(uint8_t* rows, uint8_t* transposed, Fp8Scale* scale, const floatX* x, size_t N,
                                      size_t C) {
    fp8_amax(scale, x, N * C);
    const dim3 blocks(blocks_for(N, FP8_TILE_ROWS), blocks_for(C, FP8_TILE_COLS));
    const auto kernel = rows ? fp8_cast_transpose_kernel<FORMAT, true> : fp8_cast_transpose_kernel<FORMAT, false>;
    kernel<<<blocks, THREADS_IN_BLOCK, 0, gpu.stream>>>(rows, transposed, scale, x, N, C);
    cuda_launched("fp8_cast_transpose");
}

// ---------------------------------------------------------------------------------------------------------------------
// memory: allocated at first use, in the first forward and backward of a run. Later steps allocate nothing and queue
// the same work every time.

static constexpr int FP8_SCALES = 2;
static struct {
    uint8_t* memory; // activations, valid from one launch to the next
    size_t bytes;
    Fp8Scale* scales; // FP8_SCALES, those of the activations
} fp8_scratch;

static inline uint8_t* fp8_scratch_of(size_t bytes) {
    if (!fp8_scratch.scales) {
        fp8_scratch.scales = (Fp8Scale*)device_alloc(FP8_SCALES * sizeof(Fp8Scale), "scales of FP8");
    }
    if (bytes > fp8_scratch.bytes) {
        if (fp8_scratch.memory) { device_free(fp8_scratch.memory, fp8_scratch.bytes); }
        fp8_scratch.memory = (uint8_t*)device_alloc(bytes, "activations in FP8");
        fp8_scratch.bytes = bytes;
    }
    return fp8_scratch.memory;
}

namespace { // has a member of type floatX: see device.cuh
// A weight (OC,C) cast to E4M3, cached from one update of the parameters to the next. Found by its address and shape.
struct Fp8Weight {
    const floatX* weight;
    size_t OC, C;
    uint8_t *rows, *transposed; // (OC,C); (C,OC), or NULL before the first backward
    Fp8Scale* scale;            // stored behind the rows
};
} // namespace

static struct {
    Fp8Weight* entry;
    size_t count;
} fp8_weights;

static inline void fp8_weight_cast(const Fp8Weight* w) {
    if (w->transposed) { fp8_cast_transpose<__NV_E4M3>(w->rows, w->transposed, w->scale, w->weight, w->OC, w->C); }
    else { fp8_cast<__NV_E4M3>(w->rows, w->scale, w->weight, w->OC, w->C); }
}

// Frees the casts of weights that lie in [memory, memory + bytes), which is about to be freed (Gpu.on_free).
static inline void fp8_weights_forget(const void* memory, size_t bytes) {
    size_t kept = 0;
    for (size_t i = 0; i < fp8_weights.count; i++) {
        const Fp8Weight w = fp8_weights.entry[i];
        const uintptr_t at = (uintptr_t)w.weight, begin = (uintptr_t)memory;
        if (at < begin || at >= begin + bytes) {
            fp8_weights.entry[kept++] = w;
            continue;
        }
        cuda_check(cudaFree(w.rows), "freeing a weight in FP8");
        cuda_check(cudaFree(w.transposed), "freeing a weight in FP8");
    }
    fp8_weights.count = kept;
}

// Casts all cached weights again. params_changed() does this right away, not at the next use of a weight: the work of a
// micro-batch must not depend on earlier work, because it is replayed as a graph.
static inline void fp8_weights_changed(void) {
    for (size_t i = 0; i < fp8_weights.count; i++) { fp8_weight_cast(&fp8_weights.entry[i]); }
}

typedef enum { FP8_ROWS, FP8_TRANSPOSED } Fp8Layout;

// Returns the weight in FP8, in the layout asked for; casts it at its first use.
static inline const Fp8Weight* fp8_weight(const floatX* weight, size_t OC, size_t C, Fp8Layout layout) {
    Fp8Weight* w = fp8_weights.entry;
    Fp8Weight* end = w + fp8_weights.count;
    while (w < end && !(w->weight == weight && w->OC == OC && w->C == C)) { w++; }
    if (w < end && (layout == FP8_ROWS || w->transposed)) { return w; }
    if (w == end) {
        const size_t bytes = (fp8_weights.count + 1) * sizeof *w;
        fp8_weights.entry = (Fp8Weight*)realloc_or_die(fp8_weights.entry, bytes, "weights in FP8");
        w = &fp8_weights.entry[fp8_weights.count++];
        *w = {weight, OC, C, NULL, NULL, NULL};
        w->rows = (uint8_t*)device_alloc(OC * C + sizeof(Fp8Scale), "a weight in FP8");
        w->scale = (Fp8Scale*)(w->rows + OC * C);
        gpu.on_free = fp8_weights_forget;
    }
    if (layout == FP8_TRANSPOSED) { w->transposed = (uint8_t*)device_alloc(OC * C, "a weight in FP8, transposed"); }
    fp8_weight_cast(w);
    return w;
}

// Returns the bytes of device memory that FP8 takes for a model: the matrices of its blocks, to train also transposed,
// and the activations of the widest layer: inp (N,4C), or to train dout (N,4C) twice and inp (N,C).
static inline size_t fp8_bytes(const TensorTable* params, bool trains, size_t N, size_t C) {
    size_t weights = 0;
    for (int i = 0; i < params->count; i++) {
        const Tensor* t = &params->row[i];
        if (t->repeat == EACH && tensor_is_matrix(t)) { weights += (size_t)t->layers * t->rows * t->cols; }
    }
    return trains ? 2 * weights + 9 * N * C : weights + 4 * N * C;
}
