// Token and position embeddings.
//
// Backward gathers instead of using atomic additions. Positions come sorted by token, so the positions of one token are
// a run of neighbours, and each row of dwte is one sum in a fixed order. Runs differ in length: a common token may have
// a tenth of the batch or even all of it. The sorted positions are therefore cut into pieces of equal length,
// independent of the runs. A run inside one piece is added to dwte directly. A run that spans several pieces leaves a
// partial sum in each of them, and a second kernel adds these in order (a segmented sum: Blelloch 1990, "Prefix sums
// and their applications").
//
// R is the type of the residual stream.
#pragma once
#include "column_sums.cuh"

static constexpr int ENCODER_THREADS = 64; // of a block in backward; each has a few columns
static constexpr int ENCODER_PIECE = 128;  // least length of a piece

template <int WIDTH, class R>
static __global__ void encoder_forward_kernel(R* out, const int* tokens, const floatX* wte, const floatX* wpe, size_t N,
                                              int T, int C) {
    const size_t n = (size_t)blockIdx.x * blockDim.y + threadIdx.y;
    if (n >= N) { return; }
    const floatX* token = wte + (size_t)tokens[n] * C;
    const floatX* position = wpe + n % T * C;
    for (int c = threadIdx.x * WIDTH; c < C; c += WARP_SIZE * WIDTH) {
        float x[WIDTH], y[WIDTH];
        load_floats(x, token + c);
        load_floats(y, position + c);
        for (int k = 0; k < WIDTH; k++) { x[k] += y[k]; }
        store_floats(out + n * C + c, x);
    }
}

// The positions of a batch, sorted by token.
typedef struct {
    const int *tokens, *order;
    size_t N, piece; // number of positions; length of a piece
} SortedTokens;

static __device__ inline int sorted_token(const SortedTokens& s, size_t i) { return s.tokens[s.order[i]]; }

// Returns true if sorted positions i - 1 and i belong to one run.
static __device__ inline bool run_goes_on(const SortedTokens& s, size_t i) {
    return i > 0 && i < s.N && sorted_token(s, i - 1) == sorted_token(s, i);
}

// Each piece has two partial sums of C columns: one for a run from the piece before, one for a run that begins in this
// piece and continues in the next one.
enum { RUN_FROM_BEFORE, RUN_GOES_ON, PARTIALS_OF_PIECE };

static __device__ inline float* run_partial(float* partials, size_t piece, int which, int C) {
    return partials + (piece * PARTIALS_OF_PIECE + which) * C;
}

template <int WIDTH> static __device__ inline void add_floats(float* p, const float (&x)[WIDTH]) {
    float sum[WIDTH];
    load_floats(sum, p);
    for (int k = 0; k < WIDTH; k++) { sum[k] += x[k]; }
    store_floats(p, sum);
}

// Block (p,i) sums the runs of piece p, for slice i of the columns.
template <int WIDTH, class R>
static __global__ void encoder_backward_kernel(float* dwte, float* partials, const R* dout, SortedTokens s, int C) {
    const int c = (blockIdx.y * blockDim.x + threadIdx.x) * WIDTH;
    if (c >= C) { return; }
    const size_t begin = blockIdx.x * s.piece, end = begin + s.piece < s.N ? begin + s.piece : s.N;
    bool from_before = run_goes_on(s, begin);
    float sum[WIDTH] = {0};
    for (size_t i = begin; i < end; i++) {
        float row[WIDTH];
        load_floats(row, dout + (size_t)s.order[i] * C + c);
        for (int k = 0; k < WIDTH; k++) { sum[k] += row[k]; }
        const bool goes_on = run_goes_on(s, i + 1);
        if (goes_on && i + 1 < end) { continue; }
        if (from_before) {
            store_floats(run_partial(partials, blockIdx.x, RUN_FROM_BEFORE, C) + c, sum);
        } else if (goes_on) {
            store_floats(run_partial(partials, blockIdx.x, RUN_GOES_ON, C) + c, sum);
        } else {
            add_floats(dwte + (size_t)sorted_token(s, i) * C + c, sum);
        }
        from_before = false;
        for (int k = 0; k < WIDTH; k++) { sum[k] = 0; }
    }
}

