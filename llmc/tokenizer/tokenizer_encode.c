// Encoding: cutting a text into pieces, merging the bytes of a piece, and the pieces that a thread keeps.
#include "tokenizer.h"
#include "unicode.h"
#include <pthread.h>
#include <sys/mman.h>

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
    list->room = max_size(2 * list->room, list->count + max_size(count, 16));
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
    if (t->byte_class[*p] != NOT_ASCII) { *bytes = 1; return t->byte_class[*p]; }
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

// Skips ASCII letters, eight bytes at a time, while eight are left. A loop over bytes ends after a number of steps that
// no processor can predict.
static const unsigned char* skip_letters(const unsigned char* q, const unsigned char* end) {
    const uint64_t each = 0x0101010101010101ull, high = 0x80 * each;
    for (; end - q >= 8; q += 8) {
        uint64_t word;
        memcpy(&word, q, sizeof word);
        const uint64_t lower = (word | 0x20 * each) & ~high;            // a letter is in a .. z now, if it is ASCII
        const uint64_t from_a = lower + (0x80 - 'a') * each, behind_z = lower + (0x80 - 'z' - 1) * each;
        const uint64_t others = ~(from_a & ~behind_z & ~word) & high; // the highest bit of each byte that is no letter
        if (others) { return q + __builtin_ctzll(others) / 8; }         // little-endian, as the files are
    }
    return q;
}

// Returns the first character from q on that is of another class, or the end.
static const unsigned char* tokenizer_skip(const Tokenizer* t, const unsigned char* q, const unsigned char* end,
                                           int class_) {
    for (size_t bytes = 0;; q += bytes) {
        if (class_ == UNICODE_LETTER) { q = skip_letters(q, end); }
        while (q < end && t->byte_class[*q] == class_) { q++; }
        if (q == end || t->byte_class[*q] != NOT_ASCII || tokenizer_class(t, q, end, &bytes) != class_) { return q; }
    }
}

size_t tokenizer_piece(const Tokenizer* t, const unsigned char* p, const unsigned char* end) {
    size_t bytes;
    if (*p == '\'' && (bytes = tokenizer_contraction(p, end)) > 0) { return bytes; }
    const unsigned char* q = p + (*p == ' ' && end - p > 1);
    int class_ = tokenizer_class(t, q, end, &bytes);
    if (class_ != UNICODE_SPACE) { // a word: letters, or numbers, or others
        return (size_t)(tokenizer_skip(t, q + bytes, end, class_) - p);
    }
    // Of several white-space characters the last one goes to the next piece, unless the text ends: \s+(?!\S)
    const unsigned char* last = q = p;
    for (; q < end && tokenizer_class(t, q, end, &bytes) == UNICODE_SPACE; q += bytes) { last = q; }
    return (size_t)((q == end || last == p ? q : last) - p);
}

// ---------------------------------------------------------------------------------------------------------------------
// merging the bytes of a piece

size_t tokenizer_merge_short(const Tokenizer* t, const unsigned char* p, size_t bytes, int limit, int* out) {
    size_t begin[TOKENIZER_MAX_BYTES + 1], count = bytes; // part i is [begin[i], begin[i + 1]), and token out[i]
    int pair[TOKENIZER_MAX_BYTES];                        // as in TokenPart
    for (size_t i = 0; i < bytes; i++) {
        begin[i] = i;
        out[i] = t->byte_id[p[i]];
        pair[i] = i + 1 < bytes ? tokenizer_find(t, p + i, 2) : NO_TOKEN;
    }
    begin[bytes] = bytes;
    for (;;) {
        size_t best = 0;
        // As unsigned numbers, NO_TOKEN is the greatest.
        for (size_t i = 1; i + 1 < count; i++) { if ((unsigned)pair[i] < (unsigned)pair[best]) { best = i; } }
        // NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): a piece has at least one byte
        if ((unsigned)pair[best] >= (unsigned)limit) { return count; }
        out[best] = pair[best];
        count--;
        for (size_t i = best + 1; i < count; i++) {
            begin[i] = begin[i + 1];
            out[i] = out[i + 1];
            pair[i] = pair[i + 1];
        }
        begin[count] = bytes;
        for (size_t i = best > 0 ? best - 1 : 0; i <= best; i++) { // the merged part has two new pairs
            pair[i] = i + 1 < count ? tokenizer_find(t, p + begin[i], begin[i + 2] - begin[i]) : NO_TOKEN;
        }
    }
}

