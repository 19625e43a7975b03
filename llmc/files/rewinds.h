// The record of a run's returns to earlier checkpoints because of bad steps (spikes.h): their number, and the windows
// of the data that were left out.
//
// state.json of every later checkpoint has the record. Until there is one, FOLDER/rewind.json of the checkpoint that
// the run went back to has it, so that a run killed meanwhile goes on with the same data:
//
//   {"checksum": "...", "rewinds": {"count": 1, "left_out": [[960, 160]]}, "window": 1120}
//
// The pairs are the first window and their number. "window" takes the place of state.json's. checkpoint.b2sums does
// not list the file, which is written after it and has a checksum of its own (json_save_checked).
#pragma once
#include "../base/base.h"
#include <jansson.h>

enum { MAX_REWINDS = 100 }; // --max_rewinds is at most this

typedef struct {
    uint64_t first, count;
} WindowRange;

typedef struct {
    int count;    // times that the run went back, those included that a later one went back behind
    int num_ranges;
    WindowRange left_out[MAX_REWINDS]; // in the order of the data
} Rewinds;

// Returns the object of state.json, a new reference.
json_t* rewinds_to_json(const Rewinds* r);

// Reads it; NULL: never. Fails if no run can have written it.
bool rewinds_from_json(Rewinds* r, const json_t* saved, Error* err);

// Writes rewind.json into a checkpoint's folder; `window` is the next one.
bool rewind_write(const char* folder, const Rewinds* r, uint64_t window, Error* err);

// Puts what rewind.json says, if there is one, into the checkpoint's state. Fails if it is damaged.
bool rewind_read(json_t* state, const char* folder, Error* err);
