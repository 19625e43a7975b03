// Weights packed into the order in which gemm.h reads them, kept from one update of the parameters to the next. Kept
// where operands are packed as bf16 (AMX and AVX512_BF16): AMX is so fast that packing a weight for each matmul takes a
// tenth to a quarter of the time, and the copy is small. Not kept for plain kernels, nor where operands are packed as
// floats (tile_fp32.h): the copy would be large, and packing is cheap beside the matmul.
#pragma once
#include "gemm.h"
#include "../tensors.h"

enum { WEIGHTS_ARE_KEPT_PACKED = sizeof(Packed) == sizeof(bf16) };

typedef struct {
    Matrix b; // the weight, K x N
    int K, N;
    Packed* panels; // panel after panel, each of depth K
    unsigned version;
} PackedWeight;

static struct {
    PackedWeight* entry;
    size_t count;
    unsigned version; // counts params_changed(); 0 before its first call: weights may change unnoticed; none is kept
} packed_weights;

static inline size_t packed_weight_bytes(int K, int N) {
    return ceil_div((size_t)N, NR) * panel_size(NR, K) * sizeof(Packed);
}

// Returns the bytes of a model's packed weights: a copy for forward and, to train, another for backward.
static inline size_t packed_weights_bytes(const TensorTable* params, bool trains) {
    size_t bytes = 0;
    if (!WEIGHTS_ARE_KEPT_PACKED || cpu.kernels == KERNELS_PLAIN) { return 0; }
    for (int i = 0; i < params->count; i++) {
        const Tensor* t = &params->row[i];
        const int OC = (int)t->rows, C = (int)t->cols;
        if (!tensor_is_operand(t)) { continue; }
        bytes += (size_t)t->layers * (packed_weight_bytes(C, OC) + (trains ? packed_weight_bytes(OC, C) : 0));
    }
    return bytes;
}

// Marks all packed weights as outdated, because the parameters have changed. Frees those not used since the change
// before: their model may be gone.
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

// Returns b (K,N) packed, or NULL where packed weights are not kept. A weight is found by its address, shape and
// orientation; it is packed again if the parameters changed in between.
static inline const Packed* packed_weight(Matrix b, int K, int N) {
    if (!WEIGHTS_ARE_KEPT_PACKED || packed_weights.version == 0) { return NULL; }
    PackedWeight* w = packed_weights.entry;
    PackedWeight* end = w + packed_weights.count;
    while (w < end && !(w->b.x == b.x && w->b.row == b.row && w->b.col == b.col && w->K == K && w->N == N)) { w++; }
    if (w == end) {
        const size_t bytes = (packed_weights.count + 1) * sizeof *w;
        packed_weights.entry = realloc_or_die(packed_weights.entry, bytes, "packed weights");
        w = &packed_weights.entry[packed_weights.count++];
        w->b = b;
        w->K = K;
        w->N = N;
        w->panels = device_alloc(packed_weight_bytes(K, N), "packed weights");
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
