#include "segments.h"

static Segment* add_segment(Segments* p, size_t begin, size_t size) {
    p->segment = grown(p->segment, (size_t)p->count, sizeof *p->segment, "segments of the parameters");
    p->segment[p->count] = (Segment){.range = {begin, size}, .owner = -1};
    return &p->segment[p->count++];
}

// The weight of q, k and v is three matrices, one below the other.
static int num_matrices(const Tensor* t) { return strcmp(t->name, "qkvw") ? 1 : 3; }

// Adds the matrices of a layer.
static void add_matrices(Segments* p, const TensorTable* table, int layer) {
    for (int i = 0; i < table->count; i++) {
        const Tensor* t = &table->row[i];
        if (tensor_group(t) != GROUP_MATRIX) { continue; }
        const size_t rows = t->rows / (size_t)num_matrices(t);
        for (int k = 0; k < num_matrices(t); k++) {
            Segment* segment = add_segment(p, tensor_at(t, layer) + (size_t)k * rows * t->cols, rows * t->cols);
            segment->rows = (int)rows;
            segment->cols = (int)t->cols;
        }
    }
}

// Returns the work of Muon's update of a matrix: multiply-adds of one Newton-Schulz step.
static double matrix_cost(const Segment* k) {
    const double m = k->rows < k->cols ? k->rows : k->cols, n = k->rows < k->cols ? k->cols : k->rows;
    return 2 * m * m * n + m * m * m;
}

// Orders matrices by falling cost, then by their place in the layout.
static int compare_cost(const void* a, const void* b) {
    const Segment *x = *(Segment* const*)a, *y = *(Segment* const*)b;
    const double difference = matrix_cost(y) - matrix_cost(x);
    return difference ? (difference > 0) - (difference < 0) : (x > y) - (x < y);
}

// Gives each matrix, the largest first, to the rank that has least to do (Graham 1969): the slowest rank has at most
// 4/3 of the least possible work.
static void choose_owners(const Segments* p, int shards) {
    Segment** by_cost = alloc_or_die((size_t)p->count, sizeof(Segment*), "matrices by cost");
    double* work = alloc_or_die((size_t)shards, sizeof *work, "work of ranks");
    int count = 0;
    for (int i = 0; i < p->count; i++) {
        if (p->segment[i].rows) { by_cost[count++] = &p->segment[i]; }
    }
    qsort(by_cost, (size_t)count, sizeof *by_cost, compare_cost);
    for (int i = 0; i < count; i++) {
        int least = 0;
        for (int r = 1; r < shards; r++) { least = work[r] < work[least] ? r : least; }
        by_cost[i]->owner = least;
        work[least] += matrix_cost(by_cost[i]);
    }
    free(by_cost);
    free(work);
}

size_t segment_shard_size(const Segment* k, int rank, int shards) {
    if (!k->rows) { return k->range.size / (size_t)shards; }
    return k->owner == rank ? k->range.size : 0;
}

// Sets the places of a rank's shards, and the largest sums over all ranks.
static void place_shards(Segments* p, int rank, int shards) {
    for (int r = 0; r < shards; r++) {
        size_t size = 0, size_v = 0;
        for (int i = 0; i < p->count; i++) {
            Segment* k = &p->segment[i];
            if (r == rank) { k->at = size, k->v_at = size_v; }
            size += segment_shard_size(k, r, shards);
            size_v += k->v.size / (size_t)shards;
        }
        p->most = max_size(p->most, size);
        p->most_v = max_size(p->most_v, size_v);
    }
}

Segments make_segments(const TensorTable* table, OptimizerKind kind, int rank, int shards) {
    Segments p = {.v_table = *table};
    const bool is_muon = kind == OPTIMIZER_MUON;
    if (is_muon) {
        Tensor rows[MAX_TENSORS];
        memcpy(rows, table->row, sizeof rows);
        for (int i = 0; i < table->count; i++) {
            if (tensor_group(&rows[i]) == GROUP_MATRIX) { rows[i].rows = rows[i].used_rows = 0; }
        }
        p.v_table = tensors_layout_in_shards(rows, table->count, table->num_layers, shards);
    }
    if (!is_muon && shards == 1) {
        add_segment(&p, 0, table->size)->v = (TensorRange){0, table->size};
    } else {
        for (int i = 0; i < tensors_num_ranges(table); i++) {
            const TensorRange of_v = tensors_range(&p.v_table, i);
            add_segment(&p, tensors_range(table, i).begin, of_v.size)->v = of_v;
            if (is_muon && i > 0 && i <= table->num_layers) { add_matrices(&p, table, i - 1); }
        }
    }
    if (is_muon) { choose_owners(&p, shards); }
    place_shards(&p, rank, shards);
    if (shards == 1) { p.most = table->size; } // the whole layout, with the padding between segments
    return p;
}
