// Token shards: what is written is read back, and each way in which a file can be wrong is named.
#include "test/base/synced.h"
#include "llmc/data/shard.h"
#include "test/test.h"
#include <signal.h>
#include <sys/resource.h>

static void make_shard(const char* path, size_t count) {
    ShardWriter w;
    char hex[BLAKE2B_HEX + 1];
    Error err;
    EXPECT(shard_create(&w, path, &err));
    for (size_t i = 0; i < count; i++) {
        uint16_t token = (uint16_t)(i * 7);
        EXPECT(shard_write(&w, &token, 1, &err));
    }
    EXPECT(shard_commit(&w, hex, &err) && is_all_synced());
}

// Opens a shard and checks all of its tokens. Returns their number; -1 on failure.
static long long count_checked(const char* path, int vocab_size, Error* err) {
    Shard s;
    if (!shard_open(&s, path, err)) { return -1; }
    const long long count = shard_check_all(&s, vocab_size, err) ? (long long)s.num_tokens : -1;
    shard_close(&s);
    return count;
}

// Checks that opening `data` as a shard fails with these words.
static void expect_refused(const void* data, size_t bytes, const char* words) {
    const char* path = test_path("refused.bin");
    Shard s;
    Error err = {.text = ""};
    test_write(path, data, bytes);
    EXPECT(!shard_open(&s, path, &err));
    if (!strstr(err.text, words) || !strstr(err.text, path)) { TEST_FAIL("\"%s\" is not in: %s", words, err.text); }
}

TEST(bytes_of_the_format) {
    const char* path = test_path("format.bin");
    size_t size;
    Error err;
    make_shard(path, 3);
    unsigned char* data = (unsigned char*)read_file(path, &size, &err);
    static const unsigned char start[12] = {0x88, 0xd8, 0x34, 0x01, 1, 0, 0, 0, 3, 0, 0, 0};
    static const unsigned char tokens[6] = {0, 0, 7, 0, 14, 0};
    EXPECT(size == 1030 && memcmp(data, start, 12) == 0 && memcmp(data + 1024, tokens, 6) == 0);
    for (int i = 12; i < 1024; i++) { EXPECT(data[i] == 0); }
    free(data);
}

TEST(round_trip) {
    const char* path = test_path("a.bin");
    enum { COUNT = 100000 };
    static int out[COUNT];
    Shard s;
    Error err;
    make_shard(path, COUNT);
    EXPECT(shard_open(&s, path, &err) && s.num_tokens == COUNT);
    EXPECT(shard_read(&s, 0, COUNT, out, &err) && out[0] == 0 && out[COUNT - 1] == (uint16_t)((COUNT - 1) * 7));
    EXPECT(shard_read(&s, 12345, 2, out, &err) && out[0] == (uint16_t)(12345 * 7) && out[1] == (uint16_t)(12346 * 7));
    EXPECT(shard_read(&s, COUNT, 0, out, &err));
    EXPECT(!shard_read(&s, COUNT - 1, 2, out, &err) && strstr(err.text, "99999"));
    EXPECT(!shard_read(&s, SIZE_MAX, 2, out, &err));
    shard_close(&s);
    EXPECT(count_checked(path, 65536, &err) == COUNT);
}

TEST(the_first_id_beyond_the_vocabulary_is_named) {
    const char* path = test_path("verify.bin");
    Error err;
    make_shard(path, 40000); // token i is 7 i modulo 65536; 7 * 5715 is the first above 40000
    EXPECT(count_checked(path, 40000, &err) == -1);
    EXPECT(strstr(err.text, "token 5715 is 40005") && strstr(err.text, "--tokenizer"));
    EXPECT(count_checked(path, 65536, &err) == 40000);
    EXPECT(count_checked(path, 65535, &err) == -1); // not within the first piece that is read
    EXPECT(strstr(err.text, "token 37449 is 65535"));
}

