// Parts of the kernels in flash.cuh: tiles of rows in shared memory, filled asynchronously, and two matmuls of a warp's
// 16 rows with a tile. Only the matmuls depend on the type: bf16 and fp16 run on tensor cores, fp32 on the
// threads' fused multiply-adds.
//
// HD is the head size that a kernel is compiled for. Heads of HS <= HD channels are padded with zeros.
//
// An accumulator `float x[N][4]` is 16 rows of 8 * N columns over a warp, in mma's layout (ptx.cuh): x[n][i] is row
// acc_row(i), column acc_column(n, i).
#pragma once
#include "common.cuh"
#include "ptx.cuh"

static __device__ inline int warp_lane() { return threadIdx.x % WARP_SIZE; }
static __device__ inline int acc_row(int i) { return warp_lane() / 4 + i / 2 * 8; }
static __device__ inline int acc_column(int n, int i) { return n * 8 + warp_lane() % 4 * 2 + i % 2; }

// ---------------------------------------------------------------------------------------------------------------------
// tiles: rows of HD elements, padded by 16 bytes, so that eight consecutive rows begin in different banks of shared
// memory

template <class Type, int HD> struct Tile {
    enum { PACK = Pack<Type>::SIZE, PACKS = HD / PACK, PITCH = HD + PACK };
};

// Starts to copy rows first .. first+ROWS-1 of a head, which lie `stride` elements apart in global memory. Rows from T
// on and channels from HS on become zeros; their addresses may lie anywhere, since they are not read. A block has
// THREADS threads. Offsets have 32 bits, because 64-bit ones take registers that the kernels do not have.
template <int HD, int ROWS, int THREADS, class Type>
static __device__ inline void tile_load(Type* tile, const Type* head, uint32_t stride, int first, int T, int HS) {
    typedef Tile<Type, HD> Shape;
    enum { COUNT = ROWS * Shape::PACKS };
    #pragma unroll
    for (int begin = 0; begin < COUNT; begin += THREADS) {
        const unsigned i = begin + threadIdx.x;
        if (COUNT % THREADS != 0 && i >= COUNT) { break; }
        const int row = i / Shape::PACKS, column = i % Shape::PACKS * Shape::PACK;
        const bool inside = first + row < T && column < HS;
        cp_async_16(tile + row * Shape::PITCH + column, head + ((first + row) * stride + column), inside);
    }
}

// Writes a warp's accumulator, with row acc_row(i) times factor[i / 2], to rows first .. first+15 of a head. Rows from
// T on, channels from HS on and columns from HD on are skipped. The accumulator is first written to 16 rows of a tile
// that only this warp uses, so that global memory is written 128 bits at a time.
template <int HD, class Type, int COLUMNS>
static __device__ inline void tile_store(Type* head, size_t stride, int first, int T, int HS,
                                         const float (&acc)[COLUMNS][4], const float (&factor)[2], Type* tile) {
    typedef Tile<Type, HD> Shape;
    __syncwarp(); // all lanes have read the tile's old contents
    #pragma unroll
    for (int n = 0; n < HD / 8; n++) {
        #pragma unroll
        for (int i = 0; i < 4; i++) {
            tile[acc_row(i) * Shape::PITCH + acc_column(n, i)] = from_float<Type>(acc[n][i] * factor[i / 2]);
        }
    }
    __syncwarp();
    for (int i = warp_lane(); i < 16 * Shape::PACKS; i += WARP_SIZE) {
        const int row = i / Shape::PACKS, column = i % Shape::PACKS * Shape::PACK;
        if (first + row >= T || column >= HS) { continue; }
        copy_pack(head + (size_t)(first + row) * stride + column, tile + row * Shape::PITCH + column);
    }
}

