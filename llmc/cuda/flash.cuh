// Causal attention in tiles (Dao et al. 2022, FlashAttention; Dao 2023, FlashAttention-2). A block has its own rows, 16
// or 32 per warp (flash_block.cuh). It streams the rows that these attend to, or that attend to these, through shared
// memory: one tile is copied asynchronously while the tile before is computed (double buffering). Scores exist in
// registers only.
//
// Forward: own rows are queries; keys and values are streamed; the softmax is online (Milakov & Gimelshein 2018).
// Backward recomputes the probabilities from the log-sum-exp, in two kernels. For dk and dv own rows are keys and
// queries are streamed; for dq own rows are queries and keys are streamed. So one thread makes each sum, in a fixed
// order. This costs 7 matmuls; one kernel that adds in global memory would need 5 (dev/attention.md says why not).
//
// With DOCUMENTS a query attends to the keys from the beginning of its own document on (Backend.document_bounds). Tiles
// without such keys, or queries, are not loaded. The bounds never fall along a sequence, so those of a block's or a
// warp's first and last rows are enough to skip. Kernels without documents are other instances, which lose nothing.
//
// In 16 bits p is rounded before it multiplies the values, and out is divided by the sum of the rounded p, so that its
// weights of the values sum to 1. The log-sum-exp is of p before rounding (cpu/attention_flash.h says why). A column of
// ones beside the values makes the sum of the rounded p: one mma more for every HD/4 of a tile, where adding up would
// take two or three instructions for each p.
//
// Scores are scaled by 1/sqrt(HS). Exponentials are powers of two, with scale_log2 = log2(e)/sqrt(HS).
#pragma once
#include "flash_block.cuh"
#include "vector.cuh"

// ---------------------------------------------------------------------------------------------------------------------
// forward

// Turns the scores of 8N more keys into exp(score - max); masked scores are -INFINITY. A lane has two rows. `maxima`
// has their highest scores so far, the last odd column of `out` the lane's part of the sum of the exponentials. If a
// maximum has grown, rescales the row of `out`, sums included. The first tile of a row must have a key that is not
// masked, unless the maxima are finite.
template <int N, int COLUMNS>
static __device__ inline void online_softmax(float (&scores)[N][4], float (&maxima)[2], float (&out)[COLUMNS][4],
                                             float scale_log2) {
    #pragma unroll
    for (int r = 0; r < 2; r++) {
        float max = maxima[r];
        #pragma unroll
        for (int n = 0; n < N; n++) { max = fmaxf(max, fmaxf(scores[n][2 * r], scores[n][2 * r + 1])); }
        max = fmaxf(max, __shfl_xor_sync(~0u, max, 1));
        max = fmaxf(max, __shfl_xor_sync(~0u, max, 2));
        const float shrink = exp2_approx((maxima[r] - max) * scale_log2), offset = max * scale_log2;
        maxima[r] = max;
        #pragma unroll
        for (int n = 0; n < COLUMNS; n++) {
            out[n][2 * r] *= shrink;
            out[n][2 * r + 1] *= shrink;
        }
        #pragma unroll
        for (int n = 0; n < N; n++) {
            #pragma unroll
            for (int i = 2 * r; i < 2 * r + 2; i++) {
                scores[n][i] = exp2_approx(fmaf(scores[n][i], scale_log2, -offset));
                out[COLUMNS - 1][2 * r + 1] += scores[n][i];
            }
        }
    }
}

// Hides other documents: sets the scores of the warp's rows with columns first .. first+8N-1 to -INFINITY, if these are
// keys before the start of the row's document (STARTS) or queries from its end on (ENDS). warp_bounds: of
// load_own_bounds().
enum Bounds { STARTS, ENDS };

