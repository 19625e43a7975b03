// Weights in 8 bits, for inference: each row of a weight is integers from -127 to 127 times a scale of its own, the
// largest magnitude in the row / 127. Rounding errs by at most half a scale.
//
// Generation is limited by reading the weights, which then take a quarter of the bytes of fp32. The integers are made
// when a weight is first used, and found by its address, until params_changed(); the stored weights stay beside them,
// for the embedding.
//
// The input of a matmul is rounded too, each row to 16 bits: integers up to INT8_STEPS times a scale, which errs less
// than bf16 where it matters, beside the row's largest numbers. Sums of products of integers are exact in any order, so
// all kernels give the same bits.
//
// AVX512_VNNI multiplies unsigned bytes by signed ones and adds four neighbouring products (vpdpbusd). So a weight w is
// held as the byte w + 128, and an input x as two signed digits, x = 256 high + low:
//   sum((w + 128) x) = 256 sum((w + 128) high) + sum((w + 128) low) = sum(w x) + 128 sum(x)
// Rows of a weight lie in blocks of 16, in the order in which these instructions read: four columns of the first row,
// of the second... then the next four columns. A 32-bit lane then belongs to one row: no sum runs across lanes.
#pragma once
#include "few_rows.h"
#include "../model/tensors.h"
#ifdef __AVX2__
#include <immintrin.h>
#endif

enum {
    INT8_ROWS = 16,     // of a weight in a block
    INT8_GROUP = 4,     // neighbouring columns of a row
    INT8_STEPS = 32639, // largest magnitude of an input: digits 127 and 127
    INT8_DEPTH = 512,   // columns after which 32-bit sums of two products 255 * INT8_STEPS might overflow
    INT8_INPUTS = 256,  // rows of the input at a time: few enough for the cache; chosen, not measured
    INT8_TILE = 4,      // rows of the input that share a load of the weight
};

typedef struct {
    const Stored* weight;
    uint8_t* blocks; // (OC / 16, C / 4, 16, 4), OC and C rounded up
    float* scale;    // (OC)
    int C, OC;
} Int8Weight;

// Memory for weights one behind the other, so that also small ones lie in huge pages.
typedef struct {
    char* memory;
    size_t bytes, used;
} Int8Memory;

static struct {
    Int8Weight* entry;
    Int8Memory* memory;
    size_t count, num_memories;
} int8_weights;

static inline int int8_groups(int C) { return (C + INT8_GROUP - 1) / INT8_GROUP; }
static inline int int8_blocks(int OC) { return (OC + INT8_ROWS - 1) / INT8_ROWS; }
static inline size_t int8_block_bytes(int C) { return (size_t)int8_groups(C) * INT8_GROUP * INT8_ROWS; }
static inline size_t int8_weight_bytes(int C, int OC) {
    const size_t line = 64, bytes = (size_t)int8_blocks(OC) * (int8_block_bytes(C) + INT8_ROWS * sizeof(float));
    return ceil_div(bytes, line) * line;
}

// Returns the bytes of a model's weights in 8 bits; 0 if they are not used.
static inline size_t int8_weights_bytes(const TensorTable* params) {
    size_t bytes = 0;
    for (int i = 0; cpu.int8 && i < params->count; i++) {
        const Tensor* t = &params->row[i];
        if (!tensor_is_operand(t)) { continue; }
        bytes += (size_t)t->layers * int8_weight_bytes((int)t->cols, (int)t->rows);
    }
    return bytes;
}

// ---------------------------------------------------------------------------------------------------------------------
// rounding

// Returns the largest magnitude of x (n). Compares bits, by which NaN is larger than infinity.
static inline float int8_largest(const Stored* x, int n) {
    uint32_t largest = 0;
    #pragma omp simd reduction(max : largest)
    for (int i = 0; i < n; i++) {
        const uint32_t bits = bits_of_float(to_float(x[i])) & 0x7fffffffu;
        largest = bits > largest ? bits : largest;
    }
    return float_of_bits(largest);
}

// Returns the integer nearest to x, for magnitudes below 2^22: adding 1.5 * 2^23 leaves it in the low bits.
static inline int int8_nearest(float x) {
    const float shift = 12582912.0f;
    return (int)(bits_of_float(x + shift) - bits_of_float(shift));
}

static inline float int8_reciprocal(float scale) { return scale > 0 ? 1 / scale : 0; }

