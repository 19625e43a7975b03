// Errors, messages, memory, numbers and text, for all other modules.
//
// A failure that the program cannot continue from ends it: fatal() (exit code 1) or usage_error() (exit code 2). After
// a failure that the caller may recover from (a damaged checkpoint: load the one before), a function returns false and
// fills an Error. Every message names the file, option or tensor and says what to do about it.
#pragma once
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

// Headers that C++ includes too declare C functions between these.
#ifdef __cplusplus
#define BEGIN_C extern "C" {
#define END_C }
#else
#define BEGIN_C
#define END_C
#endif

// Exit codes of the programs: done, a run-time error, wrong options, a check that failed, a loss that is a spike or not
// finite, a device that computes wrongly.
enum { EXIT_DONE = 0, EXIT_RUNTIME = 1, EXIT_USAGE = 2, EXIT_CHECK_FAILED = 3, EXIT_NONFINITE = 4, EXIT_CORRUPT = 5 };

#define ATTR_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

// Functions that CUDA kernels call too.
#ifdef __CUDACC__
#define HOST_DEVICE __host__ __device__
#else
#define HOST_DEVICE
#endif

#define ATTR_NORETURN __attribute__((noreturn))

// Joins two names, or makes a name a string literal, after macros in it were expanded.
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define STRING_(a) #a
#define STRING(a) STRING_(a)

// Forbids inlining and cloning. A compiler may fuse different multiply-adds in each copy of a function, so a result
// would depend on which copy computed it.
#ifdef __clang__
#define ATTR_ONE_COPY __attribute__((noinline))
#else
#define ATTR_ONE_COPY __attribute__((noinline, noclone))
#endif

BEGIN_C

// The rank of this process among those that train together, set by main. Only messages use it: rank 0 alone prints
// notices, and an error on another rank names that rank.
extern int process_rank;

// An error that the caller may recover from.
typedef struct {
    char text[1024];
    bool is_unknown; // the system failed (EIO, EACCES, EMFILE, ...), which says nothing about the file: neither that it
                     // is damaged nor that it is absent
} Error;

// Returns true if this error of a system call means that there is no such file.
static inline bool is_absent(int error) { return error == ENOENT || error == ENOTDIR; }

// Fills `err`, with a printable text, and returns false, for `return fail(err, ...)`.
bool ATTR_PRINTF(2, 3) fail(Error* err, const char* fmt, ...);

// The same for a system call that failed: "PATH: cannot DO: the reason in errno". Sets is_unknown unless the reason is
// that there is no such file.
bool fail_system(Error* err, const char* path, const char* cannot_do);

#ifdef __clang_analyzer__ // sees one file at a time: it learns here what they return
#define fail(...) ((fail)(__VA_ARGS__), false)
#define fail_system(...) ((fail_system)(__VA_ARGS__), false)
#endif

// Lets rank 0 report an error that all ranks share: other ranks wait here for half a second, in which their launcher
// ends them, before they report it too. (A rank that waits longer would look like a hanging one.)
void wait_for_rank0_message(void);

// Ends the program with a run-time error (exit code 1).
void ATTR_NORETURN ATTR_PRINTF(1, 2) fatal(const char* fmt, ...);

// Ends the message of a failure of a device or a network: saves are written under another name first.
#define CHECKPOINTS_ARE_WHOLE "Checkpoints on disk are whole: go on with --resume auto"

// Ends the program because of how it was called (exit code 2).
void ATTR_NORETURN ATTR_PRINTF(1, 2) usage_error(const char* fmt, ...);

// Ends the program because a device has computed wrongly (exit code 5).
void ATTR_NORETURN ATTR_PRINTF(1, 2) fatal_corruption(const char* fmt, ...);

// Lets the functions above call tell(context, message) before they end the program, so that a run can log why it
// ended. A second error, in `tell` itself, ends the program at once. NULL: nobody is told.
void on_fatal(void (*tell)(void* context, const char* message), void* context);

// Prints a line for the user on standard error, on rank 0 only. (Standard output carries results only.)
void ATTR_PRINTF(1, 2) notice(const char* fmt, ...);

// Shows the progress of work that takes longer than two seconds on standard error: in a terminal on one line that the
// next output replaces, else as a line every 30 seconds. Rank 0 only. Zero the struct when the work begins.
typedef struct {
    double start, last; // seconds_now()
} Progress;
void ATTR_PRINTF(2, 3) progress(Progress* p, const char* fmt, ...);

// Returns how often progress() was called, on any rank. Any thread may ask.
uint32_t progress_count(void);

// Opens /dev/null as standard input, output or error where the caller closed it. Otherwise the next file that is opened
// would take its place, and messages would be written into that file. Call it first.
void open_standard_streams(void);

