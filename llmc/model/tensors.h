// A table of tensors laid out in one block of memory.
//
// A row of the table exists ONCE, or once for EACH layer. The EACH rows are stored layer by layer, so that all tensors
// of a layer are one range of memory: a view of a layer, a bucket of gradients to reduce and a shard are all ranges.
// Within a layer the vectors come first, then the matrices, each kind in the order of the rows. So an optimizer that
// treats matrices apart (segments.h) has the rest of a layer in one range.
//
// Offsets count units of the table. In the table of parameters a unit is an element, because the same layout serves the
// parameters in their storage type and the gradients, masters and moments in fp32. In the table of activations, whose
// rows differ in type, a unit is a byte.
#pragma once
#include "../base/base.h"

typedef enum { ONCE, EACH } Repeat;

// Groups of parameters, which the optimizer treats differently: each has a learning rate and a decay of its own.
typedef enum {
    GROUP_EMBEDDING, // token embedding, which is the classifier's weight too, and positions
    GROUP_MATRIX,    // weights of the linear layers of the blocks
    GROUP_VECTOR,    // biases and layernorms
    NUM_GROUPS
} ParamGroup;

typedef enum { INIT_ZERO, INIT_ONE, INIT_NORMAL, INIT_RESIDUAL, INIT_POSITION } Init;
typedef enum { AS_IS, TRANSPOSED } FileLayout; // of a matrix in a file, relative to ours: see GPT2_PARAMS in gpt2.h

typedef struct {
    const char* name;
    size_t unit;           // units of one element: 1 in the table of parameters, bytes in that of activations
    Repeat repeat;
    size_t rows, cols;     // rows == 1: a vector
    size_t used_rows;      // rows beyond these are padding: always zero, and not in files
    Init init;
    FileLayout layout;
    const char *hf_name, *gguf_name; // in files; of a parameter that exists for each layer, without its prefix
    // set by tensors_layout():
    int layers;            // 1, or the number of layers
    size_t offset, stride; // units: where layer 0 begins, and from one layer to the next
} Tensor;

// Returns true for the weight of a linear layer or of the classifier: an operand of matmuls.
static inline bool tensor_is_operand(const Tensor* t) { return t->rows > 1 && t->init != INIT_POSITION; }

enum { MAX_TENSORS = 40, TENSOR_ALIGN = 64 };

typedef struct {
    Tensor row[MAX_TENSORS];
    int count;
    size_t size;                     // units in all
    int num_layers;
    size_t layers_begin, layer_size; // layer l is the range that begins at layers_begin + l * layer_size
} TensorTable;

typedef struct {
    size_t begin, size;
} TensorRange;

static inline size_t tensor_elements(const Tensor* t) { return t->rows * t->cols; }
static inline size_t tensor_size(const Tensor* t) { return round_up(tensor_elements(t) * t->unit, TENSOR_ALIGN); }
static inline size_t tensor_at(const Tensor* t, int layer) { return t->offset + (size_t)layer * t->stride; }
static inline bool tensor_is_matrix(const Tensor* t) { return t->rows > 1; }
static inline bool tensor_decays(const Tensor* t) { return tensor_is_matrix(t); }
static inline ParamGroup tensor_group(const Tensor* t) {
    return t->rows == 1 ? GROUP_VECTOR : t->repeat == EACH ? GROUP_MATRIX : GROUP_EMBEDDING;
}

BEGIN_C

// Lays out `count` rows; the EACH rows must stand together. Every range of the table (tensors_range), and the vectors
// of a layer, can be cut into `shards` equal parts that are multiples of TENSOR_ALIGN.
TensorTable tensors_layout_in_shards(const Tensor* rows, int count, int num_layers, int shards);
TensorTable tensors_layout(const Tensor* rows, int count, int num_layers);

// The ranges of a table with EACH rows: number 0 holds the rows before the layers, number l + 1 layer l, and the last
// one the rows after the layers.
int tensors_num_ranges(const TensorTable* table);
TensorRange tensors_range(const TensorTable* table, int number);

// Returns the elements of the next operand (tensor_is_operand) from element `at` on; behind the last one an empty range
// at the end of the table.
TensorRange tensors_next_operand(const TensorTable* table, size_t at);

// Points the fields of a struct of pointers, one for each row, at a layer's tensors in `memory`. size: of the struct in
// bytes; unit: bytes of a unit of the table. Tensors without rows are NULL.
void tensors_bind(void* fields, size_t size, const TensorTable* table, void* memory, size_t unit, int layer);

// Returns the elements of the largest tensor.
size_t tensors_largest(const TensorTable* table);

// Tensors over all layers, and their elements without padding rows or alignment.
typedef struct {
    size_t tensors, elements;
} TensorCount;

// Counts the tensors that weight decay applies to, and the others.
typedef struct {
    TensorCount decayed, others;
} TensorCounts;
TensorCounts tensors_count(const TensorTable* table);

END_C
