#include "token_formats.h"

enum { LLAMA3_MAGIC = 20240801, LLAMA3_VERSION = 7, LLMQ_VERSION = 2 };
static const char LLMQ_MAGIC[] = "BIN.TOK\n", NUMPY_MAGIC[] = "\x93NUMPY";
enum { LLMQ_MAGIC_BYTES = sizeof LLMQ_MAGIC - 1, NUMPY_MAGIC_BYTES = sizeof NUMPY_MAGIC - 1 };

typedef struct {
    const char* path;
    const unsigned char* head;
    size_t known, size; // bytes of `head`, of the file
} Opened;

static bool begins_with(const Opened* f, const void* magic, size_t bytes) {
    return f->known >= bytes && memcmp(f->head, magic, bytes) == 0;
}

// Sets the layout if the file is exactly as long as `num_tokens` tokens make it.
static bool set_layout(TokenLayout* l, const Opened* f, const char* format, size_t num_tokens, size_t offset, int width,
                       Error* err) {
    const size_t room = f->size - offset, bytes = (size_t)width;
    if (num_tokens > SIZE_MAX / 8 || room != num_tokens * bytes) {
        return fail(err, "%s: %zu bytes, but its header promises %zu tokens of %d bytes from byte %zu on: download or "
                    "make it again", f->path, f->size, num_tokens, width, offset);
    }
    *l = (TokenLayout){.format = format, .num_tokens = num_tokens, .offset = offset, .width = width};
    return true;
}

// Copies `count` int32 of the header from byte `at`. Fails unless the whole header is there.
static bool header_ints(int32_t* out, int count, size_t at, const Opened* f, Error* err) {
    if (f->known < TOKEN_HEADER_BYTES) {
        return fail(err, "%s: cut short within the header: %zu bytes of %d", f->path, f->known, TOKEN_HEADER_BYTES);
    }
    memcpy(out, f->head + at, (size_t)count * sizeof *out);
    return true;
}

static bool wrong_version(const Opened* f, const char* format, int version, int known, Error* err) {
    return fail(err, "%s: version %d of %s, only version %d is known", f->path, version, format, known);
}

// ---------------------------------------------------------------------------------------------------------------------
// llm.c for Llama 3, llmq, nanoGPT

static bool find_llama3(TokenLayout* l, const Opened* f, Error* err) {
    static const char format[] = "llm.c's shard for Llama 3";
    int32_t header[3];
    if (!header_ints(header, 3, 0, f, err)) { return false; }
    if (header[1] != LLAMA3_VERSION) { return wrong_version(f, format, header[1], LLAMA3_VERSION, err); }
    if (header[2] < 0) { return fail(err, "%s: a negative number of tokens: %d", f->path, header[2]); }
    return set_layout(l, f, format, (size_t)header[2], TOKEN_HEADER_BYTES, 4, err);
}

static bool find_llmq(TokenLayout* l, const Opened* f, Error* err) {
    static const char format[] = "llmq's token file";
    int32_t header[5];
    if (!header_ints(header, 5, LLMQ_MAGIC_BYTES, f, err)) { return false; }
    if (header[0] != LLMQ_VERSION) { return wrong_version(f, format, header[0], LLMQ_VERSION, err); }
    if (header[1] != 4) { return fail(err, "%s: tokens of %d bytes; llmq's have 4", f->path, header[1]); }
    if (header[2] < 0) { return fail(err, "%s: a negative number of tokens: %d", f->path, header[2]); }
    if (header[4] != 0) {
        return fail(err, "%s: it has a mask of the tokens that count in the loss; here all do: make it without a mask",
                    f->path);
    }
    return set_layout(l, f, format, (size_t)header[2], TOKEN_HEADER_BYTES, 4, err);
}

static bool is_text(const Opened* f) {
    bool text = f->known > 0;
    for (size_t i = 0; i < min_size(f->known, 64); i++) {
        const unsigned char c = f->head[i];
        text = text && (c >= ' ' || c == '\t' || c == '\n' || c == '\r');
    }
    return text;
}

static bool find_raw(TokenLayout* l, const Opened* f, TokenHeader header, Error* err) {
    if (f->known == 0) { return fail(err, "%s: not a token shard: it looks like an empty file", f->path); }
    if (is_text(f)) {
        return fail(err, "%s: not a token shard: it looks like text; make shards of it with ./prepare", f->path);
    }
    if (header == HEADER_REQUIRED) {
        return fail(err, "%s: not a token shard: it looks like binary data; if these are uint16 ids without a header, "
                    "as nanoGPT writes them, say --data_format nanogpt", f->path);
    }
    if (f->size % 2) {
        return fail(err, "%s: %zu bytes, an odd number: these are no uint16 ids (--data_format nanogpt), or cut short",
                    f->path, f->size);
    }
    return set_layout(l, f, "uint16 ids without a header", f->size / 2, 0, 2, err);
}

// ---------------------------------------------------------------------------------------------------------------------
// NumPy

enum { MAX_DESCR = 16 };

typedef struct {
    char descr[MAX_DESCR]; // empty: not a simple type
    bool is_fortran;
    int dimensions;        // -1: no shape was read
    size_t length;         // the product of all dimensions
} NumpyHeader;

typedef struct {
    const char *at, *end;
} Scanner;

