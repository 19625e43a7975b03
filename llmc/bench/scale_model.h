// Predicts a training step on n processes from the times of its parts on one. Strong scaling: the tokens of a step stay
// the same, so that n processes have fewer micro-batches each, and smaller ones once they have fewer sequences than
// --batch_size.
//
// Computing. A process has windows/n sequences. Its micro-batches have the largest divisor of that up to --batch_size.
// Each takes the time measured for its size; a size that was not measured takes its share of the next larger one's
// time, which is optimistic. Zeroing and the update come once in a step.
//
// Communication, with n processes, S bytes in an array, bandwidth B and latency a of the connection. An all-reduce is a
// reduce-scatter and an all-gather. Each of the two takes the lesser of
//
//     (n-1)/n S/B + (n-1) a             in a ring (Patarasuk and Yuan 2009), whose steps all wait for the slowest link
//     S/B + ceil(log2 n) a              in trees (NCCL's double binary trees: Sanders, Speck and Traeff 2009)
//
// With several processes on a machine, the ring crosses between machines once for each machine: the lowest bandwidth
// counts, and the latency of a tree is the sum of that within machines and that between them. So `between` is the
// bandwidth that all processes of a machine share, as in the bus bandwidth that nccl-tests (and bench comm) report for
// several machines.
//
// Overlap. The all-reduce of a range of gradients can begin when the backward of the last micro-batch is done with it:
// first the final layernorm, then layer by layer, at the very end the embeddings. Ranges are sent one after another.
// The step waits for all that has not arrived when backward ends: never less than the embeddings. So overlap hides at
// most the backward of one micro-batch. Without overlap the step waits for all of it. Not included: all-reduces slow
// down the computing beside them, since they take cores, or multiprocessors and memory bandwidth.
//
// ZeRO-1. Gradients are reduce-scattered, half of an all-reduce. Each process updates its n-th. The parameters are
// all-gathered in their storage type after the update, which nothing hides: with bf16 6 bytes for each parameter where
// the all-reduce moves 8; with fp32 the same.
//
// Besides, two numbers of a step (three with ZeRO-1) are all-reduced, which costs latency alone.
#pragma once
#include "../base/base.h"

typedef struct {
    double bandwidth, latency; // bytes per second, seconds
} Link;

typedef struct {
    Link within, between; // within a machine, between machines
    int per_machine;      // processes on a machine
} Network;

// Seconds of a micro-batch of `rows` sequences, by parts (StepTimes in check/trial.h).
typedef struct {
    int rows;
    double forward, classifier, layer, embeddings; // layer: the backward of one
} MicroTime;

enum { MAX_MICRO_TIMES = 32 };

typedef struct {
    int num_layers;
    size_t first, layer, last;        // elements of the ranges: embeddings, each layer, the final layernorm
    size_t param_bytes;               // of an element in the storage type
    long long windows;                // sequences in a step
    int most_rows;                    // --batch_size
    MicroTime micro[MAX_MICRO_TIMES]; // from many rows to few; the first has most_rows
    int micros;
    double begin, update; // seconds, once in a step
} ScaleModel;

// A mode is SCALE_OVERLAP, SCALE_ZERO, both or 0.
enum { SCALE_OVERLAP = 1, SCALE_ZERO = 2, SCALE_MODES = 4 };

typedef struct {
    int rows;
    long long micro_steps;
    double computing, update; // seconds
    double sent, exposed;     // seconds of communication: all, and those that the step waits for
    double embeddings;        // seconds to reduce the embeddings' gradients, which come last: a part of `exposed`
    double bytes;             // that each process sends
    double seconds;           // all of the step
} ScaledStep;

// ---------------------------------------------------------------------------------------------------------------------
// communication

// Returns the seconds of half an all-reduce over n processes: a reduce-scatter or an all-gather.
double half_all_reduce_seconds(const Network* net, double bytes, int n);

// Returns the seconds to reduce a range of gradients: an all-reduce, or, with ZeRO-1, a reduce-scatter.
double scale_reduce_seconds(const Network* net, size_t elements, int n, int mode);

// ---------------------------------------------------------------------------------------------------------------------
// a step

// Returns the largest number of sequences, at most `most`, that divides `windows` evenly.
int scale_rows(long long windows, int most);

// Returns true if the sequences of a step can be divided evenly among n processes.
bool scale_is_possible(const ScaleModel* m, int n);

// Returns the times of a micro-batch of `rows` sequences.
MicroTime scale_micro(const ScaleModel* m, int rows);

// Returns the seconds of a whole micro-batch.
double micro_seconds(const ScaleModel* m, const MicroTime* t);

// Predicts a step on n processes. scale_is_possible() must be true of n.
ScaledStep scale_predict(const ScaleModel* m, const Network* net, int n, int mode);

// ---------------------------------------------------------------------------------------------------------------------
// options

// Reads --link: one connection between all processes (300GB/s:5us), or one within machines of so many processes and
// one between them (8x300GB/s:5us,50GB/s:15us).
bool link_parse(const char* text, Network* net, Error* err);

// Divides the seconds of a micro-batch among its parts, by their operations: two for each weight and token forward,
// four backward; the classifier does all of its six in backward.
MicroTime micro_of_whole(int rows, double seconds, const ScaleModel* m);