template <Bounds BOUNDS, int N, int GROUPS>
static __device__ inline void hide_documents(float (&scores)[GROUPS][N][4], const int* warp_bounds, int first) {
    #pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        #pragma unroll
        for (int i = 0; i < 4; i++) {
            const int bound = warp_bounds[g * 16 + acc_row(i)];
            #pragma unroll
            for (int n = 0; n < N; n++) {
                const int column = first + acc_column(n, i);
                if (BOUNDS == STARTS ? column < bound : column >= bound) { scores[g][n][i] = -INFINITY; }
            }
        }
    }
}

template <class Type, int HD, int VARIANT, bool DOCUMENTS, bool REST>
static __global__ void __launch_bounds__(Flash<FLASH_FORWARD, Type, HD, VARIANT>::THREADS,
                                         Flash<FLASH_FORWARD, Type, HD, VARIANT>::BLOCKS)
    flash_forward_kernel(Type* out, Type* rest, float* lse, const Type* qkv, const int* starts, float scale_log2,
                         int T, int NH, int HS) {
    typedef Flash<FLASH_FORWARD, Type, HD, VARIANT> Shape;
    enum { QUERIES = Shape::ROWS, KEYS = Shape::STREAM, PITCH = Shape::PITCH, GROUPS = Shape::GROUPS };
    extern __shared__ int4 flash_memory[];
    Type* own = (Type*)flash_memory;
    Type* stream = own + Shape::stream_begin() * PITCH; // two stages of keys and values
    const FlashPlace at = flash_place(QUERIES, T, HS, NH);
    const Type *q = qkv + at.qkv(), *k = q + at.C(), *v = k + at.C();
    // the last queries have the most keys: their blocks start first
    const int first = ((T + QUERIES - 1) / QUERIES - 1 - at.tile) * QUERIES;
    const int warp_first = first + threadIdx.x / WARP_SIZE * Shape::WARP_ROWS;
    Type* warp_own = own + threadIdx.x / WARP_SIZE * Shape::WARP_ROWS * PITCH;
    const int* warp_starts = load_own_bounds<Shape, DOCUMENTS>(starts, at, first);
    const int first_tile = DOCUMENTS ? document_bound(starts, at, first) / KEYS : 0;
    const int tiles = (min(first + QUERIES, T) + KEYS - 1) / KEYS;
    const auto begin_load = [&](int j) {
        Type* rows = stream + (j & 1) * 2 * KEYS * PITCH;
        tile_load<HD, KEYS, Shape::THREADS>(rows, k, at.stride(), j * KEYS, T, HS);
        tile_load<HD, KEYS, Shape::THREADS>(rows + KEYS * PITCH, v, at.stride(), j * KEYS, T, HS);
        cp_async_commit();
    };

    WarpRows<Type, HD> queries[GROUPS];
    if (Shape::reuses()) {
        load_own_rows<Shape>(queries, own, q, at.stride(), first, T, HS);
        begin_load(first_tile);
    } else {
        tile_load<HD, QUERIES, Shape::THREADS>(own, q, at.stride(), first, T, HS);
        cp_async_commit();
        begin_load(first_tile);
        cp_async_wait<1>();
        __syncthreads();
        #pragma unroll
        for (int g = 0; g < GROUPS; g++) { queries[g].load(warp_own + g * 16 * PITCH); }
    }
    float acc[GROUPS][HD / 8 + 1][4] = {}; // its last even columns: sums of the rounded p; odd ones: sums of p itself
    float maxima[GROUPS][2];
    #pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        // finite with documents: a row's first tile may hide all of its keys
        maxima[g][0] = maxima[g][1] = DOCUMENTS ? -FLT_MAX : -INFINITY;
    }
    for (int j = first_tile; j < tiles; j++) {
        cp_async_wait<0>();
        __syncthreads(); // tile j is here for all threads, and none reads tile j-1 any more
        if (j + 1 < tiles) { begin_load(j + 1); }
        if (j * KEYS >= warp_first + Shape::WARP_ROWS) { continue; } // all of these keys are masked
        if (DOCUMENTS && (j + 1) * KEYS <= warp_starts[0]) { continue; } // likewise
        const Type *keys = stream + (j & 1) * 2 * KEYS * PITCH, *values = keys + KEYS * PITCH;
        float p[GROUPS][KEYS / 8][4] = {};
        tile_scores(p, queries, keys);
        if (DOCUMENTS && j * KEYS < warp_starts[Shape::WARP_ROWS - 1]) {
            hide_documents<STARTS>(p, warp_starts, j * KEYS);
        }
        #pragma unroll
        for (int g = 0; g < GROUPS; g++) {
            const int group_first = warp_first + g * 16;
            if ((j + 1) * KEYS > group_first + 1) {
                #pragma unroll
                for (int n = 0; n < KEYS / 8; n++) {
                    #pragma unroll
                    for (int i = 0; i < 4; i++) {
                        if (j * KEYS + acc_column(n, i) > group_first + acc_row(i)) { p[g][n][i] = -INFINITY; }
                    }
                }
            }
            online_softmax(p[g], maxima[g], acc[g], scale_log2);
        }
        #pragma unroll
        for (int n = 0; n < KEYS / 8; n += 2) { tile_weighted_sum<HD>(acc, p, n, values + n * 8 * PITCH); }
    }

    if (Shape::reuses()) { __syncthreads(); } // all warps have read the tiles that tile_store() overwrites
    #pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        float factor[2];
        #pragma unroll
        for (int r = 0; r < 2; r++) {
            float sum = acc[g][HD / 8][2 * r + 1];
            sum += __shfl_xor_sync(~0u, sum, 1);
            sum += __shfl_xor_sync(~0u, sum, 2);
            factor[r] = 1.0f / (sizeof(Type) == 2 ? acc[g][HD / 8][2 * r] : sum);
            const int row = warp_first + g * 16 + acc_row(2 * r);
            const float max = maxima[g][r] * scale_log2 / LOG2_E;
            if (warp_lane() % 4 == 0 && row < T) { lse[at.lse() + row] = max + logf(sum); }
        }
        Type* group_own = warp_own + g * 16 * PITCH;
        tile_store<HD>(out + at.out(), at.C(), warp_first + g * 16, T, HS, acc[g], factor, group_own);
        if constexpr (REST) {
            take_rest<Type>(acc[g], factor);
            tile_store<HD>(rest + at.out(), at.C(), warp_first + g * 16, T, HS, acc[g], {1.0f, 1.0f}, group_own);
        }
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// backward, by the formulas of attention.cuh; ds is scaled at the end. Rows from T on are zeros in q, k, v and dout, so
// they add zeros to all sums. A group of rows is computed in chunks of 16 by 16 scores. Chunks on the diagonal need a
// mask, and with two groups also those beside it.

