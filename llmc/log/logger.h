// Logs a training run while it runs, on rank 0 alone:
//   standard output   step lines (llm.c's columns, which scripts parse), validation losses, samples; on a terminal a
//                     line is shortened to one row, and long runs print only some of them
//   standard error    notices and, on a terminal, a progress bar redrawn in place
//   metrics.jsonl     one JSON object per line, for programs; report.h makes a page of it
//   log.txt           step lines, whole, and notices again, for people
//   tensorboard/      the same numbers and samples, for TensorBoard (tensorboard.h)
// The first two files are flushed line by line and only grow. A resumed run does some steps again: a `config` record
// says from which step on, and readers take the last records (metrics.h). A file that cannot be written ends the
// program with an error that names it. Standard output that cannot be written does not: its reader may have ended first
// (`| tee log`, `| head`). The run then says so once, and goes on without it.
#pragma once
#include "../base/base.h"
#include "tensorboard.h"
#include <jansson.h>

typedef struct {
    const char* folder;    // receives metrics.jsonl and log.txt; NULL: neither is written
    const char* precision; // named in the step line: fp32, tf32, bf16, fp16, fp8
    int rank;              // ranks other than 0 write nothing: every call returns at once
    int max_steps;         // updates that the run will have made at its end
    size_t max_tokens;     // that it will have seen then
    int resume_step;       // updates made before this start; -1: a fresh run, which replaces the logs
    bool has_tensorboard;  // writes event files into folder/tensorboard
} LoggerOptions;

// One update. NaN stands for an unknown value.
typedef struct {
    int step;              // updates made, this one included
    size_t tokens;         // seen by the run so far, on all ranks
    size_t step_tokens;    // of these, in this update
    double loss, norm, lr;
    double embedding_lr, matrix_lr; // NAN: as lr
    double momentum;       // of Muon; NAN: it does not change
    double loss_z, norm_z; // of outlier_update
    double loss_scale;     // 0: the loss is not scaled
    double ms;             // time of the update
    double mfu;            // model FLOPs utilization, as a fraction of 1; not finite: the device's peak is unknown
} StepRecord;

typedef struct {
    LoggerOptions options;
    char *metrics_path, *text_path;
    FILE *metrics, *text;      // NULL without a folder
    EventFile events;
    bool has_ended;            // logger_end() was called
    long long print_every;     // steps between step lines on standard output
    bool bar;                  // standard output and standard error are a terminal
    double after_first;        // seconds_now() after the first update of this start
    size_t first_tokens;       // seen by the run then
    int steps;                 // updates in this start
    double total_ms;           // over all of them but the first, which warms up
    double ema, tok_s;         // tokens per second, smoothed; before and after the correction of its bias
    StepRecord last;
} Logger;

// Opens the logs, empty or, if the run is resumed, to append to them. Fails, before a log is changed, if a symbolic
// link or a named pipe is in the place of one. Strings in `options` must outlive the logger.
bool logger_open(Logger* l, const LoggerOptions* options, Error* err);

// Returns the step line, which the caller frees: llm.c's columns, with -100.0% as MFU where the peak is unknown.
// `width` > 0: the columns of a terminal. Fields that are unknown or do not fit are then left out: the z-scores first,
// then MFU, then ms.
char* logger_step_line(const Logger* l, const StepRecord* r, int width);

// Returns the steps between the step lines on standard output: 1 for a file or a pipe, whose lines scripts read; beside
// a bar, which shows every step, a round number for at most 500 lines.
long long logger_print_every(const Logger* l);

// Returns the columns of a terminal; 0 if `fd` is none.
int logger_width(int fd);

// Writes the bar as it stands at time `now`, at most `width` - 1 characters (the last column would wrap on some
// terminals).
void logger_bar_text(const Logger* l, double now, int width, char* out, size_t size);

// Draws the bar in the terminal's last row. Does nothing without a terminal or before the first update.
void logger_draw_bar(const Logger* l);

// Erases the bar. Call it before writing to standard output; notices and errors erase it by themselves.
void logger_erase_bar(const Logger* l);

// Writes a notice to standard error and to log.txt.
void ATTR_PRINTF(2, 3) logger_notice(Logger* l, const char* fmt, ...);

// Records a start of the program, fresh or resumed at `step`. Takes over `members`: "options": {name: value}, "model":
// {"name", "parameters", "L", "NH", "C", "T", "V"}, "device", "program", and "floor" where the lowest reachable loss is
// known. Adds the date.
void logger_config(Logger* l, int step, json_t* members);

// Logs an update: the step line, its record, and the bar. Tokens per second are a running average (0.95, as in llm.c),
// corrected for its start at 0. It leaves out the first update of this start.
void logger_step(Logger* l, const StepRecord* r);

// Logs the validation loss after `step` updates.
void logger_val(Logger* l, int step, double loss);

// Logs a text that the model made after `step` updates, any bytes.
void logger_sample(Logger* l, int step, const char* text, size_t size);

// Logs how long each of `n` ranks has computed in a step, in order of rank: the slowest one, and its time over the
// median (of an even number, the smaller one). Others wait for it. A notice says so if it takes a tenth longer.
void logger_ranks(Logger* l, int step, const double* seconds, int n);

// Logs that a checkpoint now stands at `path`.
void logger_save(Logger* l, int step, const char* path);

// Logs that the update was skipped because `what` ("loss" or "grad") was an outlier or, with z INFINITY, not finite.
void logger_skip(Logger* l, int step, const char* what, double z);

// Logs that the update was skipped because the gradient overflowed with this loss scale, and the scale from now on.
void logger_overflow(Logger* l, int step, double scale, double next_scale);

// Flushes both logs to the disk. Call it before a checkpoint is saved that refers to them.
bool logger_sync(Logger* l, Error* err);

// Logs why the run ends after `step` updates, as the last record of this start: `reason` ("finished", "stopped",
// "spike", "non-finite" or "error") and `words`, which may be "". Failed writes are left to logger_close(): an error of
// the logs may itself be the reason.
void logger_end(Logger* l, int step, const char* reason, const char* words);

// Logs the result of a test set, "HellaSwag" for instance: `correct` of `total` answers, counted by these rules.
void logger_eval(Logger* l, int step, const char* name, const char* rules, int correct, int total);

// Prints the mean time of an update, if more than the first was made and logger_end() has not done so, and closes the
// logs. Fails if a log could not be written, or was removed meanwhile.
bool logger_close(Logger* l, Error* err);
