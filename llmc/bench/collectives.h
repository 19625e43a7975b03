// `bench comm`: times the collectives of a run by size, through the functions that training calls (comm.h).
//
// Bandwidths are those of nccl-tests (doc/PERFORMANCE.md there), so that figures compare: the algorithm's is the bytes
// of the whole array, as each process knows it, over time; the bus's is that times the moves that each byte needs at
// least, 2(n-1)/n for an all-reduce and (n-1)/n for a reduce-scatter or all-gather, so that it does not depend on the
// number of processes and compares with the speed of the wires.
//
// Before its time is taken, each operation is made once with values that differ by place and by process. Their sums are
// whole numbers that fp32 holds, so that any order of adding gives the same. A wrong sum is exit code 3.
#pragma once
#include "../comm/comm.h"
#include "record.h"
#include "scale_model.h"

typedef struct {
    const Backend* backend;
    Comm* comm;
    void* x; // `room` bytes of device memory
    size_t room;
    bool wrong; // set when a result was wrong
} CommBench;

// Returns the largest value among all processes.
double comm_slowest(Comm* comm, double mine);

// Allocates memory for arrays of up to `bytes`, or as many as all processes have room for. The device is open.
CommBench comm_bench_open(const Backend* backend, Comm* comm, size_t bytes);

// Frees the memory.
void comm_bench_close(CommBench* b);

// Measures the bandwidth and latency between the processes, for scale_model.h, from the times of an all-reduce of 8
// bytes and of one of `bytes`: a ring passes on 2(n-1) messages, one after another.
Link comm_bench_link(CommBench* b, size_t bytes);

// ---------------------------------------------------------------------------------------------------------------------
// the command

// A usage error for --batch_size auto with several processes.
void bench_check_batch(const Config* c, const Comm* comm);

// Ends the program: `command` needs several processes. otherwise: what could be given instead.
void how_to_start_several(const char* command, const char* otherwise);

// Runs the command `bench comm`. Returns the exit code: EXIT_CHECK_FAILED if a result was wrong.
int bench_comm(const Config* c, Comm* comm);
