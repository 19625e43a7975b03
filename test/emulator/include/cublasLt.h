// A stand-in for cuBLASLt: the library's calls and descriptors, computed by plain loops in stream order. It reports an
// error for what the library refuses (emu/lt_rules.h). Constants have the values of NVIDIA's header; test_enums.cu
// compares them where that is installed.
//
// Emulated: fp32, bf16, fp16 and fp8 matrices, column-major, strided batches, compute types 32F and 32F_FAST_TF32, the
// epilogues BIAS, GELU_AUX_BIAS and DGELU. A workspace is overwritten up to the size that an algorithm asks for, so
// that sharing it between streams shows. The heuristic's algorithms cut the sum over k differently and so differ in
// their last bits, as on a GPU.
#pragma once
#include "cuda_runtime.h"
#include <cstddef>
#include <cstdint>

#define CUBLAS_VER_MAJOR 13
#define CUBLAS_VER_MINOR 1
#define CUBLAS_VER_PATCH 0
#define CUBLAS_VERSION (CUBLAS_VER_MAJOR * 10000 + CUBLAS_VER_MINOR * 100 + CUBLAS_VER_PATCH)

typedef enum {
    CUBLAS_STATUS_SUCCESS = 0,
    CUBLAS_STATUS_NOT_INITIALIZED = 1,
    CUBLAS_STATUS_INVALID_VALUE = 7,
    CUBLAS_STATUS_ARCH_MISMATCH = 8,
    CUBLAS_STATUS_NOT_SUPPORTED = 15,
} cublasStatus_t;

typedef enum { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1 } cublasOperation_t;

typedef enum { CUBLAS_COMPUTE_32F = 68, CUBLAS_COMPUTE_32F_FAST_TF32 = 77 } cublasComputeType_t;

typedef enum {
    CUBLASLT_EPILOGUE_DEFAULT = 1,
    CUBLASLT_EPILOGUE_BIAS = 4,
    CUBLASLT_EPILOGUE_GELU_AUX_BIAS = 164,
    CUBLASLT_EPILOGUE_DGELU = 192,
} cublasLtEpilogue_t;

typedef enum {
    CUBLASLT_MATMUL_DESC_TRANSA = 3,
    CUBLASLT_MATMUL_DESC_TRANSB = 4,
    CUBLASLT_MATMUL_DESC_EPILOGUE = 7,
    CUBLASLT_MATMUL_DESC_BIAS_POINTER = 8,
    CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER = 11,
    CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD = 12,
    CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET = 15,
    CUBLASLT_MATMUL_DESC_A_SCALE_POINTER = 17,
    CUBLASLT_MATMUL_DESC_B_SCALE_POINTER = 18,
    CUBLASLT_MATMUL_DESC_FAST_ACCUM = 25,
    CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE = 26,
} cublasLtMatmulDescAttributes_t;

typedef enum {
    CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT = 5,
    CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET = 6,
} cublasLtMatrixLayoutAttribute_t;

typedef enum { // the order in which an algorithm that splits k adds its parts
    CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE = 2,
    CUBLASLT_REDUCTION_SCHEME_MASK = 7,
} cublasLtReductionScheme_t;

typedef enum {
    CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1,
    CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK = 3,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES = 5,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES = 6,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES = 7,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES = 8,
} cublasLtMatmulPreferenceAttributes_t;

typedef enum {
    CUBLASLT_ALGO_CONFIG_ID = 0,
    CUBLASLT_ALGO_CONFIG_TILE_ID = 1,
    CUBLASLT_ALGO_CONFIG_SPLITK_NUM = 2,
    CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME = 3,
    CUBLASLT_ALGO_CONFIG_STAGES_ID = 6,
} cublasLtMatmulAlgoConfigAttributes_t;

#include "emu/lt_attributes.h"

typedef struct cublasLtContext* cublasLtHandle_t;
typedef emu::lt::MatmulDesc* cublasLtMatmulDesc_t;
typedef emu::lt::Layout* cublasLtMatrixLayout_t;
typedef emu::lt::Preference* cublasLtMatmulPreference_t;

typedef struct {
    uint64_t data[8];
} cublasLtMatmulAlgo_t;

typedef struct {
    cublasLtMatmulAlgo_t algo;
    size_t workspaceSize;
    cublasStatus_t state;
    float wavesCount;
    int reserved[4];
} cublasLtMatmulHeuristicResult_t;

struct cublasLtContext {};

// ---------------------------------------------------------------------------------------------------------------------
// handles, the version, names

inline cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
    if (!handle) { return CUBLAS_STATUS_INVALID_VALUE; }
    *handle = new cublasLtContext;
    return CUBLAS_STATUS_SUCCESS;
}

// As the library does, waits for the device.
inline cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    if (!handle) { return CUBLAS_STATUS_NOT_INITIALIZED; }
    cudaDeviceSynchronize();
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}

inline size_t cublasLtGetVersion() { return CUBLAS_VERSION; }

inline const char* cublasLtGetStatusString(cublasStatus_t status) {
    switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_ARCH_MISMATCH: return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
    }
    return "unknown cuBLAS status";
}

