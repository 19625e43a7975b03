#include "bpe_trainer.h"
#include "byte_level.h"

enum {
    NO_SYMBOL = BPE_MAX_TOKENS - 1, // between two pieces, and where no token begins or ends
    BLOCK_BYTES = 16,               // of text for each entry of Text.block_piece
};
static const uint32_t NO_PAIR = UINT32_MAX;

// All pieces, each with NO_SYMBOL before and behind it. A token of several bytes is written at its first and its last
// byte, so that both of its neighbours find it.
typedef struct {
    uint16_t* symbol;
    size_t size;
    const Pieces* pieces;
    uint32_t* begin;       // [count + 1] of each piece
    uint32_t* block_piece; // the piece of the first byte of each block, or the one behind it
    int bytes[BPE_MAX_TOKENS]; // of each token
} Text;

typedef struct {
    uint32_t key; // left << 16 | right
    uint32_t num_places;
    uint64_t count;
    uint32_t* places; // where its left token begins, rising
} Pair;

// A hash table of all pairs, with linear probing.
typedef struct {
    Pair* slots;
    size_t room, used;
} PairTable;

typedef struct {
    uint64_t count;
    uint32_t key;
} HeapEntry;

typedef struct {
    uint16_t neighbour;
    uint32_t at;
} Place;

// The neighbours on one side of the places of a merge of (a, b) into x. On the left, each neighbour l loses a pair
// (l, a) and gets a pair (l, x); on the right, (b, r) becomes (x, r).
typedef struct {
    uint64_t amount[BPE_MAX_TOKENS];  // by neighbour: how often the pair changes
    uint32_t places[BPE_MAX_TOKENS];  // and in how many places
    uint32_t* target[BPE_MAX_TOKENS]; // where the places of the new pair go
    uint16_t touched[BPE_MAX_TOKENS]; // the neighbours
    int num_touched;
    Place* found; // places of all new pairs
    size_t num_found, room_found;
} Side;

enum { LEFT, RIGHT };

typedef struct {
    Text text;
    PairTable pairs;
    HeapEntry* heap;
    size_t heap_count, heap_room;
    Side side[2];
} Trainer;

// ---------------------------------------------------------------------------------------------------------------------
// pairs

static uint32_t pair_key(unsigned left, unsigned right) { return left << 16 | right; }

// Returns the pair's slot, or the free slot where it would go.
static Pair* pair_slot(const PairTable* t, uint32_t key) {
    for (size_t i = (size_t)(mix64(key) & (t->room - 1));; i = (i + 1) & (t->room - 1)) {
        if (t->slots[i].key == key || t->slots[i].key == NO_PAIR) { return &t->slots[i]; }
    }
}

// Makes room for `more` pairs. Pairs that are gone are forgotten.
static void pairs_reserve(PairTable* t, size_t more) {
    if (2 * (t->used + more) <= t->room) { return; }
    PairTable old = *t;
    size_t alive = 0;
    for (size_t i = 0; i < old.room; i++) { alive += old.slots[i].key != NO_PAIR && old.slots[i].count > 0; }
    for (t->room = 1024; t->room < 4 * (alive + more); t->room *= 2) {}
    t->slots = alloc_or_die(t->room, sizeof *t->slots, "pairs of tokens");
    t->used = alive;
    for (size_t i = 0; i < t->room; i++) { t->slots[i].key = NO_PAIR; }
    for (size_t i = 0; i < old.room; i++) {
        if (old.slots[i].key != NO_PAIR && old.slots[i].count > 0) { *pair_slot(t, old.slots[i].key) = old.slots[i]; }
    }
    free(old.slots);
}

// Adds a pair, for which there is room, with memory for its places.
static Pair* pair_add(PairTable* t, uint32_t key, uint64_t count, uint32_t places) {
    Pair* p = pair_slot(t, key);
    t->used += p->key == NO_PAIR;
    *p = (Pair){.key = key, .count = count, .places = alloc_or_die((size_t)places + 1, sizeof(uint32_t), "places")};
    return p;
}

static void pair_forget(Pair* p) {
    free(p->places);
    p->places = NULL;
    p->num_places = 0;
    p->count = 0;
}

static bool is_before(HeapEntry a, HeapEntry b) { return a.count != b.count ? a.count > b.count : a.key < b.key; }

static void heap_push(Trainer* t, HeapEntry e) {
    if (t->heap_count == t->heap_room) {
        t->heap_room = max_size(2 * t->heap_room, 1024);
        t->heap = realloc_or_die(t->heap, t->heap_room * sizeof *t->heap, "pairs of tokens");
    }
    size_t i = t->heap_count++;
    for (; i > 0 && is_before(e, t->heap[(i - 1) / 2]); i = (i - 1) / 2) { t->heap[i] = t->heap[(i - 1) / 2]; }
    t->heap[i] = e;
}

