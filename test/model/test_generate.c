// Generation: with a cache of keys and values the logits are those of the whole sequence, on every CPU backend;
// sampling; several texts at once; log-probabilities; where texts end.
#include "llmc/base/json.h"
#include "llmc/model/generate.h"
#include "llmc/base/rng.h"
#include "test/check/backends.h"
#include "test/model/golden_model.h"
#include "test/test.h"
#include "llmc/tokenizer/tokenizer_open.h"

// The models are so small that a second thread would only wait.
static const DeviceOptions ALONE = {.fused = true, .flash = true, .threads = 1};

// ---------------------------------------------------------------------------------------------------------------------
// the cache

enum { T = 17, V = 269, MAX_T = GOLDEN_POSITIONS };

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
static void check_full_context(GPT2* g, Generator* gen, Sequence* text, double tolerance) {
    const int* length = &gen->cache.length[text->slot];
    for (size_t i = T; i < 47; i++) {
        token_list_append(&text->tokens, token_at(i));
        generator_feed(gen, &text, 1);
        EXPECT(*length <= MAX_T && text->fed == text->tokens.count);
        if (text->tokens.count == MAX_T + 1) { EXPECT(*length == MAX_T / 2 && text->is_cut); }
    }
    Generator anew = generator_open(g, 1, MAX_T); // the logits are those of the tokens in the cache alone
    Sequence last = generator_sequence(&anew, 0), *lasts = &last;
    for (size_t i = text->tokens.count - (size_t)*length; i < text->tokens.count; i++) {
        token_list_append(&last.tokens, token_at(i));
    }
    generator_feed(&anew, &lasts, 1);
    EXPECT_NEAR(largest_difference(last.logits, text->logits), 0, tolerance);
    token_list_free(&last.tokens);
    generator_close(&anew);
}

