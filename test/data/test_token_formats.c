// Token files of other programs: each has the tokens of llm.c's shard, and makes the same batches; others are refused.
#include "llmc/data/dataloader.h"
#include "test/test.h"

enum { COUNT = 300, V = 50257, T = 16 };
#define FOLDER "test/golden/tokens/"

static const char* const READ[] = {"llmc.bin",  "llama3.bin", "u2_v1.npy", "u2_v2.npy", "u2_v3.npy", "u4_v1.npy",
                                   "u4_v2.npy", "u4_v3.npy",  "i4_v1.npy", "i4_v2.npy", "i4_v3.npy", "nanogpt.bin"};
enum { NUM_READ = sizeof READ / sizeof *READ };

static char* golden(const char* name) { return format(FOLDER "%s", name); }

static TokenHeader header_of(const char* name) {
    return strcmp(name, "nanogpt.bin") ? HEADER_REQUIRED : HEADER_OPTIONAL;
}

static int golden_id(int i) { return i == 0 ? 50256 : i * i * 37 % 50257; } // dev/golden/token_files.py

// Copies a golden file, with `change` applied to its bytes, and expects an error with these words that names the copy.
typedef size_t (*Change)(unsigned char* data, size_t size);

static void expect_refused(const char* name, Change change, TokenHeader header, const char* words) {
    Error err = {.text = ""};
    Shard s;
    size_t size;
    char *from = golden(name), *to = test_path(name);
    unsigned char* data = (unsigned char*)read_file(from, &size, &err);
    data = realloc_or_die(data, size + 64, "a copy");
    size = change ? change(data, size) : size;
    test_write(to, data, size);
    const bool opened = shard_open_as(&s, to, header, &err);
    if (opened) { shard_close(&s); }
    if (opened || !strstr(err.text, words) || !strstr(err.text, to)) {
        TEST_FAIL("%s: expected \"%s\", got: %s", name, words, opened ? "a token file" : err.text);
    }
    free(data);
    free(from);
}

TEST(each_format_has_the_same_tokens) {
    Error err;
    for (int k = 0; k < NUM_READ; k++) {
        Shard s;
        int all[COUNT], some[3];
        char* path = golden(READ[k]);
        if (!shard_open_as(&s, path, header_of(READ[k]), &err)) { TEST_FAIL("%s", err.text); continue; }
        EXPECT(s.num_tokens == COUNT && shard_read(&s, 0, COUNT, all, &err) && shard_check_all(&s, V, &err));
        for (int i = 0; i < COUNT; i++) { EXPECT(all[i] == golden_id(i)); }
        EXPECT(shard_read(&s, 255, 3, some, &err) && some[0] == golden_id(255) && some[2] == golden_id(257));
        EXPECT(!shard_read(&s, COUNT - 1, 2, some, &err));
        EXPECT(!shard_check_all(&s, 50256, &err) && strstr(err.text, "token 0 is 50256"));
        shard_close(&s);
        free(path);
    }
}

TEST(one_pattern_may_match_several_formats) {
    Error err;
    Dataset d;
    int tokens[T], targets[T];
    const char* all = FOLDER "ll*[3c].bin " FOLDER "[ui]?_v*.npy";
    if (!dataset_open(&d, "--train_data", all, HEADER_REQUIRED, T, V, &err)) { fatal("%s", err.text); }
    const uint64_t windows = (COUNT - 1) / T;
    EXPECT(d.num_files == 11 && d.num_windows == 11 * windows);
    for (uint64_t w = 0; w < d.num_windows; w++) {
        EXPECT(dataset_read(&d, w, tokens, targets, &err) && tokens[1] == golden_id((int)(w % windows) * T + 1) &&
               targets[T - 1] == golden_id((int)(w % windows) * T + T));
    }
    dataset_close(&d);
    EXPECT(!dataset_open(&d, "--train_data", FOLDER "*.bin", HEADER_REQUIRED, T, V, &err) &&
           strstr(err.text, "nanogpt.bin"));
}

// ---------------------------------------------------------------------------------------------------------------------
// what is refused

static size_t cut_last(unsigned char* data, size_t size) { (void)data; return size - 1; }
static size_t cut_to_100(unsigned char* data, size_t size) { (void)data, (void)size; return 100; }
static size_t cut_to_9(unsigned char* data, size_t size) { (void)data, (void)size; return 9; }
static size_t cut_to_0(unsigned char* data, size_t size) { (void)data, (void)size; return 0; }
static size_t append_four(unsigned char* data, size_t size) { memset(data + size, 0, 4); return size + 4; }
static size_t version_9(unsigned char* data, size_t size) {
    data[data[0] == 0x93 ? 6 : 4] = 9;
    return size;
}
static size_t negative_count(unsigned char* data, size_t size) { data[11] = 0x80; return size; }
static size_t long_header(unsigned char* data, size_t size) { data[9] = 0xff; return size; }
static size_t no_dict(unsigned char* data, size_t size) { data[10] = '['; return size; }
static size_t make_text(unsigned char* data, size_t size) { memset(data, 'a', size); return size; }

