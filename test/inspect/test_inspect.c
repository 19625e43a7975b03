// Compares what is inside the model of test/golden/gpt2 with transformers (dev/golden/inside.py), on every CPU backend
// that stores fp32.
#include "llmc/base/json.h"
#include "llmc/inspect/inspect.h"
#include "llmc/model/stored.h"
#include "test/check/backends.h"
#include "test/model/golden_model.h"
#include "test/test.h"

static const DeviceOptions ALONE = {.fused = true, .flash = true, .threads = 1};

// Compares n numbers, each `stride` floats behind the one before, with an array. What is smaller than `unit` may err
// by 1e-5 of it, the others by 1e-5 of themselves.
static void expect_numbers(const char* name, const float* got, size_t n, size_t stride, const json_t* want,
                           double unit) {
    EXPECT(json_array_size(want) == n);
    for (size_t i = 0; i < n; i++) {
        const double x = got[i * stride], y = json_number_value(json_array_get(want, i));
        if (!(fabs(x - y) <= 1e-5 * fmax(fabs(y), unit))) { TEST_FAIL("%s %zu = %.9g, expected %.9g", name, i, x, y); }
    }
}

// Compares `rows` lists of candidates with {"ids": lists, or one of all; "values": log-probabilities or cosines}.
static void expect_candidates(const char* name, const Candidate* got, size_t n, const json_t* want) {
    const json_t* ids = json_object_get(want, "ids");
    const size_t in_row = max_size(1, json_array_size(json_array_get(ids, 0)));
    for (size_t i = 0; i < n; i++) {
        const json_t* row = json_array_get(ids, i / in_row);
        const int id = (int)json_integer_value(json_is_array(row) ? json_array_get(row, i % in_row) : row);
        if (got[i].id != id) { TEST_FAIL("%s %zu is token %d, expected %d", name, i, got[i].id, id); }
    }
    expect_numbers(name, &got->logit, n, sizeof *got / sizeof(float), json_object_get(want, "values"), 1);
}

TEST(facts_are_those_of_transformers) {
    Error err;
    int tokens[GOLDEN_POSITIONS];
    json_t* golden = json_read("test/golden/gpt2/inspect.json", SIZE_MAX, 0, &err);
    const char* text = json_string_value(json_object_get(golden, "text"));
    const size_t T = strlen(text);
    for (size_t t = 0; t < T; t++) { tokens[t] = (unsigned char)text[t]; } // the model's tokens are bytes
    EACH_CPU_BACKEND(b) {
        if (stores_16_bits(b)) { continue; }
        b->device_open(&ALONE);
        Facts f;
        GPT2 g = open_golden(b);
        const size_t L = (size_t)g.config.num_layers, NH = (size_t)g.config.num_heads;
        for (int again = 0; again < 2; again++) { // parameters are as before
            EXPECT(facts_compute(&f, &g, tokens, (int)T, &err));
            expect_numbers("loss", f.losses, T - 1, 1, json_object_get(golden, "losses"), 1);
            expect_numbers("without", f.without, L * (NH + 2) * (T - 1), 1, json_object_get(golden, "without"), 1);
            expect_numbers("norm", f.norms, (L + 1) * T, 1, json_object_get(golden, "norms"), 0);
            expect_numbers("attention", f.attention, L * NH * T * T, 1, json_object_get(golden, "attention"), 0);
            expect_candidates("next", f.next, T * FACTS_BEST, json_object_get(golden, "next"));
            expect_candidates("lens", f.lens, (L + 1) * T, json_object_get(golden, "lens"));
            expect_candidates("nearest", f.nearest, T * FACTS_BEST, json_object_get(golden, "nearest"));
            facts_free(&f);
        }
        gpt2_free(&g);
    }
    json_decref(golden);
}

TEST(damaged_weights_are_an_error) {
    Error err;
    Facts f;
    const int tokens[] = {1, 2, 3};
    const Backend* b = find_cpu_backend(dtype_fp32, cpu_auto);
    b->device_open(&ALONE);
    GPT2 g = open_golden(b);
    gpt2_put(&g, 2 * (size_t)g.config.channels, &(const float){NAN}, 1); // of the embedding of token 2
    b->params_changed();
    EXPECT(!facts_compute(&f, &g, tokens, 3, &err) && strstr(err.text, "the loss of token 2 is"));
    gpt2_free(&g);
}

TEST_MAIN()
