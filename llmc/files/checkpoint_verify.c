#include "../base/file.h"
#include "checkpoint.h"
#include "huggingface.h"
#include "safetensors.h"
#include "sums.h"

bool checkpoint_verify_file(const char* folder, const char* file, const json_t* state, Error* err) {
    return sum_verify(folder, file, json_string_value(json_object_get(json_object_get(state, "sums"), file)), err);
}

// Verifies the files that every checkpoint has, and all others that have a checksum: those of the tokenizer.
static bool verify_files(const char* folder, json_t* state, Error* err) {
    json_t* sums = json_object_get(state, "sums");
    const char* name;
    json_t* hex;
    bool ok = true;
    for (int i = 0; ok && i < NUM_CHECKPOINT_FILES; i++) {
        ok = json_object_get(sums, CHECKPOINT_FILES[i]) ||
             fail(err, "%s/%s: it has no checksum", folder, CHECKPOINT_FILES[i]);
    }
    json_object_foreach(sums, name, hex) { ok = ok && sum_verify(folder, name, json_string_value(hex), err); }
    return ok;
}

// Fails if a folder has the name of another step's checkpoint: it would count as the newest for ever.
static bool verify_name(const char* folder, const json_t* state, Error* err) {
    const long long step = json_integer_value(json_object_get(state, "step")),
                    named = checkpoint_step(path_name(folder));
    return named < 0 || named == step ||
           fail(err, "%s/state.json: of step %lld, so the folder was renamed: name it step_%08lld", folder, step, step);
}

json_t* checkpoint_verify(const char* folder, Error* err) {
    GPT2Config ignored;
    json_t* state = checkpoint_read_state(folder, err);
    if (state && verify_name(folder, state, err) && verify_files(folder, state, err) &&
        hf_load_config(folder, false, &ignored, err)) {
        return state;
    }
    json_decref(state);
    return NULL;
}

// Verifies a checkpoint, as checkpoint_newest() does. Returns NULL, after a warning, if it is damaged, or if it was
// removed by its run.
static json_t* open_newest(const char* path, CheckpointUse use, bool* was_removed) {
    Error err;
    const int lock = use == CHECKPOINT_READ ? checkpoint_hold(path) : -1;
    *was_removed = use == CHECKPOINT_READ && lock < 0;
    if (*was_removed) { return NULL; }
    json_t* state = checkpoint_verify(path, &err);
    if (state) { return state; } // the lock ends with the program
    if (lock >= 0) { close(lock); }
    if (err.is_unknown) { fatal("%s; nothing was changed", err.text); }
    notice("warning: %s; trying the checkpoint before it", err.text);
    return NULL;
}

char* checkpoint_newest(const char* out, json_t** state, CheckpointUse use) {
    size_t count = 0;
    char* found = NULL;
    bool was_removed = true;
    for (int tries = 0; was_removed; tries++) { // a checkpoint was removed while it was opened: there are newer ones
        if (tries == 100) { fatal("%s: its checkpoints are removed faster than they can be read", out); }
        long long* steps = checkpoint_list(out, &count);
        was_removed = false;
        for (size_t i = 0; i < count && !found && !was_removed; i++) {
            char* path = checkpoint_path(out, steps[i]);
            *state = open_newest(path, use, &was_removed);
            for (size_t j = 0; *state && use == CHECKPOINT_CONTINUE && j < i; j++) {
                char* damaged = checkpoint_path(out, steps[j]);
                checkpoint_set_aside(damaged, "damaged");
                free(damaged);
            }
            if (*state) { found = path; }
            else { free(path); }
        }
        free(steps);
    }
    if (count && !found) { fatal("%s: none of its %zu checkpoints can be read; see the warnings above", out, count); }
    return found;
}

// Fails if a tensor in a file of floats has a number that is not finite: tensors_load() would refuse it.
static bool tensors_are_finite(const char* folder, const char* file, Error* err) {
    SafeTensors s;
    char* path = format("%s/%s", folder, file);
    const bool is_open = safetensors_open(&s, path, err);
    bool ok = is_open;
    for (int i = 0; ok && i < s.count; i++) { ok = safetensor_is_finite(&s, &s.tensors[i], err); }
    if (is_open) { safetensors_close(&s); }
    free(path);
    return ok;
}

long long checkpoint_before(const char* out, long long step, uint64_t* window) {
    Error err;
    size_t count;
    long long found = -1, *steps = checkpoint_list(out, &count);
    for (size_t i = 0; i < count && found < 0; i++) {
        if (steps[i] >= step) { continue; }
        char* path = checkpoint_path(out, steps[i]);
        json_t* state = checkpoint_verify(path, &err);
        if (state && tensors_are_finite(path, CHECKPOINT_FILES[0], &err) &&
            tensors_are_finite(path, CHECKPOINT_FILES[1], &err)) {
            found = steps[i];
            *window = (uint64_t)json_integer_value(json_object_get(state, "window"));
        } else {
            notice("warning: %s", err.text);
        }
        json_decref(state);
        free(path);
    }
    free(steps);
    return found;
}
