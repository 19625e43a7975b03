// Writes, verifies and loads checkpoints: folders step_%08d in --out, each a Hugging Face model with what training
// needs to continue beside it.
//
//   model.safetensors, config.json, generation_config.json    see huggingface.h
//   optimizer.safetensors                                     both moments, m.* and v.*, in our layout
//   state.json                                                TrainState, the run's options, checksums
//
// A checkpoint is written under another name (.tmp-*), synced and renamed, so that a folder under its own name is
// complete. It is verified before it is used; a damaged one is passed over for an older one. Beside the checkpoints,
// options.json holds the options of a run from its start on, so that a run killed before its first checkpoint resumes
// as the same run.
#pragma once
#include "../base.h"
#include "../optimizer.h"
#include "../plan.h"
#include "../log/outlier.h"
#include <jansson.h>

enum { CHECKPOINT_FORMAT = 1 };

// State of a run, besides parameters and moments.
typedef struct {
    long long step;     // completed updates
    long long tokens;   // trained on
    uint64_t window;    // the next window of the data (dataloader.h), which gives epoch and position
    uint64_t data_hash; // of the training data
    OutlierDetector loss_window, norm_window;
} TrainState;

// ---------------------------------------------------------------------------------------------------------------------
// folders

// Removes a checkpoint, after renaming it, so that its name never has an incomplete one. Warns on failure.
void checkpoint_remove(const char* path);

// Returns the steps of all checkpoints in `out`, newest first, and sets `count`; none if the folder does not exist. The
// caller frees them. Ends the program if the folder cannot be listed: if it were taken for empty, the next save could
// delete newer checkpoints.
long long* checkpoint_list(const char* out, size_t* count);

// Removes unfinished checkpoints of an interrupted run. Only the run that has locked `out` may call it.
void checkpoint_clean(const char* out);

// ---------------------------------------------------------------------------------------------------------------------
// state.json and options.json

// Reads a window of losses or norms from a JSON array of at most OUTLIER_WINDOW numbers. Fails for anything else, and
// as outlier_import() does.
bool outliers_from_json(OutlierDetector* d, const json_t* array, Error* err);

// Returns a string of 16 hexadecimal digits, a new reference.
json_t* json_hex(uint64_t x);

// Reads a checkpoint's state.json and verifies its checksum; a new reference. Returns NULL if it is missing or damaged.
json_t* checkpoint_read_state(const char* folder, Error* err);

// Returns the text at object.key in state.json of the newest checkpoint that the run will resume from (`resume`:
// "auto", a path, or empty); NULL if there is none. The caller frees it. Nothing is verified.
char* checkpoint_saved_text(const char* out, const char* resume, const char* object, const char* key);

// Returns the kernels (Backend.device_kernels) that the run had on such a device; NULL if it had none.
const char* state_kernels(const json_t* state, const Backend* b);

// Returns the choices of matmul algorithms (Backend.matmuls_save) that the run had on such a device; NULL if it had
// none. free() them.
char* state_matmuls(const json_t* state, const Backend* b);

// Writes, or reads, the options of a run in `out`. run_read_options() returns NULL if there is no such file, and ends
// the program if it is damaged.
bool run_write_options(const char* out, json_t* options, Error* err);
json_t* run_read_options(const char* out);

// ---------------------------------------------------------------------------------------------------------------------
// verifying

// Verifies every tensor of a safetensors file against the checksums in `state`. Fails if one differs or is missing.
bool checkpoint_verify_file(const char* folder, const char* file, json_t* state, Error* err);

// Verifies all files of a checkpoint. Returns its state.json, a new reference; NULL if one is missing or damaged.
json_t* checkpoint_verify(const char* folder, Error* err);

// Returns the path of the newest undamaged checkpoint in `out`, which the caller frees, and sets `state` to its
// state.json, a new reference; NULL if there is no checkpoint. Warns of damaged ones, and ends the program if there are
// only those.
char* checkpoint_newest(const char* out, json_t** state);

// ---------------------------------------------------------------------------------------------------------------------
// saving and loading

// Writes `state` to FOLDER/state.json with the checksum of its text, in place of its "checksum", which is json_hex(0).
bool state_save(const char* folder, json_t* state, Error* err);

// Writes a checkpoint to `out` and then removes all but the newest `keep` (0: none). `eot`: the tokenizer's end-of-text
// id, or -1. Returns its path, which the caller frees; NULL on failure, with the older checkpoints untouched. With
// ZeRO, the other ranks call checkpoint_hand_over() at the same time.
char* checkpoint_save(const char* out, const Optimizer* o, const TrainState* s, const Plan* p, const Config* c, int eot,
                      Error* err);

// Sends this rank's shards to rank 0, which saves a checkpoint.
void checkpoint_hand_over(const Optimizer* o);

// Loads parameters, moments and state of a verified checkpoint.
bool checkpoint_load(Optimizer* o, TrainState* s, const char* folder, json_t* state, Error* err);
