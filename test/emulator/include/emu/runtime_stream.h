// The runtime's functions for streams, events and graphs.
#pragma once
#include "runtime_memory.h"

enum { cudaStreamNonBlocking = 1 };
enum { cudaEventDisableTiming = 2 };
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal = 1 };

namespace emu {
struct GraphHandle {
    std::shared_ptr<Graph> graph;
};
inline size_t graph_bytes(const GraphHandle& graph) { return graph.graph->nodes.size() * GRAPH_NODE_BYTES; }
constexpr int GREATEST_PRIORITY = -5; // as on current devices
} // namespace emu
typedef emu::GraphHandle* cudaGraph_t;
typedef struct emu_graph_exec : emu::GraphHandle {}* cudaGraphExec_t;

// ---------------------------------------------------------------------------------------------------------------------
// streams

inline cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
    EMU_ENTER()
    *stream = new emu::Stream;
    (*stream)->blocking = !(flags & cudaStreamNonBlocking);
    (*stream)->priority = min(max(priority, emu::GREATEST_PRIORITY), 0);
    emu::streams.push_back(*stream);
    return cudaSuccess;
}
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
    return cudaStreamCreateWithPriority(stream, flags, 0);
}
inline cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }

inline cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    EMU_ENTER()
    *least = 0;
    *greatest = emu::GREATEST_PRIORITY;
    return cudaSuccess;
}

inline cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    EMU_ENTER()
    auto& all = emu::streams;
    auto it = std::find(all.begin(), all.end(), stream);
    if (it == all.end()) {
        return emu::fail(cudaErrorInvalidResourceHandle, "cudaStreamDestroy: no such stream");
    }
    if (stream->capture) { return emu::not_while_capturing("cudaStreamDestroy", stream); }
    emu::drain(stream);
    all.erase(it);
    delete stream;
    return emu::enter();
}

inline cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    EMU_ENTER()
    emu::Stream* s = emu::st(stream);
    if (s->capture) { return emu::not_while_capturing("cudaStreamSynchronize", s); }
    if (cudaError_t error = emu::begin_enqueue(s); error != cudaSuccess) { return error; }
    if (s == &emu::default_stream) { emu::enqueue(s, [] {}); } // waits for the blocking streams too
    emu::drain_last_first();
    emu::drain(s);
    return emu::enter();
}
inline cudaError_t cudaDeviceSynchronize() {
    EMU_ENTER_OUTSIDE_CAPTURE("cudaDeviceSynchronize")
    emu::drain_all();
    return emu::enter();
}

// ---------------------------------------------------------------------------------------------------------------------
// events

inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
    EMU_ENTER()
    *event = new emu::Event;
    (*event)->timing = !(flags & cudaEventDisableTiming);
    return cudaSuccess;
}
inline cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
inline cudaError_t cudaEventDestroy(cudaEvent_t event) {
    EMU_ENTER()
    delete event;
    return cudaSuccess;
}
inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = 0) {
    EMU_ENTER()
    if (cudaError_t error = emu::begin_enqueue(emu::st(stream)); error != cudaSuccess) { return error; }
    emu::record(event, emu::st(stream));
    return cudaSuccess;
}
inline cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned = 0) {
    EMU_ENTER()
    return emu::wait_event(emu::st(stream), event);
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    EMU_ENTER()
    if (!event->mark) { return cudaSuccess; }
    if (event->mark->capture) {
        return emu::fail(cudaErrorCapturedEvent, "cudaEventSynchronize of an event recorded in a capture");
    }
    emu::drain_last_first();
    emu::drain(*event->mark);
    return emu::enter();
}

// Milliseconds between the two, by the emulator's own clock (stream.h).
inline cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
    EMU_ENTER()
    for (cudaEvent_t e : {start, end}) {
        if (!e->timing || !e->mark || e->mark->capture) {
            return emu::fail(cudaErrorInvalidResourceHandle,
                             "cudaEventElapsedTime: an event without timing or not recorded");
        }
        if (!e->mark->happened) { return emu::quietly(cudaErrorNotReady); }
    }
    *ms = (float)(1e3 * (end->mark->seconds - start->mark->seconds));
    return cudaSuccess;
}

// ---------------------------------------------------------------------------------------------------------------------
// graphs

inline cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
    EMU_ENTER()
    return emu::begin_capture(emu::st(stream));
}
inline cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
    EMU_ENTER()
    *graph = nullptr;
    std::shared_ptr<emu::Graph> captured;
    cudaError_t error = emu::end_capture(emu::st(stream), &captured);
    if (error == cudaSuccess) { *graph = new emu::GraphHandle{captured}; }
    return error;
}
inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long = 0) {
    EMU_ENTER()
    if (!emu::charge(emu::graph_bytes(*graph))) { return emu::quietly(cudaErrorMemoryAllocation); }
    *exec = new emu_graph_exec;
    (*exec)->graph = graph->graph;
    emu::counts.graphs++;
    return cudaSuccess;
}
inline cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return emu::enter(); }
inline cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    EMU_ENTER()
    if (emu::st(stream)->capture) { return emu::not_while_capturing("cudaGraphLaunch", emu::st(stream)); }
    std::shared_ptr<emu::Graph> graph = exec->graph;
    emu::enqueue(stream, [graph] { emu::replay(*graph); });
    return emu::broken_by;
}
inline cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    EMU_ENTER()
    emu::give_back(emu::graph_bytes(*exec));
    delete exec;
    return cudaSuccess;
}
inline cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    EMU_ENTER()
    delete graph;
    return cudaSuccess;
}
