#include "generate.h"
#include "rng.h"

// Orders by falling logit; equal ones by id, so that the result does not depend on the library's qsort().
static int candidate_order(const void* a, const void* b) {
    const Candidate *x = (const Candidate*)a, *y = (const Candidate*)b;
    if (x->logit != y->logit) { return x->logit < y->logit ? 1 : -1; }
    return (x->id > y->id) - (x->id < y->id);
}

// Moves the k likeliest of V candidates to the front, in order. Most others cost one comparison.
static void candidates_select(Candidate* c, int k, int V) {
    qsort(c, (size_t)k, sizeof *c, candidate_order);
    for (int i = k; i < V; i++) {
        if (candidate_order(&c[i], &c[k - 1]) > 0) { continue; }
        int at = k - 1;
        const Candidate mine = c[i];
        for (; at > 0 && candidate_order(&mine, &c[at - 1]) < 0; at--) { c[at] = c[at - 1]; }
        c[at] = mine;
    }
}

int sample_token(const float* logits, int V, const Sampling* s, double u, Candidate* candidates) {
    const int k = s->temperature == 0 ? 1 : s->top_k > 0 && s->top_k < V ? s->top_k : V;
    for (int v = 0; v < V; v++) {
        candidates[v].logit = logits[v];
        candidates[v].id = v;
    }
    candidates_select(candidates, k, V);
    if (k == 1) { return candidates[0].id; }
    double total = 0, kept = 0;
    for (int i = 0; i < k; i++) { total += exp(((double)candidates[i].logit - candidates[0].logit) / s->temperature); }
    int count = 0; // the fewest that hold top_p of the probability
    for (; count < k && (count == 0 || kept < s->top_p * total); count++) {
        kept += exp(((double)candidates[count].logit - candidates[0].logit) / s->temperature);
    }
    double left = u * kept;
    for (int i = 0; i < count; i++) {
        left -= exp(((double)candidates[i].logit - candidates[0].logit) / s->temperature);
        if (left < 0) { return candidates[i].id; }
    }
    return candidates[count - 1].id;
}

Generator generator_open(GPT2* model) {
    const size_t V = (size_t)model->config.vocab_size;
    Generator g;
    memset(&g, 0, sizeof g);
    g.model = model;
    g.cache = kv_cache_alloc(model);
    g.device_logits = model->backend->device_alloc(V * sizeof(float), "logits");
    g.logits = alloc_or_die(V, sizeof(float), "logits");
    g.candidates = alloc_or_die(V, sizeof *g.candidates, "candidates for the next token");
    return g;
}

void generator_close(Generator* g) {
    kv_cache_free(g->model, &g->cache);
    g->model->backend->device_free(g->device_logits, (size_t)g->model->config.vocab_size * sizeof(float));
    free(g->logits);
    free(g->candidates);
    token_list_free(&g->tokens);
}

void generator_feed(Generator* g) {
    const int rows = g->model->B * g->model->T, V = g->model->config.vocab_size;
    const size_t capacity = (size_t)g->cache.capacity, count = g->tokens.count;
    if ((size_t)g->cache.length + count - g->fed > capacity) {
        g->fed = count - min_size(count, max_size(capacity / 2, 1));
        g->cache.length = 0;
    }
    int n = 0;
    while (g->fed < count) {
        n = (int)min_size(count - g->fed, (size_t)rows);
        g->model->backend->device_copy_in(g->model->tokens, g->tokens.ids + g->fed, (size_t)n * sizeof(int));
        gpt2_forward(g->model, 1, n, &g->cache);
        g->fed += (size_t)n;
    }
    gpt2_logits(g->model, g->device_logits, n - 1, 1);
    g->model->backend->device_copy_out(g->logits, g->device_logits, (size_t)V * sizeof(float));
}

// Fails if one of the logits is not finite: there is no likeliest token then.
static bool check_logits(const float* logits, int V, Error* err) {
    for (int v = 0; v < V; v++) {
        if (!isfinite(logits[v])) {
            return fail(err, "the logit of token %d is %f: the weights are damaged or have overflowed", v,
                        (double)logits[v]);
        }
    }
    return true;
}

bool generate(GPT2* model, const Tokenizer* tokenizer, const char* prompt, size_t count, const Sampling* s,
              TextSink sink, void* context, Error* err) {
    bool ok = true;
    Generator g = generator_open(model);
    tokenizer_encode(tokenizer, prompt, strlen(prompt), &g.tokens);
    if (g.tokens.count == 0) { token_list_append(&g.tokens, tokenizer->eot); }
    for (size_t i = 0; i < count; i++) {
        generator_feed(&g);
        ok = check_logits(g.logits, model->config.vocab_size, err);
        if (!ok) { break; }
        const int id =
            sample_token(g.logits, model->config.vocab_size, s, rng_uniform(s->seed, RNG_SAMPLE, i), g.candidates);
        if (id == tokenizer->eot) { break; }
        size_t bytes = 0;
        const char* text = tokenizer_token(tokenizer, id, &bytes);
        if (text && !sink(context, text, bytes)) { break; } // an id without a text: the model's vocabulary is larger
        token_list_append(&g.tokens, id);
    }
    generator_close(&g);
    return ok;
}

bool tokenizer_fits(const Tokenizer* t, const GPT2Config* m, const char* option, Error* err) {
    if (t->vocab_size <= m->vocab_size) { return true; }
    return fail(err,
                "--tokenizer %s has %d tokens, the model's vocabulary only %d: give the tokenizer that its data was "
                "prepared with",
                option, t->vocab_size, m->vocab_size);
}
