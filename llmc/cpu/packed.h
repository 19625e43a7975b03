// Weights in the order in which products read them, kept from one update of the parameters to the next: beside the
// quick products of AMX, packing costs a tenth to a quarter of the time, and the copy, in bf16, is small. In fp32 it is
// not small, and packing is cheap beside the product: there the table stays empty. (AVX512_BF16 has AMX's habits.)
#pragma once
#include "gemm.h"
#include "../tensors.h"

enum { WEIGHTS_ARE_KEPT_PACKED = sizeof(Packed) == sizeof(bf16) };

typedef struct {
    Matrix b; // what was packed, K x N
    int K, N;
    Packed* panels; // panel after panel, each of depth K
    unsigned version;
} PackedWeight;

static struct {
    PackedWeight* entry;
    size_t count;
    unsigned version; // goes up when the parameters change; 0: nobody says so, and nothing may be kept
} packed_weights;

static inline size_t packed_weight_bytes(int K, int N) {
    return ceil_div((size_t)N, NR) * panel_size(NR, K) * sizeof(Packed);
}

// What keeping a model's matrices packed takes: for forward, and another time for backward.
static inline size_t packed_weights_bytes(const TensorTable* params, bool trains) {
    size_t bytes = 0;
    if (!WEIGHTS_ARE_KEPT_PACKED || cpu.kernels == KERNELS_PLAIN) { return 0; }
    for (int i = 0; i < params->count; i++) {
        const Tensor* t = &params->row[i];
        const int OC = (int)t->rows, C = (int)t->cols;
        if (t->rows == 1 || t->init == INIT_POSITION) { continue; } // enters no product
        bytes += (size_t)t->layers * (packed_weight_bytes(C, OC) + (trains ? packed_weight_bytes(OC, C) : 0));
    }
    return bytes;
}

// Parameters have changed. What was not used since they last did is freed: its model may be gone.
static inline void packed_weights_expire(void) {
    size_t kept = 0;
    for (size_t i = 0; i < packed_weights.count; i++) {
        PackedWeight* w = &packed_weights.entry[i];
        if (w->version == packed_weights.version) { packed_weights.entry[kept++] = *w; }
        else { device_free(w->panels, packed_weight_bytes(w->K, w->N)); }
    }
    packed_weights.count = kept;
    packed_weights.version++;
}

// b (K,N) packed, or NULL where that is not kept. A weight is known by its address, shape and orientation.
static inline const Packed* packed_weight(Matrix b, int K, int N) {
    if (!WEIGHTS_ARE_KEPT_PACKED || packed_weights.version == 0) { return NULL; }
    PackedWeight* w = packed_weights.entry;
    PackedWeight* end = w + packed_weights.count;
    while (w < end && !(w->b.x == b.x && w->b.row == b.row && w->b.col == b.col && w->K == K && w->N == N)) { w++; }
    if (w == end) {
        const size_t bytes = (packed_weights.count + 1) * sizeof *w;
        packed_weights.entry = (PackedWeight*)realloc_or_die(packed_weights.entry, bytes, "packed weights");
        w = &packed_weights.entry[packed_weights.count++];
        w->b = b;
        w->K = K;
        w->N = N;
        w->panels = (Packed*)device_alloc(packed_weight_bytes(K, N), "packed weights");
    } else if (w->version == packed_weights.version) {
        return w->panels;
    }
    #pragma omp parallel for
    for (int j = 0; j < N; j += COLUMNS) {
        gemm_pack_b(w->panels + (size_t)(j / NR) * panel_size(NR, K), b, j, min_int(COLUMNS, N - j), 0, K);
    }
    w->version = packed_weights.version;
    return w->panels;
}
