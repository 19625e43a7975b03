// Generation: with a cache of keys and values the logits are those of the whole sequence, on every CPU backend;
// sampling; where texts end.
#include "llmc/files/huggingface.h"
#include "llmc/generate.h"
#include "llmc/rng.h"
#include "test/check/backends.h"
#include "test/test.h"

// ---------------------------------------------------------------------------------------------------------------------
// the cache

enum { T = 17, V = 269, MAX_T = 19 }; // MAX_T: positions of the model in test/golden/gpt2

static GPT2 open_golden(const Backend* b) {
    static const char folder[] = "test/golden/gpt2";
    Error err;
    GPT2Config shape;
    GPT2 g;
    if (!hf_load_config(folder, true, &shape, &err)) { fatal("%s", err.text); }
    gpt2_layout(&g, b, &shape, 1, MAX_T, FORWARD_ONLY, 1);
    gpt2_alloc(&g);
    if (!hf_load_weights(&g, NULL, folder, &err)) { fatal("%s", err.text); }
    return g;
}

static int token_at(size_t i) { return (int)(rng_u64(5, RNG_TEST, i) % V); }

// Logits (T,V) of the first T tokens in one pass without a cache; the caller frees them.
static float* logits_of_whole(GPT2* g) {
    const Backend* b = g->backend;
    const size_t bytes = (size_t)T * V * sizeof(float);
    int tokens[T];
    for (size_t i = 0; i < T; i++) { tokens[i] = token_at(i); }
    b->device_copy_in(g->tokens, tokens, sizeof tokens);
    gpt2_forward(g, 1, T, NULL);
    float *logits = b->device_alloc(bytes, "logits"), *out = alloc_or_die(bytes, 1, "logits");
    gpt2_logits(g, logits, 0, T);
    b->device_copy_out(out, logits, bytes);
    b->device_free(logits, bytes);
    return out;
}

static double largest_difference(const float* x, const float* y) {
    double worst = 0;
    for (int v = 0; v < V; v++) { worst = fmax(worst, fabs((double)x[v] - y[v])); }
    return worst;
}

// Feeds tokens beyond the model's positions: the context then restarts with its last half.
static void check_full_context(GPT2* g, Generator* gen, double tolerance) {
    for (size_t i = T; i < 47; i++) {
        token_list_append(&gen->tokens, token_at(i));
        generator_feed(gen);
        EXPECT(gen->cache.length <= MAX_T && gen->fed == gen->tokens.count);
        if (gen->tokens.count == MAX_T + 1) { EXPECT(gen->cache.length == MAX_T / 2); }
    }
    Generator anew = generator_open(g); // the logits are those of the tokens in the cache alone
    for (size_t i = gen->tokens.count - (size_t)gen->cache.length; i < gen->tokens.count; i++) {
        token_list_append(&anew.tokens, gen->tokens.ids[i]);
    }
    generator_feed(&anew);
    EXPECT_NEAR(largest_difference(anew.logits, gen->logits), 0, tolerance);
    generator_close(&anew);
}

