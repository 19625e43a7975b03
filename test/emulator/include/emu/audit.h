// The audit of addresses (EMU_AUDIT=1, in programs built by `emucc --check`): runs shapes that fill the memory of a
// large GPU on a small machine, to find indices that overflow.
//
// Device memory is address space: pages exist only where something was written, and fresh memory reads as zeros. Of a
// launch only AUDITED_BLOCKS run; a matmul of cuBLASLt checks its arguments and computes nothing, nor does mma. Results
// are wrong, but addresses are those of the full run. An access must lie in an allocation, and widens the part of the
// allocation that was touched. The last blocks have the largest indices: if one overflows, it leaves the allocation, or
// the allocation's end stays untouched.
#pragma once
#include "memory.h"
#include <algorithm>
#include <string>
#include <vector>

namespace emu {

// Numbers of the blocks that run, counted from the first and from the last: with 8, 16 or 32 tiles in a head of
// attention, these are its first and its last tile, whichever comes first. 1: where even and odd blocks have arrays of
// their own, these have their ends in the first two and the last two.
constexpr size_t AUDITED_BLOCKS[] = {0, 1, 7, 15, 31};

struct Touched {
    size_t begin = ~(size_t)0, end = 0; // bytes; begin > end: nothing
};
inline std::map<const char*, Touched> touched; // by the allocation's address

// The parts stay where they are: allocations that are kept (memory.h) point to theirs.
inline Touched* audit_part(const char* allocation) { return &touched[allocation]; }
EMU_UNSEEN inline void audit_touch(Touched* part, size_t offset, size_t n) {
    if (offset < part->begin) { part->begin = offset; }
    if (offset + n > part->end) { part->end = offset + n; }
}

// Returns the part of an allocation that was touched since audit_forget().
inline Touched audit_touched(const void* p) { return touched[(const char*)p]; }
inline void audit_forget() {
    for (auto& t : touched) { t.second = Touched(); }
}

// Returns the numbers of the blocks that an audit runs.
inline std::vector<size_t> audited_blocks(size_t blocks) {
#ifndef EMU_CHECK
    die("EMU_AUDIT=1 needs a program built by `emucc --check`");
#endif
    std::vector<size_t> list;
    for (size_t i : AUDITED_BLOCKS) {
        if (i >= blocks) { break; }
        list.push_back(i);
        list.push_back(blocks - 1 - i);
    }
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
    return list;
}

} // namespace emu
