#include "safetensors.h"
#include "../base/rounding.h"
#include "../base/json.h"
#include <limits.h>

// Conversions of n elements.
static void float_from_f32(float* out, const void* in, size_t n) { memcpy(out, in, n * sizeof *out); }

// Returns element i of numbers of 16 bits.
static uint16_t bits_at(const void* in, size_t i) {
    uint16_t bits;
    memcpy(&bits, (const char*)in + i * sizeof bits, sizeof bits);
    return bits;
}

static void float_from_f16(float* out, const void* in, size_t n) {
    for (size_t i = 0; i < n; i++) { out[i] = fp16_value(bits_at(in, i)); }
}

static void float_from_bf16(float* out, const void* in, size_t n) {
    for (size_t i = 0; i < n; i++) { out[i] = bf16_value(bits_at(in, i)); }
}

static void float_from_f64(float* out, const void* in, size_t n) {
    for (size_t i = 0; i < n; i++) { out[i] = (float)((const double*)in)[i]; }
}

static const SafeTensorType safetensor_types[] = {
    {"F32", 4, float_from_f32}, {"F16", 2, float_from_f16}, {"BF16", 2, float_from_bf16}, {"F64", 8, float_from_f64},
    {"I64", 8, NULL}, {"I32", 4, NULL}, {"I16", 2, NULL}, {"I8", 1, NULL}, {"U64", 8, NULL}, {"U32", 4, NULL},
    {"U16", 2, NULL}, {"U8", 1, NULL}, {"BOOL", 1, NULL}, {"C64", 8, NULL}, {"F8_E4M3", 1, NULL}, {"F8_E5M2", 1, NULL},
    {"F8_E8M0", 1, NULL}, {"F8_E4M3FNUZ", 1, NULL}, {"F8_E5M2FNUZ", 1, NULL},
};

// Returns the type of this name, or NULL. The formats of less than a byte (F4, F6) are left out.
static const SafeTensorType* safetensor_type(const char* name) {
    for (size_t i = 0; i < sizeof safetensor_types / sizeof safetensor_types[0]; i++) {
        if (strcmp(safetensor_types[i].name, name) == 0) { return &safetensor_types[i]; }
    }
    return NULL;
}

size_t safetensor_elements(const SafeTensor* t) { return t->bytes / t->type->bytes; }

// Computes the product of the shape times the size of an element. Returns false if it overflows.
static bool safetensor_size(const SafeTensor* t, size_t* bytes) {
    *bytes = t->type->bytes;
    for (int d = 0; d < t->dims; d++) {
        if (__builtin_mul_overflow(*bytes, t->shape[d], bytes)) { return false; }
    }
    return true;
}

