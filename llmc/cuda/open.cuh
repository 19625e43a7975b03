// Opens the GPU: checks driver, GPU and options with messages that say what to do, then creates streams, events, the
// handle of cuBLASLt and scratch memory.
#pragma once
#include "device.cuh"
#include "../base/library.h"

// Ends the program if --attention asks for kernels that this program lacks or that another option excludes.
static inline void require_attention(const DeviceOptions* o) {
    if (!o->attention || strcmp(o->attention, "cudnn")) { return; }
    if (o->document_mask) {
        usage_error("--attention cudnn: with --document_mask 1 only this program's attention stops at documents: give "
                    "--attention flash");
    }
    if (!FLOATX_IS_16_BITS) {
        usage_error("--attention cudnn: cuDNN's attention is for --dtype bf16 or fp16: give one, or --attention flash");
    }
    if (!attention_cudnn_prepare) {
        usage_error("--attention cudnn: this program was built without cuDNN: `sh scripts/setup.sh cudnn`, then `make "
                    "train_gpt2cu CUDNN=1`; or give --attention flash");
    }
}

static __global__ void probe_kernel() {} // exists to be looked up: see cuda_require_architecture

// Returns the number of the GPU to use. Ends the program if there is no driver or no such GPU.
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
    if (count == 1) { return 0; }
    if (o->local_rank >= count) {
        usage_error("%d or more processes on this machine, but %d GPUs: start at most %d here, one for each GPU",
                    o->local_rank + 1, count, count);
    }
    return o->local_rank;
}

static inline void cuda_require_architecture(void) {
    if (10 * gpu.major + gpu.minor < 75) {
        fatal("%s has compute capability %d.%d: this program needs 7.5 (Turing) or later. Train on the CPU with "
              "./train_gpt2",
              gpu.name, gpu.major, gpu.minor);
    }
    cudaFuncAttributes attributes;
    const cudaError_t error = cudaFuncGetAttributes(&attributes, (const void*)probe_kernel);
    // Turing's code would run on later GPUs too, but slowly, and traps in bf16.
    const bool is_turings = error == cudaSuccess && attributes.ptxVersion < 80 && gpu.major >= 8;
    if (is_turings || error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction ||
        error == cudaErrorUnsupportedPtxVersion) {
        fatal("%s (compute capability %d.%d): this program was built without code for it. Build it again with `make "
              "train_gpt2cu GPU=%d%d`",
              gpu.name, gpu.major, gpu.minor, gpu.major, gpu.minor);
    }
    cuda_check(error, "looking for this GPU's code");
}

static inline bool device_exists(void) {
    int count = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

// Returns the compute capability of the GPU that the options name, without the point.
static inline int compute_capability(const DeviceOptions* o) {
    const int index = cuda_require_gpu(o);
    int major = 0, minor = 0;
    cuda_check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index), "asking what the GPU can do");
    cuda_check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, index), "asking what the GPU can do");
    return 10 * major + minor;
}

static inline const char* device_lacks(const DeviceOptions* o) {
    static char text[64];
    const bool is_bf16 = std::is_same_v<floatX, bf16>;
    const int needed = o->fp8 ? 89 : is_bf16 || o->tf32 ? 80 : 75, capability = compute_capability(o);
    if (o->plain && o->fp8) { return "the plain kernels have no FP8"; }
    if (o->plain && o->tf32) { return "the plain kernels have no TF32"; }
    if (capability >= needed || capability < 75) { return NULL; } // open_gpu() refuses GPUs before 7.5
    snprintf(text, sizeof text, "%s needs compute capability %d.%d, this GPU has %d.%d",
             o->fp8 ? "FP8" : is_bf16 ? "bf16" : "TF32", needed / 10, needed % 10, capability / 10, capability % 10);
    return text;
}

// Ends the program if the GPU lacks the arithmetic of --dtype.
static inline void require_arithmetic(const DeviceOptions* o) {
    const char *lack = device_lacks(o), *asked = o->fp8 ? "fp8" : o->tf32 ? "tf32" : STRING(FLOATX);
    if (!lack) { return; }
    const char* instead = o->plain && o->tf32 ? "fp32" : compute_capability(o) < 80 ? "fp16" : "bf16";
    usage_error("--dtype %s: %s: give --dtype %s", asked, lack, instead);
}

static inline void open_events() {
    gpu.uploaded = new_event();
    for (cudaEvent_t& event : gpu.consumed) { event = new_event(); }
    for (cudaEvent_t& event : gpu.timer) { cuda_check(cudaEventCreate(&event), "creating an event"); }
}

static inline void open_cublaslt() {
    Error err;
    if (!library_reach("libcublasLt.so." STRING(CUBLAS_VER_MAJOR),
                       "install CUDA " STRING(CUBLAS_VER_MAJOR) ", or run `pip install \"cuda-toolkit[cublas]==" STRING(
                           CUBLAS_VER_MAJOR) ".*\"`; --kernels plain needs no cuBLASLt",
                       &err)) {
        fatal("%s", err.text);
    }
    cublas_check(cublasLtCreate(&gpu.cublaslt), "opening cuBLASLt");
}