// Lets write_stream() no longer block this process where standard output and standard error are pipes or terminals: a
// connection that has gone silent, or mpirun that is about to end its processes, may not read them.
void unblock_standard_streams(void);

// Writes a text to standard output or standard error, behind what stdio has buffered. Drops the rest if it would block
// and the reader takes nothing for five seconds (chosen), or until a signal comes; before the next text, a line then
// says that some are missing. Fails if it cannot be written.
bool write_stream(int fd, const char* text, size_t size);

// Sends to /dev/null what is printed from now on, after standard output could not be written.
void drop_standard_output(void);

// Closes standard output at the end of the program. Returns `status`; if that is EXIT_DONE and printed text was lost (a
// full disk), prints an error and returns EXIT_RUNTIME.
int close_standard_output(int status);

// ---------------------------------------------------------------------------------------------------------------------
// memory

// Return host memory, which the caller frees: alloc_or_die zeroed, realloc_or_die with the contents of p, its new bytes
// not set. Never return NULL: out of memory ends the program with a message that names `what`.
void* alloc_or_die(size_t count, size_t size, const char* what);
void* realloc_or_die(void* p, size_t bytes, const char* what);

// Returns an array of `count` elements with room for one more: its room is a power of two. `what` as above.
void* grown(void* array, size_t count, size_t size, const char* what);

// Return the text that printf(), or vprintf(), would print; the caller frees it.
char* ATTR_PRINTF(1, 2) format(const char* fmt, ...);
char* ATTR_PRINTF(1, 0) format_list(const char* fmt, va_list args);

// Appends what printf() would print to *text, which was allocated, or is NULL for an empty text. No argument may point
// into *text, which moves.
void ATTR_PRINTF(2, 3) append_format(char** text, const char* fmt, ...);

// Bytes that grow; all zeros is none, and free(data) ends them. No 0 stands behind them.
typedef struct {
    char* data;
    size_t bytes, room;
} Buffer;

void buffer_append(Buffer* b, const void* data, size_t bytes);

// ---------------------------------------------------------------------------------------------------------------------
// numbers

static inline HOST_DEVICE float float_of_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline HOST_DEVICE uint32_t bits_of_float(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline int min_int(int a, int b) { return a < b ? a : b; }
static inline int max_int(int a, int b) { return a > b ? a : b; }
static inline size_t min_size(size_t a, size_t b) { return a < b ? a : b; }
static inline size_t max_size(size_t a, size_t b) { return a > b ? a : b; }
static inline size_t ceil_div(size_t a, size_t b) { return (a + b - 1) / b; }
static inline size_t round_up(size_t a, size_t b) { return ceil_div(a, b) * b; }

static inline double in_mib(size_t bytes) { return (double)bytes / 1048576; }

// Seconds on a monotonic clock.
double seconds_now(void);

// Sort x (n), in growing order; median() also returns the median, for n >= 1.
void sort_doubles(double* x, size_t n);
double median(double* x, size_t n);

// Sorts texts (n) as bytes, whatever the locale.
void sort_texts(char** texts, size_t n);

// Returns one of texts (n) that equals another; NULL if there is none.
const char* text_that_stands_twice(char* const* texts, size_t n);

// A bijection of 64-bit integers that leaves no visible pattern (the finalizer of splitmix64: Steele et al. 2014,
// "Fast splittable pseudorandom number generators").
static inline HOST_DEVICE uint64_t mix64(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

// A 64-bit checksum against damage, not against an adversary: four lanes of multiply and rotate over 8-byte words, so
// that it runs at memory speed. Continue over several ranges by passing the last result as `seed`.
uint64_t hash64(const void* data, size_t bytes, uint64_t seed);

// ---------------------------------------------------------------------------------------------------------------------
// text

// Returns the ending of a plural: "1 file", but "2 files".
static inline const char* plural(uint64_t n) { return n == 1 ? "" : "s"; }

// Returns the text as one word of a shell's command, in quotation marks if it needs them; the caller frees it.
char* shell_word(const char* text);

// Returns the length in bytes of the UTF-8 character (RFC 3629) that begins at `text`, before `end`, and sets its code
// point; 0 if the bytes there are not well-formed UTF-8.
size_t utf8_decode(const void* text, const void* end, uint32_t* code_point);

// Returns the first byte that is not well-formed UTF-8, counted from 0; `size` if there is none.
size_t utf8_invalid(const char* text, size_t size);

// Returns the number of characters of a UTF-8 text.
int utf8_characters(const char* text);

// Returns true for line ends, tabs, and every character that is no control character: those could change the settings
// of a terminal.
bool is_printable(uint32_t code_point);

// Replaces what is not printable, or not UTF-8, by '?', byte by byte. Every message passes through it, since a file
// may have any name.
void make_printable(char* text);

END_C
