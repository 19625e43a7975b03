#include "documents.h"
#include <inttypes.h>

typedef struct {
    const PrepareOptions* options;
    Position at;
    FILE* file; // NULL before the file of `at` is opened
    char* line;
    size_t line_room;
} Reader;

static bool ends_with(const char* text, const char* end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static bool is_jsonl(const PrepareOptions* o, const char* path) {
    if (strcmp(o->format, "auto") != 0) { return strcmp(o->format, "jsonl") == 0; }
    return ends_with(path, ".jsonl") || ends_with(path, ".ndjson") || ends_with(path, ".json");
}

// ---------------------------------------------------------------------------------------------------------------------
// reading chunks

static void reader_open(Reader* r, const PrepareOptions* options, Position at) {
    memset(r, 0, sizeof *r);
    r->options = options;
    r->at = at;
}

static void reader_close(Reader* r) {
    if (r->file && r->file != stdin) { fclose(r->file); }
    free(r->line);
    r->file = NULL;
    r->line = NULL;
}

static void reader_open_file(Reader* r) {
    const char* path = r->options->inputs[r->at.input];
    r->file = is_standard_input(r->options) ? stdin : fopen(path, "rb");
    if (!r->file) { fatal("%s: cannot open: %s", path, strerror(errno)); }
    if (r->at.offset > 0 && fseeko(r->file, (off_t)r->at.offset, SEEK_SET) != 0) {
        fatal("%s: cannot go to byte %" PRIu64 ": %s", path, r->at.offset, strerror(errno));
    }
}

// Reads the next line, its end included, into r->line. Returns its number of bytes; 0 at the end of the file.
static size_t reader_line(Reader* r) {
    ssize_t n = getline(&r->line, &r->line_room, r->file);
    if (n < 0 && !feof(r->file)) { fatal("%s: cannot read: %s", r->options->inputs[r->at.input], strerror(errno)); }
    if (n < 0) { return 0; }
    r->at.offset += (uint64_t)n;
    r->at.line++;
    return (size_t)n;
}

// Reads the next line that is not blank. Returns false at the end of the file.
static bool reader_json_line(Reader* r, Chunk* c) {
    for (size_t n; c->at = r->at, (n = reader_line(r)) > 0;) {
        if (strspn(r->line, " \t\r\n") == n) { continue; }
        story_append(&c->text, r->line, n);
        return true;
    }
    return false;
}

// Returns true if the line that was read last separates documents. A blank line ends a document and belongs to it, but
// is no separator where a document begins; any other separator belongs to no document.
static bool reader_at_separator(const Reader* r, const StoryText* text, size_t line_bytes) {
    const char* split = r->options->split;
    if (strcmp(split, "none") == 0) { return false; }
    if (strcmp(split, "blank") == 0) {
        return line_bytes == 1 && r->line[0] == '\n' && text->bytes > 0 && text->data[text->bytes - 1] == '\n';
    }
    return line_bytes - (r->line[line_bytes - 1] == '\n') == strlen(split) && !strncmp(r->line, split, strlen(split));
}

// Reads a document, or a part of a long one. Returns false at the end of the file.
static bool reader_text(Reader* r, Chunk* c) {
    StoryText* text = &c->text;
    c->at = r->at;
    for (size_t n; (n = reader_line(r)) > 0;) {
        bool ends = reader_at_separator(r, text, n);
        if (!ends || r->line[0] == '\n') { story_append(text, r->line, n); }
        r->at.inside_document = !ends;
        if (ends) { return true; }
        const char* end = text->data + text->bytes;
        // Cuts a long document between a visible ASCII character and the line's end, which begins the next chunk.
        if (text->bytes >= CHUNK_BYTES && end[-1] == '\n' && end[-2] > ' ' && end[-2] < 127) {
            ungetc('\n', r->file);
            text->bytes--;
            r->at.offset--;
            r->at.line--;
            return true;
        }
    }
    return text->bytes > 0;
}

// Reads the next chunk. Returns false at the end of all input. The story grammar has no end.
static bool reader_next(Reader* r, Chunk* c) {
    const PrepareOptions* o = r->options;
    c->text.bytes = 0;
    c->at = r->at;
    if (o->stories > 0) { r->at.offset++; return true; }
    while (r->at.input < o->num_inputs) {
        if (!r->file) { reader_open_file(r); }
        if (is_jsonl(o, o->inputs[r->at.input]) ? reader_json_line(r, c) : reader_text(r, c)) { return true; }
        if (r->file != stdin) { fclose(r->file); }
        r->file = NULL;
        size_t next = r->at.input + 1;
        memset(&r->at, 0, sizeof r->at);
        r->at.input = next;
    }
    return false;
}

// ---------------------------------------------------------------------------------------------------------------------
// encoding chunks

void encode_document(const Tokenizer* t, const char* text, size_t bytes, TokenList* out) {
    if (bytes == 0) { return; }
    token_list_append(out, t->eot);
    tokenizer_encode(t, text, bytes, out);
}

static bool encode_json(const PrepareOptions* o, const Tokenizer* t, Chunk* c) {
    const char* path = o->inputs[c->at.input];
    unsigned long long line = c->at.line + 1;
    json_error_t error;
    json_t* object = json_loadb(c->text.data, c->text.bytes, JSON_ALLOW_NUL, &error);
    json_t* text = json_object_get(object, o->field);
    bool ok = true;
    if (!object) {
        ok = fail(&c->err, "%s:%llu: invalid JSON: %s (column %d)", path, line, error.text, error.column);
    } else if (!json_is_object(object)) {
        ok = fail(&c->err, "%s:%llu: not a JSON object like {\"%s\": \"...\"}", path, line, o->field);
    } else if (!text) {
        ok = fail(&c->err, "%s:%llu: no field \"%s\": name the one with the text by --field", path, line, o->field);
    } else if (!json_is_string(text)) {
        ok = fail(&c->err, "%s:%llu: field \"%s\" is not a string", path, line, o->field);
    } else {
        encode_document(t, json_string_value(text), json_string_length(text), &c->tokens);
    }
    json_decref(object);
    return ok;
}

static void encode_chunk(const PrepareOptions* o, const Tokenizer* t, Chunk* c) {
    c->tokens.count = 0;
    c->ok = true;
    if (o->stories > 0) {
        c->nll = 0;
        story_make((uint64_t)o->seed, c->at.offset, &c->text, &c->nll);
        encode_document(t, c->text.data, c->text.bytes, &c->tokens);
    } else if (is_jsonl(o, o->inputs[c->at.input])) {
        c->ok = encode_json(o, t, c);
    } else if (c->at.inside_document) {
        tokenizer_encode(t, c->text.data, c->text.bytes, &c->tokens);
    } else {
        encode_document(t, c->text.data, c->text.bytes, &c->tokens);
    }
}

void encode_input(const PrepareOptions* o, const Tokenizer* t, Position at, ChunkTaker* take, void* context) {
    Chunk* chunks = alloc_or_die(BATCH_CHUNKS, sizeof *chunks, "a batch of documents");
    Reader reader;
    reader_open(&reader, o, at);
    int limit = FIRST_BATCH; // chunks in a batch; begins small, so that a short corpus needs few stories too many
    for (bool more = true; more; limit = limit < BATCH_CHUNKS ? 2 * limit : limit) {
        int count = 0;
        for (size_t bytes = 0; more && count < limit && bytes < BATCH_BYTES;) {
            more = reader_next(&reader, &chunks[count]);
            if (more) { bytes += chunks[count++].text.bytes; }
        }
#ifdef _OPENMP
#pragma omp parallel for schedule(dynamic)
#endif
        for (int i = 0; i < count; i++) { encode_chunk(o, t, &chunks[i]); }
        for (int i = 0; i < count; i++) {
            if (!chunks[i].ok) { fatal("%s", chunks[i].err.text); }
            if (!take(context, &chunks[i])) { more = false; break; }
        }
    }
    for (int i = 0; i < BATCH_CHUNKS; i++) {
        free(chunks[i].text.data);
        token_list_free(&chunks[i].tokens);
    }
    free(chunks);
    reader_close(&reader);
}

// ---------------------------------------------------------------------------------------------------------------------
// input files

// Returns "FORMAT: PROGRAM that decompresses it" if a file that begins with these bytes is compressed, or NULL.
static const char* compressed_format(const unsigned char* p, size_t bytes) {
    if (bytes >= 2 && memcmp(p, "\x1f\x8b", 2) == 0) { return "gzip: zcat"; }
    if (bytes >= 4 && memcmp(p, "\x28\xb5\x2f\xfd", 4) == 0) { return "zstd: zstdcat"; }
    return NULL;
}

json_t* describe_input(const char* path) {
    FILE* f = fopen(path, "rb");
    if (!f) { fatal("%s: cannot open: %s", path, strerror(errno)); }
    struct stat s;
    if (fstat(fileno(f), &s) != 0) { fatal("%s: cannot stat: %s", path, strerror(errno)); }
    if (!S_ISREG(s.st_mode)) { fatal("%s: not a regular file: pipe it in, cat ... | ./prepare - ...", path); }
    unsigned char* buffer = alloc_or_die(CHUNK_BYTES, 1, path);
    uint64_t hash = 0, size = 0;
    for (size_t n; (n = fread(buffer, 1, CHUNK_BYTES, f)) > 0; size += n) {
        const char* compressed = size == 0 ? compressed_format(buffer, n) : NULL;
        if (compressed) { fatal("%s: compressed by %s %s | ./prepare - ...", path, compressed, path); }
        if (size == 0 && n >= 4 && memcmp(buffer, "PAR1", 4) == 0) { fatal("%s: Parquet: convert it to JSONL", path); }
        hash = hash64(buffer, n, hash);
    }
    if (ferror(f)) { fatal("%s: cannot read: %s", path, strerror(errno)); }
    fclose(f);
    free(buffer);
    char hex[17];
    snprintf(hex, sizeof hex, "%016" PRIx64, hash);
    return json_pack("{s:s, s:I, s:s}", "name", path, "bytes", (json_int_t)size, "hash", hex);
}
