#include "checkpoint.h"
#include "../base/file.h"
#include "model_file.h"
#include "../base/json.h"
#include "safetensors.h"
#include "sums.h"
#include <sys/statvfs.h>

const char CHECKPOINT_SUMS[] = "checkpoint.b2sums";
const char* const CHECKPOINT_FILES[NUM_CHECKPOINT_FILES] = {"model.safetensors", "optimizer.safetensors", "config.json",
                                                            "generation_config.json", "state.json"};

// ---------------------------------------------------------------------------------------------------------------------
// state.json

static json_t* outliers_to_json(const OutlierDetector* d) {
    json_t* array = json_array();
    for (size_t i = 0; i < d->count; i++) { json_array_append_new(array, json_real(d->values[i])); }
    return array;
}

bool outliers_from_json(OutlierDetector* d, const json_t* array, Error* err) {
    const size_t n = json_array_size(array);
    if (!json_is_array(array) || n > OUTLIER_WINDOW) {
        return fail(err, "a window of losses or norms is not an array of at most %d numbers", OUTLIER_WINDOW);
    }
    memset(d, 0, sizeof *d);
    for (; d->count < n; d->count++) {
        const json_t* value = json_array_get(array, d->count);
        if (!json_is_number(value)) {
            return fail(err, "element %zu of a window of losses or norms is not a number", d->count + 1);
        }
        d->values[d->count] = json_number_value(value);
    }
    return true;
}

// Returns true for a whole number of state.json between 0 and `most`.
static bool state_has_number(const json_t* state, const char* key, json_int_t most) {
    const json_t* value = json_object_get(state, key);
    return json_is_integer(value) && json_integer_value(value) >= 0 && json_integer_value(value) <= most;
}

// Fails if a field that a run needs is missing or impossible. `path` is for messages.
static bool state_check(const json_t* state, const char* path, Error* err) {
    const long long form = json_integer_value(json_object_get(state, "format"));
    OutlierDetector ignored;
    const char* wrong = NULL;
    if (form != CHECKPOINT_FORMAT) {
        fail(err, "%s: format %lld, this program reads %d: it was written by another version", path, form,
             CHECKPOINT_FORMAT);
        err->is_unknown = json_is_integer(json_object_get(state, "format")); // not known to be damaged
        return false;
    }
    if (!json_is_object(json_object_get(state, "options"))) { wrong = "options"; }
    if (!json_is_string(json_object_get(state, "data_hash"))) { wrong = "data_hash"; }
    if (!state_has_number(state, "step", INT32_MAX)) { wrong = "step"; } // AdamW and the log hold it in an int
    if (!state_has_number(state, "updates", INT32_MAX)) { wrong = "updates"; }
    if (!state_has_number(state, "tokens", INT64_MAX)) { wrong = "tokens"; }
    if (!state_has_number(state, "window", INT64_MAX)) { wrong = "window"; }
    if (!outliers_from_json(&ignored, json_object_get(state, "loss_window"), err)) { wrong = "loss_window"; }
    if (!outliers_from_json(&ignored, json_object_get(state, "norm_window"), err)) { wrong = "norm_window"; }
    return !wrong || fail(err, "%s: %s is missing or impossible: damaged", path, wrong);
}

// Verifies state.json, and puts the checksums of the checkpoint's files into the state as "sums".
static bool take_sums(json_t* state, const char* folder, Error* err) {
    Sums sums = {.list = NULL};
    char* path = format("%s/%s", folder, CHECKPOINT_SUMS);
    bool ok = true;
    if (!path_exists(path) && json_integer_value(json_object_get(state, "format")) == 1) {
        ok = fail(err, "%s: a checkpoint of version 2.0 or earlier: continue it with that version, or begin a new run "
                  "with its weights: --init %s", folder, folder);
        err->is_unknown = true; // it is not damaged
    }
    ok = ok && sums_load(&sums, path, err) &&
         sum_verify(folder, "state.json", sums_find(&sums, "state.json"), err);
    json_t* files = json_object();
    for (size_t i = 0; i < sums.count; i++) {
        if (json_object_set_new(files, sums.list[i].name, json_string(sums.list[i].hex)) != 0) {
            ok = fail(err, "%s: damaged: the name of file %zu is not UTF-8", path, i + 1);
        }
    }
    json_object_set_new(state, "sums", files);
    sums_free(&sums);
    free(path);
    return ok;
}

