// The commands beside train, check and bench, each in a file of its own. Each returns the exit code. Those that take a
// Config to change add the data options of the checkpoint that they read.
#pragma once
#include "../comm/comm.h"
#include "../options/config.h"
#include "../model/backend.h"

// Continues prompts by the weights of --init, or of the newest checkpoint in --out (generate_command.c).
int generate_command(Config* c, const Backend* b, enum dtype dtype);

// Prints the validation loss of the same weights, or their scores on the test sets of --eval_data; each rank reads its
// share of the windows or rows.
int eval_command(Config* c, const Backend* b, enum dtype dtype, Comm* comm);

// Prints a model's tensors and memory, or reads whole token files. Needs no device.
int info_command(Config* c, const Backend* b, enum dtype dtype);

// Writes report.html about the runs in the given folders.
int report_command(const Config* c);

// Writes an HTML page about what happens inside a model that reads a text (inspect_command.c).
int inspect_command(Config* c, const Backend* b);

// Returns the path of a page, which the caller frees: --out if that ends in .html, else NAME in the folder --out, which
// is made.
char* page_path(const Config* c, const char* name);

// `forecast RUN...`: fits a law of loss to finished runs, checks it on held-out ones, forecasts and draws (forecast.c).
int forecast_command(const Config* c);

// Turns standard input into token ids, or back with --decode.
int tokenize_command(const Config* c);

// Writes the weights of --init as files of other programs (export.c).
int export_command(const Config* c);

// `info PATH...`: for a run's folder, prints model, options that are not defaults, steps, tokens, time and what
// restarts have lost of it, skipped updates, losses, checkpoints with the result of verifying them, and how the run
// ended; describes any other folder or file. Returns EXIT_CHECK_FAILED if a checkpoint or a file is damaged; ends the
// program if there is none, or the folder is of no kind that is known (run_info.c).
int run_info_command(const Config* c);

// --version: prints version, commit, compiler, backends and libraries of this build, for bug reports (version.c).
void print_version(void);
