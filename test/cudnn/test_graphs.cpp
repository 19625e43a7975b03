// Tests the graphs of attention_cudnn.cpp without a GPU: cuDNN's own check must accept them, for GPUs that a stand-in
// for the CUDA runtime reports, and each element of their tensors must lie at the right place in ours.
#include "../../llmc/cuda/attention_cudnn.cpp"

static int failures, architecture; // 80 is compute capability 8.0
#define EXPECT(condition, ...)                                 \
    if (!(condition)) {                                        \
        failures++;                                            \
        fprintf(stderr, "expected " #condition ": " __VA_ARGS__); \
        fprintf(stderr, "\n");                                 \
    }

// The stand-in: the two functions that checking a graph calls, and others that the headers need for linking.
cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int) {
    memset(p, 0, sizeof *p);
    p->major = architecture / 10;
    p->minor = architecture % 10;
    return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() { return cudaErrorNoDevice; }
cudaError_t cudaEventCreate(cudaEvent_t*) { return cudaErrorNoDevice; }
cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaErrorNoDevice; }
cudaError_t cudaEventElapsedTime(float*, cudaEvent_t, cudaEvent_t) { return cudaErrorNoDevice; }
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaErrorNoDevice; }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaErrorNoDevice; }
const char* cudaGetErrorString(cudaError_t) { return "no device"; }
cudaError_t cudaMemcpyAsync(void*, const void*, size_t, cudaMemcpyKind, cudaStream_t) { return cudaErrorNoDevice; }
cudaError_t cudaMemsetAsync(void*, int, size_t, cudaStream_t) { return cudaErrorNoDevice; }

// Returns the index of element (b,h,t,c) of part `part` in our tensor (B,T,parts,NH,HS).
static int64_t place(const AttentionShape* s, int parts, int part, int b, int h, int t, int c) {
    return ((((int64_t)b * s->T + t) * parts + part) * s->NH + h) * s->HS + c;
}

// Expects the corners of tensor `id` at the right places: cuDNN adds its strides to the address of qkv_part().
static void expect_places(const GraphPointer& graph, TensorId id, const AttentionShape* s, int parts, int part) {
    fe::graph::Tensor_attributes t;
    const auto error = graph->query_tensor_attributes_of_uid(id, t);
    const std::vector<int64_t> dim = {s->B, s->NH, s->T, s->HS}, x = t.get_stride();
    EXPECT(error.code == fe::error_code_t::OK && x.size() == 4 && t.get_dim() == dim, "tensor %d", (int)id);
    EXPECT(t.get_data_type() == data_type(s), "tensor %d", (int)id);
    if (x.size() != 4) { return; }
    const int64_t begin = ((char*)qkv_part(NULL, part, s) - (char*)NULL) / 2;
    const int last[4] = {s->B - 1, s->NH - 1, s->T - 1, s->HS - 1};
    for (int corner = 0; corner < 16; corner++) {
        int i[4];
        int64_t at = begin;
        for (int k = 0; k < 4; k++) {
            i[k] = corner >> k & 1 ? last[k] : 0;
            at += i[k] * x[k];
        }
        EXPECT(at == place(s, parts, part, i[0], i[1], i[2], i[3]), "tensor %d, corner %d", (int)id, corner);
    }
}

static void expect_lse(const GraphPointer& graph, const AttentionShape* s) {
    fe::graph::Tensor_attributes t;
    const auto error = graph->query_tensor_attributes_of_uid(LSE, t);
    const std::vector<int64_t> dim = {s->B, s->NH, s->T, 1}, stride = {(int64_t)s->NH * s->T, s->T, 1, 1};
    EXPECT(error.code == fe::error_code_t::OK && t.get_dim() == dim && t.get_stride() == stride, "lse");
    EXPECT(t.get_data_type() == fe::DataType_t::FLOAT, "lse");
}

static bool is_valid(const GraphPointer& graph, Error* err) {
    err->text[0] = 0;
    return succeeded(graph->validate(), "", err);
}

static void accepted(int capability, AttentionShape s) {
    Error err;
    architecture = capability;
    const GraphPointer forward = forward_graph(&s), backward = backward_graph(&s);
    EXPECT(is_valid(forward, &err), "sm_%d, T=%d HS=%d: %s", capability, s.T, s.HS, err.text);
    EXPECT(is_valid(backward, &err), "sm_%d, T=%d HS=%d: %s", capability, s.T, s.HS, err.text);
    const TensorId parts[3] = {Q, K, V}, grads[3] = {DQ, DK, DV};
    for (int i = 0; i < 3; i++) {
        expect_places(forward, parts[i], &s, 3, i);
        expect_places(backward, parts[i], &s, 3, i);
        expect_places(backward, grads[i], &s, 3, i);
    }
    expect_places(forward, OUT, &s, 1, 0);
    expect_places(backward, OUT, &s, 1, 0);
    expect_places(backward, DOUT, &s, 1, 0);
    expect_lse(forward, &s);
    expect_lse(backward, &s);
}

static void refused(int capability, AttentionShape s, const char* words) {
    Error err;
    architecture = capability;
    const bool is_accepted = is_valid(forward_graph(&s), &err) && is_valid(backward_graph(&s), &err);
    EXPECT(!is_accepted && strstr(err.text, words), "sm_%d, T=%d HS=%d: %s", capability, s.T, s.HS, err.text);
}

int main() {
    Error err;
    EXPECT(!open_cudnn(&err) && strstr(err.text, "opening cuDNN"), "%s", err.text); // opens the library, finds no GPU
    for (int capability : {80, 90}) {
        for (AttentionType type : {ATTENTION_IN_BF16, ATTENTION_IN_FP16}) {
            for (CudnnPass pass : {CUDNN_BACKWARD, CUDNN_BACKWARD_ANY_ORDER}) {
                accepted(capability, {4, 1024, 12, 64, type, pass});
                accepted(capability, {2, 127, 3, 80, type, pass});
                accepted(capability, {1, 256, 1, 96, type, pass});
                accepted(capability, {3, 31, 2, 128, type, pass});
                refused(capability, {2, 1, 2, 64, type, pass}, "not supported");
                refused(capability, {2, 64, 2, 7, type, pass}, "multiple of 8");
            }
        }
    }
    AttentionShape s = {4, 1024, 12, 64, ATTENTION_IN_BF16, CUDNN_BACKWARD};
    refused(100, s, "eterministic");
    s.pass = CUDNN_BACKWARD_ANY_ORDER;
    accepted(100, s);
    s.pass = CUDNN_FORWARD;
    size_t bytes;
    EXPECT(!attention_cudnn_prepare(&s, 1 << 30, &bytes, &err) && strstr(err.text, "opening cuDNN"), "%s", err.text);
    for (const int T : {16, 64, 1000}) { // valid graphs, but kernels that fail, or were not tried
        const AttentionShape other = {4, T, 12, 64, ATTENTION_IN_BF16, CUDNN_BACKWARD};
        const bool is_prepared = attention_cudnn_prepare(&other, 1 << 30, &bytes, &err);
        EXPECT(!is_prepared && strstr(err.text, "multiples of 128 tokens"), "T=%d: %s", T, err.text);
    }
    printf("cuDNN %zu, frontend %d: %d failures\n", cudnnGetVersion(), CUDNN_FRONTEND_VERSION, failures);
    return failures != 0;
}