// Computes dk and dv: own rows are keys. The matmuls are transposed: an accumulator has a key in each row and a query
// in each column.
template <class Type, int HD, int VARIANT, bool DOCUMENTS>
static __global__ void __launch_bounds__(Flash<FLASH_KEYS, Type, HD, VARIANT>::THREADS,
                                         Flash<FLASH_KEYS, Type, HD, VARIANT>::BLOCKS)
    flash_backward_keys_kernel(Type* dqkv, const Type* dout, const float* lse, const float* delta, const Type* qkv,
                               const int* ends, float scale, int T, int NH, int HS) {
    typedef Flash<FLASH_KEYS, Type, HD, VARIANT> Shape;
    enum { KEYS = Shape::ROWS, QUERIES = Shape::STREAM, PITCH = Shape::PITCH, GROUPS = Shape::GROUPS };
    extern __shared__ int4 flash_memory[];
    Type* own = (Type*)flash_memory;                    // keys and values
    Type* stream = own + Shape::stream_begin() * PITCH; // two stages of q and dout
    float* statistics = (float*)(stream + Shape::stream_rows() * PITCH); // two stages of lse and delta
    const FlashPlace at = flash_place(KEYS, T, HS, NH);
    const Type *q = qkv + at.qkv(), *k = q + at.C(), *v = k + at.C(), *d = dout + at.out();
    const int first = at.tile * KEYS; // the first keys have the most queries: their blocks start first
    const int warp_first = first + threadIdx.x / WARP_SIZE * Shape::WARP_ROWS;
    Type* warp_own = own + threadIdx.x / WARP_SIZE * Shape::WARP_ROWS * PITCH;
    const int* warp_ends = load_own_bounds<Shape, DOCUMENTS>(ends, at, first);
    const int end = DOCUMENTS ? document_bound(ends, at, first + KEYS - 1) : T;
    const int tiles = (end + QUERIES - 1) / QUERIES, first_tile = first / QUERIES;
    const auto begin_load = [&](int j) {
        Type* rows = stream + (j & 1) * 2 * QUERIES * PITCH;
        tile_load<HD, QUERIES, Shape::THREADS>(rows, q, at.stride(), j * QUERIES, T, HS);
        tile_load<HD, QUERIES, Shape::THREADS>(rows + QUERIES * PITCH, d, at.C(), j * QUERIES, T, HS);
        static_assert(2 * QUERIES <= Shape::THREADS, "too long a tile");
        const unsigned i = threadIdx.x;
        const int row = j * QUERIES + i % QUERIES;
        if (i < 2 * QUERIES) {
            cp_async_4(statistics + (j & 1) * 2 * QUERIES + i, (i < QUERIES ? lse : delta) + at.lse() + row, row < T);
        }
        cp_async_commit();
    };

    WarpRows<Type, HD> keys[GROUPS], values[GROUPS];
    load_own_pairs<Shape>(keys, values, own, k, at.stride(), v, at.stride(), first, T, HS,
                          [&] { begin_load(first_tile); });

    const float scale_log2 = scale * LOG2_E;
    float dk[GROUPS][HD / 8][4] = {}, dv[GROUPS][HD / 8][4] = {};
    for (int j = first_tile; j < tiles; j++) {
        cp_async_wait<0>();
        __syncthreads(); // tile j is here for all threads, and none reads tile j-1 any more
        if (j + 1 < tiles) { begin_load(j + 1); }
        for (int chunk = 0; chunk < QUERIES; chunk += 16) {
            const int query = j * QUERIES + chunk;
            if (query < warp_first) { continue; } // all of the warp's keys are masked
            if (DOCUMENTS && query >= warp_ends[Shape::WARP_ROWS - 1]) { break; } // so are further queries
            const Type* queries = stream + ((j & 1) * 2 * QUERIES + chunk) * PITCH;
            const Type* douts = queries + QUERIES * PITCH;
            const float *lses = statistics + (j & 1) * 2 * QUERIES + chunk, *deltas = lses + QUERIES;
            float p[GROUPS][2][4] = {}, ds[GROUPS][2][4] = {};
            tile_scores(p, keys, queries);
            if (DOCUMENTS && query + 16 > warp_ends[0]) { hide_documents<ENDS>(p, warp_ends, query); }
            tile_scores(ds, values, douts);
            #pragma unroll
            for (int g = 0; g < GROUPS; g++) {
                const int group_first = warp_first + g * 16;
                #pragma unroll
                for (int n = 0; n < 2; n++) {
                    #pragma unroll
                    for (int i = 0; i < 4; i++) {
                        const int column = acc_column(n, i);
                        float x = exp2_approx(p[g][n][i] * scale_log2 - lses[column] * LOG2_E);
                        if (query <= group_first && query + column < group_first + acc_row(i)) { x = 0; }
                        p[g][n][i] = x;
                        ds[g][n][i] = x * (ds[g][n][i] - deltas[column]);
                    }
                }
            }
            tile_weighted_sum<HD>(dv, p, 0, douts);
            tile_weighted_sum<HD>(dk, ds, 0, queries);
        }
    }
    if (Shape::reuses()) { __syncthreads(); } // as in forward
    Type* head = dqkv + at.qkv();
    #pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        const int group_first = warp_first + g * 16;
        Type* group_own = warp_own + g * 16 * PITCH;
        tile_store<HD>(head + at.C(), at.stride(), group_first, T, HS, dk[g], {scale, scale}, group_own);
        tile_store<HD>(head + 2 * at.C(), at.stride(), group_first, T, HS, dv[g], {1.0f, 1.0f}, group_own);
    }
}

