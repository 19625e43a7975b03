// Texts as sets whose losses are counted: perplexity and bits per byte. A text is a file that ./prepare reads
// (reader.h): plain text is one document, each line of JSONL and each row of a Parquet file is one.
//
// A document longer than T is cut into windows. Which tokens a window scores, and behind what context, changes the
// result, so the convention is printed:
//   without a stride   lm-evaluation-harness' rolling windows: the end-of-text token stands in front, each token is
//                      scored once, T at a time; only the last window begins earlier, so that it is full
//   with a stride S    the sliding windows of Hugging Face's page "Perplexity of fixed-length models": windows of T
//                      tokens begin every S tokens, each scores the tokens that no earlier one had; the first token of
//                      a document has no context and is not scored. (The page weights each window's mean by one token
//                      too few; here each token counts once.)
//
// Perplexity is exp(loss per token). Bits per byte, sum of losses / ln 2 / bytes, does not depend on the tokenizer;
// bytes are those of the scored tokens.
#pragma once
#include "test_set.h"

// Opens the files of --text (find_option_paths), for the T of a model. `field` has the text of a line of JSON or of a
// row; 0 <= stride <= T, 0: none. Returns an array of *count sets, which test_sets_close() frees; ends the program if a
// file cannot be read, or has nothing that could be scored.
TestSet* text_sets_open(const char* files, const char* field, const TestSetOptions* options, int stride, int* count);
