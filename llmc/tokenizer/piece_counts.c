#include "piece_counts.h"

enum {
    BLOCK = 1 << 20,   // bytes of memory for pieces that is allocated at once
    FIRST_SLOTS = 1 << 12,
    NUM_PARTS = 64,    // of the range of hashes, each a temporary file
    MAX_TIMES = 4096,  // counts from here on are all the same to the choice of what is left out
};

typedef struct {
    const unsigned char* bytes; // NULL: a free slot
    uint64_t hash, times;
    uint32_t length;
} Slot;

// A hash table with linear probing, at most half full.
typedef struct {
    Slot* slots;
    size_t room, count;
    unsigned char** blocks; // that the pieces lie in
    size_t num_blocks, used; // `used` bytes of the last block
    size_t bytes;            // of blocks and slots
} Table;

struct PieceCounts {
    Tokenizer tokenizer; // only its pattern is used
    int threads;
    size_t memory; // of each table
    Table* tables;
    char* folder;
    FILE* parts[NUM_PARTS]; // NULL before the first table was full
};

// ---------------------------------------------------------------------------------------------------------------------
// tables

static void table_clear(Table* t) {
    for (size_t i = 0; i < t->num_blocks; i++) { free(t->blocks[i]); }
    free(t->blocks);
    free(t->slots);
    memset(t, 0, sizeof *t);
}

static Slot* table_slot(const Table* t, const unsigned char* p, size_t length, uint64_t hash) {
    for (size_t i = hash & (t->room - 1);; i = (i + 1) & (t->room - 1)) {
        Slot* s = &t->slots[i];
        if (!s->bytes || (s->hash == hash && s->length == length && memcmp(s->bytes, p, length) == 0)) { return s; }
    }
}

static void table_grow(Table* t) {
    Table old = *t;
    t->room = max_size(2 * old.room, FIRST_SLOTS);
    t->slots = alloc_or_die(t->room, sizeof *t->slots, "counts of pieces");
    t->bytes += (t->room - old.room) * sizeof *t->slots;
    for (size_t i = 0; i < old.room; i++) {
        const Slot* s = &old.slots[i];
        if (s->bytes) { *table_slot(t, s->bytes, s->length, s->hash) = *s; }
    }
    free(old.slots);
}

// Returns a copy of a piece in the table's memory.
static const unsigned char* table_keep(Table* t, const unsigned char* p, size_t length) {
    if (t->num_blocks == 0 || t->used + length > BLOCK) {
        t->blocks = grown(t->blocks, t->num_blocks, sizeof *t->blocks, "counts of pieces");
        t->blocks[t->num_blocks++] = alloc_or_die(max_size(length, BLOCK), 1, "counts of pieces");
        t->bytes += max_size(length, BLOCK);
        t->used = 0;
    }
    unsigned char* to = t->blocks[t->num_blocks - 1] + t->used;
    memcpy(to, p, length);
    t->used += length;
    return to;
}

static void table_add(Table* t, const unsigned char* p, size_t length, uint64_t hash, uint64_t times) {
    if (2 * t->count >= t->room) { table_grow(t); }
    Slot* s = table_slot(t, p, length, hash);
    if (!s->bytes) {
        *s = (Slot){.bytes = table_keep(t, p, length), .hash = hash, .length = (uint32_t)length};
        t->count++;
    }
    s->times += times;
}

// ---------------------------------------------------------------------------------------------------------------------
// temporary files: of each piece its length (4 bytes), its count (8) and its bytes

static FILE* temporary_file(const char* folder) {
    char* path = format("%s/.tmp-pieces-XXXXXX", folder);
    const int fd = mkstemp(path);
    FILE* f = fd < 0 ? NULL : fdopen(fd, "w+b");
    if (!f) { fatal("%s: cannot make a temporary file: %s", path, strerror(errno)); }
    unlink(path); // it ends with the program
    free(path);
    return f;
}

static int part_of(uint64_t hash) { return (int)(hash >> 58); } // the table's slots are chosen by the lower bits

// Moves a table to the files.
static void spill(PieceCounts* p, Table* t) {
    bool ok = true;
    for (int i = 0; i < NUM_PARTS && !p->parts[i]; i++) { p->parts[i] = temporary_file(p->folder); }
    for (size_t i = 0; i < t->room; i++) {
        const Slot* s = &t->slots[i];
        FILE* f = s->bytes ? p->parts[part_of(s->hash)] : NULL;
        if (!f) { continue; }
        ok = ok && fwrite(&s->length, sizeof s->length, 1, f) && fwrite(&s->times, sizeof s->times, 1, f) &&
             fwrite(s->bytes, 1, s->length, f) == s->length;
    }
    if (!ok) { fatal("%s: cannot write counts of pieces there: %s", p->folder, strerror(errno)); }
    table_clear(t);
}

// Adds up one part.
static Table read_part(const PieceCounts* p, int part) {
    Table t = {.count = 0};
    FILE* f = p->parts[part];
    uint32_t length;
    uint64_t times;
    size_t room = 256;
    unsigned char* piece = alloc_or_die(room, 1, "a piece");
    if (fflush(f) != 0) { fatal("%s: cannot write counts of pieces there: %s", p->folder, strerror(errno)); }
    rewind(f);
    while (fread(&length, sizeof length, 1, f) && fread(&times, sizeof times, 1, f)) {
        if (length > room) { piece = realloc_or_die(piece, room = length, "a piece"); }
        if (fread(piece, 1, length, f) != length) { break; }
        table_add(&t, piece, length, token_hash(piece, length), times);
    }
    if (ferror(f) || !feof(f)) { fatal("%s: cannot read counts of pieces back: %s", p->folder, strerror(errno)); }
    free(piece);
    return t;
}

