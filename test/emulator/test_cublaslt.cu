// Tests the stand-in for cuBLASLt: every kind of matmul that this program uses against plain loops, and every error
// that the stand-in reports. Built by nvcc and linked with the real library, it tests the library's matmuls on a GPU.
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>
#include "../test.h"
#include <signal.h>
#include <vector>

#define OK(call) EXPECT((call) == cudaSuccess)
#define LT(call) EXPECT((call) == CUBLAS_STATUS_SUCCESS)

typedef std::vector<float> Floats;

// A matrix, or a vector, in device memory: column-major, with `ld` from column to column, in fp32, bf16, fp16
// or FP8.
struct Matrix {
    cudaDataType type = CUDA_R_32F;
    size_t rows = 0, cols = 0, ld = 0, batch = 1, stride = 0;
    Floats host;
    char* device = NULL;
    size_t offset = 0; // bytes from the allocation's beginning to `device`

    size_t count() const { return (batch - 1) * stride + (cols - 1) * ld + rows; }
    float& at(size_t i, size_t j, size_t b = 0) { return host[b * stride + j * ld + i]; }
};

static cudaStream_t stream; // of all matmuls

static bool is_fp8(int type) { return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2; }
static size_t size_of(cudaDataType type) { return type == CUDA_R_32F ? 4 : is_fp8(type) ? 1 : 2; }

// Makes a matrix of whole numbers from -4 to 4, which every type holds exactly.
static Matrix make(cudaDataType type, size_t rows, size_t cols, size_t ld, size_t batch, size_t offset, int seed) {
    Matrix x;
    x.type = type;
    x.rows = rows;
    x.cols = cols;
    x.ld = ld;
    x.batch = batch;
    x.stride = batch > 1 ? ld * cols + 8 : 0;
    x.offset = offset;
    x.host.resize(x.count());
    for (size_t i = 0; i < x.host.size(); i++) { x.host[i] = (float)(mix64(i * 31 + seed) % 9) - 4; }
    return x;
}

static void upload(Matrix* x) {
    const size_t n = x->host.size();
    OK(cudaMalloc(&x->device, n * size_of(x->type) + x->offset));
    x->device += x->offset;
    std::vector<__nv_bfloat16> rounded(n);
    for (size_t i = 0; i < n; i++) { rounded[i] = __float2bfloat16_rn(x->host[i]); }
    std::vector<__half> halves(n);
    for (size_t i = 0; i < n; i++) { halves[i] = __float2half_rn(x->host[i]); }
    std::vector<uint8_t> fp8(n);
    const __nv_fp8_interpretation_t kind = x->type == CUDA_R_8F_E5M2 ? __NV_E5M2 : __NV_E4M3;
    for (size_t i = 0; i < n; i++) { fp8[i] = __nv_cvt_float_to_fp8(x->host[i], __NV_SATFINITE, kind); }
    const void* from = x->type == CUDA_R_32F ? (const void*)x->host.data()
                       : x->type == CUDA_R_16F ? (const void*)halves.data()
                       : is_fp8(x->type)     ? (const void*)fp8.data()
                                             : (const void*)rounded.data();
    OK(cudaMemcpy(x->device, from, n * size_of(x->type), cudaMemcpyHostToDevice));
}

