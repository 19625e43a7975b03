// Draws charts of runs as inline SVG: axes, ticks, lines. The script of the page (report_style.c) reads the lines back
// and draws them anew over another axis.
#pragma once
#include "html.h"
#include "metrics.h"

enum { CHART_LOG = 1, CHART_ZERO = 2, CHART_FALL = 4, CHART_LEVELS = 8 };

// A chart of each run's `series`, over its `faint` one and with its `dotted` one, unless these are -1; `dotted` has at
// most a few points, which get dots.
// CHART_LOG: logarithmic where values span more than a factor of 50. CHART_ZERO: 0 is always shown. CHART_FALL: values
// of the first tenth may lie above the frame, which then says so, if they would squeeze the others, at least 8, into
// less than half of it. CHART_LEVELS: also draws the floors of runs and published losses that lie inside the frame.
// The numbers are chosen.
typedef struct {
    const char* title;
    int series, faint, dotted, flags;
} Chart;

// A chart is drawn in a size of its own for each place on a page, so that its text has the same size everywhere.
typedef struct {
    const char* name; // class of the SVG, by which the style shows one of a wide chart's two sizes
    int width, height;
} ChartSize;
extern const ChartSize CHART_SMALL, CHART_WIDE, CHART_NARROW; // CHART_NARROW: a wide one on a narrow screen

enum { CHART_LEFT = 52, CHART_RIGHT = 10, CHART_TOP = 8, CHART_BOTTOM = 24, CHART_COLORS = 8 };

enum { CHART_MAX_POINTS = 2000 }; // of a line: longer ones are thinned; chosen

// The runs of a page, and the x axis that all its charts share.
typedef struct {
    Run* runs;
    int count;
    bool by_tokens; // x is tokens, which compares runs with different batches; one run counts in steps, as its log does
    double x_end;
} Report;

// Returns the place of a step of a run on the x axis: the step itself, or the tokens seen by then.
double report_x(const Report* r, const Run* run, double step);

// Returns the smallest of 1, 2, 5 times a power of ten that is at least `x`.
double nice_step(double x);

// Adds the figure of a chart with its caption: of CHART_WIDE in two sizes, else in CHART_SMALL.
void page_chart(FILE* page, const Report* r, const Chart* c, bool is_wide);
