// Shared memory. cu2cpp makes each __shared__ array a static one and calls shared() where it is declared; dyn() is the
// address of `extern __shared__` arrays.
#pragma once
#include "scheduler.h"

namespace emu {

constexpr size_t MAX_STATIC_SHARED = 48 << 10;

// Dynamic shared memory. PTX instructions take 32-bit addresses of shared memory: to_shared() and from_shared() make
// them the distance from this array.
alignas(1024) inline char dynamic_memory[MAX_DYNAMIC_SHARED + 1024];

EMU_UNSEEN inline void* dyn() {
    if (!cur) { die("`extern __shared__` outside of a kernel"); }
    return S->dyn;
}

// Called by each thread at the declaration of a static array; the first thread of a block poisons the array.
EMU_UNSEEN inline void begin_shared(char* begin, size_t bytes) {
    if (!cur) { die("`__shared__` outside of a kernel"); }
    for (unsigned i = 0; i < S->shared_count; i++) {
        if (S->shared[i].begin == begin) { return; }
    }
    if (S->shared_count == MAX_SHARED_ARRAYS) { die("%s: more than %u shared arrays", S->name, MAX_SHARED_ARRAYS); }
    memset(begin, POISON, bytes);
    S->shared[S->shared_count++] = {begin, bytes};
    S->shared_bytes += bytes;
    if (S->shared_bytes > MAX_STATIC_SHARED) {
        die("%s: %zu bytes of static shared memory: the limit is 48 KB", S->name, S->shared_bytes);
    }
    if (S->shared_bytes + S->dyn_n > capability().block_shared()) {
        die("%s: %zu bytes of static and %zu of dynamic shared memory: the limit is %zu KB together", S->name,
            S->shared_bytes, S->dyn_n, capability().block_shared() >> 10);
    }
}

template <class T> EMU_UNSEEN inline void shared(T& array) {
    EMU_QUIET(1);
    begin_shared((char*)&array, sizeof array);
    EMU_QUIET(0);
}

// Ends the program unless in_shared(p, n).
EMU_UNSEEN inline void check_shared(const void* p, size_t n, const char* what) {
    if (!in_shared(p, n)) { die("%s: %s: %p, %zu bytes, is not shared memory", where(*cur).c_str(), what, p, n); }
}

EMU_UNSEEN inline uint32_t to_shared(const void* p) {
    check_shared(p, 0, "__cvta_generic_to_shared");
    return (uint32_t)((const char*)p - dynamic_memory);
}

EMU_UNSEEN inline char* from_shared(uint32_t address) { return dynamic_memory + (int32_t)address; }

} // namespace emu

EMU_UNSEEN inline size_t __cvta_generic_to_shared(const void* p) {
    EMU_QUIET(1);
    size_t address = emu::to_shared(p);
    EMU_QUIET(0);
    return address;
}
