// Weights that the CPU keeps packed (llmc/cpu/packed.h).
#include "test/cpu/stored.h"

// The first test: no backend of its program has had a call of params_changed() before.
TEST(weights_that_change_unnoticed_are_not_kept_packed) {
    enum { N = 20, C = 3, OC = 2 }; // more rows than few_rows.h takes
    EACH_CPU_BACKEND(b) {
        Stored *inp = stored_alloc(b, N * C), *weight = stored_alloc(b, OC * C), *out = stored_alloc(b, N * OC);
        for (size_t i = 0; i < N * C; i++) { stored_put(b, inp, i, 1); }
        for (int use = 1; use <= 4; use++) {
            const float value = use < 3 ? 1 : 2; // changes after the second use, from which on a weight is kept
            for (size_t i = 0; i < OC * C; i++) { stored_put(b, weight, i, value); }
            b->matmul_forward(out, inp, weight, NULL, N, C, OC);
            EXPECT(stored_get(b, out, 0) == C * value);
        }
        free(inp), free(weight), free(out);
    }
}

TEST(the_first_rows_of_a_packed_weight_are_another_weight) {
    enum { N = 20, C = 3, OC = 70, FEW = 2 };
    EACH_CPU_BACKEND(b) {
        Stored *inp = stored_alloc(b, N * C), *weight = stored_alloc(b, OC * C), *out = stored_alloc(b, N * OC);
        for (size_t i = 0; i < N * C; i++) { stored_put(b, inp, i, 1); }
        for (size_t i = 0; i < OC * C; i++) { stored_put(b, weight, i, (float)(i / C)); }
        b->params_changed();
        for (int use = 1; use <= 4; use++) {
            const int rows = use < 3 ? FEW : OC;
            b->matmul_forward(out, inp, weight, NULL, N, C, rows);
            EXPECT(stored_get(b, out, (size_t)rows - 1) == (float)(C * (rows - 1)));
        }
        free(inp), free(weight), free(out);
    }
}

TEST_MAIN()
