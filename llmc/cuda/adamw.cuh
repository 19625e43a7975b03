// AdamW (Loshchilov & Hutter 2019) for all parameters of a table in one launch, which also unscales and clips the
// gradient and rounds the masters to floatX.
#pragma once
#include "fp8.cuh"
#include "../base/rounding.h"
#include "vector.cuh"

// Ranges of the tensors of a TensorTable, as a kernel parameter. Tensors that every layer has are listed for the first.
typedef struct {
    size_t layers_begin, layers_end, layer_size;
    int count;
    struct {
        size_t begin, end;
        ParamGroup group;
    } row[MAX_TENSORS];
} AdamWTensors;

typedef struct {
    size_t end;
    ParamGroup group;
} AdamWRun;

// Returns the end of the tensor that element i belongs to, and its group. Between two tensors the end is i.
static __device__ inline AdamWRun adamw_run(const AdamWTensors& tensors, size_t i) {
    const bool in_layer = i >= tensors.layers_begin && i < tensors.layers_end;
    const size_t at = in_layer ? tensors.layers_begin + (i - tensors.layers_begin) % tensors.layer_size : i;
    AdamWRun run = {i, GROUP_VECTOR};
    for (int r = 0; r < tensors.count; r++) {
        if (at >= tensors.row[r].begin && at < tensors.row[r].end) {
            run.end = i + (tensors.row[r].end - at);
            run.group = tensors.row[r].group;
        }
    }
    return run;
}

// Values that all elements of a step share. skip: the gradient is not finite, so nothing changes.
typedef struct {
    AdamW hyper;
    float grad_scale, correct_m, correct_v;
    bool skip;
} AdamWStep;

static __device__ inline AdamWStep adamw_step(const AdamW* hyper, const double* grad_norm_squared) {
    AdamWStep step;
    step.hyper = *hyper;
    const double norm = sqrt(*grad_norm_squared) * hyper->grad_scale, clip = (double)hyper->grad_clip;
    step.skip = !isfinite(norm);
    step.grad_scale = (float)((clip > 0 && norm > clip ? clip / norm : 1.0) * hyper->grad_scale);
    step.correct_m = 1.0f / (1.0f - powf(hyper->beta1, (float)hyper->step));
    step.correct_v = 1.0f / (1.0f - powf(hyper->beta2, (float)hyper->step));
    return step;
}

// Updates elements i .. i + WIDTH - 1 of the arrays, all of one tensor. Element i is `element` in the table's layout.
template <int WIDTH>
static __device__ inline void adamw_elements(floatX* params, float* masters, float* m, float* v, const float* grads,
                                             const AdamWStep& step, ParamGroup group, size_t i, size_t element) {
    const AdamW& h = step.hyper;
    const bool stochastic = sizeof(floatX) < sizeof(float) && h.rounding_seed != 0;
    const float lr = h.lr[group], decay = h.weight_decay[group];
    float grad[WIDTH], mean[WIDTH], variance[WIDTH], master[WIDTH], param[WIDTH];
    load_floats(grad, grads + i);
    load_floats(mean, m + i);
    load_floats(variance, v + i);
    load_floats(master, masters + i);
    for (int k = 0; k < WIDTH; k++) {
        const float g = step.grad_scale * grad[k];
        mean[k] = h.beta1 * mean[k] + (1.0f - h.beta1) * g;
        variance[k] = h.beta2 * variance[k] + (1.0f - h.beta2) * g * g;
        const float direction = mean[k] * step.correct_m / (sqrtf(variance[k] * step.correct_v) + h.eps);
        master[k] -= lr * (direction + (h.cautious && direction * master[k] < 0 ? 0.0f : decay) * master[k]);
        param[k] = master[k];
        if (stochastic) {
            param[k] = rounded_at_random(master[k], h.rounding_seed, h.step, element + k);
        }
    }
    store_floats(m + i, mean);
    store_floats(v + i, variance);
    store_floats(masters + i, master);
    store_floats(params + i, param);
}

