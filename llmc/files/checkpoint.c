#include "checkpoint.h"
#include "../models.h"
#include "../optimizer.h"
#include "huggingface.h"
#include "safetensors.h"
#include <dirent.h>
#include <ftw.h>
#include <sys/statvfs.h>

// ---------------------------------------------------------------------------------------------------------------------
// folders

static int remove_entry(const char* path, const struct stat* s, int type, struct FTW* at) {
    (void)s, (void)type, (void)at;
    return remove(path);
}

void checkpoint_remove(const char* path) {
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

// Returns the step of a folder's name; -1 if it is not a checkpoint's.
static long long checkpoint_step(const char* name) {
    char same[32];
    long long step = -1;
    if (sscanf(name, "step_%lld", &step) != 1 || step < 0) { return -1; }
    snprintf(same, sizeof same, "step_%08lld", step);
    return strcmp(same, name) ? -1 : step; // no other spelling of the number
}

static int compare_steps(const void* a, const void* b) {
    const long long x = *(const long long*)a, y = *(const long long*)b;
    return (x < y) - (x > y);
}

// Returns the next entry of a folder; NULL at its end. Ends the program if it cannot be read.
static struct dirent* next_entry(DIR* d, const char* path) {
    errno = 0;
    struct dirent* e = readdir(d);
    if (!e && errno) { fatal("%s: cannot list the folder: %s; nothing was changed", path, strerror(errno)); }
    return e;
}

// Opens a folder; NULL if it does not exist. Ends the program if it cannot be listed.
static DIR* open_folder(const char* path) {
    DIR* d = opendir(path);
    if (!d && errno != ENOENT) { fatal("%s: cannot list the folder: %s; nothing was changed", path, strerror(errno)); }
    return d;
}

long long* checkpoint_list(const char* out, size_t* count) {
    long long* steps = NULL;
    *count = 0;
    DIR* d = open_folder(out);
    if (!d) { return NULL; }
    for (struct dirent* e; (e = next_entry(d, out));) {
        const long long step = checkpoint_step(e->d_name);
        if (step < 0) { continue; }
        steps = realloc_or_die(steps, (*count + 1) * sizeof *steps, "the list of checkpoints");
        steps[(*count)++] = step;
    }
    closedir(d);
    if (*count) { qsort(steps, *count, sizeof *steps, compare_steps); }
    return steps;
}

void checkpoint_clean(const char* out) {
    DIR* d = open_folder(out);
    if (!d) { return; }
    for (struct dirent* e; (e = next_entry(d, out));) {
        if (strncmp(e->d_name, ".tmp-", 5)) { continue; }
        char* path = format("%s/%s", out, e->d_name);
        nftw(path, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
        free(path);
    }
    closedir(d);
}

// ---------------------------------------------------------------------------------------------------------------------
// state.json

static json_t* outliers_to_json(const OutlierDetector* d) {
    json_t* array = json_array();
    for (size_t i = 0; i < d->count; i++) { json_array_append_new(array, json_real(d->values[i])); }
    return array;
}

bool outliers_from_json(OutlierDetector* d, const json_t* array, Error* err) {
    double values[OUTLIER_WINDOW];
    const size_t n = json_array_size(array);
    if (!json_is_array(array) || n > OUTLIER_WINDOW) {
        return fail(err, "a window of losses or norms is no array of at most %d numbers", OUTLIER_WINDOW);
    }
    for (size_t i = 0; i < n; i++) {
        const json_t* value = json_array_get(array, i);
        if (!json_is_number(value)) { return fail(err, "number %zu of a window of losses or norms is none", i + 1); }
        values[i] = json_number_value(value);
    }
    return outlier_import(d, values, n, err);
}

json_t* json_hex(uint64_t x) {
    char hex[17];
    snprintf(hex, sizeof hex, "%016llx", (unsigned long long)x);
    return json_string(hex);
}

// Returns the checksum in the text of state.json, 16 hexadecimal digits; NULL if there is none. It is the hash of the
// text with zeros in their place.
static char* state_checksum_digits(char* text) {
    static const char key[] = "\"checksum\": \"";
    char* at = strstr(text, key);
    return at && strlen(at) > strlen(key) + 16 ? at + strlen(key) : NULL;
}

static bool state_checksum_is_right(char* text) {
    char* digits = state_checksum_digits(text);
    if (!digits) { return false; }
    const uint64_t written = strtoull(digits, NULL, 16);
    memset(digits, '0', 16);
    return written == hash64(text, strlen(text), 0);
}

json_t* checkpoint_read_state(const char* folder, Error* err) {
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

// Returns the text at object.key of one checkpoint's state.json; NULL if it cannot be read.
static char* saved_text(const char* folder, const char* object, const char* key) {
    char* path = format("%s/state.json", folder);
    json_t* state = path_exists(path) ? json_load_file(path, 0, NULL) : NULL;
    const char* text = json_string_value(json_object_get(json_object_get(state, object), key));
    char* copy = text ? format("%s", text) : NULL;
    json_decref(state);
    free(path);
    return copy;
}

char* checkpoint_saved_text(const char* out, const char* resume, const char* object, const char* key) {
    if (strcmp(resume, "auto")) { return *resume ? saved_text(resume, object, key) : NULL; }
    size_t count = 0;
    char* text = NULL;
    long long* steps = checkpoint_list(out, &count);
    for (size_t i = 0; i < count && !text; i++) {
        char* folder = format("%s/step_%08lld", out, steps[i]);
        text = saved_text(folder, object, key);
        free(folder);
    }
    free(steps);
    return text;
}

bool run_write_options(const char* out, json_t* options, Error* err) {
    char *path = format("%s/options.json", out), *text = json_dumps(options, JSON_INDENT(2) | JSON_SORT_KEYS);
    if (!text) { fatal("out of memory: options.json"); }
    const bool ok = write_file_atomically(path, text, strlen(text), err);
    free(text);
    free(path);
    return ok;
}

json_t* run_read_options(const char* out) {
    Error err;
    char* path = format("%s/options.json", out);
    json_t* options = path_exists(path) ? json_load_from(out, "options.json", &err) : NULL;
    if (!options && path_exists(path)) { fatal("%s: remove it to begin a new run there", err.text); }
    free(path);
    return options;
}

// ---------------------------------------------------------------------------------------------------------------------
// verifying

bool checkpoint_verify_file(const char* folder, const char* file, json_t* state, Error* err) {
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

// Files without tensors that state.json has a checksum of.
static const char* const PLAIN_FILES[] = {"config.json", "generation_config.json"};
enum { NUM_PLAIN_FILES = sizeof PLAIN_FILES / sizeof *PLAIN_FILES };

static bool file_hash(const char* folder, const char* file, uint64_t* hash, Error* err) {
    size_t bytes;
    char* path = format("%s/%s", folder, file);
    char* text = read_file(path, &bytes, err);
    if (text) { *hash = hash64(text, bytes, 0); }
    free(path);
    free(text);
    return text != NULL;
}

// Compares the files without tensors with their checksums. (Checkpoints of early versions have none.)
static bool verify_plain_files(const char* folder, json_t* state, Error* err) {
    json_t* checksums = json_object_get(state, "files");
    for (int i = 0; checksums && i < NUM_PLAIN_FILES; i++) {
        uint64_t hash;
        const char* hex = json_string_value(json_object_get(checksums, PLAIN_FILES[i]));
        if (!file_hash(folder, PLAIN_FILES[i], &hash, err)) { return false; }
        if (!hex || strtoull(hex, NULL, 16) != hash) {
            return fail(err, "%s/%s: damaged or edited (its checksum is wrong)", folder, PLAIN_FILES[i]);
        }
    }
    return true;
}

// Returns the checksums of the files without tensors, by name; NULL if a file cannot be read.
static json_t* hash_plain_files(const char* folder, Error* err) {
    json_t* checksums = json_object();
    for (int i = 0; i < NUM_PLAIN_FILES; i++) {
        uint64_t hash;
        if (!file_hash(folder, PLAIN_FILES[i], &hash, err)) {
            json_decref(checksums);
            return NULL;
        }
        if (json_object_set_new(checksums, PLAIN_FILES[i], json_hex(hash))) { fatal("out of memory: state.json"); }
    }
    return checksums;
}

json_t* checkpoint_verify(const char* folder, Error* err) {
    json_t* state = checkpoint_read_state(folder, err);
    if (!state) { return NULL; }
    GPT2Config ignored;
    if (verify_plain_files(folder, state, err) && hf_load_config(folder, false, &ignored, err) &&
        checkpoint_verify_file(folder, "model.safetensors", state, err) &&
        checkpoint_verify_file(folder, "optimizer.safetensors", state, err)) {
        return state;
    }
    json_decref(state);
    return NULL;
}

char* checkpoint_newest(const char* out, json_t** state) {
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

// Returns the lines of Backend.matmuls_save() as an array.
static json_t* lines_to_json(const Backend* b) {
    char* lines = b->matmuls_save();
    json_t* array = json_array();
    for (char *rest, *line = strtok_r(lines, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        if (json_array_append_new(array, json_string(line))) { fatal("out of memory: state.json"); }
    }
    free(lines);
    return array;
}

char* state_matmuls(const json_t* state, const Backend* b) {
    const json_t* array = json_object_get(json_object_get(state, "matmuls"), b->device);
    char* lines = NULL;
    for (size_t i = 0; i < json_array_size(array); i++) {
        const char* line = json_string_value(json_array_get(array, i));
        char* longer = format("%s%s\n", lines ? lines : "", line ? line : "");
        free(lines);
        lines = longer;
    }
    return lines;
}

static json_t* state_to_json(const TrainState* s, const Plan* p, const Config* c, json_t* checksums, json_t* files) {
    const Backend* b = p->backend;
    json_t* state = json_pack("{s:i, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:O, s:O, s:{s:s}}", "format",
                              CHECKPOINT_FORMAT, "step", (json_int_t)s->step, "tokens", (json_int_t)s->tokens, "window",
                              (json_int_t)s->window, "data_hash", json_hex(s->data_hash), "loss_window",
                              outliers_to_json(&s->loss_window), "norm_window", outliers_to_json(&s->norm_window),
                              "options", plan_options(p, c), "checksums", checksums, "files", files, "kernels",
                              b->device, b->device_kernels());
    json_t* matmuls = lines_to_json(b);
    const char* nccl = p->nccl_algorithms;
    const bool ok = state && !json_object_set_new(state, "checksum", json_hex(0)) &&
                    !json_object_set_new(state, "matmuls", json_pack("{s:O}", b->device, matmuls)) &&
                    (!nccl || !json_object_set_new(state, "nccl_algo", json_string(nccl)));
    if (!ok) { fatal("out of memory: state.json"); }
    if (json_array_size(matmuls) == 0) { json_object_del(state, "matmuls"); }
    json_decref(matmuls);
    return state;
}

const char* state_kernels(const json_t* state, const Backend* b) {
    return json_string_value(json_object_get(json_object_get(state, "kernels"), b->device));
}

bool state_save(const char* folder, json_t* state, Error* err) {
    char *path = format("%s/state.json", folder), *text = json_dumps(state, JSON_INDENT(2) | JSON_SORT_KEYS), hex[17];
    if (!text) { fatal("out of memory: state.json"); }
    snprintf(hex, sizeof hex, "%016llx", (unsigned long long)hash64(text, strlen(text), 0));
    memcpy(state_checksum_digits(text), hex, 16);
    const bool ok = write_file_atomically(path, text, strlen(text), err);
    free(text);
    free(path);
    return ok;
}

static bool checkpoint_write(const char* folder, const Optimizer* o, const TrainState* s, const Plan* p,
                             const Config* c, int eot, Error* err) {
    char *model = format("%s/model.safetensors", folder), *optimizer = format("%s/optimizer.safetensors", folder);
    const TensorBlock weights = {"transformer.", o->masters, true},
                      moments[2] = {{"m.", o->m, false}, {"v.", o->v, false}};
    json_t *model_sums = json_object(), *optimizer_sums = json_object(), *files = NULL;
    bool ok = tensors_save(model, o, &weights, 1, model_sums, err) &&
              tensors_save(optimizer, o, moments, 2, optimizer_sums, err) &&
              hf_save_config(folder, &o->model->config, eot, err) && (files = hash_plain_files(folder, err));
    json_t* checksums =
        json_pack("{s:o, s:o}", "model.safetensors", model_sums, "optimizer.safetensors", optimizer_sums);
    if (!checksums) { fatal("out of memory: state.json"); }
    if (ok) {
        json_t* state = state_to_json(s, p, c, checksums, files);
        ok = state_save(folder, state, err) && sync_parent(model, err);
        json_decref(state);
    }
    json_decref(checksums);
    json_decref(files);
    free(model);
    free(optimizer);
    return ok;
}

void checkpoint_hand_over(const Optimizer* o) { // in the order of checkpoint_write
    optimizer_whole(o, o->masters);
    optimizer_whole(o, o->m);
    optimizer_whole(o, o->v);
}

// Returns the bytes that a checkpoint takes, rounded up: masters and two moments, and a little for the rest.
static size_t checkpoint_bytes(const GPT2* g) {
    return 3 * g->params_table.size * sizeof(float) + ((size_t)1 << 20);
}

static bool checkpoint_room(const char* out, const GPT2* g, Error* err) {
    struct statvfs v;
    if (statvfs(out, &v) != 0) { return fail(err, "%s: %s", out, strerror(errno)); }
    const size_t room = (size_t)v.f_bavail * v.f_frsize, need = checkpoint_bytes(g);
    if (room >= need) { return true; }
    return fail(
        err,
        "%s: a checkpoint takes %.1f MB, but only %.1f MB are free: make room, lower --keep, or give another --out",
        out, (double)need / 1e6, (double)room / 1e6);
}

char* checkpoint_save(const char* out, const Optimizer* o, const TrainState* s, const Plan* p, const Config* c, int eot,
                      Error* err) {
    char *path = format("%s/step_%08lld", out, s->step), *temporary = format("%s/.tmp-step_%08lld", out, s->step);
    bool ok = checkpoint_room(out, o->model, err) && make_directories(temporary, err) &&
              checkpoint_write(temporary, o, s, p, c, eot, err);
    if (ok && path_exists(path)) { checkpoint_remove(path); } // the run resumed from an older one and came here again
    if (ok && rename(temporary, path) != 0) { ok = fail(err, "%s: cannot rename to it: %s", path, strerror(errno)); }
    ok = ok && sync_parent(path, err);
    if (!ok) { nftw(temporary, remove_entry, 8, FTW_DEPTH | FTW_PHYS); }
    free(temporary);
    size_t count, behind = 0;
    long long* steps = checkpoint_list(out, &count);
    for (size_t i = 0; ok && c->keep > 0 && i < count; i++) { // newer ones go too: the run resumed from an older one
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

bool checkpoint_load(Optimizer* o, TrainState* s, const char* folder, json_t* state, Error* err) {
    char* path = format("%s/optimizer.safetensors", folder);
    const TensorBlock moments[2] = {{"m.", o->m, false}, {"v.", o->v, false}};
    SafeTensors file;
    bool ok = hf_load_weights(o->model, o, folder, err) && safetensors_open(&file, path, err);
    free(path);
    if (!ok) { return false; }
    ok = tensors_load(&file, o, moments, 2, err);
    safetensors_close(&file);
    const char* hash = json_string_value(json_object_get(state, "data_hash"));
    s->step = json_integer_value(json_object_get(state, "step"));
    s->tokens = json_integer_value(json_object_get(state, "tokens"));
    s->window = (uint64_t)json_integer_value(json_object_get(state, "window"));
    s->data_hash = hash ? strtoull(hash, NULL, 16) : 0;
    return ok && outliers_from_json(&s->loss_window, json_object_get(state, "loss_window"), err) &&
           outliers_from_json(&s->norm_window, json_object_get(state, "norm_window"), err);
}
