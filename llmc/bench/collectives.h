// `bench comm`: times the collectives of a run by size, through the functions that training calls (comm.h).
//
// Bandwidths are those of nccl-tests (doc/PERFORMANCE.md there), so that figures compare. Algorithm bandwidth: bytes of
// the whole array over time. Bus bandwidth: that times the least number of times that each byte has to move, 2(n-1)/n
// for an all-reduce and (n-1)/n for a reduce-scatter or all-gather. It does not depend on the number of processes and
// compares with the speed of the wires.
//
// Before it is timed, each operation runs once on values that differ by element and by process. Their sums are whole
// numbers that fp32 holds, so any order of adding gives the same. A wrong sum is exit code 3.
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

// Allocates memory for arrays of up to `bytes`, or less if a process has no room for that. The device must be open.
CommBench comm_bench_open(const Backend* backend, Comm* comm, size_t bytes);

// Frees the memory.
void comm_bench_close(CommBench* b);

// Measures the bandwidth and latency between the processes, for scale_model.h, from the times of a small all-reduce and
// of one of `bytes`. The latency is the small one's time over the 2(n-1) messages that a ring sends one after another.
Link comm_bench_link(CommBench* b, size_t bytes);

// ---------------------------------------------------------------------------------------------------------------------
// the command

// Ends the program with a usage error for --batch_size auto with several processes.
void bench_check_batch(const Config* c, const Comm* comm);

// Ends the program with a usage error: `command` needs several processes. `otherwise` is the end of that message.
void how_to_start_several(const char* command, const char* otherwise);

// Runs the command `bench comm`. Returns the exit code: EXIT_CHECK_FAILED if a result was wrong.
int bench_comm(const Config* c, Comm* comm);
