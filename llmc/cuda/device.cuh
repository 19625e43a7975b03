// The device is an NVIDIA GPU of compute capability 8.0 (Ampere) or later: errors, memory, streams, the storage types.
//
// All kernels run in gpu.stream, one after another. Batches arrive through a stream of their own, gpu.upload.
#pragma once
#include "../device.h"
#include "../gpus.h"
#include "../host_memory.h"
#include "attention_cudnn.h"
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <nvtx3/nvToolsExt.h>

// ---------------------------------------------------------------------------------------------------------------------
// storage types: a kernel reads and writes floatX, and float, through to_float() and from_float<type>() alone

typedef float fp32;
typedef __nv_bfloat16 bf16;
typedef FLOATX floatX;

static inline HOST_DEVICE float to_float(fp32 x) { return x; }
static inline HOST_DEVICE float to_float(bf16 x) { return __bfloat162float(x); }
template <class Type> static inline HOST_DEVICE Type from_float(float x);
template <> inline HOST_DEVICE fp32 from_float<fp32>(float x) { return x; }
template <> inline HOST_DEVICE bf16 from_float<bf16>(float x) { return __float2bfloat16_rn(x); }
static inline HOST_DEVICE floatX to_floatX(float x) { return from_float<floatX>(x); }

// ---------------------------------------------------------------------------------------------------------------------
// state

#define DEVICE_NAME "cuda"
enum { DEVICE_IS_HOST = 0 };
enum { WARP_SIZE = 32 };
enum : size_t { WORKSPACE_BYTES = (size_t)32 << 20, SCRATCH_BYTES = (size_t)16 << 20 };

// Whose attention: attention.cuh's plain kernels, flash.cuh, or cuDNN.
typedef enum { ATTENTION_PLAIN, ATTENTION_FLASH, ATTENTION_CUDNN } Attention;

typedef struct {
    bool plain, fused, flash, tf32, fp8, graph; // DeviceOptions
    const char* attention_asked;                // DeviceOptions
    Attention attention;                        // what operations_choose() left, or device_open()
    bool gelu_forward_fused, gelu_backward_fused; // the same
    int cudnn_B, cudnn_T; // cuDNN's attention takes micro-batches of this shape; 0: of any
    bool is_open;
    int index, num_sms;
    size_t memory_bytes;
    int major, minor; // compute capability
    char name[256], identity[33];
    cudaStream_t stream, upload;
    cudaEvent_t uploaded;    // the last upload has come
    cudaEvent_t consumed[2]; // [k]: work that was queued before the last upload number 2n + k
    int uploads;
    cudaEvent_t timer[2]; // device_timer_start() and _stop()
    cublasLtHandle_t cublaslt;
    char* workspace; // WORKSPACE_BYTES, cuBLASLt's alone
    char* scratch;   // SCRATCH_BYTES, for sums in two steps: of use from one launch to the next
    char* attention_workspace; // cuDNN's
    size_t attention_workspace_bytes;
    bool is_capturing;          // what is queued goes into a graph (graph.cuh)
    const char* capture_failed; // the first thing that could not; NULL: nothing
    void (*freed)(const void* memory, size_t bytes); // is told of memory that is given back; or NULL
} Gpu;

inline Gpu gpu; // one for all storage types

// ---------------------------------------------------------------------------------------------------------------------
// errors

// Ends the program over a failed call. After an error of the GPU itself nothing on it can be used any more; checkpoints
// on disk are whole, because they are written under another name first.
static inline void ATTR_NORETURN cuda_fail(cudaError_t error, const char* what) {
    const char *name = cudaGetErrorName(error), *text = cudaGetErrorString(error);
    if (error == cudaErrorMemoryAllocation) {
        fatal("%s: the GPU is out of memory (%s): another program may have taken it; give a smaller --batch_size, or "
              "--recompute all",
              what, name);
    }
    if (error == cudaErrorECCUncorrectable) {
        fatal("%s: the GPU's memory is damaged (%s: %s). Checkpoints on disk are whole: go on with --resume auto, on "
              "another GPU if this happens again",
              what, name, text);
    }
    if (!gpu.is_open) { fatal("%s: the GPU cannot be used (%s: %s): look at nvidia-smi", what, name, text); }
    fatal("%s: the GPU failed (%s: %s). Checkpoints on disk are whole: go on with --resume auto", what, name, text);
}