// Computes delta (B,NH,T) = the sum over a head's row of dout * (out + rest), for the warp's rows. rest may be NULL.
// Eight lanes share a row.
template <class Type, int HD, int ROWS>
static __device__ inline void flash_delta(float* delta, const Type* dout, const Type* out, const Type* rest,
                                          const FlashPlace& at, int first) {
    enum { PACK = Pack<Type>::SIZE, LANES = 8 };
    #pragma unroll
    for (int i = 0; i < ROWS; i += WARP_SIZE / LANES) {
        const int row = first + i + warp_lane() / LANES;
        const size_t head = at.out() + (size_t)row * at.C();
        float sum = 0;
        for (int c = warp_lane() % LANES * PACK; c < HD; c += LANES * PACK) {
            if (row >= at.T || c >= at.HS) { break; }
            const Pack<Type> d = load_pack(dout + head + c), o = load_pack(out + head + c);
            #pragma unroll
            for (int k = 0; k < PACK; k++) { sum += to_float(d.x[k]) * to_float(o.x[k]); }
            if (!rest) { continue; }
            const Pack<Type> r = load_pack(rest + head + c);
            #pragma unroll
            for (int k = 0; k < PACK; k++) { sum += to_float(d.x[k]) * to_float(r.x[k]); }
        }
        #pragma unroll
        for (int lanes = LANES / 2; lanes > 0; lanes /= 2) { sum += __shfl_xor_sync(~0u, sum, lanes); }
        if (warp_lane() % LANES == 0 && row < at.T) { delta[at.lse() + row] = sum; }
    }
    __syncwarp();
}