// Block (p,i) adds the partial sums of the run that begins in piece p and continues in later pieces, if there is one.
template <int WIDTH>
static __global__ void encoder_backward_runs_kernel(float* dwte, float* partials, SortedTokens s, int C) {
    const int c = (blockIdx.y * blockDim.x + threadIdx.x) * WIDTH;
    const size_t begin = blockIdx.x * s.piece, next = begin + s.piece;
    if (c >= C || !run_goes_on(s, next)) { return; }
    const int token = sorted_token(s, next);
    if (begin > 0 && sorted_token(s, begin - 1) == token) { return; } // the run began in an earlier piece
    float sum[WIDTH], more[WIDTH];
    load_floats(sum, run_partial(partials, blockIdx.x, RUN_GOES_ON, C) + c);
    for (size_t i = next; i < s.N && sorted_token(s, i) == token; i += s.piece) {
        load_floats(more, run_partial(partials, i / s.piece, RUN_FROM_BEFORE, C) + c);
        for (int k = 0; k < WIDTH; k++) { sum[k] += more[k]; }
    }
    add_floats(dwte + (size_t)token * C + c, sum);
}

// ---------------------------------------------------------------------------------------------------------------------
// launchers

template <class R>
static inline void encoder_forward(R* out, const int* tokens, const floatX* wte, const floatX* wpe, int B, int T,
                                   int C) {
    constexpr int WIDE = Pack<R>::SIZE;
    const bool wide = is_wide<WIDE>(C, out, wte, wpe);
    const auto kernel = wide ? encoder_forward_kernel<WIDE, R> : encoder_forward_kernel<1, R>;
    const size_t N = (size_t)B * T;
    const dim3 threads(WARP_SIZE, WARPS_IN_BLOCK);
    kernel<<<blocks_for(N, WARPS_IN_BLOCK), threads, 0, gpu.stream>>>(out, tokens, wte, wpe, N, T, C);
    cuda_launched("encoder_forward");
}

template <int WIDTH, class R>
static inline void encoder_backward_wte(float* dwte, const R* dout, const int* tokens, const int* order, size_t N,
                                        int C) {
    float* partials = (float*)gpu.scratch;
    const size_t most_pieces = SCRATCH_BYTES / (PARTIALS_OF_PIECE * C * sizeof(float));
    const SortedTokens s = {tokens, order, N, max_size(ENCODER_PIECE, ceil_div(N, most_pieces))};
    const dim3 blocks(blocks_for(N, s.piece), blocks_for((size_t)C, ENCODER_THREADS * WIDTH));
    encoder_backward_kernel<WIDTH><<<blocks, ENCODER_THREADS, 0, gpu.stream>>>(dwte, partials, dout, s, C);
    cuda_launched("encoder_backward");
    encoder_backward_runs_kernel<WIDTH><<<blocks, ENCODER_THREADS, 0, gpu.stream>>>(dwte, partials, s, C);
    cuda_launched("encoder_backward_runs");
}

template <class R>
static inline void encoder_backward(float* dwte, float* dwpe, const R* dout, const int* tokens, const int* order, int B,
                                    int T, int C) {
    const auto backward_wte = is_wide<FLOAT_WIDTH>(C, dwte, dout) ? encoder_backward_wte<FLOAT_WIDTH, R>
                                                                  : encoder_backward_wte<1, R>;
    backward_wte(dwte, dout, tokens, order, (size_t)B * T, C);
    add_column_sums(dwpe, dout, (size_t)B, (size_t)T * C); // dout as a matrix (B,T*C)
}
