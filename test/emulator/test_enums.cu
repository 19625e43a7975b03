// Compares every constant of the stand-ins for cuBLASLt and NCCL with NVIDIA's. The same list is compiled by nvcc with
// NVIDIA's headers and by emucc with ours: if they differ, one of the two does not compile.
#include <cublasLt.h>
#include <nccl.h>
#include <cstddef>
#include <cstdio>

#define SAME(name, value) static_assert((long long)(name) == (value), #name " is not " #value)
#define AT_LEAST(name, value) static_assert((long long)(name) >= (value), #name " is less than " #value)

SAME(CUDA_R_32F, 0);
SAME(CUDA_R_16F, 2);
SAME(CUDA_R_16BF, 14);
SAME(CUDA_R_8F_E4M3, 28);
SAME(CUDA_R_8F_E5M2, 29);

SAME(CUBLAS_STATUS_SUCCESS, 0);
SAME(CUBLAS_STATUS_NOT_INITIALIZED, 1);
SAME(CUBLAS_STATUS_INVALID_VALUE, 7);
SAME(CUBLAS_STATUS_ARCH_MISMATCH, 8);
SAME(CUBLAS_STATUS_NOT_SUPPORTED, 15);

SAME(CUBLAS_OP_N, 0);
SAME(CUBLAS_OP_T, 1);

SAME(CUBLAS_COMPUTE_32F, 68);
SAME(CUBLAS_COMPUTE_32F_FAST_TF32, 77);

SAME(CUBLASLT_EPILOGUE_DEFAULT, 1);
SAME(CUBLASLT_EPILOGUE_BIAS, 4);
SAME(CUBLASLT_EPILOGUE_GELU_AUX_BIAS, 164);
SAME(CUBLASLT_EPILOGUE_DGELU, 192);

SAME(CUBLASLT_MATMUL_DESC_TRANSA, 3);
SAME(CUBLASLT_MATMUL_DESC_TRANSB, 4);
SAME(CUBLASLT_MATMUL_DESC_EPILOGUE, 7);
SAME(CUBLASLT_MATMUL_DESC_BIAS_POINTER, 8);
SAME(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, 11);
SAME(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, 12);
SAME(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, 15);
SAME(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, 17);
SAME(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, 18);
SAME(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, 26);

SAME(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 5);
SAME(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, 6);

SAME(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, 2);
SAME(CUBLASLT_REDUCTION_SCHEME_MASK, 7);

SAME(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 1);
SAME(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, 3);
SAME(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 5);
SAME(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, 6);
SAME(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, 7);
SAME(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 8);

SAME(sizeof(cublasLtMatmulAlgo_t), 64);
SAME(sizeof(cublasLtMatmulHeuristicResult_t), 96);
SAME(offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize), 64);
SAME(offsetof(cublasLtMatmulHeuristicResult_t, state), 72);
SAME(offsetof(cublasLtMatmulHeuristicResult_t, wavesCount), 76);

SAME(ncclSuccess, 0);
SAME(ncclUnhandledCudaError, 1);
SAME(ncclSystemError, 2);
SAME(ncclInvalidArgument, 4);
SAME(ncclRemoteError, 6);
SAME(ncclInProgress, 7);

SAME(ncclSum, 0);

SAME(ncclUint8, 1);
SAME(ncclFloat, 7);
SAME(ncclDouble, 8);

SAME(NCCL_UNIQUE_ID_BYTES, 128);
SAME(sizeof(ncclUniqueId), 128);

// The stand-ins follow these versions; an older library may lack a constant.
AT_LEAST(CUBLAS_VERSION, 120000);
SAME(NCCL_MAJOR, 2);
SAME(CUBLAS_VERSION, CUBLAS_VER_MAJOR * 10000 + CUBLAS_VER_MINOR * 100 + CUBLAS_VER_PATCH);

// The test is that this file compiles.
int main() {
    printf("test_enums: 1 passed, 0 failed, 0 skipped\n");
    return 0;
}