// Computes dq, and delta for this kernel and the one of dk and dv: own rows are queries.
template <class Type, int HD, int VARIANT, bool DOCUMENTS>
static __global__ void __launch_bounds__(Flash<FLASH_QUERIES, Type, HD, VARIANT>::THREADS,
                                         Flash<FLASH_QUERIES, Type, HD, VARIANT>::BLOCKS)
    flash_backward_queries_kernel(Type* dqkv, float* delta, const Type* dout, const Type* out, const Type* rest,
                                  const float* lse, const Type* qkv, const int* starts, float scale, int T, int NH,
                                  int HS) {
    typedef Flash<FLASH_QUERIES, Type, HD, VARIANT> Shape;
    enum { QUERIES = Shape::ROWS, KEYS = Shape::STREAM, PITCH = Shape::PITCH, GROUPS = Shape::GROUPS };
    extern __shared__ int4 flash_memory[];
    Type* own = (Type*)flash_memory;                    // q and dout
    Type* stream = own + Shape::stream_begin() * PITCH; // two stages of keys and values
    const FlashPlace at = flash_place(QUERIES, T, HS, NH);
    const Type *q = qkv + at.qkv(), *k = q + at.C(), *v = k + at.C(), *d = dout + at.out();
    const int first = ((T + QUERIES - 1) / QUERIES - 1 - at.tile) * QUERIES; // as in forward
    const int warp_first = first + threadIdx.x / WARP_SIZE * Shape::WARP_ROWS;
    Type* warp_own = own + threadIdx.x / WARP_SIZE * Shape::WARP_ROWS * PITCH;
    const int* warp_starts = load_own_bounds<Shape, DOCUMENTS>(starts, at, first);
    const int first_tile = DOCUMENTS ? document_bound(starts, at, first) / KEYS : 0;
    const int tiles = (min(first + QUERIES, T) + KEYS - 1) / KEYS;
    const auto begin_load = [&](int j) {
        Type* rows = stream + (j & 1) * 2 * KEYS * PITCH;
        tile_load<HD, KEYS, Shape::THREADS>(rows, k, at.stride(), j * KEYS, T, HS);
        tile_load<HD, KEYS, Shape::THREADS>(rows + KEYS * PITCH, v, at.stride(), j * KEYS, T, HS);
        cp_async_commit();
    };

    WarpRows<Type, HD> queries[GROUPS], douts[GROUPS];
    load_own_pairs<Shape>(queries, douts, own, q, at.stride(), d, at.C(), first, T, HS,
                          [&] { begin_load(first_tile); });
    flash_delta<Type, HD, Shape::WARP_ROWS>(delta, dout, out, rest, at, warp_first); // while tiles arrive
    float row_lse[GROUPS][2], row_delta[GROUPS][2];
    #pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        #pragma unroll
        for (int r = 0; r < 2; r++) {
            const int row = warp_first + g * 16 + acc_row(2 * r);
            row_lse[g][r] = row < T ? lse[at.lse() + row] : 0.0f;
            row_delta[g][r] = row < T ? delta[at.lse() + row] : 0.0f;
        }
    }

    const float scale_log2 = scale * LOG2_E;
    float dq[GROUPS][HD / 8][4] = {};
    for (int j = first_tile; j < tiles; j++) {
        cp_async_wait<0>();
        __syncthreads(); // tile j is here for all threads, and none reads tile j-1 any more
        if (j + 1 < tiles) { begin_load(j + 1); }
        for (int chunk = 0; chunk < KEYS; chunk += 16) {
            const int key = j * KEYS + chunk;
            if (key >= warp_first + Shape::WARP_ROWS) { break; } // all further keys are masked
            if (DOCUMENTS && key + 16 <= warp_starts[0]) { continue; } // so are these
            const Type* keys = stream + ((j & 1) * 2 * KEYS + chunk) * PITCH;
            float p[GROUPS][2][4] = {}, ds[GROUPS][2][4] = {};
            tile_scores(p, queries, keys);
            if (DOCUMENTS && key < warp_starts[Shape::WARP_ROWS - 1]) { hide_documents<STARTS>(p, warp_starts, key); }
            tile_scores(ds, douts, keys + KEYS * PITCH);
            #pragma unroll
            for (int g = 0; g < GROUPS; g++) {
                const int group_first = warp_first + g * 16;
                #pragma unroll
                for (int n = 0; n < 2; n++) {
                    #pragma unroll
                    for (int i = 0; i < 4; i++) {
                        float x = exp2_approx(p[g][n][i] * scale_log2 - row_lse[g][i / 2] * LOG2_E);
                        if (key >= group_first && key + acc_column(n, i) > group_first + acc_row(i)) { x = 0; }
                        ds[g][n][i] = x * (ds[g][n][i] - row_delta[g][i / 2]);
                    }
                }
            }
            tile_weighted_sum<HD>(dq, ds, 0, keys);
        }
    }
    if (Shape::reuses()) { __syncthreads(); } // as in forward
    #pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        tile_store<HD>(dqkv + at.qkv(), at.stride(), warp_first + g * 16, T, HS, dq[g], {scale, scale},
                       warp_own + g * 16 * PITCH);
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// launchers

