// Writes the facts of inspect.h as a page that needs no other file: HTML that is XML too, light or dark as the browser.
//
// All facts are text of real tables, but the attention of each head, which a table has only the largest of, lies in an
// attribute of the head's map: two digits of base 64 for each probability, which is rounded to 1/4095. The script draws
// maps, lines and bars from tables and attributes.
#pragma once
#include "../tokenizer/tokenizer.h"
#include "inspect.h"

enum { INSPECT_MOST_BYTES = 2000000 }; // of a page; chosen

// CSS of the page, and its script.
extern const char INSPECT_STYLE[], INSPECT_SCRIPT[];

// Returns the tokens of the longest text that a page of this model has room for.
int inspect_most_tokens(const GPT2Config* m);

// Replaces the file by a page about a model. `name`: of the model, for the title. Fails if the file is there and is no
// such page, if the page would have more than INSPECT_MOST_BYTES, or if it cannot be written.
bool inspect_write(const char* path, const char* name, const Facts* f, const Tokenizer* tokenizer, Error* err);

// Fails if the file is there and is no page of inspect_write().
bool inspect_may_replace(const char* path, Error* err);
