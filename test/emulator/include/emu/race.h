// The check of accesses (emucc --check). It ends the program at one outside of a device allocation, or behind the
// dynamic shared memory.
//
// It reports a race of two threads of a launch that access the same two bytes, at least one of them writing, if nothing
// between orders the accesses. hooks.h reports each access; of every two bytes the last write and the last read are
// kept, but a read of device memory by an earlier block stays, since a write by any later one is a race. Their order
// follows from stamps of one clock, which each launch, block, barrier and __syncwarp advances.
//
// Accesses are ordered by the end of a launch, by __syncthreads within a block, and by __syncwarp within a warp (not by
// shuffles: CUDA C++ Programming Guide, "Warp Shuffle Functions"). Not found: races of atomics, and of lanes that are
// not in the mask of a __syncwarp, which counts for the whole warp. Reported although it may be right: access to
// neighbouring single bytes, and to data that atomics order between blocks.
#pragma once
#include "audit.h"
#include "places.h"
#ifndef EMU_CHECK

namespace emu {
inline void race_block_begin() {}
inline void race_barrier() {}
inline void race_warp(unsigned) {}
inline void race_launch_end() {}
} // namespace emu

#else
#include <set>
#include <unordered_map>

namespace emu {

inline std::string where(); // scheduler.h
inline std::string where(const Fiber& f);

enum Readers : uint16_t { ONE, LANES, WARPS }; // who read in this epoch: one thread, several of one warp, several warps

// 8 bytes without padding: equal bits are the same thread with no barrier and no __syncwarp between.
struct Access {
    unsigned stamp;  // 0: none yet
    uint16_t thread;
    Readers many;

    EMU_UNSEEN bool operator==(const Access& a) const { return memcmp(this, &a, sizeof a) == 0; }
};
struct Cell {
    Access write, read;
    unsigned write_pc, read_pc; // relative to the program's base
};

// Blocks run one after another, so each has stamps of its own, and larger ones than those before.
struct RaceClock {
    unsigned now = 1;
    unsigned launch = 1, block = 1, epoch = 1; // begin of the launch, of the block, of what follows its last barrier
    unsigned warps[MAX_THREADS / 32] = {};     // of each warp's last __syncwarp
    std::vector<std::pair<unsigned, unsigned>> blocks; // of this launch: begin, number
};
inline RaceClock race_clock;
inline std::set<std::pair<unsigned, unsigned>> races; // the two places of each

inline void race_barrier() { race_clock.epoch = ++race_clock.now; }
inline void race_warp(unsigned warp) { race_clock.warps[warp] = ++race_clock.now; }
inline void race_block_begin() {
    race_barrier();
    race_clock.block = race_clock.epoch;
    const unsigned number = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    race_clock.blocks.push_back({race_clock.block, number});
}
inline unsigned block_of(const Access& a) {
    unsigned number = 0;
    for (auto& [begin, block] : race_clock.blocks) {
        if (begin <= a.stamp) { number = block; }
    }
    return number;
}

// ---------------------------------------------------------------------------------------------------------------------
// cells, in chunks that exist once they are used

constexpr size_t CELL_BYTES = 2, CHUNK = 1 << 18, CHUNK_CELLS = CHUNK / CELL_BYTES;
struct Chunk {
    uintptr_t number; // address / CHUNK
    Cell* cells;
};
inline std::unordered_map<uintptr_t, Cell*> chunks;
constexpr size_t RECENT_CHUNKS = 64;
inline Chunk recent_chunks[RECENT_CHUNKS];

EMU_UNSEEN inline Cell* new_chunk(uintptr_t number) {
    Cell* cells;
    EMU_QUIETLY(cells = chunks[number]);
    if (!cells) {
        const size_t bytes = CHUNK_CELLS * sizeof(Cell);
        void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) { die("cannot allocate %zu bytes for the race check", bytes); }
        EMU_QUIETLY(chunks[number] = cells = (Cell*)p);
    }
    recent_chunks[number % RECENT_CHUNKS] = {number, cells};
    return cells;
}

// Returns the cell of an address; the next ones follow it up to the end of the chunk.
EMU_UNSEEN inline Cell* cell_at(uintptr_t address) {
    const uintptr_t number = address / CHUNK;
    const Chunk& recent = recent_chunks[number % RECENT_CHUNKS];
    Cell* cells = __builtin_expect(recent.number == number, 1) ? recent.cells : new_chunk(number);
    return cells + address % CHUNK / CELL_BYTES;
}

// The clock starts again before it overflows: then all that was noted is of an earlier launch.
inline void race_launch_end() {
    if (!races.empty()) { die("%s: %zu races", S->name, races.size()); }
    race_clock.blocks.clear();
    race_clock.launch = ++race_clock.now;
    if (race_clock.now < 1u << 31) { return; }
    for (auto& chunk : chunks) { madvise((void*)chunk.second, CHUNK_CELLS * sizeof(Cell), MADV_DONTNEED); }
    race_clock = RaceClock();
}

