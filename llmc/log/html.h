// Writes a page of HTML that is XML too: any text escaped.
#pragma once
#include "../base/base.h"

// Append `before`, `text` with markup characters escaped, and `after` to the page. page_fact() frees `text`.
void page_text(FILE* page, const char* before, const char* text, const char* after);
void page_fact(FILE* page, const char* before, char* text, const char* after);

// Adds any text as content or as the value of an attribute.
void page_escape(FILE* page, const char* text);