TEST(decoding_with_a_cache_gives_the_logits_of_the_whole) {
    static const DeviceOptions kernels[] = {{.plain = true}, {.fused = true, .flash = true}};
    EACH_CPU_AND_BF16_RESIDUAL(b) {
        // Logits are up to 2, where neighbours in bf16 are 0.008 apart, in fp16 0.001.
        const double tolerance = stores_16_bits(b) ? 4 * unit_roundoff(b) : 1e-5;
        for (int k = 0; k < 2; k++) {
            b->device_open(&kernels[k]);
            GPT2 g = open_golden(b);
            float* whole = logits_of_whole(&g);
            Generator gen = generator_open(&g);
            for (size_t t = 0; t < T; t++) {
                token_list_append(&gen.tokens, token_at(t));
                if (t % 5 == 2) { continue; } // so that some are fed in pairs
                generator_feed(&gen);
                EXPECT_NEAR(largest_difference(gen.logits, whole + t * V), 0, tolerance);
            }
            check_full_context(&g, &gen, tolerance);
            generator_close(&gen);
            gpt2_free(&g);
            free(whole);
        }
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// sampling

TEST(sampling_keeps_to_top_k_top_p_and_temperature) {
    const float logits[8] = {0.0f, 2.0f, 1.0f, 2.0f, -1.0f, 3.0f, -5.0f, 0.5f};
    Candidate scratch[8];
    Sampling s = {.temperature = 0.0, .top_k = 0, .top_p = 1.0, .seed = 1};
    EXPECT(sample_token(logits, 8, &s, 0.999, scratch) == 5);
    s.temperature = 1.0;
    int count[8] = {0};
    double total = 0;
    for (int i = 0; i < 8; i++) { total += exp(logits[i]); }
    enum { DRAWS = 20000 };
    for (int i = 0; i < DRAWS; i++) { count[sample_token(logits, 8, &s, (i + 0.5) / DRAWS, scratch)]++; }
    for (int i = 0; i < 8; i++) { EXPECT_NEAR(count[i] / (double)DRAWS, exp(logits[i]) / total, 1e-4); }
    s.top_k = 3; // equal logits: the lower id first
    for (int i = 0; i < DRAWS; i++) {
        const int id = sample_token(logits, 8, &s, (i + 0.5) / DRAWS, scratch);
        EXPECT(id == 5 || id == 1 || id == 3);
    }
    s.top_k = 0, s.top_p = 0.5; // 3 alone has 0.49: 2 joins it
    memset(count, 0, sizeof count);
    for (int i = 0; i < DRAWS; i++) { count[sample_token(logits, 8, &s, (i + 0.5) / DRAWS, scratch)]++; }
    EXPECT(count[5] + count[1] == DRAWS && count[1] > 0);
    EXPECT_NEAR(count[5] / (double)DRAWS, exp(3) / (exp(3) + exp(2)), 1e-4);
    s.top_p = 1.0, s.temperature = 0.5;
    memset(count, 0, sizeof count);
    for (int i = 0; i < DRAWS; i++) { count[sample_token(logits, 8, &s, (i + 0.5) / DRAWS, scratch)]++; }
    EXPECT_NEAR((double)count[5] / count[1], exp(2.0), 0.01);
}

TEST(top_p_counts_probabilities_at_the_temperature) {
    const float logits[4] = {2.0f, 1.0f, 0.0f, -9.0f};
    Candidate scratch[4];
    // token 0 has 0.98 of the probability when cold; warm, tokens 0, 1 and 2 have it together
    const Sampling cold = {.temperature = 0.25, .top_p = 0.9, .seed = 1};
    const Sampling warm = {.temperature = 4.0, .top_p = 0.9, .seed = 1};
    int least = 4, most = 0;
    for (int i = 0; i < 1000; i++) {
        const double u = (i + 0.5) / 1000;
        EXPECT(sample_token(logits, 4, &cold, u, scratch) == 0);
        const int id = sample_token(logits, 4, &warm, u, scratch);
        least = min_int(least, id);
        most = max_int(most, id);
    }
    EXPECT(least == 0 && most == 2);
}

// ---------------------------------------------------------------------------------------------------------------------
// texts

typedef struct {
    char text[1024];
    size_t bytes;
} Written;

static bool append(void* context, const char* text, size_t bytes) {
    Written* w = context;
    if (w->bytes + bytes > sizeof w->text) { fatal("the text is too long"); }
    memcpy(w->text + w->bytes, text, bytes);
    w->bytes += bytes;
    return true;
}

TEST(each_token_takes_its_own_random_number_and_end_of_text_ends) {
    Error err;
    GPT2Config m;
    GPT2 g;
    Tokenizer bytes = tokenizer_open("bytes");
    EXPECT(model_parse("L=1,H=1,C=4,T=8,V=257", true, &m, &err));
    EACH_CPU_BACKEND(b) {
        gpt2_layout(&g, b, &m, 1, 8, FORWARD_ONLY, 1);
        gpt2_alloc(&g); // all weights are zero: every token is as likely as any other
        b->params_changed();
        int ended = 0, full = 0;
        for (uint64_t seed = 0; seed < 20; seed++) {
            enum { COUNT = 120 };
            const Sampling s = {.temperature = 1.0, .top_k = 0, .top_p = 1.0, .seed = seed};
            Written w = {.bytes = 0};
            EXPECT(generate(&g, &bytes, "ab", COUNT, &s, append, &w, &err));
            size_t i = 0;
            for (; i < COUNT; i++) {
                const int id = (int)(rng_uniform(seed, RNG_SAMPLE, i) * 257);
                if (id == bytes.eot) { break; }
                EXPECT(i < w.bytes && (unsigned char)w.text[i] == id);
            }
            EXPECT(w.bytes == i);
            ended += i < COUNT;
            full += i == COUNT;
        }
        EXPECT(ended > 2 && full > 2);
        gpt2_free(&g);
    }
    tokenizer_free(&bytes);
}

TEST(overflowing_weights_generate_nothing) {
    Error err;
    GPT2Config m;
    GPT2 g;
    Tokenizer bytes = tokenizer_open("bytes");
    EXPECT(model_parse("L=1,H=1,C=4,T=8,V=257", true, &m, &err));
    EACH_CPU_BACKEND(b) {
        gpt2_layout(&g, b, &m, 1, 8, FORWARD_ONLY, 1);
        gpt2_alloc(&g);
        for (size_t i = 0; i < g.params_table.size; i++) { gpt2_put(&g, i, &(const float){3e38f}, 1); }
        b->params_changed();
        const Sampling s = {.temperature = 1.0, .top_k = 0, .top_p = 1.0, .seed = 1};
        Written w = {.bytes = 0};
        EXPECT(!generate(&g, &bytes, "ab", 3, &s, append, &w, &err) && strstr(err.text, "the weights are damaged or"));
        EXPECT(w.bytes == 0);
        gpt2_free(&g);
    }
    tokenizer_free(&bytes);
}

TEST_MAIN()
