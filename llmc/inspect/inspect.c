#include "inspect.h"

// Parameters of a part: its weight, or its bias.
typedef struct {
    float* at;
    size_t count;
} Piece;

// ---------------------------------------------------------------------------------------------------------------------
// one pass

static void facts_losses(float* losses, GPT2* g, int T) {
    gpt2_forward(g, 1, T, NULL);
    gpt2_loss(g, 1, T);
    g->backend->device_copy_out(losses, acts_at(g, 0).losses, ((size_t)T - 1) * sizeof *losses);
}

// Writes the attention (NH,T,T) of the last layer that ran, whose qkv (T,3C) is in host memory.
static void facts_attention(float* out, const float* qkv, int T, int C, int NH) {
    const int hs = C / NH;
    #pragma omp parallel for
    for (int row = 0; row < NH * T; row++) {
        const int h = row / T, t = row % T;
        const float* q = qkv + (size_t)t * 3 * (size_t)C + (size_t)h * (size_t)hs;
        float* p = out + (size_t)row * (size_t)T;
        double sum = 0, max = -INFINITY;
        for (int k = 0; k <= t; k++) {
            const float* key = qkv + ((size_t)k * 3 + 1) * (size_t)C + (size_t)h * (size_t)hs;
            double score = 0;
            for (int i = 0; i < hs; i++) { score += (double)q[i] * key[i]; }
            p[k] = (float)(score / sqrt(hs));
            max = fmax(max, p[k]);
        }
        for (int k = 0; k <= t; k++) { sum += exp(p[k] - max); }
        for (int k = 0; k <= t; k++) { p[k] = (float)(exp(p[k] - max) / sum); }
    }
}

static void facts_norms(float* out, const float* stream, int T, int C) {
    for (int t = 0; t < T; t++) {
        double sum = 0;
        for (int i = 0; i < C; i++) { sum += (double)stream[t * C + i] * stream[t * C + i]; }
        out[t] = (float)sqrt(sum);
    }
}

// Runs the first l layers and writes what is known of the stream behind them. qkv (T,3C) and logits (T,V) are scratch.
static void facts_layer(Facts* f, GPT2* g, int l, float* device_logits, float* logits, float* qkv) {
    const Backend* b = g->backend;
    const int T = f->T, C = g->config.channels, V = g->config.vocab_size;
    const size_t row = (size_t)l * (size_t)T, n = (size_t)T * (size_t)C;
    const Params p = params_at(g, 0);
    const Acts a = acts_at(g, 0);
    g->config.num_layers = l;
    gpt2_forward(g, 1, T, NULL);
    g->config.num_layers = f->L;
    if (l == 0) { b->layernorm_forward(a.lnf, a.lnf_mean, a.lnf_rstd, a.residual1, p.lnfw, p.lnfb, T, C); }
    else {
        b->device_copy_out(qkv, a.qkv, 3 * n * sizeof *qkv);
        facts_attention(f->attention + (row - (size_t)T) * (size_t)f->NH * (size_t)T, qkv, T, C, f->NH);
    }
    b->device_copy_out(qkv, l ? a.residualf : a.residual1, n * sizeof *qkv);
    facts_norms(f->norms + row, qkv, T, C);
    gpt2_logits(g, device_logits, 0, T);
    b->device_copy_out(logits, device_logits, (size_t)T * (size_t)V * sizeof *logits);
    Candidate* candidates = alloc_or_die((size_t)V, sizeof *candidates, "candidates for the next token");
    for (int t = 0; t < T; t++) {
        candidates_logprobs(candidates, logits + (size_t)t * (size_t)V, FACTS_BEST, V);
        f->lens[row + (size_t)t] = candidates[0];
        if (l == f->L) { memcpy(f->next + (size_t)t * FACTS_BEST, candidates, FACTS_BEST * sizeof *candidates); }
    }
    free(candidates);
}

static void facts_layers(Facts* f, GPT2* g) {
    const size_t logits_count = (size_t)f->T * (size_t)g->config.vocab_size;
    float* device_logits = g->backend->device_alloc(logits_count * sizeof(float), "logits");
    float* logits = alloc_or_die(logits_count, sizeof *logits, "logits");
    float* qkv = alloc_or_die((size_t)f->T * 3, (size_t)g->config.channels * sizeof *qkv, "queries, keys and values");
    for (int l = 0; l <= f->L; l++) { facts_layer(f, g, l, device_logits, logits, qkv); }
    g->backend->device_free(device_logits, logits_count * sizeof(float));
    free(logits);
    free(qkv);
}

// ---------------------------------------------------------------------------------------------------------------------
// switching off

// Writes the losses (T-1) while two pieces of the parameters are zero.
static void losses_without(float* losses, GPT2* g, const Piece piece[2], int T) {
    const Backend* b = g->backend;
    float* saved[2];
    for (int i = 0; i < 2; i++) {
        saved[i] = alloc_or_die(piece[i].count, sizeof(float), "parameters that are switched off");
        b->device_copy_out(saved[i], piece[i].at, piece[i].count * sizeof(float));
        b->device_zero(piece[i].at, piece[i].count * sizeof(float));
    }
    b->params_changed();
    facts_losses(losses, g, T);
    for (int i = 0; i < 2; i++) {
        b->device_copy_in(piece[i].at, saved[i], piece[i].count * sizeof(float));
        free(saved[i]);
    }
    b->params_changed();
}

