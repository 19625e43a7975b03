#include "histograms.h"
#include "../model/stored.h"

enum { PIECE = 1 << 20 }; // elements that are fetched at a time: at most 4 MiB of host memory (chosen, not measured)

// Adds the elements of a tensor in device memory, divided by `scale`, in pieces.
static void add_tensor(Histogram* h, const Backend* b, const float* x, size_t n, float scale) {
    float* host = alloc_or_die(min_size(n, PIECE), sizeof *host, "a piece of a tensor");
    for (size_t i = 0; i < n; i += PIECE) {
        const size_t size = min_size(n - i, PIECE);
        b->device_copy_out(host, x + i, size * sizeof *host);
        for (size_t k = 0; k < size; k++) { host[k] /= scale; }
        histogram_add(h, host, size);
    }
    free(host);
}

// Logs each layer of each tensor of a block in the parameters' layout. Padding rows do not count.
static void log_block(Logger* log, const GPT2* g, int step, const char* what, const float* block,
                      float scale) {
    Histogram* h = alloc_or_die(1, sizeof *h, "a histogram");
    for (int i = 0; i < g->params_table.count; i++) {
        const Tensor* t = &g->params_table.row[i];
        for (int layer = 0; layer < t->layers; layer++) {
            char name[128];
            snprintf(name, sizeof name, "%s/", what);
            snprintf(name + strlen(name), sizeof name - strlen(name), t->file_name, layer);
            memset(h, 0, sizeof *h);
            add_tensor(h, g->backend, block + tensor_at(t, layer), t->used_rows * t->cols, scale);
            logger_histogram(log, step, name, h);
        }
    }
    free(h);
}

void log_histograms(Logger* log, const Optimizer* o, int step, float grads_scale) {
    const bool is_logging = log->options.rank == 0;
    if (grads_scale > 0) {
        optimizer_gather_grads(o);
        if (is_logging) { log_block(log, o->model, step, "gradients", o->model->grads, grads_scale); }
    }
    const float* masters = optimizer_whole(o, o->masters);
    if (is_logging) { log_block(log, o->model, step, "weights", masters, 1); }
}

typedef float (*Getter)(const Backend* b, const void* x, size_t i); // stored_get or residual_get

// Logs n elements in device memory, `size` bytes each, of layer `l` under the name activations/h.L.WHAT.
static void log_activation(Logger* log, const Backend* b, int step, int l, const char* what, const void* x, size_t n,
                           size_t size, Getter get) {
    Histogram* h = alloc_or_die(1, sizeof *h, "a histogram");
    char* host = alloc_or_die(min_size(n, PIECE), size, "a piece of an activation");
    for (size_t i = 0; i < n; i += PIECE) {
        const size_t count = min_size(n - i, PIECE);
        b->device_copy_out(host, (const char*)x + i * size, count * size);
        for (size_t k = 0; k < count; k++) {
            const float value = get(b, host, k);
            histogram_add(h, &value, 1);
        }
    }
    char* name = format("activations/h.%d.%s", l, what);
    logger_histogram(log, step, name, h);
    free(name);
    free(host);
    free(h);
}

void log_activations(Logger* log, const GPT2* g, int step, int B, int T) {
    const Backend* b = g->backend;
    const size_t n = (size_t)B * (size_t)T * (size_t)g->config.channels;
    if (log->options.rank != 0) { return; }
    gpt2_embed(g, B, T, NULL);
    for (int l = 0; l < g->config.num_layers; l++) {
        const Residual* stream = gpt2_layer(g, l, B, T, NULL);
        const Acts a = acts_at(g, l); // the next layer may overwrite them
        log_activation(log, b, step, l, "attn", a.atty, n, b->element_bytes, stored_get);
        log_activation(log, b, step, l, "mlp.c_fc", a.fch, 4 * n, b->element_bytes, stored_get);
        log_activation(log, b, step, l, "residual", stream, n, b->residual_bytes, residual_get);
    }
}
