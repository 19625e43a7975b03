// The folders of checkpoints in --out: listing, removing the oldest, setting aside.
//
//   step_%08d                        a complete checkpoint
//   .tmp-*                           one that is being written or removed; the next run deletes it
//   damaged-step_%08d, ..., -2       one that was proven damaged when a run was resumed; never deleted
//   rewound-step_%08d, ..., -2       one trained on windows that the run then left out; never deleted
//   replaced-step_%08d, ..., -2      one that stood in the way of a save, put there by another program; never deleted
//
// A program that reads a checkpoint of a run that goes on locks its folder (flock, shared); the run leaves a locked one
// in place and removes it after a later save.
#pragma once
#include "../base/base.h"

// Returns the step in the name of a checkpoint's folder; -1 if it is not of the form step_%08d.
long long checkpoint_step(const char* name);

// Returns the steps of all checkpoints in `out`, newest first, and sets `count`; none if the folder does not exist, or
// `out` is empty. The caller frees them. Ends the program if one cannot be looked at: if it were taken for absent, the
// run would go on from an older one, or the next save could delete newer ones.
long long* checkpoint_list(const char* out, size_t* count);

// Fails, naming its newest checkpoint, if `folder` is that of a run.
bool check_no_run(const char* folder, Error* err);

// Returns the path of the checkpoint of a step; the caller frees it.
char* checkpoint_path(const char* out, long long step);

// Removes what an interrupted save has left at `path`.
void checkpoint_remove_unfinished(const char* path);

// Removes unfinished checkpoints of an interrupted run. Only the run that has locked `out` may call it.
void checkpoint_clean(const char* out);

// Removes a checkpoint, after renaming it, so that its name never has an incomplete one. Leaves one that is being read.
// Warns on failure.
void checkpoint_remove(const char* path);

// Renames a checkpoint to WHY-NAME, or WHY-NAME-2 and so on, in its folder. Ends the program if that fails.
void checkpoint_set_aside(const char* path, const char* why);

// The checkpoints that a run keeps: those that match any line.
typedef struct {
    long long newest; // this many; 0: all
    long long every;  // those whose step is a multiple of this; 0: none
    bool best;        // the one with the lowest validation loss
    long long best_step; // its step; 0: none yet
} KeepRule;

// Reads the text of --keep, "N[,best][,every:M]"; best_step is 0. Fails if the text is another.
bool keep_parse(KeepRule* keep, const char* text, Error* err);

// Removes the checkpoints up to `step` that the rule does not keep. Newer ones stay. Warns, and removes none, if they
// cannot be listed.
void checkpoint_rotate(const char* out, long long step, const KeepRule* keep);

// Keeps a checkpoint from being removed by its run until the returned descriptor is closed, or the program ends.
// Returns -1 if it was removed before.
int checkpoint_hold(const char* path);
