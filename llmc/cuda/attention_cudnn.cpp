// Causal attention by cuDNN's graph interface (docs.nvidia.com/deeplearning/cudnn, "SDPA"). This is an object file of
// its own because the frontend's headers take longer to compile than all of our kernels.
//
// Each shape has a graph for each pass, and the graph's plan: the kernel that cuDNN's heuristics rank first. Tensors of
// graphs are views of ours: dimensions (B,NH,T,HS), with the strides of qkv or of out.
#include "attention_cudnn.h"
#include "../base/library.h"
#include <cublasLt.h> // for CUBLAS_VER_MAJOR, which is CUDA's
#include <cudnn_frontend.h>

namespace fe = cudnn_frontend;
typedef std::shared_ptr<fe::graph::Graph> GraphPointer;
typedef std::shared_ptr<fe::graph::Tensor_attributes> TensorPointer;

// Ids under which a call passes the tensors' addresses.
enum TensorId : int64_t { Q = 1, K, V, OUT, LSE, DOUT, DQ, DK, DV };

// ---------------------------------------------------------------------------------------------------------------------
// graphs

static fe::DataType_t data_type(const AttentionShape* s) {
    return s->type == ATTENTION_IN_FP16 ? fe::DataType_t::HALF : fe::DataType_t::BFLOAT16;
}

// Describes a tensor (B,NH,T,HS) with `row` elements from one position to the next.
static fe::graph::Tensor_attributes head_rows(const AttentionShape* s, const char* name, TensorId id, int64_t row) {
    return fe::graph::Tensor_attributes()
        .set_name(name)
        .set_uid(id)
        .set_dim({s->B, s->NH, s->T, s->HS})
        .set_stride({s->T * row, s->HS, row, 1})
        .set_data_type(data_type(s));
}

static fe::graph::Tensor_attributes lse_rows(const AttentionShape* s) {
    return fe::graph::Tensor_attributes()
        .set_name("lse")
        .set_uid(LSE)
        .set_dim({s->B, s->NH, s->T, 1})
        .set_stride({(int64_t)s->NH * s->T, s->T, 1, 1})
        .set_data_type(fe::DataType_t::FLOAT);
}

static void make_output(const TensorPointer& t, const fe::graph::Tensor_attributes& like) {
    t->set_output(true)
        .set_uid(like.get_uid())
        .set_dim(like.get_dim())
        .set_stride(like.get_stride())
        .set_data_type(like.get_data_type());
}

static int64_t qkv_row(const AttentionShape* s) { return (int64_t)3 * s->NH * s->HS; }
static int64_t out_row(const AttentionShape* s) { return (int64_t)s->NH * s->HS; }
static float score_scale(const AttentionShape* s) { return 1.0f / sqrtf((float)s->HS); }

static GraphPointer new_graph(const AttentionShape* s) {
    GraphPointer graph = std::make_shared<fe::graph::Graph>();
    graph->set_io_data_type(data_type(s))
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    return graph;
}

static GraphPointer forward_graph(const AttentionShape* s) {
    GraphPointer graph = new_graph(s);
    const TensorPointer q = graph->tensor(head_rows(s, "q", Q, qkv_row(s)));
    const TensorPointer k = graph->tensor(head_rows(s, "k", K, qkv_row(s)));
    const TensorPointer v = graph->tensor(head_rows(s, "v", V, qkv_row(s)));
    const auto options = fe::graph::SDPA_attributes()
                             .set_name("attention_forward")
                             .set_causal_mask(true)
                             .set_generate_stats(true)
                             .set_attn_scale(score_scale(s));
    const auto [out, lse] = graph->sdpa(q, k, v, options);
    make_output(out, head_rows(s, "out", OUT, out_row(s)));
    make_output(lse, lse_rows(s));
    return graph;
}

