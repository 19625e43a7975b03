#include "checkpoint.h"
#include "huggingface.h"
#include "safetensors.h"
#include "sums.h"

// Verifies every tensor of a safetensors file against the checksums in `state`.
static bool verify_tensors(const char* folder, const char* file, json_t* state, Error* err) {
    char* path = format("%s/%s", folder, file);
    json_t* checksums = json_object_get(json_object_get(state, "checksums"), file);
    SafeTensors s;
    bool ok = safetensors_open(&s, path, err);
    free(path);
    if (!ok) { return false; }
    if ((size_t)s.count != json_object_size(checksums)) { ok = fail(err, "%s/%s: tensors are missing", folder, file); }
    for (int i = 0; ok && i < s.count; i++) {
        const SafeTensor* t = &s.tensors[i];
        const char* hex = json_string_value(json_object_get(checksums, t->name));
        void* bytes = alloc_or_die(t->bytes, 1, "a tensor");
        ok = safetensors_read(&s, t, 0, bytes, t->bytes, err);
        if (ok && (!hex || strtoull(hex, NULL, 16) != hash64(bytes, t->bytes, 0))) {
            ok = fail(err, "%s/%s: tensor %s is damaged (its checksum is wrong)", folder, file, t->name);
        }
        free(bytes);
    }
    safetensors_close(&s);
    return ok;
}

static bool verify_by_sums(const Sums* sums, const char* folder, const char* file, json_t* state, Error* err) {
    Error which;
    if (sums_verify(sums, folder, file, err)) { return true; }
    const bool has_tensors = json_object_get(json_object_get(state, "checksums"), file) != NULL;
    if (!err->is_unknown && has_tensors && !verify_tensors(folder, file, state, &which)) { *err = which; }
    return false;
}

// Verifies a file of a checkpoint without checkpoint.b2sums, as versions up to 2.0 wrote them: "files" in state.json
// has the hash64 of the two small files, or of none.
static bool verify_by_state(const char* folder, const char* file, json_t* state, Error* err) {
    size_t size;
    json_t* hashes = json_object_get(state, "files");
    if (strstr(file, ".safetensors")) { return verify_tensors(folder, file, state, err); }
    if (!strcmp(file, "state.json") || !hashes) { return true; }
    char *path = format("%s/%s", folder, file), *text = read_file(path, &size, err);
    const char* hex = json_string_value(json_object_get(hashes, file));
    bool ok = text != NULL;
    if (ok && (!hex || strtoull(hex, NULL, 16) != hash64(text, size, 0))) {
        ok = fail(err, "%s: damaged or edited (its checksum is wrong)", path);
    }
    free(text);
    free(path);
    return ok;
}

// Reads the checksums of a checkpoint; leaves `sums` empty if it was written without.
static bool load_sums(Sums* sums, const char* folder, const json_t* state, Error* err) {
    memset(sums, 0, sizeof *sums);
    if (!json_object_get(state, "sums")) { return true; }
    char* path = format("%s/%s", folder, CHECKPOINT_SUMS);
    const bool ok = sums_load(sums, path, err);
    free(path);
    return ok;
}

static bool verify_files(const char* folder, const char* const* files, int count, json_t* state, Error* err) {
    Sums sums;
    bool ok = load_sums(&sums, folder, state, err);
    const bool has_sums = json_object_get(state, "sums") != NULL;
    for (int i = 0; ok && i < count; i++) {
        ok = has_sums ? verify_by_sums(&sums, folder, files[i], state, err)
                      : verify_by_state(folder, files[i], state, err);
    }
    sums_free(&sums);
    return ok;
}

// Verifies the files that not every checkpoint has: those of the tokenizer.
static bool verify_others(const char* folder, const json_t* state, Error* err) {
    Sums sums;
    bool ok = load_sums(&sums, folder, state, err);
    for (size_t i = 0; ok && i < sums.count; i++) {
        bool is_checked = false;
        for (int k = 0; k < NUM_CHECKPOINT_FILES; k++) {
            is_checked = is_checked || !strcmp(sums.list[i].name, CHECKPOINT_FILES[k]);
        }
        ok = is_checked || sums_verify(&sums, folder, sums.list[i].name, err);
    }
    sums_free(&sums);
    return ok;
}

bool checkpoint_verify_file(const char* folder, const char* file, json_t* state, Error* err) {
    return verify_files(folder, &file, 1, state, err);
}

// Returns true, and says it in `err`, if state.json is not the one of which checkpoint.b2sums has the checksum: then a
// format that this program does not know is not that of another version.
static bool state_was_changed(const char* folder, Error* err) {
    Sums sums;
    Error which;
    char* path = format("%s/%s", folder, CHECKPOINT_SUMS);
    bool was_changed = false;
    if (sums_load(&sums, path, &which) && sums_find(&sums, "state.json")) {
        was_changed = !sums_verify(&sums, folder, "state.json", &which) && !which.is_unknown;
    }
    if (was_changed) { *err = which; }
    sums_free(&sums);
    free(path);
    return was_changed;
}

// Fails if a folder has the name of another step's checkpoint: it would count as the newest for ever.
static bool verify_name(const char* folder, const json_t* state, Error* err) {
    const char* slash = strrchr(folder, '/');
    const long long step = json_integer_value(json_object_get(state, "step")),
                    named = checkpoint_step(slash ? slash + 1 : folder);
    return named < 0 || named == step ||
           fail(err, "%s/state.json: of step %lld, so the folder was renamed: name it step_%08lld", folder, step, step);
}

json_t* checkpoint_verify(const char* folder, Error* err) {
    GPT2Config ignored;
    json_t* state = checkpoint_read_state(folder, err);
    if (!state) {
        if (err->is_unknown) { state_was_changed(folder, err); }
        return NULL;
    }
    if (verify_name(folder, state, err) &&
        verify_files(folder, CHECKPOINT_FILES, NUM_CHECKPOINT_FILES, state, err) && verify_others(folder, state, err) &&
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
    for (int i = 0; ok && i < s.count; i++) {
        const SafeTensor* t = &s.tensors[i];
        const size_t n = t->bytes / sizeof(float);
        float* x = alloc_or_die(n, sizeof *x, "a tensor");
        ok = safetensors_read_float(&s, t, 0, x, n, err);
        for (size_t k = 0; ok && k < n; k++) {
            if (!isfinite(x[k])) { ok = fail(err, "%s: tensor %s: element %zu is not finite", path, t->name, k); }
        }
        free(x);
    }
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
