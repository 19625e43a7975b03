// Properties of single operations on every backend, besides their results for random inputs (test_backends.c): rounded
// copies, padding, AdamW as in the paper.
#include "test/check/backends.h"
#include "llmc/check/compare.h"
#include "llmc/check/op_run.h"
#include "test/check/op_tensors.h"

static void check_rounded_sum(const Backend* b) {
    const OpSizes sizes = OP_SIZES_SMALL;
    OpCase c = op_open(b, op_number("layernorm_backward"), &sizes, 5);
    op_run(&c);
    double* dinp = op_values(&c, op_find_tensor(&c, "dinp"));
    double* rounded = op_values(&c, op_find_tensor(&c, "dinp_stored"));
    for (int i = 0; i < sizes.B * sizes.T * sizes.C; i++) { EXPECT(rounded[i] == as_stored(b, (float)dinp[i])); }
    free(dinp), free(rounded);
    op_close(&c);
}

TEST(layernorm_backward_returns_the_rounded_sum) {
    EACH_BACKEND(b) { check_rounded_sum(b); }
    EACH_BF16_RESIDUAL(b) { check_rounded_sum(b); }
}

// They are filled by parts of 2^20 elements.
TEST(outputs_of_an_open_case_are_nan_up_to_their_end) {
    const OpSizes sizes = {.B = 1, .T = 1050, .C = 1000, .NH = 1};
    EACH_BACKEND(b) {
        OpCase c = op_open(b, op_number("gelu_forward"), &sizes, 1);
        const OpTensor* out = op_find_tensor(&c, "out");
        double* values = op_values(&c, out);
        size_t numbers = 0;
        for (size_t i = 0; i < out->n; i++) { numbers += !isnan(values[i]); }
        EXPECT(out->n > 1 << 20 && numbers == 0);
        free(values);
        op_close(&c);
    }
}

// Copies the values of a tensor of one case to a tensor of another one.
static void copy_tensor(OpCase* to, const char* to_name, OpCase* from, const char* from_name) {
    double* values = op_values(from, op_find_tensor(from, from_name));
    op_put(to, op_find_tensor(to, to_name), values);
    free(values);
}

// The layernorm is that of the stored sums: computed again from them, it has the same bits. The sums are those of the
// inputs, rounded once.
static void check_stored_sums(const Backend* b) {
    const OpSizes sizes = OP_SIZES_SMALL;
    static const char* const outputs[] = {"out", "mean", "rstd"};
    OpCase both = op_open(b, op_number("residual_layernorm_forward"), &sizes, 5);
    OpCase again = op_open(b, op_number("layernorm_forward"), &sizes, 6);
    op_run(&both);
    copy_tensor(&again, "inp", &both, "residual");
    copy_tensor(&again, "weight", &both, "weight");
    copy_tensor(&again, "bias", &both, "bias");
    op_run(&again);
    for (int i = 0; i < 3; i++) {
        const OpTensor* t = op_find_tensor(&both, outputs[i]);
        double *x = op_values(&both, t), *y = op_values(&again, op_find_tensor(&again, outputs[i]));
        EXPECT(!memcmp(x, y, t->n * sizeof *x));
        free(x), free(y);
    }
    const OpTensor* residual = op_find_tensor(&both, "residual");
    double *sum = op_values(&both, residual), *inp1 = op_values(&both, op_find_tensor(&both, "inp1"));
    double* inp2 = op_values(&both, op_find_tensor(&both, "inp2"));
    for (size_t i = 0; i < residual->n; i++) {
        EXPECT(sum[i] == as_residual(b, (float)inp1[i] + (float)inp2[i]));
    }
    free(sum), free(inp1), free(inp2);
    op_close(&both), op_close(&again);
}

TEST(the_layernorm_after_an_addition_is_that_of_the_stored_sum) {
    EACH_BACKEND(b) { check_stored_sums(b); }
    EACH_BF16_RESIDUAL(b) { check_stored_sums(b); }
}

static void check_padding(const Backend* b, const char* op) {
    const OpSizes sizes = OP_SIZES_SMALL;
    const size_t first = (size_t)sizes.V * (size_t)sizes.C;
    OpCase c = op_open(b, op_number(op), &sizes, 4);
    OpTensor *weight = op_find_tensor(&c, "weight"), *dweight = op_find_tensor(&c, "dweight");
    OpTensor* losses = op_find_tensor(&c, "losses");
    double *w = op_values(&c, weight), *dw = op_values(&c, dweight), *before, *after, padding = 0;
    for (size_t i = first; i < weight->n; i++) {
        w[i] = 3.0; // as a file may have it
        dw[i] = dweight->role == ROLE_ADD ? 0 : NAN;
    }
    op_put(&c, weight, w);
    op_put(&c, dweight, dw);
    b->params_changed();
    op_run(&c);
    before = op_values(&c, losses);
    op_get(&c, dweight, dw);
    for (size_t i = first; i < weight->n; i++) { padding += fabs(dw[i]); }
    EXPECT(padding == 0);
    for (size_t i = first; i < weight->n; i++) { w[i] = 0; }
    op_put(&c, weight, w);
    b->params_changed();
    op_run(&c);
    after = op_values(&c, losses);
    EXPECT(!memcmp(before, after, losses->n * sizeof *before)); // softmax is over V only
    free(w), free(dw), free(before), free(after);
    op_close(&c);
}

