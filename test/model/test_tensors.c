// Tables of tensors: offsets, alignment, views, counts.
#include "llmc/model/tensors.h"
#include "test/test.h"

enum { LAYERS = 3, ROWS = 6 };

static Tensor row(const char* name, size_t unit, Repeat repeat, size_t rows, size_t cols, size_t used) {
    const Tensor t = {name, unit, repeat, rows, cols, used, INIT_ZERO, AS_IS, NULL, NULL, 0, 0, 0};
    return t;
}

// Once, twice in each layer, once: with sizes that alignment must round.
static TensorTable open_table(size_t unit) {
    const Tensor rows[ROWS] = {row("first", unit, ONCE, 10, 7, 9), row("vector", unit, ONCE, 1, 5, 1),
                               row("a", unit, EACH, 3, 41, 3),     row("b", unit, EACH, 1, 64, 1),
                               row("c", unit, EACH, 1, 1, 1),      row("last", unit, ONCE, 2, 65, 2)};
    return tensors_layout(rows, ROWS, LAYERS);
}

TEST(tensors_are_aligned_and_do_not_overlap) {
    for (size_t unit = 1; unit <= 4; unit *= 2) {
        const TensorTable t = open_table(unit);
        unsigned char* owner = (unsigned char*)alloc_or_die(t.size, 1, "a table");
        for (int i = 0; i < t.count; i++) {
            EXPECT(t.row[i].layers == (t.row[i].repeat == EACH ? LAYERS : 1));
            for (int l = 0; l < t.row[i].layers; l++) {
                const size_t at = tensor_at(&t.row[i], l), n = tensor_elements(&t.row[i]) * unit;
                EXPECT(at % TENSOR_ALIGN == 0 && at + n <= t.size);
                for (size_t k = at; k < at + n && k < t.size; k++) { EXPECT(!owner[k]++); }
            }
        }
        EXPECT(t.size % TENSOR_ALIGN == 0);
        free(owner);
    }
}

TEST(offsets_are_what_the_sizes_add_up_to) {
    const TensorTable t = open_table(1); // 70, 5; 123, 64, 1 in each layer; 130
    EXPECT(t.count == ROWS && t.row[0].offset == 0 && t.row[1].offset == 128);
    EXPECT(t.row[3].offset == 192 && t.row[4].offset == 192 + 64 && t.row[2].offset == 192 + 128); // vectors first
    EXPECT(t.layers_begin == 192 && t.layer_size == 256 && t.row[2].stride == 256 && t.row[0].stride == 0);
    EXPECT(tensor_at(&t.row[3], 2) == 192 + 2 * 256);
    EXPECT(t.row[5].offset == 192 + 3 * 256 && t.size == 192 + 3 * 256 + 192);
}

TEST(a_layer_is_one_range) {
    const TensorTable t = open_table(4);
    for (int i = 0; i < t.count; i++) {
        for (int l = 0; l < t.row[i].layers; l++) {
            const size_t at = tensor_at(&t.row[i], l), end = at + tensor_size(&t.row[i]),
                         begin = t.layers_begin + (size_t)l * t.layer_size;
            if (t.row[i].repeat == EACH) { EXPECT(at >= begin && end <= begin + t.layer_size); }
            else { EXPECT(end <= t.layers_begin || at >= t.layers_begin + LAYERS * t.layer_size); }
        }
    }
}

TEST(views_point_into_memory) {
    struct { char *first, *vector, *a, *b, *c, *last; } view;
    const TensorTable t = open_table(1);
    char* memory = (char*)alloc_or_die(t.size, 4, "a table");
    for (int l = 0; l < LAYERS; l++) {
        tensors_bind(&view, sizeof view, &t, memory, 4, l);
        EXPECT(view.first == memory && view.vector == memory + 4 * 128 && view.last == memory + 4 * t.row[5].offset);
        EXPECT(view.b == memory + 4 * (192 + (size_t)l * 256) && view.c == view.b + 4 * 64 &&
               view.a == view.b + 4 * 128);
    }
    EXPECT_DEATH(EXIT_RUNTIME, "disagree", tensors_bind(&view, sizeof view - sizeof(char*), &t, memory, 4, 0));
    free(memory);
}

TEST(counts_leave_padding_out_and_vectors_do_not_decay) {
    const TensorTable t = open_table(1);
    const TensorCount decayed = tensors_count(&t).decayed, others = tensors_count(&t).others;
    EXPECT(decayed.tensors == 1 + LAYERS + 1 && decayed.elements == 9 * 7 + LAYERS * 123 + 130);
    EXPECT(others.tensors == 1 + 2 * LAYERS && others.elements == 5 + LAYERS * (64 + 1));
    EXPECT(tensors_largest(&t) == 2 * 65); // the last row
}

TEST(rows_of_no_size_take_no_room) {
    const Tensor rows[2] = {row("none", 4, ONCE, 0, 100, 0), row("some", 4, ONCE, 1, 3, 1)};
    const TensorTable t = tensors_layout(rows, 2, LAYERS);
    EXPECT(t.row[1].offset == 0 && t.size == TENSOR_ALIGN && t.layer_size == 0);
}

TEST(sizes_of_large_models_do_not_overflow) {
    const Tensor rows[1] = {row("activations", 4, EACH, (size_t)1 << 21, 4 * 5120, (size_t)1 << 21)};
    const TensorTable t = tensors_layout(rows, 1, 40);
    EXPECT(t.layer_size == (size_t)4 * 4 * 5120 << 21 && t.size == 40 * t.layer_size);
    EXPECT(tensor_at(&t.row[0], 39) == 39 * t.layer_size);
}

TEST(tables_that_cannot_be_are_refused) {
    const Tensor apart[3] = {row("a", 1, EACH, 1, 3, 1), row("b", 1, ONCE, 1, 3, 1), row("c", 1, EACH, 1, 3, 1)};
    Tensor many[MAX_TENSORS + 1];
    for (int i = 0; i <= MAX_TENSORS; i++) { many[i] = row("x", 1, ONCE, 1, 1, 1); }
    EXPECT_DEATH(EXIT_RUNTIME, "do not stand together", tensors_layout(apart, 3, LAYERS));
    EXPECT_DEATH(EXIT_RUNTIME, "MAX_TENSORS", tensors_layout(many, MAX_TENSORS + 1, LAYERS));
    EXPECT(tensors_layout(many, MAX_TENSORS, LAYERS).size == (size_t)MAX_TENSORS * TENSOR_ALIGN);
}

TEST_MAIN()
