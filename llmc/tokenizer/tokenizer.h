// GPT-2's tokenizer: byte-level byte-pair encoding, token for token as tiktoken's `encode_ordinary`, with a vocabulary
// from a file in llm.c's format or embedded in the program.
//
// The file is a header of 256 uint32, little-endian (magic, version, vocabulary size, end of text, zeros), then for
// each token one byte of length, 1 to 255, and its bytes. Version 1 did not write the end of text.
//
// Encoding takes two steps. The text is cut into pieces (words with the space before them, mostly) by the pattern
//     '(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// and in each piece, starting from single bytes, the adjacent pair whose concatenation is the token of lowest id is
// merged, the leftmost first, until no pair is a token. (Radford et al. 2019, "Language models are unsupervised
// multitask learners"; Sennrich et al. 2016, "Neural machine translation of rare words with subword units".) That the
// lowest id is the earliest merge is a property of GPT-2's vocabulary, and makes the list of tokens all there is to
// load. A piece that is a token itself, as most are, takes one look-up. Each thread keeps short pieces with their
// tokens, since most words of a text are among few thousand.
//
// Any bytes can be encoded, and decode to themselves: what is no UTF-8 counts as characters of class "other", a byte
// each. Text never gives a special token, such as the end of text, even if it spells <|endoftext|>.
//
// A const Tokenizer may be used by any number of threads; each has a TokenList of its own. Each thread caches pieces of
// one tokenizer, in 2 MB, and clears them when it encodes with another.
#pragma once
#include "../base/base.h"

#define EOT_NAME "<|endoftext|>" // GPT-2's name for it

enum {
    TOKENIZER_MAGIC = 20240328,
    TOKENIZER_HEADER = 1024,       // bytes
    TOKENIZER_MAX_FILE = 64 << 20, // bytes; GPT-2's tokenizer.json has 1.4 MB
    TOKENIZER_V1_EOT = 50256,
    TOKENIZER_MIN_VOCAB = 257,     // the bytes and the end of text
    TOKENIZER_MAX_BYTES = 255,     // of a token
    TOKENIZER_MAX_VOCAB = 1 << 23, // so that offsets fit into 32 bits, an id and a position in the text into 64
    NO_TOKEN = -1,
    NOT_ASCII = 255, // a class beside those of unicode.h
};

typedef struct {
    uint32_t tag; // upper half of the token's hash: most other tokens are passed over by it alone
    int id;       // NO_TOKEN: a free slot
} TokenSlot;

typedef struct {
    int vocab_size, eot;
    int byte_id[256];               // the token of each byte
    uint64_t number;                // no other tokenizer of this process has it
    unsigned char byte_class[256];  // unicode_class() of ASCII; NOT_ASCII for other bytes
    size_t longest;                 // bytes of the longest token that is not special
    const unsigned char* file;      // the tokenizer file: the header, then length and bytes of each token
    unsigned char* owned;           // the same, unless it is embedded
    uint32_t* offset;               // [vocab_size] where in `file` a token's bytes begin; the byte before: how many
    bool* is_special;               // [vocab_size] true for the end of text, and others that text never gives
    TokenSlot* slots;               // hash table of all tokens that are not special, linear probing
    size_t mask;                    // its size, a power of two, minus 1
    int* pair_id;                   // [65536] the token of two bytes, the first one in the upper half, or NO_TOKEN
} Tokenizer;

extern const unsigned char gpt2_tokenizer_file[], gpt2_tokenizer_file_end[]; // tokenizer_data.S

// Returns the hash of a token's bytes (at least one). The lower bits are its slot, the upper half its tag.
uint64_t token_hash(const unsigned char* p, size_t bytes);

// Returns the token with these bytes (at least one), or NO_TOKEN.
int tokenizer_find(const Tokenizer* t, const unsigned char* p, size_t bytes);

// Returns the bytes of a token, not terminated, which live as long as `t`, and sets `bytes` to their number; NULL for
// an id out of range. To decode a text, concatenate the bytes of its tokens.
const char* tokenizer_token(const Tokenizer* t, int id, size_t* bytes);

// Returns a hash of all tokens, of the end of text, and of which others text never gives.
uint64_t tokenizer_hash(const Tokenizer* t);

// ---------------------------------------------------------------------------------------------------------------------
// loading

// Frees the tables, and the file if it was read.
void tokenizer_free(Tokenizer* t);

