// Which kernels a run takes where its device can do the same in several ways (operations_way in ops.h): those of the
// run that it goes on with, else the fastest, measured on this model's own shapes when it starts. Ways differ in the
// last bits of their results, so what was chosen is part of the run: state.json names it (device_kernels), and a
// resumed run takes that without measuring again.
#pragma once
#include "comm.h"
#include "gpt2.h"

enum { MAX_WAYS = 2 };
static const char* const CHOICE_NAMES[NUM_CHOICES] = {"attention", "gelu_forward", "gelu_backward"};

// ---------------------------------------------------------------------------------------------------------------------
// measuring

// Queues what a choice is about, in the activations of layer 0, which hold nothing yet: they are zeros, or what this
// has left there, and what is added to gradients is zero.
static inline void choice_run(const GPT2* g, Choice choice) {
    const int B = g->B, T = g->T, N = B * T, C = g->config.channels;
    const Params p = params_at(g, 0);
    const Grads dp = grads_at(g, 0);
    const Acts a = acts_at(g, 0);
    switch (choice) {
    case CHOICE_ATTENTION:
        attention_forward(a.atty, a.lse, a.qkv, B, T, C, g->config.num_heads);
        attention_backward(a.dbt4c, a.delta, a.dbtc, a.atty, a.lse, a.qkv, B, T, C, g->config.num_heads);
        break;
    case CHOICE_GELU_FORWARD: matmul_gelu_forward(a.fch_gelu, a.fch, a.ln2, p.fcw, p.fcb, N, C, 4 * C); break;
    default:
        matmul_gelu_backward(a.dbt4c, dp.fcprojw, dp.fcprojb, a.dbtc, a.fch_gelu, a.fch, p.fcprojw, N, 4 * C, C);
    }
}

// The first run is not timed: the device is at work on it while what is timed is still being queued.
static inline double seconds_of_choice(const GPT2* g, Choice choice) {
    enum { RUNS = 2 };
    choice_run(g, choice);
    device_timer_start();
    for (int i = 0; i < RUNS; i++) { choice_run(g, choice); }
    return device_timer_stop() / RUNS;
}

// seconds[i] = the shortest time of way i. The ways take turns, so that what disturbs one disturbs them all.
static inline void choice_measure(const GPT2* g, Choice choice, double seconds[MAX_WAYS]) {
    enum { LEAST_ROUNDS = 3, MOST_ROUNDS = 20 };
    const double enough = 0.05; // seconds, for all
    const double begin = seconds_now();
    for (int round = 0; round < LEAST_ROUNDS || (round < MOST_ROUNDS && seconds_now() - begin < enough); round++) {
        for (int i = 0; i < MAX_WAYS; i++) {
            if (!isfinite(seconds[i])) { continue; }
            operations_choose(choice, i, g->B, g->T, g->config.channels, g->config.num_heads);
            const double now = seconds_of_choice(g, choice);
            seconds[i] = round ? fmin(seconds[i], now) : now;
        }
    }
}

// The fastest of ways that took so long, INFINITY for one that is not to be had. Another than the first has to be
// faster by a margin, so that the choice is the same every time.
static inline int fastest_way(const double* seconds, int count) {
    const double margin = 0.97;
    int best = 0;
    for (int i = 1; i < count; i++) {
        if (seconds[i] < (best ? seconds[best] : margin * seconds[0])) { best = i; }
    }
    return best;
}

// ---------------------------------------------------------------------------------------------------------------------
// choosing

static inline const char* way_of(const GPT2* g, Choice choice, int i) {
    return i < MAX_WAYS ? operations_way(choice, i, g->B, g->T, g->config.channels, g->config.num_heads) : NULL;
}

// The way that `saved`, the words "choice=way", names for a choice; -1 if it says nothing of it, or names one that
// there is not.
static inline int saved_way(const GPT2* g, Choice choice, const char* saved) {
    char* word = format("%s=", CHOICE_NAMES[choice]);
    const char* at = saved ? strstr(saved, word) : NULL;
    while (at && at > saved && at[-1] != ' ') { at = strstr(at + 1, word); }
    if (at) { at += strlen(word); }
    free(word);
    const size_t n = at ? strcspn(at, " ") : 0;
    for (int i = 0; at && way_of(g, choice, i); i++) {
        const char* name = way_of(g, choice, i);
        if (strlen(name) == n && !strncmp(at, name, n)) { return i; }
    }
    if (at) {
        notice("this start has no %s=%.*s, which the run had: choosing again", CHOICE_NAMES[choice], (int)n, at);
    }
    return -1;
}

static inline int choose_one(const GPT2* g, Comm* comm, Choice choice, const char* saved) {
    double seconds[MAX_WAYS];
    const int way = saved_way(g, choice, saved);
    for (int i = 0; i < MAX_WAYS; i++) {
        seconds[i] = (way < 0 || i == way) && way_of(g, choice, i) ? 0 : INFINITY;
    }
    if (isfinite(seconds[0]) && isfinite(seconds[1])) { choice_measure(g, choice, seconds); }
    if (comm) { comm_sum_host(comm, seconds, MAX_WAYS); } // all ranks see the same times, and choose the same
    return fastest_way(seconds, MAX_WAYS);
}

// For a model that is allocated and has its weights, before anything is computed with it. `saved`: device_kernels() of
// the run that goes on, or NULL.
static inline void choose_kernels(const GPT2* g, Comm* comm, const char* saved) {
    for (int choice = 0; choice < NUM_CHOICES; choice++) {
        const int way = choose_one(g, comm, (Choice)choice, saved);
        operations_choose((Choice)choice, way, g->B, g->T, g->config.channels, g->config.num_heads);
    }
}
