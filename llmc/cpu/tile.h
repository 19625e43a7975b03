// The micro-kernel of all fast matmuls, and of flash attention: the product of two small matrices.
//
//   c (MR,NR) = or += a (MR,k) @ b (k,NR)       c float, in rows of ldc
//
// a and b are copied ("packed") beforehand into the order in which the kernel reads them, in panels of MR rows and of
// NR columns. Three headers define the same names; the storage type and the level of instructions of this object
// determine which one is included:
//
//   Packed                 an element of a packed operand: float, or bf16
//   MR, NR, KR             rows and columns of a tile; packed depths are multiples of KR, padded with zeros. Pieces of
//                          a panel whose depths are such multiples may be packed one behind another
//   tile_begin()           each thread of a parallel region calls it before its first product
//   pack_a, pack_b         pack one panel
//   tile_product           computes one tile; a depth that is no multiple of KR is rounded up
//   tile_peak              runs the innermost instruction from registers alone, to measure the peak
//
// An element of c is summed in float over k in one order, wherever the tile lies.
#pragma once
#include "device.h"

typedef enum { TILE_SET, TILE_ADD } TileMode;

#define FLOATX_IS_fp32 0
#define FLOATX_IS_bf16 1
#define FLOATX_IS_16_BITS JOIN(FLOATX_IS_, FLOATX)

#if FLOATX_IS_16_BITS && (defined(__AMX_BF16__) || defined(__AMXBF16__)) // gcc; clang 14
#include "tile_amx.h"
#elif FLOATX_IS_16_BITS && defined(__AVX512BF16__)
#include "tile_bf16.h"
#else
#include "tile_fp32.h"
#endif

// Elements of a panel of `width` rows or columns (MR or NR), k deep.
static inline size_t panel_size(int width, int k) { return (size_t)width * round_up((size_t)k, KR); }
