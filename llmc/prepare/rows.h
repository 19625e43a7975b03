// Packs documents into rows of equal length, each of which begins with the beginning of a document: "best fit".
//
// The largest document that fits is put into the rest of a row until the row is full. If none fits, the shortest one is
// cut to the rest. What is cut off is lost; no document goes on in another row. (nanochat packs so, from a buffer of
// 1,000 documents that is filled up again. Here each group of documents is packed by itself, so that an interrupted run
// can go on from the beginning of a group.)
#pragma once
#include "../base/base.h"

// A group ends at GROUP_DOCUMENTS, or at GROUP_TOKENS of those that can be in a row. Chosen, not measured.
enum { GROUP_DOCUMENTS = 8192, GROUP_TOKENS = 8 << 20 };

typedef struct {
    size_t row;    // tokens of a row
    int* tokens;   // of the documents, one behind another, each cut to a row
    size_t count, room;
    size_t* first; // [num_documents] where each begins in `tokens`
    size_t num_documents;
} RowPacker;

// Begins; rows_free() frees it.
RowPacker rows_begin(size_t row);
void rows_free(RowPacker* p);

// Begins a document. rows_add() adds tokens to it.
void rows_begin_document(RowPacker* p);
void rows_add(RowPacker* p, const int* tokens, size_t count);

// Returns true if the group should be packed before another document begins.
bool rows_are_due(const RowPacker* p);

// Packs the group into `num_rows` rows and returns their tokens, one row behind another, in random order by `seed`; the
// caller frees them. Documents that do not fill a last row are lost. The next group is empty then.
int* rows_pack(RowPacker* p, uint64_t seed, size_t* num_rows);
