// GPT-2's tokenizer: byte-level byte-pair encoding, token for token as tiktoken's `encode_ordinary`.
//
// Encoding takes two steps. The text is cut into pieces (words with the space before them, mostly) by the pattern
//     '(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// and in each piece, starting from single bytes, the adjacent pair whose concatenation is the token of lowest id is
// merged, the leftmost first, until no pair is a token. (Radford et al. 2019, "Language models are unsupervised
// multitask learners"; Sennrich et al. 2016, "Neural machine translation of rare words with subword units".) That the
// lowest id is the earliest merge is a property of GPT-2's vocabulary, and makes the list of tokens all there is to
// load. A piece that is a token itself, as most are, takes one look-up.
//
// Any bytes can be encoded, and decode to themselves: what is no UTF-8 counts as characters of class "other", a byte
// each. Text never gives the end-of-text token, even if it spells <|endoftext|>.
//
// A const Tokenizer may be used by any number of threads; each has a TokenList of its own.
#pragma once
#include "tokenizer_file.h"

enum {
    TOKENIZER_SHORT = 32,    // bytes of the longest piece whose pairs are searched one by one
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
    size_t heap_count, scratch_room; // the heap is empty between calls
    uint64_t work;    // steps of merging so far: pairs looked up or compared, moves in the heap
} TokenList;

static inline TokenList token_list(void) {
    TokenList list;
    memset(&list, 0, sizeof list);
    return list;
}

static inline void token_list_free(TokenList* list) {
    free(list->ids);
    free(list->parts);
    free(list->heap);
    *list = token_list();
}

// Makes room for `count` more ids.
static inline void token_list_reserve(TokenList* list, size_t count) {
    if (list->room - list->count >= count) { return; }
    list->room = max_size(2 * list->room, list->count + max_size(count, 1024));
    list->ids = (int*)realloc_or_die(list->ids, list->room * sizeof *list->ids, "token ids");
}

static inline void token_list_append(TokenList* list, int id) {
    token_list_reserve(list, 1);
    list->ids[list->count++] = id;
}

// ---------------------------------------------------------------------------------------------------------------------
// cutting text into pieces

// The class of the character at p < end, and its bytes.
static inline int tokenizer_class(const Tokenizer* t, const unsigned char* p, const unsigned char* end, size_t* bytes) {
    if (*p < 0x80) { *bytes = 1; return t->ascii_class[*p]; }
    uint32_t code_point;
    *bytes = utf8_decode(p, end, &code_point);
    if (*bytes == 0) { *bytes = 1; return UNICODE_OTHER; }
    return unicode_class(code_point);
}

// The bytes of the contraction at p, which is an apostrophe; 0 if there is none.
static inline size_t tokenizer_contraction(const unsigned char* p, const unsigned char* end) {
    if (end - p >= 2 && memchr("sdmt", p[1], 4)) { return 2; }
    if (end - p < 3) { return 0; }
    return memcmp(p, "'ll", 3) == 0 || memcmp(p, "'ve", 3) == 0 || memcmp(p, "'re", 3) == 0 ? 3 : 0;
}

// The bytes of the first piece of the text from p < end.
static inline size_t tokenizer_piece(const Tokenizer* t, const unsigned char* p, const unsigned char* end) {
    size_t bytes;
    if (*p == '\'' && (bytes = tokenizer_contraction(p, end)) > 0) { return bytes; }
    const unsigned char* q = p + (*p == ' ' && end - p > 1);
    int class_ = tokenizer_class(t, q, end, &bytes);
    if (class_ != UNICODE_SPACE) { // a word: letters, or numbers, or others
        do { q += bytes; } while (q < end && tokenizer_class(t, q, end, &bytes) == class_);
        return (size_t)(q - p);
    }
    // White space leaves its last character to what comes behind it, if it has more than one.
    const unsigned char* last = q = p;
    for (; q < end && tokenizer_class(t, q, end, &bytes) == UNICODE_SPACE; q += bytes) { last = q; }
    return (size_t)((q == end || last == p ? q : last) - p);
}

// ---------------------------------------------------------------------------------------------------------------------
// merging the bytes of a piece

