// Checkpoints: folders step_%08d in --out, each a Hugging Face model with what training needs to go on beside it.
//
//   model.safetensors, config.json, generation_config.json    see huggingface.h
//   optimizer.safetensors                                     both moments, m.* and v.*, in our layout
//   state.json                                                where the run stands, its options, checksums of tensors
//
// A checkpoint is written under another name (.tmp-*), synced and renamed, so that one under its own name is whole. It
// is verified before it is used; if it is damaged the one before is taken.
#pragma once
#include "huggingface.h"
#include "logger.h"
#include <dirent.h>
#include <ftw.h>
#include <sys/statvfs.h>

enum { CHECKPOINT_FORMAT = 1 };

// Where a run stands, beside the parameters and moments.
typedef struct {
    long long step;       // updates made
    long long tokens;     // seen
    uint64_t window;      // the next window of the data (dataloader.h): it stands for epoch and position
    uint64_t data_hash;   // of the training data
    OutlierDetector loss_window, norm_window;
} TrainState;

// ---------------------------------------------------------------------------------------------------------------------
// folders

static inline int remove_entry(const char* path, const struct stat* s, int type, struct FTW* at) {
    (void)s, (void)type, (void)at;
    return remove(path);
}

// Removes a checkpoint in a way that never leaves half of one under its name.
static inline void checkpoint_remove(const char* path) {
    char* folder = format("%s", path);
    char* slash = strrchr(folder, '/');
    *slash = 0;
    char* doomed = format("%s/.tmp-removed-%s", folder, slash + 1);
    if (rename(path, doomed) != 0 || nftw(doomed, remove_entry, 8, FTW_DEPTH | FTW_PHYS) != 0) {
        notice("warning: %s: cannot remove the old checkpoint: %s", path, strerror(errno));
    }
    free(doomed);
    free(folder);
}

// The step of a folder's name; -1 if it is not a checkpoint's.
static inline long long checkpoint_step(const char* name) {
    char same[32];
    long long step = -1;
    if (sscanf(name, "step_%lld", &step) != 1 || step < 0) { return -1; }
    snprintf(same, sizeof same, "step_%08lld", step);
    return strcmp(same, name) ? -1 : step; // no other spelling of the number
}

static inline int compare_steps(const void* a, const void* b) {
    const long long x = *(const long long*)a, y = *(const long long*)b;
    return (x < y) - (x > y);
}

// The steps of all checkpoints in `out`, newest first, in fresh memory.
static inline long long* checkpoint_list(const char* out, size_t* count) {
    long long* steps = NULL;
    *count = 0;
    DIR* d = opendir(out);
    for (struct dirent* e; d && (e = readdir(d));) {
        const long long step = checkpoint_step(e->d_name);
        if (step < 0) { continue; }
        steps = (long long*)realloc_or_die(steps, (*count + 1) * sizeof *steps, "the list of checkpoints");
        steps[(*count)++] = step;
    }
    if (d) { closedir(d); }
    if (*count) { qsort(steps, *count, sizeof *steps, compare_steps); }
    return steps;
}