static Floats download(const Matrix& x) {
    const size_t n = x.host.size();
    Floats out(n);
    std::vector<__nv_bfloat16> rounded(n);
    void* to = x.type == CUDA_R_32F ? (void*)out.data() : (void*)rounded.data();
    OK(cudaMemcpy(to, x.device, n * size_of(x.type), cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < n && size_of(x.type) == 2; i++) {
        out[i] = x.type == CUDA_R_16BF ? __bfloat162float(rounded[i])
                                       : __half2float(__half_raw{__nv_bfloat16_raw(rounded[i]).x});
    }
    return out;
}

static void release(Matrix* x) {
    if (x->device) { OK(cudaFree(x->device - x->offset)); }
    x->device = NULL;
}

// ---------------------------------------------------------------------------------------------------------------------
// a matmul

enum { SAME = -1 }; // the default: A's or D's type, the matrix's leading dimension

// D = epilogue(alpha * op(A) op(B) + beta * C), op(A) (m,k), op(B) (k,n), and mistakes that a test makes in the call.
struct Matmul {
    size_t m = 40, n = 24, k = 32;
    bool ta = false, tb = false;
    cudaDataType type = CUDA_R_32F, type_d = CUDA_R_32F;
    int type_b = SAME;
    float scale_a = 0, scale_b = 0; // of FP8; 0: no pointer
    cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    float alpha = 1, beta = 0;
    float all_a = 0; // the value of every element of A, if it is not 0; B is then all ones
    size_t pad = 0; // added to the leading dimensions of A, B and D
    size_t batch = 1;
    bool in_place = true; // C is D
    int algorithm = 0;
    size_t workspace = 1 << 16;
    // for the tests of errors
    int bias_type = SAME, scale = CUDA_R_32F;
    int64_t aux_ld = SAME, ld_c = SAME;
    size_t offset_a = 0, offset_aux = 0, workspace_offset = 0, short_a = 0, workspace_given = SIZE_MAX;
    uint32_t alignment_a = 256;
    int64_t stride_d = SAME;
    bool over_a = false; // D begins where A does
    bool no_bias = false, no_aux = false, wrong_k = false, other_problem = false, blank_algorithm = false;

    Matrix a, b, c, d, bias, aux, scales;
    unsigned char workspace_after = 0; // the workspace's first byte after the call; it is 0 before
};

// Bits of cublasLtEpilogue_t.
constexpr int EPILOGUE_BIAS = 4, EPILOGUE_GELU = 32, EPILOGUE_DGELU = 64, EPILOGUE_AUX = 128;

static bool has_bias(const Matmul& p) { return p.epilogue & EPILOGUE_BIAS; }
static bool has_aux(const Matmul& p) { return p.epilogue & EPILOGUE_AUX; }

static void prepare(Matmul* p) {
    const size_t rows_a = p->ta ? p->k : p->m, cols_a = p->ta ? p->m : p->k;
    const size_t rows_b = p->tb ? p->n : p->k, cols_b = p->tb ? p->k : p->n;
    p->a = make(p->type, rows_a, cols_a, rows_a + p->pad, p->batch, p->offset_a, 1);
    p->b = make(p->type_b == SAME ? p->type : (cudaDataType)p->type_b, rows_b, cols_b, rows_b + p->pad, p->batch, 0, 2);
    p->d = make(p->type_d, p->m, p->n, p->m + p->pad, p->batch, 0, 3);
    p->c = make(p->type_d, p->m, p->n, p->in_place ? p->d.ld : p->m + 8, p->batch, 0, p->in_place ? 3 : 4);
    p->bias = make(p->bias_type == SAME ? p->type_d : (cudaDataType)p->bias_type, p->m, 1, p->m, 1, 0, 5);
    p->aux = make(p->type_d, p->m, p->n, (p->m + 7) / 8 * 8, 1, p->offset_aux, 6);
    p->scales = make(CUDA_R_32F, 2, 1, 2, 1, 0, 7);
    p->scales.host = {p->scale_a, p->scale_b};
    if (p->all_a != 0) {
        p->a.host.assign(p->a.host.size(), p->all_a);
        p->b.host.assign(p->b.host.size(), 1);
    }
    if (p->short_a) { p->a.host.resize(p->a.host.size() - p->short_a); }
    Matrix* const all[] = {&p->a, &p->b, &p->c, &p->d, &p->bias, &p->aux, &p->scales};
    for (Matrix* x : all) { upload(x); }
}

static void finish(Matmul* p) {
    Matrix* const all[] = {&p->a, &p->b, &p->c, &p->d, &p->bias, &p->aux, &p->scales};
    for (Matrix* x : all) { release(x); }
}

template <class Attribute, class T>
static cublasStatus_t set(cublasLtMatmulDesc_t desc, Attribute attribute, T value) {
    return cublasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof value);
}