static inline void int8_round_row(uint8_t* block, float* scale, const Stored* x, int C) {
    *scale = int8_largest(x, C) / 127;
    const float steps = int8_reciprocal(*scale);
    for (int c = 0; c < C; c += INT8_GROUP, block += INT8_ROWS * INT8_GROUP) {
        for (int i = 0; i < min_int(INT8_GROUP, C - c); i++) {
            block[i] = (uint8_t)(int8_nearest(to_float(x[c + i]) * steps) + 128);
        }
    }
}

static inline void int8_weights_forget(void) {
    for (size_t i = 0; i < int8_weights.num_memories; i++) {
        device_free(int8_weights.memory[i].memory, int8_weights.memory[i].bytes);
    }
    int8_weights.count = int8_weights.num_memories = 0;
}

static inline void* int8_alloc(size_t bytes) {
    const size_t reserve = (size_t)1 << 26;
    size_t* count = &int8_weights.num_memories;
    Int8Memory* m = *count ? &int8_weights.memory[*count - 1] : NULL;
    if (!m || m->bytes - m->used < bytes) {
        int8_weights.memory = realloc_or_die(int8_weights.memory, (*count + 1) * sizeof *m, "weights in 8 bits");
        m = &int8_weights.memory[(*count)++];
        *m = (Int8Memory){.bytes = max_size(bytes, reserve)};
        m->memory = device_reserve(m->bytes, "weights in 8 bits");
    }
    m->used += bytes;
    return m->memory + m->used - bytes;
}

static inline const Int8Weight* int8_weight(const Stored* weight, int C, int OC) {
    for (size_t i = 0; i < int8_weights.count; i++) {
        const Int8Weight* w = &int8_weights.entry[i];
        if (w->weight == weight && w->C == C && w->OC == OC) { return w; }
    }
    int8_weights.entry = realloc_or_die(int8_weights.entry, (int8_weights.count + 1) * sizeof *int8_weights.entry,
                                        "weights in 8 bits");
    Int8Weight* w = &int8_weights.entry[int8_weights.count++];
    *w = (Int8Weight){.weight = weight, .C = C, .OC = OC};
    w->blocks = int8_alloc(int8_weight_bytes(C, OC));
    w->scale = (float*)(w->blocks + (size_t)int8_blocks(OC) * int8_block_bytes(C));
    #pragma omp parallel for
    for (int o = 0; o < OC; o++) {
        uint8_t* block = w->blocks + (size_t)(o / INT8_ROWS) * int8_block_bytes(C);
        int8_round_row(block + (size_t)(o % INT8_ROWS) * INT8_GROUP, &w->scale[o], weight + (size_t)o * C, C);
    }
    return w;
}

// A row of the input in 16 bits: integers, or ldx high digits and then ldx low ones.
typedef struct {
    float scale;
    int64_t sum; // of its integers
} Int8Input;

// Rounds x (C) to x16 (ldx); the columns from C on become 0.
static inline Int8Input int8_round_input(int16_t* x16, size_t ldx, const Stored* x, int C, bool as_digits) {
    const float scale = int8_largest(x, C) / INT8_STEPS, steps = int8_reciprocal(scale);
    int8_t *high = (int8_t*)x16, *low = high + ldx;
    int64_t sum = 0;
    memset(x16, 0, ldx * sizeof *x16);
    if (as_digits) {
        #pragma omp simd reduction(+ : sum)
        for (int c = 0; c < C; c++) {
            const int value = int8_nearest(to_float(x[c]) * steps), above = (value + 128) >> 8;
            high[c] = (int8_t)above;
            low[c] = (int8_t)(value - 256 * above);
            sum += value;
        }
    } else {
        #pragma omp simd reduction(+ : sum)
        for (int c = 0; c < C; c++) {
            const int value = int8_nearest(to_float(x[c]) * steps);
            x16[c] = (int16_t)value;
            sum += value;
        }
    }
    return (Int8Input){.scale = scale, .sum = sum};
}

// ---------------------------------------------------------------------------------------------------------------------
// kernels: total (inputs,16) += columns 4 * begin .. 4 * end - 1 of x (inputs,ldx) @ the same of a block (16,ldx)^T.
// They get up to INT8_TILE inputs and INT8_DEPTH columns.

typedef void Int8Kernel(int64_t* total, const int16_t* x, size_t ldx, const uint8_t* block, int begin, int end,
                        int inputs);

static inline const uint8_t* int8_group(const uint8_t* block, int g) {
    return block + (size_t)g * INT8_ROWS * INT8_GROUP;
}

