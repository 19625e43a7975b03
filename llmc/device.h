// The contract between the program and the device it trains on, beside ops.h: llmc/cpu/device.h and
// llmc/cuda/device.cuh both implement exactly these functions.
//
// Work is done in the order in which it is asked for, and, on a GPU, later: functions that queue work return at once,
// device_copy_out() and device_sync() wait for all that was queued before. Errors end the program.
#pragma once
#include "base.h"

// The storage type of activations and weights: one object file for each (-DFLOATX=fp32 or bf16).
#ifndef FLOATX
#define FLOATX fp32
#endif
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define STRING_(a) #a
#define STRING(a) STRING_(a)

// Functions of a device: declared by its contract, defined by its headers, in the same translation unit.
#define OP static inline

// What a run asks of its device.
typedef struct {
    int index;   // which GPU
    bool of_rank; // the index is the process's rank on its machine: where it sees one GPU of its own, that one
    int threads; // of the CPU; 0: OpenMP's choice
    bool plain;  // the readable kernels that the fast ones are tested against
    bool fused;  // bias, GELU and bias gradients inside the matmuls
    bool flash;  // attention in tiles
    bool tf32;   // matmuls of fp32 storage in TF32
    bool fp8;    // matmuls of the blocks, of bf16 storage, in FP8
    bool graph;  // replay recorded work (device_replay) on a GPU
    const char* attention; // whose, by name (--kernels flash, cudnn); NULL: the device's choice
} DeviceOptions;

// Whether there is a device to be opened.
OP bool device_exists(void);
// What the device cannot do of what is asked, in words; NULL: nothing. Before device_open(), which would refuse it.
OP const char* device_lacks(const DeviceOptions* options);
OP void device_open(const DeviceOptions* options);
OP const char* device_name(void);
// Which of the machine's GPUs it is: a name that no other has; empty for a CPU, which processes may share.
OP const char* device_identity(void);
OP int device_threads(void);
// The kernels in use, with all that was chosen (choose.h): state.json names them, so that a resumed run takes the same.
OP const char* device_kernels(void);
// Seconds that the device takes for what is queued between the two; the second one waits for it.
OP void device_timer_start(void);
OP double device_timer_stop(void);
// Operations per second at most in matmuls of the type in use, a multiply-add being two: known or measured.
OP double device_peak_flops(void);
// The same, always measured: what a large matmul reaches.
OP double device_matmul_flops(void);
// Bytes that memory moves per second while it is copied, those read and those written: measured.
OP double device_copy_bandwidth(void);

// Zeroed device memory; `what` names its purpose in errors.
OP void* device_alloc(size_t bytes, const char* what);
// Waits for all work queued before.
OP void device_free(void* p, size_t bytes);
// Bytes that can be allocated now. The caller asks before (check_memory in settings.h).
OP size_t device_memory_available(void);
// The same for a device with `total` bytes that does nothing else; it need not be here.
OP size_t device_memory_usable(size_t total);
// Host memory that batches are copied from: pinned, for a GPU.
OP void* host_alloc(size_t bytes, const char* what);
OP void host_free(void* p);

OP void device_zero(void* p, size_t bytes);
// Queues a copy within device memory; the two do not overlap.
OP void device_copy(void* to, const void* from, size_t bytes);
// host may be changed or read when these return.
OP void device_copy_in(void* device, const void* host, size_t bytes);
OP void device_copy_out(void* host, const void* device, size_t bytes);
// Copies a batch (host memory from host_alloc) while earlier work goes on; what is queued afterwards sees it. `device`
// must not be what the previous call wrote; host must stay as it is until the next call returns.
OP void device_upload(void* device, const void* host, size_t bytes);
// Queue a copy from or to host memory (from host_alloc), which must stay as it is, or can be read, after device_sync().
OP void device_send(void* device, const void* host, size_t bytes);
OP void device_fetch(void* host, const void* device, size_t bytes);
OP void device_sync(void);

// Work that is queued again and again: a GPU records what `work` queues and replays that as a whole. Recordings belong
// to one piece of work; a NULL one is empty. `work` may only queue: what else it does on the host is not repeated, and
// copies, sync and memory functions other than device_send, device_fetch and device_zero are not for it. All that it
// depends on, and that changes from one time to the next, must lie in device memory or in `arguments` (`bytes` of them,
// padding zeroed); other arguments than last time cost a new recording, two sets in turn do not.
typedef struct Recording Recording;
typedef void (*Work)(const void* arguments);
OP void device_replay(Recording** recording, const char* name, Work work, const void* arguments, size_t bytes);
// To be called before memory that the work uses is freed.
OP void device_forget(Recording** recording);

// Names what is queued between the two, for a profiler: `name`, or `name` and a layer's number if that is not negative.
OP void device_range_push(const char* name, int layer);
OP void device_range_pop(void);
