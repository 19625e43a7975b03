// Runs one block, in rounds until all its threads have ended. A round runs warp after warp, each until all its threads
// wait or have ended. Reports deadlocks. EMU_ORDER=0 runs threads and blocks in ascending order, 1 in descending order,
// any other number in a random order with that seed.
#pragma once
#include "fiber.h"
#include "hooks.h"

namespace emu {

inline int order() {
    static const int value = (int)option("EMU_ORDER", 0);
    return value;
}

// A linear congruential generator (Knuth's MMIX constants); the high bits are good enough for an order.
inline unsigned next_random(uint64_t& state) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)(state >> 33);
}

// Fills the list with 0 .. n-1 in the order that EMU_ORDER sets.
template <class T> inline void arrange(T* list, size_t n, uint64_t& rng) {
    for (size_t i = 0; i < n; i++) { list[i] = (T)(order() == 1 ? n - 1 - i : i); }
    for (size_t i = n; order() > 1 && i > 1; i--) { std::swap(list[i - 1], list[next_random(rng) % i]); }
}

inline std::string where() {
    char text[512];
    snprintf(text, sizeof text, "%s block (%u,%u,%u)", S->name, blockIdx.x, blockIdx.y, blockIdx.z);
    return text;
}

inline std::string where(const Fiber& f) {
    char text[64];
    snprintf(text, sizeof text, " thread (%u,%u,%u)", f.tid.x, f.tid.y, f.tid.z);
    return where() + text;
}

