// The prompts of `generate`: --prompt TEXT; --prompt -, all of standard input; --prompt @FILE, one on each line.
#pragma once
#include "../base/base.h"
#include "../options/config.h"

typedef struct {
    const char* text; // lies in Prompts.memory, or in the options
    size_t bytes;
} Prompt;

typedef struct {
    Prompt* prompt;
    size_t count;
    char* memory;
} Prompts;

// Reads the prompts that the options give. Fails if a file is missing or has no prompt, an empty one, or bytes that are
// not UTF-8. On failure there is nothing to free.
bool prompts_read(Prompts* p, const Config* c, Error* err);
void prompts_free(Prompts* p);

// Returns false if a prompt is not UTF-8; `where` names it in the error.
bool prompt_check(const Prompt* p, const char* where, Error* err);
