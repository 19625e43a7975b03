// The model against PyTorch's recorded values (test/golden/gpt2, made by dev/golden/gpt2.py): logits, loss, every
// gradient, ten AdamW steps; and against itself: recomputation, splits of a batch, generation with a cache, files.
#include "../llmc/cpu/kernels.h"
#include "../llmc/comm.h"
#include "../llmc/commands.h"
#include "../llmc/compare.h"
#include "test.h"

Cpu cpu;

// Options live as long as the program, so nobody frees their texts: LeakSanitizer need not look.
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void) { return 1; }

static const char GOLDEN[] = "test/golden/gpt2";
enum { B = 3, T = 17, V = 269 };

static SafeTensors open_recorded(void) {
    Error err;
    SafeTensors s;
    if (!safetensors_open(&s, "test/golden/gpt2/recorded.safetensors", &err)) { fatal("%s", err.text); }
    return s;
}

static double* recorded(const SafeTensors* s, const char* name, size_t n) {
    Error err;
    const SafeTensor* t = safetensors_find(s, name);
    if (!t || safetensor_elements(t) != n) { fatal("recorded.safetensors: no %s of %zu elements", name, n); }
    float* x = (float*)alloc_or_die(n, sizeof *x, name);
    double* out = (double*)alloc_or_die(n, sizeof *out, name);
    if (!safetensors_read_float(s, t, 0, x, n, &err)) { fatal("%s", err.text); }
    for (size_t i = 0; i < n; i++) { out[i] = x[i]; }
    free(x);
    return out;
}

static void sort_tokens(int* order, const int* tokens, size_t n) {
    int counts[V + 1];
    data_sort(order, tokens, n, counts, V);
}

// The recorded batch as a Batch of the loader.
static Batch recorded_batch(const SafeTensors* s) {
    Error err;
    Batch b;
    memset(&b, 0, sizeof b);
    b.rows = B, b.T = T;
    b.tokens = (int*)alloc_or_die(3 * B * T, sizeof(int), "a batch");
    b.targets = b.tokens + B * T;
    b.order = b.targets + B * T;
    if (!safetensors_read(s, safetensors_find(s, "x"), 0, b.tokens, B * T * sizeof(int), &err) ||
        !safetensors_read(s, safetensors_find(s, "y"), 0, b.targets, B * T * sizeof(int), &err)) {
        fatal("%s", err.text);
    }
    sort_tokens(b.order, b.tokens, B * T);
    return b;
}

// Rows first .. first+rows-1 of a batch; `memory` holds 3 * rows * T.
static Batch batch_rows(const Batch* b, int first, int rows, int* memory) {
    Batch part = *b;
    const size_t n = (size_t)rows * b->T, at = (size_t)first * b->T;
    part.tokens = memory, part.targets = memory + n, part.order = memory + 2 * n, part.rows = rows;
    memcpy(part.tokens, b->tokens + at, n * sizeof(int));
    memcpy(part.targets, b->targets + at, n * sizeof(int));
    sort_tokens(part.order, part.tokens, n);
    return part;
}

static GPT2 open_golden(int max_rows, Keep keep, bool pad) {
    Error err;
    GPT2Config shape;
    GPT2 g;
    if (!hf_load_config(GOLDEN, pad, &shape, &err)) { fatal("%s", err.text); }
    gpt2_layout(&g, &shape, max_rows, T, keep);
    gpt2_alloc(&g);
    if (!hf_load_weights(&g, GOLDEN, &err)) { fatal("%s", err.text); }
    return g;
}

// Adds the gradients of the mean loss over `tokens` tokens.
static void forward_backward(GPT2* g, const Batch* b, int tokens, GradsReady ready, void* context) {
    batch_to_device(g, b);
    gpt2_forward(g, b->rows, b->T, NULL);
    gpt2_backward(g, b->rows, b->T, (float)(1.0 / tokens), ready, context);
}

static double loss_of(const GPT2* g, int tokens) { return g->sums[SUM_LOSS] / tokens; }

