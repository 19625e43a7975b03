// Requests to a run from outside, by signals and --max_time, while it goes on.
//
//   SIGINT, SIGTERM, SIGHUP, SIGUSR2, --max_time    stop: save what is not saved yet (export: remove what is not
//                                          complete), and end. The same signal again, a second later or more, ends
//                                          the program at once; the checkpoints on disk stay whole
//   SIGUSR1                                save after the current step, and go on
//   SIGINT, in `generate` that asks for prompts  end the text that is being generated
//
// SIGUSR2 is for mpirun: of the signals that stop, it alone is passed on without killing the processes soon after. A
// process that was started to ignore SIGHUP (nohup) ignores it. SIGPIPE is ignored: a reader of standard output that
// has gone, as `tee` after a Ctrl-C, is an error of the write, which ends no run (logger.h).
#pragma once
#include "../base/base.h"

// Takes SIGUSR1 and SIGPIPE from now on.
void requests_open(void);

// Takes the signals that stop from now on, too; before, they end the program. `max_hours`: --max_time, counted from
// requests_open() on; 0: no limit. `words` say what the program does then.
void requests_take_stops(double max_hours, const char* words);

// Returns what asked this process to stop: "SIGTERM" for instance; NULL: nothing did.
const char* request_to_stop(void);

// Returns true if SIGUSR1 came since the last call.
bool request_to_save(void);

// Between these two SIGINT does not end the program.
void requests_take_interrupts(void);
void requests_end_interrupts(void);

// Returns true if SIGINT came since requests_take_interrupts().
bool request_to_interrupt(void);
