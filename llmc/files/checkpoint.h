// Writes, verifies and loads checkpoints: folders step_%08d in --out, each a Hugging Face model with what training
// needs to continue beside it.
//
//   model.safetensors, config.json, generation_config.json    see huggingface.h
//   optimizer.safetensors                                     both moments, m.* and v.*, in our layout
//   state.json                                                TrainState and the run's options
//   vocab.json, merges.txt, tokenizer.json, ...             the tokenizer, if there is one (tokenizer/tokenizer_save.h)
//   checkpoint.b2sums                                         checksums of the files above (sums.h)
//
// A checkpoint is written under another name (.tmp-*), synced, read back and renamed, so that a folder under its own
// name is complete. It is verified before it is used. A damaged one is passed over for an older one; one that cannot be
// read at this moment ends the program. Beside the checkpoints, options.json holds the options of a run from its start
// on, so that a run killed before its first checkpoint resumes as the same run.
#pragma once
#include "../base/base.h"
#include "../model/loss_scale.h"
#include "../model/optimizer.h"
#include "../tokenizer/tokenizer_save.h"
#include "../base/outlier.h"
#include "checkpoint_folders.h"
#include <jansson.h>

enum { CHECKPOINT_FORMAT = 2, NUM_CHECKPOINT_FILES = 5 };

extern const char CHECKPOINT_SUMS[]; // the file of checksums
extern const char* const CHECKPOINT_FILES[NUM_CHECKPOINT_FILES]; // that each has; those with tensors first

// Phases after a step, by the kind of their records in metrics.jsonl.
typedef struct {
    bool val, eval, sample;
} Phases;

// A checkpoint's validation loss; step 0: there is none.
typedef struct {
    long long step;
    double loss;
    uint64_t data; // hash of what it was validated on; 0: unknown
} Validated;

// The numerics of a run: its loss scale, and what it remembers of the last steps (train/numerics.h).
typedef struct {
    LossScale loss_scale;
    OutlierDetector loss_window, norm_window;
    long long bad_steps;       // the last steps in a row whose loss or norm was a spike, or not finite
    long long nonfinite_steps; // the last ones in a row whose loss or norm was not finite
} Numerics;

// State of a run, besides parameters and moments.
typedef struct {
    long long step;     // steps done
    long long updates;  // of these, not skipped
    long long tokens;   // trained on
    uint64_t window;    // the next window of the data (dataloader.h), which gives epoch and position
    uint64_t data_hash; // of the training data
    uint64_t tokenizer_hash; // 0: there is none
    Validated best;     // the checkpoint with the lowest validation loss; on rank 0
    Numerics numerics;
    Phases pending;     // phases of this step that a stop has left
} TrainState;

// ---------------------------------------------------------------------------------------------------------------------
// state.json and options.json

// Restores a window of losses or norms from a JSON array of at most OUTLIER_WINDOW numbers: the detector continues bit
// for bit as the one that they came from. Fails for anything else.
bool outliers_from_json(OutlierDetector* d, const json_t* array, Error* err);

// Reads a checkpoint's state.json, a new reference; verifies its checksum and that it has every field that a run needs,
// with a possible value. "sums" of what it returns are the checksums of the files, by name, from checkpoint.b2sums.
// Returns NULL if one is missing or damaged.
json_t* checkpoint_read_state(const char* folder, Error* err);

// Returns the text at object.key in state.json of the newest checkpoint that the run will resume from (`resume`:
// "auto", a path, or empty), or in options.json if there is no checkpoint yet; NULL if there is none. The caller frees
// it. No checksum is verified.
char* checkpoint_saved_text(const char* out, const char* resume, const char* object, const char* key);

// Returns the kernels that the run had on such a device: a GPU's Backend.device_kernels, or the level of a CPU; NULL if
// it had none.
const char* state_kernels(const json_t* state, const Backend* b);

// Returns the choices of matmul algorithms (Backend.matmuls_save) that the run had on such a device; NULL if it had
// none. free() them.
char* state_matmuls(const json_t* state, const Backend* b);

