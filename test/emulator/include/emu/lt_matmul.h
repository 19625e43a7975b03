// The arithmetic of the cuBLASLt stand-in: D = epilogue(alpha op(A) op(B) + beta C + bias), column-major, summed in
// float.
#pragma once
#include "bf16.h"
#include "fp16.h"
#include "fp8.h"
#include "tensor_core.h"
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace emu::lt {

// Contents of a cublasLtMatmulDesc_t, a cublasLtMatrixLayout_t and a cublasLtMatmulPreference_t, with the library's
// defaults. Fields have the widths of the attributes.
struct MatmulDesc {
    int32_t compute, scale;
    int32_t trans_a = CUBLAS_OP_N, trans_b = CUBLAS_OP_N;
    uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    void *bias = nullptr, *aux = nullptr;
    const float *scale_a = nullptr, *scale_b = nullptr; // of fp8 matrices: factors of their elements
    int32_t bias_type = -1; // -1: that of D
    int64_t aux_ld = 0;
    int32_t sms = 0; // multiprocessors to use; 0: all
    int8_t fast_accum = 0; // of fp8: tensor_core.h
};

struct Layout {
    uint32_t type;
    uint64_t rows, cols;
    int64_t ld;
    int32_t batch_count = 1;
    int64_t batch_stride = 0;

    bool is_fp8() const { return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2; }
    bool is_16_bits() const { return type == CUDA_R_16BF || type == CUDA_R_16F; }
    size_t element_size() const { return type == CUDA_R_32F ? 4 : is_fp8() ? 1 : 2; }
    // Elements from the first to the last of one matrix.
    size_t extent() const { return rows && cols ? (cols - 1) * (size_t)ld + rows : 0; }
};

struct Preference {
    uint32_t reduction_mask = ~0u;
    uint64_t workspace = 0;
    uint32_t alignment[4] = {256, 256, 256, 256}; // of A, B, C, D
};

// Bits of cublasLtEpilogue_t.
enum : uint32_t {
    EPILOGUE_BIAS = 4,
    EPILOGUE_GELU = 32,
    EPILOGUE_DGELU = 64,
    EPILOGUE_AUX = 128,
};

// ---------------------------------------------------------------------------------------------------------------------
// numbers

// Returns x rounded to TF32, whose low 13 bits of a float are zero: to the nearest, ties to even.
inline float tf32_nearest(float x) {
    enum { DROP = 13 };
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7fffffffu) <= 0x7f800000u) { bits += (1u << (DROP - 1)) - 1 + (bits >> DROP & 1); }
    bits = bits >> DROP << DROP;
    memcpy(&x, &bits, sizeof x);
    return x;
}

inline float load(const void* p, uint32_t type, size_t i) {
    switch (type) {
    case CUDA_R_32F: return ((const float*)p)[i];
    case CUDA_R_16F: return fp16_value(((const uint16_t*)p)[i]);
    case CUDA_R_8F_E4M3: return from_fp8(((const uint8_t*)p)[i], E4M3);
    case CUDA_R_8F_E5M2: return from_fp8(((const uint8_t*)p)[i], E5M2);
    default: return bf16_value(((const uint16_t*)p)[i]);
    }
}

inline void store(void* p, uint32_t type, size_t i, float x) {
    if (type == CUDA_R_32F) { ((float*)p)[i] = x; }
    else { ((uint16_t*)p)[i] = type == CUDA_R_16F ? fp16_bits(x) : bf16_bits(x); }
}

// tanh.approx.f32, if EMU_APPROX says so, which the library may use: its relative error is up to 2^-11.
inline float tanh_approx(float x) { return approximate(x, tanhf(x), 0x1p12f); }

