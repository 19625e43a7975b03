// Prefetching for the tiles of tile.h, into L2: operands of later tiles, and what an epilogue reads and writes. A tile
// prefetches a few lines at a time, every AHEAD_STEPS steps of k. All of them at once would occupy the core's buffers
// for lines that are on their way to L1 (10 to 16 of them), which the tile's own reads from L2 need too.
#pragma once
#include "device.h"

// Memory to prefetch: `pieces` of `bytes` each, `stride` bytes apart.
typedef struct {
    const char* at;
    size_t stride;
    int pieces, bytes;
} Ahead;

// The same, cut into shares of `each` pieces.
typedef struct {
    Ahead rest;
    int each;
} AheadShares;

static inline AheadShares ahead_shares(Ahead all, int shares) {
    const AheadShares x = {all, (int)ceil_div((size_t)all.pieces, (size_t)shares)};
    return x;
}

// Takes one share.
static inline __attribute__((always_inline)) Ahead ahead_next(AheadShares* x) {
    Ahead next = x->rest;
    next.pieces = min_int(x->each, x->rest.pieces);
    x->rest.at += (size_t)next.pieces * next.stride;
    x->rest.pieces -= next.pieces;
    return next;
}

// What a tile prefetches, in this order.
enum { AHEAD_PARTS = 4 };
typedef struct {
    Ahead part[AHEAD_PARTS + 1];
    int parts;
    int lines;              // at a time
    int i;                  // the current part
    const char *line, *end; // the next line, and the end of its piece
} TileAhead;

// Returns the parts for a tile that prefetches in `turns` turns; 0: in one.
static inline __attribute__((always_inline)) TileAhead tile_ahead(const Ahead parts[AHEAD_PARTS], int turns) {
    TileAhead x = {.parts = 0};
    int lines = 0;
    for (int i = 0; i < AHEAD_PARTS; i++) {
        if (parts[i].pieces == 0) { continue; }
        x.part[x.parts++] = parts[i];
        lines += parts[i].pieces * (int)ceil_div((size_t)parts[i].bytes, LINE_BYTES);
    }
    x.lines = (int)ceil_div((size_t)lines, (size_t)max_int(turns, 1));
    x.line = x.part[0].at;
    x.end = x.line + x.part[0].bytes;
    return x;
}

// Prefetches the next lines.
static inline __attribute__((always_inline)) void tile_prefetch(TileAhead* x) {
    for (int n = x->lines; n > 0 && x->i < x->parts; n--) {
        __builtin_prefetch(x->line, 0, 2);
        x->line += LINE_BYTES;
        if (x->line < x->end) { continue; }
        Ahead* part = &x->part[x->i];
        part->at += part->stride;
        if (--part->pieces == 0) { part = &x->part[++x->i]; }
        x->line = part->at;
        x->end = part->at + part->bytes;
    }
}
