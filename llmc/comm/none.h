// One process: every operation of comm is the identity. The others: mpi.h (host memory), nccl.cuh (device memory).
//
//   comm_reduce_begin  starts to add up a range of the gradients over all ranks; it is a GradsReady (gpt2.h)
//   comm_reduce_end    waits until all ranges are added up
//   comm_sum           adds up a few numbers over all ranks
#pragma once
#include "../base.h"

typedef struct {
    int rank, size;
} Comm;

static inline Comm comm_open(void) {
    Comm comm = {0, 1};
    return comm;
}
static inline void comm_close(Comm* comm) { (void)comm; }
static inline void comm_reduce_begin(void* comm, float* grads, size_t begin, size_t count) {
    (void)comm, (void)grads, (void)begin, (void)count;
}
static inline void comm_reduce_end(Comm* comm) { (void)comm; }
static inline void comm_sum(Comm* comm, double* x, int n) { (void)comm, (void)x, (void)n; }