// Up to TOKENIZER_SHORT bytes: searches all pairs for each merge.
static inline void tokenizer_merge_short(const Tokenizer* t, const unsigned char* p, size_t bytes, TokenList* out) {
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

static inline void token_heap_push(TokenList* list, uint64_t key) {
    size_t i = list->heap_count++;
    for (; i > 0 && list->heap[(i - 1) / 2] > key; i = (i - 1) / 2) {
        list->heap[i] = list->heap[(i - 1) / 2];
        list->work++;
    }
    list->heap[i] = key;
}

static inline uint64_t token_heap_pop(TokenList* list) {
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

// Looks up the pair that begins at byte i of the piece, and remembers it.
static inline void tokenizer_rate(const Tokenizer* t, const unsigned char* p, size_t bytes, size_t i, TokenList* list) {
    TokenPart* part = &list->parts[i];
    list->work++;
    part->pair = part->next < bytes ? tokenizer_find(t, p + i, list->parts[part->next].next - i) : NO_TOKEN;
    if (part->pair != NO_TOKEN) { token_heap_push(list, (uint64_t)part->pair << TOKEN_POSITION_BITS | i); }
}

// Any number of bytes: parts in a linked list, pairs in a heap. n bytes take O(n log n) steps. A pair that has changed
// since it was put into the heap is recognized by its id when its turn comes.
static inline void tokenizer_merge_long(const Tokenizer* t, const unsigned char* p, size_t bytes, TokenList* out) {
    if (out->scratch_room < bytes) {
        out->scratch_room = bytes;
        out->parts = (TokenPart*)realloc_or_die(out->parts, bytes * sizeof *out->parts, "the tokenizer");
        // One entry for each pair at first, and each of less than `bytes` merges takes one and puts back two at most.
        out->heap = (uint64_t*)realloc_or_die(out->heap, 2 * bytes * sizeof *out->heap, "the tokenizer");
    }
    TokenPart* parts = out->parts;
    for (size_t i = 0; i < bytes; i++) {
        parts[i].prev = i - 1; // never read for the first
        parts[i].next = i + 1;
        parts[i].id = t->byte_id[p[i]];
    }
    for (size_t i = 0; i < bytes; i++) { tokenizer_rate(t, p, bytes, i, out); }
    while (out->heap_count > 0) {
        uint64_t key = token_heap_pop(out);
        size_t i = (size_t)(key & (((uint64_t)1 << TOKEN_POSITION_BITS) - 1)), gone = parts[i].next;
        if (parts[i].pair != (int)(key >> TOKEN_POSITION_BITS)) { continue; }
        parts[i].id = parts[i].pair;
        parts[i].next = parts[gone].next;
        parts[gone].pair = NO_TOKEN;
        if (parts[i].next < bytes) { parts[parts[i].next].prev = i; }
        tokenizer_rate(t, p, bytes, i, out);
        if (i > 0) { tokenizer_rate(t, p, bytes, parts[i].prev, out); }
    }
    for (size_t i = 0; i < bytes; i = parts[i].next) { token_list_append(out, parts[i].id); }
}

// Appends the tokens of the text to `out`; returns how many.
static inline size_t tokenizer_encode(const Tokenizer* t, const char* text, size_t bytes, TokenList* out) {
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

// ---------------------------------------------------------------------------------------------------------------------
// the command `tokenize`

// Writes the tokens of everything in `in` to `out`: decimal ids on one line, with spaces between.
static inline void tokenize_text(const Tokenizer* t, FILE* in, FILE* out) {
    Error err;
    size_t bytes;
    char* text = read_stream(in, "the text", &bytes, &err);
    if (!text) { fatal("tokenize: %s", err.text); }
    TokenList list = token_list();
    tokenizer_encode(t, text, bytes, &list);
    for (size_t i = 0; i < list.count; i++) { fprintf(out, i ? " %d" : "%d", list.ids[i]); }
    fputc('\n', out);
    if (fflush(out) != 0 || ferror(out)) { fatal("tokenize: cannot write the ids: %s", strerror(errno)); }
    token_list_free(&list);
    free(text);
}

// Reads a word: what stands between white space. Keeps its first bytes, terminated and with what cannot be printed as
// '?'. Returns its length, 0 at the end of the file.
static inline size_t tokenize_read_word(FILE* in, char* word, size_t room) {
    size_t n = 0;
    for (int c; (c = getc(in)) != EOF;) {
        bool space = c == ' ' || (c >= '\t' && c <= '\r');
        if (space && n > 0) { break; }
        if (space) { continue; }
        if (n + 1 < room) { word[n] = (char)(c > 32 && c < 127 ? c : '?'); }
        n++;
    }
    word[min_size(n, room - 1)] = 0;
    return n;
}

// Writes the bytes of the tokens whose decimal ids are in `in`, with white space between, to `out`.
static inline void tokenize_ids(const Tokenizer* t, FILE* in, FILE* out) {
    char word[24];
    size_t bytes;
    for (uint64_t count = 1; (bytes = tokenize_read_word(in, word, sizeof word)) > 0; count++) {
        bool digits = strspn(word, "0123456789") == bytes; // not of a word that was cut off
        long long id = digits ? strtoll(word, NULL, 10) : -1;
        const char* token = id <= INT32_MAX ? tokenizer_token(t, (int)id, &bytes) : NULL;
        if (!token) {
            fatal("tokenize: word %llu, \"%s%s\", is not a token id: 0 to %d", (unsigned long long)count, word,
                  bytes < sizeof word ? "" : "...", t->vocab_size - 1);
        }
        fwrite(token, 1, bytes, out);
    }
    if (ferror(in)) { fatal("tokenize: cannot read the ids: %s", strerror(errno)); }
    if (fflush(out) != 0 || ferror(out)) { fatal("tokenize: cannot write the text: %s", strerror(errno)); }
}
