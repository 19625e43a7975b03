// The device: an NVIDIA GPU of compute capability 7.5 (Turing) or later. This file has the storage types, the state
// that all kernels share, error handling, memory and copies; open.cuh opens the device.
//
// All kernels run in one stream, gpu.stream, one after another. Batches are copied in a second stream, gpu.upload.
// NCCL has a third one (cuda/nccl.cuh), and --offload two more (cuda/state.cuh).
//
// Numbers without a source in this folder (sizes of tiles and blocks, blocks per SM, limits) are chosen, not measured.
//
// The object files of one program include these headers with different FLOATX (bf16, fp16, fp32). The linker keeps one
// copy of whatever has external linkage and the same name in several, so such a thing must not depend on floatX (C++'s
// one definition rule). Functions are therefore static, kernels are static or templates on the element type, and
// structs with members of type floatX stand in unnamed namespaces. Only `gpu` is meant to be shared.
#pragma once
#include "../model/backend.h"
#include "attention_cudnn.h"
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <nvtx3/nvToolsExt.h>
#include <type_traits>

// ---------------------------------------------------------------------------------------------------------------------
// storage types: kernels convert floatX to and from float by to_float() and from_float<type>() only

#ifndef FLOATX
#define FLOATX fp32
#endif
typedef float fp32;
typedef __nv_bfloat16 bf16;
typedef __half fp16;
typedef FLOATX floatX;
static constexpr bool FLOATX_IS_16_BITS = sizeof(floatX) == 2, FLOATX_IS_FP16 = std::is_same_v<floatX, fp16>;

static inline HOST_DEVICE float to_float(fp32 x) { return x; }
static inline HOST_DEVICE float to_float(bf16 x) { return __bfloat162float(x); }
static inline HOST_DEVICE float to_float(fp16 x) { return __half2float(x); }
template <class Type> static inline HOST_DEVICE Type from_float(float x);
template <> inline HOST_DEVICE fp32 from_float<fp32>(float x) { return x; }
template <> inline HOST_DEVICE bf16 from_float<bf16>(float x) { return __float2bfloat16_rn(x); }
template <> inline HOST_DEVICE fp16 from_float<fp16>(float x) { return __float2half_rn(x); }
static inline HOST_DEVICE floatX to_floatX(float x) { return from_float<floatX>(x); }

// Returns a master rounded at random to a number of floatX: element i of the parameters, by an update.
static inline HOST_DEVICE float rounded_at_random(float master, uint64_t seed, int step, size_t i) {
    return JOIN(FLOATX, _stochastic)(master, rounding_random(seed, step, i));
}

// ---------------------------------------------------------------------------------------------------------------------
// state

static constexpr int WARP_SIZE = 32;
// cuBLAS's documentation recommends 32 MiB for Hopper ("cublasSetWorkspace"). With more, tune.cuh can also try
// algorithms that split the depth.
static constexpr size_t WORKSPACE_BYTES = (size_t)128 << 20, SCRATCH_BYTES = (size_t)16 << 20;
// Multiprocessors that matmuls may leave to NCCL; chosen, not measured.
static constexpr int NCCL_SMS = 16;

// Implementations of attention: plain kernels (attention.cuh), flash.cuh, cuDNN.
typedef enum { ATTENTION_PLAIN, ATTENTION_FLASH, ATTENTION_CUDNN } Attention;
typedef enum { PASS_FORWARD, PASS_BACKWARD, NUM_PASSES } Pass;
// Kernels of flash.cuh: forward; backward of keys and values, and of queries.
typedef enum { FLASH_FORWARD, FLASH_KEYS, FLASH_QUERIES, NUM_FLASH_KERNELS } FlashKernel;

// The workspace of cuDNN's attention in a pass, and the shape that was prepared last.
typedef struct {
    char* memory;
    size_t bytes;
    AttentionShape shape;
} CudnnWorkspace;