json_t* checkpoint_read_state(const char* folder, Error* err) {
    char* path = format("%s/state.json", folder);
    json_t* state = json_read_in(folder, "state.json", err);
    const bool ok = state && take_sums(state, folder, err) && state_check(state, path, err);
    free(path);
    if (ok) { return state; }
    json_decref(state);
    return NULL;
}

// Returns the text at object.key of one checkpoint's state.json; NULL if there is none. Ends the program if it cannot
// be read now.
static char* saved_text(const char* folder, const char* object, const char* key) {
    Error err;
    json_t* state = json_read_in(folder, "state.json", &err);
    if (!state && err.is_unknown) { fatal("%s", err.text); }
    const char* text = json_string_value(json_object_get(json_object_get(state, object), key));
    char* copy = text ? format("%s", text) : NULL;
    json_decref(state);
    return copy;
}

char* checkpoint_saved_text(const char* out, const char* resume, const char* object, const char* key) {
    if (strcmp(resume, "auto")) { return *resume ? saved_text(resume, object, key) : NULL; }
    size_t count = 0;
    char* text = NULL;
    long long* steps = checkpoint_list(out, &count);
    for (size_t i = 0; i < count && !text; i++) {
        char* folder = checkpoint_path(out, steps[i]);
        text = saved_text(folder, object, key);
        free(folder);
    }
    free(steps);
    if (*out && count == 0 && !strcmp(object, "options")) { // the run ended before its first checkpoint
        json_t* options = run_read_options(out);
        const char* value = json_string_value(json_object_get(options, key));
        text = value ? format("%s", value) : NULL;
        json_decref(options);
    }
    return text;
}

bool run_write_options(const char* out, json_t* options, Error* err) {
    return json_save_in(options, out, "options.json", err);
}

json_t* run_read_options(const char* out) {
    Error err;
    const bool exists = folder_has(out, "options.json");
    json_t* options = exists ? json_read_in(out, "options.json", &err) : NULL;
    if (exists && !options && err.is_unknown) { fatal("%s", err.text); }
    if (exists && !options) { fatal("%s: remove it to begin a new run there", err.text); }
    return options;
}

// ---------------------------------------------------------------------------------------------------------------------
// saving and loading