// Returns the number of blocks. tile_load() computes offsets within a sequence in 32 bits.
static inline unsigned flash_blocks(int rows, int B, int T, int C, int NH) {
    if ((size_t)T * 3 * C > UINT32_MAX) {
        fatal("attention in tiles: queries, keys and values of %d tokens are more than 2^32 elements: give a smaller "
              "--seq_len, or --attention plain",
              T);
    }
    return (unsigned)(ceil_div(T, rows) * B * NH);
}

// Lets a kernel use more than the 48 KB of shared memory that every kernel may.
template <class Kernel> static inline void flash_allow_shared(Kernel kernel, int bytes) {
    cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), "shared memory");
}

// A launcher calls itself until VARIANT is the chosen one, or the last that this head size has, and then with DOCUMENTS
// if there are any. With REST, forward's first variant runs: others would spill registers.
template <int HD, int VARIANT = 0, bool DOCUMENTS = false, bool REST = false, class Type>
static inline void flash_forward(Type* out, Type* rest, float* lse, const Type* qkv, const int* starts, int B, int T,
                                 int C, int NH) {
    if constexpr (!DOCUMENTS && !REST && flash_tiling(FLASH_FORWARD, sizeof(Type), HD, VARIANT + 1).warps > 0) {
        if (gpu.flash_variant[FLASH_FORWARD] > VARIANT && !rest) {
            flash_forward<HD, VARIANT + 1>(out, rest, lse, qkv, starts, B, T, C, NH);
            return;
        }
    }
    if constexpr (!DOCUMENTS) {
        if (starts) {
            constexpr int MASKED = flash_masked_variant(FLASH_FORWARD, HD, VARIANT);
            flash_forward<HD, MASKED, true>(out, rest, lse, qkv, starts, B, T, C, NH);
            return;
        }
    }
    if constexpr (!REST && VARIANT == 0) {
        if (rest) {
            flash_forward<HD, VARIANT, DOCUMENTS, true>(out, rest, lse, qkv, starts, B, T, C, NH);
            return;
        }
    }
    typedef Flash<FLASH_FORWARD, Type, HD, VARIANT> Shape;
    const unsigned blocks = flash_blocks(Shape::ROWS, B, T, C, NH);
    flash_allow_shared(flash_forward_kernel<Type, HD, VARIANT, DOCUMENTS, REST>, Shape::bytes());
    flash_forward_kernel<Type, HD, VARIANT, DOCUMENTS, REST><<<blocks, Shape::THREADS, Shape::bytes(), gpu.stream>>>(
        out, rest, lse, qkv, starts, LOG2_E / sqrtf((float)(C / NH)), T, NH, C / NH);
    cuda_launched("flash_forward");
}

