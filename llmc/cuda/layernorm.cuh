// Layer normalization (Ba et al. 2016), also fused with the residual addition before it.
//
// Forward: a warp computes a row. It caches the row in shared memory, so that global memory is read once.
//
// Backward, with norm = (inp - mean) * rstd and dnorm = dout * weight, for each row of C:
//   dinp += rstd * (dnorm - mean(dnorm) - norm * mean(dnorm * norm))
//   dweight += dout * norm, dbias += dout, summed over all rows
// A warp reads a row of up to LAYERNORM_HELD_COLUMNS once, and holds it in registers between the two means and dinp. It
// sums dweight and dbias over its rows in shared memory of its own. Longer rows are read twice by a block: in the first
// pass each warp computes the two means of a row; in the second pass each thread takes a few columns of all these rows
// and sums dweight and dbias of its columns alone. column_sums.cuh adds the partial sums of the blocks.
//
// R is the type of the residual stream: of inp and dinp. What a row becomes when it is stored is what is normalized:
// backward, which reads it again, then has the statistics of its own numbers.
#pragma once
#include "column_sums.cuh"

static constexpr float LAYERNORM_EPS = 1e-5f;
static constexpr int LAYERNORM_SHARED = 48 << 10; // bytes of shared memory that a block has by default
static constexpr int LAYERNORM_BLOCKS_PER_SM = 4; // of layernorm_backward_twice_kernel
static constexpr int LAYERNORM_HELD_WARPS = 4;    // of layernorm_backward_held_kernel; H200: 2 as fast, 8 slower
static constexpr int LAYERNORM_HELD_COLUMNS = 2048;

// CACHED: the rows fit in shared memory; else global memory is read again. The compiler must know which: it cannot tell
// where a pointer to either points, and reads it by slower generic loads. RESIDUAL: normalizes residual = inp + add.
template <int WIDTH, bool RESIDUAL, bool CACHED, class R>
static __global__ void layernorm_forward_kernel(R* residual, floatX* out, float* mean, float* rstd, const R* inp,
                                                const floatX* add, const floatX* weight, const floatX* bias, size_t N,
                                                int C) {
    extern __shared__ float4 layernorm_rows[];
    const size_t n = (size_t)blockIdx.x * blockDim.y + threadIdx.y;
    if (n >= N) { return; }
    R* cache = (R*)layernorm_rows + (size_t)threadIdx.y * C;
    const R* row = CACHED ? cache : RESIDUAL ? residual + n * C : inp + n * C;
    const int first = threadIdx.x * WIDTH, step = WARP_SIZE * WIDTH;
    float x[WIDTH], sum = 0, squares = 0;
    for (int c = first; c < C; c += step) {
        load_floats(x, inp + n * C + c);
        if (RESIDUAL) {
            float y[WIDTH];
            load_floats(y, add + n * C + c);
            for (int k = 0; k < WIDTH; k++) { x[k] = to_float(from_float<R>(x[k] + y[k])); }
            store_floats(residual + n * C + c, x);
        }
        if (CACHED) { store_floats(cache + c, x); }
        for (int k = 0; k < WIDTH; k++) { sum += x[k]; }
    }
    const float m = warp_sum(sum) / (float)C;
    for (int c = first; c < C; c += step) { // each thread reads the elements that it wrote
        load_floats(x, row + c);
        for (int k = 0; k < WIDTH; k++) { squares += (x[k] - m) * (x[k] - m); }
    }
    const float r = 1.0f / sqrtf(warp_sum(squares) / (float)C + LAYERNORM_EPS);
    for (int c = first; c < C; c += step) {
        float w[WIDTH], b[WIDTH];
        load_floats(x, row + c);
        load_floats(w, weight + c);
        load_floats(b, bias + c);
        for (int k = 0; k < WIDTH; k++) { x[k] = (x[k] - m) * r * w[k] + b[k]; }
        store_floats(out + n * C + c, x);
    }
    if (threadIdx.x == 0) {
        mean[n] = m;
        rstd[n] = r;
    }
}

