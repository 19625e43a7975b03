// One command that starts several ranks on this machine (--gpus N).
#pragma once
#include "launch.h"

// Starts this program `ranks` times, with the same arguments and torchrun's variables for a run on this machine, waits
// for all to end, and returns the exit code: 0, or that of the first rank which failed (128 + the signal if one ended
// it). Standard output and error are the ranks' own; standard input is rank 0's. SIGINT, SIGTERM and SIGHUP are passed
// on to the ranks. When a rank fails, the others have `grace_seconds` to end by themselves before they get SIGTERM, and
// as long again before SIGKILL. Should this process be killed, the kernel kills the ranks. To be called before threads
// are started; a process started so finds itself launched (launch_detect), which tells it not to start others.
static inline int launch_local(int ranks, char** argv, double grace_seconds);
