// Matmuls by cuBLASLt. No other file calls it for a matmul.
//
// cuBLASLt is column-major: it sees a row-major matrix as its transpose. So instead of out = a @ b it is asked for
// out^T = b^T @ a^T, which lies in memory exactly as out does. Its A is our b, its B is our a, and its m, n and k are
// our cols, rows and depth.
//
// A plan has all descriptors of a matmul, and the algorithms that the library offers for it, its heuristic's best first
// (cublasLtMatmulAlgoGetHeuristic). The first one runs until tune.cuh has measured which is the fastest. Some forms
// have no algorithm, depending on GPU, types, shape and the library's version: the caller uses another form.
//
// Results have the same bits in every run with one version of the library on one kind of GPU, as its documentation
// promises for work with a workspace of its own (section "Results Reproducibility").
#pragma once
#include "matmul_plain.cuh"

static const cudaDataType_t FLOATX_TYPE = FLOATX_IS_FP16 ? CUDA_R_16F : FLOATX_IS_16_BITS ? CUDA_R_16BF : CUDA_R_32F;

// Larger alignments count as this one: the library's kernels access at most 16 bytes at once. Asked with its default of
// 256 bytes too, it offered no others (H200).
static constexpr int MAX_ALIGNMENT = 16;
// Fused GELU and its gradient: "leading dimension must be divisible by 8" (documentation of EPILOGUE_AUX_LD).
static constexpr int GELU_ROW_MULTIPLE = 8;

// Everything that the choice of an algorithm depends on. All fields are ints, so that keys are compared as bytes and
// written as numbers.
typedef struct {
    int rows, cols, depth;
    int a_storage, b_storage;
    int a_transposed, b_transposed, to_sum, tf32; // to_sum: the output is in fp32, and added to (1) or set (2)
    int fusion;
    int a_alignment, b_alignment, out_alignment, bias_alignment, pre_alignment; // in bytes
    int batch, adds_matrix;
    int sms; // multiprocessors to use; 0: all
} MatmulKey;

typedef struct {
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace_bytes;
    double seconds; // measured by tune.cuh; INFINITY: not measured, or it failed
} Algorithm;

static constexpr int MAX_ALGORITHMS = 16; // of a plan

namespace { // has a Matmul: see device.cuh
struct MatmulPlan {
    MatmulKey key;
    int count;    // algorithms; 0: the library has none
    int chosen;   // the algorithm in use
    bool is_tuned; // chosen by measuring, now or earlier
    Algorithm algorithm[MAX_ALGORITHMS];
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, out; // the library's B, A and D
    Matmul last;     // the last one queued: tune.cuh runs it again
    bool is_watched; // queued since matmuls_watch(), so that the pointers of `last` are valid
};

// A training run needs about 40, and some more if gradients are both set and added to; each test set that is scored and
// each length of a prompt a few more.
static constexpr int MAX_PLANS = 128;
struct MatmulPlans {
    MatmulPlan plan[MAX_PLANS];
    size_t used; // slots taken so far, in turn; the next is used % MAX_PLANS
};
} // namespace
static MatmulPlans plans;
static inline size_t num_plans() { return min_size(plans.used, MAX_PLANS); }

static inline int alignment_of(const void* p) {
    int alignment = MAX_ALIGNMENT;
    while ((uintptr_t)p % alignment != 0) { alignment /= 2; }
    return alignment;
}

static inline cudaDataType_t storage_type(Storage s) {
    return s == AS_E4M3 ? CUDA_R_8F_E4M3 : s == AS_E5M2 ? CUDA_R_8F_E5M2 : FLOATX_TYPE;
}

static inline const void* matmul_output(const Matmul* m) { return m->out ? (const void*)m->out : m->sum; }

// Returns the matrix that is added, the library's C: one of its own, or the output.
static inline const void* matmul_addend(const Matmul* m) { return m->add ? m->add : matmul_output(m); }

