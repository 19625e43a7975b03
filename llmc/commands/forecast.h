// Parts of `forecast` (forecast.c): the runs, what --budget buys, and the picture.
#pragma once
#include "../eval/law.h"
#include "../options/models.h"

// Finished runs of one text. `floor` is its entropy if a run says it, else NaN; `text` is what the first one validated
// on.
typedef struct {
    LawRun* run;
    int count;
    double most_parameters, most_tokens; // of one run
    double vocab, floor;                 // 0: no run yet
    char* text;
} Runs;

// Adds the run of a folder of --out, or the rows of a table: a text file with a heading, and on each line a model (as
// in --model), its tokens, its loss and, if it is known, the floor; what follows is ignored. Fails if a run cannot be
// fitted: it has not finished, has no final validation loss, has diverged, or has another vocabulary or floor than the
// others.
bool runs_add(Runs* runs, const char* path, Error* err);

// Returns the N of the law for a model.
double forecast_size(const GPT2Config* m);

// The most that is accepted, so that nothing overflows (chosen).
#define LAW_MOST_TOKENS 1e20
#define LAW_MOST_FLOPS 1e40

// What --budget gives: tokens, or floating point operations; the other one is 0.
typedef struct {
    double tokens, flops;
} Budget;

// Reads --budget:
//   tokens:1e10   tokens to train on
//   flops:1e19    operations of the whole training
bool budget_parse(const char* text, Budget* budget, Error* err);

// A forecast in the picture; tokens 0: none.
typedef struct {
    double parameters, tokens;
    Interval loss;
} ForecastPoint;

// Writes the picture: loss over tokens, a curve of the law and the runs as dots for each size, the floor and the
// forecast. The runs are sorted by size.
void draw_law(FILE* svg, const Law* law, const Runs* runs, const ForecastPoint* forecast);