static inline void int8_plain(int64_t* total, const int16_t* x, size_t ldx, const uint8_t* block, int begin, int end,
                              int inputs) {
    for (int n = 0; n < inputs; n++) {
        for (int r = 0; r < INT8_ROWS; r++) {
            for (int c = begin * INT8_GROUP; c < end * INT8_GROUP; c++) {
                const uint8_t w = int8_group(block, c / INT8_GROUP)[r * INT8_GROUP + c % INT8_GROUP];
                total[n * INT8_ROWS + r] += x[(size_t)n * ldx + c] * w;
            }
        }
    }
}

#ifdef __AVX2__
// Inlined with constant `inputs`, 1 or 2: a quarter of a block has the columns of four rows, each with two sums.
static inline __attribute__((always_inline)) void int8_avx2_tile(int64_t* total, const int16_t* x, size_t ldx,
                                                                 const uint8_t* block, int begin, int end,
                                                                 int inputs) {
    __m256i sum[2][4];
    #pragma GCC unroll 2
    for (int n = 0; n < inputs; n++) {
        #pragma GCC unroll 4
        for (int q = 0; q < 4; q++) { sum[n][q] = _mm256_setzero_si256(); }
    }
    for (int g = begin; g < end; g++) {
        const __m128i* quarters = (const __m128i*)int8_group(block, g);
        #pragma GCC unroll 4
        for (int q = 0; q < 4; q++) {
            const __m256i w = _mm256_cvtepu8_epi16(_mm_loadu_si128(quarters + q));
            #pragma GCC unroll 2
            for (int n = 0; n < inputs; n++) {
                long long group;
                memcpy(&group, x + (size_t)n * ldx + (size_t)g * INT8_GROUP, sizeof group);
                sum[n][q] = _mm256_add_epi32(sum[n][q], _mm256_madd_epi16(w, _mm256_set1_epi64x(group)));
            }
        }
    }
    #pragma GCC unroll 2
    for (int n = 0; n < inputs; n++) {
        int32_t sums[INT8_ROWS][2];
        #pragma GCC unroll 4
        for (int q = 0; q < 4; q++) { _mm256_storeu_si256((__m256i*)sums + q, sum[n][q]); }
        for (int r = 0; r < INT8_ROWS; r++) { total[n * INT8_ROWS + r] += (int64_t)sums[r][0] + sums[r][1]; }
    }
}

static inline void int8_avx2(int64_t* total, const int16_t* x, size_t ldx, const uint8_t* block, int begin, int end,
                             int inputs) {
    int n = 0;
    for (; n + 2 <= inputs; n += 2) { int8_avx2_tile(total + n * INT8_ROWS, x + n * ldx, ldx, block, begin, end, 2); }
    if (n < inputs) { int8_avx2_tile(total + n * INT8_ROWS, x + n * ldx, ldx, block, begin, end, 1); }
}
#endif

#ifdef __AVX512F__
#define VNNI __attribute__((target("avx512vnni"))) // not part of the level: the processor is asked

static inline bool int8_has_vnni(void) { return __builtin_cpu_supports("avx512vnni"); }

// Inlined with constant `inputs`. x has digits.
VNNI static inline __attribute__((always_inline)) void int8_vnni_tile(int64_t* total, const int16_t* x, size_t ldx,
                                                                      const uint8_t* block, int begin, int end,
                                                                      int inputs) {
    enum { AHEAD = 2048 }; // bytes; the processor's own prefetching stops at each page
    __m512i high[INT8_TILE], low[INT8_TILE];
    #pragma GCC unroll 4
    for (int n = 0; n < inputs; n++) { high[n] = low[n] = _mm512_setzero_si512(); }
    for (int g = begin; g < end; g++) {
        const __m512i w = _mm512_loadu_si512(int8_group(block, g));
        __builtin_prefetch(int8_group(block, g) + AHEAD, 0, PREFETCH_TO_L2);
        #pragma GCC unroll 4
        for (int n = 0; n < inputs; n++) {
            const char* digits = (const char*)(x + (size_t)n * ldx) + (size_t)g * INT8_GROUP;
            int32_t four_high, four_low;
            memcpy(&four_high, digits, sizeof four_high);
            memcpy(&four_low, digits + ldx, sizeof four_low);
            high[n] = _mm512_dpbusd_epi32(high[n], w, _mm512_set1_epi32(four_high));
            low[n] = _mm512_dpbusd_epi32(low[n], w, _mm512_set1_epi32(four_low));
        }
    }
    #pragma GCC unroll 4
    for (int n = 0; n < inputs; n++) {
        int32_t sums[2][INT8_ROWS];
        _mm512_storeu_si512(sums[0], high[n]);
        _mm512_storeu_si512(sums[1], low[n]);
        for (int r = 0; r < INT8_ROWS; r++) { total[n * INT8_ROWS + r] += 256 * (int64_t)sums[0][r] + sums[1][r]; }
    }
}

