#include "prompts.h"
#include "../base/file.h"
#include "../base/json.h"

bool prompt_check(const Prompt* p, const char* where, Error* err) {
    const size_t invalid = utf8_invalid(p->text, p->bytes);
    return invalid == p->bytes || fail(err, "%s: byte %zu is not UTF-8", where, invalid);
}

static void append_prompt(Prompts* p, const char* text, size_t bytes) {
    p->prompt = grown(p->prompt, p->count, sizeof *p->prompt, "prompts");
    p->prompt[p->count++] = (Prompt){.text = text, .bytes = bytes};
}

// Reads all of standard input as one prompt; a newline at its end is left out.
static bool read_standard_input(Prompts* p, Error* err) {
    size_t size = 0;
    p->memory = read_stream(stdin, "standard input", STANDARD_INPUT_MOST, &size, err);
    if (!p->memory) { return false; }
    if (size > 0 && p->memory[size - 1] == '\n') { size--; }
    if (size == 0) {
        return fail(err, "--prompt -: standard input is empty; generate starts a document with --prompt ''");
    }
    append_prompt(p, p->memory, size);
    return prompt_check(p->prompt, "--prompt -, standard input", err);
}

static bool read_lines(Prompts* p, const char* path, Error* err) {
    size_t size = 0;
    p->memory = read_file(path, &size, err);
    if (!p->memory) { return false; }
    const char* end = p->memory + size;
    for (const char* at = p->memory; at < end;) {
        const char* newline = memchr(at, '\n', (size_t)(end - at));
        const char* next = newline ? newline : end;
        append_prompt(p, at, (size_t)(next - at) - (next > at && next[-1] == '\r'));
        const Prompt* line = &p->prompt[p->count - 1];
        char* where = format("%s, line %zu", path, p->count);
        const bool ok = line->bytes ? prompt_check(line, where, err)
                                    : fail(err, "%s: an empty prompt; remove the line", where);
        free(where);
        if (!ok) { return false; }
        at = next + 1;
    }
    return p->count > 0 || fail(err, "%s: no prompts; it should have one on each line", path);
}

bool prompts_read(Prompts* p, const Config* c, Error* err) {
    bool ok = true;
    *p = (Prompts){.count = 0};
    if (!strcmp(c->prompt, "@")) { ok = fail(err, "--prompt @: give @FILE, a file with a prompt on each line"); }
    else if (*c->prompt == '@') { ok = read_lines(p, c->prompt + 1, err); }
    else if (!strcmp(c->prompt, "-")) { ok = read_standard_input(p, err); }
    else { append_prompt(p, c->prompt, strlen(c->prompt)); }
    if (!ok) { prompts_free(p); }
    return ok;
}

void prompts_free(Prompts* p) {
    free(p->prompt);
    free(p->memory);
    *p = (Prompts){.count = 0};
}