// ---------------------------------------------------------------------------------------------------------------------
// descriptors

inline cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute,
                                               cudaDataType_t scale) {
    *desc = new emu::lt::MatmulDesc{(int32_t)compute, (int32_t)scale};
    return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
    delete desc;
    return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t which,
                                                     const void* value, size_t size) {
    return emu::lt::set(desc, which, value, size);
}

inline cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows,
                                                 uint64_t cols, int64_t ld) {
    *layout = new emu::lt::Layout{(uint32_t)type, rows, cols, ld};
    return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
    delete layout;
    return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                       cublasLtMatrixLayoutAttribute_t which, const void* value,
                                                       size_t size) {
    return emu::lt::set(layout, which, value, size);
}

inline cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
    *preference = new emu::lt::Preference;
    return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
    delete preference;
    return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                           cublasLtMatmulPreferenceAttributes_t which,
                                                           const void* value, size_t size) {
    return emu::lt::set(preference, which, value, size);
}

// ---------------------------------------------------------------------------------------------------------------------
// search and matmul

namespace emu::lt {

enum { ALGORITHMS = 4, LARGEST_WORKSPACE = 64 << 10 };

// Names an algorithm for EMU_SLOW: cublaslt_0 is the heuristic's first that is not fused, cublasltfew_0 the one for
// fewer multiprocessors; cublaslt_0_adds is the first where it adds to a matrix.
inline std::string algorithm_name(const MatmulDesc& desc, const Algorithm& x, float beta) {
    const bool is_fused = desc.epilogue != CUBLASLT_EPILOGUE_DEFAULT;
    return std::string(desc.sms ? "cublasltfew_" : "cublaslt_") + (is_fused ? "fused_" : "") +
           std::to_string(x.parts - 1) + (beta != 0 ? "_adds" : "");
}

// Returns result number `rank` of the heuristic, 0 being the best. The first half of them use a workspace, as far as
// the preference allows one.
inline Algorithm algorithm(int rank, uint64_t problem, const MatmulDesc& desc, const Preference& preference) {
    const uint64_t largest = LARGEST_WORKSPACE;
    const uint64_t allowed = preference.workspace < largest ? preference.workspace : largest;
    Algorithm x = {problem, rank < ALGORITHMS / 2 ? (uint32_t)(allowed >> rank) : 0, (uint32_t)rank + 1, {}, 0, 0};
    for (int i = 0; i < 4; i++) { x.alignment[i] = (uint16_t)(preference.alignment[i] ? preference.alignment[i] : 1); }
    x.bias_alignment = alignment_of(desc.bias);
    x.aux_alignment = alignment_of(desc.aux);
    return x;
}

// Names forms that some GPUs and versions of the library lack; the variable EMU_LT chooses (README.md).
enum { NO_MATMUL = 0, NO_FUSED = 1, ALL_FORMS = 2, FORWARD_FUSED = 3, NO_FP8_SUMS = 4, BY_SEED = 10 };
inline long long forms() {
    static const long long value = option("EMU_LT", ALL_FORMS);
    return value;
}
inline uint64_t drawn(uint64_t problem, uint64_t what) { return hash(hash((uint64_t)forms(), problem), what) >> 20; }

// Returns how many algorithms the heuristic finds.
inline int num_algorithms(const MatmulDesc& desc, const Layout& a, const Layout& d, uint64_t problem) {
    const bool is_fused = desc.epilogue != CUBLASLT_EPILOGUE_DEFAULT;
    const bool is_forward = desc.epilogue == CUBLASLT_EPILOGUE_BIAS || desc.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    switch (forms()) {
    case NO_MATMUL: return 0;
    case NO_FUSED: return is_fused ? 0 : ALGORITHMS;
    case ALL_FORMS: return ALGORITHMS;
    case FORWARD_FUSED: return is_fused && !is_forward ? 0 : ALGORITHMS;
    case NO_FP8_SUMS: return a.is_fp8() && d.type == CUDA_R_32F ? 0 : ALGORITHMS;
    default: return (int)(drawn(problem, 0) % ALGORITHMS);
    }
}

// Returns the answer to a problem without an algorithm; by seed it is one of those that the library may give.
inline cublasStatus_t refusal(uint64_t problem) {
    const cublasStatus_t answers[] = {CUBLAS_STATUS_NOT_SUPPORTED, CUBLAS_STATUS_INVALID_VALUE,
                                      CUBLAS_STATUS_ARCH_MISMATCH, CUBLAS_STATUS_SUCCESS};
    return answers[forms() >= BY_SEED ? drawn(problem, 1) % 4 : 0];
}

// By seed, an algorithm of four is refused when it is to run.
inline bool is_refused_late(uint64_t problem, uint32_t parts) {
    return forms() >= BY_SEED && drawn(problem, 1 + parts) % 4 == 0;
}

} // namespace emu::lt

