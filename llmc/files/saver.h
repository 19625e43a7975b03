// Writes a checkpoint in a thread of its own, from a snapshot in host memory, while training goes on. One at a time.
//
//   Snapshot snapshot = snapshot_take(..., saver_blocks(&saver, optimizer));
//   saver_begin(&saver, out, &snapshot);
//   saver_poll(&saver, waits, &path, &err);     after each step: has it ended, and how?
#pragma once
#include "checkpoint.h"
#include <pthread.h>
#include <stdatomic.h>

// Zero it before the first use.
typedef struct {
    bool is_busy; // a save was begun whose end saver_poll() has not reported
    bool has_thread;
    pthread_t thread;
    atomic_bool is_done;
    const char* out;
    Snapshot snapshot;
    float* blocks; // host memory for the snapshot
    char* path;    // result
    Error err;     // result if there is no path
} Saver;

typedef enum { SAVER_GOES_ON, SAVER_SAVED, SAVER_FAILED } SaverState; // GOES_ON: or nothing is being saved

// Returns memory for a snapshot's blocks; NULL if less than twice as much is free, since the rest of the program, and
// of the machine, needs some.
float* saver_blocks(Saver* s, const Optimizer* o);

// Begins to write a snapshot, which belongs to the saver from then on, or its own snapshot again, to `out`, which must
// outlive the save. If it has no blocks, it is written before this returns.
void saver_begin(Saver* s, const char* out, const Snapshot* snapshot);

// Reports a save that has ended, once: its path, which the caller frees, or the reason of its failure. If `waits`,
// waits for one that goes on.
SaverState saver_poll(Saver* s, bool waits, char** path, Error* err);

// Waits for a save that goes on, and frees the memory.
void saver_close(Saver* s);