static GraphPointer backward_graph(const AttentionShape* s) {
    GraphPointer graph = new_graph(s);
    const TensorPointer q = graph->tensor(head_rows(s, "q", Q, qkv_row(s)));
    const TensorPointer k = graph->tensor(head_rows(s, "k", K, qkv_row(s)));
    const TensorPointer v = graph->tensor(head_rows(s, "v", V, qkv_row(s)));
    const TensorPointer out = graph->tensor(head_rows(s, "out", OUT, out_row(s)));
    const TensorPointer dout = graph->tensor(head_rows(s, "dout", DOUT, out_row(s)));
    const TensorPointer lse = graph->tensor(lse_rows(s));
    const auto options = fe::graph::SDPA_backward_attributes()
                             .set_name("attention_backward")
                             .set_causal_mask(true)
                             .set_attn_scale(score_scale(s))
                             .set_deterministic_algorithm(s->pass == CUDNN_BACKWARD);
    const auto [dq, dk, dv] = graph->sdpa_backward(q, k, v, out, dout, lse, options);
    make_output(dq, head_rows(s, "dq", DQ, qkv_row(s)));
    make_output(dk, head_rows(s, "dk", DK, qkv_row(s)));
    make_output(dv, head_rows(s, "dv", DV, qkv_row(s)));
    return graph;
}

// ---------------------------------------------------------------------------------------------------------------------
// plans

struct AttentionPlan {
    AttentionShape shape;
    GraphPointer graph;
    size_t workspace_bytes, most_bytes; // needed; allowed when the plan was made
    std::string reason;                 // why cuDNN has no plan; empty if it has
};

// Sequences must be multiples of so many tokens. With others cuDNN 9.19's kernels for Hopper write where they must not:
// on an H200, 16, 40, 72 and 100 tokens gave wrong gradients or an illegal access, 64 were not tried, 128 and 1024 were
// right. Its developers call the length the cause of such errors (cudnn-frontend, issue 160).
enum { TOKENS_MULTIPLE = 128 };

// Opens cuDNN at first use; it stays open until the program ends. Returns NULL if that fails.
static cudnnHandle_t open_cudnn(Error* err) {
    static cudnnHandle_t handle;
    if (handle) { return handle; }
    if (!library_reach("libcudnn.so." STRING(CUDNN_MAJOR),
                       "--attention cudnn needs cuDNN: run `pip install nvidia-cudnn-cu" STRING(CUBLAS_VER_MAJOR) "`",
                       err)) {
        return NULL;
    }
    const cudnnStatus_t status = cudnnCreate(&handle);
    if (status == CUDNN_STATUS_SUCCESS) { return handle; }
    fail(err, "opening cuDNN: %s", cudnnGetErrorString(status));
    handle = NULL;
    return NULL;
}

static bool succeeded(fe::error_t error, const char* what, Error* err) {
    return error.is_good() || fail(err, "%s: %s", what, error.get_message().c_str());
}

static bool make_plan(AttentionPlan* p, Error* err) {
    static const char* const NAMES[] = {"forward", "deterministic backward", "backward"};
    const char* what = NAMES[p->shape.pass];
    if (p->shape.T % TOKENS_MULTIPLE) {
        return fail(err, "sequences must be multiples of %d tokens", (int)TOKENS_MULTIPLE);
    }
    const cudnnHandle_t handle = open_cudnn(err);
    if (!handle) { return false; }
    const GraphPointer graph = p->shape.pass == CUDNN_FORWARD ? forward_graph(&p->shape) : backward_graph(&p->shape);
    if (!succeeded(graph->validate(), what, err) || !succeeded(graph->build_operation_graph(handle), what, err) ||
        !succeeded(graph->create_execution_plans({fe::HeurMode_t::A}), what, err)) {
        return false;
    }
    int64_t bytes = 0;
    graph->deselect_workspace_greater_than((int64_t)p->most_bytes);
    p->graph = graph;
    const bool ok = succeeded(graph->check_support(handle), what, err) &&
                    succeeded(graph->build_plans(handle, fe::BuildPlanPolicy_t::HEURISTICS_CHOICE), what, err) &&
                    succeeded(graph->get_workspace_size(bytes), what, err);
    p->workspace_bytes = (size_t)bytes;
    return ok;
}

