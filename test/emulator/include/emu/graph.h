// CUDA graphs: captures the work put into streams, with its dependencies, and replays it.
//
//   EMU_CAPTURE=N      capturing the Nth piece of work fails
//
// A graph is replayed in the order of its capture. With EMU_LAZY=1 it is replayed in the allowed order that differs
// most from that: a missing dependency then changes the results.
#pragma once
#include "stream.h"
#include <algorithm>

namespace emu {

struct Node {
    Work work;
    std::vector<size_t> depends; // on these nodes
};

struct Graph {
    std::vector<Node> nodes;
};

struct Capture {
    std::shared_ptr<Graph> graph = std::make_shared<Graph>();
    Stream* origin = nullptr;     // the stream on which it began and must end
    bool invalid = false;
};

// The captures under way.
inline std::vector<std::shared_ptr<Capture>> captures;

inline void capture_work(Stream* s, Work work) {
    std::vector<Node>& nodes = s->capture->graph->nodes;
    static const long long refused = option("EMU_CAPTURE", 0);
    static long long captured = 0;
    if (++captured == refused) {
        s->capture->invalid = true;
        fail(cudaErrorStreamCaptureUnsupported, "EMU_CAPTURE: work number %lld cannot be captured", refused);
        return;
    }
    nodes.push_back({std::move(work), s->frontier});
    s->frontier.assign(1, nodes.size() - 1);
}

// Returns an error if this stream cannot take work now: its capture is invalid, or it is the default stream, whose work
// would have to wait for a blocking stream that is being captured.
inline cudaError_t begin_enqueue(Stream* s) {
    if (s->capture && s->capture->invalid) {
        return fail(cudaErrorStreamCaptureInvalidated, "an earlier call made the capture of this stream invalid");
    }
    if (s != &default_stream) { return cudaSuccess; }
    for (auto& capture : captures) {
        if (capture->origin->blocking) {
            capture->invalid = true;
            return fail(cudaErrorStreamCaptureImplicit,
                        "the default stream is used while a blocking stream is captured");
        }
    }
    return cudaSuccess;
}

// Returns an error, and makes the capture invalid, if `s` is being captured; s null: if any stream is. `call` is named
// in the message.
inline cudaError_t not_while_capturing(const char* call, const Stream* s = nullptr) {
    for (auto& capture : captures) {
        if (!s || s->capture == capture) {
            capture->invalid = true;
            return fail(cudaErrorStreamCaptureUnsupported, "%s while a stream is captured", call);
        }
    }
    return cudaSuccess;
}

inline cudaError_t begin_capture(Stream* s) {
    if (s == &default_stream) {
        return fail(cudaErrorStreamCaptureUnsupported, "the default stream cannot be captured: use one of your own");
    }
    if (s->capture) { return fail(cudaErrorIllegalState, "cudaStreamBeginCapture: the stream is captured already"); }
    s->capture = std::make_shared<Capture>();
    s->capture->origin = s;
    s->frontier.clear();
    captures.push_back(s->capture);
    return cudaSuccess;
}

// Returns true if every node is one that the origin stream waits for, through `frontier`, its last nodes.
inline bool all_joined(const Graph& graph, const std::vector<size_t>& frontier) {
    std::vector<bool> reached(graph.nodes.size(), false);
    for (size_t node : frontier) { reached[node] = true; }
    bool all = true;
    for (size_t i = graph.nodes.size(); i-- > 0;) {
        if (!reached[i]) { all = false; }
        if (reached[i]) {
            for (size_t node : graph.nodes[i].depends) { reached[node] = true; }
        }
    }
    return all;
}

// Ends a capture and sets *graph to what was captured. On failure too no stream is captured afterwards, unless `s` is
// not the stream on which the capture began.
inline cudaError_t end_capture(Stream* s, std::shared_ptr<Graph>* graph) {
    std::shared_ptr<Capture> capture = s->capture;
    if (!capture) { return fail(cudaErrorIllegalState, "cudaStreamEndCapture: the stream is not captured"); }
    if (capture->origin != s) {
        capture->invalid = true;
        return fail(cudaErrorStreamCaptureUnmatched, "cudaStreamEndCapture: the capture began in another stream");
    }
    bool joined = all_joined(*capture->graph, s->frontier);
    for (Stream* other : streams) {
        if (other->capture == capture) {
            other->capture.reset();
            other->frontier.clear();
        }
    }
    for (size_t i = captures.size(); i-- > 0;) {
        if (captures[i] == capture) { captures.erase(captures.begin() + (long)i); }
    }
    if (capture->invalid) {
        return fail(cudaErrorStreamCaptureInvalidated, "cudaStreamEndCapture: a call failed before");
    }
    if (!joined) { return fail(cudaErrorStreamCaptureUnjoined, "a stream that joined the capture was not waited for"); }
    *graph = capture->graph;
    return cudaSuccess;
}

// Appends to `order` the nodes that `node` depends on, latest first, then the node itself; each node once.
inline void order_backwards(const Graph& graph, size_t node, std::vector<bool>& placed, std::vector<size_t>& order) {
    if (placed[node]) { return; }
    placed[node] = true;
    std::vector<size_t> depends = graph.nodes[node].depends;
    std::sort(depends.rbegin(), depends.rend());
    for (size_t d : depends) { order_backwards(graph, d, placed, order); }
    order.push_back(node);
}

inline void replay(const Graph& graph) {
    std::vector<size_t> order;
    std::vector<bool> placed(graph.nodes.size(), false);
    for (size_t i = 0; i < graph.nodes.size(); i++) {
        if (!lazy()) { order.push_back(i); }
    }
    for (size_t i = graph.nodes.size(); lazy() && i-- > 0;) { order_backwards(graph, i, placed, order); }
    for (size_t node : order) { graph.nodes[node].work(); }
    counts.replays++;
    counts.replayed += order.size();
}

// ---------------------------------------------------------------------------------------------------------------------
// events

inline void record(Event* e, Stream* s) {
    auto mark = std::make_shared<Mark>();
    mark->stream = s;
    mark->capture = s->capture;
    mark->frontier = s->frontier;
    e->mark = mark;
    if (s->capture) { return; }
    enqueue(s, [mark] {
        clock_event();
        mark->seconds = clock_seconds;
        mark->happened = true;
    });
    mark->position = s->queued;
}

inline cudaError_t wait_event(Stream* s, const Event* e) {
    std::shared_ptr<Mark> mark = e->mark;
    if (!mark) { return cudaSuccess; } // never recorded: nothing to wait for
    if (!mark->capture && s->capture) {
        s->capture->invalid = true;
        return fail(cudaErrorStreamCaptureIsolation,
                    "a captured stream waits for an event recorded outside the capture");
    }
    if (!mark->capture) {
        enqueue(s, [mark] { drain(*mark); });
        return cudaSuccess;
    }
    if (std::find(captures.begin(), captures.end(), mark->capture) == captures.end()) {
        return fail(cudaErrorCapturedEvent, "a stream waits for an event of a capture that has ended");
    }
    if (s->capture && s->capture != mark->capture) {
        return fail(cudaErrorStreamCaptureMerge, "a captured stream waits for an event of another capture");
    }
    s->capture = mark->capture; // from here on the stream is captured too
    s->frontier.insert(s->frontier.end(), mark->frontier.begin(), mark->frontier.end());
    return cudaSuccess;
}

} // namespace emu
