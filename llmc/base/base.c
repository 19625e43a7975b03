#include "base.h"
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>

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
    char message[2048], rank[32] = "";
    void (*tell)(void*, const char*) = fatal_listener.tell;
    fatal_listener.tell = NULL;
    vsnprintf(message, sizeof message, fmt, args);
    make_printable(message);
    wait_for_rank0_message();
    fflush(stdout);
    if (process_rank > 0) { snprintf(rank, sizeof rank, "rank %d: ", process_rank); }
    fprintf(stderr, "%s%serror: %s\n", line_begin(), rank, message); // at once: other ranks write there too
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
    bool is_cut;   // a text was dropped, or its end
    bool is_torn;  // what was written last is a part of a text
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
    streams[fd].is_cut = streams[fd].is_cut || size > 0;
    streams[fd].is_torn = size > 0 && (size < all || streams[fd].is_torn);
    return true;
}

bool write_stream(int fd, const char* text, size_t size) {
    static const char missing[] = "\n(lines are missing here: nobody read them in time)\n";
    fflush(stdout);
    if (!streams[fd].is_cut) { return write_all(fd, text, size); }
    const char* note = missing + !streams[fd].is_torn;
    Buffer both = {NULL, 0, 0}; // as one: a full pipe may have room for the note, though nobody reads it
    buffer_append(&both, note, strlen(note));
    buffer_append(&both, text, size);
    streams[fd].is_cut = false;
    const bool ok = write_all(fd, both.data, both.bytes);
    free(both.data);
    return ok;
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

void* grown(void* array, size_t count, size_t size, const char* what) {
    const bool is_full = (count & (count - 1)) == 0; // 0 or a power of two
    return is_full ? realloc_or_die(array, (count ? 2 * count : 1) * size, what) : array;
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

static int compare_texts(const void* a, const void* b) { return strcmp(*(char* const*)a, *(char* const*)b); }
void sort_texts(char** texts, size_t n) { qsort(texts, n, sizeof *texts, compare_texts); }

const char* text_that_stands_twice(char* const* texts, size_t n) {
    char** sorted = alloc_or_die(n, sizeof *sorted, "texts");
    const char* twice = NULL;
    memcpy(sorted, texts, n * sizeof *sorted);
    sort_texts(sorted, n);
    for (size_t i = 1; i < n && !twice; i++) {
        if (strcmp(sorted[i - 1], sorted[i]) == 0) { twice = sorted[i]; }
    }
    free(sorted);
    return twice;
}

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
    for (size_t n; bytes > 0; bytes -= n, p += n) {
        n = min_size(bytes, 8);
        word = 0;
        memcpy(&word, p, n);
        h = mix64(h ^ word) + 0x9e3779b97f4a7c15ull;
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

// libstdc++.a, linked for libsnappy and cuDNN's headers, refers to this function of glibc 2.36 in a class that nothing
// here uses, std::random_device. Defining it lets the programs start with an older glibc.
__attribute__((visibility("hidden"))) uint32_t arc4random(void) { abort(); }
