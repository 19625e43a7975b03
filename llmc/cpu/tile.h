// The micro-kernel of all fast matmuls, and of flash attention: the matmul of two small matrices.
//
//   c (MR,NR) = or += a (MR,k) @ b (k,NR)       c float, in rows of ldc
//
// a and b are copied ("packed") beforehand into the order in which the kernel reads them, in panels of MR rows and of
// NR columns. Three headers define the same names; the storage type and the level of instructions of this object
// determine which one is included:
//
//   Packed         an element of a packed operand: float, or bf16
//   MR, NR, KR     rows and columns of a tile; packed depths are multiples of KR, padded with zeros. Pieces of a panel
//                  whose depths are such multiples may be packed one behind another
//   DEPTH, LONG_DEPTH   most steps of k in a block of gemm.h: in the only one, or in one of several. Many: c is added
//                  to less often. Few: panels of a and b fit into L1. Measured: dev/cpu.md
//   C_GROUPS       groups of rows in a block of c (gemm.h). Many: b is packed less often. Few: c stays in L2, which
//                  counts where tiles are fast. Measured: dev/cpu.md
//   PREFETCH       true if operands, and what an epilogue writes, are prefetched into L2 before they are used. With AMX
//                  results take a tenth longer if they are. Measured: dev/cpu.md
//   AHEAD_STEPS    steps of k between two turns of prefetching (ahead.h)
//   PACKED_USES, PACKED_ROWS   when weights are kept packed (packed.h)
//   SHARES_PACKED  true if all threads share packed operands of a weight's gradient (weight_gradient.h)
//   STREAM_BYTES   results of more bytes in a thread are stored past its caches, which hold less. Measured: dev/cpu.md
//   STORES_BY_INSTRUCTION   true if epilogues convert by store_floats()
//   tile_begin     each thread of a parallel region calls it before its first tile_matmul
//   pack_a         packs a panel of a (rows <= MR, k)
//   pack_b         packs a panel of b (k, cols <= NR). In both, element (i, j) is at x[i*row + j*col]; one of row and
//                  col is 1
//   tile_multiply  sets a tile of c, or adds to it, always all of its MR x NR elements; rounds k up to a multiple of
//                  KR. Of row i of a, KR steps of k from step s * KR on are at a[i*row + s*col]. Prefetches `ahead`,
//                  which may be NULL. Called by the functions below and by attention_flash.h
//   tile_sum_rows  adds the sums over k of the MR rows of a to `sums`. a is packed, with a step of MR * KR, or lies in
//                  consecutive columns, with a step of their stride
//   TILE_READS_COLUMNS   true if tile_multiply also reads an `a` with consecutive columns where it lies (row is 1). All
//                  read one with consecutive rows (col is KR)
//   tile_peak      measures the peak: runs the innermost instruction from registers alone, `rounds` times for each
//                  accumulator, and sets *flops to the number of operations, a multiply-add counting as two. The
//                  result has no meaning; it keeps the compiler from dropping the work
//
// An element of c is summed in float over k in one order, wherever the tile lies.
#pragma once
#include "ahead.h"

typedef enum { TILE_SET, TILE_ADD } TileMode;

#if FLOATX_IS(bf16) && (defined(__AMX_BF16__) || defined(__AMXBF16__)) // gcc; clang 14
#include "tile_amx.h"
#elif FLOATX_IS(bf16) && defined(__AVX512BF16__)
#include "tile_bf16.h"
#else
#include "tile_fp32.h"
#endif

// c = or += a @ b, both packed
static inline __attribute__((always_inline)) void tile_matmul(float* c, size_t ldc, TileMode mode, const Packed* a,
                                                              const Packed* b, int k, Ahead* ahead) {
    tile_multiply(c, ldc, mode, a, KR, MR * KR, b, k, ahead);
}

// The same for an a that is not packed: element (i, j) at a[i*row + j*col]; k is a multiple of KR. Either col is 1, or
// row is and TILE_READS_COLUMNS is true: a copy for each, with a constant stride.
static inline __attribute__((always_inline)) void tile_matmul_unpacked(float* c, size_t ldc, TileMode mode,
                                                                       const Packed* a, size_t row, size_t col,
                                                                       const Packed* b, int k, Ahead* ahead) {
    if (TILE_READS_COLUMNS && row == 1) { tile_multiply(c, ldc, mode, a, 1, col, b, k, ahead); }
    else { tile_multiply(c, ldc, mode, a, row, KR, b, k, ahead); }
}

// Returns true if a result of `count` elements, which all threads make together, is stored past the caches.
static inline bool is_streamed(size_t count) { return count * sizeof(Stored) / (size_t)cpu.threads > STREAM_BYTES; }

// Returns the elements of a panel of `width` rows or columns (MR or NR), k deep.
static inline size_t panel_size(int width, int k) { return (size_t)width * round_up((size_t)k, KR); }