// Layout of the sums of a row's columns in shared memory. A lane loads four of them at once. Where a lane has packs of
// 8 columns (WIDTH), the first four of each pack lie in the lower part of the sums and the others in the upper part, so
// that neighbouring lanes access neighbours. The parts begin 16 banks apart: 32 neighbouring columns are in 32 banks.
template <int WIDTH> static HOST_DEVICE inline int upper_sums(int C) { return WIDTH == 8 ? C / 2 / 32 * 32 + 48 : 0; }
template <int WIDTH> static HOST_DEVICE inline int sums_size(int C) {
    return WIDTH == 8 ? upper_sums<WIDTH>(C) + C / 2 : C;
}
template <int WIDTH> static HOST_DEVICE inline int sum_at(int c, int C) {
    return WIDTH == 8 ? c % 8 / 4 * upper_sums<WIDTH>(C) + c / 8 * 4 + c % 4 : c;
}
template <int WIDTH> static __device__ inline void load_sums(float (&x)[WIDTH], const float* sums, int c, int C) {
    for (int k = 0; k < WIDTH; k += 4) {
        float four[4];
        load_floats(four, sums + sum_at<WIDTH>(c + k, C));
        for (int i = 0; i < 4; i++) { x[k + i] = four[i]; }
    }
}
template <int WIDTH> static __device__ inline void store_sums(float* sums, const float (&x)[WIDTH], int c, int C) {
    for (int k = 0; k < WIDTH; k += 4) {
        const float four[4] = {x[k], x[k + 1], x[k + 2], x[k + 3]};
        store_floats(sums + sum_at<WIDTH>(c + k, C), four);
    }
}

// A lane holds VECTORS packs of a row. dweight and dbias (blocks,C) are set to the sums over the rows of each block.
// dinp_stored may be dinp. Shared memory: the sums of dweight and dbias of each warp. All of dinp is loaded before any
// is stored, since the compiler moves no load before a store (768 channels on an H200: 0.22 ms, 84% of the speed of a
// copy; with loads one pack ahead of stores 0.26). One pack ahead where a lane has too few registers for it.
template <int VECTORS, class R>
static __global__ void __launch_bounds__(LAYERNORM_HELD_WARPS* WARP_SIZE)
    layernorm_backward_held_kernel(R* dinp, floatX* dinp_stored, float* dweight, float* dbias, const floatX* dout,
                                   const R* inp, const floatX* weight, const float* mean, const float* rstd, size_t N,
                                   int C) {
    enum { WIDTH = Pack<R>::SIZE, STEP = WARP_SIZE * WIDTH, WARPS = LAYERNORM_HELD_WARPS };
    enum { LOADED = VECTORS * WIDTH <= 32 ? VECTORS : 1 }; // packs of dinp
    extern __shared__ float4 layernorm_warps[];
    const bool rounded = (const void*)dinp_stored != (const void*)dinp;
    const int first = threadIdx.x * WIDTH;
    const int size = sums_size<WIDTH>(C);
    float *sums = (float*)layernorm_warps, *dw_sum = sums + (size_t)threadIdx.y * 2 * size, *db_sum = dw_sum + size;
    const float zeros[4] = {0};
    for (int c = threadIdx.x * 4; c < 2 * size; c += WARP_SIZE * 4) { store_floats(dw_sum + c, zeros); }
    __syncwarp();
    for (size_t n = (size_t)blockIdx.x * WARPS + threadIdx.y; n < N; n += (size_t)gridDim.x * WARPS) {
        float d[VECTORS][WIDTH], x[VECTORS][WIDTH], w[WIDTH], dnorm_sum = 0, dnorm_norm_sum = 0;
        const float m = mean[n], r = rstd[n];
        #pragma unroll
        for (int i = 0; i < VECTORS; i++) {
            const int c = first + i * STEP;
            if (c >= C) { break; }
            load_floats(d[i], dout + n * C + c);
            load_floats(x[i], inp + n * C + c);
        }
        #pragma unroll
        for (int i = 0; i < VECTORS; i++) {
            const int c = first + i * STEP;
            if (c >= C) { break; }
            load_floats(w, weight + c);
            for (int k = 0; k < WIDTH; k++) {
                x[i][k] = (x[i][k] - m) * r;
                dnorm_sum += d[i][k] * w[k];
                dnorm_norm_sum += d[i][k] * w[k] * x[i][k];
            }
        }
        float old[LOADED][WIDTH] = {};
        #pragma unroll
        for (int i = 0; i < LOADED; i++) {
            if (first + i * STEP < C) { load_floats(old[i], dinp + n * C + first + i * STEP); }
        }
        const float dnorm_mean = warp_sum(dnorm_sum) / (float)C, dnorm_norm_mean = warp_sum(dnorm_norm_sum) / (float)C;
        #pragma unroll
        for (int i = 0; i < VECTORS; i++) {
            const int c = first + i * STEP;
            if (c >= C) { break; }
            float sum[WIDTH], dw[WIDTH], db[WIDTH];
            for (int k = 0; k < WIDTH; k++) { sum[k] = old[i % LOADED][k]; }
            if (LOADED == 1 && c + STEP < C) { load_floats(old[0], dinp + n * C + c + STEP); }
            load_floats(w, weight + c);
            load_sums(dw, dw_sum, c, C);
            load_sums(db, db_sum, c, C);
            for (int k = 0; k < WIDTH; k++) {
                sum[k] += r * (d[i][k] * w[k] - dnorm_mean - x[i][k] * dnorm_norm_mean);
                dw[k] += d[i][k] * x[i][k];
                db[k] += d[i][k];
            }
            store_floats(dinp + n * C + c, sum);
            if (rounded) { store_floats(dinp_stored + n * C + c, sum); }
            store_sums(dw_sum, dw, c, C);
            store_sums(db_sum, db, c, C);
        }
    }
    __syncthreads();
    for (int c = threadIdx.y * WARP_SIZE + threadIdx.x; c < C; c += WARPS * WARP_SIZE) {
        float dw = 0, db = 0;
        for (int warp = 0; warp < WARPS; warp++) {
            dw += sums[(size_t)(2 * warp) * size + sum_at<WIDTH>(c, C)];
            db += sums[(size_t)(2 * warp + 1) * size + sum_at<WIDTH>(c, C)];
        }
        dweight[(size_t)blockIdx.x * C + c] = dw;
        dbias[(size_t)blockIdx.x * C + c] = db;
    }
}

