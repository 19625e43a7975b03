// Writes a page of HTML that is XML too: any text escaped, numbers in few characters.
#pragma once
#include "../base/base.h"

// Append `before`, `text` with markup characters escaped, and `after` to the page. page_fact() frees `text`.
void page_text(FILE* page, const char* before, const char* text, const char* after);
void page_fact(FILE* page, const char* before, char* text, const char* after);

// Adds any text as content or as the value of an attribute.
void page_escape(FILE* page, const char* text);

// ---------------------------------------------------------------------------------------------------------------------
// numbers as text: to `out` of 32 bytes, which is returned

// A value with three to five significant digits, or a dash if it is not finite.
const char* value_text(char* out, double v);