TEST(wrong_files_are_named) {
    int32_t header[SHARD_HEADER_INTS + 1] = {SHARD_MAGIC, SHARD_VERSION, 2}; // 4 bytes of tokens behind
    Shard s;
    Error err;
    expect_refused("", 0, "empty");
    expect_refused(header, 2, "not a token shard");
    expect_refused(header, 500, "header");
    expect_refused(header, 1026, "promises 2 tokens");
    header[2] = 1;
    expect_refused(header, 1028, "promises 1 tokens");
    header[2] = -1;
    expect_refused(header, 1028, "negative");
    header[2] = 2;
    header[1] = 7;
    expect_refused(header, 1028, "version 7");
    expect_refused("Once upon a time\n", 17, "text");
    expect_refused("\x12\x34\x00\x01\x56\x78\x9a\xbc", 8, "--data_format nanogpt");
    expect_refused("Once upon a time\n", 17, "./prepare");
    EXPECT(!shard_open(&s, test_path("absent.bin"), &err) && strstr(err.text, "absent.bin: cannot open"));
    EXPECT(!shard_open(&s, test_folder, &err) && strstr(err.text, "not a regular file"));
    EXPECT(mkfifo(test_path("pipe"), 0600) == 0);
    EXPECT(!shard_open(&s, test_path("pipe"), &err) && strstr(err.text, "not a regular file"));
}

TEST(shards_are_compared_with_their_checksums) {
    ShardWriter w;
    Error err;
    Sums sums = {.list = NULL};
    bool has_sum = true;
    char hex[BLAKE2B_HEX + 1], *path = test_path("c_train_000001.bin"),
         *list = shard_record_path(path, ".b2sums");
    const char* const others[] = {"c_train_00001.bin", "c.bin", "c_test_000001.bin", "c_train_000001.bib",
                                  "c_train_00000x.bin"};
    EXPECT(strstr(list, "/c.b2sums"));
    for (int i = 0; i < 5; i++) { EXPECT(!shard_record_path(others[i], ".b2sums")); }
    EXPECT(shard_create(&w, path, &err) && shard_write(&w, (const uint16_t[]){1, 2, 3}, 3, &err) &&
           shard_commit(&w, hex, &err));
    EXPECT(shard_verify_sum(path, &has_sum, &err) && !has_sum);
    sums_set(&sums, "c_train_000001.bin", hex);
    EXPECT(sums_save(&sums, list, &err) && shard_verify_sum(path, &has_sum, &err) && has_sum);
    FILE* f = fopen(path, "r+b");
    EXPECT(f && fseek(f, 700, SEEK_SET) == 0 && fputc(1, f) == 1 && fclose(f) == 0); // an unused byte of the header
    EXPECT(!shard_verify_sum(path, &has_sum, &err) && strstr(err.text, "c_train_000001.bin: damaged or edited"));
    sums_free(&sums);
    free(list);
}

// Another process writes into the unfinished file, so that other bytes are read back than were written.
TEST(a_shard_that_reads_back_otherwise_is_not_committed) {
    ShardWriter w;
    Error err;
    char* path = test_path("other.bin");
    char* temporary = format("%s.tmp", path);
    enum { BLOCK = 1 << 14 };                  // bytes that are read back at once
    static uint16_t tokens[5 * BLOCK / 4 + 3]; // two and a half blocks
    char hex[BLAKE2B_HEX + 1];
    const size_t count = sizeof tokens / sizeof *tokens, size = SHARD_HEADER_BYTES + sizeof tokens;
    const size_t places[] = {SHARD_HEADER_BYTES, SHARD_HEADER_BYTES + BLOCK, size - 1, size};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        EXPECT(shard_create(&w, path, &err) && shard_write(&w, tokens, 5000, &err) &&
               shard_write(&w, tokens + 5000, count - 5000, &err) && fflush(w.file) == 0);
        FILE* f = fopen(temporary, "r+b");
        EXPECT(f && fseek(f, (long)places[i], SEEK_SET) == 0 && fputc(1, f) == 1 && fclose(f) == 0);
        EXPECT(!shard_commit(&w, hex, &err));
        EXPECT(strstr(err.text, places[i] < size ? "reads back otherwise" : "promises"));
        EXPECT(!path_exists(path));
    }
    const uint16_t right[] = {1, 2}, exchanged[] = {2, 1};
    EXPECT(shard_create(&w, path, &err) && shard_write(&w, right, 2, &err) && fflush(w.file) == 0);
    EXPECT(pwrite(fileno(w.file), exchanged, sizeof exchanged, SHARD_HEADER_BYTES) == sizeof exchanged);
    EXPECT(!shard_commit(&w, hex, &err) && strstr(err.text, "reads back otherwise"));
}

