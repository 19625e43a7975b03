// Sums of long vectors in double: of squares, for the norm of the gradient, and of losses. For squares each block sums
// a part, then one block sums the parts. How the vector is divided depends on n only, so the result has the same bits
// on every GPU.
#pragma once
#include "vector.cuh"

static constexpr int NORM_PART = 16 << 10; // least elements of a part
static constexpr int SUM_THREADS = 1024;   // of the block that sums the parts

template <int WIDTH>
static __global__ void norm_squared_kernel(double* parts, const float* x, size_t n, size_t part) {
    const size_t begin = blockIdx.x * part, end = begin + part < n ? begin + part : n;
    double sum = 0;
    for (size_t i = begin + threadIdx.x * WIDTH; i < end; i += blockDim.x * WIDTH) {
        float value[WIDTH];
        load_rest(value, x + i, end - i);
        for (int k = 0; k < WIDTH; k++) { sum += (double)value[k] * (double)value[k]; }
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) { parts[blockIdx.x] = sum; }
}

// One block: *out += the sum of x.
template <class Number> static __global__ void sum_kernel(double* out, const Number* x, size_t n) {
    double sum = 0;
    for (size_t i = threadIdx.x; i < n; i += blockDim.x) { sum += (double)x[i]; }
    sum = block_sum(sum);
    if (threadIdx.x == 0) { *out += sum; }
}

// ---------------------------------------------------------------------------------------------------------------------
// launchers

static inline void norm_squared(double* out, const float* x, size_t n) {
    constexpr int WIDE = FLOAT_WIDTH;
    const auto kernel = is_wide<WIDE>(0, x) ? norm_squared_kernel<WIDE> : norm_squared_kernel<1>;
    double* parts = (double*)gpu.scratch;
    const size_t most_parts = SCRATCH_BYTES / sizeof(double);
    const size_t part = max_size(NORM_PART, round_up(ceil_div(n, most_parts), WIDE));
    const unsigned blocks = blocks_for(n, part);
    kernel<<<blocks, THREADS_IN_BLOCK, 0, gpu.stream>>>(parts, x, n, part);
    cuda_launched("norm_squared");
    sum_kernel<<<1, SUM_THREADS, 0, gpu.stream>>>(out, parts, blocks);
    cuda_launched("norm_squared's parts");
}

static inline void loss_add(double* total, const float* losses, int N) {
    sum_kernel<<<1, SUM_THREADS, 0, gpu.stream>>>(total, losses, N);
    cuda_launched("loss_add");
}
