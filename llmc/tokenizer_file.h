// The tokenizer file: a vocabulary in llm.c's format, from a path or embedded in the program, and its look-ups.
//
// The file is a header of 256 uint32, little-endian (magic, version, vocabulary size, end of text, zeros), then for
// each token one byte of length, 1 to 255, and its bytes. Version 1 did not write the end of text.
#pragma once
#include "base.h"
#include "unicode.h"

enum {
    TOKENIZER_MAGIC = 20240328,
    TOKENIZER_HEADER = 1024,       // bytes
    TOKENIZER_V1_EOT = 50256,
    TOKENIZER_MIN_VOCAB = 257,     // the bytes and the end of text
    TOKENIZER_MAX_VOCAB = 1 << 23, // so that offsets fit into 32 bits, an id and a position in the text into 64
    NO_TOKEN = -1,
};

typedef struct {
    uint32_t tag; // of the token's hash, to pass over most others without looking at their bytes
    int id;       // NO_TOKEN: a free slot
} TokenSlot;

typedef struct {
    int vocab_size, eot;
    int byte_id[256];               // the token of each byte
    unsigned char ascii_class[128]; // unicode_class() of the first code points
    size_t longest;                 // bytes of the longest token but the end of text
    const unsigned char* file;      // the tokenizer file: the header, then length and bytes of each token
    unsigned char* owned;           // the same, unless it is embedded
    uint32_t* offset;               // [vocab_size] where in the file a token's bytes are; the byte before: how many
    TokenSlot* slots;               // hash table of all tokens but the end of text, linear probing
    size_t mask;                    // its size, a power of two, minus 1
} Tokenizer;

#ifdef __cplusplus
extern "C" {
#endif
extern const unsigned char gpt2_tokenizer_file[], gpt2_tokenizer_file_end[]; // tokenizer_data.S
#ifdef __cplusplus
}
#endif

static inline uint64_t token_hash(const unsigned char* p, size_t bytes) {
    const uint64_t odd = 0x9fb21c651e98df25ull;
    uint64_t h = bytes, word;
    for (; bytes > 8; bytes -= 8, p += 8) {
        memcpy(&word, p, 8);
        h = (h ^ word) * odd;
        h ^= h >> 32;
    }
    if (bytes >= 4) { // the first four and the last four, which may overlap
        uint32_t first, last;
        memcpy(&first, p, 4);
        memcpy(&last, p + bytes - 4, 4);
        word = first | (uint64_t)last << 32;
    } else {
        word = (uint64_t)p[0] | (uint64_t)p[bytes / 2] << 8 | (uint64_t)p[bytes - 1] << 16;
    }
    h = (h ^ word) * odd;
    return h ^ h >> 32;
}

// The slot of the token with these bytes, 1 or more, or the free slot where it would go.
static inline TokenSlot* tokenizer_slot(const Tokenizer* t, const unsigned char* p, size_t bytes, uint64_t hash) {
    for (size_t i = hash & t->mask;; i = (i + 1) & t->mask) {
        TokenSlot* slot = &t->slots[i];
        if (slot->id == NO_TOKEN) { return slot; }
        if (slot->tag != (uint32_t)(hash >> 32)) { continue; }
        const unsigned char* token = t->file + t->offset[slot->id];
        if (token[-1] == bytes && memcmp(token, p, bytes) == 0) { return slot; }
    }
}

// The token with these bytes, 1 or more, or NO_TOKEN.
static inline int tokenizer_find(const Tokenizer* t, const unsigned char* p, size_t bytes) {
    return bytes > t->longest ? NO_TOKEN : tokenizer_slot(t, p, bytes, token_hash(p, bytes))->id;
}

// The bytes of a token, not terminated, and their number; NULL for an id out of range. To decode, join them.
static inline const char* tokenizer_token(const Tokenizer* t, int id, size_t* bytes) {
    if (id < 0 || id >= t->vocab_size) { return NULL; }
    const unsigned char* token = t->file + t->offset[id];
    *bytes = token[-1];
    return (const char*)token;
}

// ---------------------------------------------------------------------------------------------------------------------
// loading

static inline void tokenizer_free(Tokenizer* t) {
    free(t->owned);
    free(t->offset);
    free(t->slots);
    memset(t, 0, sizeof *t);
}

// Checks the header and finds where each token is.
static inline bool tokenizer_parse(Tokenizer* t, size_t size, const char* name, Error* err) {
    uint32_t header[4];
    if (size < TOKENIZER_HEADER) { return fail(err, "%s: not a tokenizer file: only %zu bytes", name, size); }
    memcpy(header, t->file, sizeof header);
    if (header[0] != TOKENIZER_MAGIC) {
        return fail(err, "%s: not a tokenizer file: it begins with %u, not %d; give one like data/gpt2_tokenizer.bin",
                    name, header[0], TOKENIZER_MAGIC);
    }
    if (header[1] != 1 && header[1] != 2) {
        return fail(err, "%s: tokenizer file of version %u; only 1 and 2 are known", name, header[1]);
    }
    if (header[2] < TOKENIZER_MIN_VOCAB || header[2] > TOKENIZER_MAX_VOCAB) {
        return fail(err, "%s: vocabulary of %u tokens; it should be %d to %d", name, header[2], TOKENIZER_MIN_VOCAB,
                    TOKENIZER_MAX_VOCAB);
    }
    uint32_t eot = header[1] == 1 ? (uint32_t)TOKENIZER_V1_EOT : header[3];
    if (eot >= header[2]) {
        return fail(err, "%s: end of text is token %u, but there are only %u tokens", name, eot, header[2]);
    }
    t->vocab_size = (int)header[2];
    t->eot = (int)eot;
    t->offset = (uint32_t*)alloc_or_die(header[2], sizeof *t->offset, "the tokenizer");
    size_t at = TOKENIZER_HEADER;
    for (int id = 0; id < t->vocab_size; id++) {
        size_t length = at < size ? t->file[at] : 0;
        if (at >= size || length > size - at - 1) {
            return fail(err, "%s: ends within token %d of %d: copy it again", name, id, t->vocab_size);
        }
        if (length == 0) { return fail(err, "%s: token %d is empty", name, id); }
        t->offset[id] = (uint32_t)(at + 1);
        at += 1 + length;
    }
    return at == size || fail(err, "%s: %zu bytes behind the last token", name, size - at);
}