// While a graph is captured nothing runs, so a failure harms nothing: it is noted, and the graph done without. True if
// that is so.
static inline bool capture_has_failed(const char* what) {
    if (gpu.is_capturing && !gpu.capture_failed) { gpu.capture_failed = what; }
    return gpu.is_capturing;
}

static inline void cuda_check(cudaError_t error, const char* what) {
    if (error != cudaSuccess && !capture_has_failed(what)) { cuda_fail(error, what); }
}

// After each launch: a launch that could not be made. What goes wrong inside a kernel shows at the next
// synchronization.
static inline void cuda_launched(const char* kernel) { cuda_check(cudaGetLastError(), kernel); }

// ---------------------------------------------------------------------------------------------------------------------
// opening

static inline bool attention_asked_is(const char* name) {
    return gpu.attention_asked && !strcmp(gpu.attention_asked, name);
}

// Refuses a --kernels that asks for attention that is not in this program, or that other options exclude.
static inline void attention_require(const DeviceOptions* o) {
    if (!o->attention) { return; }
    if (!o->flash) { usage_error("--kernels %s and --flash 0: attention is one or the other", o->attention); }
    if (strcmp(o->attention, "cudnn")) { return; }
    if (sizeof(floatX) != sizeof(bf16)) {
        usage_error("--kernels cudnn: cuDNN's attention is for --dtype bf16: give that, or --kernels flash");
    }
    if (!attention_cudnn_prepare) {
        usage_error("--kernels cudnn: this program was built without cuDNN: `sh scripts/setup.sh cudnn`, then `make "
                    "train_gpt2cu CUDNN=1`; or give --kernels flash");
    }
}

static __global__ void probe_kernel() {}

// Ends the program, with what to do, unless there is a driver and a GPU of that number, which it returns.
static inline int cuda_require_gpu(const DeviceOptions* o) {
    int driver = 0, runtime = 0, count = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (driver == 0) {
        fatal(
            "no NVIDIA driver: this program trains on NVIDIA GPUs. Install the driver (nvidia-smi must work), or train "
            "on the CPU with ./train_gpt2");
    }
    if (error == cudaErrorInsufficientDriver) {
        fatal(
            "the NVIDIA driver is too old: it knows CUDA %d.%d, this program needs %d.%d. Update the driver, or build "
            "with an older CUDA toolkit",
            driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    }
    if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0)) {
        fatal("there is a driver, but no NVIDIA GPU that this process can see: look at nvidia-smi and at "
              "CUDA_VISIBLE_DEVICES, or train on the CPU with ./train_gpt2");
    }
    cuda_check(error, "looking for GPUs");
    if (o->of_rank && count == 1) { return 0; }
    if (o->of_rank && o->index >= count) {
        usage_error("%d or more processes on this machine, but %d GPUs: start at most %d here, one for each GPU",
                    o->index + 1, count, count);
    }
    if (o->index >= count) {
        usage_error("--device %d: there are %d GPUs, numbered from 0: give at most %d", o->index, count, count - 1);
    }
    return o->index;
}

static inline void cuda_require_architecture(void) {
    if (gpu.major < 8) {
        fatal("%s has compute capability %d.%d: this program needs 8.0 (Ampere) or later, for bf16, TF32 and "
              "asynchronous copies. Train on the CPU with ./train_gpt2",
              gpu.name, gpu.major, gpu.minor);
    }
    cudaFuncAttributes attributes;
    const cudaError_t error = cudaFuncGetAttributes(&attributes, (const void*)probe_kernel);
    if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction ||
        error == cudaErrorUnsupportedPtxVersion) {
        fatal("%s (compute capability %d.%d): this program was built without code for it. Build it again with `make "
              "train_gpt2cu GPU=%d%d`",
              gpu.name, gpu.major, gpu.minor, gpu.major, gpu.minor);
    }
    cuda_check(error, "looking for this GPU's code");
}

static inline void cublas_check(cublasStatus_t status, const char* what) {
    if (status != CUBLAS_STATUS_SUCCESS && !capture_has_failed(what)) {
        fatal("%s: cuBLASLt failed: %s", what, cublasLtGetStatusString(status));
    }
}