static void facts_without(Facts* f, GPT2* g) {
    const size_t C = (size_t)g->config.channels, hs = C / (size_t)f->NH, row = (size_t)f->T - 1;
    float* losses = f->without;
    for (int l = 0; l < f->L; l++) {
        const Params p = params_at(g, l);
        float *v = (float*)p.qkvw + 2 * C * C, *vb = (float*)p.qkvb + 2 * C;
        for (size_t h = 0; h < (size_t)f->NH; h++, losses += row) {
            losses_without(losses, g, (const Piece[2]){{v + h * hs * C, hs * C}, {vb + h * hs, hs}}, f->T);
        }
        losses_without(losses, g, (const Piece[2]){{(float*)p.attprojw, C * C}, {(float*)p.attprojb, C}}, f->T);
        losses_without(losses + row, g, (const Piece[2]){{(float*)p.fcprojw, 4 * C * C}, {(float*)p.fcprojb, C}}, f->T);
        losses += 2 * row;
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// the embedding

static float cosine(const float* x, const float* y, int C) {
    double xy = 0, xx = 0, yy = 0;
    for (int i = 0; i < C; i++) {
        xy += (double)x[i] * y[i];
        xx += (double)x[i] * x[i];
        yy += (double)y[i] * y[i];
    }
    return xx > 0 && yy > 0 ? (float)(xy / sqrt(xx * yy)) : 0;
}

static void facts_nearest(Facts* f, const GPT2* g) {
    const int V = g->config.vocab_size, C = g->config.channels;
    float* wte = alloc_or_die((size_t)V, (size_t)C * sizeof *wte, "the token embedding");
    float* score = alloc_or_die((size_t)V, sizeof *score, "cosines");
    Candidate* candidates = alloc_or_die((size_t)V, sizeof *candidates, "nearest tokens");
    g->backend->device_copy_out(wte, params_at(g, 0).wte, (size_t)V * (size_t)C * sizeof *wte);
    for (int t = 0; t < f->T; t++) {
        const float* mine = wte + (size_t)f->tokens[t] * (size_t)C;
        #pragma omp parallel for
        for (int v = 0; v < V; v++) { score[v] = cosine(mine, wte + (size_t)v * (size_t)C, C); }
        score[f->tokens[t]] = -2; // itself last
        candidates_best(candidates, score, FACTS_BEST, V);
        memcpy(f->nearest + (size_t)t * FACTS_BEST, candidates, FACTS_BEST * sizeof *candidates);
    }
    free(wte);
    free(score);
    free(candidates);
}

// ---------------------------------------------------------------------------------------------------------------------
// all of them

static void facts_alloc(Facts* f, const int* tokens) {
    const size_t T = (size_t)f->T, L = (size_t)f->L, NH = (size_t)f->NH;
    f->tokens = alloc_or_die(T, sizeof *f->tokens, "tokens");
    f->losses = alloc_or_die(T, sizeof *f->losses, "losses");
    f->without = alloc_or_die(L * (NH + 2) * (T - 1), sizeof *f->without, "losses without a part");
    f->next = alloc_or_die(T, FACTS_BEST * sizeof *f->next, "likeliest tokens");
    f->lens = alloc_or_die((L + 1) * T, sizeof *f->lens, "the logit lens");
    f->norms = alloc_or_die((L + 1) * T, sizeof *f->norms, "norms");
    f->attention = alloc_or_die(L * NH * T * T, sizeof *f->attention, "attention");
    f->nearest = alloc_or_die(T, FACTS_BEST * sizeof *f->nearest, "nearest tokens");
    memcpy(f->tokens, tokens, T * sizeof *tokens);
}

bool facts_compute(Facts* f, GPT2* g, const int* tokens, int T, Error* err) {
    const Backend* b = g->backend;
    *f = (Facts){.T = T, .L = g->config.num_layers, .NH = g->config.num_heads};
    facts_alloc(f, tokens);
    b->device_copy_in(g->tokens, tokens, (size_t)T * sizeof *tokens);
    b->device_copy_in(g->targets, tokens + 1, ((size_t)T - 1) * sizeof *tokens); // the last one stays as it is
    facts_losses(f->losses, g, T);
    for (int t = 0; t + 1 < T; t++) {
        if (isfinite(f->losses[t])) { continue; }
        const double loss = f->losses[t];
        facts_free(f);
        return fail(err, "the loss of token %d is %f: the weights are damaged or have overflowed", t + 2, loss);
    }
    facts_layers(f, g);
    facts_without(f, g);
    facts_nearest(f, g);
    return true;
}

void facts_free(Facts* f) {
    free(f->tokens);
    free(f->losses);
    free(f->without);
    free(f->next);
    free(f->lens);
    free(f->norms);
    free(f->attention);
    free(f->nearest);
    *f = (Facts){.T = 0};
}
