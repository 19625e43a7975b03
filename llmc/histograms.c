#include "histograms.h"

// Adds the elements of a tensor in device memory, divided by `scale`, in pieces.
static void add_tensor(Histogram* h, const Backend* b, const float* x, size_t n, float scale) {
    enum { PIECE = 1 << 20 }; // floats: 4 MiB of host memory (chosen, not measured)
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