// Returns {DEVICE: lines of Backend.matmuls_save()}; NULL if there are none.
static json_t* matmuls_to_json(const Backend* b) {
    if (b->is_host) { return NULL; }
    char* lines = b->matmuls_save();
    json_t* array = json_array();
    for (char *rest, *line = strtok_r(lines, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        json_array_append_new(array, json_string(line));
    }
    json_t* matmuls = json_array_size(array) ? json_pack("{s:O}", b->device, array) : NULL;
    json_decref(array);
    free(lines);
    return matmuls;
}

char* state_matmuls(const json_t* state, const Backend* b) {
    const json_t* array = json_object_get(json_object_get(state, "matmuls"), b->device);
    char* lines = NULL;
    for (size_t i = 0; i < json_array_size(array); i++) {
        const char* line = json_string_value(json_array_get(array, i));
        append_format(&lines, "%s\n", line ? line : "");
    }
    return lines;
}

// Return members of state.json; NULL where there is nothing to say: for a count of 0, nothing pending, no best
// checkpoint.
static json_t* count_to_json(long long count) { return count ? json_integer(count) : NULL; }

static json_t* phases_to_json(Phases p) {
    return p.val || p.eval || p.sample ? json_pack("{s:b, s:b, s:b}", "val", p.val, "eval", p.eval, "sample", p.sample)
                                       : NULL;
}

static json_t* best_to_json(const Validated* v) {
    return v->step ? json_pack("{s:I, s:f, s:o}", "step", (json_int_t)v->step, "val_loss", v->loss, "val_data",
                               json_hex(v->data)) : NULL;
}

TrainState train_state_from_json(const json_t* state) {
    Error ignored; // checkpoint_read_state() has tried the windows
    const json_t *best = json_object_get(state, "best"), *pending = json_object_get(state, "pending");
    TrainState s = {.step = json_integer_value(json_object_get(state, "step")),
                    .updates = json_integer_value(json_object_get(state, "updates")),
                    .tokens = json_integer_value(json_object_get(state, "tokens")),
                    .window = (uint64_t)json_integer_value(json_object_get(state, "window")),
                    .best = {.step = json_integer_value(json_object_get(best, "step")),
                             .loss = json_number_value(json_object_get(best, "val_loss"))},
                    .numerics = {.bad_steps = json_integer_value(json_object_get(state, "bad_steps")),
                                 .nonfinite_steps = json_integer_value(json_object_get(state, "nonfinite_steps"))},
                    .pending = {.val = json_is_true(json_object_get(pending, "val")),
                                .eval = json_is_true(json_object_get(pending, "eval")),
                                .sample = json_is_true(json_object_get(pending, "sample"))}};
    json_get_hex(state, "data_hash", &s.data_hash);
    json_get_hex(best, "val_data", &s.best.data);
    outliers_from_json(&s.numerics.loss_window, json_object_get(state, "loss_window"), &ignored);
    outliers_from_json(&s.numerics.norm_window, json_object_get(state, "norm_window"), &ignored);
    return s;
}

// Returns state.json. A member whose value is NULL is left out (o* and s*).
static json_t* state_to_json(const TrainState* s, const Backend* b, json_t* options, const char* nccl_algorithms) {
    const Numerics* n = &s->numerics;
    const char* kernels = b->level ? b->level : b->device_kernels();
    json_t* state = json_pack(
        "{s:i, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:{s:s}, s:o, s:o*, s:s*, s:o*, s:o*, s:o*, s:o*, s:o*}",
        "format", CHECKPOINT_FORMAT, "step", (json_int_t)s->step, "updates", (json_int_t)s->updates, "tokens",
        (json_int_t)s->tokens, "window", (json_int_t)s->window, "data_hash", json_hex(s->data_hash), "loss_window",
        outliers_to_json(&n->loss_window), "norm_window", outliers_to_json(&n->norm_window), "options", options,
        "kernels", b->device, kernels, "tokenizer_hash", json_hex(s->tokenizer_hash), "matmuls",
        matmuls_to_json(b), "nccl_algo", nccl_algorithms, "bad_steps", count_to_json(n->bad_steps), "nonfinite_steps",
        count_to_json(n->nonfinite_steps), "pending", phases_to_json(s->pending), "best", best_to_json(&s->best),
        "loss_scale", n->loss_scale.is_dynamic ? loss_scale_to_json(&n->loss_scale) : NULL);
    if (!state) { fatal("state.json: the choice of NCCL's algorithms is not UTF-8"); }
    return state;
}

const char* state_kernels(const json_t* state, const Backend* b) {
    return json_string_value(json_object_get(json_object_get(state, "kernels"), b->device));
}

// Adds the checksums of files that were read back when they were written.
static bool sum_files(Sums* sums, const char* folder, const char* const* files, int count, Error* err) {
    bool ok = true;
    for (int i = 0; ok && i < count; i++) {
        char hex[BLAKE2B_HEX + 1], *path = format("%s/%s", folder, files[i]);
        ok = sum_file(path, hex, err);
        if (ok) { sums_set(sums, files[i], hex); }
        free(path);
    }
    return ok;
}

static bool write_tokenizer(const TokenizerFiles* files, const char* folder, Sums* sums, Error* err) {
    return !files || (tokenizer_files_write(files, folder, err) &&
                      sum_files(sums, folder, TOKENIZER_FILES, NUM_TOKENIZER_FILES, err));
}

// Reads a file back, from the disk if the system lets go of its copy in memory, and compares it with what was written.
static bool read_tensors_back(const Sums* sums, const char* folder, const char* file, Error* err) {
    char* path = format("%s/%s", folder, file);
    const int fd = open_regular(path, NULL, err);
    free(path);
    if (fd < 0) { return false; }
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED); // advice: it may fail
    close(fd);
    if (sum_verify(folder, file, sums_find(sums, file), err)) { return true; }
    if (err->is_unknown) { return false; }
    return fail(err, "%s/%s: what was written reads back otherwise: is the disk damaged?", folder, file);
}