static inline MatmulKey plan_key(const Matmul* m, int sms) {
    MatmulKey key;
    memset(&key, 0, sizeof key);
    key.rows = m->rows;
    key.cols = m->cols;
    key.depth = m->depth;
    key.a_storage = m->a_storage;
    key.b_storage = m->b_storage;
    key.a_transposed = m->a_transposed;
    key.b_transposed = m->b_transposed;
    key.to_sum = !m->sum ? 0 : m->sum_mode == GRADS_ADD ? 1 : 2;
    key.tf32 = gpu.tf32;
    key.fusion = m->fusion;
    key.a_alignment = alignment_of(m->a);
    key.b_alignment = alignment_of(m->b);
    key.out_alignment = min_int(alignment_of(matmul_output(m)), alignment_of(matmul_addend(m)));
    key.bias_alignment = alignment_of(m->bias);
    key.pre_alignment = alignment_of(m->pre);
    key.batch = m->batch;
    key.adds_matrix = m->add != NULL;
    key.sms = sms;
    return key;
}

static inline cublasLtEpilogue_t matmul_epilogue(const Matmul* m) {
    switch (m->fusion) {
    case FUSE_BIAS: return CUBLASLT_EPILOGUE_BIAS;
    case FUSE_BIAS_GELU: return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case FUSE_GELU_BACKWARD: return CUBLASLT_EPILOGUE_DGELU;
    default: return CUBLASLT_EPILOGUE_DEFAULT;
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// plans

template <class Value>
static inline void desc_set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, Value value) {
    cublas_check(cublasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof value), "describing a matmul");
}

// Sets the pointers that differ from call to call but belong to the descriptor. The heuristic looks at their alignment.
static inline void desc_set_pointers(cublasLtMatmulDesc_t desc, const Matmul* m) {
    if (m->bias) { desc_set(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, (const void*)m->bias); }
    if (m->pre) { desc_set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, (void*)m->pre); }
    if (m->b_scale) { desc_set(desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, m->b_scale); }
    if (m->a_scale) { desc_set(desc, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, m->a_scale); }
}

// bf16 and fp16 are multiplied exactly and summed in fp32. fp32 is multiplied and summed in fp32; with TF32 its factors
// are first rounded to 10 bits of mantissa. FP8 is multiplied exactly. Hopper sums it with fewer bits and moves the
// sums to fp32 at intervals, unless FAST_ACCUM is set: forward sets it and the gradients do not, as in NVIDIA's
// Transformer Engine.
static inline cublasLtMatmulDesc_t desc_create(const Matmul* m, int sms) {
    const bool is_tf32 = FLOATX_TYPE == CUDA_R_32F && gpu.tf32;
    const cublasComputeType_t compute = is_tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    cublasLtMatmulDesc_t desc;
    cublas_check(cublasLtMatmulDescCreate(&desc, compute, CUDA_R_32F), "describing a matmul");
    desc_set(desc, CUBLASLT_MATMUL_DESC_TRANSA, m->b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    desc_set(desc, CUBLASLT_MATMUL_DESC_TRANSB, m->a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    desc_set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, matmul_epilogue(m));
    if (m->bias) { desc_set(desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, FLOATX_TYPE); }
    if (m->pre) { desc_set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, (int64_t)m->cols); }
    if (m->a_storage == AS_E4M3) { desc_set(desc, CUBLASLT_MATMUL_DESC_FAST_ACCUM, (int8_t)1); }
    if (sms) { desc_set(desc, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, (int32_t)sms); }
    desc_set_pointers(desc, m);
    return desc;
}

template <class Value>
static inline void layout_set(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute, Value value) {
    cublas_check(cublasLtMatrixLayoutSetAttribute(layout, attribute, &value, sizeof value), "describing a matrix");
}

// Describes row-major matrices (rows,cols): one, or a stack of `batch`.
static inline cublasLtMatrixLayout_t layout_create(cudaDataType_t type, int batch, int rows, int cols) {
    cublasLtMatrixLayout_t layout;
    cublas_check(cublasLtMatrixLayoutCreate(&layout, type, (uint64_t)cols, (uint64_t)rows, cols),
                 "describing a matrix");
    if (batch > 1) {
        layout_set(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, (int32_t)batch);
        layout_set(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, (int64_t)stack_stride(rows, cols));
    }
    return layout;
}

