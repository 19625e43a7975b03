// A small test runner: TEST(name) { ... EXPECT(...) ... }, and TEST_MAIN() at the end of the file.
//
//   EXPECT(condition)                       goes on after a failure, and the test counts as failed
//   EXPECT_NEAR(got, want, tolerance)       |got - want| <= tolerance, both printed
//   EXPECT_DEATH(code, "words", statement)  the statement, run in a child process, ends the program with this exit code
//                                           and its standard error contains the words
//   SKIP("reason")                          leaves the test, which counts as skipped
//
// A test program prints one line for each test that failed or was skipped, and closes with `name: N passed, N failed, N skipped`.
// Arguments choose tests by a part of their names. Where the processor lacks the instructions that the program was compiled
// for (-DLEVEL), it skips them all.
#pragma once
#include "../llmc/base.h"
#include "../llmc/cpu/processor.h"
#include <sys/wait.h>

#define TEXT_OF_(x) #x
#define TEXT_OF(x) TEXT_OF_(x)

typedef struct TestCase {
    const char* name;
    void (*run)(void);
    struct TestCase* next;
} TestCase;

static TestCase *test_first, **test_end = &test_first;
static int test_failures;       // in the test that runs now
static const char* test_skipped;
static const char* test_folder; // an empty folder of this program's own, removed at the end

#define TEST(id)                                                             \
    static void test_##id(void);                                             \
    static TestCase case_##id = {#id, test_##id, NULL};                      \
    __attribute__((constructor)) static void add_##id(void) {                \
        *test_end = &case_##id;                                              \
        test_end = &case_##id.next;                                          \
    }                                                                        \
    static void test_##id(void)

#define SKIP(reason) do { test_skipped = reason; return; } while (0)
#define TEST_FAIL(...) (printf("%s:%d: ", __FILE__, __LINE__), printf(__VA_ARGS__), putchar('\n'), test_failures++)
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
        if (child_ == 0) { dup2(fileno(errors_), 2); __VA_ARGS__; _exit(255); }                              \
        test_check_death(child_, errors_, code, words, __FILE__, __LINE__);                                  \
    } while (0)

static inline void test_check_death(pid_t child, FILE* errors, int code, const char* words, const char* file, int line) {
    int status = 0;
    static char text[1 << 16];
    waitpid(child, &status, 0);
    rewind(errors);
    size_t n = fread(text, 1, sizeof text - 1, errors);
    text[n] = 0;
    fclose(errors);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != code || !strstr(text, words)) {
        printf("%s:%d: expected exit code %d and \"%s\", got %s %d and: %s\n", file, line, code, words,
               WIFEXITED(status) ? "exit code" : "signal", WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status), text);
        test_failures++;
    }
}

static inline int test_main(int argc, char** argv, const char* program) {
    char folder[] = "/tmp/gpt2c-test-XXXXXX";
    int passed = 0, failed = 0, skipped = 0;
    const char* slash = strrchr(program, '/');
    const char* name = slash ? slash + 1 : program;
#ifdef LEVEL
    if (!processor_has(TEXT_OF(LEVEL))) {
        printf("skipped %s: this processor has no %s\n%s: 0 passed, 0 failed, 1 skipped\n", name, TEXT_OF(LEVEL), name);
        return 0;
    }
#endif
    test_folder = mkdtemp(folder);
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (TestCase* t = test_first; t; t = t->next) {
        bool chosen = argc < 2;
        for (int i = 1; i < argc; i++) { chosen |= strstr(t->name, argv[i]) != NULL; }
        if (!chosen) { continue; }
        test_failures = 0;
        test_skipped = NULL;
        t->run();
        if (test_failures) { failed++; printf("FAILED  %s\n", t->name); }
        else if (test_skipped) { skipped++; printf("skipped %s: %s\n", t->name, test_skipped); }
        else { passed++; }
    }
    char* clean = format("rm -rf %s", test_folder);
    if (system(clean) != 0) { printf("cannot remove %s\n", test_folder); }
    free(clean);
    printf("%s: %d passed, %d failed, %d skipped\n", name, passed, failed, skipped);
    return failed != 0;
}

#define TEST_MAIN() int main(int argc, char** argv) { return test_main(argc, argv, argv[0]); }