// Writes the two files of tensors.
static bool write_tensors(const char* folder, const Snapshot* snapshot, Sums* sums, Error* err) {
    const Optimizer* o = snapshot->optimizer;
    const float* host = snapshot->blocks;
    const size_t n = o->model->params_table.size;
    const TensorBlock blocks[3] = {
        {.prefix = "transformer.", .data = o->masters, .host = host, .hf_layout = true},
        {.prefix = "m.", .data = o->m, .host = host ? host + n : NULL, .hf_layout = false},
        {.prefix = "v.", .data = o->v, .host = host ? host + 2 * n : NULL, .hf_layout = false}};
    bool ok = true;
    for (int i = 0; ok && i < 2; i++) { // the weights are one file, the moments the other
        char hex[BLAKE2B_HEX + 1], *path = format("%s/%s", folder, CHECKPOINT_FILES[i]);
        ok = tensors_save(path, o, &blocks[i], 1 + i, hex, err);
        if (ok) { sums_set(sums, CHECKPOINT_FILES[i], hex); }
        free(path);
    }
    return ok;
}

static bool write_folder(const char* folder, const Snapshot* snapshot, Error* err) {
    char* sums_path = format("%s/%s", folder, CHECKPOINT_SUMS);
    Sums sums = {.list = NULL};
    const bool ok = write_tensors(folder, snapshot, &sums, err) &&
                    hf_save_config(folder, &snapshot->optimizer->model->config, snapshot->eot, "float32", err) &&
                    write_tokenizer(snapshot->tokenizer, folder, &sums, err) &&
                    json_save_in(snapshot->state, folder, "state.json", err) && // the two files before have tensors
                    sum_files(&sums, folder, CHECKPOINT_FILES + 2, NUM_CHECKPOINT_FILES - 2, err) &&
                    sums_save(&sums, sums_path, err) && read_tensors_back(&sums, folder, CHECKPOINT_FILES[0], err) &&
                    read_tensors_back(&sums, folder, CHECKPOINT_FILES[1], err) && sync_parent(sums_path, err);
    sums_free(&sums);
    free(sums_path);
    return ok;
}

void checkpoint_hand_over(const Optimizer* o) { // in the order of snapshot_take and write_tensors
    optimizer_whole(o, o->masters);
    optimizer_whole(o, o->m);
    optimizer_whole(o, o->v);
}

// Returns the bytes that a checkpoint takes, rounded up: masters and moments, the tokenizer, and a little for the rest.
static size_t checkpoint_bytes(const Snapshot* s) {
    size_t bytes = snapshot_bytes(s->optimizer) + ((size_t)1 << 20);
    for (int i = 0; s->tokenizer && i < NUM_TOKENIZER_FILES; i++) { bytes += s->tokenizer->size[i]; }
    return bytes;
}

static bool checkpoint_room(const char* out, const Snapshot* s, Error* err) {
    struct statvfs v;
    if (statvfs(out, &v) != 0) { return fail_system(err, out, "look at its free space"); }
    const size_t room = (size_t)v.f_bavail * v.f_frsize, need = checkpoint_bytes(s);
    if (room >= need) { return true; }
    return fail(
        err,
        "%s: a checkpoint takes %.1f MB, but only %.1f MB are free: make room, lower --keep, or give another --out",
        out, (double)need / 1e6, (double)room / 1e6);
}

