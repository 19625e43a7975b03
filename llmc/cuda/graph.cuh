// Work that recurs, recorded as a CUDA graph (stream capture) and replayed: the driver is called once for all of it,
// not once for each kernel. A micro-step of GPT-2 124M is about 370 launches (counted by the emulator; cuBLASLt may
// make two of one). What that is worth depends on how long the kernels are: next to nothing at large batches, where the
// next launch is queued long before its turn comes; most at small ones, where starting a kernel takes longer than
// running it.
//
// A graph holds what launches were given by value: sizes, factors, addresses. So it is good for one value of the work's
// arguments. A recording keeps graphs for two of them, because batches alternate between two buffers: two graphs cost a
// little memory and one more capture, while a copy of each batch into one place would cost a launch each time. Uploads
// of batches and the waiting for them stay outside, so that they overlap as they do without graphs.
//
// The first time, work runs as it is: libraries choose algorithms and load kernels then, which a capture forbids.
#pragma once
#include "device.cuh"

enum { GRAPHS_KEPT = 2, MAX_WORK_ARGUMENTS = 32 };

typedef struct {
    cudaGraphExec_t exec; // NULL: none
    size_t bytes;
    char arguments[MAX_WORK_ARGUMENTS];
} Graph;

struct Recording {
    bool is_warm;     // the work ran once
    bool is_given_up; // it cannot be recorded
    int next;         // the graph that makes room
    Graph graph[GRAPHS_KEPT];
};

static inline Graph* graph_find(Recording* r, const void* arguments, size_t bytes) {
    for (int i = 0; i < GRAPHS_KEPT; i++) {
        Graph* g = &r->graph[i];
        if (g->exec && g->bytes == bytes && !memcmp(g->arguments, arguments, bytes)) { return g; }
    }
    return NULL;
}

// Must not be done to a graph that is still being replayed.
static inline void graph_destroy(Graph* g) {
    if (g->exec) { cuda_check(cudaGraphExecDestroy(g->exec), "forgetting a graph"); }
    g->exec = NULL;
}

// The recorded work, of which a graph that is ready has a copy.
static inline void graph_drop(cudaGraph_t* graph) {
    if (*graph) { cuda_check(cudaGraphDestroy(*graph), "forgetting a graph"); }
    *graph = NULL;
}

// True if a step of recording went well; the first that did not is noted.
static inline bool graph_step(cudaError_t error, const char* what) {
    if (error != cudaSuccess && !gpu.capture_failed) { gpu.capture_failed = what; }
    return error == cudaSuccess;
}

// What `work` queues, as a graph; NULL if something in it cannot be captured. Of calls that a capture forbids, only
// those of this thread count: the loader of batches has one of its own.
static inline cudaGraph_t graph_capture(Work work, const void* arguments) {
    cudaGraph_t graph = NULL;
    gpu.capture_failed = NULL;
    const cudaError_t begun = cudaStreamBeginCapture(gpu.stream, cudaStreamCaptureModeThreadLocal);
    if (!graph_step(begun, "beginning a graph")) { return NULL; }
    gpu.is_capturing = true;
    work(arguments);
    gpu.is_capturing = false;
    graph_step(cudaStreamEndCapture(gpu.stream, &graph), "ending a graph");
    if (gpu.capture_failed) { graph_drop(&graph); }
    return graph;
}

// Captures the work and makes it ready on the GPU; NULL, and no further attempt is made, if that fails.
static inline Graph* graph_record(Recording* r, const char* name, Work work, const void* arguments, size_t bytes) {
    Graph* g = &r->graph[r->next];
    if (g->exec) { device_sync(); }
    graph_destroy(g);
    cudaGraph_t graph = graph_capture(work, arguments);
    if (graph && graph_step(cudaGraphInstantiate(&g->exec, graph, 0), "making a graph ready")) {
        graph_step(cudaGraphUpload(g->exec, gpu.stream), "bringing a graph to the GPU");
    }
    graph_drop(&graph);
    if (gpu.capture_failed) {
        notice("%s: cannot be recorded as a CUDA graph (%s failed): its kernels are launched one by one, as with "
               "--graph 0",
               name, gpu.capture_failed);
        cudaGetLastError(); // the runtime's own note of it must not be taken for that of a later launch
        graph_destroy(g);
        r->is_given_up = true;
        return NULL;
    }
    g->bytes = bytes;
    memcpy(g->arguments, arguments, bytes);
    r->next = (r->next + 1) % GRAPHS_KEPT;
    return g;
}

OP void device_replay(Recording** recording, const char* name, Work work, const void* arguments, size_t bytes) {
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

OP void device_forget(Recording** recording) {
    if (!*recording) { return; }
    device_sync();
    for (int i = 0; i < GRAPHS_KEPT; i++) { graph_destroy(&(*recording)->graph[i]); }
    free(*recording);
    *recording = NULL;
}