template <int HD, int VARIANT = 0, bool DOCUMENTS = false, class Type>
static inline void flash_backward_keys(Type* dqkv, const Type* dout, const float* lse, const float* delta,
                                       const Type* qkv, const int* ends, int B, int T, int C, int NH) {
    if constexpr (flash_tiling(FLASH_KEYS, sizeof(Type), HD, VARIANT + 1).warps > 0) {
        if (gpu.flash_variant[FLASH_KEYS] > VARIANT) {
            flash_backward_keys<HD, VARIANT + 1>(dqkv, dout, lse, delta, qkv, ends, B, T, C, NH);
            return;
        }
    }
    if constexpr (!DOCUMENTS) {
        if (ends) {
            flash_backward_keys<HD, VARIANT, true>(dqkv, dout, lse, delta, qkv, ends, B, T, C, NH);
            return;
        }
    }
    typedef Flash<FLASH_KEYS, Type, HD, VARIANT> Shape;
    const unsigned blocks = flash_blocks(Shape::ROWS, B, T, C, NH);
    flash_allow_shared(flash_backward_keys_kernel<Type, HD, VARIANT, DOCUMENTS>, Shape::bytes());
    flash_backward_keys_kernel<Type, HD, VARIANT, DOCUMENTS><<<blocks, Shape::THREADS, Shape::bytes(), gpu.stream>>>(
        dqkv, dout, lse, delta, qkv, ends, 1.0f / sqrtf((float)(C / NH)), T, NH, C / NH);
    cuda_launched("flash_backward_keys");
}

