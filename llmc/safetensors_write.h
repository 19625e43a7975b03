// Writing safetensors files (see safetensors_format.h) as a stream: create; annotate and declare; write every tensor's
// bytes in the order of declaration; finish.
#pragma once
#include "safetensors_format.h"
#include <limits.h>

typedef struct {
    char* path;
    FILE* file;
    json_t* header;
    SafeTensor* tensors;
    int count;
    size_t bytes;   // of all tensors declared
    int current;    // the tensor that is being written; -1: the header is not written yet
    size_t written; // bytes of it
} SafeTensorsWriter;

// Gives up, leaving the unfinished file. Harmless after any of the functions below.
static inline void safetensors_abandon(SafeTensorsWriter* w) {
    if (w->file) { fclose(w->file); }
    for (int i = 0; i < w->count; i++) { free(w->tensors[i].name); }
    free(w->tensors);
    free(w->path);
    json_decref(w->header);
    memset(w, 0, sizeof *w);
}

// Begins a file, in place: who wants it to appear whole or not at all renames it afterwards. Here as in the functions
// below the caller calls safetensors_abandon after a failure.
static inline bool safetensors_create(SafeTensorsWriter* w, const char* path, Error* err) {
    memset(w, 0, sizeof *w);
    w->path = format("%s", path);
    w->current = -1;
    w->header = json_object();
    if (!w->header) { fatal("out of memory: the header of %s", path); }
    w->file = fopen(path, "wb");
    return w->file ? true : fail(err, "%s: cannot create: %s", path, strerror(errno));
}

// Puts an entry into an object of the header; takes `value` over. Fails on text that is not UTF-8.
static inline bool safetensors_put(SafeTensorsWriter* w, json_t* object, const char* key, json_t* value, Error* err) {
    if (w->current >= 0) {
        json_decref(value);
        return fail(err, "%s: %s comes after the header was written", w->path, key);
    }
    return json_object_set_new(object, key, value) == 0 ? true : fail(err, "%s: %s: not UTF-8 text", w->path, key);
}

// Adds a string to the metadata, or replaces it.
static inline bool safetensors_annotate(SafeTensorsWriter* w, const char* key, const char* value, Error* err) {
    json_t* metadata = json_object_get(w->header, "__metadata__");
    if (!metadata) {
        metadata = json_object();
        if (!safetensors_put(w, w->header, "__metadata__", metadata, err)) { return false; }
    }
    return safetensors_put(w, metadata, key, json_string(value), err);
}

// Declares a tensor. Readers that map files want larger types before smaller ones.
static inline bool safetensors_declare(SafeTensorsWriter* w, const char* name, const char* type, const size_t* shape,
                                       int dims, Error* err) {
    SafeTensor t;
    memset(&t, 0, sizeof t);
    t.type = safetensor_type(type);
    t.begin = w->bytes;
    t.dims = dims;
    if (!t.type) { return fail(err, "%s: tensor %s: unknown dtype %s", w->path, name, type); }
    if (dims > SAFETENSORS_MAX_DIMS) { return fail(err, "%s: tensor %s: %d dimensions", w->path, name, dims); }
    if (strcmp(name, "__metadata__") == 0 || json_object_get(w->header, name)) {
        return fail(err, "%s: tensor %s: the name is taken", w->path, name);
    }
    if (dims > 0) { memcpy(t.shape, shape, (size_t)dims * sizeof *shape); }
    if (!safetensor_size(&t, &t.bytes) || t.bytes > SSIZE_MAX - t.begin) {
        return fail(err, "%s: tensor %s: the shape overflows", w->path, name);
    }
    json_t* sizes = json_array();
    json_t* entry = json_pack("{s:s, s:o, s:[I, I]}", "dtype", type, "shape", sizes, "data_offsets",
                              (json_int_t)t.begin, (json_int_t)(t.begin + t.bytes));
    bool made = entry != NULL;
    for (int d = 0; made && d < dims; d++) {
        made = json_array_append_new(sizes, json_integer((json_int_t)t.shape[d])) == 0;
    }
    if (!made) { fatal("out of memory: the header of %s", w->path); }
    if (!safetensors_put(w, w->header, name, entry, err)) { return false; }
    t.name = format("%s", name);
    w->tensors = (SafeTensor*)realloc_or_die(w->tensors, ((size_t)w->count + 1) * sizeof t, "the list of tensors");
    w->tensors[w->count++] = t;
    w->bytes += t.bytes;
    return true;
}

static inline bool safetensors_write_header(SafeTensorsWriter* w, Error* err) {
    char* text = json_dumps(w->header, JSON_COMPACT);
    if (!text) { fatal("out of memory: the header of %s", w->path); }
    const size_t used = strlen(text);
    uint64_t n = round_up(used, 8);
    bool ok = n <= SAFETENSORS_MAX_HEADER ? true : fail(err, "%s: a header of %zu bytes is too long", w->path, used);
    if (ok && (fwrite(&n, sizeof n, 1, w->file) != 1 || fprintf(w->file, "%-*s", (int)n, text) != (int)n)) {
        ok = fail(err, "%s: cannot write: %s", w->path, strerror(errno));
    }
    free(text);
    w->current = 0;
    return ok;
}

// Moves on to the next tensor that lacks bytes, if the current one is complete.
static inline bool safetensors_advance(SafeTensorsWriter* w, Error* err) {
    if (w->current < 0 && !safetensors_write_header(w, err)) { return false; }
    while (w->current < w->count && w->written == w->tensors[w->current].bytes) {
        w->current++;
        w->written = 0;
    }
    return true;
}

// Appends bytes of tensor `name`, all of whose predecessors must be complete. An empty tensor needs no call.
static inline bool safetensors_write(SafeTensorsWriter* w, const char* name, const void* data, size_t bytes,
                                     Error* err) {
    if (!safetensors_advance(w, err)) { return false; }
    if (bytes == 0) { return true; }
    if (w->current == w->count || strcmp(w->tensors[w->current].name, name) != 0) {
        return fail(err, "%s: tensor %s is written out of order: expected %s", w->path, name,
                    w->current == w->count ? "the end" : w->tensors[w->current].name);
    }
    if (bytes > w->tensors[w->current].bytes - w->written) {
        return fail(err, "%s: tensor %s gets more than its %zu bytes", w->path, name, w->tensors[w->current].bytes);
    }
    if (fwrite(data, 1, bytes, w->file) != bytes) {
        return fail(err, "%s: cannot write: %s", w->path, strerror(errno));
    }
    w->written += bytes;
    return true;
}

// Completes the file: when this returns true it survives a power cut, once sync_parent() was called too.
static inline bool safetensors_finish(SafeTensorsWriter* w, Error* err) {
    if (!safetensors_advance(w, err)) { return false; }
    if (w->current < w->count) {
        return fail(err, "%s: tensor %s lacks %zu bytes", w->path, w->tensors[w->current].name,
                    w->tensors[w->current].bytes - w->written);
    }
    FILE* file = w->file;
    w->file = NULL;
    bool ok = close_synced(file, w->path, err);
    safetensors_abandon(w);
    return ok;
}
