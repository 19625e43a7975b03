// Records recurring work as a CUDA graph (stream capture) and replays it, so that the driver is called once for all of
// its kernels. A step of GPT-2 124M is about 390 launches (as the emulator counts; cuBLASLt may make two launches of
// one call). At large batches a graph gains almost nothing, because launches are queued long before they run. It gains
// most at small batches, where launching a kernel takes longer than running it.
//
// A graph contains the arguments of its launches by value: sizes, factors, addresses. It is therefore valid for one set
// of the work's arguments. Batches alternate between two buffers, so a recording keeps up to two graphs. Each costs a
// little memory and a capture; copying each batch to one fixed buffer would cost a launch per batch. Uploads of batches
// are not recorded, so they overlap with kernels as they do without graphs.
//
// A recording's first call runs the work without recording it: libraries then choose algorithms and load kernels, which
// a capture may forbid. A capture that fails, also later with other arguments, ends the recording.
#pragma once
#include "device.cuh"

static constexpr int GRAPHS_KEPT = 2, MAX_WORK_ARGUMENTS = 32; // in bytes

typedef struct {
    cudaGraphExec_t exec; // NULL: no graph
    char arguments[MAX_WORK_ARGUMENTS];
} Graph;

struct Recording {
    bool is_warm;     // the work has run once
    bool is_given_up; // the work cannot be recorded
    int next;         // the graph to replace next
    Graph graph[GRAPHS_KEPT];
};

static inline Graph* graph_find(Recording* r, const void* arguments, size_t bytes) {
    for (int i = 0; i < GRAPHS_KEPT; i++) {
        Graph* g = &r->graph[i];
        if (g->exec && !memcmp(g->arguments, arguments, bytes)) { return g; }
    }
    return NULL;
}

// Call device_sync() before: the graph must not be running.
static inline void graph_destroy(Graph* g) {
    if (g->exec) { cuda_check(cudaGraphExecDestroy(g->exec), "freeing a graph"); }
    g->exec = NULL;
}

// Destroys the captured graph; an instantiated graph is a copy of it.
static inline void graph_drop(cudaGraph_t* graph) {
    if (*graph) { cuda_check(cudaGraphDestroy(*graph), "freeing a graph"); }
    *graph = NULL;
}

// Returns true on success, else notes the first failure.
static inline bool graph_succeeded(cudaError_t error, const char* what) {
    if (error != cudaSuccess && !gpu.capture_failed) { gpu.capture_failed = what; }
    return error == cudaSuccess;
}

// Captures the work that `work` queues and returns it as a graph; NULL if some of it cannot be captured. ThreadLocal
// lets other threads, such as NCCL's, make calls meanwhile that a capture forbids.
static inline cudaGraph_t graph_capture(Work work, const void* arguments) {
    cudaGraph_t graph = NULL;
    gpu.capture_failed = NULL;
    const cudaError_t begun = cudaStreamBeginCapture(gpu.stream, cudaStreamCaptureModeThreadLocal);
    if (!graph_succeeded(begun, "beginning a graph")) { return NULL; }
    gpu.is_capturing = true;
    work(arguments);
    gpu.is_capturing = false;
    graph_succeeded(cudaStreamEndCapture(gpu.stream, &graph), "ending a graph");
    if (gpu.capture_failed) { graph_drop(&graph); }
    return graph;
}

// Captures the work, instantiates the graph and uploads it to the GPU. On failure returns NULL and marks the recording
// as given up.
static inline Graph* graph_record(Recording* r, const char* name, Work work, const void* arguments, size_t bytes) {
    Graph* g = &r->graph[r->next];
    if (g->exec) { device_sync(); }
    graph_destroy(g);
    cudaGraph_t graph = graph_capture(work, arguments);
    if (graph && graph_succeeded(cudaGraphInstantiate(&g->exec, graph, 0), "instantiating a graph")) {
        graph_succeeded(cudaGraphUpload(g->exec, gpu.stream), "uploading a graph");
    }
    graph_drop(&graph);
    if (gpu.capture_failed) {
        notice("%s: cannot be recorded as a CUDA graph (%s failed): its kernels are launched one by one, as with "
               "--graph 0",
               name, gpu.capture_failed);
        cudaGetLastError(); // clears the runtime's error, which the next cuda_launched() would report
        graph_destroy(g);
        r->is_given_up = true;
        return NULL;
    }
    memcpy(g->arguments, arguments, bytes);
    r->next = (r->next + 1) % GRAPHS_KEPT;
    return g;
}

static inline void device_replay(Recording** recording, const char* name, Work work, const void* arguments,
                                 size_t bytes) {
    if (!*recording) { *recording = (Recording*)alloc_or_die(1, sizeof **recording, "a recording"); }
    Recording* r = *recording;
    Graph* g = NULL;
    if (bytes > MAX_WORK_ARGUMENTS) { fatal("%s: MAX_WORK_ARGUMENTS is too small for %zu bytes", name, bytes); }
    if (gpu.graph && r->is_warm && !r->is_given_up) {
        g = graph_find(r, arguments, bytes);
        if (!g) { g = graph_record(r, name, work, arguments, bytes); }
    }
    device_range_push(name, -1);
    if (g) { cuda_check(cudaGraphLaunch(g->exec, gpu.stream), name); }
    else { work(arguments); }
    device_range_pop();
    r->is_warm = true;
}

static inline void device_forget(Recording** recording) {
    if (!*recording) { return; }
    device_sync();
    for (int i = 0; i < GRAPHS_KEPT; i++) { graph_destroy(&(*recording)->graph[i]); }
    free(*recording);
    *recording = NULL;
}