// Gradients by tensor in the recorded order and layout, handed to `check`.
typedef void (*GradientCheck)(const char* name, const double* got, const double* want, size_t n);
static void each_gradient(const GPT2* g, const SafeTensors* s, GradientCheck check) {
    const TensorBlock block = {"grad.transformer.", g->grads, true};
    TensorBuffers b = tensor_buffers(&g->params_table);
    for (int i = 0; i < g->params_table.count; i++) {
        for (int l = 0; l < g->params_table.row[i].layers; l++) {
            const size_t n = tensor_fetch(&b, &g->params_table.row[i], l, &block);
            char* name = tensor_file_name(&g->params_table.row[i], l, block.prefix);
            double *want = recorded(s, name, n), *got = (double*)alloc_or_die(n, sizeof *got, name);
            for (size_t j = 0; j < n; j++) { got[j] = b.file[j]; }
            check(name, got, want, n);
            free(want);
            free(got);
            free(name);
        }
    }
    tensor_buffers_free(&b);
}

static int gradients_checked;
static void check_gradient(const char* name, const double* got, const double* want, size_t n) {
    const double error = compare(got, want, n).error;
    if (!(error < 2e-5)) { TEST_FAIL("%s is off PyTorch's by %.3g", name, error); }
    gradients_checked++;
}

TEST(logits_loss_and_every_gradient_equal_pytorch) {
    const Kernels kernels[2] = {KERNELS_PLAIN, KERNELS_FAST};
    SafeTensors s = open_recorded();
    Batch batch = recorded_batch(&s);
    double *logits = recorded(&s, "logits", (size_t)B * T * V), *loss = recorded(&s, "loss", 1);
    for (int k = 0; k < 2; k++) {
        cpu_open(0, kernels[k]);
        GPT2 g = open_golden(B, KEEP_ALL, k == 0);
        float* out = (float*)device_alloc(sizeof(float) * B * T * V, "logits");
        double* got = (double*)alloc_or_die((size_t)B * T * V, sizeof *got, "logits");
        gpt2_zero_grads(&g);
        forward_backward(&g, &batch, B * T, NULL, NULL);
        gpt2_logits(&g, out, 0, B * T);
        double worst = 0;
        for (int i = 0; i < B * T * V; i++) { worst = fmax(worst, fabs(out[i] - logits[i])), got[i] = out[i]; }
        EXPECT_NEAR(worst, 0, 1e-4);
        EXPECT_NEAR(compare(got, logits, (size_t)B * T * V).error, 0, 2e-6);
        EXPECT_NEAR(loss_of(&g, B * T), loss[0], 1e-5);
        gradients_checked = 0;
        each_gradient(&g, &s, check_gradient);
        EXPECT(gradients_checked == 4 + 12 * 3);
        device_free(out, sizeof(float) * B * T * V);
        free(got);
        gpt2_free(&g);
    }
    safetensors_close(&s);
}

TEST(ten_adamw_steps_follow_pytorch) {
    cpu_open(0, KERNELS_FAST);
    SafeTensors s = open_recorded();
    Batch batch = recorded_batch(&s);
    double *losses = recorded(&s, "losses", 10), *norms = recorded(&s, "norms", 10);
    GPT2 g = open_golden(B, RECOMPUTE_ALL, true);
    for (int step = 0; step < 10; step++) {
        gpt2_zero_grads(&g);
        forward_backward(&g, &batch, B * T, NULL, NULL);
        gpt2_grad_norm(&g);
        EXPECT_NEAR(loss_of(&g, B * T), losses[step], 1e-4);
        EXPECT_NEAR(sqrt(g.sums[SUM_NORM]) / norms[step], 1, 1e-4);
        const AdamW hyper = {1e-3f, 0.9f, 0.95f, 1e-8f, 0.1f, 1.0f, step + 1, 0};
        gpt2_update(&g, &hyper);
    }
    const Tensor* wte = &g.params_table.row[0];
    for (size_t i = (size_t)V * wte->cols; i < tensor_elements(wte); i++) {
        EXPECT(g.params[i] == 0);
    } // padding never moves
    gpt2_free(&g);
    safetensors_close(&s);
}

