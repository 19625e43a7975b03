// Prefetching for the tiles of tile.h, into L2: operands that are packed or read next, and what an epilogue reads and
// writes. Tiles prefetch a few lines every AHEAD_STEPS steps of k. All of them at once would occupy the core's buffers
// for lines that are on their way to L1 (10 to 16 of them), which the tile's own reads from L2 need too.
#pragma once
#include "device.h"

// Memory to prefetch: `pieces` of `bytes` each, `stride` bytes apart.
typedef struct {
    const char* at;
    size_t stride;
    int pieces, bytes;
} Region;

// Regions to prefetch, in this order.
enum { AHEAD_REGIONS = 4 };
typedef struct {
    Region region[AHEAD_REGIONS + 1]; // behind the last: one without pieces
    int now;                          // the current region
    const char *line, *end;           // the next line, and the end of its piece
    int lines;                        // in all; after ahead_begin() at a time
} Ahead;

static inline void ahead_add(Ahead* x, Region r) {
    if (r.pieces == 0) { return; }
    x->lines += r.pieces * (int)ceil_div((size_t)r.bytes, LINE_BYTES);
    x->region[x->now++] = r;
}

// Begins after the last region was added: prefetches them in `turns` turns.
static inline void ahead_begin(Ahead* x, int turns) {
    if (x->lines == 0) { return; }
    x->lines = (int)ceil_div((size_t)x->lines, (size_t)turns);
    x->now = 0;
    x->line = x->region[0].at;
    x->end = x->line + x->region[0].bytes;
}

// A turn. Inlined by force: gcc 12 takes a function that only prefetches for one without effect, and drops the call.
static inline __attribute__((always_inline)) void ahead_prefetch(Ahead* x) {
    for (int n = x->region[x->now].pieces > 0 ? x->lines : 0; n > 0; n--) {
        __builtin_prefetch(x->line, 0, 2);
        x->line += LINE_BYTES;
        if (x->line < x->end) { continue; }
        Region* r = &x->region[x->now];
        r->at += r->stride;
        if (--r->pieces == 0) { r = &x->region[++x->now]; }
        if (r->pieces == 0) { return; }
        x->line = r->at;
        x->end = r->at + r->bytes;
    }
}
