// Runs the emulator's own tests. The emulator reads its environment once and ends the program when something is wrong,
// so each case runs in a process of its own.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/wait.h>
#include <unistd.h>

enum Build { PLAIN = 1, CHECK = 2, EVERY = 3 };
#ifdef EMU_CHECK
static const Build THIS_BUILD = CHECK;
#else
static const Build THIS_BUILD = PLAIN;
#endif

struct Case {
    const char* name;
    void (*run)();
    const char* environment; // "NAME=value", or null
    const char* complaint;   // part of the message with which the process must die; null: it must succeed
    int builds;              // the builds in which the case runs
};

static int expectations_failed; // in this process

// Counts a failed expectation; prints the first five of a process.
static void expect(bool condition, const char* text, const char* file, int line) {
    if (!condition && expectations_failed++ < 5) { fprintf(stderr, "%s:%d: expected %s\n", file, line, text); }
}
#define EXPECT(condition) expect(condition, #condition, __FILE__, __LINE__)
#define OK(call) EXPECT((call) == cudaSuccess)

// Runs a case. Returns true if it ended as expected.
static bool run_case(const Case& c) {
    FILE* errors = tmpfile();
    if (!errors) {
        perror("tmpfile");
        return false;
    }
    fflush(stdout);
    pid_t child = fork();
    if (child < 0) {
        perror("fork");
        return false;
    }
    if (child == 0) {
        dup2(fileno(errors), STDERR_FILENO);
        if (c.environment) { putenv(strdup(c.environment)); }
        c.run();
        _exit(expectations_failed != 0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    static char text[1 << 16];
    rewind(errors);
    text[fread(text, 1, sizeof text - 1, errors)] = 0;
    fclose(errors);
    bool ended_well = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    bool good = c.complaint ? !ended_well && strstr(text, c.complaint) : ended_well;
    if (!good) {
        printf("FAILED  %s%s%s: status %#x, expected %s, standard error:\n%s\n", c.name, c.environment ? " with " : "",
               c.environment ? c.environment : "", status, c.complaint ? c.complaint : "success", text);
    }
    return good;
}

// Arguments choose cases by a part of their names.
static int run_cases(const Case* cases, size_t count, int argc, char** argv) {
    int passed = 0, failed = 0, skipped = 0;
    for (size_t i = 0; i < count; i++) {
        bool chosen = argc < 2;
        for (int k = 1; k < argc; k++) { chosen |= strstr(cases[i].name, argv[k]) != nullptr; }
        if (!chosen) { continue; }
        if (!(cases[i].builds & THIS_BUILD)) {
            skipped++;
        } else if (run_case(cases[i])) {
            passed++;
        } else {
            failed++;
        }
    }
    const char* name = strrchr(argv[0], '/');
    printf("%s: %d passed, %d failed, %d skipped\n", name ? name + 1 : argv[0], passed, failed, skipped);
    return failed != 0;
}