// Gradients after one pass over the recorded batch, in parts of these sizes.
static float* split_gradients(Keep keep, const int* parts, int count, double* loss) {
    SafeTensors s = open_recorded();
    Batch batch = recorded_batch(&s);
    int memory[3 * B * T];
    GPT2 g = open_golden(B, keep, true);
    gpt2_zero_grads(&g);
    for (int i = 0, first = 0; i < count; first += parts[i++]) {
        Batch part = batch_rows(&batch, first, parts[i], memory);
        forward_backward(&g, &part, B * T, NULL, NULL);
    }
    *loss = loss_of(&g, B * T);
    const size_t n = g.params_table.size;
    float* grads = (float*)alloc_or_die(n, sizeof *grads, "gradients");
    memcpy(grads, g.grads, n * sizeof *grads);
    gpt2_free(&g);
    safetensors_close(&s);
    return grads;
}

TEST(recomputing_activations_changes_no_bit) {
    cpu_open(0, KERNELS_FAST);
    const int whole[1] = {B};
    const Keep keep[3] = {KEEP_ALL, RECOMPUTE_GELU, RECOMPUTE_ALL};
    float* grads[3];
    double loss[3];
    for (int i = 0; i < 3; i++) { grads[i] = split_gradients(keep[i], whole, 1, &loss[i]); }
    GPT2 g = open_golden(B, KEEP_ALL, true);
    for (int i = 1; i < 3; i++) {
        EXPECT(loss[i] == loss[0]);
        EXPECT(memcmp(grads[i], grads[0], g.params_table.size * sizeof(float)) == 0);
    }
    TensorTable all = gpt2_acts_table(&g.config, B, T, KEEP_ALL),
                gelu = gpt2_acts_table(&g.config, B, T, RECOMPUTE_GELU);
    TensorTable none = gpt2_acts_table(&g.config, B, T, RECOMPUTE_ALL);
    EXPECT(none.size < gelu.size && gelu.size < all.size);
    gpt2_free(&g);
}

TEST(a_batch_in_parts_gives_the_gradient_of_the_whole) {
    cpu_open(0, KERNELS_FAST);
    const int whole[1] = {3}, single[3] = {1, 1, 1}, uneven[2] = {2, 1};
    double loss[3];
    float* grads[3] = {split_gradients(KEEP_ALL, whole, 1, &loss[0]), split_gradients(KEEP_ALL, single, 3, &loss[1]),
                       split_gradients(KEEP_ALL, uneven, 2, &loss[2])};
    GPT2 g = open_golden(B, KEEP_ALL, true);
    for (int i = 1; i < 3; i++) {
        EXPECT_NEAR(loss[i] / loss[0], 1, 1e-6);
        double difference = 0, size = 0;
        for (size_t j = 0; j < g.params_table.size; j++) {
            difference += pow((double)grads[i][j] - grads[0][j], 2);
            size += pow(grads[0][j], 2);
        }
        EXPECT_NEAR(sqrt(difference / size), 0, 1e-6);
    }
    gpt2_free(&g);
}

TEST(tied_embedding_gets_both_gradients) {
    cpu_open(0, KERNELS_FAST);
    SafeTensors s = open_recorded();
    Batch batch = recorded_batch(&s);
    GPT2 g = open_golden(B, KEEP_ALL, true);
    const GPT2Config* m = &g.config;
    const int C = m->channels;
    const size_t n = (size_t)m->padded_vocab_size * C;
    gpt2_zero_grads(&g);
    forward_backward(&g, &batch, B * T, NULL, NULL);
    Acts a = acts_at(&g, 0);
    Params p = params_at(&g, 0);
    float *parts = (float*)device_alloc(n * sizeof(float), "head + embedding"),
          *wpe = (float*)device_alloc(sizeof(float) * m->max_seq_len * C, "wpe");
    encoder_backward(parts, wpe, a.dresidual, g.tokens, g.order, B, T,
                     C); // what is left there is the embedding's gradient
    double embedding = 0;
    for (size_t i = 0; i < n; i++) { embedding += fabs((double)parts[i]); }
    classifier_backward(a.losses, a.dbtc, parts, a.logits, a.lnf, p.wte, g.targets, (float)(1.0 / (B * T)), 64, B * T,
                        C, V, m->padded_vocab_size);
    double error = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        error += fabs((double)parts[i] - grads_at(&g, 0).wte[i]), size += fabs((double)parts[i]);
    }
    EXPECT(embedding > 0.05 * size);
    EXPECT_NEAR(error / size, 0, 1e-6);
    gpt2_free(&g);
    safetensors_close(&s);
}