// Turns an accumulator, whose row acc_row(i) tile_store() has multiplied by factor[i / 2] and rounded, into what the
// rounding took.
template <class Type, int COLUMNS>
static __device__ inline void take_rest(float (&acc)[COLUMNS][4], const float (&factor)[2]) {
    #pragma unroll
    for (int n = 0; n < COLUMNS; n++) {
        #pragma unroll
        for (int i = 0; i < 4; i++) {
            const float x = acc[n][i] * factor[i / 2];
            acc[n][i] = x - to_float(from_float<Type>(x));
        }
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// the matmuls
//   WarpRows            16 rows of a tile that a warp multiplies repeatedly; a warp has GROUPS of them
//   tile_scores         acc (16,8N) += rows (16,HD) @ tile (8N,HD)^T, for each group
//   tile_weighted_sum   acc (16,HD) += p (16,16) @ tile (16,HD), for each group, where p is columns 8n .. 8n+15 of an
//                       accumulator. acc may have eight columns more. In 16 bits the even ones add up p as it is
//                       rounded for the product, as if the tile had columns of ones there; the odd ones stay
// Elements of the tile are loaded once for all groups. On an A100, whose SM loads 128 bytes from shared memory and does
// 1024 multiply-adds per clock, one group keeps both equally busy. With two groups the tensor cores are the limit.

// bf16 and fp16: the rows stay in registers. ldmatrix loads 16 by 16 elements at a time. `corner` is the address that
// this lane passes to it, of 8 elements of one row.
template <class Type, int HD> struct WarpRows {
    uint32_t x[HD / 16][4];

    __device__ void load(const Type* tile) {
        const Type* corner = tile + warp_lane() % 16 * Tile<Type, HD>::PITCH + warp_lane() / 16 * 8;
        #pragma unroll
        for (int i = 0; i < HD / 16; i++) { ldmatrix_x4(x[i], corner + i * 16); }
    }
};

template <class Type, int HD, int N, int GROUPS>
static __device__ inline void tile_scores(float (&acc)[GROUPS][N][4], const WarpRows<Type, HD> (&rows)[GROUPS],
                                          const Type* tile) {
    enum { PITCH = Tile<Type, HD>::PITCH };
    const Type* corner = tile + (warp_lane() % 8 + warp_lane() / 16 * 8) * PITCH + warp_lane() / 8 % 2 * 8;
    #pragma unroll
    for (int n = 0; n < N; n += 2) {
        #pragma unroll
        for (int i = 0; i < HD / 16; i++) {
            uint32_t b[4];
            ldmatrix_x4(b, corner + n * 8 * PITCH + i * 16);
            #pragma unroll
            for (int g = 0; g < GROUPS; g++) {
                mma<Type>(acc[g][n], rows[g].x[i], b[0], b[1]);
                mma<Type>(acc[g][n + 1], rows[g].x[i], b[2], b[3]);
            }
        }
    }
}

// Returns the bits of two floats rounded to 16, the first in the lower half.
template <class Type> static __device__ inline uint32_t rounded_pair(float low, float high);
template <> __device__ inline uint32_t rounded_pair<bf16>(float low, float high) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    uint32_t bits;
    memcpy(&bits, &pair, sizeof bits);
    return bits;
}
template <> __device__ inline uint32_t rounded_pair<fp16>(float low, float high) {
    const __half2 pair = __floats2half2_rn(low, high);
    uint32_t bits;
    memcpy(&bits, &pair, sizeof bits);
    return bits;
}

// Returns mma's second operand with ones in its even columns and zeros in the odd ones.
template <class Type> static __device__ inline uint32_t ones_in_even_columns() {
    return warp_lane() / 4 % 2 == 0 ? rounded_pair<Type>(1.0f, 1.0f) : 0;
}

// An accumulator rounded to 16 bits has the layout of mma's first operand. The sums of p's rows are added within the
// loop or behind it, wherever nvcc 13.0 then spills no registers on GPUs before Blackwell.
template <int HD, int COLUMNS, int N, int GROUPS, class Type>
    requires(sizeof(Type) == 2)
static __device__ inline void tile_weighted_sum(float (&acc)[GROUPS][COLUMNS][4], const float (&p)[GROUPS][N][4],
                                                int n, const Type* tile) {
    const Type* corner = tile + warp_lane() % 16 * Tile<Type, HD>::PITCH + warp_lane() / 16 * 8;
    constexpr bool HAS_SUMS = COLUMNS > HD / 8;
    uint32_t a[GROUPS][4];
    #pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        #pragma unroll
        for (int i = 0; i < 4; i++) {
            const float(&from)[4] = p[g][n + i / 2];
            a[g][i] = rounded_pair<Type>(from[i % 2 * 2], from[i % 2 * 2 + 1]);
        }
    }
    #pragma unroll
    for (int i = 0; i < HD / 16; i++) {
        uint32_t b[4];
        ldmatrix_x4_trans(b, corner + i * 16);
        #pragma unroll
        for (int g = 0; g < GROUPS; g++) {
            mma<Type>(acc[g][2 * i], a[g], b[0], b[1]);
            mma<Type>(acc[g][2 * i + 1], a[g], b[2], b[3]);
            if constexpr (HAS_SUMS && HD > 64) {
                const uint32_t ones = ones_in_even_columns<Type>();
                if (i + 1 == HD / 16) { mma<Type>(acc[g][HD / 8], a[g], ones, ones); }
            }
        }
    }
    if constexpr (HAS_SUMS && HD <= 64) {
        const uint32_t ones = ones_in_even_columns<Type>();
        #pragma unroll
        for (int g = 0; g < GROUPS; g++) { mma<Type>(acc[g][HD / 8], a[g], ones, ones); }
    }
}