// Statistics of a row in backward.
typedef struct {
    float mean, rstd, dnorm_mean, dnorm_norm_mean;
} LayernormRow;

// Computes the two means of a row; all lanes of a warp must call it.
template <int WIDTH, class R>
static __device__ inline LayernormRow layernorm_row_means(const floatX* dout, const R* inp, const floatX* weight,
                                                          float mean, float rstd, int C) {
    float dnorm_sum = 0, dnorm_norm_sum = 0;
    for (int c = threadIdx.x * WIDTH; c < C; c += WARP_SIZE * WIDTH) {
        float d[WIDTH], x[WIDTH], w[WIDTH];
        load_floats(d, dout + c);
        load_floats(x, inp + c);
        load_floats(w, weight + c);
        for (int k = 0; k < WIDTH; k++) {
            dnorm_sum += d[k] * w[k];
            dnorm_norm_sum += d[k] * w[k] * (x[k] - mean) * rstd;
        }
    }
    const LayernormRow row = {mean, rstd, warp_sum(dnorm_sum) / (float)C, warp_sum(dnorm_norm_sum) / (float)C};
    return row;
}

// Sets dweight and dbias (blocks,C) to the sums over the rows of each block, which takes one row per warp at a time.
// dinp_stored may be dinp.
template <int WIDTH, class R>
static __global__ void layernorm_backward_twice_kernel(R* dinp, floatX* dinp_stored, float* dweight, float* dbias,
                                                       const floatX* dout, const R* inp, const floatX* weight,
                                                       const float* mean, const float* rstd, size_t N, int C) {
    __shared__ LayernormRow rows[WARPS_IN_BLOCK];
    const bool rounded = (const void*)dinp_stored != (const void*)dinp;
    const int thread = threadIdx.y * WARP_SIZE + threadIdx.x;
    const size_t first = (size_t)blockIdx.x * WARPS_IN_BLOCK, step = (size_t)gridDim.x * WARPS_IN_BLOCK;
    for (size_t begin = first; begin < N; begin += step) {
        const int count = begin + WARPS_IN_BLOCK < N ? WARPS_IN_BLOCK : (int)(N - begin);
        const size_t n = begin + threadIdx.y;
        if (n < N) {
            const LayernormRow row = layernorm_row_means<WIDTH>(dout + n * C, inp + n * C, weight, mean[n], rstd[n], C);
            if (threadIdx.x == 0) { rows[threadIdx.y] = row; }
        }
        __syncthreads();
        for (int c = thread * WIDTH; c < C; c += THREADS_IN_BLOCK * WIDTH) {
            float w[WIDTH], dw[WIDTH] = {0}, db[WIDTH] = {0};
            load_floats(w, weight + c);
            if (begin != first) {
                load_floats(dw, dweight + (size_t)blockIdx.x * C + c);
                load_floats(db, dbias + (size_t)blockIdx.x * C + c);
            }
            for (int i = 0; i < count; i++) {
                const LayernormRow row = rows[i];
                const size_t at = (begin + i) * C + c;
                float d[WIDTH], x[WIDTH], sum[WIDTH];
                load_floats(d, dout + at);
                load_floats(x, inp + at);
                load_floats(sum, dinp + at);
                for (int k = 0; k < WIDTH; k++) {
                    const float norm = (x[k] - row.mean) * row.rstd;
                    sum[k] += row.rstd * (d[k] * w[k] - row.dnorm_mean - norm * row.dnorm_norm_mean);
                    dw[k] += d[k] * norm;
                    db[k] += d[k];
                }
                store_floats(dinp + at, sum);
                if (rounded) { store_floats(dinp_stored + at, sum); }
            }
            store_floats(dweight + (size_t)blockIdx.x * C + c, dw);
            store_floats(dbias + (size_t)blockIdx.x * C + c, db);
        }
        __syncthreads(); // the next rows overwrite `rows`
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// launchers

template <int WIDTH, bool RESIDUAL, class R>
static inline void layernorm_forward_launch(R* residual, floatX* out, float* mean, float* rstd, const R* inp,
                                            const floatX* add, const floatX* weight, const floatX* bias, size_t N,
                                            int C) {
    const size_t row_bytes = (size_t)C * sizeof(R), rows = LAYERNORM_SHARED / row_bytes;
    if (rows > 0) {
        const unsigned warps = (unsigned)min_size(rows, WARPS_IN_BLOCK);
        const dim3 threads(WARP_SIZE, warps);
        layernorm_forward_kernel<WIDTH, RESIDUAL, true>
            <<<blocks_for(N, warps), threads, warps * row_bytes, gpu.stream>>>(
                residual, out, mean, rstd, inp, add, weight, bias, N, C);
    } else {
        const dim3 threads(WARP_SIZE, WARPS_IN_BLOCK);
        layernorm_forward_kernel<WIDTH, RESIDUAL, false><<<blocks_for(N, WARPS_IN_BLOCK), threads, 0, gpu.stream>>>(
            residual, out, mean, rstd, inp, add, weight, bias, N, C);
    }
}

template <class R>
static inline void layernorm_forward(floatX* out, float* mean, float* rstd, const R* inp, const floatX* weight,
                                     const floatX* bias, int N, int C) {
    constexpr int WIDE = Pack<R>::SIZE;
    const bool wide = is_wide<WIDE>(C, out, inp, weight, bias);
    const auto launch = wide ? layernorm_forward_launch<WIDE, false, R> : layernorm_forward_launch<1, false, R>;
    launch(NULL, out, mean, rstd, inp, NULL, weight, bias, N, C);
    cuda_launched("layernorm_forward");
}

template <class R>
static inline void residual_layernorm_forward(R* residual, floatX* out, float* mean, float* rstd, const R* inp1,
                                              const floatX* inp2, const floatX* weight, const floatX* bias, int N,
                                              int C) {
    constexpr int WIDE = Pack<R>::SIZE;
    const bool wide = is_wide<WIDE>(C, residual, out, inp1, inp2, weight, bias);
    const auto launch = wide ? layernorm_forward_launch<WIDE, true, R> : layernorm_forward_launch<1, true, R>;
    launch(residual, out, mean, rstd, inp1, inp2, weight, bias, N, C);
    cuda_launched("residual_layernorm_forward");
}

// Partial sums of dweight and dbias over the rows of each block, in gpu.scratch.
typedef struct {
    float *dweight, *dbias;
    size_t blocks;
} LayernormSums;

static inline LayernormSums layernorm_sums(size_t resident, size_t N, size_t rows_in_block, int C) {
    const size_t most_blocks = min_size(resident, SCRATCH_BYTES / (2 * C * sizeof(float)));
    const size_t blocks = min_size(ceil_div(N, rows_in_block), most_blocks);
    float* dweight = (float*)gpu.scratch;
    return {dweight, dweight + blocks * C, blocks};
}

template <int VECTORS, class R>
static inline LayernormSums layernorm_backward_held(R* dinp, floatX* dinp_stored, const floatX* dout, const R* inp,
                                                    const floatX* weight, const float* mean, const float* rstd, int N,
                                                    int C) {
    const auto kernel = layernorm_backward_held_kernel<VECTORS, R>;
    const dim3 threads(WARP_SIZE, LAYERNORM_HELD_WARPS);
    const size_t shared = (size_t)LAYERNORM_HELD_WARPS * 2 * sums_size<Pack<R>::SIZE>(C) * sizeof(float);
    cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared),
               "layernorm_backward");
    const size_t resident =
        resident_blocks<layernorm_backward_held_kernel<VECTORS, R>>(LAYERNORM_HELD_WARPS * WARP_SIZE, shared);
    const LayernormSums sums = layernorm_sums(resident, N, LAYERNORM_HELD_WARPS, C);
    kernel<<<(unsigned)sums.blocks, threads, shared, gpu.stream>>>(dinp, dinp_stored, sums.dweight, sums.dbias, dout,
                                                                   inp, weight, mean, rstd, N, C);
    return sums;
}

