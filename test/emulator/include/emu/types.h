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
#define __align__(n) __attribute__((aligned(n)))

// The emulator's own functions that run often are optimized in every build. EMU_FAST: of those that read a kernel's
// memory; UBSan still checks them, hooks.h does not see them. EMU_UNSEEN: neither sees them. What such a function calls
// should be of the same kind: g++ does not inline functions into others of another kind.
#define EMU_FAST __attribute__((optimize("O2", "no-strict-aliasing"))) EMU_UNHOOKED
#ifdef EMU_CHECK
#define EMU_UNHOOKED __attribute__((no_sanitize_thread))
#else
#define EMU_UNHOOKED
#endif
#define EMU_UNSEEN EMU_FAST __attribute__((no_sanitize("undefined")))

// CUDA's vector types and their alignment (CUDA C++ Programming Guide, "Built-in Vector Types").
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(16) int4 {
    int x, y, z, w;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct uint3 {
    unsigned x, y, z;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
constexpr float2 make_float2(float x, float y) { return {x, y}; }

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

// Set by the scheduler before a thread runs on.
inline uint3 threadIdx, blockIdx;
inline dim3 blockDim, gridDim;
