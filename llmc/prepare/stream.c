#include "stream.h"
#include "../base/file.h"
#include <inttypes.h>

void stream_close(Stream* s) {
    if (s->fd > STDIN_FILENO) { close(s->fd); }
    decompressor_close(&s->decompressor);
    free(s->input);
    free(s->text);
    memset(s, 0, sizeof *s);
    s->fd = -1;
}

// Reads more of the file, behind what is there. At the file's end sets input_ended.
static bool stream_read(Stream* s, Error* err) {
    ssize_t n;
    do { n = read(s->fd, s->input + s->input_bytes, STREAM_BYTES - s->input_bytes); } while (n < 0 && errno == EINTR);
    if (n < 0) { return fail_system(err, s->path, "read"); }
    s->input_bytes += (size_t)n;
    s->input_ended = n == 0;
    return true;
}

bool stream_open(Stream* s, const char* path, Error* err) {
    memset(s, 0, sizeof *s);
    s->path = path ? path : "standard input";
    s->fd = path ? open_regular(path, NULL, err) : STDIN_FILENO;
    if (s->fd < 0) { return false; }
    s->input = realloc_or_die(NULL, STREAM_BYTES, s->path);
    // A pipe may give its first bytes one by one; the codec shows in the first four.
    bool ok = true;
    while (ok && s->input_bytes < 4 && !s->input_ended) { ok = stream_read(s, err); }
    ok = ok && decompressor_open(&s->decompressor, codec_of_file(s->input, s->input_bytes), s->path, err);
    if (!ok) { stream_close(s); }
    return ok;
}

// Adds text behind s->bytes; *added is 0 only at the end of the file.
static bool stream_fill(Stream* s, size_t* added, Error* err) {
    if (s->room - s->bytes < STREAM_BYTES) {
        s->room = max_size(2 * s->room, s->bytes + 4 * STREAM_BYTES);
        s->text = realloc_or_die(s->text, s->room, s->path);
    }
    for (*added = 0; *added == 0;) {
        if (s->input_at == s->input_bytes && !s->input_ended) {
            s->input_at = s->input_bytes = 0;
            if (!stream_read(s, err)) { return false; }
        }
        const bool is_at_end = s->input_at == s->input_bytes;
        if (is_at_end && !s->decompressor.within) { return true; }
        const unsigned char* in = s->input + s->input_at;
        *added = s->room - s->bytes;
        if (!decompressor_run(&s->decompressor, s->text + s->bytes, added, &in, s->input + s->input_bytes, err)) {
            return false;
        }
        const bool is_stuck = *added == 0 && in == s->input + s->input_at;
        s->input_at = (size_t)(in - s->input);
        if (is_stuck && (!is_at_end || s->decompressor.within)) {
            return fail(err, "%s: cut short: its compressed data do not end: download or make it again", s->path);
        }
    }
    s->bytes += *added;
    return true;
}

// Returns how to read a file of a kind that its first bytes tell; NULL for others.
static const char* how_to_read(const Stream* s) {
    static const struct {
        const char *begin, *words;
    } kinds[] = {{"\xfd" "7zXZ", "decompress it by xz -d"}, {"PK\3\4", "unpack it by unzip"},
                 {"\xff\xfe", "convert it by iconv -f UTF-16 -t UTF-8"},
                 {"\xfe\xff", "convert it by iconv -f UTF-16 -t UTF-8"}};
    for (int i = 0; i < 4; i++) {
        const size_t n = strlen(kinds[i].begin);
        if (s->bytes >= n && !memcmp(s->text, kinds[i].begin, n)) { return kinds[i].words; }
    }
    return NULL;
}

bool stream_check_text(Stream* s, const char* advice, Error* err) {
    const size_t looked_at = 8000;
    for (size_t added = 1; s->bytes < looked_at && added > 0;) {
        if (!stream_fill(s, &added, err)) { return false; }
    }
    const char* zero = memchr(s->text, 0, min_size(s->bytes, looked_at));
    if (!zero) { return true; }
    const char* how = how_to_read(s);
    return fail(err, "%s: byte %td is 0, so this is not text: %s%s", s->path, zero - s->text,
                how ? how : "leave it out", how ? "" : advice);
}

// Frees the part of the buffer that was read.
static void stream_compact(Stream* s) {
    if (s->at == 0) { return; }
    memmove(s->text, s->text + s->at, s->bytes - s->at);
    s->bytes -= s->at;
    s->at = 0;
}

bool stream_line(Stream* s, const char** line, size_t* bytes, size_t limit, Error* err) {
    size_t n = 0, added = 1; // n: bytes of the line so far
    const char* end = NULL;
    while (added > 0) {
        const size_t have = min_size(s->bytes - s->at, limit);
        end = have > n ? memchr(s->text + s->at + n, '\n', have - n) : NULL;
        n = end ? (size_t)(end + 1 - (s->text + s->at)) : have;
        if (end || n == limit) { break; }
        stream_compact(s);
        if (!stream_fill(s, &added, err)) { return false; }
    }
    *line = s->text + s->at;
    *bytes = n;
    s->at += n;
    return true;
}

void stream_put_back(Stream* s, size_t bytes) { s->at -= bytes; }

bool stream_skip(Stream* s, uint64_t offset, char* last, Error* err) {
    const uint64_t place = offset;
    if (offset == 0) { return true; }
    if (s->decompressor.codec == CODEC_NONE && lseek(s->fd, (off_t)(offset - 1), SEEK_SET) >= 0) {
        s->input_at = s->input_bytes = 0;
        s->input_ended = false;
        offset = 1;
    }
    for (size_t added = 1; added > 0;) {
        const size_t n = (size_t)(offset < s->bytes ? offset : s->bytes);
        s->at = n;
        offset -= n;
        if (n > 0) { *last = s->text[n - 1]; }
        if (offset == 0) { return true; }
        s->at = s->bytes = 0;
        if (!stream_fill(s, &added, err)) { return false; }
    }
    return fail(err, "%s: its text ends before byte %" PRIu64 ", the place to go on from", s->path, place);
}
