#include "tune_cache.h"
#include <ctype.h>

char* tune_cache_path(const char* identity) {
    char* name = format("%s.txt", identity);
    for (char* c = name; *c; c++) {
        if (!isalnum((unsigned char)*c) && *c != '.') { *c = '_'; }
    }
    char* path = user_path("XDG_CACHE_HOME", ".cache", name);
    free(name);
    return path;
}

char* tune_cache_read(const char* path) {
    Error err;
    size_t size;
    char* text = read_file(path, &size, &err);
    return text ? text : format("%s", "");
}

const char* tune_line(const char* lines, const char* key, size_t n) {
    while (*lines) {
        if (strcspn(lines, " \n") == n && !strncmp(lines, key, n)) { return lines; }
        lines += strcspn(lines, "\n");
        lines += *lines == '\n';
    }
    return NULL;
}

void tune_cache_add(const char* path, const char* lines) {
    Error err;
    char *old = tune_cache_read(path), *folder = format("%s", path), *all = format("%s", lines);
    for (const char* line = old; *line;) {
        const size_t n = strcspn(line, "\n");
        if (!tune_line(lines, line, strcspn(line, " \n"))) { append_format(&all, "%.*s\n", (int)n, line); }
        line += n + (line[n] == '\n');
    }
    *strrchr(folder, '/') = 0;
    if (strcmp(all, old) && (!make_directories(folder, &err) || !write_file_atomically(path, all, strlen(all), &err))) {
        notice("warning: the choice of algorithms is not kept for the next start: %s", err.text);
    }
    free(old);
    free(folder);
    free(all);
}
