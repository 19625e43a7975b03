// Reads the input of ./prepare piece by piece: files, standard input or the story grammar.
//
// The input is a sequence of chunks: a line of JSONL, a row of a Parquet file, a story, a document, or a part of a long
// one. A long document of text is cut only between a character that is no white space and ASCII white space behind it,
// where GPT-2's pattern always begins a new piece: so the cut changes no token.
#pragma once
#include "../../data/stories.h"
#include "parquet.h"
#include "prepare_options.h"
#include "stream.h"
#include "../tokenizer/tokenizer.h"

// A document of text is cut after CHUNK_BYTES. A document that cannot be cut (of JSONL, of Parquet, or text without
// white space) may have MAX_DOCUMENT_BYTES, so that memory stays bounded. Chosen.
enum { CHUNK_BYTES = 1 << 20, MAX_DOCUMENT_BYTES = 16 << 20 };

// Returns the format of a file, never format_auto: --format or, if that is auto, what its first bytes and its name say.
// `path` is "-" for standard input. Ends the program if it cannot be read.
enum format input_format(const PrepareOptions* o, const char* path);

// A place in the input from which reading can go on.
typedef struct {
    size_t input;         // which file
    uint64_t offset;      // in bytes of text; of Parquet, in rows; without files, the number of a story
    uint64_t line;        // lines of the file before the offset
    bool inside_document; // in a document, behind its beginning
} Position;

// Why a document gave no tokens.
typedef enum { NOT_SKIPPED, SKIPPED_EMPTY, SKIPPED_NULL, SKIPPED_INVALID, SKIPPED_LONG, NUM_SKIPS } Skip;

// A piece of input and the tokens it becomes.
typedef struct {
    Position at;
    Position resume;   // a place to read from that gives this chunk again
    uint64_t order;    // chunks that come from there before this one
    enum format format;
    Buffer text; // of JSONL: the whole line
    size_t bytes;   // of the document's text
    TokenList tokens;
    double nll;     // of a story
    Skip skip;
    bool was_taken; // in an earlier run: its tokens are in finished shards
    bool ok;        // false: `error` is set, and it is the document that is wrong if `skip` is set, else the file
    char* error;    // why it is not `ok`; NULL if it is
} Chunk;

// Frees the text, the tokens and the error.
void chunk_clear(Chunk* c);

typedef struct {
    const PrepareOptions* options;
    Position at;
    size_t end_input; // no file from this one on is read
    bool is_open;
    enum format format;
    Stream stream;        // of text and JSONL
    bool is_at_line_start;
    Parquet parquet;
    Error err;            // of the last chunk that was not `ok`
} Reader;

// Ends the program unless each input file can be read: one is missing, not a regular file, no text where it should be,
// needs a library that this program was built without, or is a Parquet file without the column of --field.
void reader_check_files(const PrepareOptions* o);

// Begins to read a source at a position. reader_close() frees it.
void reader_open(Reader* r, const PrepareOptions* options, const Source* source, Position at);
void reader_close(Reader* r);

// Reads the next chunk into `c`, which is zeroed or cleared. Returns false at the end of the source. After a chunk that
// is not `ok`, and not skipped, nothing more can be read. The story grammar has no end, and makes its text later.
bool reader_next(Reader* r, Chunk* c);
