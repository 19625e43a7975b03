// The documents of packed sequences, which attention does not cross with --document_mask.
#pragma once
#include "vector.cuh"

// A thread walks from its position to both bounds of the document. A walk takes at most T steps, fewer than attention
// takes for the same position in one head.
static __global__ void document_bounds_kernel(int* starts, int* ends, const int* tokens, int eot, size_t N, int T) {
    const size_t n = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (n >= N) { return; }
    const int t = (int)(n % T);
    const int* sequence = tokens + (n - t);
    int start = t, end = t + 1;
    while (start > 0 && sequence[start] != eot) { start--; }
    while (end < T && sequence[end] != eot) { end++; }
    starts[n] = start;
    ends[n] = end;
}

static inline void document_bounds(int* starts, int* ends, const int* tokens, int eot, int B, int T) {
    const size_t N = (size_t)B * T;
    document_bounds_kernel<<<blocks_for(N, THREADS_IN_BLOCK), THREADS_IN_BLOCK, 0, gpu.stream>>>(starts, ends, tokens,
                                                                                                 eot, N, T);
    cuda_launched("document_bounds");
}
