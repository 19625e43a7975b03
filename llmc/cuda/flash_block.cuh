// A block of the kernels in flash.cuh: its tiling (warps, rows, streamed rows), its shared memory, its place.
//
// Each kernel has one tiling for each head size, variant 0, which suits all GPUs. For 16-bit types and heads of 64 and
// 128 channels it has others, which the machine code (test/sass/sass.sh) calls faster on some GPUs; autotune.h times
// them. More would cost time to compile: each is a kernel for each type.
//
//   rows of a warp  With 32, an element of a streamed tile is loaded once for two groups of 16 rows (flash_tile.cuh).
//   streamed rows   A longer tile has fewer instructions for each mma: an H100 is bound by these. It needs memory.
//   warps           GPUs with 100 KB of shared memory (RTX 3090, RTX 4090, L40S) run few blocks at a time. Their tensor
//                   cores are slower, so 16 rows for each warp suffice, and more warps hide more latency.
//
// Sums differ in their last bits between tilings, so a tiling is part of a run, as the other variants are.
#pragma once
#include "flash_tile.cuh"

// ---------------------------------------------------------------------------------------------------------------------
// tilings

struct FlashTiling {
    int warps, groups; // of a block; groups of 16 rows, of a warp
    int stream;        // rows of a streamed tile
    int blocks;        // that an SM has registers for (test/sass/sass.sh counts them); one more would spill registers
    int turing_blocks; // the same on Turing, which runs variant 0 only
};

static constexpr int FLASH_MAX_HEAD_SIZE = 128, FLASH_TURING_FP32_HEAD_SIZE = 64, MAX_FLASH_TILINGS = 3;

// Tilings of heads of up to 32, 64, 96 and 128 channels.
typedef FlashTiling FlashTilings[FLASH_MAX_HEAD_SIZE / 32][NUM_FLASH_KERNELS][MAX_FLASH_TILINGS];

static constexpr FlashTilings FLASH_TILINGS_16_BIT = {
    {{{4, 2, 32, 4, 4}}, {{4, 2, 16, 3, 3}}, {{4, 2, 16, 4, 3}}},
    {{{4, 2, 32, 3, 3}, {4, 2, 64, 2, 1}, {8, 1, 32, 2, 1}},
     {{4, 2, 16, 2, 2}, {4, 2, 32, 2, 1}, {6, 1, 16, 2, 1}},
     {{4, 2, 16, 2, 2}, {4, 2, 32, 2, 1}, {8, 1, 16, 2, 1}}},
    {{{4, 1, 32, 3, 2}}, {{4, 1, 16, 2, 2}}, {{4, 1, 16, 3, 3}}},
    {{{4, 1, 32, 3, 1}, {4, 2, 32, 2, 1}, {8, 1, 32, 1, 1}},
     {{4, 1, 16, 2, 2}, {8, 1, 16, 1, 1}},
     {{4, 1, 16, 2, 2}, {8, 1, 16, 1, 1}}},
};

static constexpr FlashTilings FLASH_TILINGS_32_BIT = {
    {{{4, 1, 64, 1, 1}}, {{4, 1, 32, 1, 1}}, {{4, 1, 32, 1, 1}}},
    {{{4, 1, 32, 1, 1}}, {{4, 1, 16, 1, 1}}, {{4, 1, 16, 1, 1}}},
    {{{4, 1, 16, 1, 1}}, {{4, 1, 16, 1, 1}}, {{4, 1, 16, 1, 1}}},
    {{{2, 1, 16, 1, 1}}, {{2, 1, 16, 1, 1}}, {{2, 1, 16, 1, 1}}},
};

// Returns the largest head whose tiles fit into this GPU's shared memory.
static inline int flash_max_head_size() {
    return gpu.major < 8 && sizeof(floatX) == 4 ? FLASH_TURING_FP32_HEAD_SIZE : FLASH_MAX_HEAD_SIZE;
}

