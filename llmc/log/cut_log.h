// Cuts the logs of a run that is resumed back to the step that it is resumed from.
#pragma once
#include "../base/base.h"

// The updates that a resumed run does again.
typedef struct {
    int steps;
    double ms; // that they took
} LostSteps;

// Phases after a step, by the kind of their records in metrics.jsonl.
typedef struct {
    bool val, eval, sample;
} Phases;

// Removes from metrics.jsonl and log.txt what came after `step`, and torn last lines, and counts the updates among it,
// with those that a removed start had itself done again. Removes from metrics.jsonl also the records of those phases of
// this step that are done `again`. A log that does not exist stays so.
bool cut_logs(const char* metrics_path, const char* text_path, long step, Phases again, LostSteps* lost, Error* err);
