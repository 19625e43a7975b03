// Loads and stores of WIDTH neighbouring elements at once, converted to and from float, for kernels that are bound by
// memory bandwidth. Each such kernel has two instances: a wide one for rows whose addresses are aligned to one access,
// and one of WIDTH 1 for all other rows and for --kernels plain.
#pragma once
#include "common.cuh"

// The type of one access to a vector of BYTES: 16 bytes at most, so a longer vector takes several.
template <int BYTES> struct Access { typedef uint4 Type; };
template <> struct Access<2> { typedef uint16_t Type; };
template <> struct Access<4> { typedef uint32_t Type; };
template <> struct Access<8> { typedef uint2 Type; };

template <int WIDTH, class Type> static __device__ inline void load_floats(float (&x)[WIDTH], const Type* p) {
    typedef typename Access<WIDTH * sizeof(Type)>::Type Word;
    enum { WORDS = WIDTH * sizeof(Type) / sizeof(Word) };
    Type stored[WIDTH];
    for (int i = 0; i < WORDS; i++) {
        const Word word = ((const Word*)p)[i];
        memcpy((char*)stored + i * sizeof word, &word, sizeof word);
    }
    for (int k = 0; k < WIDTH; k++) { x[k] = to_float(stored[k]); }
}

template <int WIDTH, class Type> static __device__ inline void store_floats(Type* p, const float (&x)[WIDTH]) {
    enum { BYTES = WIDTH * sizeof(Type) };
    // 8 bytes as one number: nvcc may store a uint2 in two halves
    typedef std::conditional_t<BYTES == 8, uint64_t, typename Access<BYTES>::Type> Word;
    enum { WORDS = BYTES / sizeof(Word) };
    Type stored[WIDTH];
    for (int k = 0; k < WIDTH; k++) { stored[k] = from_float<Type>(x[k]); }
    for (int i = 0; i < WORDS; i++) {
        Word word;
        memcpy(&word, (const char*)stored + i * sizeof word, sizeof word);
        ((Word*)p)[i] = word;
    }
}

// The same where only `left` elements of the array remain: elements beyond them read as 0 and are not stored.
template <int WIDTH, class Type>
static __device__ inline void load_rest(float (&x)[WIDTH], const Type* p, size_t left) {
    if (left >= WIDTH) {
        load_floats(x, p);
    } else {
        for (int k = 0; k < WIDTH; k++) { x[k] = (size_t)k < left ? to_float(p[k]) : 0.0f; }
    }
}

template <int WIDTH, class Type>
static __device__ inline void store_rest(Type* p, const float (&x)[WIDTH], size_t left) {
    if (left >= WIDTH) {
        store_floats(p, x);
    } else {
        for (int k = 0; k < (int)left; k++) { p[k] = from_float<Type>(x[k]); }
    }
}

// Returns true if rows of n elements, the first of which begin at these addresses, can be accessed WIDTH elements at a
// time; false with --kernels plain. n = 0: arrays of any length, whose ends load_rest() and store_rest() access.
template <int WIDTH, class... Types> static inline bool is_wide(size_t n, const Types*... rows) {
    return !gpu.plain && n % WIDTH == 0 &&
           (((uintptr_t)rows % sizeof(typename Access<WIDTH * sizeof(Types)>::Type) == 0) && ...);
}

// WIDTH of kernels that access mostly floats, and of those that access mostly floatX. Kernels of the residual stream
// that access all of it as R have Pack<R>::SIZE.
static constexpr int FLOAT_WIDTH = 4, FLOATX_WIDTH = Pack<floatX>::SIZE;

// Threads of a block; kernels with one warp per row have (WARP_SIZE, WARPS_IN_BLOCK). 8: chosen, not measured.
static constexpr int WARPS_IN_BLOCK = 8, THREADS_IN_BLOCK = WARPS_IN_BLOCK * WARP_SIZE;

// Returns the number of blocks of a kernel that the GPU runs at a time. A grid of that size, whose blocks loop over
// the work, has no last wave that leaves SMs idle. The answer for the last `dynamic_shared` is remembered.
template <auto KERNEL> static inline size_t resident_blocks(int threads, size_t dynamic_shared) {
    static size_t asked_shared;
    static int per_sm;
    if (!per_sm || dynamic_shared != asked_shared) {
        cuda_check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, KERNEL, threads, dynamic_shared),
                   "occupancy");
        asked_shared = dynamic_shared;
    }
    return (size_t)per_sm * gpu.num_sms;
}

static inline unsigned blocks_for(size_t n, size_t in_block) { return (unsigned)ceil_div(n, in_block); }