typedef struct {
    const GPT2* g;
    float* seen; // the gradient as it was when its range was reported
    unsigned char* reported;
    int calls;
} ReadyLog;

static void log_ready(void* context, float* grads, TensorRange range) {
    ReadyLog* log = (ReadyLog*)context;
    for (size_t i = range.begin; i < range.begin + range.size; i++) {
        log->reported[i]++;
        log->seen[i] = grads[i];
    }
    log->calls++;
}

TEST(ranges_of_gradients_are_final_when_reported_and_cover_all_once) {
    cpu_open(0, KERNELS_FAST);
    SafeTensors s = open_recorded();
    Batch batch = recorded_batch(&s);
    GPT2 g = open_golden(B, KEEP_ALL, true);
    const size_t n = g.params_table.size;
    ReadyLog log = {&g, (float*)alloc_or_die(n, sizeof(float), "log"), (unsigned char*)alloc_or_die(n, 1, "log"), 0};
    gpt2_zero_grads(&g);
    forward_backward(&g, &batch, B * T, log_ready, &log);
    EXPECT(log.calls == g.config.num_layers + 2);
    EXPECT(memcmp(log.seen, g.grads, n * sizeof(float)) == 0);
    for (size_t i = 0; i < n; i++) { EXPECT(log.reported[i] == 1); }
    gpt2_free(&g);
    safetensors_close(&s);
}

TEST(one_batch_can_be_learnt_by_heart) {
    cpu_open(0, KERNELS_FAST);
    SafeTensors s = open_recorded();
    Batch batch = recorded_batch(&s);
    GPT2 g = open_golden(B, KEEP_ALL, true);
    double loss = 0;
    for (int step = 0; step < 150; step++) {
        gpt2_zero_grads(&g);
        forward_backward(&g, &batch, B * T, NULL, NULL);
        gpt2_grad_norm(&g);
        loss = loss_of(&g, B * T);
        const AdamW hyper = {3e-3f, 0.9f, 0.95f, 1e-8f, 0.0f, 1.0f, step + 1, 0};
        gpt2_update(&g, &hyper);
    }
    EXPECT(loss < 0.1);
    gpt2_free(&g);
    safetensors_close(&s);
}

// ---------------------------------------------------------------------------------------------------------------------
// generation

TEST(decoding_with_a_cache_gives_the_logits_of_the_whole) {
    cpu_open(0, KERNELS_PLAIN); // one way of summing for any number of rows
    SafeTensors s = open_recorded();
    double* logits = recorded(&s, "logits", (size_t)B * T * V);
    Batch batch = recorded_batch(&s);
    GPT2 g = open_golden(1, FORWARD_ONLY, true);
    Generator gen = generator_open(&g);
    for (int t = 0; t < T; t++) {
        token_list_append(&gen.tokens, batch.tokens[t]);
        if (t % 5 == 2) { continue; } // so that some are fed in pairs
        generator_feed(&gen);
        for (int v = 0; v < V; v++) { EXPECT_NEAR(gen.logits[v], logits[(size_t)t * V + v], 1e-4); }
    }
    // the context is full after 19 positions: it goes on with the last half
    for (int t = 0; t < 30; t++) {
        token_list_append(&gen.tokens, batch.tokens[t]);
        generator_feed(&gen);
        EXPECT(gen.cache.length <= g.config.max_seq_len && gen.fed == gen.tokens.count);
        if (gen.tokens.count == 20) { EXPECT(gen.cache.length == 9); } // and makes room for more than one
    }
    Generator anew = generator_open(&g); // what it says then is what it says of these tokens alone
    for (size_t i = gen.tokens.count - (size_t)gen.cache.length; i < gen.tokens.count; i++) {
        token_list_append(&anew.tokens, gen.tokens.ids[i]);
    }
    generator_feed(&anew);
    for (int v = 0; v < V; v++) { EXPECT_NEAR(anew.logits[v], gen.logits[v], 1e-5); }
    generator_close(&anew);
    generator_close(&gen);
    gpt2_free(&g);
    safetensors_close(&s);
}

