#include "base.h"
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/file.h>

int process_rank;

static struct {
    void (*tell)(void* context, const char* message);
    void* context;
} fatal_listener;

bool ATTR_PRINTF(2, 3) (fail)(Error* err, const char* fmt, ...) {
    va_list args;
    va_start(args, fmt);
    vsnprintf(err->text, sizeof err->text, fmt, args);
    make_printable(err->text);
    va_end(args);
    err->is_unknown = false;
    return false;
}

static bool is_absent(int error) { return error == ENOENT || error == ENOTDIR; }

bool (fail_system)(Error* err, const char* path, const char* cannot_do) {
    const int error = errno;
    fail(err, "%s: cannot %s: %s", path, cannot_do, strerror(error));
    err->is_unknown = !is_absent(error);
    return false;
}

void wait_for_rank0_message(void) {
    if (process_rank > 0) { usleep(500000); }
}

// Returns what a line on standard error begins with: in a terminal, what erases progress() or the logger's bar there.
static const char* line_begin(void) { return isatty(STDERR_FILENO) ? "\r\033[J" : ""; }

static void ATTR_NORETURN ATTR_PRINTF(2, 0) vdie(int code, const char* fmt, va_list args) {
    char message[2048];
    void (*tell)(void*, const char*) = fatal_listener.tell;
    fatal_listener.tell = NULL;
    vsnprintf(message, sizeof message, fmt, args);
    make_printable(message);
    wait_for_rank0_message();
    fflush(stdout);
    fputs(line_begin(), stderr);
    if (process_rank > 0) { fprintf(stderr, "rank %d: ", process_rank); }
    fprintf(stderr, "error: %s\n", message);
    if (tell) { tell(fatal_listener.context, message); }
    exit(code);
}

void on_fatal(void (*tell)(void* context, const char* message), void* context) {
    fatal_listener.tell = tell;
    fatal_listener.context = context;
}

void ATTR_NORETURN ATTR_PRINTF(1, 2) fatal(const char* fmt, ...) {
    va_list args;
    va_start(args, fmt);
    vdie(EXIT_RUNTIME, fmt, args);
}

void ATTR_NORETURN ATTR_PRINTF(1, 2) usage_error(const char* fmt, ...) {
    va_list args;
    va_start(args, fmt);
    vdie(EXIT_USAGE, fmt, args);
}

void ATTR_NORETURN ATTR_PRINTF(1, 2) fatal_corruption(const char* fmt, ...) {
    va_list args;
    va_start(args, fmt);
    vdie(EXIT_CORRUPT, fmt, args);
}

// Of standard output and standard error.
static struct {
    int own;       // a descriptor that does not block; 0: there is none
    bool is_stuck; // the reader takes nothing
    bool is_torn;  // a part of a line was dropped
} streams[STDERR_FILENO + 1];

void unblock_standard_streams(void) {
    for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++) {
        struct stat s;
        char path[32];
        if (fstat(fd, &s) != 0 || !(S_ISFIFO(s.st_mode) || isatty(fd))) { continue; }
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd); // other processes share the flags of `fd`
        streams[fd].own = max_int(open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC), 0);
    }
}

static bool write_all(int fd, const char* text, size_t size) {
    const int to = streams[fd].own ? streams[fd].own : fd;
    const size_t all = size;
    while (size > 0) {
        const ssize_t n = write(to, text, size);
        if (n > 0) {
            text += n;
            size -= (size_t)n;
            streams[fd].is_stuck = false;
        } else if (n < 0 && errno == EAGAIN) {
            struct pollfd out = {.fd = to, .events = POLLOUT};
            streams[fd].is_stuck = poll(&out, 1, streams[fd].is_stuck ? 0 : 5000) <= 0;
            if (streams[fd].is_stuck) { break; }
        } else if (n < 0 && errno != EINTR) { return false; }
    }
    streams[fd].is_torn = size > 0 && (size < all || streams[fd].is_torn);
    return true;
}

bool write_stream(int fd, const char* text, size_t size) {
    fflush(stdout);
    if (streams[fd].is_torn && !write_all(fd, "\n", 1)) { return false; }
    return streams[fd].is_torn || write_all(fd, text, size); // not behind a part of a line
}

// Prints a message on standard error, and then `end`.
static void ATTR_PRINTF(1, 0) print_message(const char* fmt, va_list args, const char* end) {
    char* text = format_list(fmt, args);
    make_printable(text);
    char* line = format("%s%s%s", line_begin(), text, end);
    write_stream(STDERR_FILENO, line, strlen(line));
    free(line);
    free(text);
}

