#include "tensors.h"

static bool is_any(const Tensor* t) { return (void)t, true; }
static bool is_vector(const Tensor* t) { return !tensor_is_matrix(t); }

// Sets the offsets of those rows of [i, j) that `is_placed` chooses, from table->size + `at` on. Returns their end,
// relative to table->size, rounded up so that they can be cut into shards.
static size_t place_rows(TensorTable* table, int i, int j, bool (*is_placed)(const Tensor*), size_t at, int shards) {
    for (int k = i; k < j; k++) {
        if (!is_placed(&table->row[k])) { continue; }
        table->row[k].offset = table->size + at;
        at += tensor_size(&table->row[k]);
    }
    return round_up(at, (size_t)shards * TENSOR_ALIGN);
}

TensorTable tensors_layout_in_shards(const Tensor* rows, int count, int num_layers, int shards) {
    TensorTable table;
    memset(&table, 0, sizeof table);
    if (count > MAX_TENSORS) { fatal("MAX_TENSORS is too small for %d tensors", count); }
    table.count = count;
    table.num_layers = num_layers;
    memcpy(table.row, rows, (size_t)count * sizeof *rows);
    for (int i = 0, j; i < count; i = j) { // [i, j) is a run of rows of the same kind
        const Repeat repeat = table.row[i].repeat;
        const int layers = repeat == EACH ? num_layers : 1;
        for (j = i; j < count && table.row[j].repeat == repeat; j++) {}
        size_t run = 0;
        if (repeat == EACH) {
            if (table.layer_size) { fatal("the per-layer rows of a table of tensors do not stand together"); }
            run = place_rows(&table, i, j, is_vector, run, shards);
            run = place_rows(&table, i, j, tensor_is_matrix, run, shards);
            table.layers_begin = table.size;
            table.layer_size = run;
        } else {
            run = place_rows(&table, i, j, is_any, run, shards);
        }
        for (int k = i; k < j; k++) {
            table.row[k].layers = layers;
            table.row[k].stride = repeat == EACH ? run : 0;
        }
        table.size += run * (size_t)layers;
    }
    return table;
}

TensorTable tensors_layout(const Tensor* rows, int count, int num_layers) {
    return tensors_layout_in_shards(rows, count, num_layers, 1);
}

int tensors_num_ranges(const TensorTable* table) { return table->num_layers + 2; }

TensorRange tensors_range(const TensorTable* table, int number) {
    const size_t layers = (size_t)table->num_layers, layers_end = table->layers_begin + layers * table->layer_size;
    TensorRange r = {table->layers_begin + (size_t)(number - 1) * table->layer_size, table->layer_size};
    if (number == 0) { r.begin = 0, r.size = table->layers_begin; }
    if (number == table->num_layers + 1) { r.begin = layers_end, r.size = table->size - layers_end; }
    return r;
}

TensorRange tensors_next_operand(const TensorTable* table, size_t at) {
    TensorRange next = {table->size, 0};
    for (int i = 0; i < table->count; i++) {
        const Tensor* t = &table->row[i];
        for (int l = 0; l < t->layers && tensor_is_operand(t); l++) {
            const TensorRange r = {tensor_at(t, l), tensor_elements(t)};
            if (r.begin >= at && r.begin < next.begin) { next = r; }
        }
    }
    return next;
}

void tensors_bind(void* fields, size_t size, const TensorTable* table, void* memory, size_t unit, int layer) {
    if (size != (size_t)table->count * sizeof(void*)) { fatal("a struct of tensors and its table disagree"); }
    for (size_t i = 0; i < size / sizeof(void*); i++) {
        const Tensor* t = &table->row[i];
        void* p = t->rows ? (char*)memory + unit * tensor_at(t, t->repeat == EACH ? layer : 0) : NULL;
        memcpy((char*)fields + i * sizeof p, &p, sizeof p);
    }
}

size_t tensors_largest(const TensorTable* table) {
    size_t most = 0;
    for (int i = 0; i < table->count; i++) { most = max_size(most, tensor_elements(&table->row[i])); }
    return most;
}

TensorCounts tensors_count(const TensorTable* table) {
    TensorCounts counts = {{0, 0}, {0, 0}};
    for (int i = 0; i < table->count; i++) {
        const Tensor* t = &table->row[i];
        TensorCount* n = tensor_decays(t) ? &counts.decayed : &counts.others;
        n->tensors += (size_t)t->layers;
        n->elements += (size_t)t->layers * t->used_rows * t->cols;
    }
    return counts;
}