static HeapEntry heap_pop(Trainer* t) {
    const HeapEntry top = t->heap[0], e = t->heap[--t->heap_count];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < t->heap_count; i = child) {
        if (child + 1 < t->heap_count && is_before(t->heap[child + 1], t->heap[child])) { child++; }
        if (!is_before(t->heap[child], e)) { break; }
        t->heap[i] = t->heap[child];
    }
    t->heap[i] = e;
    return top;
}

// Returns the most frequent pair; NULL if there is none.
static Pair* best_pair(Trainer* t) {
    while (t->heap_count > 0) {
        const HeapEntry e = heap_pop(t);
        Pair* p = pair_slot(&t->pairs, e.key);
        if (p->key == NO_PAIR || p->count == 0) { continue; }
        if (p->count == e.count) { return p; }
        heap_push(t, (HeapEntry){p->count, e.key});
    }
    return NULL;
}

// ---------------------------------------------------------------------------------------------------------------------
// text

static void text_open(Text* text, const Pieces* pieces) {
    const ByteLevel b = byte_level();
    uint16_t symbol_of[256];
    for (int i = 0; i < 256; i++) { symbol_of[b.order[i]] = (uint16_t)i; }
    text->pieces = pieces;
    text->size = pieces->num_bytes + pieces->count + 1;
    text->symbol = alloc_or_die(text->size, sizeof *text->symbol, "the text");
    text->begin = alloc_or_die(pieces->count + 1, sizeof *text->begin, "the text");
    text->block_piece = alloc_or_die(text->size / BLOCK_BYTES + 1, sizeof *text->block_piece, "the text");
    for (int i = 0; i < 256; i++) { text->bytes[i] = 1; }
    const unsigned char* from = pieces->bytes;
    uint16_t* to = text->symbol;
    size_t block = 0;
    *to++ = NO_SYMBOL;
    for (size_t i = 0; i < pieces->count; i++) {
        text->begin[i] = (uint32_t)(to - text->symbol);
        for (uint32_t k = 0; k < pieces->length[i]; k++) { *to++ = symbol_of[*from++]; }
        *to++ = NO_SYMBOL;
        for (; block * BLOCK_BYTES < (size_t)(to - text->symbol); block++) { text->block_piece[block] = (uint32_t)i; }
    }
    text->begin[pieces->count] = (uint32_t)text->size;
}

// Returns the number of the piece that a place is in.
static uint32_t piece_at(const Text* text, uint32_t at) {
    uint32_t i = text->block_piece[at / BLOCK_BYTES];
    while (text->begin[i + 1] <= at) { i++; }
    return i;
}

// Finds all pairs of bytes.
static void find_pairs(Trainer* t) {
    enum { PAIRS = 1 << 16 };
    const Text* text = &t->text;
    uint64_t* count = alloc_or_die(PAIRS, sizeof *count, "pairs of tokens");
    uint32_t* places = alloc_or_die(PAIRS, sizeof *places, "pairs of tokens");
    Pair** pair = alloc_or_die(PAIRS, sizeof *pair, "pairs of tokens");
    for (size_t i = 0; i < text->pieces->count; i++) {
        for (uint32_t at = text->begin[i]; at + 2 < text->begin[i + 1]; at++) {
            const unsigned k = (unsigned)text->symbol[at] << 8 | text->symbol[at + 1];
            count[k] += text->pieces->times[i];
            places[k]++;
        }
    }
    pairs_reserve(&t->pairs, PAIRS);
    for (unsigned k = 0; k < PAIRS; k++) {
        if (count[k] == 0) { continue; }
        pair[k] = pair_add(&t->pairs, pair_key(k >> 8, k & 255), count[k], places[k]);
        heap_push(t, (HeapEntry){count[k], pair[k]->key});
    }
    for (uint32_t at = 1; at + 1 < text->size; at++) {
        if (text->symbol[at] == NO_SYMBOL || text->symbol[at + 1] == NO_SYMBOL) { continue; }
        Pair* p = pair[(unsigned)text->symbol[at] << 8 | text->symbol[at + 1]];
        p->places[p->num_places++] = at;
    }
    free(count);
    free(places);
    free(pair);
}

// ---------------------------------------------------------------------------------------------------------------------
// one merge

// Notes that a pair with a neighbour changes, and where the new pair lies.
static void add_change(Side* s, uint16_t neighbour, uint32_t at, uint64_t times) {
    if (s->num_found == s->room_found) {
        s->room_found = max_size(2 * s->room_found, 1024);
        s->found = realloc_or_die(s->found, s->room_found * sizeof *s->found, "places of pairs");
    }
    s->found[s->num_found++] = (Place){neighbour, at};
    if (s->amount[neighbour] == 0) { s->touched[s->num_touched++] = neighbour; }
    s->amount[neighbour] += times;
    s->places[neighbour]++;
}

