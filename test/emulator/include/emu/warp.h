// Barriers, shuffles, votes and reductions. The last argument of all is the place of the call, by default (EMU_HERE).
#pragma once
#include "shared.h"

#define EMU_HERE emu::CallSite at = {__builtin_FILE(), __builtin_LINE()}

// ---------------------------------------------------------------------------------------------------------------------
// blocks

EMU_UNSEEN inline int __syncthreads_count(int predicate, EMU_HERE) {
    if (emu::cur) { emu::cur->vote = predicate != 0; }
    emu::wait(emu::BLOCK, 0, nullptr, nullptr, at);
    return emu::S->vote;
}
EMU_UNSEEN inline void __syncthreads(EMU_HERE) { __syncthreads_count(0, at); }
inline int __syncthreads_or(int predicate, EMU_HERE) { return __syncthreads_count(predicate, at) != 0; }
inline int __syncthreads_and(int predicate, EMU_HERE) { return __syncthreads_count(!predicate, at) == 0; }

// Fibers see memory in program order: there is nothing to do, and a fence that is missing is not found.
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}

// ---------------------------------------------------------------------------------------------------------------------
// warps

EMU_UNSEEN inline void __syncwarp(unsigned mask = ~0u, EMU_HERE) { emu::wait(emu::WARP, mask, nullptr, nullptr, at); }

namespace emu {

template <class T> struct Shuffle {
    T value;  // this lane's argument
    T result; // its result
    unsigned source;
};

// The value of a lane that does not take part is poison.
template <class T> EMU_UNSEEN void shuffle_op(void** lane, unsigned mask) {
    for (unsigned l = 0; l < 32; l++) {
        if (!(mask >> l & 1)) { continue; }
        auto* mine = (Shuffle<T>*)lane[l];
        if (mask >> mine->source & 1) {
            mine->result = ((Shuffle<T>*)lane[mine->source])->value;
        } else {
            memset((void*)&mine->result, POISON, sizeof(T));
        }
    }
}

template <class T> EMU_UNSEEN inline T shuffle(unsigned mask, T value, unsigned source, CallSite at) {
    Shuffle<T> s = {value, value, source};
    wait(WARP, mask, shuffle_op<T>, &s, at);
    return s.result;
}

// The lanes among which a shuffle of some width takes place. A lane that reads outside of them gets its own value.
struct Segment {
    unsigned lane, first, last;
    EMU_UNSEEN Segment(int width, CallSite at) {
        if (width < 1 || width > 32 || (width & (width - 1))) {
            die("%s:%d: the width %d of a shuffle is not a power of two up to 32", at.file, at.line, width);
        }
        lane = cur ? cur->lane : 0; // on the host, wait() reports the mistake
        first = lane & -(unsigned)width;
        last = first + (unsigned)width - 1;
    }
};

} // namespace emu

// Only the low five bits of the offset count (PTX ISA, shfl.sync).
template <class T> EMU_UNSEEN T __shfl_sync(unsigned mask, T value, int source, int width = 32, EMU_HERE) {
    emu::Segment s(width, at);
    return emu::shuffle(mask, value, s.first + ((unsigned)source & (unsigned)(width - 1)), at);
}
template <class T> EMU_UNSEEN T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, EMU_HERE) {
    emu::Segment s(width, at);
    delta &= 31;
    return emu::shuffle(mask, value, s.lane >= s.first + delta ? s.lane - delta : s.lane, at);
}
template <class T> EMU_UNSEEN T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, EMU_HERE) {
    emu::Segment s(width, at);
    delta &= 31;
    return emu::shuffle(mask, value, s.lane + delta <= s.last ? s.lane + delta : s.lane, at);
}
// May also read from the segments before its own.
template <class T> EMU_UNSEEN T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32, EMU_HERE) {
    emu::Segment s(width, at);
    unsigned source = s.lane ^ ((unsigned)lane_mask & 31);
    return emu::shuffle(mask, value, source <= s.last ? source : s.lane, at);
}

namespace emu {

// A reduction over the lanes that take part: combine(total, value, lane) in the order of the lanes.
template <class T> struct Reduce {
    T value, result;
};
template <class T, void (*combine)(T& total, T value, unsigned lane)>
T reduce(unsigned mask, T value, T start, CallSite at) {
    Reduce<T> r = {value, start};
    wait(WARP, mask, [](void** lane, unsigned here) {
        T total = ((Reduce<T>*)lane[__builtin_ctz(here)])->result;
        for (unsigned l = 0; l < 32; l++) {
            if (here >> l & 1) { combine(total, ((Reduce<T>*)lane[l])->value, l); }
        }
        for (unsigned l = 0; l < 32; l++) {
            if (here >> l & 1) { ((Reduce<T>*)lane[l])->result = total; }
        }
    }, &r, at);
    return r.result;
}

inline void put_bit(unsigned& total, unsigned value, unsigned lane) { total |= (unsigned)(value != 0) << lane; }
template <class T> void add_to(T& total, T value, unsigned) { total = (T)((unsigned)total + (unsigned)value); }
template <class T> void min_to(T& total, T value, unsigned) { total = value < total ? value : total; }
template <class T> void max_to(T& total, T value, unsigned) { total = value > total ? value : total; }
inline void and_to(unsigned& total, unsigned value, unsigned) { total &= value; }
inline void or_to(unsigned& total, unsigned value, unsigned) { total |= value; }
inline void xor_to(unsigned& total, unsigned value, unsigned) { total ^= value; }

inline unsigned ballot(unsigned mask, int predicate, CallSite at) {
    return reduce<unsigned, put_bit>(mask, predicate != 0, 0, at);
}

} // namespace emu

inline unsigned __ballot_sync(unsigned mask, int predicate, EMU_HERE) { return emu::ballot(mask, predicate, at); }
inline int __any_sync(unsigned mask, int predicate, EMU_HERE) { return emu::ballot(mask, predicate, at) != 0; }
inline int __all_sync(unsigned mask, int predicate, EMU_HERE) { return emu::ballot(mask, !predicate, at) == 0; }

template <class T> unsigned __match_any_sync(unsigned mask, T value, EMU_HERE) {
    unsigned same = 0;
    for (unsigned l = 0; l < 32; l++) { // ask each lane in turn
        if (!(mask >> l & 1)) { continue; }
        T other = __shfl_sync(mask, value, (int)l, 32, at);
        if (other == value) { same |= 1u << l; }
    }
    return same;
}

#define EMU_REDUCE(name, T, start)                                                   \
    inline T __reduce_##name##_sync(unsigned mask, T value, EMU_HERE) {              \
        return emu::reduce<T, emu::name##_to>(mask, value, start, at);               \
    }
EMU_REDUCE(add, unsigned, 0)
EMU_REDUCE(add, int, 0)
EMU_REDUCE(min, unsigned, ~0u)
EMU_REDUCE(min, int, INT32_MAX)
EMU_REDUCE(max, unsigned, 0)
EMU_REDUCE(max, int, INT32_MIN)
EMU_REDUCE(and, unsigned, ~0u)
EMU_REDUCE(or, unsigned, 0)
EMU_REDUCE(xor, unsigned, 0)
#undef EMU_REDUCE
#undef EMU_HERE