// Returns a tiling of a kernel for elements of a size and heads of HS <= FLASH_MAX_HEAD_SIZE channels; its warps are 0
// if there is no such variant.
static constexpr FlashTiling flash_tiling(FlashKernel kernel, size_t element, int HS, int variant) {
    const FlashTilings& all = element == 2 ? FLASH_TILINGS_16_BIT : FLASH_TILINGS_32_BIT;
    return variant < MAX_FLASH_TILINGS ? all[(HS - 1) / 32][kernel][variant] : FlashTiling{};
}

// Returns the variant that runs where documents are kept apart: 4x32x64 would spill registers on Hopper, so 4x32x32
// runs in its place.
static constexpr int flash_masked_variant(FlashKernel kernel, int HS, int variant) {
    return kernel == FLASH_FORWARD && (HS - 1) / 32 == 1 && variant == 1 ? 0 : variant;
}

// ---------------------------------------------------------------------------------------------------------------------
// shared memory

static constexpr int max_of(int a, int b) { return a > b ? a : b; }

// A block's own tiles and its streamed tiles: at most 99 KB, which all GPUs since Ampere have.
//
// On Turing an SM has 64 KB in all. There a block's own rows of 16 bits pass, one tensor after another, through the
// memory of the streamed tiles into registers: so two or three blocks fit, of which one computes while another waits
// for its copies, which are not asynchronous there. Own rows in fp32 stay in shared memory.
template <FlashKernel KERNEL, class Type, int HD, int VARIANT> struct Flash {
    static constexpr FlashTiling TILING = flash_tiling(KERNEL, sizeof(Type), HD, VARIANT);
    enum {
        PITCH = Tile<Type, HD>::PITCH,
        GROUPS = TILING.groups,
        WARP_ROWS = GROUPS * 16,
        ROWS = TILING.warps * WARP_ROWS,
        THREADS = TILING.warps * WARP_SIZE,
        STREAM = TILING.stream,
        BLOCKS = FOR_TURING ? TILING.turing_blocks : TILING.blocks,
        OWN_ROWS = (KERNEL == FLASH_FORWARD ? 1 : 2) * ROWS, // of q; of k and v; of q and dout
        STREAM_ROWS = 2 * 2 * STREAM,                        // two stages of two tensors
        REUSED_ROWS = max_of(ROWS, STREAM_ROWS),             // of both on Turing
        STATISTICS = KERNEL == FLASH_KEYS ? 2 * 2 * STREAM * sizeof(float) : 0, // lse and delta of streamed queries
        BYTES = (OWN_ROWS + STREAM_ROWS) * PITCH * sizeof(Type) + STATISTICS,
        BYTES_TURING = sizeof(Type) == 2 ? REUSED_ROWS * PITCH * sizeof(Type) + STATISTICS : BYTES,
    };
    static_assert(TILING.warps > 0 && BYTES <= 99 * 1024, "no such tiling, or too large a one");
    static_assert(BYTES_TURING <= 64 * 1024 || (sizeof(Type) == 4 && HD > FLASH_TURING_FP32_HEAD_SIZE),
                  "too large a tile for Turing");

    static int bytes() { return gpu.major < 8 ? BYTES_TURING : BYTES; }
    static __device__ bool reuses() { return sizeof(Type) == 2 && !copies_are_asynchronous(); }
    // Rows of shared memory before the streamed tiles, and from there to the statistics.
    static __device__ int stream_begin() { return reuses() ? 0 : OWN_ROWS; }
    static __device__ int stream_rows() { return reuses() ? REUSED_ROWS : STREAM_ROWS; }
};

// Loads a block's own rows first .. of a head into `own` and from there into registers. `own` can then be used again.
template <class Shape, class Type, int HD>
static __device__ inline void load_own_rows(WarpRows<Type, HD> (&rows)[Shape::GROUPS], Type* own, const Type* head,
                                            uint32_t stride, int first, int T, int HS) {
    const Type* warp_own = own + threadIdx.x / WARP_SIZE * Shape::WARP_ROWS * Shape::PITCH;
    tile_load<HD, Shape::ROWS, Shape::THREADS>(own, head, stride, first, T, HS);
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();
    #pragma unroll
    for (int g = 0; g < Shape::GROUPS; g++) { rows[g].load(warp_own + g * 16 * Shape::PITCH); }
    __syncthreads();
}

