// Writes report.html: one training run, or several overlaid, as a page that needs no other file.
//
// Charts are inline SVG; a script of some hundred lines shows values under the pointer and switches the x axis (steps,
// tokens, time), the loss's scale and its smoothing; light or dark follows the browser's setting. The page is also
// well-formed XML, which tests can check. It is made from metrics.jsonl alone, also while the run goes on.
#pragma once
#include "../base/base.h"
#include "chart.h"
#include "metrics.h"

// CSS of the page, and the script that shows values under the pointer and switches axes and smoothing.
extern const char REPORT_STYLE[], REPORT_SCRIPT[];

enum { CHART_COUNT = 4 };
extern const Chart REPORT_CHARTS[CHART_COUNT];

// Writes the page of `n` runs, each a folder with metrics.jsonl, to `out_path`, which is replaced atomically. Fails if
// a run cannot be read or the page cannot be written.
bool report_write(const char* out_path, const char* const* run_folders, int n, Error* err);
