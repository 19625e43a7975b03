#include "gguf.h"
#include "../base/file.h"

// ---------------------------------------------------------------------------------------------------------------------
// reading

// A header that is being read.
typedef struct {
    FILE* f;
    const char* path;
    size_t left; // bytes
    Error* err;
} HeaderReader;

static bool take(HeaderReader* c, void* out, size_t bytes) {
    if (bytes > c->left || fread(out, 1, bytes, c->f) != bytes) {
        return fail(c->err, "%s: its header goes beyond its end: it was cut short, or is damaged", c->path);
    }
    c->left -= bytes;
    return true;
}

static bool skip(HeaderReader* c, uint64_t bytes) {
    if (bytes > c->left || fseeko(c->f, (off_t)bytes, SEEK_CUR) != 0) {
        return fail(c->err, "%s: a length of %llu bytes where %zu are left: damaged", c->path,
                    (unsigned long long)bytes, c->left);
    }
    c->left -= (size_t)bytes;
    return true;
}

// Reads a string of up to `room` - 1 bytes; a longer one, or one with a 0, is skipped and leaves `out` empty.
static bool take_text(HeaderReader* c, char* out, size_t room) {
    uint64_t bytes;
    *out = 0;
    if (!take(c, &bytes, sizeof bytes)) { return false; }
    if (bytes >= room) { return skip(c, bytes); }
    if (!take(c, out, (size_t)bytes)) { return false; }
    out[bytes] = 0;
    if (memchr(out, 0, (size_t)bytes)) { *out = 0; }
    return true;
}