OP bool device_exists(void) {
    int count = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

// FP8 has instructions from Ada on.
OP const char* device_lacks(const DeviceOptions* o) {
    static char text[64];
    int major = 0, minor = 0;
    if (!o->fp8) { return NULL; }
    if (o->plain) { return "the plain kernels have no FP8"; }
    const int index = cuda_require_gpu(o);
    cuda_check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index), "asking for FP8");
    cuda_check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, index), "asking for FP8");
    if (10 * major + minor >= 89) { return NULL; }
    snprintf(text, sizeof text, "FP8 needs compute capability 8.9, this GPU has %d.%d", major, minor);
    return text;
}

static inline void open_events() {
    cudaEvent_t* const events[3] = {&gpu.uploaded, &gpu.consumed[0], &gpu.consumed[1]};
    for (int i = 0; i < 3; i++) {
        cuda_check(cudaEventCreateWithFlags(events[i], cudaEventDisableTiming), "creating an event");
    }
    for (int i = 0; i < 2; i++) { cuda_check(cudaEventCreate(&gpu.timer[i]), "creating an event"); }
}

static inline void open_gpu(const DeviceOptions* o) {
    gpu.index = cuda_require_gpu(o);
    cudaDeviceProp properties;
    cuda_check(cudaSetDevice(gpu.index), "choosing the GPU");
    cuda_check(cudaGetDeviceProperties(&properties, gpu.index), "asking for the GPU's properties");
    for (int i = 0; i < 16; i++) { // one of a GPU's instances (MIG) has the bus of the whole, but a number of its own
        snprintf(gpu.identity + 2 * i, 3, "%02x", (unsigned char)properties.uuid.bytes[i]);
    }
    gpu.num_sms = properties.multiProcessorCount;
    gpu.memory_bytes = properties.totalGlobalMem;
    gpu.major = properties.major;
    gpu.minor = properties.minor;
    snprintf(gpu.name, sizeof gpu.name, "%s", properties.name);
    cuda_require_architecture();
    cuda_check(cudaStreamCreateWithFlags(&gpu.stream, cudaStreamNonBlocking), "creating a stream");
    cuda_check(cudaStreamCreateWithFlags(&gpu.upload, cudaStreamNonBlocking), "creating a stream");
    open_events();
    cublas_check(cublasLtCreate(&gpu.cublaslt), "opening cuBLASLt");
    cuda_check(cudaMalloc(&gpu.workspace, WORKSPACE_BYTES), "cuBLASLt's workspace");
    cuda_check(cudaMalloc(&gpu.scratch, SCRATCH_BYTES), "scratch memory");
    gpu.is_open = true;
}

// Only for bf16 is GELU ever fused, which hides how exactly the library computes tanh: it does not say.
static inline bool gelu_can_be_fused() { return gpu.fused && sizeof(floatX) == sizeof(bf16); }

// May be called again, with other options, for the same GPU. What is chosen later begins with the likeliest: fused GELU
// pays from Hopper on, while the library's kernels for the GPUs before write the output twice.
OP void device_open(const DeviceOptions* o) {
    if (o->threads > 0) { notice("--threads %d: of no effect on a GPU", o->threads); }
    if (device_lacks(o)) { usage_error("--dtype fp8: %s: give --dtype bf16", device_lacks(o)); }
    gpu.plain = o->plain;
    gpu.fused = o->fused && !o->plain;
    gpu.flash = o->flash && !o->plain;
    gpu.tf32 = o->tf32;
    gpu.fp8 = o->fp8;
    gpu.graph = o->graph;
    gpu.attention_asked = o->attention;
    attention_require(o);
    if (!gpu.is_open) { open_gpu(o); }
    gpu.attention = !gpu.flash ? ATTENTION_PLAIN : attention_asked_is("cudnn") ? ATTENTION_CUDNN : ATTENTION_FLASH;
    gpu.gelu_forward_fused = gpu.gelu_backward_fused = gpu_fuses_gelu(gpu.fused, gpu.major, sizeof(floatX));
    gpu.cudnn_B = gpu.cudnn_T = 0;
}

OP const char* device_name(void) { return gpu.name; }
OP const char* device_identity(void) { return gpu.identity; }
OP int device_threads(void) { return 0; }

static const char* const ATTENTION_NAMES[] = {"plain", "flash", "cudnn"};
static const char* const GELU_NAMES[] = {"apart", "fused"};

OP const char* device_kernels(void) {
    static char text[96];
    if (gpu.plain) { return "plain"; }
    snprintf(text, sizeof text, "attention=%s gelu_forward=%s gelu_backward=%s", ATTENTION_NAMES[gpu.attention],
             GELU_NAMES[gpu.gelu_forward_fused], GELU_NAMES[gpu.gelu_backward_fused]);
    return text;
}