// The tanh form (Hendrycks & Gimpel 2016), and its derivative.
inline float gelu(float x) {
    const float u = 0.7978845608f * (x + 0.044715f * x * x * x);
    return 0.5f * x * (1 + tanh_approx(u));
}
inline float gelu_derivative(float x) {
    const float u = 0.7978845608f * (x + 0.044715f * x * x * x), t = tanh_approx(u);
    return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * 0.7978845608f * (1 + 3 * 0.044715f * x * x);
}

// ---------------------------------------------------------------------------------------------------------------------
// one matmul

enum { TILE_ROWS = 8, TILE_COLS = 4 };
typedef float Vector __attribute__((vector_size(TILE_ROWS * sizeof(float)))); // a column of a tile

// Returns op(X), which has `lines` lines (rows of A, columns of B) of `depth` elements, cut into panels of `width`
// lines. In a panel the elements p of all lines are neighbours; lines beyond the last are zero. Element (l, p) of op(X)
// is x[l * step + p * next].
inline std::vector<float> pack(const void* x, const Layout& layout, int32_t compute, size_t lines, size_t depth,
                               size_t step, size_t next, size_t width) {
    const bool tf32 = compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    std::vector<float> packed((lines + width - 1) / width * width * depth);
    for (size_t l = 0; l < lines; l++) {
        float* panel = &packed[l / width * width * depth + l % width];
        for (size_t p = 0; p < depth; p++) {
            const float value = load(x, layout.type, l * step + p * next);
            panel[p * width] = tf32 ? tf32_nearest(value) : value;
        }
    }
    return packed;
}

// out (TILE_COLS, TILE_ROWS) = the matmul of two panels, summed over k in `parts` parts one after the other.
EMU_UNSEEN inline void tile_product(float out[TILE_COLS][TILE_ROWS], const float* a, const float* b, size_t depth,
                                    size_t parts) {
    Vector total[TILE_COLS] = {};
    for (size_t part = 0; part < parts; part++) {
        Vector s0 = {}, s1 = {}, s2 = {}, s3 = {};
        const size_t end = depth * (part + 1) / parts;
        for (size_t p = depth * part / parts; p < end; p++) {
            Vector column;
            memcpy(&column, a + p * TILE_ROWS, sizeof column);
            const float* row = b + p * TILE_COLS;
            s0 += column * row[0];
            s1 += column * row[1];
            s2 += column * row[2];
            s3 += column * row[3];
        }
        total[0] += s0;
        total[1] += s1;
        total[2] += s2;
        total[3] += s3;
    }
    memcpy(out, total, sizeof total);
}

// As tile_product(), by tensor cores. `size`: bytes of a factor. `promotes`: without FAST_ACCUM.
EMU_UNSEEN inline void tensor_core_product(float out[TILE_COLS][TILE_ROWS], const float* a, const float* b,
                                           size_t depth, size_t parts, size_t size, bool promotes) {
    const bool fp8 = size == 1;
    const size_t group = TENSOR_CORE_GROUP_BYTES / size, part = (depth + parts - 1) / parts;
    const size_t chain = fp8 && promotes ? std::min(part, (size_t)FP8_PROMOTED) : part;
    for (size_t at = 0; at < TILE_COLS * TILE_ROWS; at++) {
        const size_t i = at % TILE_ROWS, j = at / TILE_ROWS;
        float total = 0;
        for (size_t begin = 0; begin < depth; begin += chain) {
            const size_t end = std::min(depth, begin + chain);
            float sum = 0;
            for (size_t p = begin; p < end; p += group) {
                sum = tensor_core_add(sum, a + p * TILE_ROWS + i, TILE_ROWS, b + p * TILE_COLS + j, TILE_COLS,
                                      std::min(group, end - p), fp8 ? TENSOR_CORE_FP8_BITS : TENSOR_CORE_BITS);
            }
            total += sum;
        }
        out[j][i] = total;
    }
}

// One cublasLtMatmul, as it is queued in the stream.
struct Matmul {
    MatmulDesc desc;
    Layout layout_a, layout_b, layout_c, layout_d;
    const void *a, *b, *c;
    void* d;
    float alpha, beta;
    size_t parts;