TEST(sampling_keeps_to_top_k_top_p_and_temperature) {
    float logits[8] = {0.0f, 2.0f, 1.0f, 2.0f, -1.0f, 3.0f, -5.0f, 0.5f};
    Candidate scratch[8];
    Sampling s = {0.0, 0, 1.0, 1};
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
    float logits[4] = {2.0f, 1.0f, 0.0f, -9.0f};
    Candidate scratch[4];
    const Sampling cold = {0.25, 0, 0.9, 1},
                   warm = {4.0, 0, 0.9, 1}; // 0 has 0.98 of it when cold; warm, 0, 1 and 2 have 0.98
    int least = 4, most = 0;
    for (int i = 0; i < 1000; i++) {
        const double u = (i + 0.5) / 1000;
        EXPECT(sample_token(logits, 4, &cold, u, scratch) == 0);
        const int id = sample_token(logits, 4, &warm, u, scratch);
        least = id < least ? id : least, most = id > most ? id : most;
    }
    EXPECT(least == 0 && most == 2);
}

TEST(each_token_takes_its_own_random_number_and_end_of_text_ends) {
    Error err;
    GPT2Config m;
    GPT2 g;
    cpu_open(0, KERNELS_FAST);
    Tokenizer bytes = tokenizer_open("bytes");
    model_parse("L=1,H=1,C=4,T=8,V=257", true, &m, &err);
    gpt2_layout(&g, &m, 1, 8, FORWARD_ONLY);
    gpt2_alloc(&g); // all weights are zero: every token is as likely as any other
    int ended = 0, full = 0;
    for (uint64_t seed = 0; seed < 20; seed++) {
        enum { COUNT = 120 };
        const Sampling s = {1.0, 0, 1.0, seed};
        TextBuffer b = {NULL, 0};
        generate(&g, &bytes, "ab", COUNT, &s, text_append, &b);
        size_t i = 0;
        for (; i < COUNT; i++) {
            const int id = (int)(rng_uniform(seed, RNG_SAMPLE, i) * 257);
            if (id == bytes.eot) { break; }
            EXPECT(i < b.bytes && (unsigned char)b.text[i] == id);
        }
        EXPECT(b.bytes == i);
        ended += i < COUNT, full += i == COUNT;
        free(b.text);
    }
    EXPECT(ended > 2 && full > 2);
    tokenizer_free(&bytes);
    gpt2_free(&g);
}

// ---------------------------------------------------------------------------------------------------------------------
// shapes, initial values, files

static size_t parameters_of(const char* model) {
    Error err;
    GPT2Config m;
    if (!model_parse(model, true, &m, &err)) { fatal("%s", err.text); }
    TensorTable table = gpt2_params_table(&m);
    EXPECT(tensors_count(&table, true).elements + tensors_count(&table, false).elements == model_parameters(&m));
    return model_parameters(&m);
}

TEST(named_models_have_the_published_numbers_of_parameters) {
    Error err;
    GPT2Config m;
    EXPECT(parameters_of("d12") == 124439808);
    EXPECT(parameters_of("gpt2-medium") == 354823168);
    EXPECT(parameters_of("d36") == 774030080);
    EXPECT(parameters_of("gpt2-xl") == 1557611200);
    EXPECT(parameters_of("gpt3:125m") == 125226240);
    EXPECT(parameters_of("L=6,H=6,C=384,T=256,V=257") == (257 + 256) * 384 + 6 * (12 * 384 * 384 + 13 * 384) + 2 * 384);
    EXPECT(model_parse("d12", true, &m, &err) && m.padded_vocab_size == 50304);
    TensorTable table = gpt2_params_table(&m);
    EXPECT(tensors_count(&table, true).tensors == 50 && tensors_count(&table, true).elements == 124318464);
    EXPECT(tensors_count(&table, false).tensors == 98 && tensors_count(&table, false).elements == 121344);
    EXPECT(table.size == 124475904);
    EXPECT(!model_parse("L=6,H=5,C=384,T=256", true, &m, &err) &&
           strstr(err.text, "384 channels cannot be shared by 5 heads"));
    EXPECT(!model_parse("L=6,H=6,T=256", true, &m, &err) && strstr(err.text, "C is missing"));
    EXPECT(!model_parse("L=6,H=6,C=x,T=256", true, &m, &err) && strstr(err.text, "'C=x,T=256'"));
    EXPECT(!model_parse("gpt5", true, &m, &err));
}