OP void device_timer_start(void) { cuda_check(cudaEventRecord(gpu.timer[0], gpu.stream), "recording an event"); }
OP double device_timer_stop(void) {
    float ms = 0;
    cuda_check(cudaEventRecord(gpu.timer[1], gpu.stream), "recording an event");
    cuda_check(cudaEventSynchronize(gpu.timer[1]), "waiting for the GPU");
    cuda_check(cudaEventElapsedTime(&ms, gpu.timer[0], gpu.timer[1]), "timing kernels");
    return 1e-3 * ms;
}

// ---------------------------------------------------------------------------------------------------------------------
// memory

OP void device_zero(void* p, size_t bytes) { cuda_check(cudaMemsetAsync(p, 0, bytes, gpu.stream), "zeroing memory"); }

OP void* device_alloc(size_t bytes, const char* what) {
    void* p = NULL;
    cuda_check(cudaMalloc(&p, max_size(bytes, 1)), what);
    device_zero(p, max_size(bytes, 1));
    return p;
}
OP void device_free(void* p, size_t bytes) {
    device_sync();
    if (gpu.freed) { gpu.freed(p, bytes); }
    cuda_check(cudaFree(p), "freeing memory");
}

// Left for fragments, for graphs, and for kernels of the libraries, which are loaded when they are first used.
static inline size_t memory_margin(size_t total) { return total / 64 + ((size_t)256 << 20); }

OP size_t device_memory_available(void) {
    size_t available = 0, total = 0;
    cuda_check(cudaMemGetInfo(&available, &total), "asking for the free memory");
    return available - min_size(available, memory_margin(total));
}
// Assumed is that a GPU reports up to a fiftieth less than its name says, and that driver, context and kernels take
// half a GiB before anything is allocated.
OP size_t device_memory_usable(size_t total) {
    const size_t missing = total / 50, context = (size_t)512 << 20, opened = WORKSPACE_BYTES + SCRATCH_BYTES;
    return total - min_size(total, missing + context + opened + memory_margin(total));
}

OP void* host_alloc(size_t bytes, const char* what) {
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
OP void host_free(void* p) {
    if (p) { cuda_check(cudaFreeHost(p), "freeing host memory"); }
}

// ---------------------------------------------------------------------------------------------------------------------
// copies

OP void device_sync(void) { cuda_check(cudaStreamSynchronize(gpu.stream), "waiting for the GPU"); }

OP void device_copy(void* to, const void* from, size_t bytes) {
    cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, gpu.stream), "copying on the GPU");
}
OP void device_send(void* device, const void* host, size_t bytes) {
    cuda_check(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, gpu.stream), "copying to the GPU");
}
OP void device_fetch(void* host, const void* device, size_t bytes) {
    cuda_check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, gpu.stream), "copying from the GPU");
}
OP void device_copy_in(void* device, const void* host, size_t bytes) {
    device_send(device, host, bytes);
    device_sync();
}
OP void device_copy_out(void* host, const void* device, size_t bytes) {
    device_fetch(host, device, bytes);
    device_sync();
}

// Upload k overwrites what upload k-2 wrote. All that reads that was queued before upload k-1 was asked for, which is
// when consumed[k-1] was recorded.
OP void device_upload(void* device, const void* host, size_t bytes) {
    const int k = gpu.uploads++;
    cuda_check(cudaEventRecord(gpu.consumed[k % 2], gpu.stream), "recording an event");
    if (k > 0) {
        cuda_check(cudaEventSynchronize(gpu.uploaded), "waiting for a batch");
        cuda_check(cudaStreamWaitEvent(gpu.upload, gpu.consumed[(k + 1) % 2], 0), "waiting for a batch");
    }
    cuda_check(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, gpu.upload), "copying a batch to the GPU");
    cuda_check(cudaEventRecord(gpu.uploaded, gpu.upload), "recording an event");
    cuda_check(cudaStreamWaitEvent(gpu.stream, gpu.uploaded, 0), "waiting for a batch");
}

// ---------------------------------------------------------------------------------------------------------------------
// names for a profiler (Nsight Systems)

OP void device_range_push(const char* name, int layer) {
    char text[64];
    if (layer >= 0) { snprintf(text, sizeof text, "%s %d", name, layer); }
    nvtxRangePushA(layer >= 0 ? text : name);
}
OP void device_range_pop(void) { nvtxRangePop(); }