template <int HD, int VARIANT = 0, bool DOCUMENTS = false, class Type>
static inline void flash_backward_queries(Type* dqkv, float* delta, const Type* dout, const Type* out,
                                          const Type* rest, const float* lse, const Type* qkv, const int* starts,
                                          int B, int T, int C, int NH) {
    if constexpr (flash_tiling(FLASH_QUERIES, sizeof(Type), HD, VARIANT + 1).warps > 0) {
        if (gpu.flash_variant[FLASH_QUERIES] > VARIANT) {
            flash_backward_queries<HD, VARIANT + 1>(dqkv, delta, dout, out, rest, lse, qkv, starts, B, T, C, NH);
            return;
        }
    }
    if constexpr (!DOCUMENTS) {
        if (starts) {
            flash_backward_queries<HD, VARIANT, true>(dqkv, delta, dout, out, rest, lse, qkv, starts, B, T, C, NH);
            return;
        }
    }
    typedef Flash<FLASH_QUERIES, Type, HD, VARIANT> Shape;
    const unsigned blocks = flash_blocks(Shape::ROWS, B, T, C, NH);
    flash_allow_shared(flash_backward_queries_kernel<Type, HD, VARIANT, DOCUMENTS>, Shape::bytes());
    flash_backward_queries_kernel<Type, HD, VARIANT, DOCUMENTS><<<blocks, Shape::THREADS, Shape::bytes(), gpu.stream>>>(
        dqkv, delta, dout, out, rest, lse, qkv, starts, 1.0f / sqrtf((float)(C / NH)), T, NH, C / NH);
    cuda_launched("flash_backward_queries");
}

template <int HD, class Type>
static inline void flash_backward(Type* dqkv, float* delta, const Type* dout, const Type* out, const Type* rest,
                                  const float* lse, const Type* qkv, const int* starts, const int* ends, int B, int T,
                                  int C, int NH) {
    if (gpu.alone != CHOICE_FLASH_KEYS) {
        flash_backward_queries<HD>(dqkv, delta, dout, out, rest, lse, qkv, starts, B, T, C, NH);
    }
    if (gpu.alone != CHOICE_FLASH_QUERIES) {
        flash_backward_keys<HD>(dqkv, dout, lse, delta, qkv, ends, B, T, C, NH);
    }
}

// Returns true if the kernels take these activations: their rows must consist of whole 128-bit accesses.
static inline bool flash_supports(const floatX* activations, int HS) {
    return HS % 8 == 0 && HS <= flash_max_head_size() && is_wide<FLOATX_WIDTH>(HS, activations);
}

// Kernels are compiled for four head sizes. The smallest one that is large enough runs.
static inline void flash_forward_sized(floatX* out, floatX* rest, float* lse, const floatX* qkv, const int* starts,
                                       int B, int T, int C, int NH) {
    switch (ceil_div(C / NH, 32)) {
    case 1: flash_forward<32>(out, rest, lse, qkv, starts, B, T, C, NH); break;
    case 2: flash_forward<64>(out, rest, lse, qkv, starts, B, T, C, NH); break;
    case 3: flash_forward<96>(out, rest, lse, qkv, starts, B, T, C, NH); break;
    default: flash_forward<128>(out, rest, lse, qkv, starts, B, T, C, NH); break;
    }
}

static inline void flash_backward_sized(floatX* dqkv, float* delta, const floatX* dout, const floatX* out,
                                        const floatX* rest, const float* lse, const floatX* qkv, const int* starts,
                                        const int* ends, int B, int T, int C, int NH) {
    switch (ceil_div(C / NH, 32)) {
    case 1: flash_backward<32>(dqkv, delta, dout, out, rest, lse, qkv, starts, ends, B, T, C, NH); break;
    case 2: flash_backward<64>(dqkv, delta, dout, out, rest, lse, qkv, starts, ends, B, T, C, NH); break;
    case 3: flash_backward<96>(dqkv, delta, dout, out, rest, lse, qkv, starts, ends, B, T, C, NH); break;
    default: flash_backward<128>(dqkv, delta, dout, out, rest, lse, qkv, starts, ends, B, T, C, NH); break;
    }
}
