// The optimizer's state in host memory: how it gets to the GPU and back (backend.h, model/staging.h).
//
// Copies in have a stream, copies out another one, since PCI Express moves both ways at once. Events order them:
//
//   copies in      in 0     in 1     in 2     in 3 ...      in 3 waits for out 0, which leaves slot 0 (STATE_SLOTS = 3)
//   gpu.stream         update 0 update 1 update 2 ...       an update waits for its copies in
//   copies out                  out 0    out 1 ...          a copy out waits for its update
#pragma once
#include "device.cuh"

// Streams and events are created for the first state: most runs have none.
static inline void state_open() {
    if (gpu.state_in) { return; }
    gpu.state_in = new_stream();
    gpu.state_out = new_stream();
    gpu.state_arrived = new_event();
    gpu.state_updated = new_event();
    for (cudaEvent_t& event : gpu.state_left) { event = new_event(); }
}

static inline void state_sync(void) {
    if (!gpu.state_in) { return; }
    cuda_check(cudaStreamSynchronize(gpu.state_in), "waiting for the optimizer's state");
    cuda_check(cudaStreamSynchronize(gpu.state_out), "waiting for the optimizer's state");
}

static inline void* state_alloc(size_t bytes, const char* what) {
    void* p = NULL;
    state_open();
    const cudaError_t error = gpu.state_is_pageable ? cudaErrorMemoryAllocation : cudaMallocHost(&p, bytes);
    if (error == cudaSuccess) {
        memset(p, 0, bytes);
        return p;
    }
    if (error != cudaErrorMemoryAllocation) { cuda_check(error, what); }
    if (!gpu.state_is_pageable) {
        cudaGetLastError(); // clears the runtime's error, which the next cuda_launched() would report
        notice("warning: %s: %.1f MiB of host memory cannot be locked in place: copies to the GPU are slower; free "
               "memory, or raise the container's limit",
               what, in_mib(bytes));
    }
    gpu.state_is_pageable = true;
    return alloc_or_die(bytes, 1, what);
}

static inline void state_free(void* p, size_t bytes) {
    cudaPointerAttributes of;
    (void)bytes;
    state_sync();
    cuda_check(cudaPointerGetAttributes(&of, p), "freeing host memory");
    if (of.type == cudaMemoryTypeHost) { host_free(p); }
    else { free(p); }
}

static inline void state_in(int slot, void* device, const void* host, size_t bytes) {
    cuda_check(cudaStreamWaitEvent(gpu.state_in, gpu.state_left[slot], 0), "waiting for a slot");
    cuda_check(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, gpu.state_in), "copying state to the GPU");
    stream_order(gpu.state_arrived, gpu.state_in, gpu.stream, "waiting for state");
}

static inline void state_out(int slot, void* host, const void* device, size_t bytes) {
    stream_order(gpu.state_updated, gpu.stream, gpu.state_out, "waiting for an update");
    if (bytes) {
        cuda_check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, gpu.state_out),
                   "copying state from the GPU");
    }
    cuda_check(cudaEventRecord(gpu.state_left[slot], gpu.state_out), "recording an event");
}