// Skips spaces; takes `word` and returns true if it comes next.
static bool take(Scanner* s, const char* word) {
    const size_t n = strlen(word);
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\n')) { s->at++; }
    if ((size_t)(s->end - s->at) < n || memcmp(s->at, word, n) != 0) { return false; }
    s->at += n;
    return true;
}

// Takes a string in quotes, without escapes.
static bool take_string(Scanner* s, char out[MAX_DESCR]) {
    const char quote = take(s, "'") ? '\'' : take(s, "\"") ? '"' : 0;
    size_t n = 0;
    for (; quote && s->at < s->end && *s->at != quote; s->at++) {
        if (*s->at < ' ' || *s->at > '~' || *s->at == '\\' || n + 1 == MAX_DESCR) { return false; }
        out[n++] = *s->at;
    }
    out[n] = 0;
    return quote && take(s, quote == '"' ? "\"" : "'");
}

// Takes a tuple of whole numbers.
static bool take_shape(Scanner* s, NumpyHeader* h) {
    h->dimensions = 0;
    h->length = 1;
    if (!take(s, "(")) { return false; }
    while (!take(s, ")")) {
        size_t n = 0, digits = 0;
        for (; s->at < s->end && *s->at >= '0' && *s->at <= '9'; s->at++, digits++) {
            if (n > SIZE_MAX / 16) { return false; }
            n = 10 * n + (size_t)(*s->at - '0');
        }
        if (digits == 0 || (n > 0 && h->length > SIZE_MAX / n)) { return false; }
        h->length *= n;
        h->dimensions++;
        if (!take(s, ",")) { return take(s, ")"); }
    }
    return true;
}

// Reads the dict. A type that is not written as one string, such as a record, ends it with an empty `descr`.
static bool read_dict(Scanner s, NumpyHeader* h) {
    char key[MAX_DESCR];
    *h = (NumpyHeader){.descr = "", .dimensions = -1};
    if (!take(&s, "{")) { return false; }
    while (!take(&s, "}")) {
        if (!take_string(&s, key) || !take(&s, ":")) { return false; }
        if (!strcmp(key, "descr")) {
            if (!take_string(&s, h->descr)) { *h->descr = 0; return true; }
        } else if (!strcmp(key, "fortran_order")) {
            h->is_fortran = take(&s, "True");
            if (!h->is_fortran && !take(&s, "False")) { return false; }
        } else if (strcmp(key, "shape") || !take_shape(&s, h)) {
            return false;
        }
        if (!take(&s, ",")) { return take(&s, "}") && h->dimensions >= 0; }
    }
    return h->dimensions >= 0;
}

static bool find_numpy(TokenLayout* l, const Opened* f, Error* err) {
    const size_t version_at = NUMPY_MAGIC_BYTES, length_at = version_at + 2;
    const int version = f->known > version_at ? f->head[version_at] : 0;
    const size_t dict_at = length_at + (version == 1 ? 2 : 4);
    NumpyHeader h;
    if (f->known >= dict_at && (version < 1 || version > 3 || f->head[version_at + 1] != 0)) {
        return fail(err, "%s: version %d.%d of NumPy's format; 1.0 to 3.0 are known: save it again with np.save",
                    f->path, version, f->head[version_at + 1]);
    }
    uint32_t length = 0;
    if (f->known >= dict_at) { memcpy(&length, f->head + length_at, dict_at - length_at); }
    if (f->known < dict_at || length > f->known - dict_at) {
        return fail(err, "%s: a NumPy array whose header does not end within %zu bytes: is the file cut short?",
                    f->path, f->known);
    }
    const char* dict = (const char*)f->head + dict_at;
    if (!read_dict((Scanner){dict, dict + length}, &h)) {
        return fail(err, "%s: a NumPy array with a damaged header: save it again with np.save", f->path);
    }
    if (strcmp(h.descr, "<u2") && strcmp(h.descr, "<u4") && strcmp(h.descr, "<i4")) {
        return fail(err, "%s: a NumPy array of type '%s'; tokens are '<u2', '<u4' or '<i4' (little-endian): "
                    "np.save(FILE, tokens.astype('<u2'))", f->path, *h.descr ? h.descr : "(record)");
    }
    if (h.dimensions != 1 || h.is_fortran) {
        return fail(err, "%s: a NumPy array of %d dimensions%s; tokens are one sequence: np.save(FILE, tokens.ravel())",
                    f->path, h.dimensions, h.is_fortran ? " in Fortran order" : "");
    }
    return set_layout(l, f, "NumPy array", h.length, dict_at + length, h.descr[2] - '0', err);
}

bool token_layout_find(TokenLayout* l, const char* path, const void* head, size_t size, TokenHeader header,
                       Error* err) {
    static const int32_t llama3 = LLAMA3_MAGIC;
    const Opened f = {.path = path, .head = head, .known = min_size(size, TOKEN_HEADER_BYTES), .size = size};
    if (begins_with(&f, &llama3, sizeof llama3)) { return find_llama3(l, &f, err); }
    if (begins_with(&f, NUMPY_MAGIC, NUMPY_MAGIC_BYTES)) { return find_numpy(l, &f, err); }
    if (begins_with(&f, LLMQ_MAGIC, LLMQ_MAGIC_BYTES)) { return find_llmq(l, &f, err); }
    return find_raw(l, &f, header, err);
}
