// Chooses the backend and makes the plan that the options of a bench ask for, and writes the bench's record: functions
// that all forms of `bench` share.
#pragma once
#include "../options/config.h"
#include "../train/plan.h"
#include <jansson.h>

// ---------------------------------------------------------------------------------------------------------------------
// backend and plan

// Returns the backend for a --dtype, and the --cpu and --residual of `c`; a usage error if this program has none.
const Backend* bench_backend(const Config* c, enum dtype dtype);

// Returns the --dtype of this backend, "auto" resolved.
enum dtype bench_dtype(const Config* c, const Backend* b);

// Plans a model for one process; a usage error if the options do not fit together. seq_len: tokens in a sequence if
// --seq_len is not given; 0: the model's.
Plan bench_plan(const Backend* b, enum dtype dtype, const Config* c, int seq_len);

// Opens the device and returns the plan for it. On a CPU sequences have 64 tokens if --seq_len is not given.
Plan bench_open(const Config* c, Comm* comm);

// ---------------------------------------------------------------------------------------------------------------------
// files

// Says in the files of a bench which options it had.
typedef struct {
    const char* out; // the folder of the files; empty: none is written
    char* command;   // "bench" and the arguments and options that were given, to be pasted into a shell
    json_t* options; // as resolved; bench_record() takes this reference
} BenchGiven;

// Returns the options of a bench, whose texts are never freed.
BenchGiven bench_given(const Config* c, const Plan* p);

// Returns the record of a bench, a new reference: date, command, model, options, and `rows` under the name `rows_name`.
// device: the processor's or GPU's name. copy_bandwidth: measured, in bytes/s, or NAN. Takes over the reference `rows`.
json_t* bench_record(const char* kind, const BenchGiven* given, const Plan* p, const char* device,
                     double copy_bandwidth, const char* rows_name, json_t* rows);

// Writes the file OUT/NAME, makes the folder if it is missing, and prints the path; ends the program if that fails.
// Does nothing if `out` is empty.
void bench_write(const char* out, const char* name, const char* text);

// Writes JSON to OUT/NAME likewise. Takes over the reference `record`; NULL (json_pack failed) ends the program.
void bench_write_json(const char* out, const char* name, json_t* record);

// Writes a fraction of 1 to `out` (32 bytes) as "12.3%", or "-" if it is not finite, as on an emulated GPU; returns
// `out`.
const char* percent_text(char* out, double share);
