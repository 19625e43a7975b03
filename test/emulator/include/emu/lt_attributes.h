// Sets the attributes of the cuBLASLt stand-in's descriptors; field() maps an attribute to its member.
#pragma once
#include "lt_rules.h"

namespace emu::lt {

struct Field {
    void* p; // null: no such attribute
    size_t size;
};

inline Field field(MatmulDesc* d, cublasLtMatmulDescAttributes_t attribute) {
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return {&d->trans_a, sizeof d->trans_a};
    case CUBLASLT_MATMUL_DESC_TRANSB: return {&d->trans_b, sizeof d->trans_b};
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return {&d->epilogue, sizeof d->epilogue};
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return {&d->bias, sizeof d->bias};
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER: return {&d->aux, sizeof d->aux};
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: return {&d->aux_ld, sizeof d->aux_ld};
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER: return {&d->scale_a, sizeof d->scale_a};
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER: return {&d->scale_b, sizeof d->scale_b};
    case CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET: return {&d->sms, sizeof d->sms};
    case CUBLASLT_MATMUL_DESC_FAST_ACCUM: return {&d->fast_accum, sizeof d->fast_accum};
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: return {&d->bias_type, sizeof d->bias_type};
    }
    return {nullptr, 0};
}

inline Field field(Layout* x, cublasLtMatrixLayoutAttribute_t attribute) {
    switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: return {&x->batch_count, sizeof x->batch_count};
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: return {&x->batch_stride, sizeof x->batch_stride};
    }
    return {nullptr, 0};
}

inline Field field(Preference* p, cublasLtMatmulPreferenceAttributes_t attribute) {
    switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return {&p->workspace, sizeof p->workspace};
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return {&p->reduction_mask, sizeof p->reduction_mask};
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        return {&p->alignment[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], sizeof p->alignment[0]};
    }
    return {nullptr, 0};
}

template <class T, class Attribute>
cublasStatus_t set(T* object, Attribute attribute, const void* value, size_t size) {
    if (!object || !value) { return complain(CUBLAS_STATUS_INVALID_VALUE, "an attribute is set to or from NULL"); }
    const Field f = field(object, attribute);
    if (!f.p) { return complain(CUBLAS_STATUS_INVALID_VALUE, "attribute %d is not emulated", (int)attribute); }
    if (size != f.size) {
        return complain(CUBLAS_STATUS_INVALID_VALUE, "attribute %d has %zu bytes, not %zu", (int)attribute, f.size,
                        size);
    }
    memcpy(f.p, value, size);
    return CUBLAS_STATUS_SUCCESS;
}

} // namespace emu::lt