TEST(a_shard_does_not_take_more_tokens_than_its_header_can_count) {
    const uint16_t tokens[2] = {1, 2};
    ShardWriter w;
    Error err;
    char* path = test_path("most.bin");
    EXPECT(shard_create(&w, path, &err));
    w.num_tokens = SHARD_MAX_TOKENS - 1; // as if they were there
    EXPECT(shard_write(&w, tokens, 1, &err) && w.num_tokens == SHARD_MAX_TOKENS);
    EXPECT(!shard_write(&w, tokens, 1, &err) && strstr(err.text, "most.bin: a shard holds at most 2147483647 tokens"));
}

TEST(file_cut_short_while_open) {
    const char* path = test_path("cut.bin");
    int out[100];
    Shard s;
    Error err;
    make_shard(path, 100);
    EXPECT(shard_open(&s, path, &err));
    EXPECT(truncate(path, 1100) == 0);
    EXPECT(shard_read(&s, 0, 38, out, &err));
    EXPECT(!shard_read(&s, 0, 39, out, &err) && strstr(err.text, "cut.bin") && strstr(err.text, "cut short"));
    shard_close(&s);
}

// A limit on the size of files stands for a full disk: the error comes from the call that reaches it.
static void write_on_full_disk(const char* path, size_t count) {
    struct rlimit limit = {4096, 4096};
    ShardWriter w;
    Error err;
    char hex[BLAKE2B_HEX + 1];
    signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) { _exit(9); }
    bool ok = shard_create(&w, path, &err);
    for (size_t i = 0; ok && i < count; i++) {
        uint16_t token = 1;
        ok = shard_write(&w, &token, 1, &err);
    }
    ok = ok && shard_commit(&w, hex, &err);
    if (ok) { _exit(8); }
    fatal("%s", err.text);
}

TEST(full_disk_leaves_nothing) {
    const char* path = test_path("full.bin");
    const char* words = "full.bin: cannot write: File too large";
    EXPECT_DEATH(EXIT_RUNTIME, words, write_on_full_disk(path, 2000));   // met at the end
    EXPECT_DEATH(EXIT_RUNTIME, words, write_on_full_disk(path, 200000)); // met on the way
    EXPECT(!path_exists(path));
    EXPECT(!path_exists(test_path("full.bin.tmp")));
}

TEST(a_link_in_the_place_of_a_new_shard_is_not_followed) {
    const char *path = test_path("place.bin"), *target = test_path("target");
    Error err;
    EXPECT(symlink(target, test_path("place.bin.tmp")) == 0);
    make_shard(path, 3);
    EXPECT(!path_exists(target) && count_checked(path, 65536, &err) == 3);
}

TEST(an_old_shard_stays_until_the_new_one_is_complete) {
    const char* path = test_path("old.bin");
    uint16_t token = 5;
    ShardWriter w;
    Error err;
    make_shard(path, 10);
    EXPECT(shard_create(&w, path, &err) && shard_write(&w, &token, 1, &err));
    EXPECT(path_exists(test_path("old.bin.tmp")));
    EXPECT(count_checked(path, 65536, &err) == 10);
    shard_abandon(&w);
    EXPECT(!path_exists(test_path("old.bin.tmp")));
    static const char left_over[5000]; // by a killed process
    test_write(test_path("old.bin.tmp"), left_over, sizeof left_over);
    make_shard(path, 4);
    EXPECT(count_checked(path, 65536, &err) == 4);
    EXPECT(!shard_create(&w, test_path("no/such/folder.bin"), &err) && strstr(err.text, "folder.bin"));
}

TEST_MAIN()
