// Encodes the documents of the input of ./prepare into tokens.
//
// Three batches of chunks are in work at a time: one thread reads the next batch, one writes the last, and all others
// encode the one between. Chunks are handed on in order, so that the tokens do not depend on the number of threads.
//
// Each source of --mix has three batches of its own, in size the source's share of one. Which source a document is
// taken from depends on the tokens before it, and so on the input and the weights alone.
//
// With --shuffle a batch is a window: its documents are handed on in random order, but for the last one and
// for a document that began in the window before. All chunks of a window resume at its beginning.
#pragma once
#include "reader.h"

// A batch ends at BATCH_BYTES or BATCH_CHUNKS, a window at WINDOW_BYTES or WINDOW_CHUNKS; the first batch has
// FIRST_BATCH chunks. A word (a piece of GPT-2's pattern) may have MAX_WORD_BYTES: merging takes 40 bytes of memory for
// each. All chosen, not measured.
enum { BATCH_BYTES = 16 << 20, BATCH_CHUNKS = 4096, FIRST_BATCH = 16, MAX_WORD_BYTES = 1 << 20,
       WINDOW_BYTES = 32 << 20, WINDOW_CHUNKS = 16384 };

// Appends the end-of-text token and the tokens of a document's text; nothing if it is empty.
void encode_document(const Tokenizer* t, const char* text, size_t bytes, TokenList* out);

// Progress in one source of the input: `chunks` chunks, read from `at` on, were handed on, and none after them.
typedef struct {
    Position at;
    uint64_t chunks, tokens; // tokens: all so far
} SourceState;

// Progress in the input. At the beginning all is zero, except the first file of each source.
typedef struct {
    SourceState sources[MAX_SOURCES];
    size_t current; // the source of the last chunk
} InputState;

// Returns the state in which nothing has been handed on.
InputState input_begin(const PrepareOptions* o);

// Returns the source that the next document is taken from: the one whose tokens are furthest behind its share, which is
// the least of tokens / weight; the first one of several. So at any time each source is less than a document away from
// its share.
size_t mix_choose(const PrepareOptions* o, const InputState* state);

// Takes the next chunk, whose tokens are ready. Returns false if no more are wanted.
typedef bool ChunkTaker(void* context, Chunk* chunk);

// Hands the chunks behind `state` to `take`. mix_choose() picks the source of each document. Ends when `take` returns
// false, or when the source whose turn it is has no documents left. Chunks without tokens are handed on too; those that
// an earlier run took (the state's `chunks`) come again, marked as was_taken. When `take` returns, `state` is moved
// behind the chunk. Without a tokenizer (NULL) documents are only read. Ends the program if a file cannot be read or,
// without --skip_bad, at the first document that cannot be used.
void encode_input(const PrepareOptions* o, const Tokenizer* t, InputState* state, ChunkTaker* take, void* context);
