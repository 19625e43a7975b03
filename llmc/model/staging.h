// Streams the optimizer's state through device memory, part by part, where it lies in host memory (--offload). Ren et
// al. 2021, "ZeRO-Offload: Democratizing Billion-Scale Model Training", keep it there too, but also update it there. We
// send it to the GPU, whose kernels give the bits that they give without --offload.
//
// A part is what one launch updates: elements of masters and moments. Parts take turns in STATE_SLOTS slots of device
// memory (backend.h), so that one is copied in and another one out while a third is updated.
#pragma once
#include "backend.h"

typedef struct {
    float* memory;     // device memory of all slots; unused where the state is on the device
    size_t slot_floats;
    int slot;          // of the current part
    size_t used;       // floats of it
} Staging;

// Returns the floats of a slot that n floats take.
size_t staging_floats(size_t n);

// Queues copying n floats of the state into the current slot. Returns their device memory.
float* staging_in(Staging* s, const Backend* b, const float* host, size_t n);

// Queues copying them back after the work queued before.
void staging_out(const Staging* s, const Backend* b, float* host, const float* device, size_t n);

// Begins the next part. staging_out() ended the last one.
void staging_next(Staging* s);