// Sets up `t` from a tokenizer file in memory, which must live as long as `t`; `name` is for messages. On failure there
// is nothing to free.
bool tokenizer_from_memory(Tokenizer* t, const void* file, size_t size, const char* name, Error* err);

// The bytes of a token, 1 to 255.
typedef struct {
    const void* bytes;
    size_t count;
    bool is_special;
} TokenBytes;

// The same from tokens in the order of their ids, which need not live longer. The end of text is special.
bool tokenizer_from_tokens(Tokenizer* t, const TokenBytes* tokens, int vocab_size, int eot, const char* name,
                           Error* err);

// Returns the size of t->file, which is llm.c's file of this tokenizer.
size_t tokenizer_file_size(const Tokenizer* t);

// Reads a tokenizer file (llm.c's format, versions 1 and 2). On failure there is nothing to free.
bool tokenizer_load(Tokenizer* t, const char* path, Error* err);

// Returns GPT-2's tokenizer, from the file embedded in the program.
Tokenizer tokenizer_builtin(void);

// Returns the tokenizer of the smallest vocabulary: tokens 0 to 255 are the bytes, 256 is the end of text.
Tokenizer tokenizer_bytes(void);

// ---------------------------------------------------------------------------------------------------------------------
// lists of tokens

enum {
    TOKENIZER_SHORT = 32,    // bytes of the longest piece that encoding merges by searching all pairs; chosen
    TOKEN_POSITION_BITS = 40 // of a key of the heap; those above are the id
};

typedef struct {
    size_t prev, next; // where the parts before and behind begin
    int id, pair;      // the part as a token; the token of it and the next part together, or NO_TOKEN
} TokenPart;

// A growing array of ids, and the scratch memory of the encoder that fills it.
typedef struct {
    int* ids;
    size_t count, room;
    TokenPart* parts; // of a long piece: parts[i] begins at byte i
    uint64_t* heap;   // its pairs: id << 40 | position, the least on top
    size_t heap_count; // 0 between calls
    size_t scratch_room; // bytes of the longest piece that parts and heap have room for
    uint64_t work;    // steps of merging so far: pairs looked up or compared, moves in the heap
} TokenList;

// Returns an empty list.
TokenList token_list(void);

// Frees the ids and the scratch memory; the list is empty then.
void token_list_free(TokenList* list);

// Appends one id. Like all functions below, ends the program if memory is exhausted.
void token_list_append(TokenList* list, int id);

// ---------------------------------------------------------------------------------------------------------------------
// cutting text into pieces

// Returns the number of bytes of the first piece of the text from p < end.
size_t tokenizer_piece(const Tokenizer* t, const unsigned char* p, const unsigned char* end);

// ---------------------------------------------------------------------------------------------------------------------
// merging the bytes of a piece

// Writes the tokens of a piece of up to TOKENIZER_MAX_BYTES bytes to `out`, of as many ids, and returns how many there
// are. Searches all pairs for each merge. Only tokens below `limit` are made; NO_TOKEN: all.
size_t tokenizer_merge_short(const Tokenizer* t, const unsigned char* p, size_t bytes, int limit, int* out);

// Appends the tokens of a piece of any number of bytes n, in O(n log n) steps: parts in a linked list, pairs in a heap.
// A pair that has changed since it was pushed stays in the heap; when it is popped, its id differs from the current one
// and it is skipped.
void tokenizer_merge_long(const Tokenizer* t, const unsigned char* p, size_t bytes, TokenList* out);

// Appends the tokens of a text to `out`; returns how many.
size_t tokenizer_encode(const Tokenizer* t, const char* text, size_t bytes, TokenList* out);

// ---------------------------------------------------------------------------------------------------------------------
// the merges, which the list of tokens implies

// Hugging Face's files list the merges: pairs of tokens, in the order in which they are applied. This program merges
// the pair whose concatenation is the token of lowest id. Both give the same tokens for every text if, for each token
// that is not special and not a byte, merging its own bytes by tokens of lower ids ends with two parts. Those two parts
// are the pair that was merged. (In a text, as long as nothing was merged across the token's ends, its bytes merge as
// they do alone.) This holds for GPT-2's tokens and for every trained tokenizer.

// Sets `half` to the two tokens whose merge is token `id`. Returns false if `id` is special or a byte, or if its bytes
// do not merge into it.
bool tokenizer_halves(const Tokenizer* t, int id, int half[2]);