bool tokenizer_halves(const Tokenizer* t, int id, int half[2]) {
    size_t bytes;
    int parts[TOKENIZER_MAX_BYTES];
    const char* token = tokenizer_token(t, id, &bytes);
    if (bytes < 2 || t->is_special[id]) { return false; }
    const size_t count = tokenizer_merge_short(t, (const unsigned char*)token, bytes, id, parts);
    memcpy(half, parts, 2 * sizeof *half);
    return count == 2;
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

// ---------------------------------------------------------------------------------------------------------------------
// encoding

enum {
    CACHE_SLOTS = 1 << 15, // 2 MB; measured: smaller ones are slower, though they fit into the L2 cache
    CACHED_WORDS = 4, CACHED_BYTES = 8 * CACHED_WORDS, // longest piece
    CACHED_TOKENS = 7,
};

// A piece, padded with zeros, so that hashing and comparing take no loop over its bytes.
typedef struct {
    uint64_t word[CACHED_WORDS];
} PieceKey;

// The tokens of a piece that was encoded before.
typedef struct {
    PieceKey key;
    int ids[CACHED_TOKENS];
    unsigned char bytes, count; // bytes 0: a free slot
} CachedPiece;
_Static_assert(sizeof(CachedPiece) == 64, "a slot is a cache line");

// A thread's pieces, each in the one slot that its hash has; the last one to come stays. Two slots for each hash were
// slower.
typedef struct {
    _Alignas(64) CachedPiece slots[CACHE_SLOTS];
    uint64_t number; // of the tokenizer that encoded them
} PieceCache;

static _Thread_local PieceCache* thread_cache; // NULL until the thread encodes
static pthread_key_t cache_key;                // frees it when the thread ends
static void free_cache(void* cache) { munmap(cache, sizeof(PieceCache)); }
static void create_cache_key(void) {
    if (pthread_key_create(&cache_key, free_cache) != 0) { fatal("the tokenizer: no key for its threads"); }
}

// Returns this thread's cache, with pieces of this tokenizer alone. Its pages are zero until they are used.
static PieceCache* cache_of(const Tokenizer* t) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (!thread_cache) {
        pthread_once(&once, create_cache_key);
        void* p = mmap(NULL, sizeof *thread_cache, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED || pthread_setspecific(cache_key, p) != 0) {
            fatal("out of memory: the tokenizer needs %zu bytes for each thread", sizeof *thread_cache);
        }
        thread_cache = p;
        thread_cache->number = t->number;
    }
    if (thread_cache->number != t->number) {
        memset(thread_cache, 0, sizeof *thread_cache);
        thread_cache->number = t->number;
    }
    return thread_cache;
}

// Returns the key of a piece of up to CACHED_BYTES; the text goes on to `end`.
static PieceKey piece_key(const unsigned char* p, size_t bytes, const unsigned char* end) {
    static const unsigned char ones_then_zeros[2 * CACHED_BYTES] = {[0 ... CACHED_BYTES - 1] = 0xff};
    PieceKey key = {{0}}, mask;
    if (end - p < CACHED_BYTES) { memcpy(&key, p, bytes); return key; }
    memcpy(&key, p, CACHED_BYTES);
    memcpy(&mask, ones_then_zeros + CACHED_BYTES - bytes, CACHED_BYTES);
    for (int i = 0; i < CACHED_WORDS; i++) { key.word[i] &= mask.word[i]; }
    return key;
}

static CachedPiece* slot_of(PieceCache* cache, const PieceKey* k) {
    uint64_t h = k->word[0] * 0x9fb21c651e98df25ull + (k->word[1] ^ 0xa0761d6478bd642full) * 0xe7037ed1a0b428dbull +
                 k->word[2] * 0x8ebc6af09c88c6e3ull + k->word[3] * 0x589965cc75374cc3ull;
    h = (h ^ h >> 32) * 0x9fb21c651e98df25ull;
    return &cache->slots[(h >> 32) % CACHE_SLOTS];
}

static bool is_same_piece(const CachedPiece* slot, const PieceKey* k, size_t bytes) {
    uint64_t differing = slot->bytes ^ bytes;
    for (int i = 0; i < CACHED_WORDS; i++) { differing |= slot->key.word[i] ^ k->word[i]; }
    return !differing;
}

// Appends the tokens of one piece.
static void encode_piece(const Tokenizer* t, const unsigned char* p, size_t bytes, TokenList* out) {
    const int id = tokenizer_find(t, p, bytes);
    if (id != NO_TOKEN) { token_list_append(out, id); }
    else if (bytes > TOKENIZER_SHORT) { tokenizer_merge_long(t, p, bytes, out); }
    else {
        token_list_reserve(out, bytes);
        out->count += tokenizer_merge_short(t, p, bytes, NO_TOKEN, out->ids + out->count);
    }
}

// The same for a piece that is in the cache or is kept there. The text goes on to `end`.
static void encode_cached(const Tokenizer* t, PieceCache* cache, const unsigned char* p, size_t bytes,
                          const unsigned char* end, TokenList* out) {
    const PieceKey key = piece_key(p, bytes, end);
    CachedPiece* const slot = slot_of(cache, &key);
    if (is_same_piece(slot, &key, bytes)) {
        token_list_reserve(out, CACHED_TOKENS);
        memcpy(out->ids + out->count, slot->ids, sizeof slot->ids); // all, which is faster than `count`
        out->count += slot->count;
        return;
    }
    const size_t before = out->count;
    encode_piece(t, p, bytes, out);
    const size_t count = out->count - before;
    if (count > CACHED_TOKENS) { return; }
    slot->key = key;
    slot->bytes = (unsigned char)bytes;
    slot->count = (unsigned char)count;
    memcpy(slot->ids, out->ids + before, count * sizeof *slot->ids);
}

size_t tokenizer_encode(const Tokenizer* t, const char* text, size_t bytes, TokenList* out) {
    if (bytes == 0) { return 0; } // text may be NULL then
    const unsigned char *p = (const unsigned char*)text, *end = p + bytes;
    size_t before = out->count;
    if (t->longest == 1) { // tokens are bytes: there is nothing to cut or to merge
        token_list_reserve(out, bytes);
        for (; p < end; p++) { out->ids[out->count++] = t->byte_id[*p]; }
        return bytes;
    }
    token_list_reserve(out, bytes / 4); // English text has 4.4 bytes a token
    PieceCache* cache = cache_of(t);
    for (size_t n; p < end; p += n) {
        n = tokenizer_piece(t, p, end);
        if (n <= CACHED_BYTES) { encode_cached(t, cache, p, n, end, out); }
        else { encode_piece(t, p, n, out); }
    }
    return out->count - before;
}