// ---------------------------------------------------------------------------------------------------------------------
// counting

PieceCounts* piece_counts_open(int threads, size_t memory, const char* folder) {
    PieceCounts* p = alloc_or_die(1, sizeof *p, "counts of pieces");
    p->tokenizer = tokenizer_bytes();
    p->threads = threads;
    p->memory = memory / (size_t)threads;
    p->tables = alloc_or_die((size_t)threads, sizeof *p->tables, "counts of pieces");
    p->folder = format("%s", folder);
    return p;
}

void piece_counts_add(PieceCounts* p, int thread, const char* text, size_t bytes) {
    const unsigned char *at = (const unsigned char*)text, *end = at + bytes;
    Table* t = &p->tables[thread];
    for (size_t n; at < end; at += n) {
        n = tokenizer_piece(&p->tokenizer, at, end);
        if (n > 1) { table_add(t, at, n, token_hash(at, n), 1); }
    }
    if (t->bytes > p->memory) {
        #pragma omp critical(spill_pieces)
        spill(p, t);
    }
}

// Adds to bytes[n] those of the pieces that came n times; to the last one, of those that came at least so often.
static void add_sizes(size_t bytes[MAX_TIMES + 1], const Table* t) {
    for (size_t i = 0; i < t->room; i++) {
        const Slot* s = &t->slots[i];
        const uint64_t times = s->times < MAX_TIMES ? s->times : MAX_TIMES;
        if (s->bytes) { bytes[times] += s->length + 1; }
    }
}

// Appends the pieces of a table that came at least p->least times, and of those that came once less the part p->share,
// whichever by their hash.
static void take_pieces(Pieces* p, const Table* t, size_t max_bytes) {
    p->length = realloc_or_die(p->length, (p->count + t->count + 1) * sizeof *p->length, "pieces");
    p->times = realloc_or_die(p->times, (p->count + t->count + 1) * sizeof *p->times, "pieces");
    for (size_t i = 0; i < t->room; i++) {
        const Slot* s = &t->slots[i];
        const bool is_in_share = s->times + 1 == p->least && (double)mix64(s->hash) < p->share * 0x1p64;
        if (!s->bytes || (s->times < p->least && !is_in_share)) { continue; }
        if (p->num_bytes + p->count + s->length + 1 > max_bytes) { continue; }
        if (p->num_bytes + s->length > p->room_bytes) {
            p->room_bytes = max_size(2 * p->room_bytes, p->num_bytes + s->length);
            p->bytes = realloc_or_die(p->bytes, p->room_bytes, "pieces");
        }
        // NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): a piece has at least one byte, so there is room
        memcpy(p->bytes + p->num_bytes, s->bytes, s->length);
        p->num_bytes += s->length;
        p->length[p->count] = s->length;
        p->times[p->count++] = s->times;
    }
}

// Adds up the tables of all threads, or one part of the files.
static Table add_up(PieceCounts* p, bool is_spilled, int part) {
    if (is_spilled) { return read_part(p, part); }
    Table all = p->tables[0];
    memset(&p->tables[0], 0, sizeof p->tables[0]);
    for (int i = 1; i < p->threads; i++) {
        const Table* t = &p->tables[i];
        for (size_t k = 0; k < t->room; k++) {
            const Slot* s = &t->slots[k];
            if (s->bytes) { table_add(&all, s->bytes, s->length, s->hash, s->times); }
        }
        table_clear(&p->tables[i]);
    }
    return all;
}

Pieces piece_counts_finish(PieceCounts* p, size_t max_bytes) {
    const bool is_spilled = p->parts[0] != NULL;
    const int parts = is_spilled ? NUM_PARTS : 1;
    size_t* sizes = alloc_or_die(MAX_TIMES + 1, sizeof *sizes, "pieces"); // by how often they came
    Pieces pieces = {.least = MAX_TIMES};
    Table t = {.count = 0};
    for (int i = 0; is_spilled && i < p->threads; i++) { spill(p, &p->tables[i]); }
    for (int i = 0; i < parts; i++) {
        t = add_up(p, is_spilled, i);
        add_sizes(sizes, &t);
        if (is_spilled) { table_clear(&t); }
    }
    size_t bytes = sizes[MAX_TIMES];
    while (pieces.least > 1 && bytes + sizes[pieces.least - 1] <= max_bytes) {
        bytes += sizes[--pieces.least];
    }
    if (pieces.least > 1 && bytes < max_bytes) { // a twentieth of the room is left for chance
        pieces.share = 0.95 * (double)(max_bytes - bytes) / (double)sizes[pieces.least - 1];
    }
    for (int i = 0; i < parts; i++) {
        if (is_spilled) { t = read_part(p, i); }
        take_pieces(&pieces, &t, max_bytes);
        table_clear(&t);
        if (is_spilled) { fclose(p->parts[i]); }
    }
    tokenizer_free(&p->tokenizer);
    free(sizes);
    free(p->tables);
    free(p->folder);
    free(p);
    return pieces;
}

void pieces_free(Pieces* pieces) {
    free(pieces->bytes);
    free(pieces->length);
    free(pieces->times);
    memset(pieces, 0, sizeof *pieces);
}