// A thread takes groups of WIDTH elements, at multiples of WIDTH. Where a tensor or the range ends inside a group, it
// takes the elements one by one. No group belongs to two tensors, because tensors begin at multiples of TENSOR_ALIGN.
template <int WIDTH>
static __global__ void adamw_update_kernel(floatX* params, float* masters, float* m, float* v, const float* grads,
                                           const double* grad_norm_squared, const AdamW* hyper,
                                           const AdamWTensors tensors, size_t begin, size_t end) {
    static_assert(TENSOR_ALIGN % WIDTH == 0, "a group of elements must not belong to two tensors");
    __shared__ AdamWStep step;
    if (threadIdx.x == 0) { step = adamw_step(hyper, grad_norm_squared); }
    __syncthreads();
    if (step.skip) { return; }
    const size_t threads = (size_t)gridDim.x * blockDim.x, thread = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (size_t at = (begin / WIDTH + thread) * WIDTH; at < end; at += threads * WIDTH) {
        const AdamWRun run = adamw_run(tensors, at);
        const size_t last = at + WIDTH < end ? at + WIDTH : end;
        if (at >= begin && at + WIDTH <= end && at + WIDTH <= run.end) {
            adamw_elements<WIDTH>(params, masters, m, v, grads, step, run.group, at - begin, at);
        } else {
            #pragma unroll 1
            for (size_t i = at < begin ? begin : at; i < last && i < run.end; i++) {
                adamw_elements<1>(params, masters, m, v, grads, step, run.group, i - begin, i);
            }
        }
    }
}

template <int WIDTH>
static __global__ void params_round_kernel(floatX* params, const float* masters, size_t n, size_t begin,
                                           Rounding rounding) {
    const size_t i = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * WIDTH;
    if (i >= n) { return; }
    float x[WIDTH];
    load_rest(x, masters + i, n - i);
    for (int k = 0; rounding.seed != 0 && k < WIDTH; k++) {
        x[k] = rounded_at_random(x[k], rounding.seed, rounding.step, begin + i + k);
    }
    store_rest(params + i, x, n - i);
}

// ---------------------------------------------------------------------------------------------------------------------
// launchers

static inline AdamWTensors adamw_tensors(const TensorTable* table) {
    AdamWTensors tensors;
    memset(&tensors, 0, sizeof tensors);
    tensors.layers_begin = tensors.layers_end = table->layers_begin;
    tensors.layer_size = table->layer_size;
    tensors.count = table->count;
    for (int i = 0; i < table->count; i++) {
        const Tensor* t = &table->row[i];
        tensors.row[i].begin = t->offset;
        tensors.row[i].end = t->offset + tensor_elements(t);
        tensors.row[i].group = tensor_group(t);
        if (t->repeat == EACH) { tensors.layers_end = table->layers_begin + (size_t)t->layers * table->layer_size; }
    }
    return tensors;
}

template <int WIDTH>
static inline void adamw_update_launch(floatX* params, float* masters, float* m, float* v, const float* grads,
                                       const double* grad_norm_squared, const AdamW* hyper, const AdamWTensors& tensors,
                                       size_t begin, size_t end) {
    const size_t most_blocks = resident_blocks<adamw_update_kernel<WIDTH>>(THREADS_IN_BLOCK, 0);
    const unsigned blocks = (unsigned)min_size(most_blocks, ceil_div(end - begin, THREADS_IN_BLOCK * WIDTH));
    adamw_update_kernel<WIDTH><<<blocks, THREADS_IN_BLOCK, 0, gpu.stream>>>(params, masters, m, v, grads,
                                                                            grad_norm_squared, hyper, tensors, begin,
                                                                            end);
}

static inline void adamw_update(floatX* params, float* masters, float* m, float* v, const float* grads,
                                const double* grad_norm_squared, const AdamW* hyper, const TensorTable* table,
                                size_t begin, size_t end) {
    constexpr int WIDE = FLOAT_WIDTH;
    if (begin >= end) { return; }
    const size_t to_group = round_up(begin, WIDE) - begin; // elements to the first whole group
    const bool wide = is_wide<WIDE>(0, params + to_group, masters + to_group, m + to_group, v + to_group,
                                    grads + to_group);
    const auto launch = wide ? adamw_update_launch<WIDE> : adamw_update_launch<1>;
    launch(params, masters, m, v, grads, grad_norm_squared, hyper, adamw_tensors(table), begin, end);
    cuda_launched("adamw_update");
}

static inline void params_round(floatX* params, const float* masters, size_t n, size_t begin, Rounding rounding) {
    constexpr int WIDE = FLOAT_WIDTH;
    if ((const void*)params == (const void*)masters) { return; }
    const bool wide = is_wide<WIDE>(0, params, masters);
    const auto kernel = wide ? params_round_kernel<WIDE> : params_round_kernel<1>;
    const unsigned blocks = blocks_for(n, THREADS_IN_BLOCK * (wide ? WIDE : 1));
    kernel<<<blocks, THREADS_IN_BLOCK, 0, gpu.stream>>>(params, masters, n, begin, rounding);
    cuda_launched("params_round");
}

static inline void params_changed(void) { fp8_weights_changed(); } // other kernels keep no packed weights
