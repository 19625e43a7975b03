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
#include "../options/config.h"

// Runs the command `bench comm`. Returns the exit code: EXIT_CHECK_FAILED if a result was wrong.
int bench_comm(const Config* c, Comm* comm);
