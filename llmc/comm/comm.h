// Collective operations of the processes that train together, each on its part of every batch. With one process they do
// nothing.
//
//   between steps   small data in host memory, over sockets (connect.h), whose watchdog notices processes that are gone
//   within a step   gradients, parameters, losses and norms in device memory, by an engine: mpi.h for CPUs, nccl.cuh
//                   for GPUs
//
// An engine keeps the order of the device's queue: an operation sees the work queued before it, and work queued after
// comm_end() sees its result. Gradients are summed in float, losses and norms in double. The same build on the
// same machines with the same number of processes gives the same bits; consistency.h checks now and then that all
// processes hold the same weights.
//
// All processes call the same functions in the same order. A failing engine ends the program.
#pragma once
#include "../base/base.h"
#include "launch.h"
#include "watchdog.h"

typedef struct Comm Comm;

// The functions that reduce and gather device memory. Each does what the function comm_NAME below says; it is called
// only with more than one process and at least one element.
typedef struct CommEngine {
    const char* name;                      // "MPI" or "NCCL"
    bool (*open)(Comm* comm, Error* err);  // makes comm->state; fails without the library
    void (*connect)(Comm* comm);           // called once the device is open
    void (*all_reduce_begin)(Comm* comm, float* x, size_t n);
    void (*reduce_scatter_begin)(Comm* comm, float* x, size_t n);
    void (*all_gather_begin)(Comm* comm, void* x, size_t bytes);
    void (*reduce_begin)(Comm* comm, float* x, size_t n, int root);
    void (*broadcast_begin)(Comm* comm, void* x, size_t bytes, int root);
    void (*end)(Comm* comm);
    void (*sum)(Comm* comm, double* x, int n); // comm_all_reduce_sums
    void (*close)(Comm* comm);
} CommEngine;

struct Comm {
    int rank, size;
    int local_rank, local_size; // among the processes on this machine
    Connection* peers;          // NULL: one process
    const CommEngine* engine;   // NULL: one process
    void* state;                // the engine's
    const char* algorithms;     // NCCL_ALGO, once NCCL is connected; else NULL
};

BEGIN_C

// One process alone. It needs no comm_open or comm_close.
Comm comm_alone(void);

// Opens comm->engine, which the caller has set, then connects to the other processes of the launch. Fails if the engine
// does not open, or if a process is missing or does not belong to this run (connection_open). `timeout`: seconds of
// silence after which a rank counts as gone; at the start all have at least 300 to connect.
bool comm_open(Comm* comm, const Launch* launch, double timeout, Error* err);

// Waits until all processes call it, then disconnects.
void comm_close(Comm* comm);

// Connects the devices of all processes. Call it after opening this process's device and before planning its memory:
// NCCL allocates memory of the device.
void comm_connect(Comm* comm);

// Tells the others this process's step and activity, for their messages and for the watchdog
// (watchdog_report_activity).
void comm_report_activity(Comm* comm, long long step, RankActivity activity);

// ---------------------------------------------------------------------------------------------------------------------
// between steps, in host memory

// Returns when all processes have called it.
void comm_barrier(Comm* comm);

// Returns `bytes` of each process, in order of rank; the caller frees them. Not for one process alone.
void* comm_gather(Comm* comm, const void* mine, size_t bytes);

// Returns the smallest of all processes' numbers.
size_t comm_min_host(Comm* comm, size_t mine);

// Returns true if `mine` is true on all processes.
bool comm_all(Comm* comm, bool mine);

// All-reduce: x (n) becomes its sum over all processes, added up in order of rank.
void comm_all_reduce_host(Comm* comm, double* x, size_t n);

// ---------------------------------------------------------------------------------------------------------------------
// within a step, in device memory

// All-reduce: x (n) becomes its sum over all processes. Complete after comm_end().
void comm_all_reduce_begin(Comm* comm, float* x, size_t n);

// Reduce-scatter: x (n) consists of `size` equal parts. Part number `rank` becomes its sum over all processes; the
// other parts are undefined afterwards. Complete after comm_end().
void comm_reduce_scatter_begin(Comm* comm, float* x, size_t n);

// All-gather: x consists of `size` equal parts. Each process provides part number `rank` and receives the others.
// Complete after comm_end().
void comm_all_gather_begin(Comm* comm, void* x, size_t bytes);

// Reduce: x (n) becomes its sum over all processes on process `root`; on the others it is undefined afterwards.
// Complete after comm_end().
void comm_reduce_begin(Comm* comm, float* x, size_t n, int root);

// Broadcast: process `root` provides x, the others receive it. Complete after comm_end().
void comm_broadcast_begin(Comm* comm, void* x, size_t bytes, int root);

// Completes the operations begun: work queued from now on sees their results.
void comm_end(Comm* comm);

// All-reduce: x (n) becomes its sum over all processes, for the work that is queued next.
void comm_all_reduce_sums(Comm* comm, double* x, int n);

END_C
