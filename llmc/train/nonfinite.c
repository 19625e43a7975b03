#include "nonfinite.h"
#include "../files/huggingface.h"

enum { PIECE = 1 << 18 }; // floats that are fetched at a time

// Finds the first, or the last, float of device memory or, if that is not NULL, of host memory that is not finite.
// Returns n if there is none.
static size_t find_nonfinite(const Backend* b, const float* device, const float* in_host, size_t n, bool last) {
    float* host = alloc_or_die(PIECE, sizeof *host, "looking for numbers that are not finite");
    size_t found = n;
    for (size_t at = 0; at < n && (last || found == n); at += PIECE) {
        const size_t count = min_size(PIECE, n - at);
        if (in_host) { memcpy(host, in_host + at, count * sizeof *host); }
        else { b->device_copy_out(host, device + at, count * sizeof *host); }
        for (size_t i = 0; i < count && (last || found == n); i++) {
            if (!isfinite(host[i])) { found = at + i; }
        }
    }
    free(host);
    return found;
}

// Returns `what` and the name of the tensor that holds an element of the layout; NULL for padding.
static char* name_element(const TensorTable* table, size_t element, const char* what) {
    for (int i = 0; i < table->count; i++) {
        const Tensor* t = &table->row[i];
        for (int l = 0; l < t->layers; l++) {
            const size_t begin = tensor_at(t, l);
            if (element < begin || element >= begin + tensor_elements(t)) { continue; }
            char *name = tensor_file_name(t, l, ""), *text = format("%s%s", what, name);
            free(name);
            return text;
        }
    }
    return NULL;
}

char* first_nonfinite(const Optimizer* o) {
    const GPT2* g = o->model;
    const size_t n = g->params_table.size;
    const bool is_whole = optimizer_is_whole(o, o->masters);
    size_t at = is_whole ? find_nonfinite(g->backend, o->masters, optimizer_in_host(o, o->masters), n, false) : n;
    if (at < n) { return name_element(&g->params_table, at, "the weight "); }
    // backward goes from the end of the layout to its beginning, as the layers lie
    at = o->zero_group ? n : find_nonfinite(g->backend, g->grads, NULL, n, true);
    return at < n ? name_element(&g->params_table, at, "the gradient of ") : NULL;
}
