#include "tokenizer.h"
#include "tokenizer_json.h"
#include "unicode.h"

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
    if (bytes == 2) { return t->pair_id[p[0] << 8 | p[1]]; } // the most frequent question of a merge
    return bytes > t->longest ? NO_TOKEN : tokenizer_slot(t, p, bytes, token_hash(p, bytes))->id;
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
        hash = hash64(token, bytes, hash);
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
    t->slots = alloc_or_die(num_slots, sizeof *t->slots, "the tokenizer");
    for (size_t i = 0; i < num_slots; i++) { t->slots[i].id = NO_TOKEN; }
    t->pair_id = alloc_or_die(1 << 16, sizeof *t->pair_id, "the tokenizer");
    for (int i = 0; i < 1 << 16; i++) { t->pair_id[i] = NO_TOKEN; }
    for (int id = 0; id < t->vocab_size; id++) {
        const unsigned char* token = (const unsigned char*)tokenizer_token(t, id, &bytes);
        if (t->is_special[id]) { continue; }
        uint64_t hash = token_hash(token, bytes);
        TokenSlot* slot = tokenizer_slot(t, token, bytes, hash);
        if (slot->id != NO_TOKEN) { return fail(err, "%s: tokens %d and %d are the same", name, slot->id, id); }
        slot->tag = (uint32_t)(hash >> 32);
        slot->id = id;
        if (bytes == 2) { t->pair_id[token[0] << 8 | token[1]] = id; }
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

// Sets up `t`. The end of text is special, and each token for which specials[id]; NULL: no other.
static bool tokenizer_setup(Tokenizer* t, const void* file, size_t size, const bool* specials, const char* name,
                            Error* err) {
    memset(t, 0, sizeof *t);
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
        if (tokens[id].count > 255) {
            return fail(err, "%s: token %d has %zu bytes, 255 is the most", name, id, tokens[id].count);
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
    char* file = read_file(path, &size, err);
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
    static const char eot[] = "<|endoftext|>";
    unsigned char byte[256];
    TokenBytes tokens[257] = {[256] = {eot, strlen(eot), true}};
    for (int b = 0; b < 256; b++) {
        byte[b] = (unsigned char)b;
        tokens[b] = (TokenBytes){&byte[b], 1, false};
    }
    Tokenizer t;
    Error err;
    if (!tokenizer_from_tokens(&t, tokens, 257, 256, "the tokenizer of bytes", &err)) { fatal("%s", err.text); }
    return t;
}

// Returns true if a file begins as a JSON object does.
static bool begins_as_json(const char* path) {
    Error err;
    FILE* f = fopen_regular(path, &err);
    int c = ' ';
    while (f && (c == ' ' || c == '\n' || c == '\r' || c == '\t')) { c = getc(f); }
    if (f) { fclose(f); }
    return c == '{';
}

bool is_tokenizer_file(const char* path) {
    Error err;
    uint32_t magic = 0;
    FILE* f = fopen_regular(path, &err);
    const bool is_read = f && fread(&magic, sizeof magic, 1, f) == 1;
    if (f) { fclose(f); }
    return (is_read && magic == TOKENIZER_MAGIC) || begins_as_json(path);
}

bool tokenizer_read(Tokenizer* t, const char* path, Error* err) {
    if (is_directory(path)) { return tokenizer_read_folder(t, path, err); }
    return begins_as_json(path) ? tokenizer_read_json(t, path, err) : tokenizer_load(t, path, err);
}

Tokenizer tokenizer_open(const char* option) {
    if (!*option || strcmp(option, "gpt2") == 0) { return tokenizer_builtin(); }
    if (strcmp(option, "bytes") == 0) { return tokenizer_bytes(); }
    Tokenizer t;
    Error err;
    if (!tokenizer_read(&t, option, &err)) { fatal("--tokenizer is gpt2, bytes, a file or a folder: %s", err.text); }
    return t;
}

TokenList token_list(void) {
    TokenList list;
    memset(&list, 0, sizeof list);
    return list;
}

void token_list_free(TokenList* list) {
    free(list->ids);
    free(list->parts);
    free(list->heap);
    *list = token_list();
}

// Makes room for `count` more ids.
static void token_list_reserve(TokenList* list, size_t count) {
    if (list->room - list->count >= count) { return; }
    list->room = max_size(2 * list->room, list->count + max_size(count, 1024));
    list->ids = realloc_or_die(list->ids, list->room * sizeof *list->ids, "token ids");
}

void token_list_append(TokenList* list, int id) {
    token_list_reserve(list, 1);
    list->ids[list->count++] = id;
}

// ---------------------------------------------------------------------------------------------------------------------
// cutting text into pieces

// Returns the class of the character at p < end, and its number of bytes.
static int tokenizer_class(const Tokenizer* t, const unsigned char* p, const unsigned char* end, size_t* bytes) {
    if (*p < 0x80) { *bytes = 1; return t->ascii_class[*p]; }
    uint32_t code_point;
    *bytes = utf8_decode(p, end, &code_point);
    if (*bytes == 0) { *bytes = 1; return UNICODE_OTHER; }
    return unicode_class(code_point);
}

// Returns the number of bytes of the contraction at p, which is an apostrophe; 0 if there is none.
static size_t tokenizer_contraction(const unsigned char* p, const unsigned char* end) {
    if (end - p >= 2 && memchr("sdmt", p[1], 4)) { return 2; }
    if (end - p < 3) { return 0; }
    return memcmp(p, "'ll", 3) == 0 || memcmp(p, "'ve", 3) == 0 || memcmp(p, "'re", 3) == 0 ? 3 : 0;
}

size_t tokenizer_piece(const Tokenizer* t, const unsigned char* p, const unsigned char* end) {
    size_t bytes;
    if (*p == '\'' && (bytes = tokenizer_contraction(p, end)) > 0) { return bytes; }
    const unsigned char* q = p + (*p == ' ' && end - p > 1);
    int class_ = tokenizer_class(t, q, end, &bytes);
    if (class_ != UNICODE_SPACE) { // a word: letters, or numbers, or others
        do { q += bytes; } while (q < end && tokenizer_class(t, q, end, &bytes) == class_);
        return (size_t)(q - p);
    }
    // Of several white-space characters the last one goes to the next piece, unless the text ends: \s+(?!\S)
    const unsigned char* last = q = p;
    for (; q < end && tokenizer_class(t, q, end, &bytes) == UNICODE_SPACE; q += bytes) { last = q; }
    return (size_t)((q == end || last == p ? q : last) - p);
}

// ---------------------------------------------------------------------------------------------------------------------
// merging the bytes of a piece

void tokenizer_merge_short(const Tokenizer* t, const unsigned char* p, size_t bytes, TokenList* out) {
    size_t begin[TOKENIZER_SHORT + 1], count = bytes; // part i is [begin[i], begin[i + 1])
    int id[TOKENIZER_SHORT], pair[TOKENIZER_SHORT];   // as in TokenPart
    for (size_t i = 0; i < bytes; i++) {
        begin[i] = i;
        id[i] = t->byte_id[p[i]];
        pair[i] = i + 1 < bytes ? tokenizer_find(t, p + i, 2) : NO_TOKEN;
    }
    begin[bytes] = bytes;
    for (;;) {
        size_t best = 0;
        // As unsigned numbers, NO_TOKEN is the greatest.
        for (size_t i = 1; i + 1 < count; i++) { if ((unsigned)pair[i] < (unsigned)pair[best]) { best = i; } }
        out->work += count;
        // NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): a piece has at least one byte
        if (pair[best] == NO_TOKEN) { break; }
        id[best] = pair[best];
        count--;
        for (size_t i = best + 1; i < count; i++) { begin[i] = begin[i + 1]; id[i] = id[i + 1]; pair[i] = pair[i + 1]; }
        begin[count] = bytes;
        for (size_t i = best > 0 ? best - 1 : 0; i <= best; i++) { // the merged part has two new pairs
            pair[i] = i + 1 < count ? tokenizer_find(t, p + begin[i], begin[i + 2] - begin[i]) : NO_TOKEN;
        }
    }
    for (size_t i = 0; i < count; i++) { token_list_append(out, id[i]); }
}

static void token_heap_push(TokenList* list, uint64_t key) {
    size_t i = list->heap_count++;
    for (; i > 0 && list->heap[(i - 1) / 2] > key; i = (i - 1) / 2) {
        list->heap[i] = list->heap[(i - 1) / 2];
        list->work++;
    }
    list->heap[i] = key;
}

static uint64_t token_heap_pop(TokenList* list) {
    uint64_t top = list->heap[0], key = list->heap[--list->heap_count];
    size_t i = 0, count = list->heap_count;
    for (size_t child; (child = 2 * i + 1) < count; i = child) {
        if (child + 1 < count && list->heap[child + 1] < list->heap[child]) { child++; }
        if (list->heap[child] >= key) { break; }
        list->heap[i] = list->heap[child];
        list->work++;
    }
    list->heap[i] = key;
    return top;
}

// Looks up the pair that begins at byte i of the piece and, if it is a token, pushes it onto the heap.
static void tokenizer_push_pair(const Tokenizer* t, const unsigned char* p, size_t bytes, size_t i, TokenList* list) {
    TokenPart* part = &list->parts[i];
    list->work++;
    part->pair = part->next < bytes ? tokenizer_find(t, p + i, list->parts[part->next].next - i) : NO_TOKEN;
    if (part->pair != NO_TOKEN) { token_heap_push(list, (uint64_t)part->pair << TOKEN_POSITION_BITS | i); }
}

void tokenizer_merge_long(const Tokenizer* t, const unsigned char* p, size_t bytes, TokenList* out) {
    if (out->scratch_room < bytes) {
        out->scratch_room = bytes;
        out->parts = realloc_or_die(out->parts, bytes * sizeof *out->parts, "the tokenizer");
        // One entry for each pair at first, and each of less than `bytes` merges takes one and puts back two at most.
        out->heap = realloc_or_die(out->heap, 2 * bytes * sizeof *out->heap, "the tokenizer");
    }
    TokenPart* parts = out->parts;
    for (size_t i = 0; i < bytes; i++) {
        parts[i].prev = i - 1; // never read for the first
        parts[i].next = i + 1;
        parts[i].id = t->byte_id[p[i]];
    }
    for (size_t i = 0; i < bytes; i++) { tokenizer_push_pair(t, p, bytes, i, out); }
    while (out->heap_count > 0) {
        uint64_t key = token_heap_pop(out);
        size_t i = (size_t)(key & (((uint64_t)1 << TOKEN_POSITION_BITS) - 1)), gone = parts[i].next;
        if (parts[i].pair != (int)(key >> TOKEN_POSITION_BITS)) { continue; } // has changed since it was pushed
        parts[i].id = parts[i].pair;
        parts[i].next = parts[gone].next;
        parts[gone].pair = NO_TOKEN;
        if (parts[i].next < bytes) { parts[parts[i].next].prev = i; }
        tokenizer_push_pair(t, p, bytes, i, out);
        if (i > 0) { tokenizer_push_pair(t, p, bytes, parts[i].prev, out); }
    }
    for (size_t i = 0; i < bytes; i = parts[i].next) { token_list_append(out, parts[i].id); }
}

size_t tokenizer_encode(const Tokenizer* t, const char* text, size_t bytes, TokenList* out) {
    if (bytes == 0) { return 0; } // text may be NULL then
    const unsigned char *p = (const unsigned char*)text, *end = p + bytes;
    size_t before = out->count;
    if (t->longest == 1) { // tokens are bytes: there is nothing to cut or to merge
        token_list_reserve(out, bytes);
        for (; p < end; p++) { out->ids[out->count++] = t->byte_id[*p]; }
    }
    for (size_t n; p < end; p += n) {
        n = tokenizer_piece(t, p, end);
        int id = tokenizer_find(t, p, n);
        if (id != NO_TOKEN) { token_list_append(out, id); }
        else if (n <= TOKENIZER_SHORT) { tokenizer_merge_short(t, p, n, out); }
        else { tokenizer_merge_long(t, p, n, out); }
    }
    return out->count - before;
}
