// Column sums of a matrix, for gradients of biases: sums (OC) += the sums over the rows of x (N,OC).
//
// The rows are divided among blocks, each of which writes partial sums; a second launch adds them up. They are a matrix
// too, so both launches run the same kernel. How the rows are divided depends on N and OC only, so the result has the
// same bits on every GPU.
#pragma once
#include "vector.cuh"

static constexpr int COLUMN_SUM_ROWS = 16;      // rows that a block reads at a time
static constexpr int COLUMN_SUM_PARTS = 128;    // most partial sums of a column
static constexpr int COLUMN_SUM_PART_ROWS = 64; // fewest rows of a partial sum

// Sums a block's columns of x (rows,OC), from column group * WARP_SIZE * WIDTH on. sums (OC) is set, or with ADD added
// to.
template <int WIDTH, bool ADD, class Type>
static __device__ inline void block_column_sums(float* sums, const Type* x, int rows, size_t OC, unsigned group) {
    // the padding puts the elements that neighbouring threads read below into different banks
    __shared__ float of_row[COLUMN_SUM_ROWS][WIDTH][WARP_SIZE + (WIDTH > 1 ? WARP_SIZE / WIDTH : 0)];
    const size_t first = (size_t)group * WARP_SIZE * WIDTH, o = first + threadIdx.x * WIDTH;
    float sum[WIDTH] = {0};
    if (o < OC) {
        #pragma unroll 4 // keeps several loads in flight
        for (int n = threadIdx.y; n < rows; n += COLUMN_SUM_ROWS) {
            float row[WIDTH];
            load_floats(row, x + n * OC + o);
            for (int k = 0; k < WIDTH; k++) { sum[k] += row[k]; }
        }
    }
    for (int k = 0; k < WIDTH; k++) { of_row[threadIdx.y][k][threadIdx.x] = sum[k]; }
    __syncthreads();
    // From here on a thread has one column, so that neighbours store neighbouring sums.
    static_assert(WIDTH <= COLUMN_SUM_ROWS, "a block has fewer threads than columns");
    const int column = threadIdx.y * WARP_SIZE + threadIdx.x;
    if (column >= WARP_SIZE * WIDTH || first + column >= OC) { return; }
    float total = 0;
    for (int r = 0; r < COLUMN_SUM_ROWS; r++) { total += of_row[r][column % WIDTH][column / WIDTH]; }
    float* out = &sums[first + column];
    *out = ADD ? *out + total : total;
}

// Block (i,p) sums part_rows rows, from row p * part_rows on, to row p of sums.
template <int WIDTH, bool ADD, class Type>
static __global__ void column_sums_kernel(float* sums, const Type* x, size_t N, size_t OC, size_t part_rows) {
    const size_t begin = blockIdx.y * part_rows;
    const int rows = begin >= N ? 0 : (int)(begin + part_rows < N ? part_rows : N - begin);
    block_column_sums<WIDTH, ADD>(sums + blockIdx.y * OC, x + begin * OC, rows, OC, blockIdx.x);
}

// sums (OC) += the column sums of x (rows,OC): two such problems, of even and of odd blocks.
static __global__ void two_column_sums_kernel(float* sums1, float* sums2, const float* x1, const float* x2, int rows,
                                              size_t OC) {
    const bool is_second = blockIdx.x % 2;
    block_column_sums<1, true>(is_second ? sums2 : sums1, is_second ? x2 : x1, rows, OC, blockIdx.x / 2);
}

// sums (parts,OC) = (with ADD: +=) the column sums of `parts` groups of rows.
template <bool ADD, class Type>
static inline void column_sums(float* sums, const Type* x, size_t N, size_t OC, size_t parts) {
    constexpr int WIDE = Pack<Type>::SIZE;
    const bool wide = is_wide<WIDE>(OC, x);
    const auto kernel = wide ? column_sums_kernel<WIDE, ADD, Type> : column_sums_kernel<1, ADD, Type>;
    const dim3 blocks(blocks_for(OC, WARP_SIZE * (wide ? WIDE : 1)), (unsigned)parts);
    const dim3 threads(WARP_SIZE, COLUMN_SUM_ROWS);
    kernel<<<blocks, threads, 0, gpu.stream>>>(sums, x, N, OC, ceil_div(N, parts));
    cuda_launched("column_sums");
}

// As column_sums<true>() of x1 to sums1 and of x2 to sums2, for few rows: with narrow columns there are enough blocks.
static inline void two_column_sums(float* sums1, float* sums2, const float* x1, const float* x2, int rows, size_t OC) {
    const dim3 threads(WARP_SIZE, COLUMN_SUM_ROWS);
    two_column_sums_kernel<<<2 * blocks_for(OC, WARP_SIZE), threads, 0, gpu.stream>>>(sums1, sums2, x1, x2, rows, OC);
    cuda_launched("two_column_sums");
}

template <class Type> static inline void add_column_sums(float* sums, const Type* x, size_t N, size_t OC) {
    const size_t most = min_size(COLUMN_SUM_PARTS, SCRATCH_BYTES / (OC * sizeof(float)));
    const size_t parts = min_size(ceil_div(N, COLUMN_SUM_PART_ROWS), most);
    if (parts <= 1) {
        column_sums<true>(sums, x, N, OC, 1);
        return;
    }
    float* partial = (float*)gpu.scratch;
    column_sums<false>(partial, x, N, OC, parts);
    column_sums<true>(sums, partial, parts, OC, 1);
}
