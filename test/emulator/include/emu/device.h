// Functions that kernels call: atomics, loads and stores with cache hints, bits, mathematics. (warp.h has the others.)
#pragma once
#include "warp.h"
#include <ctime>

// ---------------------------------------------------------------------------------------------------------------------
// atomics: each returns the value from before

namespace emu {

template <class T, class F> T atomic_update(T* p, F update) {
    T before, after;
    __atomic_load(p, &before, __ATOMIC_RELAXED);
    do {
        after = update(before);
    } while (!__atomic_compare_exchange(p, &before, &after, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return before;
}

} // namespace emu

#define EMU_ATOMIC(name, T, expression)                                              \
    inline T name(T* p, T value) {                                                   \
        return emu::atomic_update(p, [=](T old) { return (T)(expression); });        \
    }
#define EMU_ATOMIC_INTEGER(T, U)                                                     \
    EMU_ATOMIC(atomicAdd, T, (U)old + (U)value)                                      \
    EMU_ATOMIC(atomicExch, T, ((void)old, value))                                    \
    EMU_ATOMIC(atomicMin, T, value < old ? value : old)                              \
    EMU_ATOMIC(atomicMax, T, value > old ? value : old)                              \
    EMU_ATOMIC(atomicAnd, T, old & value)                                            \
    EMU_ATOMIC(atomicOr, T, old | value)                                             \
    EMU_ATOMIC(atomicXor, T, old ^ value)                                            \
    inline T atomicCAS(T* p, T compare, T value) {                                   \
        return emu::atomic_update(p, [=](T old) { return old == compare ? value : old; }); \
    }
EMU_ATOMIC_INTEGER(int, unsigned)
EMU_ATOMIC_INTEGER(unsigned, unsigned)
EMU_ATOMIC_INTEGER(unsigned long long, unsigned long long)
EMU_ATOMIC(atomicSub, int, (unsigned)old - (unsigned)value)
EMU_ATOMIC(atomicSub, unsigned, old - value)
EMU_ATOMIC(atomicMin, long long, value < old ? value : old)
EMU_ATOMIC(atomicMax, long long, value > old ? value : old)
EMU_ATOMIC(atomicInc, unsigned, old >= value ? 0 : old + 1)
EMU_ATOMIC(atomicDec, unsigned, old == 0 || old > value ? value : old - 1)
EMU_ATOMIC(atomicAdd, float, old + value)
EMU_ATOMIC(atomicAdd, double, old + value)
EMU_ATOMIC(atomicExch, float, ((void)old, value))
#undef EMU_ATOMIC_INTEGER
#undef EMU_ATOMIC

// ---------------------------------------------------------------------------------------------------------------------
// loads and stores: the cache hints have no meaning here

template <class T> T __ldg(const T* p) { return *p; }
template <class T> T __ldca(const T* p) { return *p; }
template <class T> T __ldcg(const T* p) { return *p; }
template <class T> T __ldcs(const T* p) { return *p; }
template <class T> T __ldlu(const T* p) { return *p; }
template <class T> T __ldcv(const T* p) { return *p; }

namespace emu {
template <class T> struct Same { // keeps a parameter from taking part in deduction
    typedef T type;
};
} // namespace emu
template <class T> void __stwb(T* p, typename emu::Same<T>::type value) { *p = value; }
template <class T> void __stcg(T* p, typename emu::Same<T>::type value) { *p = value; }
template <class T> void __stcs(T* p, typename emu::Same<T>::type value) { *p = value; }
template <class T> void __stwt(T* p, typename emu::Same<T>::type value) { *p = value; }

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
inline int __float_as_int(float x) { return emu::bits<int>(x); }
inline float __uint_as_float(unsigned x) { return emu::bits<float>(x); }
inline float __int_as_float(int x) { return emu::bits<float>(x); }
inline long long __double_as_longlong(double x) { return emu::bits<long long>(x); }
inline double __longlong_as_double(long long x) { return emu::bits<double>(x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) {
    unsigned y = 0;
    for (int i = 0; i < 32; i++) { y |= (x >> i & 1) << (31 - i); }
    return y;
}
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }

// ---------------------------------------------------------------------------------------------------------------------
// mathematics: libm's results; the intrinsics with fewer bits give the full ones or, with EMU_APPROX=1, results with
// their largest error ("Mathematical Functions" of the CUDA Programming Guide; "PTX ISA" for instructions)

namespace emu {
// Returns y = f(x), moved by so many units in the last place with EMU_APPROX=1: up or down, by the bits of x.
EMU_UNSEEN inline float approximate(float x, float y, float units) {
    static const bool approximates = option("EMU_APPROX", 0) != 0;
    if (!approximates || y == 0) { return y; } // exp(-INFINITY) is exact
    return y * (1 + (__builtin_popcount(bits<unsigned>(x)) % 2 ? units : -units) * 0x1p-23f);
}
} // namespace emu

inline float rsqrtf(float x) { return emu::approximate(x, 1.0f / sqrtf(x), 2); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float __expf(float x) { return emu::approximate(x, expf(x), 2 + floorf(fabsf(1.173f * x))); }
inline float __exp10f(float x) { return powf(10.0f, x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __log10f(float x) { return log10f(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __tanf(float x) { return tanf(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __frsqrt_rn(float x) { return (float)(1.0 / sqrt((double)x)); }
inline float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1) : 0; }
inline int __float2int_rn(float x) { return (int)rintf(x); }
inline int __float2int_rz(float x) { return (int)x; }
inline int __float2int_rd(float x) { return (int)floorf(x); }
inline int __float2int_ru(float x) { return (int)ceilf(x); }
inline float __int2float_rn(int x) { return (float)x; }
inline float __uint2float_rn(unsigned x) { return (float)x; }
inline float __double2float_rn(double x) { return (float)x; }
inline float fdividef(float x, float y) { return x / y; }

// min and max without std::, for the pairs of types that CUDA has; others are ambiguous, as they are there. NaN loses.
#define EMU_MINMAX(A, B, T)                                                          \
    inline T min(A a, B b) { return (T)a < (T)b ? (T)a : (T)b; }                     \
    inline T max(A a, B b) { return (T)a > (T)b ? (T)a : (T)b; }
#define EMU_MINMAX_SIGNED(T)                                                         \
    EMU_MINMAX(T, T, T)                                                              \
    EMU_MINMAX(unsigned T, unsigned T, unsigned T)                                   \
    EMU_MINMAX(T, unsigned T, unsigned T)                                            \
    EMU_MINMAX(unsigned T, T, unsigned T)
EMU_MINMAX_SIGNED(int)
EMU_MINMAX_SIGNED(long)
EMU_MINMAX_SIGNED(long long)
#undef EMU_MINMAX_SIGNED
#undef EMU_MINMAX
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }
inline double min(float a, double b) { return fmin(a, b); }
inline double max(float a, double b) { return fmax(a, b); }
inline double min(double a, float b) { return fmin(a, b); }
inline double max(double a, float b) { return fmax(a, b); }

// ---------------------------------------------------------------------------------------------------------------------
// the rest

// Nanoseconds rather than cycles.
inline long long clock64() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (long long)t.tv_sec * 1000000000 + t.tv_nsec;
}
inline void __nanosleep(unsigned) {}
[[noreturn]] inline void __trap() { emu::die("%s: __trap()", emu::cur ? emu::where(*emu::cur).c_str() : "the host"); }