// Replaces `a` at a place and `b` behind it by `x`, if they are still there.
static void merge_at(Trainer* t, uint32_t at, uint16_t a, uint16_t b, uint16_t x) {
    const Text* text = &t->text;
    uint16_t* s = text->symbol;
    const uint32_t middle = at + (uint32_t)text->bytes[a], end = middle + (uint32_t)text->bytes[b];
    if (s[at] != a || s[middle] != b) { return; }
    const uint64_t times = text->pieces->times[piece_at(text, at)];
    const uint16_t left = s[at - 1], right = s[end];
    s[middle] = NO_SYMBOL; // unless it is the last byte
    s[at] = s[end - 1] = x;
    if (left != NO_SYMBOL) { add_change(&t->side[LEFT], left, at - (uint32_t)text->bytes[left], times); }
    if (right != NO_SYMBOL) { add_change(&t->side[RIGHT], right, at, times); }
}

// Adds the new pairs on one side of x. Those in which x would become part of too long a token are left out.
static void add_pairs(Trainer* t, int which, uint16_t x) {
    Side* s = &t->side[which];
    pairs_reserve(&t->pairs, (size_t)s->num_touched);
    for (int i = 0; i < s->num_touched; i++) {
        const uint16_t n = s->touched[i];
        s->target[n] = NULL;
        if (t->text.bytes[n] + t->text.bytes[x] > TOKENIZER_MAX_BYTES) { continue; }
        Pair* p = pair_add(&t->pairs, which == LEFT ? pair_key(n, x) : pair_key(x, n), s->amount[n], s->places[n]);
        p->num_places = s->places[n];
        s->target[n] = p->places;
    }
    for (size_t i = 0; i < s->num_found; i++) {
        const Place place = s->found[i];
        if (s->target[place.neighbour]) { *s->target[place.neighbour]++ = place.at; }
    }
}

static void take_count(Trainer* t, uint32_t key, uint64_t amount) {
    Pair* p = pair_slot(&t->pairs, key);
    // There is none that would have been too long, and none of the pair that is merged, as of aa in aaa.
    if (p->key == NO_PAIR || p->count == 0) { return; }
    p->count -= amount;
    if (p->count == 0) { pair_forget(p); }
}

// Puts the new pairs on one side of x, whose counts are final, into the heap, and empties the side.
static void push_pairs(Trainer* t, int which, uint16_t x) {
    Side* s = &t->side[which];
    for (int i = 0; i < s->num_touched; i++) {
        const uint16_t n = s->touched[i];
        const uint32_t key = which == LEFT ? pair_key(n, x) : pair_key(x, n);
        const Pair* p = pair_slot(&t->pairs, key);
        if (p->key == key && p->count > 0) { heap_push(t, (HeapEntry){p->count, key}); }
        s->amount[n] = 0;
        s->places[n] = 0;
    }
    s->num_touched = 0;
    s->num_found = 0;
}

// Merges a pair into token x.
static void merge_pair(Trainer* t, Pair* pair, uint16_t x) {
    const uint16_t a = (uint16_t)(pair->key >> 16), b = (uint16_t)pair->key;
    t->text.bytes[x] = t->text.bytes[a] + t->text.bytes[b];
    for (uint32_t i = 0; i < pair->num_places; i++) { merge_at(t, pair->places[i], a, b, x); }
    pair_forget(pair);
    add_pairs(t, LEFT, x);
    add_pairs(t, RIGHT, x);
    for (int which = LEFT; which <= RIGHT; which++) { // a new pair may be one that is gone: x beside x
        const Side* s = &t->side[which];
        for (int i = 0; i < s->num_touched; i++) {
            const uint16_t n = s->touched[i];
            take_count(t, which == LEFT ? pair_key(n, a) : pair_key(b, n), s->amount[n]);
        }
    }
    push_pairs(t, LEFT, x);
    push_pairs(t, RIGHT, x);
}

// ---------------------------------------------------------------------------------------------------------------------
// all merges

static Trainer* trainer_open(const Pieces* pieces) {
    Trainer* t = alloc_or_die(1, sizeof *t, "the trainer of the tokenizer");
    text_open(&t->text, pieces);
    find_pairs(t);
    return t;
}

static void trainer_close(Trainer* t) {
    for (size_t i = 0; i < t->pairs.room; i++) { free(t->pairs.slots[i].places); }
    free(t->side[LEFT].found);
    free(t->side[RIGHT].found);
    free(t->pairs.slots);
    free(t->heap);
    free(t->text.symbol);
    free(t->text.begin);
    free(t->text.block_piece);
    free(t);
}

int bpe_train(BpeMerge* merges, int num_merges, const Pieces* pieces) {
    Trainer* t = trainer_open(pieces);
    Progress shown = {.start = 0};
    int n = 0;
    for (Pair* p; n < num_merges && (p = best_pair(t)); n++) {
        merges[n] = (BpeMerge){(uint16_t)(p->key >> 16), (uint16_t)p->key};
        merge_pair(t, p, (uint16_t)(256 + n));
        progress(&shown, "%d of %d merges", n + 1, num_merges);
    }
    trainer_close(t);
    return n;
}