static inline void open_gpu(const DeviceOptions* o) {
    gpu.index = cuda_require_gpu(o);
    cudaDeviceProp properties;
    cuda_check(cudaSetDevice(gpu.index), "choosing the GPU");
    cuda_check(cudaGetDeviceProperties(&properties, gpu.index), "asking for the GPU's properties");
    for (int i = 0; i < 16; i++) { // a MIG instance shares its GPU's bus id, but has a UUID of its own
        snprintf(gpu.identity + 2 * i, 3, "%02x", (unsigned char)properties.uuid.bytes[i]);
    }
    gpu.num_sms = properties.multiProcessorCount;
    gpu.major = properties.major;
    gpu.minor = properties.minor;
    snprintf(gpu.name, sizeof gpu.name, "%s", properties.name);
    cuda_require_architecture();
    gpu.stream = new_stream();
    gpu.upload = new_stream();
    open_events();
    cuda_check(cudaMalloc(&gpu.workspace, WORKSPACE_BYTES), "cuBLASLt's workspace");
    cuda_check(cudaMalloc(&gpu.scratch, SCRATCH_BYTES), "scratch memory");
    gpu.is_open = true;
}

// GELU is fused into the matmul for bf16 and fp16 only: cuBLASLt does not document the accuracy of its tanh, which
// rounding to 16 bits hides. In forward the library's GELU reads the sums before they are rounded; one that is
// recomputed reads the rounded ones.
static inline bool can_fuse_gelu(Pass pass) {
    return gpu.fused && FLOATX_IS_16_BITS && (pass == PASS_BACKWARD || !gpu.recomputes_gelu);
}

// Variant 0 is what device_open() sets: fused on Hopper and the B200. It mostly pays there (H200, 124M: 0.55 ms and,
// backward, 0.55; apart 0.66 and 0.78; 350M: backward does not). On earlier GPUs the library's kernels write the output
// twice, and on an RTX 5090 the kernel apart is faster (https://github.com/sgl-project/sglang/pull/34350).
static inline bool is_gelu_fused(Pass pass, int variant) {
    const bool is_fused_first = gpu.major == 9 || gpu.major == 10;
    return can_fuse_gelu(pass) && (variant == 0) == is_fused_first;
}

// Returns the kernels of attention without a choice.
static inline Attention attention_default() {
    return !gpu.flash ? ATTENTION_PLAIN : is_attention_requested("cudnn") ? ATTENTION_CUDNN : ATTENTION_FLASH;
}

// Names kernels of attention. A backward that does not repeat its bits has a name of its own.
static inline const char* attention_name(Pass pass, Attention attention) {
    static const char* const NAMES[] = {"plain", "flash", "cudnn"};
    const bool is_any_order = pass == PASS_BACKWARD && attention == ATTENTION_CUDNN && gpu.nondeterministic;
    return is_any_order ? "cudnn_nondeterministic" : NAMES[attention];
}

// Opens the device with the variants that are probably the fastest; choose_variant() sets them later.
static inline void device_open(const DeviceOptions* o) {
    if (o->threads > 0) { notice("--threads %d: of no effect on a GPU", o->threads); }
    require_arithmetic(o);
    gpu.plain = o->plain;
    gpu.fused = o->fused && !o->plain;
    gpu.flash = o->flash && !o->plain;
    gpu.tf32 = o->tf32;
    gpu.fp8 = o->fp8;
    gpu.graph = o->graph;
    gpu.document_mask = o->document_mask;
    gpu.recomputes_gelu = o->recomputes_gelu;
    gpu.nondeterministic = o->nondeterministic;
    gpu.requested_attention = o->attention;
    require_attention(o);
    if (!gpu.is_open) { open_gpu(o); }
    if (!gpu.plain && !gpu.cublaslt) { open_cublaslt(); }
    for (int pass = 0; pass < NUM_PASSES; pass++) {
        gpu.attention[pass] = attention_default();
        gpu.gelu_fused[pass] = is_gelu_fused((Pass)pass, 0);
    }
    memset(gpu.flash_variant, 0, sizeof gpu.flash_variant);
    memset(gpu.flash_name, 0, sizeof gpu.flash_name);
    gpu.cudnn_B = gpu.cudnn_T = 0;
    gpu.leaves_sms = false;
}

static inline const char* device_name(void) { return gpu.name; }
static inline const char* device_identity(void) { return gpu.identity; }
static inline int device_threads(void) { return 0; }

static const char* const GELU_NAMES[] = {"apart", "fused"};
static const char* const SMS_NAMES[] = {"all", "fewer"};
static const char* const FLASH_NAMES[] = {"flash_forward", "flash_keys", "flash_queries"};

static inline const char* device_kernels(void) {
    static char text[KERNELS_TEXT];
    if (gpu.plain) { return "plain"; }
    int n = snprintf(text, sizeof text, "attention_forward=%s attention_backward=%s gelu_forward=%s gelu_backward=%s",
                     attention_name(PASS_FORWARD, gpu.attention[PASS_FORWARD]),
                     attention_name(PASS_BACKWARD, gpu.attention[PASS_BACKWARD]),
                     GELU_NAMES[gpu.gelu_fused[PASS_FORWARD]], GELU_NAMES[gpu.gelu_fused[PASS_BACKWARD]]);
    for (int k = 0; k < NUM_FLASH_KERNELS; k++) {
        if (!*gpu.flash_name[k]) { continue; }
        n += snprintf(text + n, sizeof text - n, " %s=%s", FLASH_NAMES[k], gpu.flash_name[k]);
    }
    if (gpu.gpus_leaving_sms) { snprintf(text + n, sizeof text - n, " matmul_sms=%s", SMS_NAMES[gpu.leaves_sms]); }
    return text;
}
