#include "rows.h"
#include "../base/rng.h"

RowPacker rows_begin(size_t row) {
    return (RowPacker){.row = row, .first = alloc_or_die(GROUP_DOCUMENTS, sizeof(size_t), "documents of --rows")};
}

void rows_free(RowPacker* p) {
    free(p->tokens);
    free(p->first);
    memset(p, 0, sizeof *p);
}

void rows_begin_document(RowPacker* p) { p->first[p->num_documents++] = p->count; }

void rows_add(RowPacker* p, const int* tokens, size_t count) {
    count = min_size(count, p->row - (p->count - p->first[p->num_documents - 1]));
    if (p->room - p->count < count) {
        p->room = max_size(2 * p->room, p->count + count);
        p->tokens = realloc_or_die(p->tokens, p->room * sizeof *tokens, "documents of --rows");
    }
    if (count > 0) { memcpy(p->tokens + p->count, tokens, count * sizeof *tokens); }
    p->count += count;
}

bool rows_are_due(const RowPacker* p) { return p->num_documents == GROUP_DOCUMENTS || p->count >= GROUP_TOKENS; }

// ---------------------------------------------------------------------------------------------------------------------
// packing

enum { NO_DOCUMENT = -1 };

// The documents that are in no row yet, by length.
typedef struct {
    int *with_length, *next; // [row + 1] the first document of a length; [num_documents] the next one of the same
    size_t shortest;         // no shorter document is left
    size_t left;
} Lengths;

static size_t document_length(const RowPacker* p, int document) {
    const size_t i = (size_t)document;
    return (i + 1 < p->num_documents ? p->first[i + 1] : p->count) - p->first[i];
}

static Lengths sort_lengths(const RowPacker* p) {
    Lengths l = {.shortest = 1, .left = p->num_documents};
    l.with_length = alloc_or_die(p->row + 1, sizeof(int), "documents of --rows");
    l.next = alloc_or_die(p->num_documents + 1, sizeof(int), "documents of --rows");
    for (size_t n = 0; n <= p->row; n++) { l.with_length[n] = NO_DOCUMENT; }
    for (int i = (int)p->num_documents - 1; i >= 0; i--) {
        int* first = &l.with_length[document_length(p, i)];
        l.next[i] = *first;
        *first = i;
    }
    return l;
}

// Takes the longest document of at most `rest` tokens or, if there is none, the shortest. There is one left.
static int take_best(Lengths* l, size_t rest) {
    while (l->with_length[l->shortest] == NO_DOCUMENT) { l->shortest++; }
    size_t length = max_size(rest, l->shortest);
    while (l->with_length[length] == NO_DOCUMENT) { length--; }
    const int document = l->with_length[length];
    l->with_length[length] = l->next[document];
    l->left--;
    return document;
}

// Brings the rows into random order: packing takes the longest documents first.
static void shuffle_rows(int* rows, size_t num_rows, size_t row, uint64_t seed) {
    int* swap = alloc_or_die(row, sizeof *swap, "a row");
    for (size_t i = num_rows; i > 1; i--) { // Fisher and Yates
        int *a = rows + (i - 1) * row, *b = rows + (size_t)(rng_u64(seed, RNG_DOCUMENTS, i) % i) * row;
        memcpy(swap, a, row * sizeof *swap);
        memmove(a, b, row * sizeof *swap);
        memcpy(b, swap, row * sizeof *swap);
    }
    free(swap);
}

int* rows_pack(RowPacker* p, uint64_t seed, size_t* num_rows) {
    int* rows = alloc_or_die(p->count + 1, sizeof *rows, "rows");
    Lengths l = sort_lengths(p);
    size_t at = 0;
    while (l.left > 0) {
        const size_t rest = p->row - at % p->row;
        const int document = take_best(&l, rest);
        const size_t n = min_size(rest, document_length(p, document));
        memcpy(rows + at, p->tokens + p->first[document], n * sizeof *rows);
        at += n;
    }
    *num_rows = at / p->row;
    shuffle_rows(rows, *num_rows, p->row, seed);
    free(l.with_length);
    free(l.next);
    p->count = p->num_documents = 0;
    return rows;
}