template <class Value>
static inline void preference_set(cublasLtMatmulPreference_t preference,
                                  cublasLtMatmulPreferenceAttributes_t attribute, Value value) {
    cublas_check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value),
                 "setting a matmul's preferences");
}

// Alignments must be given: without them the library assumes multiples of 256. Where an algorithm splits the depth
// among blocks, their parts are added in fp32: by all schemes if the output is fp32, else by COMPUTE_TYPE alone.
// INPLACE keeps the blocks in order by counters, so its sums repeat their bits too (documentation of
// cublasLtReductionScheme_t).
static inline cublasLtMatmulPreference_t preference_create(const MatmulKey* key) {
    cublasLtMatmulPreference_t preference;
    cublas_check(cublasLtMatmulPreferenceCreate(&preference), "setting a matmul's preferences");
    preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, (uint64_t)WORKSPACE_BYTES);
    preference_set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                   (uint32_t)(key->to_sum || FLOATX_TYPE == CUDA_R_32F ? CUBLASLT_REDUCTION_SCHEME_MASK
                                                                       : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    preference_set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, (uint32_t)key->b_alignment);
    preference_set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, (uint32_t)key->a_alignment);
    preference_set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, (uint32_t)key->out_alignment);
    preference_set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, (uint32_t)key->out_alignment);
    return preference;
}

static inline void plan_free_descriptions(MatmulPlan* p) {
    cublas_check(cublasLtMatmulDescDestroy(p->desc), "freeing a matmul's description");
    cublas_check(cublasLtMatrixLayoutDestroy(p->a), "freeing a matrix's description");
    cublas_check(cublasLtMatrixLayoutDestroy(p->b), "freeing a matrix's description");
    cublas_check(cublasLtMatrixLayoutDestroy(p->out), "freeing a matrix's description");
}

// Returns true if the matmul has no fused GELU or meets its documented conditions. The heuristic checks all others.
static inline bool meets_gelu_conditions(const Matmul* m) {
    return !m->pre || (m->cols % GELU_ROW_MULTIPLE == 0 && alignment_of(m->pre) == MAX_ALIGNMENT);
}

// Says once for each fusion that the library lacks it; matmul.cuh reports matmuls without fusion.
static inline void report_missing_fusion(const Matmul* m) {
    static const char* const NAMES[] = {NULL, "the bias", "bias and GELU", "the gradient of GELU"};
    static bool is_reported[sizeof NAMES / sizeof *NAMES];
    if (!NAMES[m->fusion] || is_reported[m->fusion]) { return; }
    is_reported[m->fusion] = true;
    notice("cuBLASLt has no algorithm for a matmul of %d x %d x %d fused with %s: separate kernels run, also for "
           "further such shapes",
           m->rows, m->cols, m->depth, NAMES[m->fusion]);
}

// Returns true if a status says that this GPU or version of the library lacks a form. It reports what it does not know,
// an epilogue of a later version for instance, as an invalid value.
static inline bool is_refusal(cublasStatus_t status) {
    return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE ||
           status == CUBLAS_STATUS_ARCH_MISMATCH;
}

static inline void plan_find_algorithms(MatmulPlan* p) {
    cublasLtMatmulPreference_t preference = preference_create(&p->key);
    cublasLtMatmulHeuristicResult_t results[MAX_ALGORITHMS];
    int found = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(gpu.cublaslt, p->desc, p->b, p->a, p->out, p->out,
                                                                 preference, MAX_ALGORITHMS, results, &found);
    cublas_check(cublasLtMatmulPreferenceDestroy(preference), "freeing a matmul's preferences");
    for (int i = 0; status == CUBLAS_STATUS_SUCCESS && i < found; i++) {
        if (results[i].state != CUBLAS_STATUS_SUCCESS) { continue; }
        p->algorithm[p->count++] = {results[i].algo, results[i].workspaceSize, (double)INFINITY};
    }
    if (!is_refusal(status)) { cublas_check(status, "choosing a matmul's algorithm"); }
}

