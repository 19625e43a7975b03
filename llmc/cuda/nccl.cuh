// Collectives between GPUs by NCCL. They run in a stream of their own, so that the gradients of finished layers are
// reduced while backward of the layers below runs. Events order the two streams: a collective waits for the kernels
// that were queued before it, and comm_end() makes later kernels wait for all collectives. The stream has the highest
// priority: when a block of a kernel ends, NCCL's waiting blocks start before the next ones of backward, so that the
// reduction of a layer is not delayed until backward is done.
//
// NCCL chooses rings or trees by the sizes and by how the GPUs are connected. On machines with NVSwitches it could also
// let the switches add up (NVLS, and NVLSTree between machines). Their sums differ from call to call in the last bits
// (https://github.com/NVIDIA/nccl/issues/1497), so a run would not repeat its bits, as comm.h promises.
#pragma once
#include "device.cuh"
#include "../base/library.h"
#include "../comm/comm.h"
#include "../comm/connect.h"
#include <nccl.h>

typedef struct {
    ncclComm_t comm;
    cudaStream_t stream;
    cudaEvent_t event; // recorded in one stream, waited for by the other
} NcclState;

// Returns what NCCL says about a failure, with its own reason; the caller frees it.
static inline char* nccl_message(ncclResult_t result) {
    const char* reason = ncclGetLastError(NULL);
    const bool is_known = reason && *reason;
    return format("NCCL failed: %s%s%s%s", ncclGetErrorString(result), is_known ? " (" : "", is_known ? reason : "",
                  is_known ? ")" : "");
}

static inline void nccl_check(ncclResult_t result, const char* what) {
    if (result == ncclSuccess) { return; }
    const char* advice = result == ncclUnhandledCudaError ? "the GPU failed, or has too little memory left: look at "
                                                            "nvidia-smi, give a smaller --batch_size"
                         : result == ncclSystemError
                             ? "the network failed (NCCL_SOCKET_IFNAME chooses one), or /dev/shm is full (in a "
                               "container: --shm-size=1g)"
                             : "NCCL_DEBUG=WARN says more";
    fatal("%s: %s: %s. " CHECKPOINTS_ARE_WHOLE, what, nccl_message(result), advice);
}

// Makes the next collective wait for the kernels queued so far. Returns the state.
static inline NcclState* nccl_begin(Comm* comm) {
    NcclState* s = (NcclState*)comm->state;
    stream_order(s->event, gpu.stream, s->stream, "waiting to communicate");
    gpu.is_beside_nccl = true;
    return s;
}

static inline bool nccl_open(Comm* comm, Error* err) {
    comm->state = alloc_or_die(1, sizeof(NcclState), "NCCL's state");
    return library_reach("libnccl.so." STRING(NCCL_MAJOR),
                         "several GPUs need NCCL: run `pip install nvidia-nccl-cu" STRING(CUBLAS_VER_MAJOR) "`", err);
}

// Sets what the user has not set.
//
// NVLS is excluded, unless NCCL_ALGO is set: where NVSwitches add up, a run does not repeat its bits. NCCL compares
// whole names (parseList in its graph/tuning.cc), so both are named. It would set NVLS up all the same, and cannot in
// containers without /dev/nvidia-caps or beside an ailing fabric manager
// (https://github.com/NVIDIA/nccl/issues/1788): NCCL_NVLS_ENABLE keeps it from that.
//
// NCCL connects all GPUs at once, not at the first use of each algorithm (as it does since 2.22): memory is planned
// after this, and a connection that cannot be made is an error before training.
static inline void nccl_set_variables(Comm* comm) {
    const int overwrite = 0;
    if (!getenv("NCCL_ALGO")) { setenv("NCCL_NVLS_ENABLE", "0", overwrite); }
    setenv("NCCL_ALGO", "^NVLS,NVLSTree", overwrite);
    setenv("NCCL_RUNTIME_CONNECT", "0", overwrite);
    comm->algorithms = getenv("NCCL_ALGO");
}

static inline cudaStream_t nccl_stream() {
    int least, greatest;
    cudaStream_t stream = NULL;
    cuda_check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "asking for the priorities of streams");
    cuda_check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest), "creating a stream");
    return stream;
}

