// Draws the roofline (Williams, Waterman & Patterson 2009, "Roofline: an insightful visual performance model for
// multicore architectures") of `bench ops`: FLOP/s over FLOP per byte, both axes logarithmic. The slope is the limit by
// memory, the flat part that by arithmetic. A point is an operation; its distance to the roof shows how much faster it
// could be.
#pragma once
#include "../base/base.h"

typedef struct {
    const char *name, *layer;
    double intensity, flops; // FLOP per byte, FLOP/s
    double ms, reached;      // milliseconds; the part of its limit that was reached, NAN: unknown
    bool by_memory;          // memory is the limit
} RooflinePoint;

typedef struct {
    const char* device; // and the model, in the heading
    const char* peak_name; // how peak_flops were measured, such as "in a large matmul"
    double copy_bandwidth, peak_flops;           // measured
    double published_bandwidth, published_flops; // 0: unknown
    const RooflinePoint* point;
    int count;
} Roofline;

// Writes the picture as an SVG file: the plot, and below it a list of the operations, whose numbers stand in the dots.
void draw_roofline(FILE* svg, const Roofline* r);