// Removes what an interrupted run left half-written. Only the run that has locked `out` may call it.
static inline void checkpoint_clean(const char* out) {
    DIR* d = opendir(out);
    for (struct dirent* e; d && (e = readdir(d));) {
        if (strncmp(e->d_name, ".tmp-", 5)) { continue; }
        char* path = format("%s/%s", out, e->d_name);
        nftw(path, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
        free(path);
    }
    if (d) { closedir(d); }
}

// ---------------------------------------------------------------------------------------------------------------------
// state.json

static inline json_t* outliers_to_json(const OutlierDetector* d) {
    json_t* array = json_array();
    for (size_t i = 0; i < d->count; i++) { json_array_append_new(array, json_real(d->values[i])); }
    return array;
}

static inline bool outliers_from_json(OutlierDetector* d, const json_t* array, Error* err) {
    double values[OUTLIER_WINDOW];
    const size_t n = min_size(json_array_size(array), OUTLIER_WINDOW);
    for (size_t i = 0; i < n; i++) { values[i] = json_number_value(json_array_get(array, i)); }
    return outlier_import(d, values, n, err);
}

static inline json_t* json_hex(uint64_t x) {
    char hex[17];
    snprintf(hex, sizeof hex, "%016llx", (unsigned long long)x);
    return json_string(hex);
}

// The checksum in the text of state.json: 16 hexadecimal digits, NULL if there is none. It is the hash of the text with
// zeros in their place.
static inline char* state_checksum_digits(char* text) {
    static const char key[] = "\"checksum\": \"";
    char* at = strstr(text, key);
    return at && strlen(at) > strlen(key) + 16 ? at + strlen(key) : NULL;
}

static inline bool state_checksum_is_right(char* text) {
    char* digits = state_checksum_digits(text);
    if (!digits) { return false; }
    const uint64_t written = strtoull(digits, NULL, 16);
    memset(digits, '0', 16);
    return written == hash64(text, strlen(text), 0);
}

// The state.json of a checkpoint, checked; NULL if it is missing or damaged.
static inline json_t* checkpoint_read_state(const char* folder, Error* err) {
    json_t* state = json_load_from(folder, "state.json", err);
    if (!state) { return NULL; }
    char* path = format("%s/state.json", folder);
    char* text = read_file(path, NULL, err);
    const long long form = json_integer_value(json_object_get(state, "format"));
    bool ok = text != NULL;
    if (ok && form != CHECKPOINT_FORMAT) {
        ok = fail(err, "%s: format %lld, this program reads %d: it was written by another version", path, form,
                  CHECKPOINT_FORMAT);
    } else if (ok && !state_checksum_is_right(text)) {
        ok = fail(err, "%s: damaged or edited (its checksum is wrong)", path);
    }
    free(text);
    free(path);
    if (ok) { return state; }
    json_decref(state);
    return NULL;
}

// Compares every tensor of a file with the checksums in state.json.
static inline bool checkpoint_verify_file(const char* folder, const char* file, json_t* state, Error* err) {
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

// The state of a checkpoint all of whose files are what was written; NULL otherwise.
static inline json_t* checkpoint_verify(const char* folder, Error* err) {
    json_t* state = checkpoint_read_state(folder, err);
    if (!state) { return NULL; }
    GPT2Config ignored;
    if (hf_load_config(folder, false, &ignored, err) &&
        checkpoint_verify_file(folder, "model.safetensors", state, err) &&
        checkpoint_verify_file(folder, "optimizer.safetensors", state, err)) {
        return state;
    }
    json_decref(state);
    return NULL;
}

// The newest checkpoint in `out` that is whole, and its state; NULL if there is none. Damaged ones are warned of.
static inline char* checkpoint_newest(const char* out, json_t** state) {
    Error err;
    size_t count;
    long long* steps = checkpoint_list(out, &count);
    char* found = NULL;
    for (size_t i = 0; i < count && !found; i++) {
        char* path = format("%s/step_%08lld", out, steps[i]);
        *state = checkpoint_verify(path, &err);
        if (*state) { found = path; continue; }
        notice("warning: %s; trying the checkpoint before it", err.text);
        free(path);
    }
    if (count && !found) { fatal("%s: none of its %zu checkpoints can be read; see the warnings above", out, count); }
    free(steps);
    return found;
}

// ---------------------------------------------------------------------------------------------------------------------
// saving and loading

static inline json_t* state_to_json(const TrainState* s, const Config* c, json_t* checksums) {
    json_t* state = json_pack("{s:i, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:O, s:{s:s}}", "format", CHECKPOINT_FORMAT,
                              "step", (json_int_t)s->step, "tokens", (json_int_t)s->tokens, "window",
                              (json_int_t)s->window, "data_hash", json_hex(s->data_hash), "loss_window",
                              outliers_to_json(&s->loss_window), "norm_window", outliers_to_json(&s->norm_window),
                              "options", config_to_json(c), "checksums", checksums, "kernels", DEVICE_NAME,
                              device_kernels());
    if (!state) { fatal("out of memory: state.json"); }
    json_object_set_new(state, "checksum", json_hex(0));
    return state;
}

// The kernels that a run had on this device (device_kernels); NULL if there was none.
static inline const char* state_kernels(const json_t* state) {
    return json_string_value(json_object_get(json_object_get(state, "kernels"), DEVICE_NAME));
}

static inline bool state_save(const char* folder, json_t* state, Error* err) {
    char *path = format("%s/state.json", folder), *text = json_dumps(state, JSON_INDENT(2) | JSON_SORT_KEYS), hex[17];
    if (!text) { fatal("out of memory: state.json"); }
    snprintf(hex, sizeof hex, "%016llx", (unsigned long long)hash64(text, strlen(text), 0));
    memcpy(state_checksum_digits(text), hex, 16);
    const bool ok = write_file_atomically(path, text, strlen(text), err);
    free(text);
    free(path);
    return ok;
}

static inline bool checkpoint_write(const char* folder, GPT2* g, const TrainState* s, const Config* c, int eot,
                                    Error* err) {
    char *model = format("%s/model.safetensors", folder), *optimizer = format("%s/optimizer.safetensors", folder);
    const TensorBlock weights = {"transformer.", g->masters, true},
                      moments[2] = {{"m.", g->m, false}, {"v.", g->v, false}};
    json_t *model_sums = json_object(), *optimizer_sums = json_object();
    bool ok = tensors_save(model, g, &weights, 1, model_sums, err) &&
              tensors_save(optimizer, g, moments, 2, optimizer_sums, err) &&
              hf_save_config(folder, &g->config, eot, err);
    json_t* checksums =
        json_pack("{s:o, s:o}", "model.safetensors", model_sums, "optimizer.safetensors", optimizer_sums);
    json_t* state = state_to_json(s, c, checksums);
    ok = ok && state_save(folder, state, err) && sync_parent(model, err);
    json_decref(checksums);
    json_decref(state);
    free(model);
    free(optimizer);
    return ok;
}

// What the other processes do while the first one writes: they hand it their shards, in the order of checkpoint_write.
static inline void checkpoint_hand_over(GPT2* g) {
    gpt2_whole(g, g->masters);
    gpt2_whole(g, g->m);
    gpt2_whole(g, g->v);
}

// Bytes that a checkpoint takes, a little over.
static inline size_t checkpoint_bytes(const GPT2* g) { return 3 * g->params_table.size * sizeof(float) + (1 << 20); }

static inline bool checkpoint_room(const char* out, const GPT2* g, Error* err) {
    struct statvfs v;
    if (statvfs(out, &v) != 0) { return fail(err, "%s: %s", out, strerror(errno)); }
    const size_t room = (size_t)v.f_bavail * v.f_frsize, need = checkpoint_bytes(g);
    if (room >= need) { return true; }
    return fail(
        err,
        "%s: a checkpoint takes %.1f MB, but only %.1f MB are free: make room, lower --keep, or give another --out",
        out, (double)need / 1e6, (double)room / 1e6);
}

// Writes a checkpoint to `out` and removes all but the newest `keep` (0: none). Returns its path, which the caller
// frees; NULL on failure, with nothing but the older checkpoints left.
static inline char* checkpoint_save(const char* out, GPT2* g, const TrainState* s, const Config* c, int eot,
                                    Error* err) {
    char *path = format("%s/step_%08lld", out, s->step), *temporary = format("%s/.tmp-step_%08lld", out, s->step);
    bool ok = checkpoint_room(out, g, err) && make_directories(temporary, err) &&
              checkpoint_write(temporary, g, s, c, eot, err);
    if (ok && path_exists(path)) { checkpoint_remove(path); } // a damaged one, which the run went round
    if (ok && rename(temporary, path) != 0) { ok = fail(err, "%s: cannot rename to it: %s", path, strerror(errno)); }
    ok = ok && sync_parent(path, err);
    if (!ok) { nftw(temporary, remove_entry, 8, FTW_DEPTH | FTW_PHYS); }
    free(temporary);
    size_t count, behind = 0;
    long long* steps = checkpoint_list(out, &count);
    for (size_t i = 0; ok && c->keep > 0 && i < count; i++) { // those ahead are damaged ones, which the run went round
        if (steps[i] <= s->step && behind++ < (size_t)c->keep) { continue; }
        char* old = format("%s/step_%08lld", out, steps[i]);
        checkpoint_remove(old);
        free(old);
    }
    free(steps);
    if (ok) { return path; }
    free(path);
    return NULL;
}

// Parameters and moments of a verified checkpoint, and where its run stood.
static inline bool checkpoint_load(GPT2* g, TrainState* s, const char* folder, json_t* state, Error* err) {
    char* path = format("%s/optimizer.safetensors", folder);
    const TensorBlock moments[2] = {{"m.", g->m, false}, {"v.", g->v, false}};
    SafeTensors file;
    bool ok = hf_load_weights(g, folder, err) && safetensors_open(&file, path, err);
    free(path);
    if (!ok) { return false; }
    ok = tensors_load(&file, g, moments, 2, err);
    safetensors_close(&file);
    const char* hash = json_string_value(json_object_get(state, "data_hash"));
    s->step = json_integer_value(json_object_get(state, "step"));
    s->tokens = json_integer_value(json_object_get(state, "tokens"));
    s->window = (uint64_t)json_integer_value(json_object_get(state, "window"));
    s->data_hash = hash ? strtoull(hash, NULL, 16) : 0;
    return ok && outliers_from_json(&s->loss_window, json_object_get(state, "loss_window"), err) &&
           outliers_from_json(&s->norm_window, json_object_get(state, "norm_window"), err);
}
