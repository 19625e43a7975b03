#include "reader.h"
#include "../base/file.h"
#include "../tokenizer/unicode.h"
#include "inputs.h"
#include <inttypes.h>

enum format input_format(const PrepareOptions* o, const char* path) {
    Error err;
    char begin[4];
    if (o->format != format_auto) { return o->format; }
    if (strcmp(path, "-") == 0) { return format_text; }
    if (!read_begin(path, begin, sizeof begin, &err)) {
        const char* advice = prepare_advice(o, "; a pipe is read by cat ... | ./prepare - ...");
        fatal("%s%s", err.text, path_exists(path) ? advice : "");
    }
    if (is_parquet(begin)) { return format_parquet; }
    if (name_ends_with(path, ".parquet")) { return format_parquet; } // it says what is wrong with the file
    const bool is_jsonl = name_ends_with(path, ".jsonl") || name_ends_with(path, ".ndjson") ||
                          name_ends_with(path, ".json");
    return is_jsonl ? format_jsonl : format_text;
}

void chunk_clear(Chunk* c) {
    free(c->text.data);
    memset(&c->text, 0, sizeof c->text);
    token_list_free(&c->tokens);
    free(c->error);
    c->error = NULL;
}

void reader_open(Reader* r, const PrepareOptions* options, const Source* source, Position at) {
    memset(r, 0, sizeof *r);
    r->options = options;
    r->end_input = source->end_input;
    r->at = at;
}

void reader_close(Reader* r) {
    if (!r->is_open) { return; }
    if (r->format == format_parquet) { parquet_close(&r->parquet); }
    else { stream_close(&r->stream); }
    r->is_open = false;
}

static bool reader_open_file(Reader* r) {
    const PrepareOptions* o = r->options;
    const char* path = o->inputs[r->at.input];
    r->format = input_format(o, path);
    if (r->format == format_parquet) {
        r->is_open = parquet_open(&r->parquet, path, o->field, &r->err);
        return r->is_open && parquet_skip(&r->parquet, r->at.offset, &r->err);
    }
    char last = '\n';
    r->is_open = stream_open(&r->stream, is_standard_input(o) ? NULL : path, &r->err);
    const bool checks = r->format == format_text && r->at.offset == 0 && o->format != format_text;
    const char* advice = prepare_advice(o, "; ./prepare --format text takes it as it is");
    const bool ok = r->is_open && (!checks || stream_check_text(&r->stream, advice, &r->err)) &&
                    stream_skip(&r->stream, r->at.offset, &last, &r->err);
    r->is_at_line_start = last == '\n';
    return ok;
}

void reader_check_files(const PrepareOptions* o) {
    for (size_t i = 0; i < o->num_inputs && !is_standard_input(o); i++) {
        Reader r = {.options = o, .at = {.input = i}};
        if (!reader_open_file(&r)) { fatal("%s", r.err.text); }
        reader_close(&r);
    }
}

// Reads the next line, at most `limit` bytes of it. Sets `bytes`, 0 at the end of the file or of what can be read.
static const char* reader_line(Reader* r, Chunk* c, size_t* bytes, size_t limit) {
    const char* line = NULL;
    *bytes = 0;
    c->ok = stream_line(&r->stream, &line, bytes, limit, &r->err);
    if (!c->ok || *bytes == 0) { return NULL; }
    r->at.offset += *bytes;
    r->is_at_line_start = line[*bytes - 1] == '\n';
    r->at.line += r->is_at_line_start;
    return line;
}

// ---------------------------------------------------------------------------------------------------------------------
// JSONL

// Passes over the rest of a line that is too long.
static void reader_skip_line(Reader* r, Chunk* c) {
    size_t bytes = 1;
    c->text.bytes = 0;
    while (!r->is_at_line_start && bytes > 0) { reader_line(r, c, &bytes, CHUNK_BYTES); }
    if (!c->ok) { return; }
    c->skip = SKIPPED_LONG;
    c->ok = fail(&r->err, "%s:%" PRIu64 ": a line of more than %d MiB", r->options->inputs[c->at.input], c->at.line + 1,
                 MAX_DOCUMENT_BYTES >> 20);
}