// Two sequences of different lengths share the batches; one is in slot 2, the other in slot 0, later in 1.
TEST(decoding_with_a_cache_gives_the_logits_of_the_whole) {
    EACH_CPU_AND_BF16_RESIDUAL(b) {
        // Logits are up to 2, where neighbours in bf16 are 0.008 apart, in fp16 0.001.
        const double tolerance = stores_16_bits(b) ? 4 * unit_roundoff(b) : 1e-5;
        for (int k = 0; k < 2; k++) {
            b->device_open(k ? &PLAIN : &ALONE);
            GPT2 g = open_golden(b);
            float* whole = logits_of_whole(&g);
            Generator gen = generator_open(&g, 3, MAX_T);
            Sequence ahead = generator_sequence(&gen, 2), behind = generator_sequence(&gen, 0);
            Sequence* both[] = {&behind, &ahead};
            for (size_t t = 0; t < T; t++) {
                token_list_append(&ahead.tokens, token_at(t));
                if (t > 3) { token_list_append(&behind.tokens, token_at(t - 4)); }
                if (t % 5 == 2) { continue; } // so that some are fed in pairs
                if (t == 10) {
                    kv_cache_copy(&g, &gen.cache, 1, 0, (int)behind.fed);
                    behind.slot = 1;
                }
                generator_feed(&gen, t > 3 ? both : both + 1, t > 3 ? 2 : 1);
                EXPECT_NEAR(largest_difference(ahead.logits, whole + t * V), 0, tolerance);
                if (t > 3) { EXPECT_NEAR(largest_difference(behind.logits, whole + (t - 4) * V), 0, tolerance); }
            }
            check_full_context(&g, &gen, &ahead, tolerance);
            token_list_free(&ahead.tokens), token_list_free(&behind.tokens);
            generator_close(&gen);
            gpt2_free(&g);
            free(whole);
        }
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// sampling

// Compares how often tokens are drawn, over evenly spaced random numbers, with their probabilities. The likeliest are
// 5, then 1 and 3 (equal: the lower id first), then 2.
TEST(sampling_keeps_to_top_k_top_p_and_temperature) {
    enum { SIZE = 8, DRAWS = 20000 };
    const float logits[SIZE] = {0.0f, 2.0f, 1.0f, 2.0f, -1.0f, 3.0f, -5.0f, 0.5f};
    const struct {
        Sampling s;
        bool is_possible[SIZE];
    } rows[] = {
        {{.temperature = 0, .top_p = 1}, {[5] = true}},
        {{.temperature = 1, .top_p = 1}, {true, true, true, true, true, true, true, true}},
        {{.temperature = 0.5, .top_p = 1}, {true, true, true, true, true, true, true, true}},
        {{.temperature = 1, .top_k = 3, .top_p = 1}, {[5] = true, [1] = true, [3] = true}},
        {{.temperature = 1, .top_p = 0.5}, {[5] = true, [1] = true}},     // 5 alone has 0.49
        {{.temperature = 0.25, .top_p = 0.9}, {[5] = true}},              // colder: it has 0.96
        {{.temperature = 4, .top_p = 0.5}, {[5] = true, [1] = true, [3] = true}}, // warmer: the three have 0.53
    };
    Candidate scratch[SIZE];
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        const Sampling* s = &rows[r].s;
        int drawn[SIZE] = {0};
        double total = 0;
        for (int i = 0; i < DRAWS; i++) { drawn[sample_token(logits, SIZE, s, (i + 0.5) / DRAWS, scratch)]++; }
        double p[SIZE];
        for (int i = 0; i < SIZE; i++) {
            p[i] = rows[r].is_possible[i] ? exp(logits[i] / fmax(s->temperature, 0.01)) : 0;
            total += p[i];
        }
        for (int i = 0; i < SIZE; i++) { EXPECT_NEAR(drawn[i] / (double)DRAWS, p[i] / total, 1e-4); }
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// texts

enum { MOST_TEXTS = 24, MOST_TOKENS = 128 };

typedef struct {
    int ids[MOST_TOKENS], count;
    TextEnd end;
    double logprobs[MOST_TOKENS];
    Candidate best[MOST_TOKENS][3];
} Written;

static int ending; // a text ends behind a token whose id this divides; 0: behind none

static bool take_token(void* context, const NextToken* token) {
    Written* w = (Written*)context + token->text;
    if (w->count == MOST_TOKENS) { fatal("the text is too long"); }
    w->logprobs[w->count] = token->logprob;
    if (token->best) { memcpy(w->best[w->count], token->best, sizeof w->best[0]); }
    w->ids[w->count++] = token->id;
    return !ending || token->id % ending;
}

static void take_end(void* context, size_t text, TextEnd reason) { ((Written*)context)[text].end = reason; }

// Generates with the tokenizer "bytes" into static memory, which the next call overwrites; NULL on failure.
static Written* write_texts(GPT2* g, const char* const* prompt, size_t count, const GenerateOptions* o, Error* err) {
    static Written written[MOST_TEXTS];
    Tokenizer bytes = tokenizer_open("bytes");
    TokenList tokens[MOST_TEXTS];
    GenerateTimes times;
    const TextSink sink = {.token = take_token, .end = take_end, .context = written};
    memset(written, 0, sizeof written);
    for (size_t i = 0; i < count; i++) { tokens[i] = prompt_tokens(&bytes, prompt[i], strlen(prompt[i])); }
    const bool ok = generate(g, &bytes, tokens, count, o, &sink, &times, err);
    size_t all = 0;
    for (size_t i = 0; i < MOST_TEXTS; i++) { all += (size_t)written[i].count; }
    EXPECT(times.tokens == all && times.first_seconds <= times.seconds);
    for (size_t i = 0; i < count; i++) { token_list_free(&tokens[i]); }
    tokenizer_free(&bytes);
    return ok ? written : NULL;
}

// More texts than are generated at once, some longer than the context. They end at different times, so that one begins
// while others of its prompt have left the beginning of their context.
TEST(a_text_does_not_depend_on_the_others) {
    static const char* const prompts[] = {"a", "abcdefg", "the quick brown fox"};
    enum { PROMPTS = 3, SAMPLES = 7 };
    Error err;
    GenerateOptions o = {.sampling = {.temperature = 1, .top_p = 1, .seed = 3}, .max_tokens = 30, .samples = SAMPLES,
                         .stops_at_eot = true, .alternatives = 3};
    Written together[PROMPTS * SAMPLES];
    ending = 16;
    EACH_CPU_BACKEND(b) {
        b->device_open(&ALONE);
        GPT2 g = open_golden(b);
        int ended[3] = {0};
        o.samples = SAMPLES;
        memcpy(together, write_texts(&g, prompts, PROMPTS, &o, &err), sizeof together);
        for (int i = 0; i < PROMPTS * SAMPLES; i++) {
            const Written* w = &together[i];
            ended[w->end]++;
            EXPECT((w->end == ENDED_BY_SINK) == (w->count > 0 && w->ids[w->count - 1] % ending == 0));
        }
        EXPECT(ended[ENDED_BY_SINK] > 2 && ended[ENDED_BY_LENGTH] > 0);
        EXPECT(memcmp(together[1].ids, together[2].ids, sizeof together[1].ids) != 0);
        for (int p = 0; p < PROMPTS; p++) {
            for (o.samples = 1; o.samples <= SAMPLES; o.samples += SAMPLES - 1) {
                const Written* alone = write_texts(&g, prompts + p, 1, &o, &err);
                EXPECT(!memcmp(alone, together + p * SAMPLES, (size_t)o.samples * sizeof *alone));
            }
        }
        gpt2_free(&g);
    }
    ending = 0;
}

// Both texts take the same random numbers. Other contexts may give the same tokens, but with other probabilities.
TEST(a_text_sees_no_more_than_its_context) {
    static const char* const prompts[] = {"ab", "cb"};
    Error err;
    GenerateOptions o = {.sampling = {.temperature = 1, .top_p = 1, .seed = 3}, .max_tokens = 30, .samples = 1,
                         .alternatives = 3};
    EACH_CPU_BACKEND(b) {
        b->device_open(&ALONE);
        GPT2 g = open_golden(b);
        for (o.context = 0; o.context <= 2; o.context++) {
            const Written* w = write_texts(&g, prompts, 2, &o, &err);
            EXPECT(w[0].count == 30 && !memcmp(&w[0], &w[1], sizeof *w) == (o.context == 1));
        }
        gpt2_free(&g);
    }
}

TEST(log_probabilities_are_pytorchs) {
    enum { TOKENS = 11, BEST = 3 };
    const char* prompts[MOST_TEXTS];
    Error err;
    const GenerateOptions o = {.max_tokens = TOKENS, .samples = 1, .alternatives = BEST};
    json_t *golden = json_read("test/golden/gpt2/greedy.json", SIZE_MAX, 0, &err), *text, *token;
    size_t t, i;
    json_array_foreach(golden, t, text) { prompts[t] = json_string_value(json_object_get(text, "prompt")); }
    EACH_CPU_BACKEND(b) {
        if (stores_16_bits(b)) { continue; } // their likeliest token may be another
        b->device_open(&ALONE);
        GPT2 g = open_golden(b);
        const Written* w = write_texts(&g, prompts, json_array_size(golden), &o, &err);
        json_array_foreach(golden, t, text) {
            EXPECT(w[t].count == TOKENS && w[t].end == ENDED_BY_LENGTH);
            json_array_foreach(json_object_get(text, "tokens"), i, token) {
                const json_t *ids = json_object_get(token, "best"), *logprobs = json_object_get(token, "logprobs");
                EXPECT(w[t].ids[i] == json_integer_value(json_object_get(token, "id")));
                EXPECT_NEAR(w[t].logprobs[i], json_number_value(json_array_get(logprobs, 0)), 2e-5);
                for (size_t k = 0; k < BEST; k++) {
                    EXPECT(w[t].best[i][k].id == json_integer_value(json_array_get(ids, k)));
                    EXPECT_NEAR(w[t].best[i][k].logit, json_number_value(json_array_get(logprobs, k)), 2e-5);
                }
            }
        }
        gpt2_free(&g);
    }
    EXPECT(t == 4);
    json_decref(golden);
}

// A model whose weights are all zero: every token is as likely as any other.
static GPT2 open_zeros(const Backend* b) {
    Error err;
    GPT2Config m;
    GPT2 g;
    EXPECT(model_parse("L=1,H=1,C=4,T=8,V=257", true, &m, &err));
    gpt2_layout(&g, b, &m, 1, 8, FORWARD_ONLY, 1);
    gpt2_alloc(&g);
    for (size_t i = 0; i < g.params_table.size; i++) { gpt2_put(&g, i, &(const float){0}, 1); }
    b->params_changed();
    return g;
}

TEST(each_token_takes_its_own_random_number_and_end_of_text_ends) {
    enum { COUNT = 120, EOT = 256, SAMPLES = 2 };
    static const char* const prompt = "ab";
    Error err;
    EACH_CPU_BACKEND(b) {
        b->device_open(&ALONE);
        GPT2 g = open_zeros(b);
        int ended[2] = {0};
        for (uint64_t seed = 0; seed < 20; seed++) {
            const bool stops = seed != 7;
            const GenerateOptions o = {.sampling = {.temperature = 1, .top_p = 1, .seed = seed}, .max_tokens = COUNT,
                                       .samples = SAMPLES, .stops_at_eot = stops};
            const Written* w = write_texts(&g, &prompt, 1, &o, &err);
            for (uint64_t s = 0; s < SAMPLES; s++) {
                uint64_t i = 0;
                for (; i < COUNT; i++) {
                    const int id = (int)(rng_uniform(seed, RNG_SAMPLE, s << 32 | i) * 257);
                    if (id == EOT && stops) { break; }
                    EXPECT(w[s].ids[i] == id);
                }
                EXPECT(w[s].count == (int)i && w[s].end == (i < COUNT ? ENDED_BY_EOT : ENDED_BY_LENGTH));
                ended[w[s].end]++;
            }
        }
        EXPECT(ended[ENDED_BY_EOT] > 2 && ended[ENDED_BY_LENGTH] > 2);
        gpt2_free(&g);
    }
}

TEST_MAIN()
