// Turns the items of a test set into rows of tokens, with examples in front.
#pragma once
#include "scored_rows.h"

// Makes the rows of one set.
typedef struct {
    TestSet* set;
    const TestSetOptions* options;
    const char* delimiter; // between a context and its ending
} RowMaker;

// Begins an item, to which rows are then added.
void row_item_begin(TestSet* s, int label);

// Adds a row to the last item.
void row_append(TestSet* s, TestRow row);

// Makes a row of the tokens from `begin` on, at most `longest`; the last `scored` of them are the ending. Fails if the
// ending is empty, or leaves no room for a token before it.
bool row_add(RowMaker* m, size_t begin, long long scored, int characters, int longest, Error* err);

// Adds an item with `count` examples in front, all by its form's rule.
bool row_add_item(RowMaker* m, const ItemText* item, const ItemText* const* examples, int count, Error* err);
