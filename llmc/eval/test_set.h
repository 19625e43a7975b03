// Test sets, read into rows of tokens that a model scores (score.h). An item has one row for each of its endings: a
// context and, behind it, the tokens whose probability counts.
//
// A set is a file as its authors published it: JSON lines, whose members tell which set it is, or llm.c's .bin of
// tokens. forms.h lists them, with the rules by which each is scored. A folder is that of CORE (core.h).
//
// Examples (few-shot): with --eval_rules shots:K, K items with their right endings stand in front of each item,
// separated by blank lines. They are the first K of examples:FILE, or of the same file, that have the same heading
// (MMLU's subject) and are not the item itself.
//
// llm.c's .bin is little-endian: a header of 256 int32 (20240522, version 1, the number of items, bytes of the longest
// item), then for each item uint16: 65535, its bytes from here on, its index, label, number of endings, length of the
// context, the context, and for each ending its length and its tokens.
#pragma once
#include "scored_rows.h"

enum { TEST_SET_MAGIC = 20240522, TEST_SET_HEADER = 1024, TEST_SET_DELIMITER = 65535,
       MAX_LINE_BYTES = 16 << 20 };

// Reads the text of --eval_rules, "RULES,shots:N,examples:FILE,limit:N,every:N" of any parts in any order; the others
// have their defaults. The name of the file is never freed. Fails if the text is another.
bool eval_rules_parse(TestSetOptions* options, const char* text, Error* err);

// Reads a set, which test_set_free() frees. `task` is NULL, or that of CORE. Fails, and names the file and its line or
// item, if a member is missing or wrong, a label names no ending, an ending has no tokens or more than T, or text is
// not UTF-8.
bool test_set_open(TestSet* s, const char* path, const TestTask* task, const TestSetOptions* options, Error* err);
void test_set_free(TestSet* s);

// Returns a hash of all rows and labels of `count` sets; 0 if there are none.
uint64_t test_sets_hash(const TestSet* sets, int count);

// Opens the files of --eval_data (find_option_paths), and the tasks of CORE in a folder. Returns an array of *count
// sets, which test_sets_close() frees; ends the program if one cannot be read.
TestSet* test_sets_open(const char* files, const TestSetOptions* options, int* count);
void test_sets_close(TestSet* sets, int count);