// Fills the hash table and what goes with it.
static inline bool tokenizer_index(Tokenizer* t, const char* name, Error* err) {
    size_t num_slots = 1024, bytes = 0;
    while (num_slots < 2 * (size_t)t->vocab_size) { num_slots *= 2; }
    t->mask = num_slots - 1;
    t->slots = (TokenSlot*)alloc_or_die(num_slots, sizeof *t->slots, "the tokenizer");
    for (size_t i = 0; i < num_slots; i++) { t->slots[i].id = NO_TOKEN; }
    for (int id = 0; id < t->vocab_size; id++) {
        const unsigned char* token = (const unsigned char*)tokenizer_token(t, id, &bytes);
        if (id == t->eot) { continue; }
        uint64_t hash = token_hash(token, bytes);
        TokenSlot* slot = tokenizer_slot(t, token, bytes, hash);
        if (slot->id != NO_TOKEN) { return fail(err, "%s: tokens %d and %d are the same", name, slot->id, id); }
        slot->tag = (uint32_t)(hash >> 32);
        slot->id = id;
        t->longest = max_size(t->longest, bytes);
    }
    for (int b = 0; b < 256; b++) {
        unsigned char byte = (unsigned char)b;
        t->byte_id[b] = tokenizer_find(t, &byte, 1);
        if (t->byte_id[b] == NO_TOKEN) { return fail(err, "%s: no token for the single byte 0x%02x", name, b); }
    }
    for (uint32_t c = 0; c < 128; c++) { t->ascii_class[c] = (unsigned char)unicode_class(c); }
    return true;
}

// Sets up `t` from a tokenizer file in memory, which must live as long as `t`; `name` is for messages. On failure there
// is nothing to free.
static inline bool tokenizer_from_memory(Tokenizer* t, const void* file, size_t size, const char* name, Error* err) {
    memset(t, 0, sizeof *t);
    t->file = (const unsigned char*)file;
    if (tokenizer_parse(t, size, name, err) && tokenizer_index(t, name, err)) { return true; }
    tokenizer_free(t);
    return false;
}

// Reads a tokenizer file (llm.c's format, versions 1 and 2).
static inline bool tokenizer_load(Tokenizer* t, const char* path, Error* err) {
    size_t size;
    char* file = read_file(path, &size, err);
    if (!file) { return false; }
    if (!tokenizer_from_memory(t, file, size, path, err)) { free(file); return false; }
    t->owned = (unsigned char*)file;
    return true;
}

// GPT-2's tokens, from the file embedded in the program.
static inline Tokenizer tokenizer_builtin(void) {
    Tokenizer t;
    Error err;
    size_t size = (size_t)(gpt2_tokenizer_file_end - gpt2_tokenizer_file);
    if (!tokenizer_from_memory(&t, gpt2_tokenizer_file, size, "the built-in file", &err)) { fatal("%s", err.text); }
    return t;
}

// The smallest vocabulary: tokens 0 to 255 are the bytes, 256 is the end of text.
static inline Tokenizer tokenizer_bytes(void) {
    const char* eot = "<|endoftext|>";
    uint32_t header[4] = {TOKENIZER_MAGIC, 2, 257, 256};
    size_t size = TOKENIZER_HEADER + 2 * 256 + 1 + strlen(eot);
    unsigned char* file = (unsigned char*)alloc_or_die(size, 1, "the tokenizer");
    unsigned char* p = file + TOKENIZER_HEADER;
    memcpy(file, header, sizeof header);
    for (int b = 0; b < 256; b++) { *p++ = 1; *p++ = (unsigned char)b; }
    *p++ = (unsigned char)strlen(eot);
    memcpy(p, eot, strlen(eot));
    Tokenizer t;
    Error err;
    if (!tokenizer_from_memory(&t, file, size, "the tokenizer of bytes", &err)) { fatal("%s", err.text); }
    t.owned = file;
    return t;
}

// The tokenizer that an option names: "gpt2" or "", "bytes", or else the path of a tokenizer file. Ends the program if
// it cannot be had.
static inline Tokenizer tokenizer_open(const char* option) {
    if (!*option || strcmp(option, "gpt2") == 0) { return tokenizer_builtin(); }
    if (strcmp(option, "bytes") == 0) { return tokenizer_bytes(); }
    Tokenizer t;
    Error err;
    if (!tokenizer_load(&t, option, &err)) { fatal("--tokenizer is gpt2, bytes or a file: %s", err.text); }
    return t;
}
