// Barriers and shuffles. The last argument of all is the place of the call, by default (EMU_HERE).
#pragma once
#include "shared.h"

#define EMU_HERE emu::CallSite at = {__builtin_FILE(), __builtin_LINE()}

// ---------------------------------------------------------------------------------------------------------------------
// blocks

EMU_UNSEEN inline void __syncthreads(EMU_HERE) { emu::wait(emu::BLOCK, 0, nullptr, nullptr, at); }

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
// May also read from the segments before its own.
template <class T> EMU_UNSEEN T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32, EMU_HERE) {
    emu::Segment s(width, at);
    unsigned source = s.lane ^ ((unsigned)lane_mask & 31);
    return emu::shuffle(mask, value, source <= s.last ? source : s.lane, at);
}

#undef EMU_HERE