// Returns the state of a run that such an object holds, but for the loss scale, which restore.c decides on, and the
// hash of the tokenizer, which the run has. NULL: that of a run that begins.
TrainState train_state_from_json(const json_t* state);

// Writes, or reads, the options of a run in `out`. run_read_options() returns NULL if there is no such file, and ends
// the program if it is damaged.
bool run_write_options(const char* out, json_t* options, Error* err);
json_t* run_read_options(const char* out);

// ---------------------------------------------------------------------------------------------------------------------
// verifying

// Verifies one of a checkpoint's files, whose state is `state`. Fails if the file is damaged or missing.
bool checkpoint_verify_file(const char* folder, const char* file, const json_t* state, Error* err);

// Verifies all files of a checkpoint. Returns its state.json, a new reference; NULL if one is missing or damaged, or if
// it could not be read (err->is_unknown).
json_t* checkpoint_verify(const char* folder, Error* err);

// READ: of a run that may go on meanwhile. The checkpoint is not removed before this program ends (checkpoint_hold).
// CONTINUE: by the run itself, which has locked `out`. Newer checkpoints, which are damaged, are set aside.
typedef enum { CHECKPOINT_READ, CHECKPOINT_CONTINUE } CheckpointUse;

// Returns the path of the newest undamaged checkpoint in `out`, which the caller frees, and sets `state` to its
// state.json, a new reference; NULL if there is no checkpoint. Warns of damaged ones, and ends the program if there are
// only those, or if one cannot be read.
char* checkpoint_newest(const char* out, json_t** state, CheckpointUse use);

// Returns the newest step before `step` that has an undamaged checkpoint of finite numbers, and sets *window to the
// next window of its data; -1 if there is none. Warns of newer ones that are damaged or cannot be read.
long long checkpoint_before(const char* out, long long step, uint64_t* window);

// ---------------------------------------------------------------------------------------------------------------------
// saving and loading

// All that a checkpoint holds, at one moment.
typedef struct {
    const Optimizer* optimizer; // for its layout and, if `blocks` is NULL, for its masters and moments
    const float* blocks;        // masters, first and second moments in host memory, one behind another; or NULL
    json_t* state;              // state.json
    long long step;
    // set by the caller
    int eot;                         // the tokenizer's end-of-text id; NO_TOKEN: none
    const TokenizerFiles* tokenizer; // NULL: none; must live until snapshot_free()
    KeepRule keep;                   // which checkpoints stay; all, if it is zero
} Snapshot;

// Returns the bytes of Snapshot.blocks.
size_t snapshot_bytes(const Optimizer* o);

// Takes a snapshot. With `blocks`, memory of snapshot_bytes() that must live until snapshot_free(), training may go on.
// Without (NULL), training must wait until the snapshot is written. Takes over the reference `options`, to the run's
// options; nccl_algorithms may be NULL. With ZeRO, the other ranks call checkpoint_hand_over() at the same time, and
// until the snapshot is written if there are no `blocks`.
Snapshot snapshot_take(const Optimizer* o, const TrainState* s, json_t* options, const char* nccl_algorithms,
                       float* blocks);
void snapshot_free(Snapshot* snapshot);

// Writes a checkpoint to `out`, reads it back, and then removes those that the snapshot's rule does not keep. Returns
// its path, which the caller frees; NULL on failure, with the older checkpoints untouched. With `blocks` any thread may
// call it.
char* checkpoint_write(const char* out, const Snapshot* snapshot, Error* err);

// Sends this rank's shards to rank 0, which takes a snapshot or writes one. If each rank wrote its own, a save would
// pause training for less: 1558M on 8 GPUs for 0.4 s instead of 3 (19 GB to host memory at 6 GB/s, estimated), once in
// thousands of steps. But each rank would need the disk, and a checkpoint could be incomplete in as many places.
void checkpoint_hand_over(const Optimizer* o);

// Loads parameters and moments of a verified checkpoint. o->rounding.step must be set to the updates that it counts:
// parameters are rounded as they were then.
bool checkpoint_load(Optimizer* o, const char* folder, Error* err);