void ATTR_PRINTF(1, 2) notice(const char* fmt, ...) {
    va_list args;
    if (process_rank > 0) { return; }
    va_start(args, fmt);
    print_message(fmt, args, "\n");
    va_end(args);
}

static atomic_uint progress_calls;

uint32_t progress_count(void) { return progress_calls; }

void ATTR_PRINTF(2, 3) progress(Progress* p, const char* fmt, ...) {
    const bool is_terminal = isatty(STDERR_FILENO);
    const double now = seconds_now(), wait = is_terminal ? 0.2 : 30;
    va_list args;
    progress_calls++;
    if (p->start == 0) { p->start = p->last = now; }
    if (process_rank > 0 || now - p->start < 2 || now - p->last < wait) { return; }
    p->last = now;
    va_start(args, fmt);
    print_message(fmt, args, is_terminal ? "" : "\n");
    va_end(args);
}

void open_standard_streams(void) {
    signal(SIGXFSZ, SIG_IGN); // a file that would exceed `ulimit -f` is an error of the write
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) { // open() returns the lowest free one
        const bool is_closed = fcntl(fd, F_GETFD) < 0 && errno == EBADF;
        if (is_closed && open("/dev/null", O_RDWR) != fd) { fatal("/dev/null: cannot open: %s", strerror(errno)); }
    }
}

void drop_standard_output(void) {
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (nowhere < 0) { return; }
    dup2(nowhere, STDOUT_FILENO);
    close(nowhere);
    if (streams[STDOUT_FILENO].own) { close(streams[STDOUT_FILENO].own); }
    streams[STDOUT_FILENO].own = 0;
    clearerr(stdout);
}

int close_standard_output(int status) {
    const bool had_error = ferror(stdout) != 0;
    errno = 0;
    if (fclose(stdout) == 0 && !had_error) { return status; }
    fprintf(stderr, "error: standard output: cannot write%s%s\n", errno ? ": " : "", errno ? strerror(errno) : "");
    return status == EXIT_DONE ? EXIT_RUNTIME : status;
}

// ---------------------------------------------------------------------------------------------------------------------
// memory

void* alloc_or_die(size_t count, size_t size, const char* what) {
    void* p = calloc(count ? count : 1, size);
    if (!p) { fatal("out of memory: %zu bytes for %s", count * size, what); }
    return p;
}

void* realloc_or_die(void* p, size_t bytes, const char* what) {
    void* q = realloc(p, bytes ? bytes : 1);
    if (!q) { fatal("out of memory: %zu bytes for %s", bytes, what); }
    return q;
}

// Appends to *text, NULL or allocated.
static void append_list(char** text, const char* fmt, va_list args) {
    va_list again;
    va_copy(again, args);
    const size_t before = *text ? strlen(*text) : 0, n = (size_t)vsnprintf(NULL, 0, fmt, args);
    *text = realloc_or_die(*text, before + n + 1, "a string");
    vsnprintf(*text + before, n + 1, fmt, again);
    va_end(again);
}

char* ATTR_PRINTF(1, 0) format_list(const char* fmt, va_list args) {
    char* text = NULL;
    append_list(&text, fmt, args);
    return text;
}

char* ATTR_PRINTF(1, 2) format(const char* fmt, ...) {
    va_list args;
    va_start(args, fmt);
    char* text = format_list(fmt, args);
    va_end(args);
    return text;
}

void ATTR_PRINTF(2, 3) append_format(char** text, const char* fmt, ...) {
    va_list args;
    va_start(args, fmt);
    append_list(text, fmt, args);
    va_end(args);
}

void buffer_append(Buffer* b, const void* data, size_t bytes) {
    if (bytes == 0) { return; } // data may be NULL
    if (b->bytes + bytes > b->room) {
        b->room = max_size(2 * b->room, b->bytes + bytes);
        b->data = realloc_or_die(b->data, b->room, "a text");
    }
    memcpy(b->data + b->bytes, data, bytes);
    b->bytes += bytes;
}

// ---------------------------------------------------------------------------------------------------------------------
// numbers

double seconds_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int compare_doubles(const void* a, const void* b) {
    const double x = *(const double*)a, y = *(const double*)b;
    return (x > y) - (x < y);
}

void sort_doubles(double* x, size_t n) { qsort(x, n, sizeof *x, compare_doubles); }

double median(double* x, size_t n) {
    sort_doubles(x, n);
    return n % 2 ? x[n / 2] : 0.5 * (x[n / 2 - 1] + x[n / 2]);
}

