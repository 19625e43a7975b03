// Encodes the documents of the input of ./prepare into tokens.
//
// Three batches of chunks are in work at a time: one thread reads the next batch, one writes the last, and all others
// encode the one between. Chunks are handed on in order, so that the tokens do not depend on the number of threads.
//
// With --shuffle_documents a batch is a window: its documents are handed on in random order, but for the last one and
// for a document that began in the window before. All chunks of a window resume at its beginning.
#pragma once
#include "reader.h"

// A batch ends at BATCH_BYTES or BATCH_CHUNKS, a window at WINDOW_BYTES or WINDOW_CHUNKS; the first batch has
// FIRST_BATCH chunks. A word (a piece of GPT-2's pattern) may
// have MAX_WORD_BYTES: merging takes 40 bytes of memory for each. All chosen, not measured.
enum { BATCH_BYTES = 16 << 20, BATCH_CHUNKS = 4096, FIRST_BATCH = 16, MAX_WORD_BYTES = 1 << 20,
       WINDOW_BYTES = 32 << 20, WINDOW_CHUNKS = 16384 };

// Appends the end-of-text token and the tokens of a document's text; nothing if it is empty.
void encode_document(const Tokenizer* t, const char* text, size_t bytes, TokenList* out);

// Takes the next chunk, whose tokens are ready. Returns false if no more are wanted.
typedef bool ChunkTaker(void* context, const Chunk* chunk);

// Hands the chunks of the input from a position on, in order, to `take`, until that returns false or the input ends;
// those without tokens too. Without a tokenizer (NULL) documents are read and hashed only. Ends the program if a file
// cannot be read or, without --skip_bad, at the first document that cannot be used.
void encode_input(const PrepareOptions* o, const Tokenizer* t, Position at, ChunkTaker* take, void* context);
