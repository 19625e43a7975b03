// The engine for GPUs: NCCL, in a stream of its own, so that the gradients of finished layers go out while kernels of
// the layers below run. Events order the two streams: a sum begins when what it adds up is there, and comm_end() holds
// the kernels that come next until all sums are made. NCCL chooses rings or trees by sizes and by how the GPUs are
// connected.
#pragma once
#include "../comm.h"
#include "../cuda/device.cuh"
#include <nccl.h>

typedef struct {
    ncclComm_t comm;
    cudaStream_t stream;
    cudaEvent_t event; // the last point that one of the streams told the other of
} NcclState;

static inline void nccl_check(ncclResult_t result, const char* what) {
    if (result == ncclSuccess || result == ncclInProgress) { return; }
    const char* way_out = result == ncclUnhandledCudaError ? "the GPU failed, or has too little memory left: look at "
                                                             "nvidia-smi, give a smaller --batch_size"
                          : result == ncclSystemError      ? "the network failed: NCCL_SOCKET_IFNAME chooses one"
                                                           : "NCCL_DEBUG=WARN says more";
    fatal("%s: NCCL failed: %s: %s. Checkpoints on disk are whole: go on with --resume auto", what,
          ncclGetErrorString(result), way_out);
}

// What is queued in `later` from now on waits for what is queued in `earlier` now.
static inline void nccl_order(NcclState* s, cudaStream_t earlier, cudaStream_t later) {
    cuda_check(cudaEventRecord(s->event, earlier), "recording an event");
    cuda_check(cudaStreamWaitEvent(later, s->event, 0), "waiting for other GPUs");
}

static inline bool nccl_open(Comm* comm, Error* err) {
    (void)err;
    comm->state = alloc_or_die(1, sizeof(NcclState), "NCCL's state");
    return true;
}

static inline void nccl_sum(Comm* comm, double* x, int n);

// The first sum is made here: NCCL takes most of its memory with that, which the plan of a run's memory has to know.
static inline void nccl_connect(Comm* comm) {
    NcclState* s = (NcclState*)comm->state;
    ncclUniqueId id;
    memset(&id, 0, sizeof id);
    if (comm->rank == 0) { nccl_check(ncclGetUniqueId(&id), "starting NCCL"); }
    bootstrap_broadcast(comm->peers, &id, sizeof id);
    nccl_check(ncclCommInitRank(&s->comm, comm->size, id, comm->rank), "connecting the GPUs");
    cuda_check(cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking), "creating a stream");
    cuda_check(cudaEventCreateWithFlags(&s->event, cudaEventDisableTiming), "creating an event");
    double* first = (double*)device_alloc(sizeof *first, "connecting the GPUs");
    nccl_sum(comm, first, 1);
    device_free(first, sizeof *first);
}

static inline void nccl_sum_begin(Comm* comm, float* x, size_t n) {
    NcclState* s = (NcclState*)comm->state;
    nccl_order(s, gpu.stream, s->stream);
    nccl_check(ncclAllReduce(x, x, n, ncclFloat, ncclSum, s->comm, s->stream), "adding up gradients");
}

static inline void nccl_scatter_begin(Comm* comm, float* x, size_t n) {
    NcclState* s = (NcclState*)comm->state;
    const size_t part = n / (size_t)comm->size;
    nccl_order(s, gpu.stream, s->stream);
    nccl_check(ncclReduceScatter(x, x + (size_t)comm->rank * part, part, ncclFloat, ncclSum, s->comm, s->stream),
               "adding up gradients");
}

static inline void nccl_gather_begin(Comm* comm, void* x, size_t bytes) {
    NcclState* s = (NcclState*)comm->state;
    const size_t part = bytes / (size_t)comm->size;
    nccl_order(s, gpu.stream, s->stream);
    nccl_check(ncclAllGather((char*)x + (size_t)comm->rank * part, x, part, ncclUint8, s->comm, s->stream),
               "exchanging parameters");
}

static inline void nccl_end(Comm* comm) {
    NcclState* s = (NcclState*)comm->state;
    nccl_order(s, s->stream, gpu.stream);
}

static inline void nccl_sum(Comm* comm, double* x, int n) {
    NcclState* s = (NcclState*)comm->state;
    nccl_order(s, gpu.stream, s->stream);
    nccl_check(ncclAllReduce(x, x, (size_t)n, ncclDouble, ncclSum, s->comm, s->stream), "adding up losses");
    nccl_order(s, s->stream, gpu.stream);
}

static inline void nccl_close(Comm* comm) {
    NcclState* s = (NcclState*)comm->state;
    if (s->comm) {
        cuda_check(cudaStreamSynchronize(s->stream), "waiting for other GPUs");
        nccl_check(ncclCommDestroy(s->comm), "leaving NCCL");
        cuda_check(cudaEventDestroy(s->event), "giving back an event");
        cuda_check(cudaStreamDestroy(s->stream), "giving back a stream");
    }
    free(s);
}

static const CommEngine NCCL_ENGINE = {"NCCL",           "cuda",   nccl_open, nccl_connect, nccl_sum_begin,
                                       nccl_scatter_begin, nccl_gather_begin, nccl_end,  nccl_sum,     nccl_close};
