// Reads the metrics.jsonl of a run (see logger.h): curves by step, configuration, samples, events.
// The run need not have ended: records may be missing, values null, lines torn. A resumed run does steps again: its
// `config` record at a step cancels the earlier records of later steps. Of several records of one step the last counts.
#pragma once
#include "../base/base.h"
#include <jansson.h>

typedef struct {
    double x, y;
} Point;

typedef struct {
    Point* at;
    size_t count, room;
} Series;

enum { RUN_LOSS, RUN_SMOOTH, RUN_VAL, RUN_NORM, RUN_LR, RUN_SPEED, RUN_TOKENS, RUN_SECONDS, RUN_MFU, RUN_SERIES };

typedef struct {
    char* name;
    Series series[RUN_SERIES];            // by step; tokens and seconds of training are those since the beginning
    json_t* config;                       // the last one; NULL if there is none
    json_t* end;                          // the record of the last start's end; NULL if there is none
    json_t *starts, *samples, *events, *scores; // arrays of records; starts: of configs, scores: of evals
    json_t* evals;                              // test set, rules, questions -> the last record of these
    json_t* vals;                         // their records, with the options of the start that validated
    double best_val, best_step;           // the lowest of the last vals on the same data; NaN if there is none
    double steps, floor;
} Run;

// Returns a member's number, cut to +-1e30 so that ranges of charts do not overflow; NaN if it is missing or null.
double record_number(json_t* record, const char* key);

// Returns a member's text; "" if it is missing.
const char* record_text(json_t* record, const char* key);

// Reads the metrics.jsonl in a folder, passing over lines that are no records. Fails if there is no such file. The
// caller calls run_free, also after a failure.
bool run_read(Run* run, const char* folder, Error* err);

// Frees the series and records.
void run_free(Run* run);

// Returns the last value of a series; NaN if it is empty.
double series_last(const Series* s);

// Returns the seconds of training in all, validation and saving left out.
double run_total_seconds(const Run* run);
