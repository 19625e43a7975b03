// Memory accesses of kernels, for the race check and for the count of traffic. The compiler's -fsanitize=thread calls a
// hook at each access of the program, which is linked with the hooks below in place of libtsan.
#pragma once
#include "race.h"
#include "traffic.h"

namespace emu {

// Reports an access of the current thread, at `pc`, to n bytes at p. The hardware accesses at most `widest` bytes of
// them at once.
EMU_UNSEEN inline void note_access([[maybe_unused]] const void* p, [[maybe_unused]] size_t n,
                                   [[maybe_unused]] bool writes, [[maybe_unused]] void* pc,
                                   [[maybe_unused]] size_t widest = 16) {
#ifdef EMU_CHECK
    if (counts_traffic) {
        EMU_QUIETLY(traffic_access(p, n, writes, pc, widest));
    } else {
        check_access(p, n, writes, pc);
    }
#endif
}

// Reports that cp.async's bytes have come: a second write for the race check, no further traffic.
inline void note_arrival([[maybe_unused]] const void* p, [[maybe_unused]] size_t n, [[maybe_unused]] void* pc) {
#ifdef EMU_CHECK
    if (!counts_traffic) { check_access(p, n, true, pc); }
#endif
}

} // namespace emu

// ---------------------------------------------------------------------------------------------------------------------
// what -fsanitize=thread calls

#ifdef EMU_CHECK
#define EMU_HOOK extern "C" __attribute__((used)) EMU_UNSEEN inline
#define EMU_ACCESS(p, n, writes, widest)                                             \
    if (emu::quiet || emu::on_stack(p)) { return; }                                  \
    emu::note_access(p, n, writes, __builtin_return_address(0), widest);
// unaligned: the type is aligned to less than n
#define EMU_HOOKS_OF(n)                                                              \
    EMU_HOOK void __tsan_read##n(void* p) { EMU_ACCESS(p, n, false, n) }             \
    EMU_HOOK void __tsan_write##n(void* p) { EMU_ACCESS(p, n, true, n) }             \
    EMU_HOOK void __tsan_unaligned_read##n(void* p) { EMU_ACCESS(p, n, false, 4) }   \
    EMU_HOOK void __tsan_unaligned_write##n(void* p) { EMU_ACCESS(p, n, true, 4) }
EMU_HOOKS_OF(1)
EMU_HOOKS_OF(2)
EMU_HOOKS_OF(4)
EMU_HOOKS_OF(8)
EMU_HOOKS_OF(16)
EMU_HOOK void __tsan_read_range(void* p, size_t n) { EMU_ACCESS(p, n, false, 4) }
EMU_HOOK void __tsan_write_range(void* p, size_t n) { EMU_ACCESS(p, n, true, 4) }
EMU_HOOK void __tsan_init() {}
EMU_HOOK void __tsan_func_entry(void* pc) {
    if (emu::counts_traffic && !emu::quiet) { emu::traffic_call(pc); }
}
EMU_HOOK void __tsan_func_exit() {
    if (emu::counts_traffic && !emu::quiet) { emu::traffic_return(); }
}
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
