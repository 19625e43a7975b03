// Functions that kernels call: an atomic, bits, mathematics. (warp.h has the others.)
#pragma once
#include "warp.h"

// Returns the value from before.
inline unsigned atomicMax(unsigned* p, unsigned value) {
    unsigned before = __atomic_load_n(p, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(p, &before, value > before ? value : before, true, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED)) {}
    return before;
}

// ---------------------------------------------------------------------------------------------------------------------
// bits

namespace emu {
template <class To, class From> To bits(From x) {
    static_assert(sizeof(To) == sizeof(From), "the same bits");
    To y;
    memcpy(&y, &x, sizeof y);
    return y;
}
} // namespace emu

inline unsigned __float_as_uint(float x) { return emu::bits<unsigned>(x); }
inline float __uint_as_float(unsigned x) { return emu::bits<float>(x); }

// ---------------------------------------------------------------------------------------------------------------------
// mathematics: libm's results; an intrinsic with fewer bits gives the full ones or, with EMU_APPROX=1, results with
// its largest error ("Mathematical Functions" of the CUDA Programming Guide; "PTX ISA" for instructions)

namespace emu {
// Returns y = f(x), moved by so many units in the last place with EMU_APPROX=1: up or down, by the bits of x.
EMU_UNSEEN inline float approximate(float x, float y, float units) {
    static const bool approximates = option("EMU_APPROX", 0) != 0;
    if (!approximates || y == 0) { return y; } // exp(-INFINITY) is exact
    return y * (1 + (__builtin_popcount(bits<unsigned>(x)) % 2 ? units : -units) * 0x1p-23f);
}
} // namespace emu

inline float __expf(float x) { return emu::approximate(x, expf(x), 2 + floorf(fabsf(1.173f * x))); }

// min and max without std::, of the types that the kernels compare; others are ambiguous.
inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
inline unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }

[[noreturn]] inline void __trap() { emu::die("%s: __trap()", emu::cur ? emu::where(*emu::cur).c_str() : "the host"); }
