// AdamW (Loshchilov & Hutter 2019) over the whole table of parameters in one sweep, which also unscales and clips the
// gradient and rounds the masters to Stored.
#pragma once
#include "device.h"
#include "packed.h"

// Updates the moments of element i and returns its new master. decay: of the tensor's group.
static inline float adamw_element(size_t i, float master, float* m, float* v, float grad, float lr, float decay,
                                  float correct_m, float correct_v, const AdamW* h) {
    m[i] = h->beta1 * m[i] + (1.0f - h->beta1) * grad;
    v[i] = h->beta2 * v[i] + (1.0f - h->beta2) * grad * grad;
    const float direction = m[i] * correct_m / (sqrtf(v[i] * correct_v) + h->eps);
    return master - lr * (direction + (h->cautious && direction * master < 0 ? 0.0f : decay) * master);
}

// Updates n elements of one tensor, the first of which is element `first` of the table's layout.
static inline void adamw_range(Stored* params, float* masters, float* m, float* v, const float* grads, float grad_scale,
                               ParamGroup group, const AdamW* hyper, size_t first, size_t n) {
    const AdamW h = *hyper;
    const float lr = h.lr[group], decay = h.weight_decay[group];
    const float correct_m = 1.0f / (1.0f - powf(h.beta1, (float)h.step));
    const float correct_v = 1.0f / (1.0f - powf(h.beta2, (float)h.step));
    if (sizeof(Stored) == sizeof(float) || h.rounding_seed == 0) {
        #pragma omp simd
        for (size_t i = 0; i < n; i++) {
            masters[i] = adamw_element(i, masters[i], m, v, grad_scale * grads[i], lr, decay, correct_m, correct_v, &h);
            params[i] = to_stored(masters[i]);
        }
        return;
    }
    #pragma omp simd
    for (size_t i = 0; i < n; i++) {
        masters[i] = adamw_element(i, masters[i], m, v, grad_scale * grads[i], lr, decay, correct_m, correct_v, &h);
        params[i] = to_stored(rounded_at_random(masters[i], h.rounding_seed, h.step, first + i));
    }
}

// Each thread updates one contiguous share of [begin, end), the same in each step, so that the share lies on the NUMA
// node of its thread (device_alloc).
static inline void adamw_update(Stored* params, float* masters, float* m, float* v, const float* grads,
                                const double* grad_norm_squared, const AdamW* hyper, const TensorTable* table,
                                size_t begin, size_t end) {
    const double norm = sqrt(*grad_norm_squared) * hyper->grad_scale;
    if (!isfinite(norm)) { return; }
    const bool clip = hyper->grad_clip > 0 && norm > (double)hyper->grad_clip;
    const float grad_scale = (float)((clip ? (double)hyper->grad_clip / norm : 1.0) * hyper->grad_scale);
    const size_t share = round_up(ceil_div(end - begin, (size_t)cpu.threads), TENSOR_ALIGN);
    #pragma omp parallel for
    for (size_t mine = begin; mine < end; mine += share) {
        for (int k = 0; k < table->count; k++) {
            const Tensor* t = &table->row[k];
            for (int l = 0; l < t->layers; l++) {
                const size_t at = tensor_at(t, l), first = max_size(mine, at), i = first - begin,
                             last = min_size(min_size(mine + share, end), at + tensor_elements(t));
                if (first < last) {
                    adamw_range(params + i, masters + i, m + i, v + i, grads + i, grad_scale,
                                tensor_group(t), hyper, first, last - first);
                }
            }
        }
    }
}

static inline void params_round(Stored* params, const float* masters, size_t n, size_t begin, Rounding rounding) {
    if ((const void*)params == (const void*)masters) { return; }
    if (rounding.seed == 0) {
        #pragma omp parallel for simd
        for (size_t i = 0; i < n; i++) { params[i] = to_stored(masters[i]); }
        return;
    }
    #pragma omp parallel for simd
    for (size_t i = 0; i < n; i++) {
        params[i] = to_stored(rounded_at_random(masters[i], rounding.seed, rounding.step, begin + i));
    }
}

static inline void params_changed(void) { packed_weights_expire(); }
