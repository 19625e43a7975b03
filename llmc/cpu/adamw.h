// AdamW over the whole table of parameters in one sweep, with clipping and the rounding of masters to floatX in it.
#pragma once
#include "device.h"
#include "../ops.h"
#include "../rounding.h"

// Elements [begin, end) of one tensor.
static inline void adamw_range(floatX* params, float* masters, float* m, float* v, const float* grads, float grad_scale,
                               float decay, const AdamW* hyper, size_t begin, size_t end) {
    const float correct_m = 1.0f / (1.0f - powf(hyper->beta1, (float)hyper->step));
    const float correct_v = 1.0f / (1.0f - powf(hyper->beta2, (float)hyper->step));
    #pragma omp parallel for simd
    for (size_t i = begin; i < end; i++) {
        const float g = grad_scale * grads[i];
        m[i] = hyper->beta1 * m[i] + (1.0f - hyper->beta1) * g;
        v[i] = hyper->beta2 * v[i] + (1.0f - hyper->beta2) * g * g;
        const float update = m[i] * correct_m / (sqrtf(v[i] * correct_v) + hyper->eps) + decay * masters[i];
        masters[i] -= hyper->lr * update;
        params[i] = to_floatX(masters[i]);
    }
    if (sizeof(floatX) == sizeof(float) || hyper->rounding_seed == 0) { return; }
    #pragma omp parallel for
    for (size_t i = begin; i < end; i++) {
        const uint64_t random = rounding_random(hyper->rounding_seed, hyper->step, i);
        params[i] = to_floatX(round_stochastically(masters[i], random));
    }
}

OP void adamw_update(floatX* params, float* masters, float* m, float* v, const float* grads,
                     const double* grad_norm_squared, const AdamW* hyper, const TensorTable* table, size_t begin,
                     size_t end) {
    const double norm = sqrt(*grad_norm_squared);
    if (!isfinite(norm)) { return; }
    const bool clip = hyper->grad_clip > 0 && norm > (double)hyper->grad_clip;
    const float grad_scale = clip ? (float)((double)hyper->grad_clip / norm) : 1.0f;
    for (int i = 0; i < table->count; i++) {
        const Tensor* t = &table->row[i];
        for (int l = 0; l < t->layers; l++) {
            const size_t first = max_size(begin, tensor_at(t, l)),
                         last = min_size(end, tensor_at(t, l) + tensor_elements(t));
            if (first >= last) { continue; }
            adamw_range(params, masters, m, v, grads, grad_scale, tensor_decays(t) ? hyper->weight_decay : 0.0f, hyper,
                        first, last);
        }
    }
}

OP void params_round(floatX* params, const float* masters, size_t n) {
    if ((const void*)params == (const void*)masters) { return; }
    #pragma omp parallel for
    for (size_t i = 0; i < n; i++) { params[i] = to_floatX(masters[i]); }
}

OP void params_changed(void) {} // nothing is packed
