// Runs ./prepare as a child process of a test, in the test's folder, and reads what it wrote.
//
// fwrite and unlink are replaced in the test program by functions that count, as rename is in synced.h, so that a test
// can kill a run at each of the points between two changes of what is on the disk. A run that would lose a file in a
// power cut fails. Include it once, before anything else.
#pragma once
#include "test/base/synced.h"
#include "llmc/prepare/documents.h"
#include "llmc/data/shard.h"
#include "llmc/base/rng.h"
#include <signal.h>
#include <sys/resource.h>

enum { KILLED = 1000, NOT_SYNCED = 98 }; // in place of an exit code

static int events_until_kill = -1; // counted down to 0 by rename (before and after), unlink and fwrite; -1: never

static const char* changing_input; // each event of a run writes the first byte of this file anew; NULL: of none

static inline void event(void) {
    const int fd = changing_input ? open(changing_input, O_WRONLY) : -1;
    if (fd >= 0) {
        if (write(fd, "x", 1) != 1) { _exit(97); }
        close(fd);
    }
    if (events_until_kill >= 0 && events_until_kill-- == 0) { raise(SIGKILL); }
}

size_t fwrite(const void* data, size_t size, size_t count, FILE* f) {
    event();
    return fwrite_unlocked(data, size, count, f);
}

int unlink(const char* path) {
    event();
    return unlinkat(AT_FDCWD, path, 0);
}

#define main prepare_main
#include "data/prepare.c"
#include "test/test.h"
#undef main

// ---------------------------------------------------------------------------------------------------------------------
// running it

static char run_out[1 << 14], run_err[1 << 14]; // what the last run printed

// Empties one of the files that stand for the standard streams of a run; all runs share them.
static inline void reopen(FILE** f) {
    if (!*f) { *f = tmpfile(); }
    if (!*f || ftruncate(fileno(*f), 0) != 0) { fatal("cannot make a temporary file: %s", strerror(errno)); }
    rewind(*f);
}

static inline void read_back(FILE* f, char* out, size_t room) {
    rewind(f);
    out[fread(out, 1, room - 1, f)] = 0;
}

static size_t input_bytes; // of the next runs' standard input; 0: it ends with a 0

// Runs prepare in the test's folder with these words as arguments, `input` (or NULL) as standard input; after some
// events it gets killed (-1: it does not). Returns the exit code, KILLED, or 128 + another signal.
static inline int run_until(int events, const char* input, const char* arguments) {
    char* words = format("prepare %s", arguments);
    char* argv[64];
    int argc = 0, status = 0;
    for (char* w = strtok(words, " "); w && argc < 63; w = strtok(NULL, " ")) { argv[argc++] = w; }
    argv[argc] = NULL;
    static FILE *out, *err, *in;
    reopen(&out);
    reopen(&err);
    reopen(&in);
    if (input) { fwrite_unlocked(input, 1, input_bytes ? input_bytes : strlen(input), in); }
    rewind(in);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        dup2(fileno(in), 0);
        dup2(fileno(out), 1);
        dup2(fileno(err), 2);
        events_until_kill = events;
        on_rename = event;
        if (chdir(test_folder) != 0) { _exit(99); }
        const int code = prepare_main(argc, argv);
        exit(code == 0 && !is_all_synced() ? NOT_SYNCED : code);
    }
    waitpid(child, &status, 0);
    read_back(out, run_out, sizeof run_out);
    read_back(err, run_err, sizeof run_err);
    free(words);
    if (WIFEXITED(status)) { return WEXITSTATUS(status); }
    return WTERMSIG(status) == SIGKILL ? KILLED : 128 + WTERMSIG(status);
}

static inline int run(const char* arguments) { return run_until(-1, NULL, arguments); }

static inline void expect_run(int line, int code, const char* words, const char* arguments) {
    int got = run(arguments);
    if (got == code && (strstr(run_err, words) || strstr(run_out, words))) { return; }
    printf("%s:%d: `prepare %s`: expected exit code %d and \"%s\", got %d and: %s%s\n", __FILE__, line, arguments, code,
           words, got, run_out, run_err);
    test_failures++;
}
#define EXPECT_RUN(code, words, arguments) expect_run(__LINE__, code, words, arguments)

static inline bool exists(const char* name) {
    char* path = test_path(name);
    bool yes = path_exists(path);
    return yes;
}

static inline void write_bytes(const char* name, const char* text, size_t bytes) {
    test_write(test_path(name), text, bytes);
}

static inline void write_text(const char* name, const char* text) { write_bytes(name, text, strlen(text)); }

// Appends the tokens of a shard; false if there is none.
static inline bool append_shard(const char* name, TokenList* out) {
    char* path = test_path(name);
    Shard s;
    Error err;
    bool ok = shard_open(&s, path, &err);
    if (ok) {
        int* tokens = alloc_or_die(s.num_tokens, sizeof *tokens, path);
        EXPECT(s.num_tokens > 0 && shard_read(&s, 0, s.num_tokens, tokens, &err));
        for (size_t i = 0; i < s.num_tokens; i++) { token_list_append(out, tokens[i]); }
        free(tokens);
        shard_close(&s);
    }
    return ok;
}