size_t snapshot_bytes(const Optimizer* o) {
    return (2 * o->model->params_table.size + o->segments.v_table.size) * sizeof(float);
}

// Copies a block to host memory. Training waits for this, so all threads share the copy of a block in host memory, and
// the first touch.
static void fetch_block(const Optimizer* o, float* to, float* block, size_t n) {
    enum { PIECE = 1 << 20 };
    const Backend* b = o->model->backend;
    const float *host = optimizer_in_host(o, block), *from = host ? host : optimizer_whole(o, block);
    if (!host && !b->is_host) { b->device_copy_out(to, from, n * sizeof *to); return; }
    b->device_sync();
    #pragma omp parallel for
    for (size_t at = 0; at < n; at += PIECE) { memcpy(to + at, from + at, min_size(PIECE, n - at) * sizeof *to); }
}

Snapshot snapshot_take(const Optimizer* o, const TrainState* s, json_t* options, const char* nccl_algorithms,
                       float* blocks) {
    const Backend* b = o->model->backend;
    float *const device[3] = {o->masters, o->m, o->v}, *to = blocks;
    for (size_t i = 0; blocks && i < 3; i++) {
        const size_t n = optimizer_table(o, device[i])->size;
        fetch_block(o, to, device[i], n);
        to += n;
    }
    return (Snapshot){.optimizer = o,
                      .blocks = blocks,
                      .state = state_to_json(s, b, options, nccl_algorithms),
                      .step = s->step,
                      .eot = NO_TOKEN};
}

void snapshot_free(Snapshot* snapshot) {
    json_decref(snapshot->state);
    snapshot->state = NULL;
}

// Returns true if two folders have the same list of checksums, so that they are the same checkpoint.
static bool has_same_sums(const char* a, const char* b) {
    Error ignored;
    size_t size_a, size_b;
    char *path_a = format("%s/%s", a, CHECKPOINT_SUMS), *path_b = format("%s/%s", b, CHECKPOINT_SUMS);
    char *list_a = read_file(path_a, &size_a, &ignored), *list_b = read_file(path_b, &size_b, &ignored);
    const bool same = list_a && list_b && size_a == size_b && !memcmp(list_a, list_b, size_a);
    free(path_a);
    free(path_b);
    free(list_a);
    free(list_b);
    return same;
}

char* checkpoint_write(const char* out, const Snapshot* snapshot, Error* err) {
    char *path = checkpoint_path(out, snapshot->step), *temporary = temporary_path(path);
    bool ok = checkpoint_room(out, snapshot, err) && make_directories(temporary, err) &&
              write_folder(temporary, snapshot, err);
    if (ok && path_exists(path)) {
        if (has_same_sums(path, temporary)) { checkpoint_remove(path); } // a try before this one could not sync it
        else { checkpoint_set_aside(path, "replaced"); }                 // another run's
    }
    if (ok && rename(temporary, path) != 0) { ok = fail_system(err, path, "rename to it"); }
    ok = ok && sync_parent(path, err);
    if (!ok) { checkpoint_remove_unfinished(temporary); }
    free(temporary);
    if (ok) {
        checkpoint_rotate(out, snapshot->step, &snapshot->keep);
        return path;
    }
    free(path);
    return NULL;
}

bool checkpoint_load(Optimizer* o, const char* folder, Error* err) {
    char* path = format("%s/optimizer.safetensors", folder);
    const TensorBlock moments[2] = {
        {.prefix = "m.", .data = o->m, .hf_layout = false}, {.prefix = "v.", .data = o->v, .hf_layout = false}};
    SafeTensors file;
    bool ok = model_file_load(o->model, o, folder, err) && safetensors_open(&file, path, err);
    free(path);
    if (!ok) { return false; }
    ok = tensors_load(&file, o, moments, 2, err);
    safetensors_close(&file);
    return ok;
}
