#include "tune_cache.h"
#include "../base/file.h"
#include <ctype.h>
#include <sys/file.h>

char* tune_cache_path(const char* identity) {
    char* name = format("%s.txt", identity);
    for (char* c = name; *c; c++) {
        if (!isalnum((unsigned char)*c) && *c != '.') { *c = '_'; }
    }
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME"); // XDG Base Directory Specification
    char* path = cache && *cache ? format("%s/gpt2.c/%s", cache, name)
                 : home && *home ? format("%s/.cache/gpt2.c/%s", home, name)
                                 : NULL;
    free(name);
    return path;
}

char* tune_cache_read(const char* path) {
    Error err;
    char* text = read_file(path, NULL, &err);
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

// Makes the cache's folder and locks it, so that two programs that add lines at the same time lose none.
// Returns a descriptor, which unlocks the folder when it is closed; -1 if it cannot be opened. Goes on without a lock
// where there are none, and after ten seconds: a program that was stopped may hold it.
static int lock_cache(const char* folder, Error* err) {
    const struct timespec moment = {0, 10000000};
    if (!make_directories(folder, err)) { return -1; }
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) { fail_system(err, folder, "open"); }
    for (int i = 0; fd >= 0 && i < 1000 && flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK; i++) {
        nanosleep(&moment, NULL);
    }
    return fd;
}

void tune_cache_add(const char* path, const char* lines) {
    Error err;
    char *folder = path_folder(path), *all = format("%s", lines);
    const int lock = lock_cache(folder, &err);
    char* old = tune_cache_read(path);
    for (const char* line = old; *line;) {
        const size_t n = strcspn(line, "\n");
        if (!tune_line(lines, line, strcspn(line, " \n"))) { append_format(&all, "%.*s\n", (int)n, line); }
        line += n + (line[n] == '\n');
    }
    if (strcmp(all, old) && (lock < 0 || !write_file_atomically(path, all, strlen(all), &err))) {
        notice("warning: the choice of algorithms is not kept for the next start: %s", err.text);
    }
    if (lock >= 0) { close(lock); }
    free(old);
    free(folder);
    free(all);
}