// Returns the plan of a shape and a pass. Makes it in the first call, with at most `most_bytes` of workspace; a later
// call makes it again only if that failed and more is allowed now. Plans last until the program ends.
static AttentionPlan* plan_of(const AttentionShape* s, size_t most_bytes) {
    static std::vector<std::unique_ptr<AttentionPlan>> all;
    AttentionPlan* p = nullptr;
    for (const auto& old : all) {
        if (memcmp(&old->shape, s, sizeof *s) == 0) { p = old.get(); }
    }
    if (p && (p->reason.empty() || most_bytes <= p->most_bytes)) { return p; }
    if (!p) { all.emplace_back(p = new AttentionPlan{*s, nullptr, 0, 0, ""}); }
    Error err;
    p->most_bytes = most_bytes;
    p->reason = make_plan(p, &err) ? "" : err.text;
    return p;
}

size_t attention_cudnn_version(void) {
    Error err;
    return open_cudnn(&err) ? cudnnGetVersion() : 0;
}

bool attention_cudnn_prepare(const AttentionShape* shape, size_t most_bytes, size_t* workspace_bytes, Error* err) {
    const AttentionPlan* p = plan_of(shape, most_bytes);
    *workspace_bytes = p->workspace_bytes;
    return p->reason.empty() || fail(err, "%s", p->reason.c_str());
}

// ---------------------------------------------------------------------------------------------------------------------
// calls

// Returns part 0, 1 or 2 of qkv: the rows of q, k or v, or of their gradients. cuDNN takes no const pointers.
static void* qkv_part(const void* qkv, int part, const AttentionShape* s) {
    enum { ELEMENT_BYTES = 2 };
    return (char*)qkv + part * out_row(s) * ELEMENT_BYTES;
}

static void execute(const GraphPointer& graph, std::unordered_map<int64_t, void*>& tensors, void* workspace,
                    cudaStream_t stream, const char* what) {
    Error err;
    const cudnnHandle_t handle = open_cudnn(&err);
    const cudnnStatus_t status = handle ? cudnnSetStream(handle, stream) : CUDNN_STATUS_NOT_INITIALIZED;
    if (status != CUDNN_STATUS_SUCCESS) { fatal("%s: cuDNN: %s", what, cudnnGetErrorString(status)); }
    if (!succeeded(graph->execute(handle, tensors, workspace), what, &err)) {
        fatal("cuDNN: %s (try --attention flash)", err.text);
    }
}

void attention_cudnn_forward(void* out, float* lse, const void* qkv, const AttentionShape* shape, void* workspace,
                             cudaStream_t stream) {
    std::unordered_map<int64_t, void*> tensors = {{Q, qkv_part(qkv, 0, shape)},
                                                  {K, qkv_part(qkv, 1, shape)},
                                                  {V, qkv_part(qkv, 2, shape)},
                                                  {OUT, out},
                                                  {LSE, lse}};
    execute(plan_of(shape, 0)->graph, tensors, workspace, stream, "attention_forward");
}

void attention_cudnn_backward(void* dqkv, const void* dout, const void* out, const float* lse, const void* qkv,
                              const AttentionShape* shape, void* workspace, cudaStream_t stream) {
    std::unordered_map<int64_t, void*> tensors = {
        {Q, qkv_part(qkv, 0, shape)},   {K, qkv_part(qkv, 1, shape)},   {V, qkv_part(qkv, 2, shape)},
        {DQ, qkv_part(dqkv, 0, shape)}, {DK, qkv_part(dqkv, 1, shape)}, {DV, qkv_part(dqkv, 2, shape)},
        {DOUT, (void*)dout},            {OUT, (void*)out},              {LSE, (void*)lse}};
    execute(plan_of(shape, 0)->graph, tensors, workspace, stream, "attention_backward");
}
