// What a training step takes on n processes, foretold from what its parts take on one. Strong scaling: the tokens of a
// step stay the same, so that n processes have fewer micro-batches each, and smaller ones once there is one sequence
// too few for --batch_size.
//
// Computing. A process has windows/n sequences, in micro-batches of the largest divisor of that which --batch_size
// allows; each takes what one of that size took when it was measured (or, of sizes not measured, its part of the next
// larger one, which flatters them). Once a step there is zeroing and the update.
//
// Communication, with n the processes, S the bytes of an array and B and a the line's bandwidth and latency. A sum is a
// reduce-scatter and an all-gather, of which each takes, whichever is less,
//
//     (n-1)/n S/B + (n-1) a             in a ring (Patarasuk and Yuan 2009), whose steps all wait for its slowest line
//     S/B + ceil(log2 n) a              in trees (NCCL's double binary trees: Sanders, Speck and Traeff 2009)
//
// Where machines hold several processes, the ring crosses between machines once for each: the lowest bandwidth counts,
// and a tree's latency is that within the machines and between them. So `between` is what all processes of a machine
// have together, as the bus bandwidth of nccl-tests (and of bench comm) over several machines is.
//
// Overlap. A range of gradients can be added up as soon as the backward of the last micro-batch is done with it: the
// final layernorm first, then layer by layer, the embeddings at the very end. Ranges go out one after another. What
// the step waits for is what has not arrived when backward ends: never less than the embeddings; hidden at most the
// backward of one micro-batch. Without overlap all of it is waited for. That sums slow the computing beside them down
// (they take cores, or multiprocessors and memory) is not in it.
//
// ZeRO-1. Gradients are reduce-scattered, half of a sum; each process updates its n-th, and the parameters are
// all-gathered in their storage type after the update, which nothing hides: with bf16 that is 6 bytes each where the
// sum moves 8; with fp32 it is the same.
//
// Beside it the three numbers of a step are added up: latency alone.
#pragma once
#include "base.h"

typedef struct {
    double bandwidth, latency; // bytes per second, seconds
} Link;

typedef struct {
    Link within, between;
    int per_machine; // processes that `within` connects
} Network;

// Of a micro-batch of so many sequences; StepTimes in harness.h says more.
typedef struct {
    int rows;
    double forward, head, layer, tail;
} MicroTime;

enum { MAX_MICRO_TIMES = 32 };

typedef struct {
    int num_layers;
    size_t first, layer, last;       // elements of the ranges: embeddings, each layer, the final layernorm
    size_t param_bytes;              // of an element in the storage type
    long long windows;               // sequences in a step
    int most_rows;                   // --batch_size
    MicroTime micro[MAX_MICRO_TIMES]; // from many rows to few, of most_rows first
    int micros;
    double begin, update;
} ScaleModel;

enum { SCALE_OVERLAP = 1, SCALE_ZERO = 2, SCALE_WAYS = 4 };

typedef struct {
    int rows;
    long long micro_steps;
    double computing, update, sent, exposed; // seconds; sent: communication, exposed: what of it is waited for
    double bytes;                            // that each process sends
    double seconds;                          // all of the step
} ScaledStep;

// ---------------------------------------------------------------------------------------------------------------------
// communication

static inline int log2_up(int n) {
    int steps = 0;
    while (((long long)1 << steps) < n) { steps++; }
    return steps;
}

// Half of a sum over n processes: a reduce-scatter or an all-gather.
static inline double half_sum_seconds(const Network* net, double bytes, int n) {
    if (n == 1) { return 0; }
    const int here = n < net->per_machine ? n : net->per_machine, machines = (n + here - 1) / here;
    const bool crosses = machines > 1;
    double bandwidth = net->within.bandwidth, step = net->within.latency;
    if (crosses && (here == 1 || net->between.bandwidth < bandwidth)) { bandwidth = net->between.bandwidth; }
    if (crosses && (here == 1 || net->between.latency > step)) { step = net->between.latency; }
    const double ring = (n - 1.0) / n * bytes / bandwidth + (n - 1.0) * step;
    const double tree =
        bytes / bandwidth + log2_up(here) * net->within.latency + log2_up(machines) * net->between.latency;
    return fmin(ring, tree);
}

static inline double scale_reduce_seconds(const Network* net, size_t elements, int n, int ways) {
    const double half = half_sum_seconds(net, (double)elements * sizeof(float), n);
    return ways & SCALE_ZERO ? half : 2 * half;
}

static inline size_t scale_elements(const ScaleModel* m) {
    return m->first + (size_t)m->num_layers * m->layer + m->last;
}

// ---------------------------------------------------------------------------------------------------------------------
// a step

// The largest number of sequences, at most `most`, that divides `windows` evenly.
static inline int scale_rows(long long windows, int most) {
    for (long long rows = most < windows ? most : windows; rows > 1; rows--) {
        if (windows % rows == 0) { return (int)rows; }
    }
    return 1;
}

