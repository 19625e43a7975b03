// Draws charts of runs as inline SVG: axes, ticks, lines.
#pragma once
#include "../base.h"
#include "metrics.h"

// ---------------------------------------------------------------------------------------------------------------------
// a page: a text that grows

typedef struct {
    char* text;
    size_t size, room;
} Page;

// printf to the end of a page.
void ATTR_PRINTF(2, 3) page_add(Page* page, const char* fmt, ...);

// Adds any text as content or as the value of an attribute.
void page_escape(Page* page, const char* text);

// ---------------------------------------------------------------------------------------------------------------------
// numbers as text: to `out` of 32 bytes, which is returned

// A value with three to five significant digits, or a dash if it is not finite.
const char* value_text(char* out, double v);

// A tick of an axis, with as many digits as tell ticks `step` apart from each other.
const char* tick_text(char* out, double v, double step);

// ---------------------------------------------------------------------------------------------------------------------
// charts

enum { CHART_LOG = 1, CHART_ZERO = 2, CHART_FALL = 4, CHART_DOTS = 8 };

// A chart of each run's `series`, over its `faint` one if that is not -1.
// CHART_LOG: logarithmic where values span more than a factor of 50. CHART_ZERO: 0 is always shown. CHART_FALL: values
// of the first twentieth may lie above the frame, which then says so, if they would squeeze the others, at least 20,
// into less than two fifths of it. CHART_DOTS: up to 120 points get dots. The numbers are chosen.
typedef struct {
    const char* title;
    int series, faint, flags, width, height;
} Chart;

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

// Adds a figure with its caption.
void page_chart(Page* page, const Report* r, const Chart* c);
