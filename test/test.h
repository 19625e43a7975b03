// A small test runner: TEST(name) { ... EXPECT(...) ... }, and TEST_MAIN() at the end of the file.
//
//   EXPECT(condition)                       goes on after a failure, and the test counts as failed
//   EXPECT_NEAR(got, want, tolerance)       |got - want| <= tolerance, both printed
//   EXPECT_DEATH(code, "words", statement)  the statement, run in a child process, ends the program with this exit code
//                                           and its standard error contains the words
//   SKIP("reason")                          leaves the test, which counts as skipped
//   test_case = "cpu fp32 avx2"             what the test looks at now, named by every failure; NULL: nothing to name
//
// A test program prints each failure and each skipped test when it happens, and each test that took five seconds. At
// the end it lists the tests that failed and closes with `name: N passed, N failed, N skipped`. It returns 1 if a test
// failed; one that takes an hour ends it. Arguments choose tests by a part of their names, or with -WORD leave them
// out; a word that chooses none is an error.
#pragma once
#include "../llmc/base/file.h"
#include <signal.h>
#include <sys/wait.h>

typedef struct TestCase {
    const char* name;
    void (*run)(void);
    bool failed;
    struct TestCase* next;
} TestCase;

static TestCase *test_first, **test_end = &test_first;
static int test_failures;        // in the test that runs now
static const char* test_skipped; // the reason
static const char* test_case;
static const char* test_folder;  // an empty folder of this program's own, in TMPDIR or /tmp, removed at the end

// AddressSanitizer does not look for leaks: options live as long as the program, and children that tests fork() exit
// without freeing memory.
const char* __asan_default_options(void);
const char* __asan_default_options(void) { return "detect_leaks=0"; }

#define TEST(id)                                                             \
    static void test_##id(void);                                             \
    static TestCase case_##id = {#id, test_##id, false, NULL};               \
    __attribute__((constructor)) static void add_##id(void) {                \
        *test_end = &case_##id;                                              \
        test_end = &case_##id.next;                                          \
    }                                                                        \
    static void test_##id(void)

#define SKIP(reason) do { test_skipped = reason; return; } while (0)
#define TEST_FAIL(...) (test_fail_at(__FILE__, __LINE__), printf(__VA_ARGS__), putchar('\n'))
#define EXPECT(cond) do { if (!(cond)) TEST_FAIL("expected %s", #cond); } while (0)
#define EXPECT_NEAR(got, want, tolerance)                                                                    \
    do {                                                                                                     \
        double got_ = (got), want_ = (want);                                                                 \
        if (!(fabs(got_ - want_) <= (tolerance))) TEST_FAIL("%s = %.9g, expected %.9g", #got, got_, want_);  \
    } while (0)
#define EXPECT_DEATH(code, words, ...)                                                                       \
    do {                                                                                                     \
        FILE* errors_ = tmpfile();                                                                           \
        fflush(stdout);                                                                                      \
        pid_t child_ = fork();                                                                               \
        if (child_ == 0) { test_become_child(errors_); __VA_ARGS__; _exit(255); }                            \
        test_check_death(child_, errors_, code, words, __FILE__, __LINE__);                                  \
    } while (0)

#ifdef __has_feature
#if __has_feature(thread_sanitizer)
#define FORGETS_THREADS
static void test_leave(int code, void* unused) {
    (void)unused;
    fflush(NULL);
    _exit(code);
}
#endif
#endif

// Prepares the child process of EXPECT_DEATH.
static inline void test_become_child(FILE* errors) {
    dup2(fileno(errors), 2);
    setenv("EMU_FORK", "1", 1);
#ifdef FORGETS_THREADS // archer's end of a process crashes where parallel loops ran before the fork()
    on_exit(test_leave, NULL);
#endif
}

// Returns the path of a file in test_folder, which stays valid for 255 more calls. Nobody else frees it.
static inline char* test_path(const char* name) {
    static char* paths[256];
    static size_t next;
    char** path = &paths[next++ % 256];
    free(*path);
    return *path = format("%s/%s", test_folder, name);
}

// Writes a file of these bytes, or ends the program.
static inline void test_write(const char* path, const void* bytes, size_t size) {
    FILE* f = fopen(path, "wb");
    if (!f || fwrite(bytes, 1, size, f) != size || fclose(f) != 0) { fatal("%s: %s", path, strerror(errno)); }
}

// Counts a failure and prints the beginning of its line.
static inline void test_fail_at(const char* file, int line) {
    test_failures++;
    printf("%s:%d: ", file, line);
    if (test_case) { printf("%s: ", test_case); }
}

static inline void test_check_death(pid_t child, FILE* errors, int code, const char* words, const char* file,
                                    int line) {
    int status = 0;
    static char text[1 << 16];
    waitpid(child, &status, 0);
    rewind(errors);
    size_t n = fread(text, 1, sizeof text - 1, errors);
    text[n] = 0;
    fclose(errors);
    const bool has_race = strstr(text, "WARNING: ThreadSanitizer") != NULL; // the code is the program's all the same
    if (!WIFEXITED(status) || WEXITSTATUS(status) != code || !strstr(text, words) || has_race) {
        test_fail_at(file, line);
        printf("expected exit code %d and \"%s\", got %s %d and: %s\n", code, words,
               WIFEXITED(status) ? "exit code" : "signal", WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status),
               text);
    }
}

