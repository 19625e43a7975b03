// Reads the input of ./prepare (files, standard input or the story grammar) and encodes it into tokens.
//
// The input is a sequence of chunks: a line of JSONL, a story, a document, or a part of a long document. The chunks of
// a batch are encoded in parallel and handed on in order. The tokens depend neither on the number of threads nor on
// where a long document was cut: it is cut only between a visible ASCII character and a line's end, where GPT-2's
// pattern always begins a new piece.
#pragma once
#include "../../data/stories.h"
#include "prepare_options.h"
#include "tokenizer.h"
#include <jansson.h>

// A long document is cut after CHUNK_BYTES. A batch ends at BATCH_BYTES or BATCH_CHUNKS; the first has FIRST_BATCH
// chunks. All chosen, not measured.
enum { CHUNK_BYTES = 1 << 20, BATCH_BYTES = 16 << 20, BATCH_CHUNKS = 4096, FIRST_BATCH = 16 };

// A place in the input from which reading can go on.
typedef struct {
    size_t input;         // which file
    uint64_t offset;      // in bytes; without files, the number of a story
    uint64_t line;        // lines of the file before the offset
    bool inside_document; // in a document, behind its beginning
} Position;

// A piece of input and the tokens it becomes.
typedef struct {
    Position at;
    StoryText text; // of JSONL: the whole line
    TokenList tokens;
    double nll; // of a story
    bool ok;
    Error err; // set if not ok
} Chunk;

// ---------------------------------------------------------------------------------------------------------------------
// encoding chunks

// Appends the end-of-text token and the tokens of a document's text; nothing if it is empty.
void encode_document(const Tokenizer* t, const char* text, size_t bytes, TokenList* out);

// Takes the next chunk, whose tokens are ready. Returns false if no more are wanted.
typedef bool ChunkTaker(void* context, const Chunk* chunk);

// Hands the chunks of the input from a position on, in order, to `take`, until that returns false or the input ends.
// Ends the program if an input cannot be read.
void encode_input(const PrepareOptions* o, const Tokenizer* t, Position at, ChunkTaker* take, void* context);

// ---------------------------------------------------------------------------------------------------------------------
// input files

// Reads a whole input file and returns {"name", "bytes", "hash"}, a new reference; NULL if its name is not UTF-8. Ends
// the program if the file is missing, compressed, Parquet, or not a regular file.
json_t* describe_input(const char* path);
