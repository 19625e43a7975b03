// Errors: CUDA's codes with their texts, die() for mistakes that end the program, and failures set by the environment.
//
//   EMU_DEVICES=N      number of devices (8); 0: every call fails with cudaErrorNoDevice
//   EMU_DRIVER=V       version of the driver (13000); 0: there is none; below 13000: cudaErrorInsufficientDriver
//   EMU_COUNT=1        prints the number of kernels, graphs and bytes at the end
//   EMU_FAIL=N:ERR     the Nth kernel launch breaks the device: every later call returns ERR (a number)
#pragma once
#include "types.h"
#include <cstdarg>
#include <unistd.h>

#define CUDART_VERSION 13000

// Name, value and text of each error, as in the runtime.
#define EMU_ERRORS(_)                                                                                                  \
    _(cudaSuccess, 0, "no error")                                                                                      \
    _(cudaErrorInvalidValue, 1, "invalid argument")                                                                    \
    _(cudaErrorMemoryAllocation, 2, "out of memory")                                                                   \
    _(cudaErrorInitializationError, 3, "initialization error")                                                         \
    _(cudaErrorInvalidConfiguration, 9, "invalid configuration argument")                                              \
    _(cudaErrorInsufficientDriver, 35, "CUDA driver version is insufficient for CUDA runtime version")                 \
    _(cudaErrorInvalidDeviceFunction, 98, "invalid device function")                                                   \
    _(cudaErrorNoDevice, 100, "no CUDA-capable device is detected")                                                    \
    _(cudaErrorInvalidDevice, 101, "invalid device ordinal")                                                           \
    _(cudaErrorNoKernelImageForDevice, 209, "no kernel image is available for execution on the device")                \
    _(cudaErrorECCUncorrectable, 214, "uncorrectable ECC error encountered")                                           \
    _(cudaErrorUnsupportedPtxVersion, 222, "the provided PTX was compiled with an unsupported toolchain.")             \
    _(cudaErrorInvalidResourceHandle, 400, "invalid resource handle")                                                  \
    _(cudaErrorIllegalState, 401, "the operation cannot be performed in the present state")                            \
    _(cudaErrorNotReady, 600, "device not ready")                                                                      \
    _(cudaErrorIllegalAddress, 700, "an illegal memory access was encountered")                                        \
    _(cudaErrorLaunchOutOfResources, 701, "too many resources requested for launch")                                   \
    _(cudaErrorLaunchFailure, 719, "unspecified launch failure")                                                       \
    _(cudaErrorStreamCaptureUnsupported, 900, "operation not permitted when stream is capturing")                      \
    _(cudaErrorStreamCaptureInvalidated, 901, "operation failed due to a previous error during capture")               \
    _(cudaErrorStreamCaptureMerge, 902, "operation would result in a merge of separate capture sequences")             \
    _(cudaErrorStreamCaptureUnmatched, 903, "capture was not ended in the same stream as it began")                    \
    _(cudaErrorStreamCaptureUnjoined, 904, "capturing stream has unjoined work")                                       \
    _(cudaErrorStreamCaptureIsolation, 905, "dependency created on uncaptured work in another stream")                 \
    _(cudaErrorStreamCaptureImplicit, 906,                                                                             \
      "operation would make the legacy stream depend on a capturing blocking stream")                                  \
    _(cudaErrorCapturedEvent, 907, "operation not permitted on an event last recorded in a capturing stream")

#define EMU_ERROR(name, value, text) name = value,
enum cudaError { EMU_ERRORS(EMU_ERROR) };
#undef EMU_ERROR
typedef cudaError cudaError_t;

inline const char* cudaGetErrorName(cudaError_t error) {
#define EMU_ERROR(name, value, text) case value: return #name;
    switch ((int)error) { EMU_ERRORS(EMU_ERROR) }
#undef EMU_ERROR
    return "unrecognized error code";
}