// All tokens of a prefix, validation first; `val` gets the number of those.
static inline TokenList tokens_of(const char* prefix, size_t* val) {
    TokenList list = token_list();
    char* name = format("%s_val_000000.bin", prefix);
    append_shard(name, &list);
    *val = list.count;
    bool more = true;
    for (int i = 1; more; i++) {
        free(name);
        name = format("%s_train_%06d.bin", prefix, i);
        more = append_shard(name, &list);
    }
    free(name);
    return list;
}

// The documents that the shards of a prefix, made with the tokenizer of bytes, hold, each with a '#' before it.
static inline void expect_documents(const char* prefix, size_t expected_val, const char* documents) {
    size_t val, n = strlen(documents);
    TokenList list = tokens_of(prefix, &val);
    char* text = (char*)alloc_or_die(list.count + 1, 1, "a text");
    for (size_t i = 0; i < list.count; i++) { text[i] = (char)(list.ids[i] == 256 ? '#' : list.ids[i]); }
    size_t same = 0;
    while (same < n && same < list.count && text[same] == documents[same]) { same++; }
    if (same < n || same < list.count) {
        const size_t from = same > 60 ? same - 60 : 0;
        TEST_FAIL("from byte %zu on got %.120s, expected %.120s", from, text + from, documents + from);
    }
    EXPECT_NEAR((double)val, (double)expected_val, 0);
    free(text);
    token_list_free(&list);
}

static inline bool has_codec(Codec codec) {
    Error err;
    return codec_check(codec, "a file", &err);
}
#define HAS(name) has_codec(CODEC_##name)

// Copies a file of test/golden/parquet, which pyarrow made, to the test's folder.
static inline void copy_golden(const char* name, const char* to) {
    char* path = format("test/golden/parquet/%s", name);
    size_t bytes = 0;
    Error err;
    char* data = read_file(path, &bytes, &err);
    if (!data) { TEST_FAIL("%s", err.text); } else { write_bytes(to, data, bytes); }
    free(data);
    free(path);
}

static inline bool same_content(const char* a, const char* b) {
    char *path_a = test_path(a), *path_b = test_path(b);
    size_t n = 0, m = 0;
    Error err;
    char *x = read_file(path_a, &n, &err), *y = read_file(path_b, &m, &err);
    bool same = x && y && n == m && memcmp(x, y, n) == 0;
    free(x);
    free(y);
    return same;
}

// Returns true if a file is a shard that has its checksum, or no shard.
static inline bool has_its_sum(const char* name) {
    Error err;
    bool has_sum = false;
    return !strstr(name, ".bin") || (shard_verify_sum(test_path(name), &has_sum, &err) && has_sum);
}

// Runs prepare with --out part, of which nothing is there.
static inline int run_anew(int events, const char* arguments) {
    char* pattern = test_path("part[._]*");
    glob_t found = {0};
    Error err;
    if (!find_paths(&found, pattern, &err)) { TEST_FAIL("%s", err.text); }
    for (size_t i = 0; i < found.gl_pathc; i++) { unlink(found.gl_pathv[i]); }
    globfree(&found);
    return run_until(events, NULL, arguments);
}

// Kills a run at its first event and continues it, then another `stride` events later, ...; last, kills one run many
// times.
static inline void expect_resumable(const char* arguments, int stride, const char* const* files) {
    char* whole = format("--threads 1 --out whole %s", arguments);
    char* part = format("--threads 1 --out part %s", arguments);
    char* forced = format("--force %s", whole);
    EXPECT(run(forced) == 0);
    int kills = 0;
    for (int at = 0; run_anew(at, part) == KILLED; at += stride) {
        kills++;
        EXPECT_RUN(0, "part_train", part);
        for (int i = 0; files[i]; i += 2) {
            if (!same_content(files[i], files[i + 1])) { TEST_FAIL("killed at event %d, %s differs", at, files[i]); }
            EXPECT(has_its_sum(files[i + 1]));
        }
        if (test_failures) { break; }
    }
    EXPECT(kills > 2 && kills * stride > 10);
    EXPECT(run_anew(4, part) == KILLED);
    int steps = 1;
    for (int at = 6; run_until(at, NULL, part) == KILLED && steps < 1000; steps++) { at += stride * (steps % 2); }
    EXPECT(steps > 2 && steps < 1000);
    for (int i = 0; files[i]; i += 2) { EXPECT(same_content(files[i], files[i + 1])); }
    EXPECT(!exists("part_train_000001.bin.tmp") && !exists(".tmp-part.json"));
    free(whole);
    free(part);
    free(forced);
}

// Writes `count` documents "0", "1", ... as JSONL.
static inline void write_numbers(const char* name, int count) {
    Buffer text = {NULL, 0, 0};
    for (int i = 0; i < count; i++) {
        char* line = format("{\"text\": \"%d\"}\n", i);
        buffer_append(&text, line, strlen(line));
        free(line);
    }
    write_bytes(name, text.data, text.bytes);
    free(text.data);
}

// Returns the numbers that the shards of a prefix hold, made with the tokenizer of bytes; the caller frees them.
static inline int* numbers_of(const char* prefix, size_t* count) {
    size_t val;
    TokenList list = tokens_of(prefix, &val);
    int* numbers = alloc_or_die(list.count + 1, sizeof *numbers, "numbers");
    *count = 0;
    for (size_t i = 0; i < list.count; i++) {
        if (list.ids[i] == 256) { numbers[(*count)++] = 0; }
        else { numbers[*count - 1] = 10 * numbers[*count - 1] + list.ids[i] - '0'; }
    }
    token_list_free(&list);
    return numbers;
}