TEST(padding_of_the_vocabulary_gets_exactly_nothing) {
    EACH_BACKEND(b) {
        check_padding(b, "classifier_backward");
        check_padding(b, "first_classifier_backward");
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// the update

// Returns a master as an update with the seed 12345 rounds it: element i of the parameters.
static double rounded_by_update(const Backend* b, double master, int step, size_t i) {
    const uint64_t bits = rounding_random(12345, step, i);
    return (double)(stores_fp16(b) ? fp16_stochastic((float)master, bits) : bf16_stochastic((float)master, bits));
}

// The masters do not depend on how params are rounded; each parameter is its master, rounded as in rounding.h.
TEST(adamw_rounds_each_parameter_by_its_own_random_number) {
    const OpSizes sizes = OP_SIZES_SMALL;
    const int op = op_number("adamw_update");
    EACH_BACKEND(b) {
        if (!stores_16_bits(b)) { continue; } // nothing is rounded
        OpCase nearest = op_open(b, op, &sizes, 4), random = op_open(b, op, &sizes, 4);
        random.hyper.adamw.rounding_seed = 12345;
        op_run(&nearest);
        op_run(&random);
        double* masters = op_values(&random, op_find_tensor(&random, "masters"));
        double* masters_too = op_values(&nearest, op_find_tensor(&nearest, "masters"));
        double* to_nearest = op_values(&nearest, op_find_tensor(&nearest, "params"));
        double* at_random = op_values(&random, op_find_tensor(&random, "params"));
        const size_t n = op_find_tensor(&random, "masters")->n;
        size_t different = 0;
        EXPECT(!memcmp(masters, masters_too, n * sizeof *masters));
        for (size_t i = n / 5; i < n - n / 7; i++) {
            const bool in_tensor = i < (size_t)sizes.OC * (size_t)sizes.C;
            EXPECT(!in_tensor || at_random[i] == rounded_by_update(b, masters[i], random.hyper.adamw.step, i));
            EXPECT(!in_tensor || to_nearest[i] == as_stored(b, (float)masters[i]));
            different += at_random[i] != to_nearest[i];
        }
        EXPECT(different > n / 10);
        // masters that are loaded are rounded in the same way, here in two parts
        enum { PART = 1001 };
        const Rounding again = {12345, random.hyper.adamw.step};
        Stored* params = op_find_tensor(&random, "params")->data;
        const float* loaded = op_find_tensor(&random, "masters")->data;
        b->params_round(params, loaded, PART, 0, again);
        b->params_round(stored_at(b, params, PART), loaded + PART, n - PART, PART, again);
        double* rounded = op_values(&random, op_find_tensor(&random, "params"));
        EXPECT(!memcmp(rounded + n / 5, at_random + n / 5, (n - n / 7 - n / 5) * sizeof *rounded));
        free(masters), free(masters_too), free(to_nearest), free(at_random), free(rounded);
        op_close(&nearest), op_close(&random);
    }
}

// So does Muon: its matrices lie one behind another here, and begin at elements of their own.
TEST(muon_rounds_each_parameter_by_its_own_random_number) {
    const OpSizes sizes = OP_SIZES_SMALL;
    EACH_BACKEND(b) {
        if (!stores_16_bits(b)) { continue; }
        OpCase c = op_open(b, op_number("muon_update"), &sizes, 4);
        c.hyper.muon.rounding_seed = 12345;
        c.hyper.muon.step = 3;
        op_run(&c);
        const size_t n = op_find_tensor(&c, "masters")->n;
        double *masters = op_values(&c, op_find_tensor(&c, "masters")), wrong = 0;
        double* params = op_values(&c, op_find_tensor(&c, "params"));
        for (size_t i = 0; i < n; i++) { wrong += params[i] != rounded_by_update(b, masters[i], 3, i); }
        EXPECT(wrong == 0);
        free(masters), free(params);
        op_close(&c);
    }
}

// AdamW as in the paper, in double, for one element. Returns its new value.
static double adamw_in_double(double x, double g, double m, double v, ParamGroup group, const AdamW* h) {
    m = h->beta1 * m + (1 - (double)h->beta1) * g;
    v = h->beta2 * v + (1 - (double)h->beta2) * g * g;
    const double mhat = m / (1 - pow(h->beta1, h->step)), vhat = v / (1 - pow(h->beta2, h->step));
    const double direction = mhat / (sqrt(vhat) + h->eps);
    const double decay = h->cautious && direction * x < 0 ? 0 : h->weight_decay[group];
    return x - h->lr[group] * (direction + decay * x);
}

// Compares the update of each element with adamw_in_double. norm: of the scaled gradients, which are given; scale: the
// factor by which unscaling and clipping multiply them.
static void check_adamw(const Backend* b, float grad_clip, double loss_scale, double norm, double scale) {
    OpSizes sizes = OP_SIZES_SMALL;
    sizes.OC = 2; // so few that the range of the case, which cuts the matrix, holds a whole vector
    OpCase c = op_open(b, op_number("adamw_update"), &sizes, 4);
    const double squared = norm * norm;
    c.hyper.adamw.grad_clip = grad_clip;
    c.hyper.adamw.grad_scale = 1 / loss_scale;
    op_put(&c, op_find_tensor(&c, "norm"), &squared);
    OpTensor* masters = op_find_tensor(&c, "masters");
    const size_t n = masters->n, C = (size_t)sizes.C, matrix = 2 * C, vectors = round_up(matrix, TENSOR_ALIGN);
    double *x = op_values(&c, masters), *g = op_values(&c, op_find_tensor(&c, "grads"));
    double *m = op_values(&c, op_find_tensor(&c, "m")), *v = op_values(&c, op_find_tensor(&c, "v"));
    size_t decayed = 0, others = 0, outside = 0;
    op_run(&c);
    double* got = op_values(&c, masters);
    for (size_t i = 0; i < n; i++) {
        const bool inside = i >= n / 5 && i < n - n / 7 && isfinite(norm);
        const bool in_vector = i >= vectors && (i - vectors) % TENSOR_ALIGN < C;
        if (!inside) { // every element, if the gradient is not finite
            EXPECT(got[i] == x[i]);
            outside++;
        } else if (i < matrix || in_vector) {
            EXPECT_NEAR(got[i], adamw_in_double(x[i], g[i] * scale, m[i], v[i],
                                                 i < matrix ? GROUP_EMBEDDING : GROUP_VECTOR, &c.hyper.adamw), 1e-6);
            decayed += i < matrix, others += in_vector;
        }
    }
    EXPECT(outside > 0 && (!isfinite(norm) || (decayed > 20 && others > C)));
    free(x), free(g), free(m), free(v), free(got);
    op_close(&c);
}

TEST(adamw_decays_matrices_only_and_keeps_to_its_range) {
    EACH_BACKEND(b) { check_adamw(b, 1.0f, 1, 0.5, 1.0); }
}

TEST(adamw_clips_only_norms_above_the_limit) {
    EACH_BACKEND(b) {
        check_adamw(b, 1.0f, 1, 4.0, 0.25);
        check_adamw(b, 5.0f, 1, 4.0, 1.0);
        check_adamw(b, 0.0f, 1, 4.0, 1.0); // 0: no limit
    }
}

TEST(adamw_unscales_before_it_clips) {
    EACH_BACKEND(b) {
        check_adamw(b, 1.0f, 8, 4.0, 0.125); // a norm of 1/2
        check_adamw(b, 1.0f, 2, 4.0, 0.25);  // of 2: half of the unscaled gradient
        check_adamw(b, 0.0f, 8, 4.0, 0.125);
        check_adamw(b, 1.0f, 8, (double)INFINITY, 0.125);
    }
}

static void check_muon_skips(const Backend* b) {
    static const char* const names[] = {"masters", "params", "m"};
    const double nan = (double)NAN;
    OpSizes sizes = OP_SIZES_SMALL;
    OpCase c = op_open(b, op_number("muon_update"), &sizes, 9);
    op_put(&c, op_find_tensor(&c, "norm"), &nan);
    b->params_round(op_find_tensor(&c, "params")->data, op_find_tensor(&c, "masters")->data,
                    op_find_tensor(&c, "masters")->n, 0, (Rounding){0}); // they are random bytes before
    for (int i = 0; i < 3; i++) {
        OpTensor* t = op_find_tensor(&c, names[i]);
        double* before = op_values(&c, t);
        op_run(&c);
        double* after = op_values(&c, t);
        EXPECT(!memcmp(before, after, t->n * sizeof *before));
        free(before), free(after);
    }
    op_close(&c);
}

TEST(a_gradient_that_is_not_finite_changes_nothing) {
    EACH_BACKEND(b) {
        check_adamw(b, 1.0f, 1, (double)NAN, 1.0);
        check_adamw(b, 1.0f, 1, (double)INFINITY, 1.0);
        check_adamw(b, 0.0f, 1, (double)INFINITY, 1.0);
        check_muon_skips(b);
    }
}

TEST_MAIN()