static cublasLtMatmulDesc_t make_desc(const Matmul& p) {
    cublasLtMatmulDesc_t desc;
    LT(cublasLtMatmulDescCreate(&desc, p.compute, (cudaDataType)p.scale));
    LT(set(desc, CUBLASLT_MATMUL_DESC_TRANSA, (int32_t)(p.ta ? CUBLAS_OP_T : CUBLAS_OP_N)));
    LT(set(desc, CUBLASLT_MATMUL_DESC_TRANSB, (int32_t)(p.tb ? CUBLAS_OP_T : CUBLAS_OP_N)));
    LT(set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, (uint32_t)p.epilogue));
    if (has_bias(p) && !p.no_bias) { LT(set(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, (void*)p.bias.device)); }
    const float* scales = (const float*)p.scales.device;
    if (p.scale_a != 0) { LT(set(desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, scales)); }
    if (p.scale_b != 0) { LT(set(desc, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, scales + 1)); }
    if (p.bias_type != SAME) { LT(set(desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, (int32_t)p.bias_type)); }
    if (has_aux(p)) {
        if (!p.no_aux) { LT(set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, (void*)p.aux.device)); }
        const int64_t ld = p.aux_ld != SAME ? p.aux_ld : (int64_t)p.aux.ld;
        LT(set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, ld));
    }
    return desc;
}

static cublasLtMatrixLayout_t make_layout(const Matrix& x, size_t rows, int64_t ld) {
    cublasLtMatrixLayout_t layout;
    const int32_t batch = (int32_t)x.batch;
    const int64_t stride = (int64_t)x.stride;
    LT(cublasLtMatrixLayoutCreate(&layout, x.type, rows, x.cols, ld));
    LT(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch));
    LT(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride));
    return layout;
}

// Asks the heuristic for an algorithm and runs it. Returns the first status that is not success.
static cublasStatus_t run(Matmul* p) {
    cublasLtHandle_t handle;
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t found[8];
    char* workspace = NULL;
    int count = 0;
    prepare(p);
    LT(cublasLtCreate(&handle));
    if (!stream) { OK(cudaStreamCreate(&stream)); }
    OK(cudaMalloc(&workspace, p->workspace + 256));
    OK(cudaMemset(workspace, 0, p->workspace + 256));
    cublasLtMatmulDesc_t desc = make_desc(*p);
    cublasLtMatrixLayout_t a = make_layout(p->a, p->a.rows, (int64_t)p->a.ld);
    cublasLtMatrixLayout_t b = make_layout(p->b, p->b.rows + p->wrong_k, (int64_t)p->b.ld + p->wrong_k);
    cublasLtMatrixLayout_t c = make_layout(p->c, p->c.rows, p->ld_c != SAME ? p->ld_c : (int64_t)p->c.ld);
    cublasLtMatrixLayout_t d = make_layout(p->d, p->d.rows, (int64_t)p->d.ld);
    if (p->stride_d != SAME) {
        LT(cublasLtMatrixLayoutSetAttribute(d, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &p->stride_d,
                                            sizeof p->stride_d));
    }
    LT(cublasLtMatmulPreferenceCreate(&preference));
    LT(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &p->workspace,
                                            sizeof p->workspace));
    LT(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &p->alignment_a,
                                            sizeof p->alignment_a));
    const int wanted = p->algorithm + 1;
    cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle, desc, a, b, c, d, preference, wanted, found, &count);
    if (status == CUBLAS_STATUS_SUCCESS) {
        EXPECT(count == wanted);
        if (p->other_problem) { LT(set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, (uint32_t)CUBLASLT_EPILOGUE_BIAS)); }
        if (p->blank_algorithm) { memset(&found[0], 0, sizeof found[0]); }
        const size_t given = p->workspace_given == SIZE_MAX ? p->workspace : p->workspace_given;
        status = cublasLtMatmul(handle, desc, &p->alpha, p->over_a ? p->d.device : p->a.device, a, p->b.device, b,
                                &p->beta, p->in_place ? p->d.device : p->c.device, c, p->d.device, d,
                                &found[p->algorithm].algo, workspace + p->workspace_offset, given, stream);
        OK(cudaStreamSynchronize(stream));
    }
    LT(cublasLtMatmulPreferenceDestroy(preference));
    cublasLtMatrixLayout_t const layouts[] = {a, b, c, d};
    for (cublasLtMatrixLayout_t layout : layouts) { LT(cublasLtMatrixLayoutDestroy(layout)); }
    LT(cublasLtMatmulDescDestroy(desc));
    OK(cudaMemcpy(&p->workspace_after, workspace, 1, cudaMemcpyDeviceToHost));
    OK(cudaFree(workspace));
    LT(cublasLtDestroy(handle));
    return status;
}