typedef struct {
    bool plain, fused, flash, tf32, fp8, graph, document_mask, recomputes_gelu, nondeterministic; // DeviceOptions
    const char* requested_attention; // DeviceOptions.attention
    // set by device_open(), then by choose_variant()
    Attention attention[NUM_PASSES];
    bool gelu_fused[NUM_PASSES];
    int flash_variant[NUM_FLASH_KERNELS];         // the tiling (flash_block.cuh)
    char flash_name[NUM_FLASH_KERNELS][16];       // its name; empty: there was no choice
    Choice alone;         // of run_alone()
    int gpus_leaving_sms; // GPUs of the run, if several and all of them can leave multiprocessors to NCCL; else 0
    bool is_beside_nccl;  // collectives may run beside what is queued
    bool leaves_sms;      // matmuls leave multiprocessors to them; set by choose_variant()
    int cudnn_B, cudnn_T; // cuDNN's attention is used for this shape of micro-batch only; 0: any
    bool is_open;
    int index, num_sms;
    int major, minor; // compute capability
    char name[256], identity[33];
    cudaStream_t stream, upload;
    cudaEvent_t uploaded;    // the last upload is complete
    cudaEvent_t consumed[2]; // the work queued before upload number k is done: [k % 2]
    size_t uploads;          // number of the next upload
    cudaStream_t state_in, state_out;      // copies of state in host memory (state.cuh); NULL: there is none
    cudaEvent_t state_arrived;             // the last copy in is complete
    cudaEvent_t state_updated;             // the work queued before the last copy out is done
    cudaEvent_t state_left[STATE_SLOTS];   // the last copy out of a slot is complete
    bool state_is_pageable;                // host memory could not be locked
    cudaEvent_t timer[2]; // of device_timer_start() and device_timer_stop()
    cublasLtHandle_t cublaslt;
    char* workspace; // WORKSPACE_BYTES, used by cuBLASLt only
    char* scratch;   // SCRATCH_BYTES for partial sums, valid from one launch to the next
    CudnnWorkspace cudnn_workspace[NUM_PASSES];
    bool is_capturing;          // queued work goes into a graph (graph.cuh)
    const char* capture_failed; // the first call that the capture refused; NULL: none
    void (*on_free)(const void* memory, size_t bytes); // called before device memory is freed; or NULL
} Gpu;

inline Gpu gpu; // the one variable that the object files share

// Returns the name of the arithmetic of matmuls, as --dtype has it.
static inline const char* gpu_dtype() { return gpu.fp8 ? "fp8" : gpu.tf32 ? "tf32" : STRING(FLOATX); }

static inline bool is_attention_requested(const char* name) {
    return gpu.requested_attention && !strcmp(gpu.requested_attention, name);
}

// ---------------------------------------------------------------------------------------------------------------------
// errors

// Ends the program after a failed call. After an error inside the GPU its memory and streams cannot be used any more.
static inline void ATTR_NORETURN cuda_fail(cudaError_t error, const char* what) {
    const char *name = cudaGetErrorName(error), *text = cudaGetErrorString(error);
    if (error == cudaErrorMemoryAllocation) {
        fatal("%s: the GPU is out of memory (%s): another program may have taken it; give a smaller --batch_size, or "
              "--recompute all",
              what, name);
    }
    if (error == cudaErrorECCUncorrectable) {
        fatal("%s: the GPU's memory is damaged (%s: %s). " CHECKPOINTS_ARE_WHOLE ", on another GPU if this happens "
              "again", what, name, text);
    }
    if (!gpu.is_open) { fatal("%s: the GPU cannot be used (%s: %s): look at nvidia-smi", what, name, text); }
    fatal("%s: the GPU failed (%s: %s). " CHECKPOINTS_ARE_WHOLE, what, name, text);
}

// Returns true while a graph is captured, and notes the first failure. Nothing runs during a capture, so a failed call
// does no harm: the graph is dropped and its work is launched kernel by kernel.
static inline bool note_capture_failure(const char* what) {
    if (gpu.is_capturing && !gpu.capture_failed) { gpu.capture_failed = what; }
    return gpu.is_capturing;
}

static inline void cuda_check(cudaError_t error, const char* what) {
    if (error != cudaSuccess && !note_capture_failure(what)) { cuda_fail(error, what); }
}

// Ends the program if the last launch failed; call it after each launch. An error inside a kernel shows only at the
// next synchronization.
static inline void cuda_launched(const char* kernel) { cuda_check(cudaGetLastError(), kernel); }

static inline void cublas_check(cublasStatus_t status, const char* what) {
    if (status != CUBLAS_STATUS_SUCCESS && !note_capture_failure(what)) {
        fatal("%s: cuBLASLt failed: %s", what, cublasLtGetStatusString(status));
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// streams and events

static inline cudaStream_t new_stream() {
    cudaStream_t stream = NULL;
    cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "creating a stream");
    return stream;
}

// An event that orders streams, and takes no time.
static inline cudaEvent_t new_event() {
    cudaEvent_t event = NULL;
    cuda_check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "creating an event");
    return event;
}

// Makes the work queued in `later` from now on wait for all work queued in `earlier` so far. `what` names it in errors.
static inline void stream_order(cudaEvent_t event, cudaStream_t earlier, cudaStream_t later, const char* what) {
    cuda_check(cudaEventRecord(event, earlier), "recording an event");
    cuda_check(cudaStreamWaitEvent(later, event, 0), what);
}

// ---------------------------------------------------------------------------------------------------------------------
// memory

static inline void device_sync(void) { cuda_check(cudaStreamSynchronize(gpu.stream), "waiting for the GPU"); }

static inline void device_zero(void* p, size_t bytes) {
    cuda_check(cudaMemsetAsync(p, 0, bytes, gpu.stream), "zeroing memory");
}

