#include "staging.h"

size_t staging_floats(size_t n) { return round_up(n, TENSOR_ALIGN); }

float* staging_in(Staging* s, const Backend* b, const float* host, size_t n) {
    if (s->used + n > s->slot_floats) { fatal("a part of the optimizer's state does not fit into its slot"); }
    float* device = s->memory + (size_t)s->slot * s->slot_floats + s->used;
    s->used += staging_floats(n);
    b->state_in(s->slot, device, host, n * sizeof *host);
    return device;
}

void staging_out(const Staging* s, const Backend* b, float* host, const float* device, size_t n) {
    b->state_out(s->slot, host, device, n * sizeof *host);
}

void staging_next(Staging* s) {
    s->slot = (s->slot + 1) % STATE_SLOTS;
    s->used = 0;
}