static double spread(const float* x, size_t n) {
    double squares = 0;
    for (size_t i = 0; i < n; i++) { squares += (double)x[i] * x[i]; }
    return sqrt(squares / (double)n);
}

TEST(initial_weights_have_the_published_spread_and_do_not_depend_on_padding) {
    Error err;
    GPT2Config m;
    GPT2 g, h;
    cpu_open(0, KERNELS_FAST);
    model_parse("L=8,H=4,C=128,T=200,V=500", true, &m, &err);
    gpt2_layout(&g, &m, 1, 16, FORWARD_ONLY);
    gpt2_alloc(&g);
    init_weights(&g, 7, 0.01);
    Params p = params_at(&g, 5);
    EXPECT_NEAR(spread(p.wte, 500 * 128), 0.02, 3e-4);
    EXPECT_NEAR(spread(p.wpe, 200 * 128), 0.01, 3e-4);
    EXPECT_NEAR(spread(p.qkvw, 3 * 128 * 128), 0.02, 3e-4);
    EXPECT_NEAR(spread(p.attprojw, 128 * 128), 0.02 / 4, 1e-4); // 1/sqrt(2 * 8)
    EXPECT_NEAR(spread(p.fcprojw, 4 * 128 * 128), 0.02 / 4, 1e-4);
    EXPECT(spread(p.wte + 500 * 128, 12 * 128) == 0 && spread(p.qkvb, 3 * 128) == 0 && spread(p.ln1w, 128) == 1 &&
           p.ln1w[0] == 1);
    EXPECT(memcmp(params_at(&g, 4).fcw, p.fcw, sizeof(float) * 128) != 0);
    m.padded_vocab_size = 500;
    gpt2_layout(&h, &m, 1, 16, FORWARD_ONLY);
    gpt2_alloc(&h);
    init_weights(&h, 7, 0.01);
    EXPECT(memcmp(params_at(&h, 5).wte, p.wte, sizeof(float) * 500 * 128) == 0);
    EXPECT(memcmp(params_at(&h, 5).fcw, p.fcw, sizeof(float) * 512 * 128) == 0);
    gpt2_free(&g);
    gpt2_free(&h);
}

TEST(the_residual_stream_does_not_grow_with_depth) { // 100 additions of N(0,1) give 10; scaled by 1/sqrt(100), 1
    double plain = 0, scaled = 0;
    for (uint64_t i = 0; i < 768; i++) {
        double x = 0, y = 0;
        for (uint64_t k = 0; k < 100; k++) {
            const double n = rng_normal(3, RNG_TEST, i * 100 + k);
            x += n, y += n / sqrt(100.0);
        }
        plain += x * x, scaled += y * y;
    }
    EXPECT_NEAR(sqrt(plain / 768), 10, 0.8);
    EXPECT_NEAR(sqrt(scaled / 768), 1, 0.08);
}

