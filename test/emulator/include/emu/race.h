// The race check. It reports two threads of a launch that access the same two bytes, at least one of them writing, if
// nothing between orders the accesses. The compiler's -fsanitize=thread calls a hook at each access; the program is
// linked with the hooks below in place of libtsan. For every two bytes they keep the last write and the last read.
//
// Accesses are ordered by the end of a launch, by __syncthreads within a block, and by __syncwarp within a warp (not by
// shuffles and votes: CUDA C++ Programming Guide, "Warp Shuffle Functions"). Races of atomics are not found. Reported
// although it may be right: access to neighbouring single bytes, and to data that __threadfence and flags order between
// blocks.
#pragma once
#include "audit.h"
#include "fiber.h"
#include <string>
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
#include <dlfcn.h>
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

inline bool in_shared(const char* p) {
    if (p >= S->dyn && p < S->dyn + S->dyn_n) { return true; }
    for (const SharedArray& a : S->shared) {
        if (p >= a.begin && p < a.begin + a.bytes) { return true; }
    }
    return false;
}

inline bool ordered(const Access& before, const Access& now, bool device) {
    if (before.launch != now.launch) { return true; }
    if (before.block != now.block) { return !device; } // every block has its own shared memory
    if (before.epoch != now.epoch) { return true; }
    if (before.many == WARPS) { return false; }
    if (before.thread / 32 == now.thread / 32 && before.warp_epoch != now.warp_epoch) { return true; }
    return before.thread == now.thread && before.many == ONE;
}

inline uintptr_t program_base() {
    Dl_info info = {};
    dladdr((void*)&program_base, &info);
    return (uintptr_t)info.dli_fbase;
}

// Returns file:line of a place, if addr2line and debug information are there.
inline std::string place_of(unsigned pc) {
    char text[512], command[64];
    snprintf(command, sizeof command, "addr2line -e /proc/%d/exe %#x 2>/dev/null", (int)getpid(), pc);
    FILE* f = popen(command, "r");
    bool found = f && fgets(text, sizeof text, f) && text[0] != '?';
    if (f) { pclose(f); }
    if (!found) { snprintf(text, sizeof text, "pc=%#x", pc); }
    return std::string(text, strcspn(text, " \n")); // without "(discriminator 1)"
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
    static const uintptr_t base = program_base();
    if (audits) {
        return audit_access(p, n, [&] { return where(*cur) + ", " + place_of((unsigned)((uintptr_t)pc - base - 1)); });
    }
    const unsigned thread = (unsigned)(cur - S->fibers.data());
    const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    Access now = {
        (unsigned)launches, block, block_epoch, warp_epochs[thread / 32], (unsigned)((uintptr_t)pc - base - 1),
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

// ---------------------------------------------------------------------------------------------------------------------
// what -fsanitize=thread calls

#define EMU_HOOK extern "C" __attribute__((used, no_sanitize_thread)) inline
#define EMU_ACCESS(p, n, writes)                                                     \
    if (!emu::quiet) {                                                               \
        emu::quiet = 1;                                                              \
        emu::race_access(p, n, writes, __builtin_return_address(0));                 \
        emu::quiet = 0;                                                              \
    }
#define EMU_HOOKS(n)                                                                 \
    EMU_HOOK void __tsan_read##n(void* p) { EMU_ACCESS(p, n, false) }                \
    EMU_HOOK void __tsan_write##n(void* p) { EMU_ACCESS(p, n, true) }                \
    EMU_HOOK void __tsan_unaligned_read##n(void* p) { EMU_ACCESS(p, n, false) }      \
    EMU_HOOK void __tsan_unaligned_write##n(void* p) { EMU_ACCESS(p, n, true) }
EMU_HOOKS(1)
EMU_HOOKS(2)
EMU_HOOKS(4)
EMU_HOOKS(8)
EMU_HOOKS(16)
EMU_HOOK void __tsan_read_range(void* p, size_t n) { EMU_ACCESS(p, n, false) }
EMU_HOOK void __tsan_write_range(void* p, size_t n) { EMU_ACCESS(p, n, true) }
EMU_HOOK void __tsan_init() {}
EMU_HOOK void __tsan_func_entry(void*) {}
EMU_HOOK void __tsan_func_exit() {}
EMU_HOOK void __tsan_vptr_read(void**) {}
EMU_HOOK void __tsan_vptr_update(void**, void*) {}

#define EMU_FETCH(bits, T, name, expression)                                                      \
    EMU_HOOK T __tsan_atomic##bits##_##name(volatile T* p, T v, int) {                            \
        T old = *p;                                                                               \
        *p = expression;                                                                          \
        return old;                                                                               \
    }
#define EMU_COMPARE(bits, T, name)                                                                \
    EMU_HOOK int __tsan_atomic##bits##_compare_exchange_##name(volatile T* p, T* expected, T v, int, int) { \
        if (*p == *expected) {                                                                    \
            *p = v;                                                                               \
            return 1;                                                                             \
        }                                                                                         \
        *expected = *p;                                                                           \
        return 0;                                                                                 \
    }
#define EMU_ATOMICS(bits, T)                                                                      \
    EMU_HOOK T __tsan_atomic##bits##_load(const volatile T* p, int) { return *p; }                \
    EMU_HOOK void __tsan_atomic##bits##_store(volatile T* p, T v, int) { *p = v; }                \
    EMU_FETCH(bits, T, exchange, v)                                                               \
    EMU_FETCH(bits, T, fetch_add, (T)(old + v))                                                   \
    EMU_FETCH(bits, T, fetch_sub, (T)(old - v))                                                   \
    EMU_FETCH(bits, T, fetch_and, (T)(old & v))                                                   \
    EMU_FETCH(bits, T, fetch_or, (T)(old | v))                                                    \
    EMU_FETCH(bits, T, fetch_xor, (T)(old ^ v))                                                   \
    EMU_COMPARE(bits, T, strong)                                                                  \
    EMU_COMPARE(bits, T, weak)
EMU_ATOMICS(8, unsigned char)
EMU_ATOMICS(16, unsigned short)
EMU_ATOMICS(32, unsigned)
EMU_ATOMICS(64, unsigned long)
#endif