inline cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                                     cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                                     cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                                     cublasLtMatmulPreference_t preference, int requested,
                                                     cublasLtMatmulHeuristicResult_t results[], int* returned) {
    using namespace emu::lt;
    if (!handle) { return CUBLAS_STATUS_NOT_INITIALIZED; }
    if (!desc || !a || !b || !c || !d || !preference || requested <= 0 || !results || !returned) {
        return complain(CUBLAS_STATUS_INVALID_VALUE, "AlgoGetHeuristic: a NULL argument, or no result is asked for");
    }
    *returned = 0;
    const cublasStatus_t status = check_problem(*desc, *a, *b, *c, *d);
    if (status != CUBLAS_STATUS_SUCCESS) { return status; }
    const uint64_t problem = problem_id(*desc, *a, *b, *c, *d);
    const int count = num_algorithms(*desc, *a, *d, problem);
    if (count == 0) { return refusal(problem); }
    for (; *returned < requested && *returned < count; ++*returned) {
        const Algorithm x = algorithm(*returned, problem, *desc, *preference);
        cublasLtMatmulHeuristicResult_t* result = &results[*returned];
        *result = {};
        static_assert(sizeof x <= sizeof result->algo, "an Algorithm must fit into a cublasLtMatmulAlgo_t");
        memcpy(&result->algo, &x, sizeof x);
        result->workspaceSize = x.workspace;
        result->state = CUBLAS_STATUS_SUCCESS;
        result->wavesCount = 1;
    }
    return CUBLAS_STATUS_SUCCESS;
}

// The number of an algorithm is its rank with the heuristic; the depth is split in as many parts as it adds.
inline cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algo,
                                                           cublasLtMatmulAlgoConfigAttributes_t which, void* value,
                                                           size_t size, size_t* written) {
    emu::lt::Algorithm x;
    if (!algo || !value || size != sizeof(uint32_t)) { return CUBLAS_STATUS_INVALID_VALUE; }
    memcpy(&x, algo, sizeof x);
    const uint32_t tile_128x128 = 20, stages_64x3 = 15;
    const uint32_t number = which == CUBLASLT_ALGO_CONFIG_ID          ? x.parts - 1
                            : which == CUBLASLT_ALGO_CONFIG_TILE_ID   ? tile_128x128
                            : which == CUBLASLT_ALGO_CONFIG_STAGES_ID ? stages_64x3
                            : which == CUBLASLT_ALGO_CONFIG_SPLITK_NUM
                                ? x.parts
                                : (uint32_t)CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    memcpy(value, &number, sizeof number);
    if (written) { *written = sizeof number; }
    return CUBLAS_STATUS_SUCCESS;
}

inline cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha,
                                     const void* A, cublasLtMatrixLayout_t a, const void* B, cublasLtMatrixLayout_t b,
                                     const void* beta, const void* C, cublasLtMatrixLayout_t c, void* D,
                                     cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t* algo, void* workspace,
                                     size_t workspace_size, cudaStream_t stream) {
    using namespace emu::lt;
    if (!handle) { return CUBLAS_STATUS_NOT_INITIALIZED; }
    if (!desc || !alpha || !beta || !a || !b || !c || !d) {
        return complain(CUBLAS_STATUS_INVALID_VALUE, "Matmul: a descriptor, alpha or beta is NULL");
    }
    cublasStatus_t status = check_problem(*desc, *a, *b, *c, *d);
    if (status != CUBLAS_STATUS_SUCCESS) { return status; }

    const uint64_t problem = problem_id(*desc, *a, *b, *c, *d);
    Algorithm x = algorithm(0, problem, *desc, Preference()); // algo NULL: the first result of a default search
    if (algo) { memcpy(&x, algo, sizeof x); }
    if (x.problem != problem) {
        return complain(CUBLAS_STATUS_INVALID_VALUE, "the algorithm was not found by the heuristic for this problem");
    }
    if (is_refused_late(problem, x.parts)) { return CUBLAS_STATUS_NOT_SUPPORTED; }
    if (workspace_size < x.workspace || (x.workspace && !workspace)) { // rule of NVIDIA's header at cublasLtMatmul()
        return complain(CUBLAS_STATUS_INVALID_VALUE, "the algorithm needs a workspace of %u bytes, there are %zu",
                        x.workspace, workspace ? workspace_size : 0);
    }
    if ((size_t)workspace % 256) { // rule of the cuBLAS guide
        return complain(CUBLAS_STATUS_INVALID_VALUE, "the workspace %p is not aligned to 256 bytes", workspace);
    }
    if (workspace && workspace_size) { emu::check_range(workspace, workspace_size, "cublasLt workspace"); }

    Matmul product = {*desc, *a, *b, *c, *d, A, B, C, D, *(const float*)alpha, *(const float*)beta, x.parts};
    status = check_pointers(product, x);
    if (status == CUBLAS_STATUS_SUCCESS) { status = check_epilogue_pointers(product, x); }
    if (status != CUBLAS_STATUS_SUCCESS) { return status; }
    const std::string name = algorithm_name(*desc, x, product.beta);
    if (desc->sms) { emu::counts.shared++; }
    emu::enqueue(stream, [=]() mutable {
        emu::clock_launch(name.c_str());
        {
            emu::Open open;
            if (x.workspace) { memset(workspace, 0xff, x.workspace); }
        }
        product.run();
    });
    return CUBLAS_STATUS_SUCCESS;
}
