// Writes report.html: one training run, or several overlaid, as a page that needs no other file.
//
// A script of some hundred lines draws the charts as inline SVG, shows values under the pointer and switches the x axis
// (steps, tokens, time), the loss's scale and its smoothing; light or dark follows the browser's setting. The page is
// also well-formed XML, which tests can check. It is made from metrics.jsonl alone, also while the run goes on.
#pragma once
#include "../base/base.h"

// CSS of the page, and the script that draws the charts.
extern const char REPORT_STYLE[], REPORT_SCRIPT[];

// Returns false if there is a file at `path` that is no report.
bool report_may_replace(const char* path, Error* err);

// Writes the page of `n` runs, each a folder with metrics.jsonl, to `out_path`, which is replaced atomically. Fails if
// a run cannot be read or the page cannot be written.
bool report_write(const char* out_path, const char* const* run_folders, int n, Error* err);