void safetensors_close(SafeTensors* s) {
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

// Reads a non-negative integer of the header.
static bool safetensors_integer(const json_t* value, size_t* out) {
    if (!json_is_integer(value) || json_integer_value(value) < 0) { return false; }
    *out = (size_t)json_integer_value(value);
    return true;
}

// Reads one entry of the header. `t` has its name already.
static bool safetensors_parse_tensor(SafeTensor* t, const SafeTensorsFile* f, const json_t* entry, Error* err) {
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

static int safetensors_by_position(const void* a, const void* b) {
    const SafeTensor *s = (const SafeTensor*)a, *t = (const SafeTensor*)b;
    if (s->begin != t->begin) { return s->begin < t->begin ? -1 : 1; }
    return (s->bytes > t->bytes) - (s->bytes < t->bytes); // an empty tensor stands before the next one
}

static int safetensors_by_name(const void* a, const void* b) {
    return strcmp(((const SafeTensor*)a)->name, ((const SafeTensor*)b)->name);
}

// Checks that the tensors of one file cover its data, each byte once. Sorts them by position.
static bool safetensors_check_cover(SafeTensor* tensors, int count, const SafeTensorsFile* f, Error* err) {
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
static bool safetensors_parse_header(SafeTensors* s, int file, json_t* header, Error* err) {
    const SafeTensorsFile* f = &s->files[file];
    const int first = s->count;
    const char *name, *key;
    json_t *entry, *value;
    const size_t room = (size_t)first + json_object_size(header);
    s->tensors = realloc_or_die(s->tensors, room * sizeof *s->tensors, "the list of tensors");
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

static void safetensors_init(SafeTensors* s) {
    memset(s, 0, sizeof *s);
    s->metadata = json_object();
    if (!s->metadata) { fatal("out of memory: metadata"); }
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
    for (int low = 0, high = s->count; low < high;) {
        int middle = low + (high - low) / 2, order = strcmp(name, s->tensors[middle].name);
        if (order == 0) { return &s->tensors[middle]; }
        if (order < 0) { high = middle; } else { low = middle + 1; }
    }
    return NULL;
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
    safetensors_init(s);
    bool ok = safetensors_add_file(s, path, err) && safetensors_sort(s, err);
    if (!ok) { safetensors_close(s); }
    return ok;
}

// Adds the files that an index names, {"weight_map": {tensor: file, ...}}, each once.
static bool safetensors_add_indexed(SafeTensors* s, const char* folder, const char* index_path, Error* err) {
    json_t* index = json_read(index_path, JSON_MOST, JSON_REJECT_DUPLICATES, err);
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

bool safetensors_open_folder(SafeTensors* s, const char* folder, Error* err) {
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

bool safetensors_read(const SafeTensors* s, const SafeTensor* t, size_t first_byte, void* out,
                      size_t bytes, Error* err) {
    const SafeTensorsFile* f = &s->files[t->file];
    if (first_byte > t->bytes || bytes > t->bytes - first_byte) {
        return fail(err, "%s: tensor %s: asked for %zu bytes at %zu, but it has %zu", f->path, t->name, bytes,
                    first_byte, t->bytes);
    }
    return read_exactly(f->fd, f->path, out, bytes, f->data_begin + t->begin + first_byte, err);
}

bool safetensors_read_float(const SafeTensors* s, const SafeTensor* t, size_t first, float* out,
                            size_t count, Error* err) {
    double piece[1 << 12]; // aligned for F64
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

void safetensors_abandon(SafeTensorsWriter* w) {
    if (w->file) { fclose(w->file); }
    for (int i = 0; i < w->count; i++) { free(w->tensors[i].name); }
    free(w->tensors);
    free(w->path);
    json_decref(w->header);
    memset(w, 0, sizeof *w);
}

bool safetensors_create(SafeTensorsWriter* w, const char* path, Error* err) {
    memset(w, 0, sizeof *w);
    w->path = format("%s", path);
    w->current = -1;
    w->header = json_object();
    if (!w->header) { fatal("out of memory: the header of %s", path); }
    blake2b_begin(&w->hash);
    w->file = fopen(path, "wb");
    return w->file || fail_system(err, path, "create");
}

// Puts an entry into an object of the header; takes `value` over. Fails on text that is not UTF-8.
static bool safetensors_put(SafeTensorsWriter* w, json_t* object, const char* key, json_t* value, Error* err) {
    if (w->current >= 0) {
        json_decref(value);
        return fail(err, "%s: %s comes after the header was written", w->path, key);
    }
    return json_object_set_new(object, key, value) == 0 ? true : fail(err, "%s: %s: not UTF-8 text", w->path, key);
}

bool safetensors_annotate(SafeTensorsWriter* w, const char* key, const char* value, Error* err) {
    json_t* metadata = json_object_get(w->header, "__metadata__");
    if (!metadata) {
        metadata = json_object();
        if (!safetensors_put(w, w->header, "__metadata__", metadata, err)) { return false; }
    }
    return safetensors_put(w, metadata, key, json_string(value), err);
}

bool safetensors_declare(SafeTensorsWriter* w, const char* name, const char* type, const size_t* shape,
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
    w->tensors = realloc_or_die(w->tensors, ((size_t)w->count + 1) * sizeof t, "the list of tensors");
    w->tensors[w->count++] = t;
    w->bytes += t.bytes;
    return true;
}

// Appends bytes to the file and to its checksum.
static bool safetensors_put_bytes(SafeTensorsWriter* w, const void* data, size_t bytes, Error* err) {
    blake2b_add(&w->hash, data, bytes);
    return fwrite(data, 1, bytes, w->file) == bytes || fail_system(err, w->path, "write");
}

static bool safetensors_write_header(SafeTensorsWriter* w, Error* err) {
    char* text = json_dumps(w->header, JSON_COMPACT);
    if (!text) { fatal("out of memory: the header of %s", w->path); }
    const size_t used = strlen(text);
    uint64_t n = round_up(used, 8);
    bool ok = n <= SAFETENSORS_MAX_HEADER ? true : fail(err, "%s: a header of %zu bytes is too long", w->path, used);
    if (ok) {
        char* padded = format("%-*s", (int)n, text);
        ok = safetensors_put_bytes(w, &n, sizeof n, err) && safetensors_put_bytes(w, padded, n, err);
        free(padded);
    }
    free(text);
    w->current = 0;
    return ok;
}

// Moves on to the next tensor that lacks bytes, if the current one is complete.
static bool safetensors_advance(SafeTensorsWriter* w, Error* err) {
    if (w->current < 0 && !safetensors_write_header(w, err)) { return false; }
    while (w->current < w->count && w->written == w->tensors[w->current].bytes) {
        w->current++;
        w->written = 0;
    }
    return true;
}

bool safetensors_write(SafeTensorsWriter* w, const char* name, const void* data, size_t bytes, Error* err) {
    if (!safetensors_advance(w, err)) { return false; }
    if (bytes == 0) { return true; }
    if (w->current == w->count || strcmp(w->tensors[w->current].name, name) != 0) {
        return fail(err, "%s: tensor %s is written out of order: expected %s", w->path, name,
                    w->current == w->count ? "the end" : w->tensors[w->current].name);
    }
    if (bytes > w->tensors[w->current].bytes - w->written) {
        return fail(err, "%s: tensor %s gets more than its %zu bytes", w->path, name, w->tensors[w->current].bytes);
    }
    w->written += bytes;
    return safetensors_put_bytes(w, data, bytes, err);
}

bool safetensors_finish(SafeTensorsWriter* w, char hex[BLAKE2B_HEX + 1], Error* err) {
    if (!safetensors_advance(w, err)) { return false; }
    if (w->current < w->count) {
        return fail(err, "%s: tensor %s lacks %zu bytes", w->path, w->tensors[w->current].name,
                    w->tensors[w->current].bytes - w->written);
    }
    FILE* file = w->file;
    w->file = NULL;
    bool ok = close_synced(file, w->path, err);
    if (hex) { blake2b_end(&w->hash, hex); }
    safetensors_abandon(w);
    return ok;
}
