#include "tokenizer.h"
#include "../base/file.h"
#include "unicode.h"
#include <stdatomic.h>

uint64_t token_hash(const unsigned char* p, size_t bytes) {
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

// Returns the slot of the token with these bytes (at least one), or the free slot where it would go.
static TokenSlot* tokenizer_slot(const Tokenizer* t, const unsigned char* p, size_t bytes, uint64_t hash) {
    for (size_t i = hash & t->mask;; i = (i + 1) & t->mask) {
        TokenSlot* slot = &t->slots[i];
        if (slot->id == NO_TOKEN) { return slot; }
        if (slot->tag != (uint32_t)(hash >> 32)) { continue; }
        const unsigned char* token = t->file + t->offset[slot->id];
        if (token[-1] == bytes && memcmp(token, p, bytes) == 0) { return slot; }
    }
}

int tokenizer_find(const Tokenizer* t, const unsigned char* p, size_t bytes) {
    if (bytes > t->longest) { return NO_TOKEN; }
    if (bytes == 2) { return t->pair_id[p[0] << 8 | p[1]]; } // the most frequent question of a merge
    return tokenizer_slot(t, p, bytes, token_hash(p, bytes))->id;
}

const char* tokenizer_token(const Tokenizer* t, int id, size_t* bytes) {
    if (id < 0 || id >= t->vocab_size) { return NULL; }
    const unsigned char* token = t->file + t->offset[id];
    *bytes = token[-1];
    return (const char*)token;
}

uint64_t tokenizer_hash(const Tokenizer* t) {
    uint64_t hash = (uint64_t)t->eot;
    for (int id = 0; id < t->vocab_size; id++) {
        size_t bytes;
        const char* token = tokenizer_token(t, id, &bytes);
        const bool is_never_given = t->is_special[id] && id != t->eot; // the same bytes of text are then other tokens
        hash = hash64(token, bytes, hash + is_never_given);
    }
    return hash;
}

// ---------------------------------------------------------------------------------------------------------------------
// loading

void tokenizer_free(Tokenizer* t) {
    free(t->owned);
    free(t->offset);
    free(t->slots);
    free(t->pair_id);
    free(t->is_special);
    memset(t, 0, sizeof *t);
}

// Checks the header and finds where each token is.
static bool tokenizer_parse(Tokenizer* t, size_t size, const char* name, Error* err) {
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
    t->offset = alloc_or_die(header[2], sizeof *t->offset, "the tokenizer");
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

// Fills the hash table and the tables of bytes and ASCII classes.
static bool tokenizer_index(Tokenizer* t, const char* name, Error* err) {
    size_t num_slots = 1024, bytes = 0;
    while (num_slots < 2 * (size_t)t->vocab_size) { num_slots *= 2; }
    t->mask = num_slots - 1;
    t->slots = realloc_or_die(NULL, num_slots * sizeof *t->slots, "the tokenizer");
    t->pair_id = realloc_or_die(NULL, (1 << 16) * sizeof *t->pair_id, "the tokenizer");
    for (size_t i = 0; i < num_slots; i++) { t->slots[i].id = NO_TOKEN; }
    for (int i = 0; i < 1 << 16; i++) { t->pair_id[i] = NO_TOKEN; }
    for (int id = 0; id < t->vocab_size; id++) {
        const unsigned char* token = (const unsigned char*)tokenizer_token(t, id, &bytes);
        if (t->is_special[id]) { continue; }
        uint64_t hash = token_hash(token, bytes);
        TokenSlot* slot = tokenizer_slot(t, token, bytes, hash);
        if (slot->id != NO_TOKEN) { return fail(err, "%s: tokens %d and %d are the same", name, slot->id, id); }
        slot->tag = (uint32_t)(hash >> 32);
        slot->id = id;
        t->longest = max_size(t->longest, bytes);
        if (bytes == 2) { t->pair_id[token[0] << 8 | token[1]] = id; }
    }
    for (int b = 0; b < 256; b++) {
        unsigned char byte = (unsigned char)b;
        t->byte_id[b] = tokenizer_find(t, &byte, 1);
        if (t->byte_id[b] == NO_TOKEN) { return fail(err, "%s: no token for the single byte 0x%02x", name, b); }
    }
    for (uint32_t c = 0; c < 256; c++) { t->byte_class[c] = c < 128 ? (unsigned char)unicode_class(c) : NOT_ASCII; }
    return true;
}

// Sets up `t`. The end of text is special, and each token for which specials[id]; NULL: no other.
static bool tokenizer_setup(Tokenizer* t, const void* file, size_t size, const bool* specials, const char* name,
                            Error* err) {
    static atomic_uint_fast64_t count;
    memset(t, 0, sizeof *t);
    t->number = atomic_fetch_add(&count, 1) + 1;
    t->file = (const unsigned char*)file;
    bool ok = tokenizer_parse(t, size, name, err);
    if (ok) {
        t->is_special = alloc_or_die((size_t)t->vocab_size, sizeof *t->is_special, "the tokenizer");
        if (specials) { memcpy(t->is_special, specials, (size_t)t->vocab_size * sizeof *specials); }
        t->is_special[t->eot] = true;
        ok = tokenizer_index(t, name, err);
    }
    if (!ok) { tokenizer_free(t); }
    return ok;
}

bool tokenizer_from_memory(Tokenizer* t, const void* file, size_t size, const char* name, Error* err) {
    return tokenizer_setup(t, file, size, NULL, name, err);
}

bool tokenizer_from_tokens(Tokenizer* t, const TokenBytes* tokens, int vocab_size, int eot, const char* name,
                           Error* err) {
    const uint32_t header[4] = {TOKENIZER_MAGIC, 2, (uint32_t)vocab_size, (uint32_t)eot};
    size_t size = TOKENIZER_HEADER;
    for (int id = 0; id < vocab_size; id++) {
        if (tokens[id].count > TOKENIZER_MAX_BYTES) {
            return fail(err, "%s: token %d has %zu bytes, %d is the most", name, id, tokens[id].count,
                        TOKENIZER_MAX_BYTES);
        }
        size += 1 + tokens[id].count;
    }
    unsigned char *file = alloc_or_die(size, 1, "the tokenizer"), *p = file + TOKENIZER_HEADER;
    bool* specials = alloc_or_die((size_t)vocab_size + 1, sizeof *specials, "the tokenizer");
    memcpy(file, header, sizeof header);
    for (int id = 0; id < vocab_size; id++) {
        *p++ = (unsigned char)tokens[id].count;
        memcpy(p, tokens[id].bytes, tokens[id].count);
        p += tokens[id].count;
        specials[id] = tokens[id].is_special;
    }
    const bool ok = tokenizer_setup(t, file, size, specials, name, err);
    free(specials);
    if (ok) { t->owned = file; }
    else { free(file); }
    return ok;
}

size_t tokenizer_file_size(const Tokenizer* t) {
    size_t bytes = 0;
    const char* last = tokenizer_token(t, t->vocab_size - 1, &bytes);
    return (size_t)((const unsigned char*)last - t->file) + bytes;
}

bool tokenizer_load(Tokenizer* t, const char* path, Error* err) {
    size_t size;
    char* file = read_file_up_to(path, TOKENIZER_MAX_FILE, &size, err);
    if (!file) { return false; }
    if (!tokenizer_from_memory(t, file, size, path, err)) { free(file); return false; }
    t->owned = (unsigned char*)file;
    return true;
}

Tokenizer tokenizer_builtin(void) {
    Tokenizer t;
    Error err;
    size_t size = (size_t)(gpt2_tokenizer_file_end - gpt2_tokenizer_file);
    if (!tokenizer_from_memory(&t, gpt2_tokenizer_file, size, "the built-in file", &err)) { fatal("%s", err.text); }
    return t;
}

Tokenizer tokenizer_bytes(void) {
    unsigned char byte[256];
    TokenBytes tokens[257] = {[256] = {EOT_NAME, strlen(EOT_NAME), true}};
    for (int b = 0; b < 256; b++) {
        byte[b] = (unsigned char)b;
        tokens[b] = (TokenBytes){&byte[b], 1, false};
    }
    Tokenizer t;
    Error err;
    if (!tokenizer_from_tokens(&t, tokens, 257, 256, "the tokenizer of bytes", &err)) { fatal("%s", err.text); }
    return t;
}