// A capture would refuse to allocate, and callers keep the address for later launches.
static inline void* device_alloc(size_t bytes, const char* what) {
    void* p = NULL;
    if (gpu.is_capturing) { fatal("%s: memory is allocated while a graph is recorded", what); }
    cuda_check(cudaMalloc(&p, max_size(bytes, 1)), what);
    device_zero(p, max_size(bytes, 1));
    return p;
}
static inline void device_free(void* p, size_t bytes) {
    device_sync();
    if (gpu.on_free) { gpu.on_free(p, bytes); }
    cuda_check(cudaFree(p), "freeing memory");
}

// Returns the reserve for fragmentation, for graphs, and for the libraries' kernels, which are loaded at their first
// use. Its size is chosen, not measured.
static inline size_t memory_margin(size_t total) { return total / 64 + ((size_t)256 << 20); }

static inline size_t device_memory_available(void) {
    size_t available = 0, total = 0;
    cuda_check(cudaMemGetInfo(&available, &total), "asking for the free memory");
    return available - min_size(available, memory_margin(total));
}
// GPUs of up to 24 GB may have ECC within GDDR6: a T4 reports 14.75 GiB of 16, an L4 22.2 of 24 (PyTorch's messages).
// Others report up to 2% less than their names say. Assumes (not measured) that driver, context and kernels take half a
// GiB before anything is allocated.
static inline size_t device_memory_usable(size_t total) {
    const size_t missing = total <= (size_t)24 << 30 ? total / 25 * 2 : total / 50;
    const size_t context = (size_t)512 << 20, opened = WORKSPACE_BYTES + SCRATCH_BYTES;
    return total - min_size(total, missing + context + opened + memory_margin(total));
}

static inline void* host_alloc(size_t bytes, const char* what) {
    void* p = NULL;
    const cudaError_t error = cudaMallocHost(&p, max_size(bytes, 1));
    if (error == cudaErrorMemoryAllocation) {
        fatal("%s: %zu bytes of host memory cannot be locked in place: free some, or give a smaller --batch_size", what,
              bytes);
    }
    cuda_check(error, what);
    memset(p, 0, bytes);
    return p;
}
static inline void host_free(void* p) {
    if (!p) { return; }
    device_sync(); // copies from it may be queued
    cuda_check(cudaFreeHost(p), "freeing host memory");
}

// ---------------------------------------------------------------------------------------------------------------------
// copies

static inline void device_copy(void* to, const void* from, size_t bytes) {
    cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, gpu.stream), "copying on the GPU");
}
static inline void device_send(void* device, const void* host, size_t bytes) {
    cuda_check(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, gpu.stream), "copying to the GPU");
}
static inline void device_fetch(void* host, const void* device, size_t bytes) {
    cuda_check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, gpu.stream), "copying from the GPU");
}
static inline void device_copy_in(void* device, const void* host, size_t bytes) {
    device_send(device, host, bytes);
    device_sync();
}
static inline void device_copy_out(void* host, const void* device, size_t bytes) {
    device_fetch(host, device, bytes);
    device_sync();
}

// Two buffers take turns, so upload k overwrites the batch of upload k-2. All work that reads that batch was queued
// before upload k-1, when consumed[k-1] was recorded: waiting for this event is enough.
static inline void device_upload(void* device, const void* host, size_t bytes) {
    const size_t k = gpu.uploads++;
    cuda_check(cudaEventRecord(gpu.consumed[k % 2], gpu.stream), "recording an event");
    if (k > 0) {
        cuda_check(cudaEventSynchronize(gpu.uploaded), "waiting for a batch");
        cuda_check(cudaStreamWaitEvent(gpu.upload, gpu.consumed[(k + 1) % 2], 0), "waiting for a batch");
    }
    cuda_check(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, gpu.upload), "copying a batch to the GPU");
    stream_order(gpu.uploaded, gpu.upload, gpu.stream, "waiting for a batch");
}

// ---------------------------------------------------------------------------------------------------------------------
// timing, and names for a profiler (Nsight Systems)

static inline void device_timer_start(void) {
    cuda_check(cudaEventRecord(gpu.timer[0], gpu.stream), "recording an event");
}
static inline double device_timer_stop(void) {
    float ms = 0;
    cuda_check(cudaEventRecord(gpu.timer[1], gpu.stream), "recording an event");
    cuda_check(cudaEventSynchronize(gpu.timer[1]), "waiting for the GPU");
    cuda_check(cudaEventElapsedTime(&ms, gpu.timer[0], gpu.timer[1]), "timing kernels");
    return 1e-3 * ms;
}

static inline void device_range_push(const char* name, int layer) {
    char text[64];
    if (layer >= 0) { snprintf(text, sizeof text, "%s %d", name, layer); }
    nvtxRangePushA(layer >= 0 ? text : name);
}
static inline void device_range_pop(void) { nvtxRangePop(); }
