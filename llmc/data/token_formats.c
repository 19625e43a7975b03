#include "../base/file.h"
#include "shard.h"

// The begin of a file.
typedef struct {
    const char* path;
    const unsigned char* head;
    size_t known, size; // bytes of `head`, of the file
} Opened;

// Fills in where the tokens are, if the file is exactly as long as `num_tokens` tokens make it.
static bool set_layout(Shard* s, const Opened* f, const char* format, size_t num_tokens, size_t offset, int width,
                       Error* err) {
    const size_t room = f->size - offset, bytes = (size_t)width;
    if (num_tokens > SIZE_MAX / 8 || room != num_tokens * bytes) {
        return fail(err, "%s: %zu bytes, but its header promises %zu tokens of %d bytes from byte %zu on: download or "
                    "make it again", f->path, f->size, num_tokens, width, offset);
    }
    s->format = format;
    s->num_tokens = num_tokens;
    s->offset = offset;
    s->width = width;
    return true;
}

// ---------------------------------------------------------------------------------------------------------------------
// llm.c

static const struct LlmcFormat {
    int32_t magic, version;
    const char* name;
    int width;
} LLMC_FORMATS[] = {{SHARD_MAGIC, SHARD_VERSION, "llm.c's shard", 2}, {20240801, 7, "llm.c's shard for Llama 3", 4}};

static bool find_llmc(Shard* s, const Opened* f, const struct LlmcFormat* format, Error* err) {
    int32_t header[3];
    if (f->known < SHARD_HEADER_BYTES) {
        return fail(err, "%s: cut short within the header: %zu bytes of %d", f->path, f->known, SHARD_HEADER_BYTES);
    }
    memcpy(header, f->head, sizeof header);
    if (header[1] != format->version) {
        return fail(err, "%s: version %d of %s, only version %d is known: download or make it again", f->path,
                    header[1], format->name, format->version);
    }
    if (header[2] < 0) { return fail(err, "%s: a negative number of tokens: %d", f->path, header[2]); }
    return set_layout(s, f, format->name, (size_t)header[2], SHARD_HEADER_BYTES, format->width, err);
}

// ---------------------------------------------------------------------------------------------------------------------
// NumPy

static const char NUMPY_MAGIC[] = "\x93NUMPY";
enum { NUMPY_MAGIC_BYTES = sizeof NUMPY_MAGIC - 1 };

static bool find_numpy(Shard* s, const Opened* f, Error* err) {
    const int version = f->known > NUMPY_MAGIC_BYTES ? f->head[NUMPY_MAGIC_BYTES] : 1;
    const size_t length_at = NUMPY_MAGIC_BYTES + 2, dict_at = length_at + (version == 1 ? 2 : 4);
    uint32_t length = 0;
    if (version < 1 || version > 3) {
        return fail(err, "%s: version %d of NumPy's format; 1 to 3 are known: save it again with np.save", f->path,
                    version);
    }
    if (f->known >= dict_at) { memcpy(&length, f->head + length_at, dict_at - length_at); }
    if (f->known < dict_at || length > f->known - dict_at) {
        return fail(err, "%s: a NumPy array whose header does not end within %zu bytes: is the file cut short?",
                    f->path, f->known);
    }
    char dict[SHARD_HEADER_BYTES + 1] = "", kind = 0;
    int width = 0, end = 0;
    size_t count = 0;
    memcpy(dict, f->head + dict_at, length);
    // np.save always writes these keys, in this order.
    sscanf(dict, "{'descr': '<%c%d', 'fortran_order': False, 'shape': (%zu,), } %n", &kind, &width, &count, &end);
    const bool is_tokens = (kind == 'u' && (width == 2 || width == 4)) || (kind == 'i' && width == 4);
    if (end > 0 && is_tokens) { return set_layout(s, f, "NumPy array", count, dict_at + length, width, err); }
    dict[strcspn(dict, "\n")] = 0; // behind spaces that align the data
    for (size_t n = strlen(dict); n > 0 && dict[n - 1] == ' '; n--) { dict[n - 1] = 0; }
    return fail(err, "%s: a NumPy array %.200s: tokens are one sequence of '<u2', '<u4' or '<i4' (little-endian): "
                "np.save(FILE, tokens.ravel().astype('<u2'))", f->path, dict);
}

// ---------------------------------------------------------------------------------------------------------------------
// nanoGPT

static bool is_text(const Opened* f) {
    bool text = f->known > 0;
    for (size_t i = 0; i < min_size(f->known, 64); i++) {
        const unsigned char c = f->head[i];
        text = text && (c >= ' ' || c == '\t' || c == '\n' || c == '\r');
    }
    return text;
}

static bool find_raw(Shard* s, const Opened* f, TokenHeader header, Error* err) {
    if (f->known == 0) { return fail(err, "%s: not a token shard: it looks like an empty file", f->path); }
    if (is_text(f)) {
        return fail(err, "%s: not a token shard: it looks like text; make shards of it with ./prepare", f->path);
    }
    if (header == HEADER_REQUIRED) {
        return fail(err, "%s: not a token shard: it looks like binary data; if these are uint16 ids without a header, "
                    "as nanoGPT writes them, say --data_format nanogpt", f->path);
    }
    if (f->size % 2) {
        return fail(err, "%s: %zu bytes, an odd number: these are not uint16 ids (--data_format nanogpt), or cut short",
                    f->path, f->size);
    }
    return set_layout(s, f, "uint16 ids without a header", f->size / 2, 0, 2, err);
}

bool shard_find_tokens(Shard* s, size_t size, TokenHeader header, Error* err) {
    unsigned char head[SHARD_HEADER_BYTES];
    const Opened f = {.path = s->path, .head = head, .known = min_size(size, sizeof head), .size = size};
    if (!read_exactly(s->fd, s->path, head, f.known, 0, err)) { return false; }
    for (size_t i = 0; i < sizeof LLMC_FORMATS / sizeof *LLMC_FORMATS; i++) {
        const size_t bytes = sizeof LLMC_FORMATS[i].magic;
        if (f.known >= bytes && !memcmp(head, &LLMC_FORMATS[i].magic, bytes)) {
            return find_llmc(s, &f, &LLMC_FORMATS[i], err);
        }
    }
    const bool is_numpy = f.known >= NUMPY_MAGIC_BYTES && !memcmp(head, NUMPY_MAGIC, NUMPY_MAGIC_BYTES);
    return is_numpy ? find_numpy(s, &f, err) : find_raw(s, &f, header, err);
}