// Loads a block's own rows first .. of heads x and y of two tensors into `own` and from there into registers.
// begin_stream() begins to load the first streamed tiles, as soon as there is memory for them.
template <class Shape, class Type, int HD, class Begin>
static __device__ inline void load_own_pairs(WarpRows<Type, HD> (&x_rows)[Shape::GROUPS],
                                             WarpRows<Type, HD> (&y_rows)[Shape::GROUPS], Type* own, const Type* x,
                                             uint32_t x_stride, const Type* y, uint32_t y_stride, int first, int T,
                                             int HS, const Begin& begin_stream) {
    enum { ROWS = Shape::ROWS, PITCH = Shape::PITCH };
    if (Shape::reuses()) {
        load_own_rows<Shape>(x_rows, own, x, x_stride, first, T, HS);
        load_own_rows<Shape>(y_rows, own, y, y_stride, first, T, HS);
        begin_stream();
        return;
    }
    const Type* warp_own = own + threadIdx.x / WARP_SIZE * Shape::WARP_ROWS * PITCH;
    tile_load<HD, ROWS, Shape::THREADS>(own, x, x_stride, first, T, HS);
    tile_load<HD, ROWS, Shape::THREADS>(own + ROWS * PITCH, y, y_stride, first, T, HS);
    cp_async_commit();
    begin_stream();
    cp_async_wait<1>();
    __syncthreads();
    #pragma unroll
    for (int g = 0; g < Shape::GROUPS; g++) {
        x_rows[g].load(warp_own + g * 16 * PITCH);
        y_rows[g].load(warp_own + (ROWS + g * 16) * PITCH);
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// place

// The head and the tile of a block. Neighbouring blocks have tiles of one head, which read the same rows. Offsets are
// computed where they are used: a kernel has no registers to keep them in.
struct FlashPlace {
    int tile, b, h, T, HS, NH;
    __device__ int C() const { return NH * HS; }
    __device__ uint32_t stride() const { return 3u * C(); } // between rows of qkv
    // of the head's rows in out and dout; in qkv and dqkv; in lse and delta
    __device__ size_t out() const { return (size_t)b * T * C() + h * HS; }
    __device__ size_t qkv() const { return (size_t)b * T * stride() + h * HS; }
    __device__ size_t lse() const { return (size_t)(b * NH + h) * T; }
};

static __device__ inline FlashPlace flash_place(int rows, int T, int HS, int NH) {
    const int tiles = (T + rows - 1) / rows, head = blockIdx.x / tiles;
    return {(int)(blockIdx.x % tiles), head / NH, head % NH, T, HS, NH};
}

// Returns the start, or the end, of the document of a row; of the last row's for rows from T on. bounds (B,T).
static __device__ inline int document_bound(const int* bounds, const FlashPlace& at, int row) {
    return bounds[(size_t)at.b * at.T + min(row, at.T - 1)];
}

// Loads these bounds of a block's own rows, from `first` on, into shared memory: a kernel has no registers to keep them
// in. Returns the bounds of the warp's rows, which __syncthreads() completes; NULL without documents.
template <class Shape, bool DOCUMENTS>
static __device__ inline const int* load_own_bounds(const int* bounds, const FlashPlace& at, int first) {
    if constexpr (DOCUMENTS) {
        __shared__ int own[Shape::ROWS];
        for (int i = threadIdx.x; i < Shape::ROWS; i += Shape::THREADS) {
            own[i] = document_bound(bounds, at, first + i);
        }
        return own + threadIdx.x / WARP_SIZE * Shape::WARP_ROWS;
    }
    return NULL;
}