// Returns true if an argument chooses the test, or there is none that could, and no argument -WORD leaves it out.
static inline bool test_is_chosen(const TestCase* t, int argc, char** argv) {
    bool chosen = false, words = false;
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] == '-') {
            if (strstr(t->name, argv[i] + 1)) { return false; }
            continue;
        }
        words = true;
        chosen = chosen || strstr(t->name, argv[i]) != NULL;
    }
    return chosen || !words;
}

static char test_over[256]; // what is printed when the test that runs takes too long

static inline void test_end_over(int signal_number) {
    const ssize_t written = write(1, test_over, strlen(test_over));
    (void)written;
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static inline void test_run(TestCase* t) {
    enum { TEST_SECONDS = 3600 }; // chosen: many times the longest one, under valgrind too
    const double start = seconds_now();
    test_failures = 0;
    test_skipped = test_case = NULL;
    snprintf(test_over, sizeof test_over, "FAILED  %s: it has not ended after %d s\n", t->name, TEST_SECONDS);
    signal(SIGALRM, test_end_over);
    alarm(TEST_SECONDS);
    t->run();
    alarm(0);
    t->failed = test_failures > 0;
    const double seconds = seconds_now() - start;
    if (t->failed) { printf("FAILED  %s\n", t->name); }
    else if (test_skipped) { printf("skipped %s: %s\n", t->name, test_skipped); }
    else if (seconds > 5) { printf("passed  %s (%.0f s)\n", t->name, seconds); }
}

static inline int test_main(int argc, char** argv, const char* program) {
    const char* parent = getenv("TMPDIR");
    char* folder = format("%s/gpt2c-test-XXXXXX", parent && *parent ? parent : "/tmp");
    int passed = 0, failed = 0, skipped = 0;
    const char* slash = strrchr(program, '/');
    const char* name = slash ? slash + 1 : program;
    test_folder = mkdtemp(folder);
    if (!test_folder) { fatal("%s: cannot make the folder: %s", folder, strerror(errno)); }
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (TestCase* t = test_first; t; t = t->next) {
        if (!test_is_chosen(t, argc, argv)) { continue; }
        test_run(t);
        failed += t->failed;
        skipped += !t->failed && test_skipped;
        passed += !t->failed && !test_skipped;
    }
    char* clean = format("rm -rf '%s'", test_folder);
    if (system(clean) != 0) { printf("cannot remove %s\n", test_folder); }
    free(clean);
    free(folder);
    if (passed + failed + skipped == 0) {
        printf("no test has such a name\n");
        failed = 1;
    }
    for (const TestCase* t = test_first; t; t = t->next) {
        if (t->failed) { printf("%s: failed: %s\n", name, t->name); }
    }
    printf("%s: %d passed, %d failed, %d skipped\n", name, passed, failed, skipped);
    return failed != 0;
}

#define TEST_MAIN() int main(int argc, char** argv) { return test_main(argc, argv, argv[0]); }
