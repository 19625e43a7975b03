// Parts of the language that CUDA's headers add and cu2cpp does not rewrite: qualifiers, vector types, dim3, and the
// variables threadIdx, blockIdx, blockDim and gridDim.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

// __global__, __shared__, __launch_bounds__ and __noinline__ are no macros: cu2cpp has to see them.
#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(n) __attribute__((aligned(n)))

// Blocks run in parallel where the program is built with -fopenmp: each OpenMP thread then has its own device state.
#ifdef _OPENMP
#define EMU_THREAD __thread
#else
#define EMU_THREAD
#endif

// The emulator's own functions that run often are optimized in every build. EMU_FAST: of those that read a kernel's
// memory; AddressSanitizer still checks them, hooks.h does not see them. EMU_UNSEEN: no sanitizer sees them. What such
// a function calls should be of the same kind: g++ does not inline functions into others of another kind.
#define EMU_FAST __attribute__((optimize("O2", "no-strict-aliasing"))) EMU_UNHOOKED
#ifdef EMU_RACE
#define EMU_UNHOOKED __attribute__((no_sanitize_thread))
#else
#define EMU_UNHOOKED
#endif
#define EMU_UNSEEN EMU_FAST __attribute__((no_sanitize("address", "undefined")))

// CUDA's vector types and their alignment (CUDA C++ Programming Guide, "Built-in Vector Types").
#define EMU_VECTORS(T, base, align2, align4)                                             \
    struct base##1 { T x; };                                                             \
    struct alignas(align2) base##2 { T x, y; };                                          \
    struct base##3 { T x, y, z; };                                                       \
    struct alignas(align4) base##4 { T x, y, z, w; };                                    \
    constexpr base##1 make_##base##1(T x) { return {x}; }                                \
    constexpr base##2 make_##base##2(T x, T y) { return {x, y}; }                        \
    constexpr base##3 make_##base##3(T x, T y, T z) { return {x, y, z}; }                \
    constexpr base##4 make_##base##4(T x, T y, T z, T w) { return {x, y, z, w}; }
EMU_VECTORS(signed char, char, 2, 4)
EMU_VECTORS(unsigned char, uchar, 2, 4)
EMU_VECTORS(short, short, 4, 8)
EMU_VECTORS(unsigned short, ushort, 4, 8)
EMU_VECTORS(int, int, 8, 16)
EMU_VECTORS(unsigned, uint, 8, 16)
EMU_VECTORS(long, long, 16, 16)
EMU_VECTORS(unsigned long, ulong, 16, 16)
EMU_VECTORS(long long, longlong, 16, 16)
EMU_VECTORS(unsigned long long, ulonglong, 16, 16)
EMU_VECTORS(float, float, 8, 16)
EMU_VECTORS(double, double, 16, 16)
#undef EMU_VECTORS

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    constexpr operator uint3() const { return {x, y, z}; }
};

// Set by the scheduler before a thread runs on.
inline EMU_THREAD uint3 threadIdx, blockIdx;
inline EMU_THREAD dim3 blockDim, gridDim;
constexpr int warpSize = 32;
