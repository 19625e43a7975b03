// Reading safetensors files (see safetensors_format.h) in pieces. Nothing in a file is trusted: whatever
// safetensors_open lets through can be read within the file's bounds.
#pragma once
#include "safetensors_format.h"

typedef struct {
    char* path;
    int fd;
    size_t data_begin, data_bytes;
} SafeTensorsFile;

// The tensors of one file, or of all the files of a model that was cut into several.
typedef struct {
    SafeTensorsFile* files;
    int num_files;
    SafeTensor* tensors; // sorted by name
    int count;
    json_t* metadata;    // an object of strings; empty if there is none
} SafeTensors;

static inline void safetensors_close(SafeTensors* s) {
    for (int i = 0; i < s->num_files; i++) {
        if (s->files[i].fd >= 0) { close(s->files[i].fd); }
        free(s->files[i].path);
    }
    for (int i = 0; i < s->count; i++) { free(s->tensors[i].name); }
    free(s->files);
    free(s->tensors);
    json_decref(s->metadata);
    memset(s, 0, sizeof *s);
}

// A non-negative integer of the header.
static inline bool safetensors_integer(const json_t* value, size_t* out) {
    if (!json_is_integer(value) || json_integer_value(value) < 0) { return false; }
    *out = (size_t)json_integer_value(value);
    return true;
}

// One entry of the header. `t` has its name already.
static inline bool safetensors_parse_tensor(SafeTensor* t, const SafeTensorsFile* f, const json_t* entry, Error* err) {
    const char* type = json_string_value(json_object_get(entry, "dtype"));
    const json_t* shape = json_object_get(entry, "shape");
    const json_t* offsets = json_object_get(entry, "data_offsets");
    size_t end, bytes;
    if (!type || !json_is_array(shape) || !json_is_array(offsets)) {
        return fail(err, "%s: tensor %s: needs a dtype, a shape and data_offsets", f->path, t->name);
    }
    t->type = safetensor_type(type);
    if (!t->type) { return fail(err, "%s: tensor %s: unknown dtype %s", f->path, t->name, type); }
    if (json_array_size(shape) > SAFETENSORS_MAX_DIMS) {
        return fail(err, "%s: tensor %s: %zu dimensions, at most %d are supported", f->path, t->name,
                    json_array_size(shape), SAFETENSORS_MAX_DIMS);
    }
    t->dims = (int)json_array_size(shape);
    for (int d = 0; d < t->dims; d++) {
        if (!safetensors_integer(json_array_get(shape, (size_t)d), &t->shape[d])) {
            return fail(err, "%s: tensor %s: dimension %d is not a size", f->path, t->name, d);
        }
    }
    if (json_array_size(offsets) != 2 || !safetensors_integer(json_array_get(offsets, 0), &t->begin) ||
        !safetensors_integer(json_array_get(offsets, 1), &end) || t->begin > end) {
        return fail(err, "%s: tensor %s: data_offsets are not [begin, end]", f->path, t->name);
    }
    if (end > f->data_bytes) {
        return fail(err, "%s: tensor %s ends at byte %zu of the data, of which there are %zu: the file was cut short; "
                    "download or make it again", f->path, t->name, end, f->data_bytes);
    }
    if (!safetensor_size(t, &bytes)) { return fail(err, "%s: tensor %s: the shape overflows", f->path, t->name); }
    if (bytes != end - t->begin) {
        return fail(err, "%s: tensor %s: dtype and shape make %zu bytes, data_offsets %zu", f->path, t->name, bytes,
                    end - t->begin);
    }
    t->bytes = bytes;
    return true;
}

static inline int safetensors_by_position(const void* a, const void* b) {
    const SafeTensor *s = (const SafeTensor*)a, *t = (const SafeTensor*)b;
    if (s->begin != t->begin) { return s->begin < t->begin ? -1 : 1; }
    return (s->bytes > t->bytes) - (s->bytes < t->bytes); // an empty tensor stands before the next one
}

static inline int safetensors_by_name(const void* a, const void* b) {
    return strcmp(((const SafeTensor*)a)->name, ((const SafeTensor*)b)->name);
}

// The tensors of one file must cover its data, each byte once. Sorts them by position.
static inline bool safetensors_check_cover(SafeTensor* tensors, int count, const SafeTensorsFile* f, Error* err) {
    size_t at = 0;
    if (count > 0) { qsort(tensors, (size_t)count, sizeof *tensors, safetensors_by_position); }
    for (int i = 0; i < count; i++) {
        if (tensors[i].begin != at) {
            return fail(err, "%s: tensor %s begins at byte %zu of the data, where %zu was expected: tensors %s",
                        f->path, tensors[i].name, tensors[i].begin, at,
                        tensors[i].begin < at ? "overlap" : "leave a hole");
        }
        at += tensors[i].bytes;
    }
    if (at != f->data_bytes) {
        return fail(err, "%s: %zu bytes of data, but the tensors are %zu bytes", f->path, f->data_bytes, at);
    }
    return true;
}

