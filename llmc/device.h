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
    int threads; // of the CPU; 0: OpenMP's choice
    bool plain;  // the readable kernels that the fast ones are tested against
    bool fused;  // bias, GELU and bias gradients inside the matmuls
    bool flash;  // attention in tiles
    bool tf32;   // matmuls of fp32 storage in TF32
    bool fp8;    // matmuls of the blocks, of bf16 storage, in FP8
} DeviceOptions;

// What the device cannot do of what is asked, in words; NULL: nothing. Before device_open(), which would refuse it.
OP const char* device_lacks(const DeviceOptions* options);
OP void device_open(const DeviceOptions* options);
OP const char* device_name(void);
OP int device_threads(void);
// The kernels in use: state.json names them, so that a resumed run takes the same.
OP const char* device_kernels(void);
// Operations per second at most in matmuls of the type in use, a multiply-add being two: known or measured.
OP double device_peak_flops(void);
// Bytes that memory moves per second while it is copied, those read and those written: measured.
OP double device_copy_bandwidth(void);

// Zeroed device memory; `what` names its purpose in errors.
OP void* device_alloc(size_t bytes, const char* what);
// Waits for all work queued before.
OP void device_free(void* p, size_t bytes);
// Bytes that can be allocated now. The caller asks before (check_memory in settings.h).
OP size_t device_memory_available(void);
// Host memory that batches are copied from: pinned, for a GPU.
OP void* host_alloc(size_t bytes, const char* what);
OP void host_free(void* p);

OP void device_zero(void* p, size_t bytes);
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

// Names what is queued between the two, for a profiler: `name`, or `name` and a layer's number if that is not negative.
OP void device_range_push(const char* name, int layer);
OP void device_range_pop(void);
