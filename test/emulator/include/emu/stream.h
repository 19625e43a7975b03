// Streams and events. Work is a queue of functions. By default it runs when it is enqueued. With EMU_LAZY=1 it runs
// only when the host waits for it, so that a missing wait shows as poison. With EMU_LAZY=2 a wait for a stream, for an
// event or for a copy to pageable memory runs the streams created last first, so that one of these that does not wait
// for an earlier stream shows. Recording into graphs is in graph.h.
#pragma once
#include "memory.h"
#include <deque>
#include <functional>
#include <memory>
#include <vector>

namespace emu {

typedef std::function<void()> Work;

struct Capture; // graph.h

struct Stream {
    bool blocking = true; // ordered with the legacy default stream
    int priority = 0;
    std::deque<Work> queue;
    size_t queued = 0, done = 0;           // items ever put in, and taken out
    std::shared_ptr<Capture> capture;      // being recorded instead of run
    std::vector<size_t> frontier;          // nodes of the capture that the next one depends on
};

// The point in a stream at which an event was recorded. Streams that wait for it share it, because the event may be
// recorded again or destroyed.
struct Mark {
    Stream* stream = nullptr;
    size_t position = 0; // of the stream: the event has happened when so many items are done
    double seconds = 0;  // when it happened, by clock_seconds
    bool happened = false;
    std::shared_ptr<Capture> capture;
    std::vector<size_t> frontier;
};
struct Event {
    bool timing = true;
    std::shared_ptr<Mark> mark; // null: never recorded
};

inline Stream default_stream; // the legacy one, named 0
inline std::vector<Stream*>& streams = *new std::vector<Stream*>{&default_stream}; // outlives all static objects

inline bool lazy() {
    static const bool value = option("EMU_LAZY", 0) != 0;
    return value;
}

// The clock of events. It is not real time, so that a program which decides by what it measures decides the same in
// every run. An event takes a microsecond, or with EMU_NOISE=SEED one to four, at random; a launch nothing, or, with
// EMU_SLOW=NAME, a millisecond if NAME is part of the kernel's name.
inline double clock_seconds = 0;
inline void clock_event() {
    static uint64_t noise = (uint64_t)option("EMU_NOISE", 0);
    if (noise) { noise = noise * 6364136223846793005ull + 1442695040888963407ull; } // Knuth's generator
    clock_seconds += 1e-6 * (double)(1 + (noise >> 62));
}
inline void clock_launch(const char* kernel) {
    static const char* slow = getenv("EMU_SLOW");
    if (slow && *slow && strstr(kernel, slow)) { clock_seconds += 1e-3; }
}

inline Stream* st(Stream* s) { return s ? s : &default_stream; }

// Runs what is queued in a stream, up to a position of it.
inline void drain(Stream* s, size_t position = ~(size_t)0) {
    while (!s->queue.empty() && s->done < position) {
        Work work = std::move(s->queue.front());
        s->queue.pop_front();
        s->done++;
        if (broken_by == cudaSuccess) { work(); }
    }
}

// Runs a stream up to an event. The stream may be destroyed once the event has happened.
inline void drain(const Mark& mark) {
    if (!mark.happened) { drain(mark.stream, mark.position); }
}

inline void drain_all() {
    for (size_t i = 0; i < streams.size(); i++) { drain(streams[i]); }
}

// Runs all streams before the host's wait for one, the last created first.
inline void drain_last_first() {
    static const bool is_chosen = option("EMU_LAZY", 0) == 2;
    for (size_t i = streams.size(); is_chosen && i-- > 0;) { drain(streams[i]); }
}

void capture_work(Stream* s, Work work); // graph.h
cudaError_t begin_enqueue(Stream* s);    // graph.h

// Puts work into a stream, or into the graph that it is being recorded into.
inline void enqueue(Stream* s, Work work) {
    s = st(s);
    if (begin_enqueue(s) != cudaSuccess) { return; }
    if (s->capture) {
        capture_work(s, std::move(work));
        return;
    }
    // The legacy default stream waits for all blocking streams, and they for it.
    if (s == &default_stream) {
        for (size_t i = 0; i < streams.size(); i++) {
            if (streams[i] != s && streams[i]->blocking) { drain(streams[i]); }
        }
    } else if (s->blocking) {
        drain(&default_stream);
    }
    s->queued++;
    s->queue.push_back(std::move(work));
    if (!lazy()) { drain(s); }
}

} // namespace emu