TEST(a_model_saved_and_loaded_is_the_same_and_damage_is_named) {
    Error err;
    cpu_open(0, KERNELS_FAST);
    GPT2 g = open_golden(B, KEEP_ALL, true), h = open_golden(B, KEEP_ALL, false);
    Config c;
    config_defaults(&c);
    TrainState s, back;
    memset(&s, 0, sizeof s);
    memset(&back, 0, sizeof back);
    s.step = 7, s.tokens = 700, s.window = 41, s.data_hash = 0xfedcba9876543210ull;
    outlier_update(&s.loss_window, 1.0 / 3);
    for (size_t i = 0; i < g.params_table.size; i++) { g.m[i] = rng_normal(1, RNG_TEST, i), g.v[i] = g.m[i] * g.m[i]; }
    for (size_t i = (size_t)V * 36; i < (size_t)384 * 36; i++) { g.m[i] = g.v[i] = 0; }
    char* path = checkpoint_save(test_folder, &g, &s, &c, 268, &err);
    if (!path) { fatal("%s", err.text); }
    json_t* state = checkpoint_verify(path, &err);
    EXPECT(state && checkpoint_load(&h, &back, path, state, &err));
    EXPECT(back.step == 7 && back.tokens == 700 && back.window == 41 && back.data_hash == s.data_hash);
    EXPECT(back.loss_window.count == 1 && back.loss_window.values[0] == 1.0 / 3);
    for (int i = 0; i < g.params_table.count; i++) {
        const Tensor *a = &g.params_table.row[i], *b = &h.params_table.row[i];
        for (int l = 0; l < a->layers; l++) {
            const size_t bytes = a->used_rows * a->cols * sizeof(float);
            EXPECT(!memcmp(g.masters + tensor_at(a, l), h.masters + tensor_at(b, l), bytes));
            EXPECT(!memcmp(g.m + tensor_at(a, l), h.m + tensor_at(b, l), bytes) &&
                   !memcmp(g.v + tensor_at(a, l), h.v + tensor_at(b, l), bytes));
        }
    }
    static const char* const files[] = {"model.safetensors", "optimizer.safetensors", "state.json"};
    for (int i = 0; i < 3; i++) { // one bit
        char* file = format("%s/%s", path, files[i]);
        FILE* f = fopen(file, "r+b");
        fseek(f, i < 2 ? 100000 : 60, SEEK_SET);
        const int byte = fgetc(f);
        fseek(f, -1, SEEK_CUR);
        fputc(byte ^ 4, f);
        fclose(f);
        EXPECT(!checkpoint_verify(path, &err));
        EXPECT(strstr(err.text, i < 2 ? "is damaged" : "state.json"));
        f = fopen(file, "r+b");
        fseek(f, i < 2 ? 100000 : 60, SEEK_SET);
        fputc(byte, f);
        fclose(f);
        json_t* whole = checkpoint_verify(path, &err);
        EXPECT(whole != NULL);
        json_decref(whole);
    }
    json_decref(state);
    free(path);
    gpt2_free(&g);
    gpt2_free(&h);
}

// ---------------------------------------------------------------------------------------------------------------------
// what fits into memory

static size_t bytes_of_run(const GPT2Config* m, const Config* c, int batch, int seq_len, Keep keep) {
    GPT2 g;
    gpt2_layout(&g, m, batch, seq_len, keep);
    return run_bytes(&g, c);
}

// It fits and the next one does not; more memory never means less; nor does computing more again.
TEST(the_largest_batch_is_the_largest) {
    enum { MOST = 300, SEQ_LEN = 128, STEPS = 40 };
    static const char* const models[2] = {"L=2,H=2,C=32,T=128,V=257", "gpt2"};
    Config c;
    GPT2Config m;
    Error err;
    cpu_open(0, KERNELS_FAST);
    config_defaults(&c);
    for (int i = 0; i < 2; i++) {
        EXPECT(model_parse(models[i], true, &m, &err));
        const size_t one = bytes_of_run(&m, &c, 1, SEQ_LEN, KEEP_ALL);
        const size_t most = bytes_of_run(&m, &c, MOST, SEQ_LEN, KEEP_ALL);
        int before[NUM_KEEPS] = {0, 0, 0}, between = 0;
        for (int step = 0; step <= STEPS; step++) {
            const size_t bytes = one - 1 + (most - one + 1) / STEPS * (size_t)step;
            for (int k = 0; k < NUM_KEEPS; k++) {
                const int fits = largest_batch(&c, &m, MOST, SEQ_LEN, KEEPS[k].keep, NULL, bytes);
                EXPECT(fits >= before[k] && fits <= MOST && (k == 0 || fits >= before[k - 1]));
                EXPECT(fits == 0 || bytes_of_run(&m, &c, fits, SEQ_LEN, KEEPS[k].keep) <= bytes);
                EXPECT(fits == MOST || bytes_of_run(&m, &c, fits + 1, SEQ_LEN, KEEPS[k].keep) > bytes);
                between += fits > 0 && fits < MOST;
                before[k] = fits;
            }
            if (step == 0) { EXPECT(before[0] == 0); }
        }
        EXPECT(between > STEPS / 2);
        EXPECT(largest_batch(&c, &m, MOST, SEQ_LEN, KEEP_ALL, NULL, most) == MOST);
    }
}

TEST(a_batch_divides_the_windows_of_a_step) {
    EXPECT(dividing_batch(7, 12) == 6 && dividing_batch(12, 12) == 12 && dividing_batch(4, 7) == 1);
    EXPECT(dividing_batch(0, 12) == 0);
}

TEST_MAIN()