// ---------------------------------------------------------------------------------------------------------------------
// accesses

EMU_UNSEEN inline bool is_of_earlier_block(const Access& a) { // of this launch
    return a.stamp >= race_clock.launch && a.stamp < race_clock.block;
}

EMU_UNSEEN inline bool is_ordered(const Access& before, const Access& now, bool device) {
    if (is_of_earlier_block(before)) { return !device; } // every block has its own shared memory
    if (before.stamp < race_clock.epoch) { return true; }
    if (before.many == WARPS || before.thread / 32 != now.thread / 32) { return false; }
    return before.stamp != now.stamp || (before.thread == now.thread && before.many == ONE);
}

inline void report_race(const void* p, const Access& before, unsigned pc_before, bool wrote, const Access& now,
                        unsigned pc, bool writes) {
    if (races.size() >= 8 || !races.insert({pc_before, pc}).second) { return; }
    std::string memory = "shared memory";
    if (on_device(p)) {
        auto* a = allocation_before(mem.live, p);
        memory = "byte " + std::to_string((char*)p - a->first) + " of " + std::to_string(a->second) + " device bytes";
    }
    fprintf(stderr, "emu: race: %s: thread %u %s %s (%s), %s%u of block %u %s it (%s), nothing orders them\n",
            where().c_str(), now.thread, writes ? "writes" : "reads", memory.c_str(), place_of(pc).c_str(),
            before.many == ONE ? "thread " : "others and thread ", before.thread, block_of(before),
            wrote ? "wrote" : "read", place_of(pc_before).c_str());
}

EMU_UNSEEN inline Readers readers(const Access& read, const Access& now) {
    if (read.stamp < race_clock.epoch) { return ONE; }
    if (read.many == WARPS || read.thread / 32 != now.thread / 32) { return WARPS; }
    return read.stamp == now.stamp && (read.many == LANES || read.thread != now.thread) ? LANES : ONE;
}

// Checks and notes an access of the current thread, at `pc`, to n bytes at p, which lie in one chunk. Returns false if
// it is a race.
EMU_UNSEEN inline bool race_cells(const void* p, size_t n, bool device, bool writes, unsigned pc) {
    const unsigned thread = cur->warp * 32 + cur->lane;
    const unsigned last_sync = race_clock.warps[cur->warp], epoch = race_clock.epoch;
    const Access now = {last_sync > epoch ? last_sync : epoch, (uint16_t)thread, ONE};
    const uintptr_t first = (uintptr_t)p / CELL_BYTES, end = ((uintptr_t)p + n + CELL_BYTES - 1) / CELL_BYTES;
    Cell* cell = cell_at((uintptr_t)p);
    for (Cell* const last = cell + (end - first); cell < last; cell++) {
        if (!(cell->write == now) && !is_ordered(cell->write, now, device)) {
            EMU_QUIETLY(report_race(p, cell->write, cell->write_pc, true, now, pc, writes));
            return false;
        }
        if (writes) {
            if (!is_ordered(cell->read, now, device)) {
                EMU_QUIETLY(report_race(p, cell->read, cell->read_pc, false, now, pc, true));
                return false;
            }
            cell->write = now;
            cell->write_pc = pc;
        } else if (!device || !is_of_earlier_block(cell->read)) {
            const Readers many = cell->read == now ? ONE : readers(cell->read, now);
            cell->read = now;
            cell->read.many = many;
            cell->read_pc = pc;
        }
    }
    return true;
}

// Ends the program unless n bytes of device memory at p lie in one allocation.
EMU_UNSEEN inline void check_allocation(const void* p, size_t n, void* pc) {
    Allocation& a = recent_allocation(p);
    const size_t offset = (size_t)((const char*)p - a.first);
    if (offset >= a.bytes || n > a.bytes - offset) {
        EMU_QUIETLY(a = allocation_of(p, n, [&] { return where(*cur) + ", " + place_of(pc_in_program(pc)); }));
    }
    if (audits) { audit_touch(a.touched, (size_t)((const char*)p - a.first), n); }
}

// Checks and notes an access of the current thread, at `pc`, to n bytes at p.
EMU_UNSEEN inline void check_access(const void* p, size_t n, bool writes, void* pc) {
    const bool device = on_device(p);
    if (device) {
        check_allocation(p, n, pc);
    } else if (!in_shared(p, n)) {
        if ((size_t)((const char*)p - S->dyn) >= MAX_DYNAMIC_SHARED) { return; }
        EMU_QUIETLY(die("%s, %s: %zu bytes behind the dynamic shared memory", where(*cur).c_str(),
                        place_of(pc_in_program(pc)).c_str(), n));
    }
    if (audits) { return; }
    for (size_t part; n > 0; n -= part, p = (const char*)p + part) {
        const size_t rest = CHUNK - (uintptr_t)p % CHUNK;
        part = n < rest ? n : rest;
        if (!race_cells(p, part, device, writes, pc_in_program(pc))) { return; }
    }
}

} // namespace emu
#endif
