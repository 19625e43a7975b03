#include "sums.h"
#include "../base/file.h"
#include "../base/json.h"

void sums_free(Sums* s) {
    for (size_t i = 0; i < s->count; i++) { free(s->list[i].name); }
    free(s->list);
    memset(s, 0, sizeof *s);
}

static Sum* find(const Sums* s, const char* name) {
    for (size_t i = 0; i < s->count; i++) {
        if (!strcmp(s->list[i].name, name)) { return &s->list[i]; }
    }
    return NULL;
}

const char* sums_find(const Sums* s, const char* name) {
    const Sum* sum = find(s, name);
    return sum ? sum->hex : NULL;
}

void sums_set(Sums* s, const char* name, const char* hex) {
    Sum* sum = find(s, name);
    if (!sum) {
        s->list = grown(s->list, s->count, sizeof *s->list, "the list of checksums");
        sum = &s->list[s->count++];
        sum->name = format("%s", name);
    }
    snprintf(sum->hex, sizeof sum->hex, "%s", hex);
}

bool sums_save(const Sums* s, const char* path, Error* err) {
    char* text = format("%s", "");
    for (size_t i = 0; i < s->count; i++) { append_format(&text, "%s  %s\n", s->list[i].hex, s->list[i].name); }
    const bool ok = write_file_atomically(path, text, strlen(text), err);
    free(text);
    return ok;
}

// Takes a line "HASH  NAME" apart; returns false if it is none.
static bool add_line(Sums* s, const char* line, size_t size) {
    char hex[BLAKE2B_HEX + 1];
    if (size <= BLAKE2B_HEX + 2 || memcmp(line + BLAKE2B_HEX, "  ", 2) || memchr(line, 0, size)) { return false; }
    memcpy(hex, line, BLAKE2B_HEX);
    hex[BLAKE2B_HEX] = 0;
    char* name = format("%.*s", (int)(size - BLAKE2B_HEX - 2), line + BLAKE2B_HEX + 2);
    const bool ok = strspn(hex, "0123456789abcdef") == BLAKE2B_HEX && !strchr(name, '/') && !find(s, name);
    if (ok) { sums_set(s, name, hex); }
    free(name);
    return ok;
}

bool sums_load(Sums* s, const char* path, Error* err) {
    size_t size, n;
    memset(s, 0, sizeof *s);
    char* text = read_file(path, &size, err);
    if (!text) { return false; }
    const char *at = text, *line;
    bool ok = true;
    while (ok && (line = next_line(&at, text + size, &n)) != NULL) { ok = add_line(s, line, n); }
    ok = (ok && at == text + size) || fail(err, "%s: damaged: line %zu is not 'HASH  NAME'", path, s->count + 1);
    if (!ok) { sums_free(s); }
    free(text);
    return ok;
}

bool sum_file(const char* path, char hex[BLAKE2B_HEX + 1], Error* err) {
    char piece[1 << 15];
    size_t size;
    Blake2b hash;
    const int fd = open_regular(path, &size, err);
    if (fd < 0) { return false; }
    bool ok = true;
    blake2b_begin(&hash);
    for (size_t at = 0, n; ok && at < size; at += n) {
        n = min_size(sizeof piece, size - at);
        ok = read_exactly(fd, path, piece, n, at, err);
        if (ok) { blake2b_add(&hash, piece, n); }
    }
    blake2b_end(&hash, hex);
    close(fd);
    return ok;
}

bool sum_verify(const char* folder, const char* name, const char* wanted, Error* err) {
    char hex[BLAKE2B_HEX + 1], *path = format("%s/%s", folder, name);
    bool ok = sum_file(path, hex, err);
    if (ok && (!wanted || strcmp(hex, wanted))) {
        ok = fail(err, "%s: %s", path, wanted ? "damaged or edited (its checksum is wrong)" : "it has no checksum");
    }
    free(path);
    return ok;
}

bool sum_verify_by_list(const char* path, const char* list, bool* has_sum, Error* err) {
    Sums sums = {.list = NULL};
    char* folder = path_folder(path);
    bool ok = !list || !path_exists(list) || sums_load(&sums, list, err);
    const char* wanted = sums_find(&sums, path_name(path));
    *has_sum = wanted != NULL;
    ok = ok && (!wanted || sum_verify(folder, path_name(path), wanted, err));
    sums_free(&sums);
    free(folder);
    return ok;
}