inline const char* cudaGetErrorString(cudaError_t error) {
#define EMU_ERROR(name, value, text) case value: return text;
    switch ((int)error) { EMU_ERRORS(EMU_ERROR) }
#undef EMU_ERROR
    return "unrecognized error code";
}
#undef EMU_ERRORS

namespace emu {

// Prints a message and aborts: for mistakes in the tested program that no error code of CUDA would explain.
[[noreturn]] __attribute__((format(printf, 1, 2))) inline void die(const char* fmt, ...) {
    va_list args;
    va_start(args, fmt);
    fflush(stdout);
    fputs("emu: ", stderr);
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    fflush(stderr);
    abort();
}

// Returns the number in an environment variable, or `otherwise` if it is not set.
inline long long option(const char* name, long long otherwise) {
    const char* text = getenv(name);
    if (!text || !*text) { return otherwise; }
    char* end;
    long long value = strtoll(text, &end, 0);
    if (*end) { die("%s=%s is not a number", name, text); }
    return value;
}

inline cudaError_t last_error = cudaSuccess;   // what cudaGetLastError returns
inline cudaError_t broken_by = cudaSuccess;    // not cudaSuccess: the device is lost
inline size_t launches = 0;                    // kernel launches begun so far

// Counts that EMU_COUNT=1 prints at the end.
struct Counts {
    size_t graphs = 0;   // graphs instantiated
    size_t replays = 0;  // launches of graphs
    size_t replayed = 0; // nodes that these launches ran
    size_t shared = 0;   // matmuls that leave multiprocessors to others
    size_t copied_in = 0, copied_out = 0; // bytes of copies from and to host memory
    size_t memory = 0;   // the most bytes of device memory in use at once
    ~Counts() {
        if (!option("EMU_COUNT", 0)) { return; }
        fprintf(stderr, "emu: %zu kernels; %zu graphs, %zu replays of %zu pieces; %zu bytes at most\n", launches,
                graphs, replays, replayed, memory);
        fprintf(stderr, "emu: %zu bytes copied to the device, %zu from it\n", copied_in, copied_out);
        if (shared) { fprintf(stderr, "emu: %zu matmuls on fewer multiprocessors\n", shared); }
    }
};
inline Counts counts;

// Records an error for cudaGetLastError, prints why, and returns it.
__attribute__((format(printf, 2, 3))) inline cudaError_t fail(cudaError_t error, const char* fmt, ...) {
    va_list args;
    va_start(args, fmt);
    fprintf(stderr, "emu: %s: ", cudaGetErrorName(error));
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    va_end(args);
    return last_error = error;
}

// Records an error for cudaGetLastError and returns it, without a message.
inline cudaError_t quietly(cudaError_t error) { return last_error = error; }

inline int device_count() { return (int)option("EMU_DEVICES", 8); }
inline int driver_version() { return (int)option("EMU_DRIVER", CUDART_VERSION); }

// Called first by every function of the runtime: returns an error if there is no driver, no device, or it is broken.
// Also in a process that was forked from one that had called the runtime: as on a GPU, it cannot use the device, unless
// EMU_FORK=1, for tests of what ends a process.
inline cudaError_t enter() {
    static const pid_t owner = getpid();
    static const cudaError_t absent = driver_version() < CUDART_VERSION ? cudaErrorInsufficientDriver
                                      : device_count() < 1              ? cudaErrorNoDevice
                                                                        : cudaSuccess;
    cudaError_t error = absent != cudaSuccess ? absent : broken_by;
    if (error == cudaSuccess && getpid() != owner && !option("EMU_FORK", 0)) { error = cudaErrorInitializationError; }
    return error == cudaSuccess ? cudaSuccess : quietly(error);
}

// Counts a launch; breaks the device if it is the one that EMU_FAIL names.
inline void count_launch() {
    static size_t victim = 0;
    static int error = 0;
    static const char* text = getenv("EMU_FAIL");
    if (text && !victim && sscanf(text, "%zu:%d", &victim, &error) != 2) { die("EMU_FAIL=%s is not N:ERROR", text); }
    if (++launches == victim) { broken_by = (cudaError_t)error; }
}

} // namespace emu
