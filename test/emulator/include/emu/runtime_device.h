// The runtime's functions for devices and kernels.
//
//   EMU_CC=NN          compute capability without the point (80)
//   EMU_DEVICES, EMU_DRIVER, EMU_MEMORY: see error.h and memory.h
#pragma once
#include "launch.h"
#include "runtime_stream.h"

enum cudaDeviceAttr { cudaDevAttrComputeCapabilityMajor = 75, cudaDevAttrComputeCapabilityMinor = 76 };

// The fields that the emulator knows.
struct cudaUUID_t {
    char bytes[16];
};
struct cudaDeviceProp {
    char name[256];
    cudaUUID_t uuid;
    int major, minor, multiProcessorCount;
};

enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
struct cudaFuncAttributes {
    int ptxVersion;
};

// The types of data that cuBLASLt takes.
enum cudaDataType_t {
    CUDA_R_32F = 0,
    CUDA_R_16F = 2,
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
inline cudaError_t cudaGetLastError() {
    cudaError_t error = emu::broken_by != cudaSuccess ? emu::broken_by : emu::last_error;
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
    p->major = emu::capability().number / 10;
    p->minor = emu::capability().number % 10;
    p->multiProcessorCount = emu::multiprocessors();
    p->uuid.bytes[0] = (char)device;
    return cudaSuccess;
}

inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
    cudaDeviceProp p;
    if (cudaError_t error = cudaGetDeviceProperties(&p, device); error != cudaSuccess) { return error; }
    switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = p.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = p.minor; break;
    default: return emu::fail(cudaErrorInvalidValue, "cudaDeviceGetAttribute(%d) is not emulated", (int)attribute);
    }
    return cudaSuccess;
}

// ---------------------------------------------------------------------------------------------------------------------
// kernels

template <class T> cudaError_t cudaFuncSetAttribute(T* function, cudaFuncAttribute, int value) {
    EMU_ENTER()
    emu::Kernel* kernel = emu::kernel_at((const void*)function);
    if (!kernel) { return emu::fail(cudaErrorInvalidDeviceFunction, "cudaFuncSetAttribute: not a kernel"); }
    if (value < 0 || (size_t)value + kernel->static_bytes > emu::capability().block_shared()) {
        return emu::fail(cudaErrorInvalidValue, "cudaFuncSetAttribute: %s: %d bytes of dynamic shared memory",
                         kernel->name, value);
    }
    kernel->max_dynamic = value;
    return cudaSuccess;
}

inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
    EMU_ENTER()
    emu::Kernel* kernel = emu::kernel_at(function);
    if (!kernel) { return emu::fail(cudaErrorInvalidDeviceFunction, "cudaFuncGetAttributes: not a kernel"); }
    attributes->ptxVersion = emu::compute_capability();
    return cudaSuccess;
}

// Counts threads, shared memory and the registers that a report names.
template <class T>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, T* function, int threads, size_t dynamic) {
    EMU_ENTER()
    emu::Kernel* kernel = emu::kernel_at((const void*)function);
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
#undef EMU_ENTER
#undef EMU_ENTER_OUTSIDE_CAPTURE
