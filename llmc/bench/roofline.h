// Draws the roofline (Williams, Waterman & Patterson 2009, "Roofline: an insightful visual performance model for
// multicore architectures") of `bench ops`: FLOP/s over FLOP per byte, both axes logarithmic. The slope is the limit by
// memory, the flat part that by arithmetic. A point is an operation; its distance to the roof shows how much faster it
// could be.
#pragma once
#include "../log/chart.h"

typedef struct {
    const char *name, *layer;
    double intensity, flops; // FLOP per byte, FLOP/s
    double ms, reached;      // milliseconds; the part of its limit that was reached, NAN: unknown
    bool by_memory;          // memory is the limit
} RooflinePoint;

typedef struct {
    const char* device;
    double copy_bandwidth, matmul_flops;         // measured
    double published_bandwidth, published_flops; // 0: unknown
    const RooflinePoint* point;
    int count;
} Roofline;

// Where the parts of the picture stand, in pixels: the plot, and the list of operations beside or below it.
typedef struct {
    const char* size;               // class of the picture (page.h)
    int width;
    int heading;                    // x of the lines above the plot
    int left, right, top, bottom;   // of the plot
    int list, list_top;             // left and upper edge of the list
} RoofLayout;

extern const RoofLayout ROOF_BROAD, ROOF_SLIM;

enum { MAX_MARKS = 64 };

// The ends of the axes, as log10.
typedef struct {
    const RoofLayout* at;
    double left, right, bottom, top;
} RoofScale;

// Chooses axes that show the roof and the points, of at most 6 decades each: points beyond lie at the edge.
RoofScale roof_scale(const Roofline* r, const RoofLayout* layout);

// ---------------------------------------------------------------------------------------------------------------------
// points: a dot, its number beside it where there is room, and a list with the names

typedef struct {
    double x, y;
} Spot;

typedef struct {
    const Roofline* roof;
    RoofScale scale;
    Spot dot[MAX_MARKS], mark[MAX_MARKS]; // mark[i]: the centre of the number of dot[i]
    int dots, marks;                      // marks: numbers placed so far
} RoofMarks;

// Returns the y of the roof at x.
double roof_above(const RoofMarks* m, double x);

// Places the dots, and numbers that cover neither the roof nor each other.
RoofMarks roof_marks(const Roofline* r, const RoofScale* s);

// Appends the picture to the page, as one <svg> element.
void page_roofline(Page* page, const Roofline* r, const RoofLayout* layout);