// The multipliers are 2^64 / golden ratio, as in splitmix64, and that of rrmxmx (Evensen 2018).
uint64_t hash64(const void* data, size_t bytes, uint64_t seed) {
    const unsigned char* p = data;
    uint64_t lane[4], word, h = seed ^ (bytes * 0x9e3779b97f4a7c15ull);
    for (int i = 0; i < 4; i++) { lane[i] = mix64(seed + (uint64_t)i + 1); }
    for (; bytes >= 32; bytes -= 32, p += 32) {
        for (int i = 0; i < 4; i++) {
            memcpy(&word, p + 8 * i, 8);
            lane[i] = (lane[i] ^ word) * 0x9fb21c651e98df25ull;
            lane[i] ^= lane[i] >> 29;
        }
    }
    for (int i = 0; i < 4; i++) { h = mix64(h ^ lane[i]); }
    for (; bytes > 0; bytes -= min_size(bytes, 8), p += 8) {
        word = 0;
        memcpy(&word, p, min_size(bytes, 8));
        h = mix64(h ^ word) + 0x9e3779b97f4a7c15ull;
        if (bytes <= 8) { break; }
    }
    return h;
}

// ---------------------------------------------------------------------------------------------------------------------
// text

// In '...' all characters stand for themselves but ' itself, which is written '\\'' there.
char* shell_word(const char* text) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:,=+@%-";
    if (*text && !text[strspn(text, plain)]) { return format("%s", text); }
    char *word = alloc_or_die(4 * strlen(text) + 3, 1, "a word"), *end = word;
    *end++ = '\'';
    for (; *text; text++) {
        if (*text == '\'') { end = stpcpy(end, "'\\''"); }
        else { *end++ = *text; }
    }
    *end = '\'';
    return word;
}

size_t utf8_decode(const void* text, const void* end, uint32_t* code_point) {
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000}; // smallest code point of each length
    const unsigned char* p = text;
    if (*p < 0x80) {
        *code_point = *p;
        return 1;
    }
    size_t bytes = *p >= 0xf0 ? 4 : *p >= 0xe0 ? 3 : 2;
    if (*p < 0xc2 || *p > 0xf4 || (size_t)((const unsigned char*)end - p) < bytes) { return 0; }
    uint32_t c = *p & (0x7fu >> bytes);
    for (size_t i = 1; i < bytes; i++) {
        if ((p[i] & 0xc0) != 0x80) { return 0; }
        c = c << 6 | (p[i] & 0x3f);
    }
    *code_point = c;
    bool surrogate = c >= 0xd800 && c <= 0xdfff;
    return c < least[bytes] || c > 0x10ffff || surrogate ? 0 : bytes;
}

size_t utf8_invalid(const char* text, size_t size) {
    uint32_t ignored;
    size_t at = 0;
    for (size_t n = 1; at < size && n > 0; at += n) { n = utf8_decode(text + at, text + size, &ignored); }
    return at;
}

int utf8_characters(const char* text) {
    int count = 0;
    for (; *text; text++) { count += (*text & 0xc0) != 0x80; }
    return count;
}

bool is_printable(uint32_t c) { return c == '\n' || c == '\t' || (c >= 32 && (c < 127 || c >= 160)); }

void make_printable(char* text) {
    uint32_t c;
    const char* end = text + strlen(text);
    for (size_t n; text < end; text += max_size(n, 1)) {
        n = utf8_decode(text, end, &c);
        if (n == 0 || !is_printable(c)) { memset(text, '?', max_size(n, 1)); }
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// files

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
    if (error == ENOENT || error == ENOTDIR) { return 0; }
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
    struct stat s;
    const size_t before = found->gl_pathc;
    char* pattern = path_exists(given) ? path_as_pattern(given) : format("%s", given);
    const bool ok = find_paths(found, pattern, &why);
    free(pattern);
    if (!ok) { return fail(err, "%s %s", option, why.text); }
    if (found->gl_pathc > before) { return true; }
    if (lstat(given, &s) != 0 && errno != ENOENT && errno != ENOTDIR) {
        return fail(err, "%s %s: %s", option, given, strerror(errno));
    }
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
    return (read_begin(path, begin, sizeof begin, err) && !strncmp(begin, head, strlen(head))) ||
           fail(err, "%s is there already, and is not a %s: give another --out", path, what);
}

// libstdc++.a, linked for libsnappy and cuDNN's headers, refers to this function of glibc 2.36 in a class that nothing
// here uses, std::random_device. Defining it lets the programs start with an older glibc.
__attribute__((visibility("hidden"))) uint32_t arc4random(void) { abort(); }
