// A table of tensors laid out in one block of memory.
//
// A row of the table stands ONCE, or once for EACH layer. The EACH rows are stored layer by layer, so that all of one
// layer is one range of memory: a view of a layer, a bucket of gradients to reduce and a shard are all just ranges.
//
// Offsets count units of the table. In the table of parameters a unit is an element, because the same layout serves the
// parameters in their storage type and the gradients, masters and moments in fp32. In the table of activations, whose
// rows differ in type, a unit is a byte.
#pragma once
#include "base.h"

typedef enum { ONCE, EACH } Repeat;
typedef enum { INIT_ZERO, INIT_ONE, INIT_NORMAL, INIT_RESIDUAL, INIT_POSITION } Init;
typedef enum { AS_IS, TRANSPOSED } FileLayout; // how a file's matrix lies to ours: see GPT2_PARAMS in gpt2.h

typedef struct {
    const char* name;
    size_t unit;           // units that one element takes: 1 in the table of parameters, bytes in that of activations
    Repeat repeat;
    size_t rows, cols;     // rows == 1: a vector, which weight decay leaves alone
    size_t used_rows;      // rows beyond these are padding: zero for ever, and not in files
    Init init;
    FileLayout layout;
    const char* file_name; // in a Hugging Face checkpoint; %d is the layer
    int layers;            // this and the rest are filled in by tensors_layout(): 1, or the number of layers
    size_t offset, stride; // units: where layer 0 begins, and from one layer to the next
} Tensor;

enum { MAX_TENSORS = 40, TENSOR_ALIGN = 64 };

typedef struct {
    Tensor row[MAX_TENSORS];
    int count;
    size_t size;                             // units in all
    int num_layers;
    size_t layers_begin, layer_size;         // layer l is the range that begins at layers_begin + l * layer_size
} TensorTable;

typedef struct {
    size_t begin, size;
} TensorRange;

static inline size_t tensor_elements(const Tensor* t) { return t->rows * t->cols; }
static inline size_t tensor_size(const Tensor* t) { return round_up(tensor_elements(t) * t->unit, TENSOR_ALIGN); }
static inline size_t tensor_at(const Tensor* t, int layer) { return t->offset + (size_t)layer * t->stride; }
static inline bool tensor_decays(const Tensor* t) { return t->rows > 1; }

// Places `count` rows; the EACH rows must stand together. Every run of rows of the same kind, and so every range, can
// be cut into `shards` parts that are all multiples of TENSOR_ALIGN.
static inline TensorTable tensors_layout_in_shards(const Tensor* rows, int count, int num_layers, int shards) {
    TensorTable table;
    memset(&table, 0, sizeof table);
    if (count > MAX_TENSORS) { fatal("MAX_TENSORS is too small for %d tensors", count); }
    table.count = count;
    table.num_layers = num_layers;
    memcpy(table.row, rows, (size_t)count * sizeof *rows);
    for (int i = 0, j; i < count; i = j) { // [i, j) is a run of rows of the same kind
        size_t run = 0;
        Repeat repeat = table.row[i].repeat;
        int layers = repeat == EACH ? num_layers : 1;
        for (j = i; j < count && table.row[j].repeat == repeat; j++) {
            table.row[j].offset = table.size + run;
            table.row[j].layers = layers;
            run += tensor_size(&table.row[j]);
        }
        run = round_up(run, (size_t)shards * TENSOR_ALIGN);
        for (int k = i; k < j; k++) { table.row[k].stride = repeat == EACH ? run : 0; }
        if (repeat == EACH) {
            if (table.layer_size) { fatal("the per-layer rows of a table of tensors do not stand together"); }
            table.layers_begin = table.size;
            table.layer_size = run;
        }
        table.size += run * (size_t)layers;
    }
    return table;
}

static inline TensorTable tensors_layout(const Tensor* rows, int count, int num_layers) {
    return tensors_layout_in_shards(rows, count, num_layers, 1);
}

// The ranges that a table consists of: number 0 stands before the layers, then comes one for each layer, then what
// stands behind them. (For tables that have rows for each layer.)
static inline int tensors_num_ranges(const TensorTable* table) { return table->num_layers + 2; }
static inline TensorRange tensors_range(const TensorTable* table, int number) {
    const size_t layers = (size_t)table->num_layers, layers_end = table->layers_begin + layers * table->layer_size;
    TensorRange r = {table->layers_begin + (size_t)(number - 1) * table->layer_size, table->layer_size};
    if (number == 0) { r.begin = 0, r.size = table->layers_begin; }
    if (number == table->num_layers + 1) { r.begin = layers_end, r.size = table->size - layers_end; }
    return r;
}

// Points the fields of a struct of pointers, one for each row, into `memory` at a layer; `unit` is the bytes of a unit.
static inline void tensors_bind(void* fields, size_t size, const TensorTable* table, void* memory, size_t unit,
                                int layer) {
    if (size != (size_t)table->count * sizeof(void*)) { fatal("a struct of tensors and its table disagree"); }
    for (size_t i = 0; i < size / sizeof(void*); i++) {
        const Tensor* t = &table->row[i];
        void* p = (char*)memory + unit * tensor_at(t, t->repeat == EACH ? layer : 0);
        memcpy((char*)fields + i * sizeof p, &p, sizeof p);
    }
}

// Elements of the largest tensor.
static inline size_t tensors_largest(const TensorTable* table) {
    size_t most = 0;
    for (int i = 0; i < table->count; i++) { most = max_size(most, tensor_elements(&table->row[i])); }
    return most;
}

// Elements in use, without padding rows or alignment; and how many tensors they are, over all layers.
typedef struct {
    size_t tensors, elements;
} TensorCount;

static inline TensorCount tensors_count(const TensorTable* table, bool decayed) {
    TensorCount n = {0, 0};
    for (int i = 0; i < table->count; i++) {
        const Tensor* t = &table->row[i];
        if (tensor_decays(t) != decayed) { continue; }
        n.tensors += (size_t)t->layers;
        n.elements += (size_t)t->layers * t->used_rows * t->cols;
    }
    return n;
}
