// Weights packed into the order in which gemm.h reads them, kept from one update of the parameters to the next. That
// pays where packing is slow beside the tiles, and where a weight is used often enough: the copies take memory, and
// writing them takes time. Each header of tile.h says where, by two constants. Measured: dev/cpu.md
//
//   PACKED_USES    keep a weight packed from this use on after an update. If it was used as often before an update, it
//                  is packed at its first use after that update; 0: never
//   PACKED_ROWS    once a matmul had more rows than this, no weight is kept any more, which plan.h relies on: not even
//                  for smaller batches of an evaluation between steps
#pragma once
#include "gemm.h"
#include "../model/tensors.h"

typedef struct {
    Matrix b; // the weight, K x N
    int K, N;
    int uses;       // since the last update
    bool is_packed; // since the last update
    Packed* panels; // panel after panel, each of depth K; NULL: not kept so far
} PackedWeight;

static struct {
    PackedWeight* entry;
    size_t count;
    int most_rows; // of a matmul so far
    bool active;   // params_changed() is called: if not, weights may change unnoticed, and none is kept
} packed_weights;

static inline size_t packed_weight_bytes(int K, int N) {
    return ceil_div((size_t)N, NR) * panel_size(NR, K) * sizeof(Packed);
}

static inline bool weights_are_kept_packed(int rows) {
    return PACKED_USES > 0 && rows <= PACKED_ROWS && cpu.kernels == KERNELS_FAST;
}

// Returns the bytes of a model's packed weights, if they are kept, for matmuls of `rows` rows: a copy for forward and,
// to train, another for backward.
static inline size_t packed_weights_bytes(const TensorTable* params, bool trains, int rows) {
    size_t bytes = 0;
    if (!weights_are_kept_packed(rows)) { return 0; }
    for (int i = 0; i < params->count; i++) {
        const Tensor* t = &params->row[i];
        const int OC = (int)t->rows, C = (int)t->cols;
        if (!tensor_is_operand(t)) { continue; }
        bytes += (size_t)t->layers * (packed_weight_bytes(C, OC) + (trains ? packed_weight_bytes(OC, C) : 0));
    }
    return bytes;
}

// Marks all packed weights as outdated, because the parameters have changed. Frees those not used often enough since
// the change before: their model may be gone.
static inline void packed_weights_expire(void) {
    size_t kept = 0;
    for (size_t i = 0; i < packed_weights.count; i++) {
        PackedWeight w = packed_weights.entry[i];
        if (w.uses >= PACKED_USES) {
            w.uses = 0;
            w.is_packed = false;
            packed_weights.entry[kept++] = w;
        } else if (w.panels) {
            device_free(w.panels, packed_weight_bytes(w.K, w.N));
        }
    }
    packed_weights.count = kept;
    packed_weights.active = true;
}

// Returns the entry of a weight, which is found by its address, shape and orientation.
static inline PackedWeight* packed_weight_entry(Matrix b, int K, int N) {
    PackedWeight* w = packed_weights.entry;
    PackedWeight* end = w + packed_weights.count;
    while (w < end && !(w->b.x == b.x && w->b.row == b.row && w->b.col == b.col && w->K == K && w->N == N)) { w++; }
    if (w == end) {
        const PackedWeight unused = {.b = b, .K = K, .N = N};
        const size_t bytes = (packed_weights.count + 1) * sizeof *w;
        packed_weights.entry = realloc_or_die(packed_weights.entry, bytes, "packed weights");
        w = &packed_weights.entry[packed_weights.count++];
        *w = unused;
    }
    return w;
}

// Returns b (K,N) packed for a matmul of `rows` rows, or NULL if it is not kept packed.
static inline const Packed* packed_weight(Matrix b, int K, int N, int rows) {
    if (rows > packed_weights.most_rows) { packed_weights.most_rows = rows; }
    if (!weights_are_kept_packed(packed_weights.most_rows) || !packed_weights.active) { return NULL; }
    PackedWeight* w = packed_weight_entry(b, K, N);
    w->uses++;
    if (w->is_packed) { return w->panels; }
    if (!w->panels) {
        if (w->uses < PACKED_USES) { return NULL; }
        w->panels = device_alloc(packed_weight_bytes(K, N), "packed weights");
    }
    #pragma omp parallel for
    for (int j = 0; j < N; j += COLUMNS) {
        gemm_pack_b(w->panels + (size_t)(j / NR) * panel_size(NR, K), b, j, min_int(COLUMNS, N - j), 0, K);
    }
    w->is_packed = true;
    return w->panels;
}
