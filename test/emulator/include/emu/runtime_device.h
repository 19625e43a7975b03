// The runtime's functions for devices and kernels.
//
//   EMU_CC=NN          compute capability without the point (80)
//   EMU_DEVICES, EMU_DRIVER, EMU_MEMORY: see error.h and memory.h
#pragma once
#include "launch.h"
#include "runtime_stream.h"

enum cudaDeviceAttr {
    cudaDevAttrMaxThreadsPerBlock = 1,
    cudaDevAttrMaxSharedMemoryPerBlock = 8,
    cudaDevAttrWarpSize = 10,
    cudaDevAttrClockRate = 13,
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrMemoryClockRate = 36,
    cudaDevAttrGlobalMemoryBusWidth = 37,
    cudaDevAttrL2CacheSize = 38,
    cudaDevAttrMaxThreadsPerMultiProcessor = 39,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
    cudaDevAttrMaxRegistersPerMultiprocessor = 82,
    cudaDevAttrCooperativeLaunch = 95,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
};

// The fields that the emulator knows, in the order of CUDA 13.
struct cudaUUID_t {
    char bytes[16];
};
struct cudaDeviceProp {
    char name[256];
    cudaUUID_t uuid;
    size_t totalGlobalMem, sharedMemPerBlock;
    int regsPerBlock, warpSize, maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3];
    int major, minor, multiProcessorCount, integrated, concurrentKernels, ECCEnabled, pciBusID, pciDeviceID,
        pciDomainID;
    int asyncEngineCount, unifiedAddressing, memoryBusWidth, l2CacheSize, maxThreadsPerMultiProcessor;
    size_t sharedMemPerMultiprocessor;
    int regsPerMultiprocessor, managedMemory, cooperativeLaunch;
    size_t sharedMemPerBlockOptin;
    int maxBlocksPerMultiProcessor;
};

enum cudaFuncAttribute {
    cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
    cudaFuncAttributePreferredSharedMemoryCarveout = 9,
};
struct cudaFuncAttributes {
    size_t sharedSizeBytes, constSizeBytes, localSizeBytes;
    int maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion, cacheModeCA, maxDynamicSharedSizeBytes;
    int preferredShmemCarveout;
};

// The types of data that cuBLASLt takes, among others.
enum cudaDataType_t {
    CUDA_R_32F = 0,
    CUDA_R_64F = 1,
    CUDA_R_16F = 2,
    CUDA_R_8I = 3,
    CUDA_R_8U = 8,
    CUDA_R_32I = 10,
    CUDA_R_16BF = 14,
    CUDA_R_8F_E4M3 = 28,
    CUDA_R_8F_E5M2 = 29,
};
typedef cudaDataType_t cudaDataType;

namespace emu {
inline int multiprocessors() { return (int)option("EMU_SMS", 4); } // few: loops over the grid run more than once
inline int current_device = 0;
} // namespace emu

// ---------------------------------------------------------------------------------------------------------------------
// versions and errors

// Sets *version to 0 if there is no driver, which is no error.
inline cudaError_t cudaDriverGetVersion(int* version) {
    *version = emu::driver_version();
    return cudaSuccess;
}
inline cudaError_t cudaRuntimeGetVersion(int* version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}
inline cudaError_t cudaPeekAtLastError() {
    return emu::broken_by != cudaSuccess ? emu::broken_by : emu::last_error;
}
inline cudaError_t cudaGetLastError() {
    cudaError_t error = cudaPeekAtLastError();
    emu::last_error = cudaSuccess; // a device that is lost stays lost
    return error;
}

// ---------------------------------------------------------------------------------------------------------------------
// devices: all are alike and share one memory; which one is current makes no difference

inline cudaError_t cudaGetDeviceCount(int* count) {
    *count = 0;
    EMU_ENTER()
    *count = emu::device_count();
    return cudaSuccess;
}
inline cudaError_t cudaSetDevice(int device) {
    EMU_ENTER()
    if (device < 0 || device >= emu::device_count()) { return emu::quietly(cudaErrorInvalidDevice); }
    emu::current_device = device;
    return cudaSuccess;
}
inline cudaError_t cudaGetDevice(int* device) {
    EMU_ENTER()
    *device = emu::current_device;
    return cudaSuccess;
}

inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
    EMU_ENTER()
    if (device < 0 || device >= emu::device_count()) { return emu::quietly(cudaErrorInvalidDevice); }
    *p = {};
    const char* name = getenv("EMU_NAME");
    snprintf(p->name, sizeof p->name, "emulated sm_%d", emu::compute_capability());
    if (name) { snprintf(p->name, sizeof p->name, "%s", name); }
    p->totalGlobalMem = emu::device_memory();
    p->sharedMemPerBlock = emu::MAX_STATIC_SHARED;
    p->sharedMemPerBlockOptin = emu::capability().block_shared();
    p->sharedMemPerMultiprocessor = emu::capability().shared;
    p->regsPerBlock = p->regsPerMultiprocessor = 65536;
    p->warpSize = warpSize;
    p->maxThreadsPerBlock = p->maxThreadsDim[0] = p->maxThreadsDim[1] = emu::MAX_THREADS;
    p->maxThreadsDim[2] = 64;
    p->maxGridSize[0] = INT32_MAX;
    p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->major = emu::compute_capability() / 10;
    p->minor = emu::compute_capability() % 10;
    p->multiProcessorCount = emu::multiprocessors();
    p->maxThreadsPerMultiProcessor = emu::capability().threads;
    p->maxBlocksPerMultiProcessor = emu::capability().blocks;
    p->concurrentKernels = p->asyncEngineCount = p->unifiedAddressing = p->cooperativeLaunch = 1;
    p->memoryBusWidth = 5120;
    p->l2CacheSize = 40 << 20;
    p->pciBusID = device;
    p->uuid.bytes[0] = (char)device;
    return cudaSuccess;
}

inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
    cudaDeviceProp p;
    if (cudaError_t error = cudaGetDeviceProperties(&p, device); error != cudaSuccess) { return error; }
    switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: *value = p.maxThreadsPerBlock; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = (int)p.sharedMemPerBlock; break;
    case cudaDevAttrWarpSize: *value = p.warpSize; break;
    case cudaDevAttrClockRate: *value = 1410000; break; // kHz
    case cudaDevAttrMultiProcessorCount: *value = p.multiProcessorCount; break;
    case cudaDevAttrMemoryClockRate: *value = 1215000; break; // kHz
    case cudaDevAttrGlobalMemoryBusWidth: *value = p.memoryBusWidth; break;
    case cudaDevAttrL2CacheSize: *value = p.l2CacheSize; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = p.maxThreadsPerMultiProcessor; break;
    case cudaDevAttrComputeCapabilityMajor: *value = p.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = p.minor; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = (int)p.sharedMemPerMultiprocessor; break;
    case cudaDevAttrMaxRegistersPerMultiprocessor: *value = p.regsPerMultiprocessor; break;
    case cudaDevAttrCooperativeLaunch: *value = p.cooperativeLaunch; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = (int)p.sharedMemPerBlockOptin; break;
    default: return emu::fail(cudaErrorInvalidValue, "cudaDeviceGetAttribute(%d) is not emulated", (int)attribute);
    }
    return cudaSuccess;
}

// ---------------------------------------------------------------------------------------------------------------------
// kernels

inline cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
    EMU_ENTER()
    emu::Kernel* kernel = emu::kernel_at(function);
    if (!kernel) { return emu::fail(cudaErrorInvalidDeviceFunction, "cudaFuncSetAttribute: not a kernel"); }
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) { return cudaSuccess; }
    if (value < 0 || (size_t)value + kernel->static_bytes > emu::capability().block_shared()) {
        return emu::fail(cudaErrorInvalidValue, "cudaFuncSetAttribute: %s: %d bytes of dynamic shared memory",
                         kernel->name, value);
    }
    kernel->max_dynamic = value;
    return cudaSuccess;
}
template <class T> cudaError_t cudaFuncSetAttribute(T* function, cudaFuncAttribute attribute, int value) {
    return cudaFuncSetAttribute((const void*)function, attribute, value);
}

// Local memory is made up, and so are registers that no report names (launch.h). Static shared memory is known once the
// kernel has run.
inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
    EMU_ENTER()
    emu::Kernel* kernel = emu::kernel_at(function);
    if (!kernel) { return emu::fail(cudaErrorInvalidDeviceFunction, "cudaFuncGetAttributes: not a kernel"); }
    *attributes = {};
    attributes->sharedSizeBytes = kernel->static_bytes;
    attributes->maxThreadsPerBlock = kernel->max_threads;
    attributes->numRegs = kernel->registers ? kernel->registers : 32;
    attributes->ptxVersion = attributes->binaryVersion = emu::compute_capability();
    attributes->maxDynamicSharedSizeBytes = kernel->max_dynamic;
    return cudaSuccess;
}
template <class T> cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, T* function) {
    return cudaFuncGetAttributes(attributes, (const void*)function);
}

// Counts threads, shared memory and the registers that a report names.
inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function, int threads,
                                                                 size_t dynamic) {
    EMU_ENTER()
    emu::Kernel* kernel = emu::kernel_at(function);
    if (!kernel) { return emu::fail(cudaErrorInvalidDeviceFunction, "cudaOccupancy...: not a kernel"); }
    if (threads < 1) { return emu::fail(cudaErrorInvalidValue, "cudaOccupancy...: blocks of %d threads", threads); }
    const emu::Capability& limits = emu::capability();
    const size_t shared = kernel->static_bytes + dynamic + limits.reserved;
    *blocks = threads > kernel->max_threads || dynamic > (size_t)kernel->max_dynamic
                  ? 0
                  : min(limits.threads / threads, limits.blocks);
    const size_t registers = emu::block_registers(kernel->registers, (size_t)threads);
    if (registers > 0) { *blocks = min(*blocks, (int)(emu::BLOCK_REGISTERS / registers)); }
    if (shared > 0) { *blocks = min(*blocks, (int)(limits.shared / shared)); }
    return cudaSuccess;
}
template <class T>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, T* function, int threads, size_t dynamic) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, (const void*)function, threads, dynamic);
}
#undef EMU_ENTER
#undef EMU_ENTER_OUTSIDE_CAPTURE