    uint32_t bias_type() const { return desc.bias_type < 0 ? layout_d.type : (uint32_t)desc.bias_type; }

    // Applies the epilogue to `x`, element (i, j) of op(A) op(B). Returns the element of D.
    float finish(float x, size_t batch, size_t i, size_t j) const {
        x *= alpha;
        if (beta != 0) {
            const size_t at = batch * (size_t)layout_c.batch_stride + j * (size_t)layout_c.ld + i;
            x += beta * load(c, layout_c.type, at);
        }
        if (desc.epilogue & EPILOGUE_BIAS) { x += load(desc.bias, bias_type(), i); }
        const size_t at = j * (size_t)desc.aux_ld + i;
        if (desc.epilogue & EPILOGUE_DGELU) { return x * gelu_derivative(load(desc.aux, layout_d.type, at)); }
        if (desc.epilogue & EPILOGUE_AUX) { store(desc.aux, layout_d.type, at, x); }
        return desc.epilogue & EPILOGUE_GELU ? gelu(x) : x;
    }

    void run_one(size_t batch) {
        const size_t rows = layout_d.rows, cols = layout_d.cols, lda = (size_t)layout_a.ld, ldb = (size_t)layout_b.ld;
        const bool ta = desc.trans_a != CUBLAS_OP_N, tb = desc.trans_b != CUBLAS_OP_N;
        const size_t depth = ta ? layout_a.rows : layout_a.cols;
        const size_t step_a = ta ? lda : 1, next_a = ta ? 1 : lda, step_b = tb ? 1 : ldb, next_b = tb ? ldb : 1;
        const char* xa = (const char*)a + batch * (size_t)layout_a.batch_stride * layout_a.element_size();
        const char* xb = (const char*)b + batch * (size_t)layout_b.batch_stride * layout_b.element_size();
        const auto pa = pack(xa, layout_a, desc.compute, rows, depth, step_a, next_a, TILE_ROWS);
        const auto pb = pack(xb, layout_b, desc.compute, cols, depth, step_b, next_b, TILE_COLS);
        const bool is_fp32 = layout_a.type == CUDA_R_32F && desc.compute == CUBLAS_COMPUTE_32F;
        const bool runs_on_tensor_cores = sums_as_tensor_cores() && !is_fp32;
        for (size_t j0 = 0; j0 < cols; j0 += TILE_COLS) {
            for (size_t i0 = 0; i0 < rows; i0 += TILE_ROWS) {
                float tile[TILE_COLS][TILE_ROWS];
                const float *panel_a = pa.data() + i0 * depth, *panel_b = pb.data() + j0 * depth;
                if (runs_on_tensor_cores) {
                    tensor_core_product(tile, panel_a, panel_b, depth, parts, layout_a.element_size(),
                                        !desc.fast_accum);
                } else {
                    tile_product(tile, panel_a, panel_b, depth, parts);
                }
                for (size_t j = j0; j < j0 + TILE_COLS && j < cols; j++) {
                    for (size_t i = i0; i < i0 + TILE_ROWS && i < rows; i++) {
                        const float x = finish(tile[j - j0][i - i0], batch, i, j);
                        const size_t at = batch * (size_t)layout_d.batch_stride + j * (size_t)layout_d.ld + i;
                        store(d, layout_d.type, at, x);
                    }
                }
            }
        }
    }

    // Runs once, and again whenever a graph is replayed: factors in device memory may have changed.
    void run() const {
        if (audits) { return; } // check_range() has seen all that it touches
        Open open;
        Matmul m = *this;
        if (desc.scale_a) { m.alpha *= *desc.scale_a; }
        if (desc.scale_b) { m.alpha *= *desc.scale_b; }
        for (int32_t batch = 0; batch < layout_d.batch_count; batch++) { m.run_one((size_t)batch); }
    }
};

} // namespace emu::lt