VNNI static inline void int8_vnni(int64_t* total, const int16_t* x, size_t ldx, const uint8_t* block, int begin,
                                  int end, int inputs) {
    if (inputs == INT8_TILE) {
        int8_vnni_tile(total, x, ldx, block, begin, end, INT8_TILE);
        return;
    }
    for (int n = 0; n < inputs; n++) { int8_vnni_tile(total + n * INT8_ROWS, x + n * ldx, ldx, block, begin, end, 1); }
}
#else
static inline bool int8_has_vnni(void) { return false; }
#endif

// Returns the kernel for this processor.
static inline Int8Kernel* int8_kernel(void) {
    if (cpu.kernels == KERNELS_PLAIN) { return int8_plain; }
#ifdef __AVX512F__
    if (int8_has_vnni()) { return int8_vnni; }
#endif
#ifdef __AVX2__
    return int8_avx2;
#else
    return int8_plain;
#endif
}

// ---------------------------------------------------------------------------------------------------------------------
// the operation

// Returns the bytes of thread_scratch() that matmul_int8 takes in one thread.
static inline size_t int8_scratch_bytes(int C) {
    return INT8_INPUTS * (sizeof(Int8Input) + (size_t)int8_groups(C) * INT8_GROUP * sizeof(int16_t));
}

// Computes rows first .. first + INT8_ROWS of the weight for up to INT8_INPUTS rows of the input.
static inline void matmul_int8_block(Stored* out, const Int8Input* inputs, const int16_t* x, const Int8Weight* w,
                                     const Stored* bias, int N, int first, Int8Kernel* kernel) {
    enum { DEPTH = INT8_DEPTH / INT8_GROUP };
    const int groups = int8_groups(w->C), rows = min_int(INT8_ROWS, w->OC - first);
    const size_t ldx = (size_t)groups * INT8_GROUP;
    const uint8_t* block = w->blocks + (size_t)(first / INT8_ROWS) * int8_block_bytes(w->C);
    for (int n = 0; n < N; n += INT8_TILE) {
        int64_t total[INT8_TILE * INT8_ROWS] = {0};
        const int tile = min_int(INT8_TILE, N - n);
        for (int g = 0; g < groups; g += DEPTH) {
            kernel(total, x + (size_t)n * ldx, ldx, block, g, min_int(g + DEPTH, groups), tile);
        }
        for (int m = n; m < n + tile; m++) {
            const int64_t* sums = total + (m - n) * INT8_ROWS;
            Stored* to = out + (size_t)m * w->OC + first;
            for (int r = 0; r < rows; r++) {
                const float sum = (float)(sums[r] - 128 * inputs[m].sum) * (w->scale[first + r] * inputs[m].scale);
                to[r] = to_stored(bias ? sum + to_float(bias[first + r]) : sum);
            }
        }
    }
}

// out (N,OC) = inp (N,C) @ the weight in 8 bits (OC,C)^T + bias (OC), which may be NULL.
static inline void matmul_int8(Stored* out, const Stored* inp, const Stored* weight, const Stored* bias, int N, int C,
                               int OC) {
    const Int8Weight* w = int8_weight(weight, C, OC);
    Int8Kernel* kernel = int8_kernel();
    const size_t ldx = (size_t)int8_groups(C) * INT8_GROUP;
    const bool as_digits = cpu.kernels == KERNELS_FAST && int8_has_vnni();
    Int8Input* inputs = thread_scratch(int8_scratch_bytes(C));
    int16_t* x = (int16_t*)(inputs + INT8_INPUTS);
    for (int n = 0; n < N; n += INT8_INPUTS) {
        const int count = min_int(INT8_INPUTS, N - n);
        #pragma omp parallel for if (count > INT8_TILE)
        for (int m = 0; m < count; m++) {
            inputs[m] = int8_round_input(x + (size_t)m * ldx, ldx, inp + (size_t)(n + m) * C, C, as_digits);
        }
        #pragma omp parallel for if ((size_t)count * C * OC >= DOT_SHARED)
        for (int first = 0; first < OC; first += INT8_ROWS) {
            matmul_int8_block(out + (size_t)n * OC, inputs, x, w, bias, count, first, kernel);
        }
    }
}
