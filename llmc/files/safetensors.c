#include "safetensors.h"
#include "../base/file.h"
#include "../base/json.h"

void safetensors_close(SafeTensors* s) {
    for (int i = 0; i < s->num_files; i++) {
        if (s->files[i].fd >= 0) { close(s->files[i].fd); }
        free(s->files[i].path);
    }
    for (int i = 0; i < s->count; i++) { free(s->tensors[i].name); }
    free(s->files);
    free(s->tensors);
    memset(s, 0, sizeof *s);
}

// Reads a non-negative integer of the header.
static bool safetensors_integer(const json_t* value, size_t* out) {
    if (!json_is_integer(value) || json_integer_value(value) < 0) { return false; }
    *out = (size_t)json_integer_value(value);
    return true;
}

// Reads one entry of the header. `t` has its name already, and is zero otherwise.
static bool safetensors_parse_tensor(SafeTensor* t, const SafeTensorsFile* f, const json_t* entry, Error* err) {
    const char* dtype = json_string_value(json_object_get(entry, "dtype"));
    const json_t *shape = json_object_get(entry, "shape"), *offsets = json_object_get(entry, "data_offsets");
    const size_t dims = json_array_size(shape);
    size_t end = 0, bytes = 0;
    bool ok = dtype && json_is_array(shape) && dims <= SAFETENSORS_MAX_DIMS && json_array_size(offsets) == 2 &&
              safetensors_integer(json_array_get(offsets, 0), &t->begin) &&
              safetensors_integer(json_array_get(offsets, 1), &end) && t->begin <= end;
    t->elements = 1;
    for (size_t d = 0; ok && d < dims; d++) {
        ok = safetensors_integer(json_array_get(shape, d), &t->shape[d]) &&
             !__builtin_mul_overflow(t->elements, t->shape[d], &t->elements);
    }
    if (!ok) {
        return fail(err, "%s: tensor %s: damaged: it needs a dtype, a shape of at most %d sizes, and data_offsets "
                    "[begin, end]", f->path, t->name, SAFETENSORS_MAX_DIMS);
    }
    if (end > f->data_bytes) {
        return fail(err, "%s: tensor %s ends at byte %zu of the data, of which there are %zu: the file was cut short; "
                    "download or make it again", f->path, t->name, end, f->data_bytes);
    }
    t->dims = (int)dims;
    t->bytes = end - t->begin;
    snprintf(t->dtype, sizeof t->dtype, "%s", dtype);
    t->type = weight_type_of_safetensors(dtype);
    if (t->type && (__builtin_mul_overflow(t->elements, t->type->bytes, &bytes) || bytes != t->bytes)) {
        return fail(err, "%s: tensor %s: damaged: %zu elements of %s in %zu bytes", f->path, t->name, t->elements,
                    dtype, t->bytes);
    }
    return true;
}

static int safetensors_by_name(const void* a, const void* b) {
    return strcmp(((const SafeTensor*)a)->name, ((const SafeTensor*)b)->name);
}

// Takes the tensors of a file's header.
static bool safetensors_parse_header(SafeTensors* s, int file, json_t* header, Error* err) {
    const SafeTensorsFile* f = &s->files[file];
    const char* name;
    json_t* entry;
    const size_t room = (size_t)s->count + json_object_size(header);
    s->tensors = realloc_or_die(s->tensors, room * sizeof *s->tensors, "the list of tensors");
    json_object_foreach(header, name, entry) {
        if (!json_is_object(entry)) { return fail(err, "%s: %s is not a JSON object", f->path, name); }
        if (!strcmp(name, "__metadata__")) { continue; } // strings, which nothing here depends on
        SafeTensor* t = &s->tensors[s->count++];
        memset(t, 0, sizeof *t);
        t->name = format("%s", name);
        t->file = file;
        if (!safetensors_parse_tensor(t, f, entry, err)) { return false; }
    }
    return true;
}