static inline void plan_create(MatmulPlan* p, const Matmul* m, const MatmulKey* key) {
    memset(p, 0, sizeof *p);
    p->key = *key;
    if (meets_gelu_conditions(m)) {
        p->desc = desc_create(m, key->sms);
        const cudaDataType_t a_type = storage_type(m->a_storage), b_type = storage_type(m->b_storage);
        p->a = m->a_transposed ? layout_create(a_type, m->batch, m->depth, m->rows)
                               : layout_create(a_type, m->batch, m->rows, m->depth);
        p->b = m->b_transposed ? layout_create(b_type, m->batch, m->cols, m->depth)
                               : layout_create(b_type, m->batch, m->depth, m->cols);
        p->out = layout_create(m->out ? FLOATX_TYPE : CUDA_R_32F, m->batch, m->rows, m->cols);
        plan_find_algorithms(p);
        if (!p->count) { plan_free_descriptions(p); }
    }
    if (!p->count) { report_missing_fusion(m); }
}

// Returns the next slot: an empty one, or the oldest plan. Plans that were timed stay, unless all are: they are the
// training step's, and with another algorithm its bits would change.
static inline MatmulPlan* plan_slot() {
    for (int i = 0; i < MAX_PLANS && plans.plan[plans.used % MAX_PLANS].is_tuned; i++) { plans.used++; }
    return &plans.plan[plans.used++ % MAX_PLANS];
}

// Returns the plan of a matmul on `sms` multiprocessors (0: all); makes it if there is none.
static inline MatmulPlan* plan_for(const Matmul* m, int sms) {
    const MatmulKey key = plan_key(m, sms);
    for (size_t i = 0; i < num_plans(); i++) {
        if (memcmp(&plans.plan[i].key, &key, sizeof key) == 0) { return &plans.plan[i]; }
    }
    MatmulPlan* p = plan_slot();
    if (p->count) { plan_free_descriptions(p); }
    plan_create(p, m, &key);
    return p;
}

// ---------------------------------------------------------------------------------------------------------------------

// Queues the matmul by one of its plan's algorithms.
static inline cublasStatus_t plan_queue(const MatmulPlan* p, const Matmul* m, const Algorithm* with) {
    desc_set_pointers(p->desc, m);
    const bool sets = m->out || m->sum_mode == GRADS_SET;
    const float alpha = m->add ? m->scale : 1.0f, beta = m->add ? m->add_scale : sets ? 0.0f : 1.0f;
    return cublasLtMatmul(gpu.cublaslt, p->desc, &alpha, m->b, p->b, m->a, p->a, &beta, matmul_addend(m), p->out,
                          (void*)matmul_output(m), p->out, &with->algorithm, gpu.workspace, with->workspace_bytes,
                          gpu.stream);
}

// Strikes out the chosen algorithm, which the library offered and then refused to run; the next best takes its place.
static inline void plan_strike_out(MatmulPlan* p) {
    p->count--;
    for (int i = p->chosen; i < p->count; i++) { p->algorithm[i] = p->algorithm[i + 1]; }
    p->chosen = 0;
    if (!p->count) { plan_free_descriptions(p); }
}

// Queues the matmul. Returns false, and queues nothing, if the library has no algorithm for it.
static inline bool cublaslt_matmul(const Matmul* m) {
    MatmulPlan* p = plan_for(m, gpu.leaves_sms && gpu.is_beside_nccl ? gpu.num_sms - NCCL_SMS : 0);
    p->last = *m;
    p->is_watched = true;
    while (p->count) {
        const cublasStatus_t status = plan_queue(p, m, &p->algorithm[p->chosen]);
        if (!is_refusal(status)) {
            cublas_check(status, "a matmul (try --tune 0, --fused 0 or --kernels plain)");
            return true;
        }
        plan_strike_out(p);
        if (!p->count) { report_missing_fusion(m); }
    }
    return false;
}
