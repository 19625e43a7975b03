// The windows of the data that a run leaves out (--skip_windows), as ranges: "960-1119,2000" are windows 960 to 1119
// and 2000. Windows have the numbers of a run (dataloader.h), so that ranks, batches and resumptions leave out the
// same.
#pragma once
#include "../base/base.h"

// Windows first .. end-1.
typedef struct {
    uint64_t first, end;
} WindowRange;

// In increasing order, with windows between any two. All zero: none.
typedef struct {
    WindowRange* range;
    size_t count;
} SkipWindows;

// Reads ranges, in any order; skip_windows_free() frees them. Fails if the text is wrong.
bool skip_windows_parse(SkipWindows* s, const char* text, Error* err);
void skip_windows_free(SkipWindows* s);

// Adds windows first .. end-1, of which some may be there already.
void skip_windows_add(SkipWindows* s, uint64_t first, uint64_t end);

// Returns the ranges as skip_windows_parse() reads them; the caller frees the text.
char* skip_windows_text(const SkipWindows* s);

// Returns the window that comes `n` windows after `window`, counting only those that are not left out; n = 0: `window`
// itself or the next one that is not left out. s NULL: none are.
uint64_t skip_windows_next(const SkipWindows* s, uint64_t window, uint64_t n);

// Returns true if a run that stands at `window`, and has left out `skipped`, has been trained on a window of `s`.
bool skip_windows_were_trained(const SkipWindows* s, uint64_t window, const SkipWindows* skipped);
