// Shared by the kernels: 128-bit loads and stores; sums and maxima over warps and blocks. Sums add in a fixed order, so
// a result has the same bits in every run.
#pragma once
#include "device.cuh"

// The elements of one 128-bit access. Their address must be a multiple of 16.
template <class Type> struct alignas(16) Pack {
    enum { SIZE = 16 / sizeof(Type) };
    Type x[SIZE];
};

template <class Type> static __device__ inline Pack<Type> load_pack(const Type* p) {
    const int4 bits = *(const int4*)p;
    Pack<Type> pack;
    memcpy(&pack, &bits, sizeof pack);
    return pack;
}
// Copies one pack. As an int4 it stays whole: a Pack<bf16> between load and store was split into 32-bit stores by nvcc.
template <class Type> static __device__ inline void copy_pack(Type* to, const Type* from) {
    *(int4*)to = *(const int4*)from;
}

template <class Number, class Combine> static __device__ inline Number warp_reduce(Number x, Combine combine) {
    for (int lanes = WARP_SIZE / 2; lanes > 0; lanes /= 2) { x = combine(x, __shfl_xor_sync(~0u, x, lanes)); }
    return x;
}

// Returns to every thread x combined over the block, which consists of whole warps. `none` changes nothing when it is
// combined. All threads must call it, a kernel only once with the same function: a second call would overwrite of_warp
// while warps read it.
template <class Number, class Combine>
static __device__ inline Number block_reduce(Number x, Number none, Combine combine) {
    __shared__ Number of_warp[WARP_SIZE];
    const int lane = threadIdx.x % WARP_SIZE, warp = threadIdx.x / WARP_SIZE, warps = blockDim.x / WARP_SIZE;
    x = warp_reduce(x, combine);
    if (lane == 0) { of_warp[warp] = x; }
    __syncthreads();
    return warp_reduce(lane < warps ? of_warp[lane] : none, combine);
}

template <class Number> static __device__ inline Number warp_sum(Number x) {
    return warp_reduce(x, [](Number a, Number b) { return a + b; });
}
template <class Number> static __device__ inline Number block_sum(Number x) {
    return block_reduce(x, (Number)0, [](Number a, Number b) { return a + b; });
}
static __device__ inline float block_max(float x) {
    return block_reduce(x, -INFINITY, [](float a, float b) { return fmaxf(a, b); });
}
