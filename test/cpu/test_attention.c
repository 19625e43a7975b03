// The bits of the CPU's attention, which depend neither on threads nor on what a query does not see, and the precision
// of its probabilities. That all numbers are right is tested by check/test_attention_forms.c.
#include "test/cpu/stored.h"
#include "test/check/attention_shapes.h"
#include "llmc/base/rng.h"

typedef enum { OUT, LSE, DQKV, NUM_RESULTS } Result;
static const char* const RESULT_NAMES[NUM_RESULTS] = {"out", "lse", "dqkv"};

static size_t result_size(const Shape* s, Result r) {
    const size_t heads = (size_t)s->B * s->T * s->NH;
    return r == LSE ? heads : heads * s->HS * (r == DQKV ? 3 : 1);
}

// The documents that attention is given, if any.
typedef enum { NO_MASK, ONE_DOCUMENT, MANY_DOCUMENTS } Documents;

static bool begins_document(Documents documents, int n) {
    return documents == MANY_DOCUMENTS &&
           (n % 41 == 7 || n % 67 < 3 || rng_u64(7, RNG_TEST, (uint64_t)n) % 97 == 0);
}

// Runs forward and backward on the same random numbers each time. Sets `result` to doubles, which the caller frees.
static void run(const Backend* b, const Shape* s, Documents documents, const DeviceOptions* options,
                double* result[NUM_RESULTS]) {
    enum { EOT = 1 };
    const int N = s->B * s->T;
    int *tokens = alloc_or_die(3 * (size_t)N, sizeof *tokens, "documents"), *starts = tokens + N, *ends = starts + N;
    for (int n = 0; n < N; n++) { tokens[n] = begins_document(documents, n) ? EOT : 0; }
    const int C = s->NH * s->HS;
    const size_t n = result_size(s, OUT), heads = result_size(s, LSE);
    Stored *qkv = stored_alloc(b, 3 * n), *dqkv = stored_alloc(b, 3 * n);
    Stored *out = stored_alloc(b, n), *dout = stored_alloc(b, n);
    float* lse = alloc_or_die(2 * heads, sizeof *lse, "statistics");
    for (size_t i = 0; i < 3 * n; i++) {
        stored_put(b, qkv, i, rng_normal(1, RNG_TEST, i));
        stored_put(b, dqkv, i, NAN); // shows elements that are not written
    }
    for (size_t i = 0; i < n; i++) {
        stored_put(b, dout, i, rng_normal(2, RNG_TEST, i));
        stored_put(b, out, i, NAN);
    }
    for (size_t i = 0; i < 2 * heads; i++) { lse[i] = NAN; }
    b->device_open(options);
    b->document_bounds(starts, ends, tokens, EOT, s->B, s->T);
    const bool masks = documents != NO_MASK;
    b->attention_forward(out, NULL, lse, qkv, masks ? starts : NULL, s->B, s->T, C, s->NH);
    b->attention_backward(dqkv, lse + heads, dout, out, NULL, lse, qkv, masks ? starts : NULL, masks ? ends : NULL,
                          s->B, s->T, C, s->NH);
    for (int r = OUT; r < NUM_RESULTS; r++) {
        const size_t size = result_size(s, (Result)r);
        result[r] = alloc_or_die(size, sizeof **result, "results");
        for (size_t i = 0; i < size; i++) {
            result[r][i] = r == LSE ? lse[i] : stored_get(b, r == OUT ? out : dqkv, i);
        }
    }
    free(qkv), free(dqkv), free(out), free(dout), free(lse), free(tokens);
}

// Fails unless two runs have the same bits.
static void expect_same(const Shape* s, double* const* got, double* const* want) {
    for (int r = OUT; r < NUM_RESULTS; r++) {
        if (memcmp(got[r], want[r], result_size(s, (Result)r) * sizeof **got) != 0) {
            TEST_FAIL("B=%d T=%d NH=%d HS=%d: another %s", s->B, s->T, s->NH, s->HS, RESULT_NAMES[r]);
        }
    }
}

static void free_results(double** result) {
    for (int r = 0; r < NUM_RESULTS; r++) { free(result[r]); }
}

