// The race check. It reports two threads of a launch that access the same two bytes, at least one of them writing, if
// nothing between orders the accesses. hooks.h reports each access; of every two bytes the last write and the last read
// are kept.
//
// Accesses are ordered by the end of a launch, by __syncthreads within a block, and by __syncwarp within a warp (not by
// shuffles and votes: CUDA C++ Programming Guide, "Warp Shuffle Functions"). Races of atomics are not found. Reported
// although it may be right: access to neighbouring single bytes, and to data that __threadfence and flags order between
// blocks.
#pragma once
#include "audit.h"
#include "places.h"
#ifndef EMU_RACE

namespace emu {
inline void race_barrier() {}
inline void race_warp(unsigned) {}
inline void race_launch_end() {}
} // namespace emu

#else
#ifdef _OPENMP
#error "the race check and -fopenmp exclude each other"
#endif
#include <set>
#include <unordered_map>

namespace emu {

inline std::string where(); // scheduler.h
inline std::string where(const Fiber& f);

enum Readers : uint8_t { ONE, LANES, WARPS }; // who read in this epoch: one thread, several of one warp, several warps

struct Access {
    unsigned launch, block;     // 0: none yet (launches count from 1)
    unsigned epoch, warp_epoch; // barriers that the block, and __syncwarp that the warp had passed
    unsigned pc;                // relative to the program's base
    uint16_t thread;
    Readers many;
};
struct Cell {
    Access write, read;
};

constexpr size_t CELL_BYTES = 2, PAGE_CELLS = PAGE / CELL_BYTES;

inline unsigned block_epoch = 1, warp_epochs[MAX_THREADS / 32];
inline std::set<std::pair<unsigned, unsigned>> races; // the two places of each

inline void race_barrier() { block_epoch++; }
inline void race_warp(unsigned warp) { warp_epochs[warp]++; }

inline Cell& cell_at(uintptr_t address) {
    static std::unordered_map<uintptr_t, std::vector<Cell>> pages;
    static uintptr_t last_page = 0;
    static Cell* last_cells = nullptr;
    if (address / PAGE != last_page || !last_cells) {
        std::vector<Cell>& cells = pages[address / PAGE];
        cells.resize(PAGE_CELLS);
        last_page = address / PAGE;
        last_cells = cells.data();
    }
    return last_cells[address % PAGE / CELL_BYTES];
}

inline bool ordered(const Access& before, const Access& now, bool device) {
    if (before.launch != now.launch) { return true; }
    if (before.block != now.block) { return !device; } // every block has its own shared memory
    if (before.epoch != now.epoch) { return true; }
    if (before.many == WARPS) { return false; }
    if (before.thread / 32 == now.thread / 32 && before.warp_epoch != now.warp_epoch) { return true; }
    return before.thread == now.thread && before.many == ONE;
}

inline void report_race(const void* p, const Access& before, bool wrote, const Access& now, bool writes) {
    if (races.size() >= 8 || !races.insert({before.pc, now.pc}).second) { return; }
    std::string memory = "shared memory";
    if (on_device(p)) {
        auto* a = allocation_before(mem.live, p);
        memory = "byte " + std::to_string((char*)p - a->first) + " of " + std::to_string(a->second) + " device bytes";
    }
    fprintf(stderr, "emu: race: %s: thread %u %s %s (%s), %s%u of block %u %s it (%s), nothing orders them\n",
            where().c_str(), now.thread, writes ? "writes" : "reads", memory.c_str(), place_of(now.pc).c_str(),
            before.many == ONE ? "thread " : "others and thread ", before.thread, before.block,
            wrote ? "wrote" : "read", place_of(before.pc).c_str());
}

inline void race_launch_end() {
    if (!races.empty()) { die("%s: %zu races", S->name, races.size()); }
}

// Checks and notes one access of the current thread, at `pc`, to n bytes at p.
inline void race_access(const void* p, size_t n, bool writes, void* pc) {
    const bool device = on_device(p);
    if (!cur || (!device && (audits || !in_shared((const char*)p)))) { return; }
    if (audits) { return audit_access(p, n, [&] { return where(*cur) + ", " + place_of(pc_in_program(pc)); }); }
    const unsigned thread = (unsigned)(cur - S->fibers.data());
    const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    Access now = {(unsigned)launches, block, block_epoch, warp_epochs[thread / 32], pc_in_program(pc),
                  (uint16_t)thread,   ONE};
    for (uintptr_t a = (uintptr_t)p / CELL_BYTES * CELL_BYTES; a < (uintptr_t)p + n; a += CELL_BYTES) {
        Cell& cell = cell_at(a);
        if (!ordered(cell.write, now, device)) { return report_race(p, cell.write, true, now, writes); }
        if (writes) {
            if (!ordered(cell.read, now, device)) { return report_race(p, cell.read, false, now, true); }
            cell.write = now;
            continue;
        }
        Access& read = cell.read;
        bool same_epoch = read.launch == now.launch && read.block == block && read.epoch == now.epoch;
        Readers many = ONE;
        if (same_epoch && (read.many == WARPS || read.thread / 32 != thread / 32)) {
            many = WARPS;
        } else if (same_epoch && read.warp_epoch == now.warp_epoch && (read.many == LANES || read.thread != thread)) {
            many = LANES;
        }
        read = now;
        read.many = many;
    }
}

} // namespace emu
#endif