// Returns the bytes of a number of this type; 0 for other types.
static size_t number_bytes(uint32_t type) {
    static const unsigned char bytes[NUM_GGUF_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return type < NUM_GGUF_TYPES ? bytes[type] : 0;
}

static bool skip_array(HeaderReader* c, const char* key) {
    uint32_t type;
    uint64_t count, ignored;
    char text[1];
    if (!take(c, &type, sizeof type) || !take(c, &count, sizeof count)) { return false; }
    const size_t bytes = type == GGUF_STRING ? sizeof ignored : number_bytes(type);
    if (bytes == 0) { return fail(c->err, "%s: %s: an array of type %u is not read", c->path, key, type); }
    if (count > c->left / bytes) {
        return fail(c->err, "%s: %s: %llu values in %zu bytes: damaged", c->path, key, (unsigned long long)count,
                    c->left);
    }
    if (type != GGUF_STRING) { return skip(c, count * bytes); }
    for (uint64_t i = 0; i < count; i++) {
        if (!take_text(c, text, sizeof text)) { return false; }
    }
    return true;
}

static bool take_number(HeaderReader* c, GgufPair* p) {
    union { uint64_t u64; float f32; double f64; } x = {.u64 = 0};
    if (!take(c, &x, number_bytes(p->type))) { return false; }
    p->number = p->type == GGUF_F32 ? (double)x.f32 : p->type == GGUF_F64 ? x.f64 : (double)x.u64;
    return true;
}

static bool take_pair(HeaderReader* c, Gguf* g) {
    GgufPair p;
    uint32_t type;
    memset(&p, 0, sizeof p);
    if (!take_text(c, p.key, sizeof p.key) || !take(c, &type, sizeof type)) { return false; }
    if (type == GGUF_ARRAY) { return skip_array(c, p.key); }
    p.type = (GgufType)type;
    if (type == GGUF_STRING) {
        if (!take_text(c, p.text, sizeof p.text)) { return false; }
    } else if (number_bytes(type) == 0) {
        return fail(c->err, "%s: %s: unknown type %u", c->path, p.key, type);
    } else if (!take_number(c, &p)) {
        return false;
    }
    if (!*p.key) { return true; }
    g->pairs = grown(g->pairs, g->num_pairs, sizeof p, "the pairs of a GGUF file");
    g->pairs[g->num_pairs++] = p;
    return true;
}

// Sets elements and bytes from the shape; false if they overflow or end inside of a block.
static bool tensor_extent(GgufTensor* t) {
    t->elements = 1;
    for (int d = 0; d < t->dims; d++) {
        if (__builtin_mul_overflow(t->elements, t->shape[d], &t->elements)) { return false; }
    }
    if (!t->type) { return true; }
    const size_t blocks = t->elements / t->type->block;
    return t->shape[0] % t->type->block == 0 && !__builtin_mul_overflow(blocks, t->type->bytes, &t->bytes);
}

static bool take_tensor(HeaderReader* c, Gguf* g) {
    GgufTensor t;
    uint32_t dims;
    uint64_t shape[GGUF_MAX_DIMS] = {0}, offset;
    memset(&t, 0, sizeof t);
    if (!take_text(c, t.name, sizeof t.name) || !take(c, &dims, sizeof dims)) { return false; }
    if (!*t.name) { return fail(c->err, "%s: the name of a tensor is empty or has more than 64 bytes", c->path); }
    if (dims < 1 || dims > GGUF_MAX_DIMS) {
        return fail(c->err, "%s: tensor %s: %u dimensions", c->path, t.name, dims);
    }
    if (!take(c, shape, dims * sizeof *shape) || !take(c, &t.ggml, sizeof t.ggml) || !take(c, &offset, sizeof offset)) {
        return false;
    }
    for (uint32_t d = 0; d < dims; d++) { t.shape[d] = (size_t)shape[d]; }
    t.dims = (int)dims;
    t.offset = (size_t)offset;
    t.type = weight_type_of_ggml(t.ggml);
    if (!tensor_extent(&t)) { return fail(c->err, "%s: tensor %s: an impossible shape", c->path, t.name); }
    g->tensors = grown(g->tensors, g->num_tensors, sizeof t, "the tensors of a GGUF file");
    g->tensors[g->num_tensors++] = t;
    return true;
}

static int by_name(const void* a, const void* b) {
    return strcmp(((const GgufTensor*)a)->name, ((const GgufTensor*)b)->name);
}

// Checks that the tensors lie in the data, which begin at byte `at` or at the next multiple of the alignment.
static bool place_tensors(Gguf* g, size_t at, size_t size, Error* err) {
    const GgufPair* given = gguf_pair(g, "general.alignment");
    const double alignment = given ? given->number : GGUF_ALIGNMENT;
    if (!(alignment >= 1 && alignment <= 65536) || ((size_t)alignment & ((size_t)alignment - 1))) {
        return fail(err, "%s: general.alignment is %g: not a power of two up to 65536", g->path, alignment);
    }
    const size_t begin = round_up(at, (size_t)alignment), room = begin <= size ? size - begin : 0;
    for (size_t i = 0; i < g->num_tensors; i++) {
        GgufTensor* t = &g->tensors[i];
        if (t->offset % (size_t)alignment || t->offset > room || t->bytes > room - t->offset) {
            return fail(err, "%s: tensor %s: %zu bytes at byte %zu of the data, of which there are %zu: the file was "
                             "cut short, or is damaged", g->path, t->name, t->bytes, t->offset, room);
        }
        t->offset += begin;
    }
    if (g->num_tensors > 0) { qsort(g->tensors, g->num_tensors, sizeof *g->tensors, by_name); }
    for (size_t i = 1; i < g->num_tensors; i++) {
        if (!by_name(&g->tensors[i - 1], &g->tensors[i])) {
            return fail(err, "%s: tensor %s is there twice", g->path, g->tensors[i].name);
        }
    }
    return true;
}

static bool parse(Gguf* g, HeaderReader* c, size_t size) {
    struct { char magic[4]; uint32_t version; uint64_t tensors, pairs; } head;
    const size_t least_pair = 13, least_tensor = 32; // bytes
    if (!take(c, &head, sizeof head)) { return false; }
    if (memcmp(head.magic, "GGUF", 4)) { return fail(c->err, "%s: not a GGUF file", g->path); }
    if (head.version < 2 || head.version > GGUF_VERSION) { // 2 differs in nothing that is read here
        return fail(c->err, "%s: GGUF version %u: only 2 and 3 are read", g->path, head.version);
    }
    if (head.pairs > c->left / least_pair || head.tensors > c->left / least_tensor) {
        return fail(c->err, "%s: %llu pairs and %llu tensors in %zu bytes: damaged", g->path,
                    (unsigned long long)head.pairs, (unsigned long long)head.tensors, c->left);
    }
    for (uint64_t i = 0; i < head.pairs; i++) {
        if (!take_pair(c, g)) { return false; }
    }
    for (uint64_t i = 0; i < head.tensors; i++) {
        if (!take_tensor(c, g)) { return false; }
    }
    return place_tensors(g, size - c->left, size, c->err);
}

bool gguf_open(Gguf* g, const char* path, Error* err) {
    size_t size;
    memset(g, 0, sizeof *g);
    g->fd = open_regular(path, &size, err);
    if (g->fd < 0) { return false; }
    g->path = format("%s", path);
    HeaderReader c = {.f = fopen_regular(path, err), .path = path, .left = size, .err = err};
    const bool ok = c.f && parse(g, &c, size);
    if (c.f) { fclose(c.f); }
    if (!ok) { gguf_close(g); }
    return ok;
}

void gguf_close(Gguf* g) {
    if (g->path) { close(g->fd); }
    free(g->path);
    free(g->tensors);
    free(g->pairs);
    memset(g, 0, sizeof *g);
}

const GgufTensor* gguf_tensor(const Gguf* g, const char* name) {
    GgufTensor key;
    memset(&key, 0, sizeof key);
    snprintf(key.name, sizeof key.name, "%s", name);
    return g->num_tensors ? bsearch(&key, g->tensors, g->num_tensors, sizeof key, by_name) : NULL;
}

const GgufPair* gguf_pair(const Gguf* g, const char* key) {
    for (size_t i = 0; i < g->num_pairs; i++) {
        if (!strcmp(g->pairs[i].key, key)) { return &g->pairs[i]; }
    }
    return NULL;
}

bool gguf_read(const Gguf* g, const GgufTensor* t, float* out, Error* err) {
    void* in = alloc_or_die(t->bytes, 1, "a tensor");
    const bool ok = read_exactly(g->fd, g->path, in, t->bytes, t->offset, err);
    if (ok) { t->type->decode(out, in, t->elements); }
    free(in);
    return ok;
}

// ---------------------------------------------------------------------------------------------------------------------
// writing

void gguf_put_u32(FILE* f, uint32_t x) { fwrite(&x, sizeof x, 1, f); }
void gguf_put_u64(FILE* f, uint64_t x) { fwrite(&x, sizeof x, 1, f); }

void gguf_put_text(FILE* f, const char* text, size_t bytes) {
    gguf_put_u64(f, bytes);
    fwrite(text, 1, bytes, f);
}

void gguf_put_padding(FILE* f, size_t at) {
    static const char zeros[GGUF_ALIGNMENT];
    fwrite(zeros, 1, round_up(at, GGUF_ALIGNMENT) - at, f);
}

static void put_key(FILE* f, const char* key, GgufType type) {
    gguf_put_text(f, key, strlen(key));
    gguf_put_u32(f, type);
}

void gguf_pair_text(FILE* f, const char* key, const char* text) {
    put_key(f, key, GGUF_STRING);
    gguf_put_text(f, text, strlen(text));
}

void gguf_pair_u32(FILE* f, const char* key, uint32_t x) {
    put_key(f, key, GGUF_U32);
    gguf_put_u32(f, x);
}

void gguf_pair_f32(FILE* f, const char* key, float x) {
    put_key(f, key, GGUF_F32);
    gguf_put_u32(f, bits_of_float(x));
}

void gguf_pair_bool(FILE* f, const char* key, bool x) {
    put_key(f, key, GGUF_BOOL);
    fputc(x ? 1 : 0, f);
}

void gguf_pair_array(FILE* f, const char* key, GgufType type, size_t count) {
    put_key(f, key, GGUF_ARRAY);
    gguf_put_u32(f, type);
    gguf_put_u64(f, count);
}
