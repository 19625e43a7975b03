#include "weights.h"
#include "../base/file.h"
#include "../files/checkpoint.h"
#include "../files/model_file.h"
#include "../base/rng.h"

const char* init_folder(const Config* c) { return strcmp(c->init, "random") ? c->init : NULL; }

// Draws one layer's tensor: n elements.
static void draw_tensor(float* to, const Tensor* t, size_t n, float std, uint64_t seed, uint64_t stream) {
    const bool is_normal = t->init != INIT_ZERO && t->init != INIT_ONE && std > 0; // no -0
    #pragma omp parallel for
    for (size_t j = 0; j < n; j++) {
        to[j] = is_normal ? std * rng_normal(seed, stream, j) : t->init == INIT_ONE ? 1.0f : 0.0f;
    }
}

void init_weights(GPT2* g, Optimizer* o, const Plan* p) {
    float* masters = o ? optimizer_in_host(o, o->masters) : NULL;
    float* buffer = alloc_or_die(masters ? 0 : tensors_largest(&g->params_table), sizeof *buffer, "initial weights");
    // 2L additions to the stream (Radford et al. 2019); zero: blocks begin as the identity
    const double residual = p->zero_init_out ? 0 : 0.02 / sqrt(2.0 * g->config.num_layers);
    for (int i = 0; i < g->params_table.count; i++) {
        const Tensor* t = &g->params_table.row[i];
        const float std = (float)(t->init == INIT_RESIDUAL ? residual : 0.02);
        const size_t n = t->used_rows * t->cols;
        for (int l = 0; l < t->layers; l++) {
            const uint64_t stream = RNG_INIT + ((uint64_t)(i + 1) << 32) + ((uint64_t)l << 8);
            float* to = masters ? masters + tensor_at(t, l) : buffer;
            draw_tensor(to, t, n, std, p->seed, stream);
            if (!o) { gpt2_put(g, tensor_at(t, l), to, n); }
            else if (!masters) { optimizer_put(o, o->masters, tensor_at(t, l), to, n); }
        }
    }
    free(buffer);
    if (o) { optimizer_masters_changed(o); }
    else { g->backend->params_changed(); }
}

json_t* folder_state(const char* folder) {
    Error err;
    const bool is_checkpoint = folder && folder_has(folder, "state.json") && folder_has(folder, CHECKPOINT_SUMS);
    json_t* state = is_checkpoint ? checkpoint_read_state(folder, &err) : NULL;
    if (is_checkpoint && !state) { fatal("%s", err.text); }
    return state;
}

void load_weights(GPT2* g, Optimizer* o, const Plan* p) {
    Error err;
    const char* folder = p->weights;
    if (!folder) {
        init_weights(g, o, p);
        return;
    }
    const int lock = is_directory(folder) ? checkpoint_hold(folder) : -1; // its run may go on
    json_t* state = folder_state(folder);
    if (state && (!checkpoint_verify_file(folder, "config.json", state, &err) ||
                  !checkpoint_verify_file(folder, "model.safetensors", state, &err))) {
        fatal("%s", err.text);
    }
    json_decref(state);
    if (!model_file_load(g, o, folder, &err)) { fatal("%s", err.text); }
    if (lock >= 0) { close(lock); }
}
