// Saving a run. Rank 0 writes checkpoints, in a thread of its own while training goes on, if host memory has room for a
// copy (files/saver.h). A save that fails is tried again after the next step; after three retries the run ends. Without
// a copy and with ZeRO it ends at once: the other ranks may still be handing over their shards.
#pragma once
#include "../files/saver.h"
#include "../log/logger.h"
#include "start.h"

typedef struct {
    const Plan* plan;
    json_t* options;            // of the run
    Logger* log;
    const Tokenizer* tokenizer; // NULL: there is none
    int rank;
    TokenizerFiles tokenizer_files; // for the checkpoints, from the first save on
    bool has_made_files;            // or tried to
    Saver saver;
    int failed_saves;     // in a row
    long long saved_step; // of the last save; -1: there was none
    Validated last;       // validation
    Validated best;       // checkpoint that is there
    Validated begun_best; // `best` once the save that goes on has ended
} Saving;

// Prepares the saves of a run. One that has no checkpoint in --out records its options, so that it can be resumed
// before its first one. Another removes the checkpoints that --keep does not keep: a kill may have come between a save
// and that.
void saving_open(Saving* s, const Start* start, const TrainState* state, const Tokenizer* tokenizer, Logger* log,
                 int rank);
void saving_close(Saving* s);

// Returns true if a checkpoint of this step is to be made: by --save_every, at the end, or because it was asked for.
bool saving_is_due(const Saving* s, long long step, long long last_step, bool is_asked);

// Takes a validation. The checkpoint of this step is there already if a stop had left its validation.
void saving_take_validation(Saving* s, Validated validated);

// Begins a checkpoint of this state, after waiting for the one before; its best checkpoint is found here. Returns true
// if a checkpoint has ended meanwhile.
bool saving_begin(Saving* s, const Optimizer* o, TrainState state);

// Logs the save that has ended since the last call, if one has, and returns true if it is a checkpoint.
bool saving_look(Saving* s);

// At the end of a run: waits for the save that goes on, and repeats it, after pauses, if the last one failed.
void saving_finish(Saving* s);