// Takes the tensors and the metadata of a file's header.
static inline bool safetensors_parse_header(SafeTensors* s, int file, json_t* header, Error* err) {
    const SafeTensorsFile* f = &s->files[file];
    const int first = s->count;
    const char *name, *key;
    json_t *entry, *value;
    const size_t room = (size_t)first + json_object_size(header);
    s->tensors = (SafeTensor*)realloc_or_die(s->tensors, room * sizeof *s->tensors, "the list of tensors");
    json_object_foreach(header, name, entry) {
        if (!json_is_object(entry)) { return fail(err, "%s: %s is not a JSON object", f->path, name); }
        if (strcmp(name, "__metadata__") == 0) {
            json_object_foreach(entry, key, value) {
                if (!json_is_string(value)) { return fail(err, "%s: __metadata__: %s is not a string", f->path, key); }
            }
            if (json_object_update(s->metadata, entry) != 0) { fatal("out of memory: the metadata of %s", f->path); }
            continue;
        }
        SafeTensor* t = &s->tensors[s->count++];
        memset(t, 0, sizeof *t);
        t->name = format("%s", name);
        t->file = file;
        if (!safetensors_parse_tensor(t, f, entry, err)) { return false; }
    }
    return safetensors_check_cover(s->tensors + first, s->count - first, f, err);
}

// The JSON of a file's header, which the caller gives back; NULL on failure. Sets where the data are.
static inline json_t* safetensors_load_header(SafeTensorsFile* f, Error* err) {
    struct stat st;
    uint64_t n = 0;
    if (fstat(f->fd, &st) != 0) { fail(err, "%s: cannot stat: %s", f->path, strerror(errno)); return NULL; }
    if (!S_ISREG(st.st_mode)) { fail(err, "%s: not a regular file", f->path); return NULL; }
    size_t size = (size_t)st.st_size;
    if (size < sizeof n) { fail(err, "%s: %zu bytes are too few for a safetensors file", f->path, size); return NULL; }
    if (!read_exactly(f->fd, f->path, &n, sizeof n, 0, err)) { return NULL; }
    if (n > SAFETENSORS_MAX_HEADER || n > size - sizeof n) {
        fail(err, "%s: a header of %llu bytes in a file of %zu: not a safetensors file, or one that was cut short",
             f->path, (unsigned long long)n, size);
        return NULL;
    }
    f->data_begin = sizeof n + (size_t)n;
    f->data_bytes = size - f->data_begin;
    char* text = (char*)alloc_or_die((size_t)n, 1, "a safetensors header");
    json_t* header = NULL;
    json_error_t e;
    if (read_exactly(f->fd, f->path, text, (size_t)n, sizeof n, err)) {
        if (n == 0 || text[0] != '{') {
            fail(err, "%s: the header does not begin with {: not a safetensors file", f->path);
        } else if (!(header = json_loadb(text, (size_t)n, JSON_REJECT_DUPLICATES, &e))) {
            fail(err, "%s: the header, line %d column %d: %s", f->path, e.line, e.column, e.text);
        }
    }
    free(text);
    return header;
}

static inline void safetensors_init(SafeTensors* s) {
    memset(s, 0, sizeof *s);
    s->metadata = json_object();
    if (!s->metadata) { fatal("out of memory: metadata"); }
}

// Adds a file's tensors, unsorted.
static inline bool safetensors_add_file(SafeTensors* s, const char* path, Error* err) {
    const int file = s->num_files++;
    s->files = (SafeTensorsFile*)realloc_or_die(s->files, (size_t)s->num_files * sizeof *s->files, "the list of files");
    SafeTensorsFile* f = &s->files[file];
    memset(f, 0, sizeof *f);
    f->path = format("%s", path);
    f->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // O_NONBLOCK: a named pipe is refused, not waited for
    if (f->fd < 0) { return fail(err, "%s: cannot open: %s", path, strerror(errno)); }
    json_t* header = safetensors_load_header(f, err);
    bool ok = header && safetensors_parse_header(s, file, header, err);
    json_decref(header);
    return ok;
}

// NULL if there is none of this name.
static inline const SafeTensor* safetensors_find(const SafeTensors* s, const char* name) {
    for (int low = 0, high = s->count; low < high;) {
        int middle = low + (high - low) / 2, order = strcmp(name, s->tensors[middle].name);
        if (order == 0) { return &s->tensors[middle]; }
        if (order < 0) { high = middle; } else { low = middle + 1; }
    }
    return NULL;
}

// The string under `key`, or NULL.
static inline const char* safetensors_metadata(const SafeTensors* s, const char* key) {
    return json_string_value(json_object_get(s->metadata, key));
}

