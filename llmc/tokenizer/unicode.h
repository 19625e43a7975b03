// Classifies characters as GPT-2's split pattern does: \p{L}, \p{N}, \s, and everything else.
#pragma once
#include "../base/base.h"

enum { UNICODE_OTHER = 0, UNICODE_LETTER = 1, UNICODE_NUMBER = 2, UNICODE_SPACE = 3 };

// Returns the class of a code point, in the Unicode version of tiktoken's regular expressions; any number is allowed.
int unicode_class(uint32_t code_point);