template <int WIDTH, class R>
static inline LayernormSums layernorm_backward_twice(R* dinp, floatX* dinp_stored, const floatX* dout, const R* inp,
                                                     const floatX* weight, const float* mean, const float* rstd, int N,
                                                     int C) {
    const dim3 threads(WARP_SIZE, WARPS_IN_BLOCK);
    const LayernormSums sums =
        layernorm_sums((size_t)LAYERNORM_BLOCKS_PER_SM * gpu.num_sms, N, WARPS_IN_BLOCK, C);
    layernorm_backward_twice_kernel<WIDTH><<<(unsigned)sums.blocks, threads, 0, gpu.stream>>>(
        dinp, dinp_stored, sums.dweight, sums.dbias, dout, inp, weight, mean, rstd, N, C);
    return sums;
}

template <class R>
static inline void layernorm_backward(R* dinp, floatX* dinp_stored, float* dweight, float* dbias, const floatX* dout,
                                      const R* inp, const floatX* weight, const float* mean, const float* rstd, int N,
                                      int C) {
    enum { WIDE = Pack<R>::SIZE, MOST_VECTORS = LAYERNORM_HELD_COLUMNS / (WARP_SIZE * WIDE) };
    const bool wide = is_wide<WIDE>(C, dinp, dinp_stored, dout, inp, weight);
    const auto backward = !wide                                ? layernorm_backward_twice<1, R>
                          : C > LAYERNORM_HELD_COLUMNS         ? layernorm_backward_twice<FLOAT_WIDTH, R>
                          : C > LAYERNORM_HELD_COLUMNS / 2     ? layernorm_backward_held<MOST_VECTORS, R>
                          : C > LAYERNORM_HELD_COLUMNS * 3 / 8 ? layernorm_backward_held<MOST_VECTORS / 2, R>
                                                               : layernorm_backward_held<MOST_VECTORS * 3 / 8, R>;
    const LayernormSums sums = backward(dinp, dinp_stored, dout, inp, weight, mean, rstd, N, C);
    cuda_launched("layernorm_backward");
    two_column_sums(dweight, dbias, sums.dweight, sums.dbias, (int)sums.blocks, C);
}