inline void prepare_block(size_t n) {
    if (!stacks) { allocate_stacks(); }
    S->fibers.resize(n);
    if (S->copies.size() < n) { S->copies.resize(n); }
    S->shared_count = 0;
    S->shared_bytes = 0;
    memset(S->dyn, POISON, S->dyn_n);
    uint3 tid = {0, 0, 0};
    for (size_t i = 0; i < n; i++) {
        Fiber& f = S->fibers[i];
        f.st = RUN;
        f.tid = tid;
        if (++tid.x == blockDim.x) { tid = {0, tid.y + 1, tid.z}; }
        if (tid.y == blockDim.y) { tid = {0, 0, tid.z + 1}; }
        f.lane = i % 32;
        f.warp = (unsigned char)(i / 32);
        f.cp = &S->copies[i];
        f.cp->clear();
        prepare_context(i);
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// warps

[[noreturn]] inline void die_of_missing_lanes(const Fiber& f, unsigned missing, const char* why) {
    die("%s at %s:%d waits for lanes %08x and only %08x are there: %08x %s", where(f).c_str(), f.at.file, f.at.line,
        f.mask, f.mask & ~missing, missing, why);
}

// Runs the instruction in which `first` and all lanes of `here` wait. __syncwarp has nothing to run, and alone orders
// memory.
EMU_UNSEEN inline void run_instruction(const Fiber& first, void** arg, unsigned here) {
    if (first.op) { first.op(arg, here); }
    else { race_warp(first.warp); }
}

// Runs the warp-wide instruction in which `first` waits, if all lanes of its mask wait there too, and lets them run on.
// `waiting`, `gone`: the warp's lanes that wait, and those that have exited or do not exist. Returns the lanes that
// wait in this instruction. Ends the program if they can never all arrive.
inline unsigned complete_instruction(Fiber* warp, const Fiber& first, unsigned waiting, unsigned gone,
                                     bool* completed) {
    if (!(first.mask >> first.lane & 1)) {
        die("%s: %s:%d: the mask %08x lacks the calling lane %u", where(first).c_str(), first.at.file, first.at.line,
            first.mask, first.lane);
    }
    if (first.mask & gone) { die_of_missing_lanes(first, first.mask & gone, "have exited or do not exist"); }
    unsigned here = 0;
    void* arg[32] = {};
    for (unsigned rest = waiting & first.mask; rest; rest &= rest - 1) {
        unsigned lane = (unsigned)__builtin_ctz(rest);
        Fiber& f = warp[lane];
        if (f.mask != first.mask) { continue; }
        if (f.op != first.op || (f.op && f.at.line != first.at.line)) { // __syncwarp may be called in several places
            die("%s is at %s:%d, lane %u of its warp at %s:%d: different warp instructions for the same lanes %08x",
                where(first).c_str(), first.at.file, first.at.line, lane, f.at.file, f.at.line, f.mask);
        }
        here |= 1u << lane;
        arg[lane] = f.arg;
    }
    *completed = here == first.mask;
    if (*completed) {
        run_instruction(first, arg, here);
        for (unsigned rest = here; rest; rest &= rest - 1) { warp[__builtin_ctz(rest)].st = RUN; }
    }
    return here;
}

// Runs the instruction for which the fibers of the pass wait, if all of them do, and in no other. Returns false if not.
EMU_UNSEEN inline bool complete_pass() {
    const Fiber& first = *S->pass[0];
    unsigned here = 0;
    void* arg[32]; // of absent lanes: undefined
    for (Fiber** p = S->pass; *p; p++) {
        const Fiber& f = **p;
        if (f.st != WARP || f.mask != first.mask || f.op != first.op || f.at.line != first.at.line) { return false; }
        here |= 1u << f.lane;
        arg[f.lane] = f.arg;
    }
    if (here != first.mask) { return false; }
    run_instruction(first, arg, here);
    for (Fiber** p = S->pass; *p; p++) { (*p)->st = RUN; }
    return true;
}

// Runs a warp until none of its lanes can go on. Returns false if none could at the beginning. In each pass the lanes
// that can go on run one after another: each switches to the next in S->pass (fiber.h), the last one back to here.
EMU_UNSEEN inline bool run_warp(size_t w) {
    Fiber* warp = S->fibers.data() + w * 32;
    const unsigned lanes = (unsigned)(S->fibers.size() - w * 32 < 32 ? S->fibers.size() - w * 32 : 32);
    const unsigned absent = lanes == 32 ? 0 : ~0u << lanes;
    unsigned char list[32];
    arrange(list, lanes, S->rng);
    for (bool any = false;; any = true) {
        Fiber** end = S->pass;
        for (unsigned i = 0; i < lanes; i++) {
            Fiber* f = &warp[list[i]];
            if (f->st == RUN) { *end++ = f; }
        }
        if (end == S->pass) { return any; }
        *end = nullptr;
        do {
            cur = S->pass[0];
            S->pass_next = S->pass + 1;
            switch_context(&S->self, &cur->context);
            traffic_pass_end();
        } while (complete_pass());
        unsigned waiting = 0, gone = absent;
        for (unsigned l = 0; l < lanes; l++) {
            waiting |= (unsigned)(warp[l].st == WARP) << l;
            gone |= (unsigned)(warp[l].st == DONE) << l;
        }
        while (waiting) {
            bool completed;
            waiting &= ~complete_instruction(warp, warp[__builtin_ctz(waiting)], waiting, gone, &completed);
        }
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// blocks

// Called when all threads have ended or wait at a barrier. Ends the program unless all wait at the same one.
inline void complete_barrier() {
    const Fiber* first = nullptr;
    for (const Fiber& f : S->fibers) {
        if (!first && f.st == BLOCK) { first = &f; }
    }
    for (const Fiber& f : S->fibers) {
        if (f.st == DONE) {
            die("%s waits at __syncthreads (%s:%d), but thread (%u,%u,%u) has exited", where(*first).c_str(),
                first->at.file, first->at.line, f.tid.x, f.tid.y, f.tid.z);
        }
        if (f.at.line != first->at.line) {
            die("%s waits at __syncthreads in %s:%d, thread (%u,%u,%u) at another one in %s:%d", where(*first).c_str(),
                first->at.file, first->at.line, f.tid.x, f.tid.y, f.tid.z, f.at.file, f.at.line);
        }
    }
    race_barrier();
    for (Fiber& f : S->fibers) { f.st = RUN; }
}

// Ends the program because no thread can go on, and names a thread and the lanes for which it waits.
[[noreturn]] inline void die_of_deadlock() {
    for (const Fiber& f : S->fibers) {
        if (f.st != WARP) { continue; }
        unsigned elsewhere = 0;
        const Fiber* other = &f;
        for (const Fiber& g : S->fibers) {
            if (g.warp != f.warp || !(f.mask >> g.lane & 1) || (g.st == WARP && g.mask == f.mask)) { continue; }
            elsewhere |= 1u << g.lane;
            other = &g;
        }
        char why[600];
        snprintf(why, sizeof why, "wait elsewhere, one at %s:%d", other->at.file, other->at.line);
        die_of_missing_lanes(f, elsewhere, why);
    }
    die("%s: no thread can go on", where().c_str());
}

// Runs the block whose name, body, blockIdx, blockDim, gridDim and dynamic shared memory have been set.
inline void run_block() {
    const size_t n = (size_t)blockDim.x * blockDim.y * blockDim.z, warps = (n + 31) / 32;
    prepare_block(n);
    for (;;) {
        unsigned char list[MAX_THREADS / 32];
        arrange(list, warps, S->rng);
        bool progress = false;
        for (size_t i = 0; i < warps; i++) { progress |= run_warp(list[i]); }
        size_t done = 0, at_barrier = 0;
        for (const Fiber& f : S->fibers) {
            done += f.st == DONE;
            at_barrier += f.st == BLOCK;
        }
        if (done == n) { break; }
        if (done + at_barrier == n) {
            complete_barrier();
        } else if (!progress) {
            die_of_deadlock();
        }
    }
    for (const Fiber& f : S->fibers) {
        if (!f.cp->empty()) { die("%s: ended with %zu cp.async not waited for", where(f).c_str(), f.cp->size()); }
    }
}

} // namespace emu