// fp32: a thread computes the elements of the accumulator that it holds, 2 rows by 2N columns.
template <int HD> struct WarpRows<fp32, HD> {
    const fp32* tile;

    __device__ void load(const fp32* rows) { tile = rows; }
};

static __device__ inline float dot4(const Pack<fp32>& a, const Pack<fp32>& b, float sum) {
    #pragma unroll
    for (int i = 0; i < 4; i++) { sum = fmaf(a.x[i], b.x[i], sum); }
    return sum;
}

template <int HD, int N>
static __device__ inline void tile_scores(float (&accs)[1][N][4], const WarpRows<fp32, HD> (&rows)[1],
                                          const fp32* tile) {
    enum { PITCH = Tile<fp32, HD>::PITCH };
    float(&acc)[N][4] = accs[0];
    const fp32* a = rows[0].tile + acc_row(0) * PITCH;
    const fp32* b = tile + acc_column(0, 0) * PITCH;
    #pragma unroll 2
    for (int c = 0; c < HD; c += 4) {
        const Pack<fp32> a0 = load_pack(a + c), a1 = load_pack(a + 8 * PITCH + c);
        #pragma unroll
        for (int n = 0; n < N; n++) {
            const Pack<fp32> b0 = load_pack(b + n * 8 * PITCH + c), b1 = load_pack(b + (n * 8 + 1) * PITCH + c);
            acc[n][0] = dot4(a0, b0, acc[n][0]);
            acc[n][1] = dot4(a0, b1, acc[n][1]);
            acc[n][2] = dot4(a1, b0, acc[n][2]);
            acc[n][3] = dot4(a1, b1, acc[n][3]);
        }
    }
}

// The lanes l with l % 4 == k % 8 / 2 hold column k of p. By a shuffle, each lane gets its two rows of that column from
// the lane among these that holds the same rows.
template <int HD, int COLUMNS, int N>
static __device__ inline void tile_weighted_sum(float (&accs)[1][COLUMNS][4], const float (&ps)[1][N][4], int n0,
                                                const fp32* tile) {
    float(&acc)[COLUMNS][4] = accs[0];
    const float(*p)[4] = &ps[0][n0];
    #pragma unroll
    for (int k = 0; k < 16; k++) {
        const int holder = warp_lane() / 4 * 4 + k % 8 / 2;
        const float p0 = __shfl_sync(~0u, p[k / 8][k % 2], holder), p1 = __shfl_sync(~0u, p[k / 8][2 + k % 2], holder);
        const fp32* row = tile + k * Tile<fp32, HD>::PITCH;
        #pragma unroll
        for (int n = 0; n < HD / 8; n++) {
            const float2 x = *(const float2*)(row + acc_column(n, 0));
            acc[n][0] = fmaf(p0, x.x, acc[n][0]);
            acc[n][1] = fmaf(p0, x.y, acc[n][1]);
            acc[n][2] = fmaf(p1, x.x, acc[n][2]);
            acc[n][3] = fmaf(p1, x.y, acc[n][3]);
        }
    }
}
