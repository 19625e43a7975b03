// Reads text from a file or from standard input, plain or compressed by gzip or zstd: its first bytes tell which. All
// positions count bytes of the text, not of the compressed file. Memory stays at the longest line asked for and a few
// pieces of STREAM_BYTES.
#pragma once
#include "compression.h"

enum { STREAM_BYTES = 1 << 18 }; // read at once; chosen

typedef struct {
    const char* path;     // for messages, not owned
    int fd;               // -1: closed
    Decompressor decompressor;
    unsigned char* input; // [STREAM_BYTES] as in the file
    size_t input_at, input_bytes;
    bool input_ended;
    char* text;           // decompressed: what is still to be read, and what was read last
    size_t at, bytes, room;
} Stream;

// Opens a file; NULL is standard input. `path`, which must live as long as the stream, is for messages too. Nothing is
// left open on failure.
bool stream_open(Stream* s, const char* path, Error* err);

// Frees it. Harmless after a failure of stream_open(), and a second time.
void stream_close(Stream* s);

// Fails if a 0 is among the first 8000 bytes, as in most files that are no text; git judges so too. `advice` ends the
// error. Call it before all else: it takes nothing.
bool stream_check_text(Stream* s, const char* advice, Error* err);

// Reads the next line with its end, or its first `limit` bytes if it is longer. Sets `bytes`, 0 at the end of the file,
// and `line`, which lives until the next call. Fails if the file cannot be read, is damaged or cut short.
bool stream_line(Stream* s, const char** line, size_t* bytes, size_t limit, Error* err);

// Puts back the last `bytes` bytes of the line that was read last.
void stream_put_back(Stream* s, size_t bytes);

// Goes forward to byte `offset` of the text, in a file that was not read before; sets `last` to the byte before.
// A compressed file is decompressed up to there. Fails if the text is shorter.
bool stream_skip(Stream* s, uint64_t offset, char* last, Error* err);