// Reads the JSON of the header of a file of `size` bytes, a new reference; sets where the data are. NULL on failure.
static json_t* safetensors_load_header(SafeTensorsFile* f, size_t size, Error* err) {
    uint64_t n = 0;
    if (size < sizeof n) { fail(err, "%s: %zu bytes are too few for a safetensors file", f->path, size); return NULL; }
    if (!read_exactly(f->fd, f->path, &n, sizeof n, 0, err)) { return NULL; }
    if (n > SAFETENSORS_MAX_HEADER || n > size - sizeof n) {
        fail(err, "%s: a header of %llu bytes in a file of %zu: not a safetensors file, or one that was cut short",
             f->path, (unsigned long long)n, size);
        return NULL;
    }
    f->data_begin = sizeof n + (size_t)n;
    f->data_bytes = size - f->data_begin;
    char* text = alloc_or_die((size_t)n, 1, "a safetensors header");
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

// Adds a file's tensors, unsorted.
static bool safetensors_add_file(SafeTensors* s, const char* path, Error* err) {
    const int file = s->num_files++;
    s->files = realloc_or_die(s->files, (size_t)s->num_files * sizeof *s->files, "the list of files");
    SafeTensorsFile* f = &s->files[file];
    memset(f, 0, sizeof *f);
    f->path = format("%s", path);
    size_t size;
    f->fd = open_regular(path, &size, err);
    if (f->fd < 0) { return false; }
    json_t* header = safetensors_load_header(f, size, err);
    bool ok = header && safetensors_parse_header(s, file, header, err);
    json_decref(header);
    return ok;
}

const SafeTensor* safetensors_find(const SafeTensors* s, const char* name) {
    const SafeTensor key = {.name = (char*)name};
    return s->count > 0 ? bsearch(&key, s->tensors, (size_t)s->count, sizeof key, safetensors_by_name) : NULL;
}

// Puts the tensors in the order of their names, of which none may be there twice.
static bool safetensors_sort(SafeTensors* s, Error* err) {
    if (s->count > 0) { qsort(s->tensors, (size_t)s->count, sizeof *s->tensors, safetensors_by_name); }
    for (int i = 1; i < s->count; i++) {
        const SafeTensor *a = &s->tensors[i - 1], *b = &s->tensors[i];
        if (strcmp(a->name, b->name) == 0) {
            return fail(err, "tensor %s is in %s and in %s", a->name, s->files[a->file].path, s->files[b->file].path);
        }
    }
    return true;
}

bool safetensors_open(SafeTensors* s, const char* path, Error* err) {
    memset(s, 0, sizeof *s);
    bool ok = safetensors_add_file(s, path, err) && safetensors_sort(s, err);
    if (!ok) { safetensors_close(s); }
    return ok;
}

// Adds the files that an index names, {"weight_map": {tensor: file, ...}}, each once.
static bool safetensors_add_indexed(SafeTensors* s, const char* folder, const char* index_path, Error* err) {
    json_t* index = json_read_object(index_path, JSON_MOST, err);
    if (!index) { return false; }
    json_t* map = json_object_get(index, "weight_map");
    bool ok = json_is_object(map) ? true : fail(err, "%s: there is no weight_map", index_path);
    if (ok && json_object_size(map) == 0) { ok = fail(err, "%s: its weight_map names no tensors", index_path); }
    const char* name;
    json_t* value;
    json_object_foreach(map, name, value) {
        const char* file = json_string_value(value);
        if (!ok) { break; }
        if (!file || !*file || strchr(file, '/') || !strcmp(file, ".") || !strcmp(file, "..")) { // of its own folder
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
    json_decref(index);
    return ok;
}

bool safetensors_open_folder(SafeTensors* s, const char* folder, Error* err) {
    char* whole = format("%s/model.safetensors", folder);
    char* index = format("%s/model.safetensors.index.json", folder);
    bool ok = true;
    memset(s, 0, sizeof *s);
    if (path_exists(whole)) {
        ok = safetensors_add_file(s, whole, err) && safetensors_sort(s, err);
    } else if (path_exists(index)) {
        ok = safetensors_add_indexed(s, folder, index, err);
    } else {
        ok = fail(err, "%s: there is neither model.safetensors nor model.safetensors.index.json%s", folder,
                  folder_has(folder, "pytorch_model.bin")
                      ? ", only pytorch_model.bin: load and save_pretrained() it with transformers" : "");
    }
    free(whole);
    free(index);
    if (!ok) { safetensors_close(s); }
    return ok;
}

// Reads a part of a tensor.
static bool safetensors_read_part(const SafeTensors* s, const SafeTensor* t, size_t first_byte, void* out, size_t bytes,
                                  Error* err) {
    const SafeTensorsFile* f = &s->files[t->file];
    return read_exactly(f->fd, f->path, out, bytes, f->data_begin + t->begin + first_byte, err);
}

bool safetensors_read(const SafeTensors* s, const SafeTensor* t, void* out, Error* err) {
    return safetensors_read_part(s, t, 0, out, t->bytes, err);
}

bool safetensors_read_float(const SafeTensors* s, const SafeTensor* t, float* out, Error* err) {
    char piece[1 << 15];
    if (!t->type) {
        return fail(err, "%s: tensor %s: weights cannot be of type %s: use F32, F16 or BF16",
                    s->files[t->file].path, t->name, t->dtype);
    }
    const size_t size = t->type->bytes;
    for (size_t at = 0, n; at < t->elements; at += n) {
        n = min_size(t->elements - at, sizeof piece / size);
        if (!safetensors_read_part(s, t, at * size, piece, n * size, err)) { return false; }
        t->type->decode(out + at, piece, n);
    }
    return true;
}

// ---------------------------------------------------------------------------------------------------------------------
// writing

void safetensors_abandon(SafeTensorsWriter* w) {
    if (w->file) { fclose(w->file); }
    free(w->path);
    json_decref(w->header);
    memset(w, 0, sizeof *w);
}

bool safetensors_create(SafeTensorsWriter* w, const char* path, Error* err) {
    memset(w, 0, sizeof *w);
    w->path = format("%s", path);
    w->header = json_pack("{s:{s:s}}", "__metadata__", "format", "pt"); // transformers asks for it
    blake2b_begin(&w->hash);
    w->file = fopen(path, "wb");
    return w->file || fail_system(err, path, "create");
}

void safetensors_declare(SafeTensorsWriter* w, const char* name, const char* dtype, const size_t* shape, int dims,
                         size_t bytes) {
    json_t* sizes = json_array();
    for (int d = 0; d < dims; d++) { json_array_append_new(sizes, json_integer((json_int_t)shape[d])); }
    json_object_set_new(w->header, name, json_pack("{s:s, s:o, s:[I, I]}", "dtype", dtype, "shape", sizes,
                                                   "data_offsets", (json_int_t)w->declared,
                                                   (json_int_t)(w->declared + bytes)));
    w->declared += bytes;
}

// Appends bytes to the file and to its checksum.
static bool safetensors_put(SafeTensorsWriter* w, const void* data, size_t bytes, Error* err) {
    blake2b_add(&w->hash, data, bytes);
    return fwrite(data, 1, bytes, w->file) == bytes || fail_system(err, w->path, "write");
}

// Writes the header, unless it was written.
static bool safetensors_write_header(SafeTensorsWriter* w, Error* err) {
    if (!w->header) { return true; }
    char* text = json_dumps(w->header, JSON_COMPACT);
    const uint64_t n = round_up(strlen(text), 8);
    char* padded = format("%-*s", (int)n, text);
    json_decref(w->header);
    w->header = NULL;
    const bool ok = safetensors_put(w, &n, sizeof n, err) && safetensors_put(w, padded, n, err);
    free(padded);
    free(text);
    return ok;
}

bool safetensors_write(SafeTensorsWriter* w, const void* data, size_t bytes, Error* err) {
    w->written += bytes;
    return safetensors_write_header(w, err) && safetensors_put(w, data, bytes, err);
}

bool safetensors_finish(SafeTensorsWriter* w, char hex[BLAKE2B_HEX + 1], Error* err) {
    if (w->written != w->declared) {
        return fail(err, "%s: %zu bytes of tensors, but %zu are declared", w->path, w->written, w->declared);
    }
    if (!safetensors_write_header(w, err)) { return false; }
    FILE* file = w->file;
    w->file = NULL;
    const bool ok = close_synced(file, w->path, err);
    if (hex) { blake2b_end(&w->hash, hex); }
    safetensors_abandon(w);
    return ok;
}
