// Refuses the calls that cuBLASLt refuses. Each message goes to standard error; the status is the library's. Comments
// give the source of a rule: "header" is cublasLt.h at the attribute or function, "guide" the library's user guide at
// cublasLtMatmul(). Calls that only the library supports are refused as "not emulated".
#pragma once
#include "lt_matmul.h"
#include <cstdarg>
#include <cstdio>

namespace emu::lt {

// A program that tolerates what a version lacks must not hide its own mistakes so: an invalid value ends it, except in
// the tests of these rules.
inline bool invalid_values_are_fatal = true;

inline cublasStatus_t __attribute__((format(printf, 2, 3))) complain(cublasStatus_t status, const char* format, ...) {
    va_list args;
    va_start(args, format);
    fprintf(stderr, "emu: cublasLt: ");
    vfprintf(stderr, format, args);
    fprintf(stderr, "\n");
    va_end(args);
    if (status == CUBLAS_STATUS_INVALID_VALUE && invalid_values_are_fatal) { abort(); }
    return status;
}

inline const char* type_name(int64_t type) {
    switch (type) {
    case CUDA_R_32F: return "fp32";
    case CUDA_R_16BF: return "bf16";
    case CUDA_R_16F: return "fp16";
    case CUDA_R_8F_E4M3: return "e4m3";
    case CUDA_R_8F_E5M2: return "e5m2";
    default: return "a type not emulated";
    }
}

inline cublasStatus_t check_layout(const Layout& x, char name) {
    if (x.type != CUDA_R_32F && !x.is_16_bits() && !x.is_fp8()) {
        return complain(CUBLAS_STATUS_NOT_SUPPORTED, "%c: data type %u is not emulated", name, x.type);
    }
    if (x.ld < (int64_t)x.rows) { // header, CUBLASLT_MATRIX_LAYOUT_LD
        return complain(CUBLAS_STATUS_INVALID_VALUE, "%c: the leading dimension %lld is less than the %llu rows", name,
                        (long long)x.ld, (unsigned long long)x.rows);
    }
    return CUBLAS_STATUS_SUCCESS;
}

// Guide, "To use FP8 kernels, the following set of requirements must be satisfied", and the table of types below it. A
// GPU before 8.9 has no such kernels; from 10.0 on transposes are free, which is not emulated.
inline cublasStatus_t check_fp8(const MatmulDesc& desc, const Layout& a, const Layout& b, const Layout& d) {
    if (compute_capability() < 89) { return complain(CUBLAS_STATUS_NOT_SUPPORTED, "fp8 needs compute capability 8.9"); }
    if (!a.is_fp8() || !b.is_fp8() || (a.type == CUDA_R_8F_E5M2 && b.type == CUDA_R_8F_E5M2)) {
        return complain(CUBLAS_STATUS_NOT_SUPPORTED, "A %s, B %s: no such combination", type_name(a.type),
                        type_name(b.type));
    }
    if (d.is_fp8()) { return complain(CUBLAS_STATUS_NOT_SUPPORTED, "a D of fp8 is not emulated"); }
    if (desc.compute != CUBLAS_COMPUTE_32F || desc.scale != CUDA_R_32F) {
        return complain(CUBLAS_STATUS_NOT_SUPPORTED, "fp8 has compute type 32F and scale type fp32");
    }
    if (desc.trans_a != CUBLAS_OP_T || desc.trans_b != CUBLAS_OP_N) {
        return complain(CUBLAS_STATUS_NOT_SUPPORTED, "fp8 wants A transposed and B not (TN)");
    }
    for (const Layout* x : {&a, &b, &d}) {
        if (x->rows % 16 || x->cols % 16 || x->ld * (int64_t)x->element_size() % 16) {
            return complain(CUBLAS_STATUS_NOT_SUPPORTED, "fp8 wants multiples of 16: a matrix is (%llu,%llu), ld %lld",
                            (unsigned long long)x->rows, (unsigned long long)x->cols, (long long)x->ld);
        }
    }
    if (desc.epilogue != CUBLASLT_EPILOGUE_DEFAULT && desc.epilogue != CUBLASLT_EPILOGUE_BIAS) {
        return complain(CUBLAS_STATUS_NOT_SUPPORTED, "epilogue %u of fp8 matrices is not emulated", desc.epilogue);
    }
    return CUBLAS_STATUS_SUCCESS;
}

// Guide, "A, B, C, and D are regular column- or row-major matrices": the table of types.
inline cublasStatus_t check_types(const MatmulDesc& desc, const Layout& a, const Layout& b, const Layout& d) {
    if (a.is_fp8() || b.is_fp8()) { return check_fp8(desc, a, b, d); }
    if (desc.scale_a || desc.scale_b) { // header, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER
        return complain(CUBLAS_STATUS_INVALID_VALUE, "a scale pointer is set, and the matrices are not fp8");
    }
    const bool tf32 = desc.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    if (desc.compute != CUBLAS_COMPUTE_32F && !tf32) {
        return complain(CUBLAS_STATUS_NOT_SUPPORTED, "compute type %d is not emulated", desc.compute);
    }
    if (desc.scale != CUDA_R_32F) {
        return complain(CUBLAS_STATUS_NOT_SUPPORTED, "with compute type 32F the scale type is fp32");
    }
    if (a.type != b.type || (d.type != a.type && d.type != CUDA_R_32F)) {
        return complain(CUBLAS_STATUS_NOT_SUPPORTED, "A %s, B %s, D %s: no such combination", type_name(a.type),
                        type_name(b.type), type_name(d.type));
    }
    if ((a.type == CUDA_R_16BF || tf32) && compute_capability() < 80) { // guide, cudaDataType_t and cublasComputeType_t
        return complain(CUBLAS_STATUS_NOT_SUPPORTED, "bf16 and TF32 need compute capability 8.0");
    }
    if (tf32 && a.is_16_bits()) {
        return complain(CUBLAS_STATUS_NOT_SUPPORTED, "compute type 32F_FAST_TF32 is for fp32 matrices, A is %s",
                        type_name(a.type));
    }
    return CUBLAS_STATUS_SUCCESS;
}

inline cublasStatus_t check_shapes(const MatmulDesc& desc, const Layout& a, const Layout& b, const Layout& c,
                                   const Layout& d) {
    const bool ta = desc.trans_a != CUBLAS_OP_N, tb = desc.trans_b != CUBLAS_OP_N;
    const uint64_t m = ta ? a.cols : a.rows, ka = ta ? a.rows : a.cols;
    const uint64_t n = tb ? b.rows : b.cols, kb = tb ? b.cols : b.rows;
    if (ka != kb || m != d.rows || n != d.cols) {
        return complain(CUBLAS_STATUS_INVALID_VALUE, "op(A) is (%llu,%llu), op(B) (%llu,%llu), D (%llu,%llu)",
                        (unsigned long long)m, (unsigned long long)ka, (unsigned long long)kb, (unsigned long long)n,
                        (unsigned long long)d.rows, (unsigned long long)d.cols);
    }
    if (m == 0 || n == 0 || ka == 0) { return complain(CUBLAS_STATUS_INVALID_VALUE, "a matrix is empty"); }
    // Guide: out of place, C and D have the same data type, rows, columns, batch size and order; ld may differ.
    if (c.rows != d.rows || c.cols != d.cols || c.type != d.type || c.batch_count != d.batch_count) {
        return complain(CUBLAS_STATUS_INVALID_VALUE, "C and D differ in data type, rows, columns or batch count");
    }
    if (a.batch_count != d.batch_count || b.batch_count != d.batch_count) {
        return complain(CUBLAS_STATUS_INVALID_VALUE, "the batch counts of A, B and D are %d, %d and %d", a.batch_count,
                        b.batch_count, d.batch_count);
    }
    // No rule of the library, which would write one matrix over another.
    if (d.batch_count < 1 || (d.batch_count > 1 && d.batch_stride < (int64_t)d.extent())) {
        return complain(CUBLAS_STATUS_INVALID_VALUE, "D: a batch of %d matrices of %zu elements with a stride of %lld",
                        d.batch_count, d.extent(), (long long)d.batch_stride);
    }
    return CUBLAS_STATUS_SUCCESS;
}

inline bool known_epilogue(uint32_t epilogue) {
    switch (epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
    case CUBLASLT_EPILOGUE_DGELU: return true;
    default: return false;
    }
}

// `bias_type`: of a vector that goes with matrices of these types. The guide's table has bf16 for fp8 matrices and a D
// of bf16 or fp32; else it is D's (header, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE).
inline cublasStatus_t check_epilogue(const MatmulDesc& desc, const Layout& a, const Layout& d) {
    const uint32_t e = desc.epilogue, bias_type = a.is_fp8() ? (uint32_t)CUDA_R_16BF : d.type;
    if (!known_epilogue(e)) { return complain(CUBLAS_STATUS_NOT_SUPPORTED, "epilogue %u is not emulated", e); }
    const uint32_t given = desc.bias_type >= 0 ? (uint32_t)desc.bias_type : d.type;
    if ((e & EPILOGUE_BIAS) && given != bias_type) {
        return complain(CUBLAS_STATUS_NOT_SUPPORTED, "epilogue %u: the bias is %s, D is %s: it must be %s", e,
                        type_name(given), type_name(d.type), type_name(bias_type));
    }
    if ((e & EPILOGUE_AUX) && (desc.aux_ld % 8 != 0 || desc.aux_ld < (int64_t)d.rows)) { // header, ..._AUX_LD
        return complain(CUBLAS_STATUS_INVALID_VALUE,
                        "epilogue %u: EPILOGUE_AUX_LD %lld must be divisible by 8 and no less than the %llu rows", e,
                        (long long)desc.aux_ld, (unsigned long long)d.rows);
    }
    if (d.batch_count > 1 && (e & EPILOGUE_AUX)) {
        return complain(CUBLAS_STATUS_NOT_SUPPORTED, "epilogue %u with a batch is not emulated", e);
    }
    return CUBLAS_STATUS_SUCCESS;
}

// Checks everything but the matrices' addresses.
inline cublasStatus_t check_problem(const MatmulDesc& desc, const Layout& a, const Layout& b, const Layout& c,
                                    const Layout& d) {
    const Layout* const all[] = {&a, &b, &c, &d};
    for (int i = 0; i < 4; i++) {
        const cublasStatus_t status = check_layout(*all[i], "ABCD"[i]);
        if (status != CUBLAS_STATUS_SUCCESS) { return status; }
    }
    cublasStatus_t status = check_types(desc, a, b, d);
    if (status == CUBLAS_STATUS_SUCCESS) { status = check_shapes(desc, a, b, c, d); }
    if (status == CUBLAS_STATUS_SUCCESS) { status = check_epilogue(desc, a, d); }
    return status;
}

// ---------------------------------------------------------------------------------------------------------------------
// algorithms

// Contents of a cublasLtMatmulAlgo_t: the problem for which it was found, and the promised alignments.
struct Algorithm {
    uint64_t problem;     // 0: not filled in
    uint32_t workspace;   // bytes that it uses
    uint32_t parts;       // into which it cuts the sum over k: algorithms differ in their rounding
    uint16_t alignment[4];
    uint16_t bias_alignment, aux_alignment;
};

inline uint64_t hash(uint64_t seed, uint64_t x) { return (seed ^ x) * 0x9e3779b97f4a7c15ull ^ (seed >> 29); }

inline uint64_t problem_id(const MatmulDesc& desc, const Layout& a, const Layout& b, const Layout& c, const Layout& d) {
    uint64_t h = 1;
    for (int64_t x : {desc.compute, desc.scale, desc.trans_a, desc.trans_b, desc.bias_type, (int32_t)desc.epilogue,
                      (int32_t)desc.fast_accum}) {
        h = hash(h, (uint64_t)x);
    }
    h = hash(h, (uint64_t)desc.aux_ld);
    for (const Layout* x : {&a, &b, &c, &d}) {
        h = hash(hash(hash(h, x->type), x->rows), x->cols);
        h = hash(hash(hash(h, (uint64_t)x->ld), (uint64_t)x->batch_count), (uint64_t)x->batch_stride);
    }
    return h | 1;
}

// Returns the largest power of two up to 16 that divides the address.
inline uint16_t alignment_of(const void* p) {
    const size_t bits = (size_t)p | 16;
    return (uint16_t)(bits & (~bits + 1));
}

// Returns the bytes from the first to the last element of a batch of matrices.
inline size_t bytes_of(const Layout& x) {
    return ((size_t)(x.batch_count - 1) * (size_t)x.batch_stride + x.extent()) * x.element_size();
}

// Returns true if D lies over some of A, B, or a C at another address. No rule of the library, whose blocks would read
// what others have written.
inline bool overlaps_output(const Matmul& x, const void* matrix, const Layout& layout) {
    const char *begin = (const char*)matrix, *d = (const char*)x.d;
    return begin < d + bytes_of(x.layout_d) && d < begin + bytes_of(layout);
}

inline cublasStatus_t check_pointers(const Matmul& x, const Algorithm& algorithm) {
    const void* const all[] = {x.a, x.b, x.c, x.d};
    const Layout* const layouts[] = {&x.layout_a, &x.layout_b, &x.layout_c, &x.layout_d};
    const bool reads_c = x.beta != 0;
    const bool same = x.layout_c.ld == x.layout_d.ld && x.layout_c.batch_stride == x.layout_d.batch_stride;
    if (reads_c && x.c == x.d && !same) { // guide
        return complain(CUBLAS_STATUS_INVALID_VALUE, "in place (C == D), but the layouts of C and D differ");
    }
    for (int i = 0; i < 4; i++) {
        if (i == 2 && !reads_c) { continue; }
        if (!all[i]) { return complain(CUBLAS_STATUS_INVALID_VALUE, "%c is NULL", "ABCD"[i]); }
        // Header, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_*: the search was promised this alignment.
        if ((size_t)all[i] % algorithm.alignment[i]) {
            return complain(CUBLAS_STATUS_NOT_SUPPORTED,
                            "%c at %p is not aligned to the %u bytes of MIN_ALIGNMENT_%c_BYTES (default 256)",
                            "ABCD"[i], all[i], algorithm.alignment[i], "ABCD"[i]);
        }
        if (x.layout_a.is_fp8() && (size_t)all[i] % 16) { // guide, of FP8 kernels
            return complain(CUBLAS_STATUS_NOT_SUPPORTED, "%c at %p: fp8 wants pointers aligned to 16 bytes", "ABCD"[i],
                            all[i]);
        }
        check_range(all[i], bytes_of(*layouts[i]), "a matrix of cublasLtMatmul");
        const bool is_in_place = i == 3 || (i == 2 && x.c == x.d);
        if (!is_in_place && overlaps_output(x, all[i], *layouts[i])) {
            return complain(CUBLAS_STATUS_INVALID_VALUE, "%c and D lie over each other", "ABCD"[i]);
        }
    }
    for (const float* scale : {x.desc.scale_a, x.desc.scale_b}) {
        if (scale) { check_range(scale, sizeof *scale, "a scale of cublasLtMatmul"); }
    }
    return CUBLAS_STATUS_SUCCESS;
}

inline cublasStatus_t check_epilogue_pointers(const Matmul& x, const Algorithm& algorithm) {
    const MatmulDesc& desc = x.desc;
    const Layout& d = x.layout_d;
    if (desc.epilogue & EPILOGUE_BIAS) {
        if (!desc.bias) { return complain(CUBLAS_STATUS_INVALID_VALUE, "epilogue %u: no BIAS_POINTER", desc.epilogue); }
        // Header, CUBLASLT_MATMUL_DESC_BIAS_POINTER: the search relies on its alignment.
        if ((size_t)desc.bias % algorithm.bias_alignment) {
            return complain(CUBLAS_STATUS_NOT_SUPPORTED, "the bias is less aligned than at the search (%u bytes)",
                            algorithm.bias_alignment);
        }
        check_range(desc.bias, d.rows * (x.bias_type() == CUDA_R_32F ? 4 : 2), "the bias of cublasLtMatmul");
    }
    if (desc.epilogue & EPILOGUE_AUX) {
        if (!desc.aux) { return complain(CUBLAS_STATUS_INVALID_VALUE, "epilogue %u: no AUX pointer", desc.epilogue); }
        // Assumed from the rule that rows are multiples of 8 elements: they are read 16 bytes at a time.
        if ((size_t)desc.aux % 16 || (size_t)desc.aux % algorithm.aux_alignment) {
            return complain(CUBLAS_STATUS_NOT_SUPPORTED, "EPILOGUE_AUX_POINTER %p is not aligned to 16 bytes",
                            desc.aux);
        }
        const size_t n = (d.cols - 1) * (size_t)desc.aux_ld + d.rows;
        check_range(desc.aux, n * (d.type == CUDA_R_32F ? 4 : 2), "the aux matrix of cublasLtMatmul");
    }
    return CUBLAS_STATUS_SUCCESS;
}

} // namespace emu::lt
