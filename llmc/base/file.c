#include "file.h"
#include <sys/file.h>

bool path_exists(const char* path) {
    if (access(path, F_OK) == 0) { return true; }
    if (!is_absent(errno)) { fatal("%s: cannot look at it: %s", path, strerror(errno)); }
    return false;
}

bool folder_has(const char* folder, const char* name) {
    char* path = format("%s/%s", folder, name);
    const bool has = path_exists(path);
    free(path);
    return has;
}

bool path_is_entry_of(const char* path, const char* folder) {
    char *above = format("%s/..", path), *a = realpath(above, NULL), *b = realpath(folder, NULL);
    const bool same = a && b && !strcmp(a, b);
    free(above);
    free(a);
    free(b);
    return same;
}

bool is_directory(const char* path) {
    struct stat s;
    return stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

bool is_same_file(const char* a, const char* b) {
    struct stat s, t;
    return stat(a, &s) == 0 && stat(b, &t) == 0 && s.st_dev == t.st_dev && s.st_ino == t.st_ino;
}

char* program_path(void) {
    static const char link[] = "/proc/self/exe";
    char* path = realpath(link, NULL);
    return path ? path : format("%s", link); // the file was replaced since the program began
}

bool make_directories(const char* path, Error* err) {
    char* p = format("%s", path);
    bool ok = true;
    for (char* c = p + (*p != 0); ok; c++) {
        if (*c != '/' && *c != 0) { continue; }
        char end = *c;
        *c = 0;
        if (mkdir(p, 0777) != 0) {
            const int error = errno; // EROFS may stand for a folder that exists
            ok = is_directory(p);
            const bool is_link = !ok && error == EEXIST && !path_exists(p);
            errno = error;
            if (is_link) { fail(err, "%s: a link to what does not exist: remove it, or make its target", p); }
            else if (!ok && error == EEXIST) { fail(err, "%s: a file, not a folder", p); }
            else if (!ok) { fail_system(err, p, "make the folder"); }
        }
        *c = end;
        if (end == 0) { break; }
    }
    free(p);
    return ok;
}

bool make_parent(const char* path, Error* err) {
    char* folder = path_folder(path);
    const bool ok = make_directories(folder, err);
    free(folder);
    return ok;
}

char* read_stream(FILE* f, const char* name, size_t most, size_t* size, Error* err) {
    size_t used = 0, room = 1 << 16;
    char* text = realloc_or_die(NULL, room, name);
    for (size_t n; used <= most && (n = fread(text + used, 1, room - 1 - used, f)) > 0;) {
        used += n;
        if (room - 1 - used == 0) { text = realloc_or_die(text, room *= 2, name); }
    }
    const bool ok = ferror(f)     ? fail_system(err, name, "read")
                    : used > most ? fail(err, "%s: more than %zu MiB, the most that is read", name, most >> 20)
                                  : true;
    if (!ok) {
        free(text);
        return NULL;
    }
    text[used] = 0;
    if (size) { *size = used; }
    return text;
}

int open_regular(const char* path, size_t* size, Error* err) {
    struct stat st;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // O_NONBLOCK: a named pipe opens at once
    if (fd < 0) {
        fail_system(err, path, "open");
        return -1;
    }
    if (fstat(fd, &st) != 0) { fail_system(err, path, "stat"); }
    else if (!S_ISREG(st.st_mode)) { fail(err, "%s: not a regular file", path); }
    else {
        if (size) { *size = (size_t)st.st_size; }
        return fd;
    }
    close(fd);
    return -1;
}

FILE* fopen_regular(const char* path, Error* err) {
    const int fd = open_regular(path, NULL, err);
    FILE* f = fd >= 0 ? fdopen(fd, "rb") : NULL;
    if (fd >= 0 && !f) {
        fail_system(err, path, "open");
        close(fd);
    }
    return f;
}

char* read_file_up_to(const char* path, size_t most, size_t* size, Error* err) {
    if (size) { *size = 0; }
    FILE* f = fopen_regular(path, err);
    if (!f) { return NULL; }
    char* text = read_stream(f, path, most, size, err);
    fclose(f);
    return text;
}

char* read_file(const char* path, size_t* size, Error* err) { return read_file_up_to(path, SIZE_MAX, size, err); }

bool read_exactly(int fd, const char* path, void* out, size_t bytes, size_t offset, Error* err) {
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pread(fd, (char*)out + done, bytes - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR) { continue; }
        if (n < 0) { return fail_system(err, path, "read"); }
        if (n == 0) { return fail(err, "%s: the file was cut short while it was open: make it again", path); }
        done += (size_t)n;
    }
    return true;
}