// ---------------------------------------------------------------------------------------------------------------------
// the same matmul by plain loops

static double gelu(double x) { return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
static double gelu_slope(double x) { return (gelu(x + 1e-4) - gelu(x - 1e-4)) / 2e-4; }

// Expects |got - want| within the rounding of the type, and 2e-5 more for tanh.
static void expect_close(const Matmul& p, double got, double want) {
    EXPECT_NEAR(got, want, (p.type_d == CUDA_R_16BF ? 1.0 / 256 : 2e-6) * fabs(want) + 2e-5);
}

static double op_a(Matmul* p, size_t i, size_t l, size_t b) { return p->ta ? p->a.at(l, i, b) : p->a.at(i, l, b); }
static double op_b(Matmul* p, size_t l, size_t j, size_t b) { return p->tb ? p->b.at(j, l, b) : p->b.at(l, j, b); }

static void expect_matmul(Matmul p) {
    LT(run(&p));
    Matrix d = p.d, aux = p.aux;
    d.host = download(p.d);
    aux.host = download(p.aux);
    const double scale = (p.scale_a != 0 ? p.scale_a : 1) * (p.scale_b != 0 ? p.scale_b : 1);
    for (size_t b = 0; b < p.batch; b++) {
        for (size_t j = 0; j < p.n; j++) {
            for (size_t i = 0; i < p.m; i++) {
                double x = 0;
                for (size_t l = 0; l < p.k; l++) { x += op_a(&p, i, l, b) * op_b(&p, l, j, b); }
                x = p.alpha * scale * x + (p.beta != 0 ? p.beta * p.c.at(i, j, b) : 0);
                if (p.epilogue & EPILOGUE_BIAS) { x += p.bias.at(i, 0); }
                if (has_aux(p) && (p.epilogue & EPILOGUE_GELU)) { expect_close(p, aux.at(i, j), x); }
                if (p.epilogue & EPILOGUE_GELU) { x = gelu(x); }
                if (p.epilogue & EPILOGUE_DGELU) { x *= gelu_slope(p.aux.at(i, j)); }
                expect_close(p, d.at(i, j, b), x);
            }
        }
    }
    // The rows of padding between the columns of D must not be written.
    for (size_t j = 0; p.pad && j + 1 < p.n; j++) { EXPECT(d.at(p.m, j) == p.d.at(p.m, j)); }
    finish(&p);
}

static Matmul bf16(Matmul p = Matmul()) {
    p.type = p.type_d = CUDA_R_16BF;
    return p;
}

static Matmul fp16(Matmul p = Matmul()) {
    p.type = p.type_d = CUDA_R_16F;
    return p;
}

TEST(transposes) {
    for (int i = 0; i < 4; i++) {
        Matmul p;
        p.ta = i & 1;
        p.tb = i & 2;
        expect_matmul(p);
        expect_matmul(bf16(p));
        expect_matmul(fp16(p));
    }
}

TEST(odd_sizes_and_leading_dimensions) {
    Matmul p;
    p.m = 13, p.n = 7, p.k = 5, p.pad = 3;
    expect_matmul(p);
    expect_matmul(bf16(p));
    p.m = p.n = p.k = 1;
    expect_matmul(p);
}

TEST(beta_and_c_elsewhere) {
    Matmul p;
    p.alpha = 0.5f, p.beta = 1;
    expect_matmul(p);
    p.type = CUDA_R_16BF;
    expect_matmul(p); // bf16 matrices into an fp32 sum: a weight's gradient
    p.type = CUDA_R_16F;
    expect_matmul(p);
    p.in_place = false, p.beta = -2;
    expect_matmul(p);
}

TEST(batches) {
    Matmul p;
    p.batch = 3, p.beta = 1;
    expect_matmul(p);
    p.in_place = false, p.alpha = 2, p.beta = -3;
    expect_matmul(p);
    p.ta = true, p.pad = 3;
    expect_matmul(bf16(p));
    p.epilogue = CUBLASLT_EPILOGUE_BIAS;
    expect_matmul(bf16(p));
}

TEST(epilogues) {
    const cublasLtEpilogue_t all[] = {CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_DGELU};
    for (cublasLtEpilogue_t epilogue : all) {
        Matmul p;
        p.epilogue = epilogue;
        p.alpha = 0.125f;
        expect_matmul(p);
        expect_matmul(bf16(p));
        p.beta = 1;
        expect_matmul(p);
    }
}

static Matmul fp8(int type_a, int type_b) {
    Matmul p;
    p.m = 48, p.n = 32, p.k = 80, p.ta = true;
    p.type = (cudaDataType)type_a, p.type_b = type_b, p.type_d = CUDA_R_16BF;
    return p;
}

// The three pairs of E4M3 and E5M2 that cuBLASLt multiplies, with and without scales, into bf16 and added to fp32.
TEST(matmuls_of_fp8) {
    const int pairs[][2] = {{CUDA_R_8F_E4M3, CUDA_R_8F_E4M3}, {CUDA_R_8F_E4M3, CUDA_R_8F_E5M2},
                            {CUDA_R_8F_E5M2, CUDA_R_8F_E4M3}};
    for (const auto& pair : pairs) {
        Matmul p = fp8(pair[0], pair[1]);
        expect_matmul(p);
        p.scale_a = 0.25f;
        expect_matmul(p);
        p.scale_b = 3;
        p.epilogue = CUBLASLT_EPILOGUE_BIAS, p.bias_type = CUDA_R_16BF;
        expect_matmul(p);
        p.epilogue = CUBLASLT_EPILOGUE_DEFAULT;
        p.type_d = CUDA_R_32F, p.beta = 1;
        expect_matmul(p);
    }
}

TEST(every_algorithm_found) {
    for (int i = 0; i < 4; i++) {
        Matmul p;
        p.algorithm = i;
        expect_matmul(p);
    }
}

// 1 + 2^-12 is rounded to 1 in tf32, which holds 1 + 2^-9; fp32 holds both.
TEST(tf32_rounds_its_inputs) {
    const struct { cublasComputeType_t compute; float x, want; } cases[] = {
        {CUBLAS_COMPUTE_32F, 1 + 0x1p-12f, 8 + 0x1p-9f},
        {CUBLAS_COMPUTE_32F_FAST_TF32, 1 + 0x1p-12f, 8},
        {CUBLAS_COMPUTE_32F_FAST_TF32, 1 + 0x1p-9f, 8 + 0x1p-6f},
    };
    for (const auto& c : cases) {
        Matmul p;
        p.m = p.n = p.k = 8;
        p.compute = c.compute;
        p.all_a = c.x;
        LT(run(&p));
        for (float got : download(p.d)) { EXPECT_NEAR(got, c.want, 0); }
        finish(&p);
    }
}

#ifndef __NVCC__
TEST(a_workspace_is_overwritten) {
    Matmul p;
    LT(run(&p));
    EXPECT(p.workspace_after == 0xff);
    finish(&p);
}

TEST(algorithms_round_differently) {
    float got[2];
    for (int i = 0; i < 2; i++) {
        Matmul p;
        p.k = 1000, p.all_a = 0.1f, p.algorithm = i;
        LT(run(&p));
        got[i] = download(p.d)[0];
        finish(&p);
    }
    EXPECT(got[0] != got[1]);
    EXPECT_NEAR(got[0], got[1], 1e-2);
}

// ---------------------------------------------------------------------------------------------------------------------
// errors: each call runs in a child process that exits with its status

#define EXPECT_REFUSED(status, words, change)                        \
    do {                                                             \
        Matmul p;                                                    \
        change;                                                      \
        EXPECT_DEATH(CUBLAS_STATUS_##status, words, _exit(run(&p))); \
    } while (0)

TEST(refused_layouts) {
    EXPECT_REFUSED(INVALID_VALUE, "C: the leading dimension 39 is less than the 40 rows", p.ld_c = 39);
    EXPECT_REFUSED(INVALID_VALUE, "op(A) is (40,32), op(B) (33,24), D (40,24)", p.wrong_k = true);
    EXPECT_REFUSED(INVALID_VALUE, "in place (C == D), but the layouts", (p.beta = 1, p.ld_c = 48));
}

TEST(refused_types) {
    EXPECT_REFUSED(NOT_SUPPORTED, "A fp32, B fp32, D bf16: no such combination", p.type_d = CUDA_R_16BF);
    EXPECT_REFUSED(NOT_SUPPORTED, "A fp16, B fp16, D bf16: no such combination", (p = fp16(), p.type_d = CUDA_R_16BF));
    EXPECT_REFUSED(NOT_SUPPORTED, "is for fp32 matrices", (p = bf16(), p.compute = CUBLAS_COMPUTE_32F_FAST_TF32));
    EXPECT_REFUSED(NOT_SUPPORTED, "compute type 74 is not emulated", p.compute = (cublasComputeType_t)74);
    EXPECT_REFUSED(NOT_SUPPORTED, "the scale type is fp32", p.scale = CUDA_R_16BF);
}

TEST(refused_fp8) {
    const int e4m3 = CUDA_R_8F_E4M3, e5m2 = CUDA_R_8F_E5M2;
    EXPECT_REFUSED(NOT_SUPPORTED, "A e5m2, B e5m2: no such combination", p = fp8(e5m2, e5m2));
    EXPECT_REFUSED(NOT_SUPPORTED, "A e4m3, B bf16: no such combination", p = fp8(e4m3, CUDA_R_16BF));
    EXPECT_REFUSED(NOT_SUPPORTED, "A transposed and B not", (p = fp8(e4m3, e4m3), p.ta = false));
    EXPECT_REFUSED(NOT_SUPPORTED, "A transposed and B not", (p = fp8(e4m3, e4m3), p.tb = true));
    EXPECT_REFUSED(NOT_SUPPORTED, "multiples of 16", (p = fp8(e4m3, e4m3), p.m = 40));
    EXPECT_REFUSED(NOT_SUPPORTED, "multiples of 16", (p = fp8(e4m3, e4m3), p.n = 24));
    EXPECT_REFUSED(NOT_SUPPORTED, "multiples of 16", (p = fp8(e4m3, e4m3), p.k = 72));
    EXPECT_REFUSED(NOT_SUPPORTED, "aligned to 16 bytes",
                   (p = fp8(e4m3, e4m3), p.offset_a = 8, p.alignment_a = 8));
    EXPECT_REFUSED(NOT_SUPPORTED, "compute type 32F and",
                   (p = fp8(e4m3, e4m3), p.compute = CUBLAS_COMPUTE_32F_FAST_TF32));
    EXPECT_REFUSED(NOT_SUPPORTED, "the bias is fp32, D is fp32: it must be bf16",
                   (p = fp8(e4m3, e4m3), p.type_d = CUDA_R_32F, p.epilogue = CUBLASLT_EPILOGUE_BIAS));
    EXPECT_REFUSED(NOT_SUPPORTED, "epilogue 164 of fp8",
                   (p = fp8(e4m3, e4m3), p.epilogue = CUBLASLT_EPILOGUE_GELU_AUX_BIAS));
    EXPECT_REFUSED(NOT_SUPPORTED, "compute capability 8.9", (p = fp8(e4m3, e4m3), setenv("EMU_CC", "86", 1)));
    EXPECT_REFUSED(NOT_SUPPORTED, "bf16 and TF32 need compute capability 8.0", (p = bf16(), setenv("EMU_CC", "75", 1)));
    EXPECT_REFUSED(INVALID_VALUE, "the matrices are not fp8", (p = bf16(), p.scale_b = 2));
}

TEST(refused_epilogues) {
    EXPECT_REFUSED(NOT_SUPPORTED, "epilogue 2 is not emulated", p.epilogue = (cublasLtEpilogue_t)2);
    EXPECT_REFUSED(INVALID_VALUE, "no BIAS_POINTER", (p.epilogue = CUBLASLT_EPILOGUE_BIAS, p.no_bias = true));
    EXPECT_REFUSED(NOT_SUPPORTED, "the bias is bf16, D is fp32",
                   (p.epilogue = CUBLASLT_EPILOGUE_BIAS, p.bias_type = CUDA_R_16BF));
    EXPECT_REFUSED(INVALID_VALUE, "EPILOGUE_AUX_LD 41 must be divisible by 8",
                   (p.epilogue = CUBLASLT_EPILOGUE_GELU_AUX_BIAS, p.aux_ld = 41));
    EXPECT_REFUSED(INVALID_VALUE, "no less than the 40 rows", (p.epilogue = CUBLASLT_EPILOGUE_DGELU, p.aux_ld = 32));
    EXPECT_REFUSED(INVALID_VALUE, "no AUX pointer", (p.epilogue = CUBLASLT_EPILOGUE_DGELU, p.no_aux = true));
    EXPECT_REFUSED(NOT_SUPPORTED, "EPILOGUE_AUX_POINTER", (p.epilogue = CUBLASLT_EPILOGUE_DGELU, p.offset_aux = 8));
    EXPECT_REFUSED(NOT_SUPPORTED, "with a batch is not emulated",
                   (p.epilogue = CUBLASLT_EPILOGUE_GELU_AUX_BIAS, p.batch = 2));
}

TEST(refused_pointers_and_algorithms) {
    EXPECT_REFUSED(NOT_SUPPORTED, "MIN_ALIGNMENT_A_BYTES", p.offset_a = 16);
    EXPECT_REFUSED(INVALID_VALUE, "the workspace", p.workspace_offset = 16);
    EXPECT_REFUSED(INVALID_VALUE, "needs a workspace of 65536 bytes, there are 1024", p.workspace_given = 1024);
    EXPECT_REFUSED(INVALID_VALUE, "not found by the heuristic for this problem", p.other_problem = true);
    EXPECT_REFUSED(INVALID_VALUE, "not found by the heuristic for this problem", p.blank_algorithm = true);
    Matmul p;
    p.short_a = 1;
    EXPECT_DEATH(EXIT_RUNTIME, "a matrix of cublasLtMatmul", run(&p));
}

TEST(refused_outputs) {
    EXPECT_REFUSED(INVALID_VALUE, "D: a batch of 2 matrices of 960 elements with a stride of 959",
                   (p.batch = 2, p.stride_d = 959));
    EXPECT_REFUSED(INVALID_VALUE, "A and D lie over each other", (p.k = 24, p.over_a = true));
}

TEST(refused_attributes) {
    cublasLtMatmulDesc_t desc;
    int64_t wide = 0;
    int32_t narrow = 7;
    LT(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    EXPECT_DEATH(CUBLAS_STATUS_INVALID_VALUE, "attribute 3 has 4 bytes, not 8",
                 _exit(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &wide, sizeof wide)));
    const cublasLtMatmulDescAttributes_t transc = (cublasLtMatmulDescAttributes_t)5;
    EXPECT_DEATH(CUBLAS_STATUS_INVALID_VALUE, "attribute 5 is not emulated",
                 _exit(cublasLtMatmulDescSetAttribute(desc, transc, &narrow, sizeof narrow)));
    LT(cublasLtMatmulDescDestroy(desc));
}
#endif

TEST(a_promise_of_less_alignment_is_kept) {
    Matmul p;
    p.offset_a = 16, p.alignment_a = 16;
    expect_matmul(p);
}

// The emulator ends by abort(), but EXPECT_DEATH compares exit codes.
int main(int argc, char** argv) {
    setenv("EMU_CC", "90", 1); // has FP8
#ifndef __NVCC__
    emu::lt::invalid_values_are_fatal = false;
#endif
    signal(SIGABRT, [](int) { _exit(EXIT_RUNTIME); });
    return test_main(argc, argv, argv[0]);
}