// Puts the tensors in the order of their names, of which none may be there twice.
static inline bool safetensors_sort(SafeTensors* s, Error* err) {
    if (s->count > 0) { qsort(s->tensors, (size_t)s->count, sizeof *s->tensors, safetensors_by_name); }
    for (int i = 1; i < s->count; i++) {
        const SafeTensor *a = &s->tensors[i - 1], *b = &s->tensors[i];
        if (strcmp(a->name, b->name) == 0) {
            return fail(err, "tensor %s is in %s and in %s", a->name, s->files[a->file].path, s->files[b->file].path);
        }
    }
    return true;
}

// Opens a file and checks its header; the caller closes it. Nothing is left open on failure.
static inline bool safetensors_open(SafeTensors* s, const char* path, Error* err) {
    safetensors_init(s);
    bool ok = safetensors_add_file(s, path, err) && safetensors_sort(s, err);
    if (!ok) { safetensors_close(s); }
    return ok;
}

// The files that an index names, {"weight_map": {tensor: file, ...}}, each once.
static inline bool safetensors_add_indexed(SafeTensors* s, const char* folder, const char* index_path, Error* err) {
    json_error_t e;
    json_t* index = json_load_file(index_path, JSON_REJECT_DUPLICATES, &e);
    if (!index) { return fail(err, "%s: line %d column %d: %s", index_path, e.line, e.column, e.text); }
    json_t* map = json_object_get(index, "weight_map");
    bool ok = json_is_object(map) ? true : fail(err, "%s: there is no weight_map", index_path);
    const char* name;
    json_t* value;
    json_object_foreach(map, name, value) {
        const char* file = json_string_value(value);
        if (!ok) { break; }
        if (!file || strchr(file, '/')) { // an index has no business outside its folder
            ok = fail(err, "%s: tensor %s: not the name of a file in the same folder", index_path, name);
            break;
        }
        char* path = format("%s/%s", folder, file);
        bool known = false;
        for (int i = 0; i < s->num_files; i++) { known = known || strcmp(s->files[i].path, path) == 0; }
        ok = known || safetensors_add_file(s, path, err);
        free(path);
    }
    ok = ok && safetensors_sort(s, err);
    json_object_foreach(map, name, value) {
        if (!ok) { break; }
        const SafeTensor* t = safetensors_find(s, name);
        const char* path = t ? s->files[t->file].path : "";
        if (!t || strcmp(path + strlen(folder) + 1, json_string_value(value)) != 0) {
            ok = fail(err, "%s: tensor %s is not in %s", index_path, name, json_string_value(value));
        }
    }
    json_decref(index);
    return ok;
}

// Opens the model in a Hugging Face folder: model.safetensors or, if there is none, the files that
// model.safetensors.index.json names.
static inline bool safetensors_open_folder(SafeTensors* s, const char* folder, Error* err) {
    char* whole = format("%s/model.safetensors", folder);
    char* index = format("%s/model.safetensors.index.json", folder);
    bool ok = true;
    safetensors_init(s);
    if (path_exists(whole)) {
        ok = safetensors_add_file(s, whole, err) && safetensors_sort(s, err);
    } else if (path_exists(index)) {
        ok = safetensors_add_indexed(s, folder, index, err);
    } else {
        ok = fail(err, "%s: there is neither model.safetensors nor model.safetensors.index.json", folder);
    }
    free(whole);
    free(index);
    if (!ok) { safetensors_close(s); }
    return ok;
}

// Reads a part of a tensor's bytes. Several threads may read at once.
static inline bool safetensors_read(const SafeTensors* s, const SafeTensor* t, size_t first_byte, void* out,
                                    size_t bytes, Error* err) {
    const SafeTensorsFile* f = &s->files[t->file];
    if (first_byte > t->bytes || bytes > t->bytes - first_byte) {
        return fail(err, "%s: tensor %s: asked for %zu bytes at %zu, but it has %zu", f->path, t->name, bytes,
                    first_byte, t->bytes);
    }
    return read_exactly(f->fd, f->path, out, bytes, f->data_begin + t->begin + first_byte, err);
}

// Reads a part of a tensor as floats, whichever floating type it is stored in.
static inline bool safetensors_read_float(const SafeTensors* s, const SafeTensor* t, size_t first, float* out,
                                          size_t count, Error* err) {
    double piece[1 << 12]; // aligned for every type
    const char* path = s->files[t->file].path;
    const size_t size = t->type->bytes, elements = safetensor_elements(t);
    if (!t->type->to_float) {
        return fail(err, "%s: tensor %s: weights cannot be of type %s: use F32, F16, BF16 or F64", path, t->name,
                    t->type->name);
    }
    if (first > elements || count > elements - first) {
        return fail(err, "%s: tensor %s: asked for %zu elements at %zu, but it has %zu", path, t->name, count, first,
                    elements);
    }
    for (size_t n; count > 0; first += n, out += n, count -= n) {
        n = min_size(count, sizeof piece / size);
        if (!safetensors_read(s, t, first * size, piece, n * size, err)) { return false; }
        t->type->to_float(out, piece, n);
    }
    return true;
}
