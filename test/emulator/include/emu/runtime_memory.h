// The runtime's functions for memory.
#pragma once
#include "graph.h"

enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2, cudaMemcpyDeviceToDevice = 3 };
enum cudaMemoryType { cudaMemoryTypeUnregistered = 0, cudaMemoryTypeHost = 1, cudaMemoryTypeDevice = 2 };
struct cudaPointerAttributes {
    cudaMemoryType type;
};

typedef emu::Stream* cudaStream_t;
typedef emu::Event* cudaEvent_t;

namespace emu {

// The beginning of a runtime function: returns an error if the device does not work (EMU_ENTER), or also if a stream is
// being captured, when `call` is not allowed (EMU_ENTER_OUTSIDE_CAPTURE).
#define EMU_ENTER()                                                                                                    \
    if (cudaError_t error = emu::enter(); error != cudaSuccess) { return error; }
#define EMU_ENTER_OUTSIDE_CAPTURE(call)                                                                                \
    EMU_ENTER()                                                                                                        \
    if (cudaError_t error = emu::not_while_capturing(call); error != cudaSuccess) { return error; }

// Ends the program unless [p, p + n), one end of a copy, lies where the copy's kind says: on the device or not. Of host
// memory only what is page-locked has a known size.
inline void check_side(const void* p, size_t n, bool device, const char* what) {
    if (device) {
        check_range(p, n, what);
    } else if (on_device(p)) {
        die("%s: %p is device memory, but the kind of the copy says host", what, p);
    } else if (is_pinned(p)) {
        const auto* a = allocation_before(mem.pinned, p);
        const size_t offset = (size_t)((const char*)p - a->first);
        if (n > a->second - offset) {
            die("%s: %zu bytes at offset %zu of %zu page-locked ones", what, n, offset, a->second);
        }
    }
}

inline void check_copy(const void* dst, const void* src, size_t n, cudaMemcpyKind kind) {
    check_side(dst, n, kind != cudaMemcpyDeviceToHost, "cudaMemcpy to");
    check_side(src, n, kind != cudaMemcpyHostToDevice, "cudaMemcpy from");
}

inline void copy_now(void* dst, const void* src, size_t n) {
    Open open;
    counts.copied_in += on_device(dst) && !on_device(src) ? n : 0;
    counts.copied_out += on_device(src) && !on_device(dst) ? n : 0;
    memmove(dst, src, n);
}

} // namespace emu

// ---------------------------------------------------------------------------------------------------------------------
// allocation

inline cudaError_t cudaMalloc(void** p, size_t n) {
    EMU_ENTER_OUTSIDE_CAPTURE("cudaMalloc")
    *p = nullptr;
    if (n == 0) { return cudaSuccess; }
    *p = emu::charge_context() ? emu::allocate(n) : nullptr;
    return *p ? cudaSuccess : emu::quietly(cudaErrorMemoryAllocation);
}
template <class T> cudaError_t cudaMalloc(T** p, size_t n) { return cudaMalloc((void**)p, n); }

// Waits for the device, as the real one does.
inline cudaError_t cudaFree(void* p) {
    EMU_ENTER_OUTSIDE_CAPTURE("cudaFree")
    emu::drain_all();
    if (p && !emu::release(p)) { emu::die("cudaFree(%p): not a device allocation, or freed already", p); }
    return cudaSuccess;
}

// Page-locked memory is host memory that is noted in mem.pinned. As in CUDA, other host memory is not copied
// asynchronously and must not be given to a kernel.
template <class T> cudaError_t cudaMallocHost(T** p, size_t n) {
    EMU_ENTER_OUTSIDE_CAPTURE("cudaMallocHost")
    *p = n <= emu::lockable_memory() ? (T*)malloc(n ? n : 1) : nullptr;
    if (!*p) { return emu::quietly(cudaErrorMemoryAllocation); }
    memset((void*)*p, emu::POISON, n);
    emu::mem.pinned[(char*)*p] = n;
    return cudaSuccess;
}
inline cudaError_t cudaFreeHost(void* p) {
    EMU_ENTER_OUTSIDE_CAPTURE("cudaFreeHost")
    if (p && emu::mem.pinned.erase((char*)p) == 0) { emu::die("cudaFreeHost(%p): not from cudaMallocHost", p); }
    free(p);
    return cudaSuccess;
}

inline cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total) {
    EMU_ENTER()
    emu::charge_context();
    *total = emu::device_memory();
    *free_bytes = *total - emu::mem.used;
    return cudaSuccess;
}

inline cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* p) {
    EMU_ENTER()
    attributes->type = emu::on_device(p)   ? cudaMemoryTypeDevice
                       : emu::is_pinned(p) ? cudaMemoryTypeHost
                                           : cudaMemoryTypeUnregistered;
    return cudaSuccess;
}

// ---------------------------------------------------------------------------------------------------------------------
// copying

// Copies as CUDA does ("API synchronization behavior" of the runtime's manual): pageable memory is read, or written,
// before the call returns; only device and page-locked memory is copied asynchronously.
inline cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t n, cudaMemcpyKind kind, cudaStream_t stream = 0) {
    EMU_ENTER()
    emu::Stream* s = emu::st(stream);
    emu::check_copy(dst, src, n, kind);
    bool from_pageable = !emu::on_device(src) && !emu::is_pinned(src);
    bool to_pageable = !emu::on_device(dst) && !emu::is_pinned(dst);
    if (s->capture && (from_pageable || to_pageable)) {
        return emu::not_while_capturing("cudaMemcpyAsync of pageable memory", s);
    }
    if (from_pageable) {
        std::vector<char> bytes((const char*)src, (const char*)src + n);
        emu::enqueue(s, [=] { emu::copy_now(dst, bytes.data(), n); });
    } else {
        emu::enqueue(s, [=] { emu::copy_now(dst, src, n); });
    }
    if (to_pageable) {
        emu::drain_last_first();
        emu::drain(s);
    }
    return emu::broken_by;
}

inline cudaError_t cudaMemcpy(void* dst, const void* src, size_t n, cudaMemcpyKind kind) {
    EMU_ENTER_OUTSIDE_CAPTURE("cudaMemcpy")
    cudaError_t error = cudaMemcpyAsync(dst, src, n, kind, nullptr);
    emu::drain(&emu::default_stream);
    return error;
}

inline cudaError_t cudaMemsetAsync(void* p, int value, size_t n, cudaStream_t stream = 0) {
    EMU_ENTER()
    emu::check_range(p, n, "cudaMemset");
    emu::enqueue(stream, [=] {
        emu::Open open;
        emu::fill((char*)p, value, n);
    });
    return emu::broken_by;
}
inline cudaError_t cudaMemset(void* p, int value, size_t n) {
    EMU_ENTER_OUTSIDE_CAPTURE("cudaMemset")
    return cudaMemsetAsync(p, value, n, nullptr);
}