// After an error of the network NCCL's kernels wait for ever; only this call says why.
static inline const char* nccl_failure(void* state) {
    ncclResult_t result = ncclSuccess;
    if (ncclCommGetAsyncError(((NcclState*)state)->comm, &result) != ncclSuccess) { return NULL; }
    if (result == ncclSuccess || result == ncclInProgress) { return NULL; }
    return format("%s. " CHECKPOINTS_ARE_WHOLE, nccl_message(result));
}

static inline void nccl_all_reduce_begin(Comm* comm, float* x, size_t n) {
    NcclState* s = nccl_begin(comm);
    nccl_check(ncclAllReduce(x, x, n, ncclFloat, ncclSum, s->comm, s->stream), "adding up gradients");
}

static inline void nccl_reduce_scatter_begin(Comm* comm, float* x, size_t n) {
    NcclState* s = nccl_begin(comm);
    const size_t part = n / (size_t)comm->size;
    nccl_check(ncclReduceScatter(x, x + (size_t)comm->rank * part, part, ncclFloat, ncclSum, s->comm, s->stream),
               "adding up gradients");
}

static inline void nccl_all_gather_begin(Comm* comm, void* x, size_t bytes) {
    NcclState* s = nccl_begin(comm);
    const size_t part = bytes / (size_t)comm->size;
    nccl_check(ncclAllGather((char*)x + (size_t)comm->rank * part, x, part, ncclUint8, s->comm, s->stream),
               "exchanging parameters");
}

static inline void nccl_reduce_begin(Comm* comm, float* x, size_t n, int root) {
    NcclState* s = nccl_begin(comm);
    nccl_check(ncclReduce(x, x, n, ncclFloat, ncclSum, root, s->comm, s->stream), "adding up gradients");
}

static inline void nccl_broadcast_begin(Comm* comm, void* x, size_t bytes, int root) {
    NcclState* s = nccl_begin(comm);
    nccl_check(ncclBroadcast(x, x, bytes, ncclUint8, root, s->comm, s->stream), "exchanging parameters");
}

static inline void nccl_end(Comm* comm) {
    NcclState* s = (NcclState*)comm->state;
    stream_order(s->event, s->stream, gpu.stream, "waiting for other GPUs");
    gpu.is_beside_nccl = false;
}

static inline void nccl_sum(Comm* comm, double* x, int n) {
    NcclState* s = nccl_begin(comm);
    nccl_check(ncclAllReduce(x, x, (size_t)n, ncclDouble, ncclSum, s->comm, s->stream), "adding up losses");
    nccl_end(comm);
}

// Ends with a first all-reduce, which counts the GPUs whose matmuls may leave multiprocessors to NCCL. From Hopper on
// the blocks of a matmul stay until all of its tiles are done, so that it may take twice as long if NCCL has but one
// multiprocessor.
static inline void nccl_connect(Comm* comm) {
    NcclState* s = (NcclState*)comm->state;
    ncclUniqueId id;
    nccl_set_variables(comm);
    memset(&id, 0, sizeof id);
    if (comm->rank == 0) { nccl_check(ncclGetUniqueId(&id), "starting NCCL"); }
    connection_broadcast(comm->peers, &id, sizeof id);
    nccl_check(ncclCommInitRank(&s->comm, comm->size, id, comm->rank), "connecting the GPUs");
    watchdog_watch(comm->peers, nccl_failure, s);
    s->stream = nccl_stream();
    s->event = new_event();
    double* first = (double*)device_alloc(sizeof *first, "connecting the GPUs");
    double count = gpu.major >= 9 && gpu.num_sms > 2 * NCCL_SMS;
    device_copy_in(first, &count, sizeof count);
    nccl_sum(comm, first, 1);
    device_copy_out(&count, first, sizeof count);
    device_free(first, sizeof *first);
    gpu.gpus_leaving_sms = count == comm->size ? comm->size : 0;
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

static const CommEngine NCCL_ENGINE = {.name = "NCCL",
                                       .open = nccl_open,
                                       .connect = nccl_connect,
                                       .all_reduce_begin = nccl_all_reduce_begin,
                                       .reduce_scatter_begin = nccl_reduce_scatter_begin,
                                       .all_gather_begin = nccl_all_gather_begin,
                                       .reduce_begin = nccl_reduce_begin,
                                       .broadcast_begin = nccl_broadcast_begin,
                                       .end = nccl_end,
                                       .sum = nccl_sum,
                                       .close = nccl_close};
