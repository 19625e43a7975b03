// Any bytes as one of the small files of lines: checksums (*.b2sums), prompts (--prompt @FILE), the cache of matmul
// algorithms (tune_cache.h). They are refused, or what was read keeps to its limits.
#include "llmc/files/sums.h"
#include "llmc/files/tune_cache.h"
#include "llmc/commands/prompts.h"
#include "test/fuzz/input.h"

static void check_sums(const char* path) {
    Sums s;
    Error err;
    if (!sums_load(&s, path, &err)) { return; }
    for (size_t i = 0; i < s.count; i++) {
        if (strlen(s.list[i].hex) != BLAKE2B_HEX || !*s.list[i].name || !sums_find(&s, s.list[i].name)) { abort(); }
    }
    sums_free(&s);
}

static void check_prompts(const char* path) {
    Prompts p;
    Error err;
    Config c;
    config_defaults(&c);
    c.prompt = format("@%s", path);
    const bool ok = prompts_read(&p, &c, &err);
    free((char*)c.prompt);
    if (!ok) { return; }
    if (p.count < 1) { abort(); }
    for (size_t i = 0; i < p.count; i++) {
        if (!p.prompt[i].bytes || !prompt_check(&p.prompt[i], "a prompt", &err)) { abort(); }
    }
    prompts_free(&p);
}

// The cache's keys are found in it.
static void check_cache(const char* path) {
    char* lines = tune_cache_read(path);
    for (const char* at = lines; *at;) {
        const size_t line = strcspn(at, "\n"), key = min_size(strcspn(at, " "), line);
        const char* found = key < line ? tune_line(lines, at, key) : NULL;
        if (found && strncmp(found, at, key)) { abort(); }
        at += line + (at[line] == '\n');
    }
    free(lines);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    char path[64];
    snprintf(path, sizeof path, "%s", input_file(data, size));
    check_sums(path);
    check_prompts(path);
    check_cache(path);
    return 0;
}