// Blocks have 192 positions, tiles up to 32, vectors up to 16.
// With one thread a head is one task; with more, heads are cut.
TEST(bits_do_not_depend_on_the_number_of_threads) {
    enum { NUM_THREADS = 3 };
    const int threads[NUM_THREADS] = {1, 3, 16};
    EACH_CPU_BACKEND(b) {
        if (is_another_fp16(b)) { continue; }
        for (int i = 0; i < 2 * NUM_SHAPES; i++) {
            const Shape* s = &SHAPES[i / 2];
            const Documents documents = i % 2 ? MANY_DOCUMENTS : NO_MASK;
            double *want[NUM_RESULTS], *got[NUM_RESULTS];
            for (int k = 0; k < NUM_THREADS; k++) {
                const DeviceOptions options = with_threads(FAST, threads[k]);
                run(b, s, documents, &options, k ? got : want);
                if (k) { expect_same(s, got, want); }
                if (k) { free_results(got); }
            }
            free_results(want);
        }
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// documents

TEST(one_document_has_the_bits_of_attention_without_documents) {
    EACH_CPU_BACKEND(b) {
        for (int i = 0; i < NUM_DOCUMENT_SHAPES; i++) {
            const DeviceOptions* forms[] = {&PLAIN, &UNFUSED, &FAST};
            for (int k = i == NUM_DOCUMENT_SHAPES - 1 ? 2 : 0; k < 3; k++) { // the longest, of many blocks: flash alone
                double *want[NUM_RESULTS], *got[NUM_RESULTS];
                run(b, &DOCUMENT_SHAPES[i], NO_MASK, forms[k], want);
                run(b, &DOCUMENT_SHAPES[i], ONE_DOCUMENT, forms[k], got);
                expect_same(&DOCUMENT_SHAPES[i], got, want);
                free_results(want), free_results(got);
            }
        }
    }
}

// ---------------------------------------------------------------------------------------------------------------------

// The probability of a later position is exactly 0: even a huge value there changes nothing.
TEST(nothing_is_seen_of_later_values) {
    enum { T = 200, HS = 24, LATER = 151 }; // within a tile
    EACH_CPU_BACKEND(b) {
        const size_t n = (size_t)T * HS, seen = (size_t)LATER * HS * b->element_bytes;
        Stored *qkv = stored_alloc(b, 3 * n), *out[2] = {stored_alloc(b, n), stored_alloc(b, n)};
        float lse[T];
        for (size_t i = 0; i < 3 * n; i++) { stored_put(b, qkv, i, rng_normal(4, RNG_TEST, i)); }
        b->attention_forward(out[0], NULL, lse, qkv, NULL, 1, T, HS, 1);
        const float huge = strcmp(b->storage, "fp16") ? 3e38f : 6e4f;
        for (size_t i = 0; i < HS; i++) { stored_put(b, qkv, LATER * 3 * HS + 2 * HS + i, huge); }
        b->attention_forward(out[1], NULL, lse, qkv, NULL, 1, T, HS, 1);
        EXPECT(!memcmp(out[0], out[1], seen));
        EXPECT(memcmp(stored_at(b, out[0], (size_t)LATER * HS), stored_at(b, out[1], (size_t)LATER * HS),
                      HS * b->element_bytes) != 0);
        free(qkv), free(out[0]), free(out[1]);
    }
}

// Queries of a second document keep their bits when the scores of the first become a thousand times as large.
TEST(nothing_is_seen_of_earlier_documents) {
    enum { T = 400, HS = 24, SECOND = 300 }; // within a tile and within a block of keys
    EACH_CPU_BACKEND(b) {
        const size_t n = (size_t)T * HS, e = b->element_bytes;
        Stored *qkv = stored_alloc(b, 3 * n), *out[2] = {stored_alloc(b, n), stored_alloc(b, n)};
        float lse[2][T];
        int starts[T];
        for (int t = 0; t < T; t++) { starts[t] = t < SECOND ? 0 : SECOND; }
        for (size_t i = 0; i < 3 * n; i++) { stored_put(b, qkv, i, rng_normal(4, RNG_TEST, i)); }
        b->attention_forward(out[0], NULL, lse[0], qkv, starts, 1, T, HS, 1);
        for (size_t i = 0; i < (size_t)3 * SECOND * HS; i++) {
            stored_put(b, qkv, i, 30 * (float)stored_get(b, qkv, i));
        }
        b->attention_forward(out[1], NULL, lse[1], qkv, starts, 1, T, HS, 1);
        const size_t second = (size_t)SECOND * HS;
        EXPECT(!memcmp(stored_at(b, out[0], second), stored_at(b, out[1], second), (n - second) * e));
        EXPECT(!memcmp(lse[0] + SECOND, lse[1] + SECOND, (T - SECOND) * sizeof(float)));
        free(qkv), free(out[0]), free(out[1]);
    }
}

// Two keys, whose scores are 0 and x: the second has the probability 1 / (1 + exp(-x)).
TEST(probabilities_keep_their_precision_to_the_smallest) {
    enum { B = 4096, T = 2, N = B * T };
    static float lse[N], delta[N];
    EACH_CPU_BACKEND(b) {
        if (strcmp(b->storage, "fp32") != 0) { continue; }
        Stored *qkv = stored_alloc(b, 3 * N), *dqkv = stored_alloc(b, 3 * N);
        Stored *out = stored_alloc(b, N), *dout = stored_alloc(b, N);
        memset(qkv, 0, 3 * N * b->element_bytes);
        memset(dout, 0, N * b->element_bytes);
        for (size_t i = 1; i < N; i += 2) {
            stored_put(b, qkv, 3 * i, i == 1 ? -1000.0f : -86.0f * (float)i / N);
            stored_put(b, qkv, 3 * i + 1, 1);
            stored_put(b, qkv, 3 * i + 2, 1);
            stored_put(b, dout, i, 1);
        }
        b->attention_forward(out, NULL, lse, qkv, NULL, B, T, 1, 1);
        b->attention_backward(dqkv, delta, dout, out, NULL, lse, qkv, NULL, NULL, B, T, 1, 1);
        EXPECT(stored_get(b, out, 1) == 0 && stored_get(b, dqkv, 5) == 0);
        double forward = 0, backward = 0; // largest errors
        for (size_t i = 3; i < N; i += 2) {
            const double p = 1 / (1 + exp(-stored_get(b, qkv, 3 * i)));
            forward = fmax(forward, fabs(stored_get(b, out, i) / p - 1));
            backward = fmax(backward, fabs(stored_get(b, dqkv, 3 * i + 2) / p - 1)); // dv
        }
        EXPECT_NEAR(forward, 0, 6e-7);
        EXPECT_NEAR(backward, 0, 5e-6); // x - lse is rounded
        free(qkv), free(dqkv), free(out), free(dout);
    }
}

TEST_MAIN()