// Replaces the first occurrence of `old` in a NumPy header by as many other characters.
static size_t replace(unsigned char* data, size_t size, const char* old, const char* now) {
    unsigned char* at = memmem(data, 128, old, strlen(old));
    EXPECT(at && strlen(old) == strlen(now));
    memcpy(at, now, strlen(now));
    return size;
}
static size_t huge_shape(unsigned char* data, size_t size) {
    return replace(data, size, "(300,), }             ", "(9999999999999999,), }");
}
static size_t no_shape(unsigned char* data, size_t size) { return replace(data, size, "'shape'", "'sharp'"); }
static size_t one_less(unsigned char* data, size_t size) { return replace(data, size, "(300,)", "(299,)"); }
static size_t type_2(unsigned char* data, size_t size) { return replace(data, size, "'<u2'", "'2 <'"); }
static size_t type_u2(unsigned char* data, size_t size) { return replace(data, size, "'<u2'", "'u2 '"); }
static size_t fortran(unsigned char* data, size_t size) { return replace(data, size, "False", "True "); }

TEST(arrays_that_are_no_tokens_are_refused) {
    static const char* const refused[][2] = {
        {"refused_bigu2.npy", "'>u2'"}, {"refused_bigi4.npy", "little-endian"}, {"refused_f4.npy", "'<f4'"},
        {"refused_i8.npy", ".astype("}, {"refused_u1.npy", "'|u1'"},            {"refused_2d.npy", "(3, 100)"},
        {"refused_record.npy", "'id'"}, {"refused_scalar.npy", "'shape': ()"},  {"refused_fortran.npy", "True"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        expect_refused(refused[i][0], NULL, HEADER_REQUIRED, refused[i][1]);
        expect_refused(refused[i][0], NULL, HEADER_OPTIONAL, refused[i][1]); // its header still tells what it is
    }
    expect_refused("u2_v1.npy", type_2, HEADER_REQUIRED, "'2 <'");
    expect_refused("u2_v1.npy", type_u2, HEADER_REQUIRED, "'u2 '");
    expect_refused("u2_v1.npy", fortran, HEADER_REQUIRED, "tokens are one sequence of '<u2', '<u4' or '<i4'");
}

TEST(damaged_files_are_refused) {
    static const char* const counted[] = {"llama3.bin", "u2_v1.npy", "u4_v2.npy", "i4_v3.npy", "llmc.bin"};
    for (size_t i = 0; i < sizeof counted / sizeof *counted; i++) {
        expect_refused(counted[i], cut_last, HEADER_REQUIRED, "promises 300 tokens");
        expect_refused(counted[i], append_four, HEADER_REQUIRED, "download or make it again");
        expect_refused(counted[i], version_9, HEADER_REQUIRED, "version 9");
        expect_refused(counted[i], cut_to_100, HEADER_REQUIRED, "cut short");
        expect_refused(counted[i], cut_to_9, HEADER_OPTIONAL, "cut short");
        expect_refused(counted[i], cut_to_0, HEADER_OPTIONAL, "empty file");
    }
    expect_refused("llama3.bin", negative_count, HEADER_REQUIRED, "negative number of tokens");
    expect_refused("u2_v1.npy", long_header, HEADER_REQUIRED, "header does not end within");
    expect_refused("u2_v1.npy", no_dict, HEADER_REQUIRED, "tokens are one sequence");
    expect_refused("u2_v1.npy", no_shape, HEADER_REQUIRED, "tokens are one sequence");
    expect_refused("u2_v1.npy", huge_shape, HEADER_REQUIRED, "promises 9999999999999999 tokens");
    expect_refused("u2_v1.npy", one_less, HEADER_REQUIRED, "promises 299 tokens");
}

TEST(ids_without_a_header_must_be_asked_for) {
    expect_refused("nanogpt.bin", NULL, HEADER_REQUIRED, "say --data_format nanogpt");
    expect_refused("nanogpt.bin", cut_last, HEADER_OPTIONAL, "odd number");
    expect_refused("nanogpt.bin", make_text, HEADER_OPTIONAL, "looks like text");
    Shard s;
    Error err;
    EXPECT(shard_open_as(&s, FOLDER "llmc.bin", HEADER_OPTIONAL, &err) && s.num_tokens == COUNT); // not 812
    shard_close(&s);
}

TEST(negative_and_large_ids_are_beyond_the_vocabulary) {
    Error err;
    Dataset d;
    static const int ids[] = {-1, 50257, 70000};
    for (int k = 0; k < 3; k++) {
        size_t size;
        char *path = format("%s/ids_%d.npy", test_folder, k), *from = golden("i4_v1.npy");
        unsigned char* data = (unsigned char*)read_file(from, &size, &err);
        memcpy(data + size - 4 * (COUNT - 200), &ids[k], 4);
        test_write(path, data, size);
        EXPECT(!dataset_open(&d, "--train_data", path, HEADER_REQUIRED, T, V, &err) &&
               strstr(err.text, "token 200 is "));
        EXPECT(strstr(err.text, path) && strstr(err.text, "--tokenizer"));
        free(data);
        free(path);
        free(from);
    }
}

TEST_MAIN()
