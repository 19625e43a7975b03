// Draws a panel about a run below the output in a terminal (--tui): progress, curves of loss and norm, speed, cost,
// memory and the GPU's state.
//
// The panel changes no mode of the terminal, not even the cursor's: after drawing, the cursor stands at the beginning
// of its first row. Whoever prints next erases from there to the end of the screen (\033[J), as all output of the
// program does; so no exit and no signal leaves the terminal in another state.
#pragma once
#include "../base/base.h"
#include "gpu_state.h"

enum { HISTORY_POINTS = 128 };

// A curve since the start, in a fixed number of points: when it is full, neighbours are replaced by their mean.
typedef struct {
    double point[HISTORY_POINTS];
    int count;  // points
    int stride; // values in a point; 0 stands for 1
    double sum; // of the values of the next point
    int summed; // their number
} History;

// Adds a value; one that is not finite is left out.
void history_add(History* h, double value);

// Returns a curve in `width` characters of eight heights (U+2581 to U+2588), from the lowest to the highest of its last
// nine tenths: the fall at the beginning would flatten what follows. The caller frees it.
char* sparkline(const History* h, int width);

typedef struct {
    int step, max_steps;
    double left;         // seconds until the end; NaN: unknown
    double loss, norm, val, tok_s, ms, mfu; // NaN: unknown
    double slowest;      // time of the slowest rank over the median; NaN: unknown
    double spent, price; // money so far, and per second; 0: not shown
    size_t memory;       // bytes planned; 0: unknown
    const History *loss_curve, *norm_curve;
    GpuState gpu;
} Panel;

enum { PANEL_ROWS = 5 };

// Returns the panel for a terminal of `width` columns: at most PANEL_ROWS rows of at most width - 1 characters, with
// newlines between. The caller frees it.
char* panel_text(const Panel* p, int width);

// Writes a bar of up to 40 cells, the part `done` of them filled, and `tail` behind it, in at most `width` - 1
// characters; a narrow terminal gets the tail alone, cut.
void bar_text(double done, const char* tail, int width, char* out, size_t size);
