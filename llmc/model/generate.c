#include "generate.h"
#include "../base/rng.h"

// Orders by falling logit; equal ones by id, so that the result does not depend on the library's qsort().
static int candidate_order(const void* a, const void* b) {
    const Candidate *x = (const Candidate*)a, *y = (const Candidate*)b;
    if (x->logit != y->logit) { return x->logit < y->logit ? 1 : -1; }
    return (x->id > y->id) - (x->id < y->id);
}

static void candidates_of(Candidate* c, const float* logits, int V) {
    for (int v = 0; v < V; v++) { c[v] = (Candidate){.logit = logits[v], .id = v}; }
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

void candidates_best(Candidate* candidates, const float* scores, int k, int V) {
    candidates_of(candidates, scores, V);
    candidates_select(candidates, min_int(k, V), V);
}

double candidates_logprobs(Candidate* candidates, const float* logits, int k, int V) {
    double sum = 0;
    candidates_best(candidates, logits, k, V);
    const double max = candidates[0].logit;
    for (int v = 0; v < V; v++) { sum += exp(logits[v] - max); }
    // cppcheck-suppress invalidFunctionArg ; the largest logit adds 1 to the sum
    const double normalizer = max + log(sum);
    for (int i = 0; i < min_int(k, V); i++) { candidates[i].logit = (float)(candidates[i].logit - normalizer); }
    return normalizer;
}

int sample_token(const float* logits, int V, const Sampling* s, double u, Candidate* candidates) {
    const int k = s->temperature == 0 ? 1 : s->top_k > 0 && s->top_k < V ? s->top_k : V;
    candidates_of(candidates, logits, V);
    if (k < V || s->top_p < 1) { candidates_select(candidates, k, V); } // else their order does not matter
    if (k == 1) { return candidates[0].id; }
    double max = -INFINITY, total = 0, kept = 0;
    for (int i = 0; i < k; i++) { max = fmax(max, candidates[i].logit); }
    for (int i = 0; i < k; i++) { total += exp((candidates[i].logit - max) / s->temperature); }
    int count = 0; // the fewest that hold top_p of the probability
    for (; count < k && (count == 0 || kept < s->top_p * total); count++) {
        kept += exp((candidates[count].logit - max) / s->temperature);
    }
    double left = u * kept;
    for (int i = 0; i < count; i++) {
        left -= exp((candidates[i].logit - max) / s->temperature);
        if (left < 0) { return candidates[i].id; }
    }
    return candidates[count - 1].id;
}

// ---------------------------------------------------------------------------------------------------------------------
// feeding the model

Generator generator_open(GPT2* model, int slots, int capacity) {
    const size_t V = (size_t)model->config.vocab_size, n = (size_t)slots * V;
    return (Generator){.model = model,
                       .cache = kv_cache_alloc(model, slots, capacity),
                       .device_logits = model->backend->device_alloc(n * sizeof(float), "logits"),
                       .logits = alloc_or_die(n, sizeof(float), "logits"),
                       .candidates = alloc_or_die(V, sizeof(Candidate), "candidates for the next token")};
}

void generator_close(Generator* g) {
    const size_t n = (size_t)g->cache.slots * (size_t)g->model->config.vocab_size;
    g->model->backend->device_free(g->device_logits, n * sizeof(float));
    kv_cache_free(g->model, &g->cache);
    free(g->logits);
    free(g->candidates);
}

Sequence generator_sequence(Generator* g, int slot) {
    g->cache.length[slot] = 0;
    return (Sequence){.slot = slot, .logits = g->logits + (size_t)slot * (size_t)g->model->config.vocab_size};
}

// Feeds the model all tokens of a text but the last.
static void feed_earlier_tokens(Generator* g, Sequence* text) {
    const size_t rows = (size_t)g->model->B * (size_t)g->model->T, capacity = (size_t)g->cache.capacity;
    const size_t count = text->tokens.count;
    int* length = &g->cache.length[text->slot];
    if ((size_t)*length + count - text->fed > capacity) {
        text->fed = count - min_size(count, max_size(capacity / 2, 1));
        text->is_cut = true;
        *length = 0;
    }
    g->cache.rows = &text->slot;
    while (text->fed + 1 < count) {
        const size_t n = min_size(count - 1 - text->fed, rows);
        g->model->backend->device_copy_in(g->model->tokens, text->tokens.ids + text->fed, n * sizeof(int));
        gpt2_forward(g->model, 1, (int)n, &g->cache);
        text->fed += n;
    }
}

void generator_feed(Generator* g, Sequence* const* texts, int count) {
    const Backend* b = g->model->backend;
    const size_t V = (size_t)g->model->config.vocab_size;
    int newest[MAX_TEXTS] = {0}, slots[MAX_TEXTS];
    for (int i = 0; i < count; i++) {
        feed_earlier_tokens(g, texts[i]);
        newest[i] = texts[i]->tokens.ids[texts[i]->fed++];
        slots[i] = texts[i]->slot;
    }
    b->device_copy_in(g->model->tokens, newest, (size_t)count * sizeof *newest);
    g->cache.rows = slots;
    gpt2_forward(g->model, count, 1, &g->cache);
    g->cache.rows = NULL;
    gpt2_logits(g->model, g->device_logits, 0, count);
    for (int i = 0; i < count; i++) {
        b->device_copy_out(texts[i]->logits, g->device_logits + (size_t)i * V, V * sizeof(float));
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// generating

TokenList prompt_tokens(const Tokenizer* t, const char* text, size_t bytes) {
    TokenList tokens = token_list();
    tokenizer_encode(t, text, bytes, &tokens);
    if (tokens.count == 0) { token_list_append(&tokens, t->eot); }
    return tokens;
}

int generate_slots(size_t count) { return (int)min_size(count, MAX_TEXTS); }

int generate_capacity(int context, size_t longest, size_t max_tokens) {
    return (int)min_size((size_t)context, longest + max_tokens);
}

// Texts that are being generated, and those to come.
typedef struct {
    Generator generator;
    const Tokenizer* tokenizer;
    const TokenList* prompts;
    const GenerateOptions* options;
    const TextSink* sink;
    double start;
    GenerateTimes times;
    size_t next, total; // texts that have been started; all
    // of each slot
    bool is_used[MAX_TEXTS];
    size_t number[MAX_TEXTS]; // of its text
    Sequence text[MAX_TEXTS];
} Texts;

// Starts the next text in a slot. If another sample of its prompt is in the cache, copies what that one has been fed.
static void text_begin(Texts* all, int slot) {
    Generator* g = &all->generator;
    const size_t samples = (size_t)all->options->samples;
    const TokenList* prompt = &all->prompts[all->next / samples];
    Sequence* text = &all->text[slot];
    *text = generator_sequence(g, slot);
    for (size_t i = 0; i < prompt->count; i++) { token_list_append(&text->tokens, prompt->ids[i]); }
    for (int other = 0; other < g->cache.slots; other++) {
        const Sequence* from = &all->text[other];
        if (!all->is_used[other] || all->number[other] / samples != all->next / samples || from->is_cut) { continue; }
        text->fed = prompt->count - 1;
        kv_cache_copy(g->model, &g->cache, slot, other, (int)text->fed);
        break;
    }
    all->is_used[slot] = true;
    all->number[slot] = all->next++;
    if (text->fed == 0) { feed_earlier_tokens(g, text); } // now, so that the other samples find it
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

// Sets a token's log-probability and the likeliest tokens, which lie in `candidates` (V).
static void set_logprobs(NextToken* token, const float* logits, int V, int alternatives, Candidate* candidates) {
    token->logprob = logits[token->id] - candidates_logprobs(candidates, logits, alternatives, V);
    token->best = candidates;
}

// Chooses the next token of the text in a slot, passes it on, and ends the text if it is its last one.
static bool text_choose(Texts* all, int slot, Error* err) {
    Generator* g = &all->generator;
    Sequence* text = &all->text[slot];
    const GenerateOptions* o = all->options;
    const size_t number = all->number[slot], samples = (size_t)o->samples;
    const size_t made = text->tokens.count - all->prompts[number / samples].count;
    const int V = g->model->config.vocab_size;
    if (!check_logits(text->logits, V, err)) { return false; }
    const double u = rng_uniform(o->sampling.seed, RNG_SAMPLE, (uint64_t)(number % samples) << 32 | made);
    NextToken token = {.text = number, .id = sample_token(text->logits, V, &o->sampling, u, g->candidates)};
    TextEnd reason = ENDED_BY_EOT;
    bool goes_on = !o->stops_at_eot || token.id != all->tokenizer->eot;
    if (goes_on) {
        token.bytes = tokenizer_token(all->tokenizer, token.id, &token.size);
        if (o->alternatives) { set_logprobs(&token, text->logits, V, o->alternatives, g->candidates); }
        token_list_append(&text->tokens, token.id);
        all->times.seconds = seconds_now() - all->start;
        if (all->times.tokens++ == 0) { all->times.first_seconds = all->times.seconds; }
        goes_on = all->sink->token(all->sink->context, &token);
        reason = goes_on ? ENDED_BY_LENGTH : ENDED_BY_SINK;
        goes_on = goes_on && made + 1 < o->max_tokens;
    }
    if (!goes_on) {
        if (all->sink->end) { all->sink->end(all->sink->context, number, reason); }
        token_list_free(&text->tokens);
        all->is_used[slot] = false;
    }
    return true;
}

// Generates one token of each text in the cache.
static bool texts_step(Texts* all, Error* err) {
    Sequence* texts[MAX_TEXTS];
    int count = 0;
    bool ok = true;
    const int slots = all->generator.cache.slots;
    for (int slot = 0; slot < slots; slot++) {
        if (!all->is_used[slot] && all->next < all->total) { text_begin(all, slot); }
        if (all->is_used[slot]) { texts[count++] = &all->text[slot]; }
    }
    generator_feed(&all->generator, texts, count);
    for (int i = 0; i < count && ok; i++) { ok = text_choose(all, texts[i]->slot, err); }
    return ok;
}

bool generate(GPT2* model, const Tokenizer* tokenizer, const TokenList* prompts, size_t num_prompts,
              const GenerateOptions* options, const TextSink* sink, GenerateTimes* times, Error* err) {
    Texts all = {.tokenizer = tokenizer, .prompts = prompts, .options = options, .sink = sink,
                 .total = num_prompts * (size_t)options->samples};
    const int context = options->context ? options->context : model->config.max_seq_len;
    size_t longest = 0;
    bool ok = true, goes_on = true;
    for (size_t i = 0; i < num_prompts; i++) { longest = max_size(longest, prompts[i].count); }
    const int capacity = generate_capacity(context, longest, options->max_tokens);
    all.generator = generator_open(model, generate_slots(all.total), capacity);
    all.start = seconds_now();
    while (ok && goes_on) {
        ok = texts_step(&all, err);
        goes_on = all.next < all.total;
        for (int slot = 0; slot < all.generator.cache.slots; slot++) { goes_on = goes_on || all.is_used[slot]; }
    }
    for (int slot = 0; slot < MAX_TEXTS; slot++) { token_list_free(&all.text[slot].tokens); }
    generator_close(&all.generator);
    if (times) { *times = all.times; }
    return ok;
}
