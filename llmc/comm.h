// Several processes that train together, each on its part of every batch: what they tell each other, and the form of
// that for one process, which is nothing.
//
//   between steps   small things in host memory, and who is still alive: comm/bootstrap.h, over TCP
//   within a step   gradients, parameters and sums in device memory: an engine, which is comm/mpi.h for the CPU and
//                   comm/nccl.cuh for GPUs
//
// The functions of an engine take part in the order of the device's work: they read what was queued before, and what is
// queued after comm_end() sees what they wrote. Sums are made in fp32 (of gradients) and in double (of a few numbers).
// The same build on the same machines with the same number of processes gives the same bits; that all processes have
// the same ones is checked now and then (agreement.h). All processes call the same functions in the same order.
#pragma once
#include "comm/bootstrap.h"

typedef struct Comm Comm;

typedef struct {
    const char* name;
    const char* device; // of the trainers it serves
    bool (*open)(Comm* comm, Error* err);
    void (*connect)(Comm* comm); // once the device is open, and before its memory is planned
    void (*sum_begin)(Comm* comm, float* x, size_t n);
    void (*scatter_begin)(Comm* comm, float* x, size_t n);
    void (*gather_begin)(Comm* comm, void* x, size_t bytes);
    void (*end)(Comm* comm);
    void (*sum)(Comm* comm, double* x, int n);
    void (*close)(Comm* comm);
} CommEngine;

struct Comm {
    int rank, size;
    int local_rank, local_size; // among the processes on this machine
    Bootstrap* peers;
    const CommEngine* engine;   // NULL: one process
    void* state;                // the engine's
};

typedef struct {
    double connect_timeout, silence_timeout; // seconds: --connect_timeout, --comm_timeout
} CommOptions;

static inline Comm comm_alone(void) {
    Comm comm;
    memset(&comm, 0, sizeof comm);
    comm.size = comm.local_size = 1;
    return comm;
}

// Meets the other processes, whose engine has been chosen: rank 0 listens where the launch says.
static inline bool comm_open(Comm* comm, const Launch* launch, const CommOptions* options, Error* err) {
    comm->rank = launch->rank;
    comm->size = launch->size;
    comm->peers = bootstrap_open(launch, comm->engine->name, options->connect_timeout, options->silence_timeout, err);
    if (!comm->peers) { return false; }
    comm->local_size = 0;
    for (int r = 0; r < comm->size; r++) {
        if (strcmp(bootstrap_host(comm->peers, r), bootstrap_host(comm->peers, comm->rank))) { continue; }
        comm->local_rank += r < comm->rank;
        comm->local_size++;
    }
    if (launch->local_rank >= 0) { comm->local_rank = launch->local_rank; }
    return comm->engine->open(comm, err);
}

static inline void comm_close(Comm* comm) {
    if (comm->size == 1) { return; }
    comm->engine->close(comm);
    bootstrap_close(comm->peers);
}

// The least of the numbers that the processes have.
static inline size_t comm_least(Comm* comm, size_t mine) {
    if (comm->size == 1) { return mine; }
    size_t* all = (size_t*)alloc_or_die((size_t)comm->size, sizeof *all, "a number of each process");
    bootstrap_gather(comm->peers, &mine, sizeof mine, all);
    for (int r = 0; r < comm->size; r++) { mine = min_size(mine, all[r]); }
    free(all);
    return mine;
}

// x (n, in host memory) becomes its sum over all processes. Between steps.
static inline void comm_sum_host(Comm* comm, double* x, int n) {
    if (comm->size == 1) { return; }
    double* all = (double*)alloc_or_die((size_t)comm->size * (size_t)n, sizeof *all, "numbers of each process");
    bootstrap_gather(comm->peers, x, (size_t)n * sizeof *x, all);
    for (int i = 0; i < n; i++) {
        x[i] = 0;
        for (int r = 0; r < comm->size; r++) { x[i] += all[r * n + i]; }
    }
    free(all);
}

// Tells the others where this process is, for messages should they wait for it.
static inline void comm_tell(Comm* comm, long long step, RankActivity activity) {
    if (comm->size > 1) { bootstrap_progress(comm->peers, step, activity); }
}

static inline void comm_connect(Comm* comm) {
    if (comm->size > 1) { comm->engine->connect(comm); }
}

static inline void comm_barrier(Comm* comm) {
    if (comm->size > 1) { bootstrap_barrier(comm->peers); }
}

// x (n) becomes its sum over all processes: begins; done after comm_end().
static inline void comm_sum_begin(Comm* comm, float* x, size_t n) {
    if (comm->size == 1 || n == 0) { return; }
    comm->engine->sum_begin(comm, x, n);
}

// The same, but only part number `rank` of the `size` equal parts of x has the sums afterwards, and the others nothing
// of use.
static inline void comm_scatter_begin(Comm* comm, float* x, size_t n) {
    if (comm->size == 1 || n == 0) { return; }
    comm->engine->scatter_begin(comm, x, n);
}

// Each process has part number `rank` of the `size` equal parts of x; then all have all of them. x is in device memory.
static inline void comm_gather_begin(Comm* comm, void* x, size_t bytes) {
    if (comm->size == 1 || bytes == 0) { return; }
    comm->engine->gather_begin(comm, x, bytes);
}

static inline void comm_end(Comm* comm) {
    if (comm->size > 1) { comm->engine->end(comm); }
}

// x (n, in device memory) becomes its sum over all processes, for what is queued next.
static inline void comm_sum(Comm* comm, double* x, int n) {
    if (comm->size > 1) { comm->engine->sum(comm, x, n); }
}