// Reads the next line that is not blank. Returns false at the end of the file.
static bool reader_json_line(Reader* r, Chunk* c) {
    for (size_t n;;) {
        c->at = r->at;
        const char* line = reader_line(r, c, &n, MAX_DOCUMENT_BYTES);
        if (!line) { return !c->ok; }
        size_t blank = 0;
        while (blank < n && strchr(" \t\r\n", line[blank]) && line[blank]) { blank++; }
        if (n == MAX_DOCUMENT_BYTES && !r->is_at_line_start) { reader_skip_line(r, c); return true; }
        if (blank == n) { continue; }
        buffer_append(&c->text, line, n);
        return true;
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// text

// Returns the bytes of a line before its end, which is "\n", "\r\n" or, of the last line, nothing.
static size_t bytes_before_end(const char* line, size_t bytes) {
    if (line[bytes - 1] != '\n') { return bytes; }
    return bytes - (bytes > 1 && line[bytes - 2] == '\r' ? 2 : 1);
}

// Returns true if a whole line, of n bytes before its end, separates documents. A blank line ends a document and
// belongs to it, but is no separator where a document begins, before its first other line (has_words); any other
// separator belongs to no document.
static bool is_separator(const char* split, const char* line, size_t n, bool has_words) {
    if (strcmp(split, "none") == 0) { return false; }
    if (strcmp(split, "blank") == 0) { return n == 0 && has_words; }
    return n == strlen(split) && memcmp(line, split, n) == 0;
}

// Returns true if a character that is no white space, or a byte of none, ends at `end`.
static bool ends_visibly(const char* begin, const char* end) {
    const char* p = end - 1;
    uint32_t code_point;
    while (p > begin && end - p < 4 && (*p & 0xc0) == 0x80) { p--; }
    const size_t bytes = utf8_decode(p, end, &code_point);
    return bytes != (size_t)(end - p) || unicode_class(code_point) != UNICODE_SPACE;
}

// Returns where the text can be cut behind `from`, as far back as possible; 0 if nowhere.
static size_t find_cut(const Buffer* text, size_t from) {
    for (size_t i = text->bytes; i-- > max_size(from, 1);) {
        const char c = text->data[i];
        if ((c == ' ' || c == '\n' || c == '\r') && ends_visibly(text->data, text->data + i)) { return i; }
    }
    return 0;
}

// Gives the text from `cut` on back to the stream: at most the piece that was read last.
static void reader_put_back(Reader* r, Buffer* text, size_t cut) {
    const size_t n = text->bytes - cut;
    r->at.line -= text->data[text->bytes - 1] == '\n';
    r->at.offset -= n;
    r->is_at_line_start = false;
    text->bytes = cut;
    stream_put_back(&r->stream, n);
}

// Reads a document, or a part of a long one. Returns false at the end of the file.
static bool reader_text(Reader* r, Chunk* c) {
    Buffer* text = &c->text;
    bool has_words = r->at.inside_document; // a document is cut behind words
    c->at = r->at;
    for (size_t n;;) {
        const bool is_line_start = r->is_at_line_start;
        const char* line = reader_line(r, c, &n, CHUNK_BYTES);
        if (!line) { return text->bytes > 0 || !c->ok; }
        const bool is_whole_line = is_line_start && (r->is_at_line_start || n < CHUNK_BYTES);
        const size_t words = bytes_before_end(line, n);
        const bool ends = is_whole_line && is_separator(r->options->split, line, words, has_words);
        has_words = has_words || words > 0;
        if (!ends || words == 0) { buffer_append(text, line, n); }
        r->at.inside_document = !ends;
        if (ends) { return true; }
        const size_t cut = text->bytes < CHUNK_BYTES ? 0 : find_cut(text, text->bytes - n);
        if (cut > 0) { reader_put_back(r, text, cut); return true; }
        if (text->bytes < MAX_DOCUMENT_BYTES) { continue; }
        c->ok = fail(&r->err, "%s:%" PRIu64 ": %d MiB without white space: is it text? Leave the file out",
                     r->options->inputs[c->at.input], c->at.line + 1, MAX_DOCUMENT_BYTES >> 20);
        return true;
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// Parquet

// Reads a row. Returns false at the end of the file.
static bool reader_row(Reader* r, Chunk* c) {
    ParquetRow kind;
    Bytes value;
    c->at = r->at;
    c->ok = parquet_next(&r->parquet, &kind, &value, &r->err);
    if (!c->ok) { return true; }
    if (kind == PARQUET_END) { return false; }
    r->at.offset++;
    r->at.line++;
    if (kind == PARQUET_NULL) { c->skip = SKIPPED_NULL; return true; }
    if (value.bytes > MAX_DOCUMENT_BYTES) {
        c->skip = SKIPPED_LONG;
        c->ok = fail(&r->err, "%s: row %" PRIu64 ": a document of %zu MiB, more than %d",
                     r->options->inputs[c->at.input], c->at.offset, value.bytes >> 20, MAX_DOCUMENT_BYTES >> 20);
        return true;
    }
    buffer_append(&c->text, value.data, value.bytes);
    return true;
}

// As reader_next(), but leaves the error in `r`.
static bool reader_chunk(Reader* r, Chunk* c) {
    const PrepareOptions* o = r->options;
    c->text.bytes = c->bytes = 0;
    c->at = r->at;
    c->ok = true;
    c->skip = NOT_SKIPPED;
    c->format = format_text;
    if (o->stories > 0) { r->at.offset++; return true; }
    while (r->at.input < r->end_input) {
        if (!r->is_open) { c->ok = reader_open_file(r); }
        if (!c->ok) { return true; }
        c->format = r->format;
        const bool has_chunk = r->format == format_parquet ? reader_row(r, c)
                               : r->format == format_jsonl ? reader_json_line(r, c) : reader_text(r, c);
        if (has_chunk) { return true; }
        reader_close(r);
        r->at = (Position){.input = r->at.input + 1};
    }
    return false;
}

bool reader_next(Reader* r, Chunk* c) {
    const bool has_chunk = reader_chunk(r, c);
    if (!c->ok) { c->error = format("%s", r->err.text); }
    return has_chunk;
}