bool read_begin(const char* path, void* out, size_t bytes, Error* err) {
    size_t size;
    memset(out, 0, bytes);
    const int fd = open_regular(path, &size, err);
    const bool ok = fd >= 0 && read_exactly(fd, path, out, min_size(bytes, size), 0, err);
    if (fd >= 0) { close(fd); }
    return ok;
}

bool sync_parent(const char* path, Error* err) {
    char* folder = path_folder(path);
    int fd = open(folder, O_RDONLY | O_DIRECTORY);
    bool ok = fd >= 0 && fsync(fd) == 0;
    if (!ok) { fail_system(err, folder, "sync the folder"); }
    if (fd >= 0) { close(fd); }
    free(folder);
    return ok;
}

bool close_synced(FILE* f, const char* path, Error* err) {
    bool ok = fflush(f) == 0 && !ferror(f) && fsync(fileno(f)) == 0;
    int error = errno ? errno : EIO; // an earlier write may have failed, whose reason nobody has kept
    if (fclose(f) != 0 && ok) {
        ok = false;
        error = errno;
    }
    errno = error;
    return ok || fail_system(err, path, "write");
}

// Fails if the file does not hold this text.
static bool read_back(const char* path, const char* text, size_t size, Error* err) {
    size_t size_there;
    char* there = read_file(path, &size_there, err);
    const bool same = there && size_there == size && !memcmp(there, text, size);
    if (there && !same) { fail(err, "%s: what was written reads back otherwise: is the disk damaged?", path); }
    free(there);
    return same;
}

