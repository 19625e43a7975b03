// The file of choices of earlier starts: its place, what is added to it, and what cannot be read or written.
#include "llmc/files/tune_cache.h"
#include "test/test.h"
#include <sys/wait.h>
#include <unistd.h>

static bool path_is(const char* identity, const char* want) {
    char* path = tune_cache_path(identity);
    const bool same = want ? path && !strcmp(path, want) : !path;
    free(path);
    return same;
}

TEST(the_file_is_named_after_the_machine) {
    setenv("HOME", "/home/me", 1);
    setenv("XDG_CACHE_HOME", "/cache", 1);
    EXPECT(path_is("GPU", "/cache/gpt2.c/GPU.txt"));
    EXPECT(path_is("NVIDIA H100 80GB/x, 1.2", "/cache/gpt2.c/NVIDIA_H100_80GB_x__1.2.txt"));
    unsetenv("XDG_CACHE_HOME");
    EXPECT(path_is("GPU", "/home/me/.cache/gpt2.c/GPU.txt"));
    setenv("XDG_CACHE_HOME", "", 1);
    EXPECT(path_is("GPU", "/home/me/.cache/gpt2.c/GPU.txt"));
    setenv("HOME", "", 1);
    EXPECT(path_is("GPU", NULL));
    unsetenv("HOME");
    EXPECT(path_is("GPU", NULL));
}

static bool holds(const char* path, const char* want) {
    char* lines = tune_cache_read(path);
    const bool same = !strcmp(lines, want);
    free(lines);
    return same;
}

TEST(lines_are_added_and_replaced_by_their_key) {
    char* path = test_path("new/folder/file.txt");
    EXPECT(holds(path, ""));
    tune_cache_add(path, "1,2 a\n1,20 b\n");
    EXPECT(holds(path, "1,2 a\n1,20 b\n"));
    tune_cache_add(path, "1,20 c\n3,4 d\n");
    EXPECT(holds(path, "1,20 c\n3,4 d\n1,2 a\n"));
    struct stat before, after;
    EXPECT(stat(path, &before) == 0);
    tune_cache_add(path, "1,20 c\n");
    EXPECT(holds(path, "1,20 c\n3,4 d\n1,2 a\n"));
    EXPECT(stat(path, &after) == 0 && after.st_ino == before.st_ino); // nothing new: not written
    test_write(path, "1,2 a\n3,4 b", 11); // its last line was cut
    tune_cache_add(path, "5,6 c\n");
    EXPECT(holds(path, "5,6 c\n1,2 a\n3,4 b\n"));
}

TEST(programs_that_add_at_the_same_time_lose_no_line) {
    enum { PROGRAMS = 3, LINES = 20 };
    char* path = test_path("together/file.txt");
    pid_t child[PROGRAMS];
    for (int p = 0; p < PROGRAMS; p++) {
        child[p] = fork();
        if (child[p] != 0) { continue; }
        for (int i = 0; i < LINES; i++) {
            char line[64];
            snprintf(line, sizeof line, "%d,%d value\n", p, i);
            tune_cache_add(path, line);
        }
        _exit(0);
    }
    for (int p = 0; p < PROGRAMS; p++) {
        int status = -1;
        EXPECT(waitpid(child[p], &status, 0) == child[p] && status == 0);
    }
    char* lines = tune_cache_read(path);
    for (int i = 0; i < PROGRAMS * LINES; i++) {
        char key[32];
        snprintf(key, sizeof key, "%d,%d", i / LINES, i % LINES);
        if (!tune_line(lines, key, strlen(key))) { TEST_FAIL("the line of %s is lost", key); }
    }
    free(lines);
}

TEST(a_file_that_cannot_be_written_ends_nothing) {
    char *file = test_path("file"), *below = test_path("file/below.txt");
    tune_cache_add(file, "1 a\n");
    tune_cache_add(below, "1 a\n"); // only warns: a file is where a folder would have to be
    EXPECT(holds(below, ""));
    EXPECT(holds(file, "1 a\n"));
}

TEST_MAIN()