static inline bool scale_is_possible(const ScaleModel* m, int n) { return m->windows % n == 0; }

static inline MicroTime scale_micro(const ScaleModel* m, int rows) {
    const MicroTime* larger = &m->micro[0];
    for (int i = 0; i < m->micros; i++) {
        if (m->micro[i].rows >= rows) { larger = &m->micro[i]; }
    }
    const double part = (double)rows / larger->rows;
    const MicroTime t = {rows, part * larger->forward, part * larger->head, part * larger->layer, part * larger->tail};
    return t;
}

static inline double micro_seconds(const ScaleModel* m, const MicroTime* t) {
    return t->forward + t->head + m->num_layers * t->layer + t->tail;
}

// Adds up the ranges, each as soon as it is there and the one before has gone: what is left of that when backward ends.
static inline double scale_exposed(const ScaleModel* m, const Network* net, const MicroTime* t, int n, int ways) {
    double ready = t->head, done = ready + scale_reduce_seconds(net, m->last, n, ways);
    for (int l = 0; l < m->num_layers; l++) {
        ready += t->layer;
        done = fmax(done, ready) + scale_reduce_seconds(net, m->layer, n, ways);
    }
    ready += t->tail;
    done = fmax(done, ready) + scale_reduce_seconds(net, m->first, n, ways);
    return done - ready;
}

// `ways`: SCALE_OVERLAP, SCALE_ZERO or both or 0. n divides the sequences of a step.
static inline ScaledStep scale_predict(const ScaleModel* m, const Network* net, int n, int ways) {
    ScaledStep p;
    const long long windows = m->windows / n;
    p.rows = scale_rows(windows, m->most_rows);
    p.micro_steps = windows / p.rows;
    const MicroTime t = scale_micro(m, p.rows);
    const size_t elements = scale_elements(m);
    const bool zero = ways & SCALE_ZERO;
    const double gather = zero ? half_sum_seconds(net, (double)(elements * m->param_bytes), n) : 0;
    const double numbers = 2 * half_sum_seconds(net, 0, n);
    const double ranges = scale_reduce_seconds(net, m->first, n, ways) + scale_reduce_seconds(net, m->last, n, ways) +
                          m->num_layers * scale_reduce_seconds(net, m->layer, n, ways);
    p.computing = m->begin + (double)p.micro_steps * micro_seconds(m, &t);
    p.update = zero ? m->update / n : m->update;
    p.sent = ranges + gather + numbers;
    p.exposed = (ways & SCALE_OVERLAP ? scale_exposed(m, net, &t, n, ways) : ranges) + gather + numbers;
    p.bytes = (n - 1.0) / n * (double)elements * (double)(sizeof(float) + (zero ? m->param_bytes : sizeof(float)));
    p.seconds = p.computing + p.update + p.exposed;
    return p;
}

// ---------------------------------------------------------------------------------------------------------------------
// options

// "300GB/s:5us".
static inline const char* link_parse_one(const char* text, Link* link) {
    double gigabytes, microseconds;
    int used = 0;
    if (sscanf(text, "%lfGB/s:%lfus%n", &gigabytes, &microseconds, &used) != 2 || !used) { return NULL; }
    if (!(gigabytes > 0 && gigabytes < 1e9 && microseconds >= 0 && microseconds < 1e9)) { return NULL; }
    link->bandwidth = 1e9 * gigabytes;
    link->latency = 1e-6 * microseconds;
    return text + used;
}

// --link: one line between all, or that within machines of so many processes and that between them.
static inline bool link_parse(const char* text, Network* net, Error* err) {
    int per_machine = INT32_MAX, used = 0;
    memset(net, 0, sizeof *net);
    if (sscanf(text, "%dx%n", &per_machine, &used) != 1 || !used) { per_machine = INT32_MAX, used = 0; }
    const char* end = link_parse_one(text + used, &net->within);
    net->between = net->within;
    net->per_machine = per_machine;
    if (end && *end == ',' && used) { end = link_parse_one(end + 1, &net->between); }
    else if (used) { end = NULL; }
    if (end && !*end && per_machine > 0) { return true; }
    return fail(err, "--link '%s': give a bandwidth and a latency, as 300GB/s:5us, or those within machines and "
                "between them, as 8x300GB/s:5us,50GB/s:15us", text);
}

// The parts of a micro-step whose whole is known, by the operations of each: two for each weight and token forward,
// four backward; the classifier does all of its six in backward.
static inline MicroTime micro_of_whole(int rows, double seconds, const ScaleModel* m) {
    const double layers = (double)m->num_layers * (double)m->layer, whole = 6 * (layers + (double)m->first);
    const MicroTime t = {rows, seconds * 2 * layers / whole, seconds * 6 * (double)m->first / whole,
                         seconds * 4 * (double)m->layer / whole, 0};
    return t;
}
