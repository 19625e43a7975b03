// Predicts how long cuBLASLt takes for a matmul, from its shape. NVIDIA publishes a model of its matmuls
// (nvidia-matmul-heuristics); this is what that model does with GPT-2's shapes, reduced to three terms, with speeds
// that others measured.
//
//     sums      The output is cut into tiles of 128 x 128 to 128 x 256. A multiprocessor sums one tile at a time, so
//               tiles take whole waves: 145 tiles on 132 multiprocessors take as long as 264. If there are too few
//               tiles, the depth is split, and the parts are added through memory.
//     factors   Each is read from memory once, while tiles are summed.
//     results   What the epilogue reads and writes. A multiprocessor of Ampere or Hopper writes a tile after its sum,
//               which is why a matmul with a small depth (768 in GPT-2 124M) is far from the peak. Blackwell writes a
//               tile while it sums the next, from its tensor memory.
//
// The matmul takes the longer of sums and factors, and then the results; on Blackwell the longest of all. The choice of
// tile and split is the fastest.
//
// NVIDIA's model sums at the peak of the highest clock. A GPU does not hold that clock at full load: the speed of sums
// here is what makes the fastest published matmul (BEST_MATMULS in matmul_model.c) take its published time.
#pragma once
#include "../cuda/gpus.h"

// out (rows,cols) = a (rows,depth) @ b (depth,cols)
typedef struct {
    int rows, cols, depth;
} MatmulSize;

// Bytes of a matmul: of its factors; of all else, read or written; per second, from and to memory.
typedef struct {
    double factors, results, bandwidth;
} MatmulBytes;

typedef struct {
    double sums, factors, results; // seconds
    double seconds;                // of all
    bool bound_by_sums;            // they are part of `seconds`; else factors are, or on Blackwell all bytes
    int tile_rows, tile_cols, splits;
} MatmulTime;

// Returns the time of a matmul whose multiprocessors each sum at `flops` operations per second.
MatmulTime matmul_time(const GpuFacts* gpu, double flops, const MatmulSize* m, const MatmulBytes* bytes);

// Returns the part of the GPU's peak at which multiprocessors sum, in arithmetic of this --dtype. `efficiency`: the
// part of the data sheet's bandwidth that memory reaches.
double matmul_sustained(const GpuFacts* gpu, const char* dtype, double efficiency);

// Returns the bytes of an element of a factor.
int matmul_factor_bytes(const char* dtype);