const char* path_name(const char* path) {
    const char* slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

char* path_folder(const char* path) {
    const char* name = path_name(path);
    const int before = (int)(name - path);
    return before ? format("%.*s", max_int(before - 1, 1), path) : format("."); // of "/NAME": "/"
}

char* path_beside(const char* path, const char* other) {
    char *folder = path_folder(path), *beside = format("%s/%s", folder, other);
    free(folder);
    return beside;
}

char* trimmed_path(const char* path) {
    char* trimmed = format("%s", path);
    for (size_t n = strlen(trimmed); n > 1 && trimmed[n - 1] == '/'; n--) { trimmed[n - 1] = 0; }
    return trimmed;
}

char* temporary_path(const char* path) {
    const char* name = path_name(path);
    return format("%.*s.tmp-%s", (int)(name - path), path, name);
}

static Error unreadable; // the folder that the last glob() could not read

static int note_unreadable(const char* folder, int error) {
    if (is_absent(error)) { return 0; }
    errno = error;
    fail_system(&unreadable, folder, "list the folder");
    return 1;
}

bool find_paths(glob_t* found, const char* pattern, Error* err) {
    const int result = glob(pattern, found->gl_pathv ? GLOB_APPEND : 0, note_unreadable, found);
    if (result == GLOB_ABORTED) { return fail(err, "%s; or give a pattern that does not look there", unreadable.text); }
    return result == 0 || result == GLOB_NOMATCH || fail(err, "%s: cannot search: out of memory", pattern);
}

char* path_as_pattern(const char* path) {
    char* pattern = alloc_or_die(2 * strlen(path) + 1, 1, "a name");
    size_t n = 0;
    for (const char* c = path; *c; c++) {
        if (strchr("*?[]\\", *c)) { pattern[n++] = '\\'; }
        pattern[n++] = *c;
    }
    return pattern;
}

// Adds the paths of one pattern of an option, or the file that has the pattern for a name.
static bool find_option_path(glob_t* found, const char* option, const char* given, bool has_spaces, const char* advice,
                             Error* err) {
    Error why;
    const size_t before = found->gl_pathc;
    char* pattern = path_exists(given) ? path_as_pattern(given) : format("%s", given);
    const bool ok = find_paths(found, pattern, &why);
    free(pattern);
    if (!ok) { return fail(err, "%s %s", option, why.text); }
    if (found->gl_pathc > before) { return true; }
    return fail(err, "%s %s: no such file: %s%s", option, given, advice,
                has_spaces ? " (a space separates names: write \\ before it)" : "");
}

char* next_pattern(const char** at) {
    static const char separators[] = ", \t\n";
    const char *begin = *at + strspn(*at, separators), *end = begin;
    for (; *end && !strchr(separators, *end); end++) {
        if (*end == '\\' && end[1]) { end++; } // glob() takes the backslash away
    }
    *at = end;
    return end > begin ? format("%.*s", (int)(end - begin), begin) : NULL;
}

bool find_option_paths(glob_t* found, const char* option, const char* patterns, const char* advice, Error* err) {
    memset(found, 0, sizeof *found);
    bool ok = true;
    const char* at = patterns;
    for (char* pattern; ok && (pattern = next_pattern(&at)) != NULL;) {
        ok = find_option_path(found, option, pattern, strpbrk(patterns, " \t") != NULL, advice, err);
        free(pattern);
    }
    if (ok && found->gl_pathc == 0) { return fail(err, "%s: no file is given: %s", option, advice); }
    return ok;
}

FILE* create_temporary(const char* path, Error* err) {
    const bool is_free = unlink(path) == 0 || errno == ENOENT;
    const int fd = is_free ? open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666) : -1;
    FILE* f = fd >= 0 ? fdopen(fd, "wb") : NULL;
    if (!f) { fail_system(err, path, is_free ? "create" : "replace"); }
    if (fd >= 0 && !f) { close(fd); }
    return f;
}

int open_lock(const char* path) {
    const int flags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    for (int tries = 0;; tries++) {
        struct stat ours, there;
        int fd = open(path, O_RDWR | O_CREAT | flags, 0666);
        if (fd < 0 && errno == EACCES) { // another user's, unless the folder is not to be written to
            fd = open(path, O_RDONLY | flags);
            if (fd < 0) { errno = EACCES; }
        }
        if (fd < 0) { return -1; }
        if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
            if (errno != EWOULDBLOCK) {
                notice("warning: %s: %s: nothing keeps a second process away", path, strerror(errno));
                return fd;
            }
            close(fd);
            errno = EWOULDBLOCK;
            return -1;
        }
        const bool is_there = fstat(fd, &ours) == 0 && lstat(path, &there) == 0 && ours.st_ino == there.st_ino;
        if (is_there || tries == 100) { return fd; } // numbers that change with each look are some file systems' way
        close(fd);                                   // the one that had it has just removed it
    }
}

bool write_file_atomically(const char* path, const char* text, size_t size, Error* err) {
    char* temporary = temporary_path(path);
    FILE* f = create_temporary(temporary, err);
    bool ok = f != NULL;
    if (f) {
        fwrite(text, 1, size, f);
        ok = close_synced(f, temporary, err) && read_back(temporary, text, size, err);
    }
    if (ok && rename(temporary, path) != 0) { ok = fail_system(err, path, "replace"); }
    if (f && !ok) { unlink(temporary); }
    free(temporary);
    return ok && sync_parent(path, err);
}

bool may_replace(const char* path, const char* head, const char* what, Error* err) {
    if (!path_exists(path)) { return true; }
    char begin[256];
    Error why;
    const bool is_read = read_begin(path, begin, sizeof begin, &why);
    if (!is_read && why.is_unknown) { return fail(err, "%s; give another --out", why.text); }
    return (is_read && !strncmp(begin, head, strlen(head))) ||
           fail(err, "%s is there already, and is not a %s: give another --out", path, what);
}
