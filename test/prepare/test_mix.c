// ./prepare --mix: the shares of the sources, interrupted runs, and every error.
#include "test/prepare/run_prepare.h"

// Writes documents as JSONL: a letter, a number and some more letters. Every seventh one was there before.
static void write_letters(const char* name, char letter, int count, int longest) {
    Buffer text = {NULL, 0, 0};
    for (int i = 0; i < count; i++) {
        const int which = i % 7 == 6 ? i / 2 : i;
        const int length = 1 + (int)(rng_u64((uint64_t)letter, RNG_TEST, (uint64_t)which) % (uint64_t)longest);
        char* begin = format("{\"text\": \"%c%03d", letter, which);
        buffer_append(&text, begin, strlen(begin));
        free(begin);
        for (int k = 0; k < length; k++) { buffer_append(&text, &letter, 1); }
        buffer_append(&text, "\"}\n", 3);
    }
    write_bytes(name, text.data, text.bytes);
    free(text.data);
}

enum { LONGEST = 40 }; // and the end of text, the first letter and the number

static void write_sources(void) {
    char* folder = test_path("b");
    Error err;
    EXPECT(make_directories(folder, &err));
    write_letters("a.jsonl", 'a', 300, LONGEST);
    write_letters("b/1.jsonl", 'b', 150, LONGEST);
    write_letters("b/2.jsonl", 'b', 50, LONGEST);
    write_letters("c,d.jsonl", 'c', 100, LONGEST);
}

// Counts the tokens of each letter's documents; checks the shares after each document, and that parts are as in the
// weights within one document.
static void count_letters(const char* prefix, const double weights[3], double counts[3]) {
    size_t val;
    TokenList list = tokens_of(prefix, &val);
    const double sum = weights[0] + weights[1] + weights[2];
    counts[0] = counts[1] = counts[2] = 0;
    for (size_t i = 0, begin = 0; i <= list.count; i++) {
        if (i < list.count && list.ids[i] != 256) { continue; }
        if (i > begin) { counts[list.ids[begin + 1] - 'a'] += (double)(i - begin); }
        begin = i;
        for (int k = 0; k < 3; k++) {
            EXPECT_NEAR(counts[k], weights[k] / sum * (counts[0] + counts[1] + counts[2]), LONGEST + 5);
        }
    }
    token_list_free(&list);
}

TEST(a_mixture_has_its_shares_everywhere) {
    static const double weights[] = {0.5, 0.4, 0.1};
    double counts[3];
    write_sources();
    const char* arguments = "--force --out m --tokenizer bytes --val_size 500 --shard_size 2000 "
                            "--mix a.jsonl:0.5,b:0.4,c\\,d.jsonl:0.1";
    EXPECT_RUN(0, "used up, which ended the mixture", arguments);
    count_letters("m", weights, counts);
    EXPECT(counts[1] > 3500); // all of b, which is used up first
    static const char* const names[] = {"a.jsonl", "b", "c,d.jsonl"};
    for (int i = 0; i < 3; i++) {
        char* line = format("%s: %.0f tokens, %.2f %%%s\n", names[i], counts[i],
                            100 * counts[i] / (counts[0] + counts[1] + counts[2]),
                            i == 1 ? "; used up, which ended the mixture" : "");
        if (!strstr(run_out, line)) { TEST_FAIL("no %s in %s", line, run_out); }
        free(line);
    }
    size_t val;
    TokenList one = tokens_of("m", &val);
    char* four = format("--threads 4 %s", arguments);
    EXPECT_RUN(0, "", four);
    TokenList again = tokens_of("m", &val);
    EXPECT(one.count == again.count && memcmp(one.ids, again.ids, one.count * sizeof(int)) == 0);
    EXPECT_RUN(0, "b: ", arguments + strlen("--force ")); // done already
    EXPECT_RUN(0, "", "--force --out m --tokenizer bytes --val_size 500 --shuffle 1 --seed 3 "
               "--mix a.jsonl:50,b:40,c\\,d.jsonl:10");
    count_letters("m", weights, counts);
    token_list_free(&one);
    token_list_free(&again);
    free(four);
}

// The documents of a source come in its order, a long one of several chunks without others between its parts.
TEST(a_long_document_is_not_mixed) {
    Buffer text = {NULL, 0, 0};
    while (text.bytes < 2 * CHUNK_BYTES + 100) { buffer_append(&text, "x ", 2); }
    write_bytes("x.txt", text.data, text.bytes);
    write_text("y.txt", "y\n\nyy\n\nyyy");
    EXPECT_RUN(0, "", "--out long --tokenizer bytes --split blank --val_size 4 --mix x.txt:1,y.txt:1");
    size_t val, documents = 0;
    TokenList list = tokens_of("long", &val);
    EXPECT(list.ids[0] == 256 && list.ids[1] == 'x');
    for (size_t i = 1; i < list.count; i++) {
        if (list.ids[i] == 256) { EXPECT(i > text.bytes); documents++; }
    }
    EXPECT(documents == 3 && val == 4);
    token_list_free(&list);
    free(text.data);
}

// ---------------------------------------------------------------------------------------------------------------------
// interruptions

// Every how many events a run is killed.
static int stride(int normal) { return getenv("long") && *getenv("long") ? 1 : normal; }

static const char* const SHARDS[] = {"whole_val_000000.bin",   "part_val_000000.bin",   "whole_train_000001.bin",
                                     "part_train_000001.bin",  "whole_train_000003.bin", "part_train_000003.bin",
                                     "whole.json",             "part.json",              NULL};

TEST(killed_and_resumed_with_every_option) {
    const char* mix = "--tokenizer bytes --val_size 500 --shard_size 1500 --mix a.jsonl:0.5,b:0.4,c\\,d.jsonl:0.1";
    static const char* const options[] = {"", "--shuffle 1 --seed 7"};
    write_sources();
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        char* arguments = format("%s %s", mix, options[i]);
        test_case = options[i];
        expect_resumable(arguments, stride(23), SHARDS);
        free(arguments);
    }
    test_case = "small windows"; // a hundredth of the documents of one
    expect_resumable("--tokenizer bytes --val_size 500 --shard_size 1500 --mix b:99,a.jsonl:1 "
                     "--shuffle 1 --seed 7", stride(23), SHARDS);
    test_case = "Parquet";
    copy_golden("plain_v1.parquet", "plain.parquet");
    copy_golden("none_v2.parquet", "words.parquet");
    expect_resumable("--tokenizer bytes --val_size 160 --shard_size 440 "
                     "--mix plain.parquet:2,words.parquet:1,a.jsonl:1", stride(11), SHARDS);
}

// ---------------------------------------------------------------------------------------------------------------------
// errors

// A line of a gigabyte takes no more memory than others, and is named.
TEST(a_line_of_a_gigabyte) {
    const off_t bytes = getenv("long") && *getenv("long") ? 1 << 30 : 64 << 20;
    write_text("before.jsonl", "{\"text\": \"before\"}\n");
    write_text("huge.jsonl", "{\"text\": \"a\"}\n");
    char* path = test_path("huge.jsonl");
    EXPECT(truncate(path, bytes) == 0); // zeros
    FILE* f = fopen(path, "ab");
    EXPECT(f && fputs("\n{\"text\": \"b\"}\n", f) >= 0 && fclose(f) == 0);
    const char* arguments = "--out huge --tokenizer bytes --val_size 2 --mix before.jsonl:1,huge.jsonl:1";
    EXPECT_RUN(1, "huge.jsonl:2: a line of more than 16 MiB; --skip_bad 1", arguments);
    char* more = format("%s --skip_bad 1", arguments);
    EXPECT_RUN(0, "skipped documents: 1 too long", more);
    expect_documents("huge", 2, "#before#a#b");
    EXPECT(strstr(run_err, "left out: huge.jsonl:2"));
    struct rusage children;
    EXPECT(getrusage(RUSAGE_CHILDREN, &children) == 0 && children.ru_maxrss < 250 << 10); // KiB
    free(more);
}

TEST(bad_mixtures) {
    write_sources();
    EXPECT_RUN(2, "--mix a.jsonl: no weight: give SOURCE:WEIGHT", "--out x --mix a.jsonl,b:1");
    EXPECT_RUN(2, "--mix :3: no weight", "--out x --mix :3");
    EXPECT_RUN(2, "the weight 'half' is not a number from", "--out x --mix a.jsonl:half,b:1");
    EXPECT_RUN(2, "the weight '' is not a number from", "--out x --mix a.jsonl:");
    EXPECT_RUN(2, "the weight '1x' is not a number from", "--out x --mix a.jsonl:1x");
    EXPECT_RUN(2, "the weight 'nan' is not a number from", "--out x --mix a.jsonl:nan");
    EXPECT_RUN(2, "the weight 'inf' is not a number from", "--out x --mix a.jsonl:inf");
    EXPECT_RUN(2, "the weight '0' is not a number from", "--out x --mix a.jsonl:0,b:0");
    EXPECT_RUN(2, "the weight '-1' is not a number from", "--out x --mix a.jsonl:1,b:-1");
    EXPECT_RUN(2, "--mix: absent.jsonl: no such file", "--out x --mix a.jsonl:1,absent.jsonl:1");
    EXPECT_RUN(2, "b/1.jsonl is in it twice", "--out x --mix b:1,b/1.jsonl:1");
    EXPECT_RUN(2, "standard input cannot be mixed", "--out x --mix -:1");
    EXPECT_RUN(2, "--mix and a.jsonl: give one or the other", "--out x --mix b:1 a.jsonl");
    EXPECT_RUN(2, "--stories and --mix: give one or the other", "--out x --mix b:1 --stories 5");
    EXPECT(!exists("x.json") && !exists("x_val_000000.bin"));
    Buffer many = {NULL, 0, 0};
    buffer_append(&many, "--out x --mix a.jsonl:1", 23);
    for (int i = 0; i < MAX_SOURCES; i++) { buffer_append(&many, ",b/1.jsonl:1", 12); }
    buffer_append(&many, "", 1);
    EXPECT_RUN(2, "--mix: more than 32 sources", many.data);
    free(many.data);
    EXPECT_RUN(0, "", "--out keep --tokenizer bytes --val_size 500 --mix a.jsonl:0.5,b:0.4");
    EXPECT_RUN(1, "another --mix", "--out keep --tokenizer bytes --val_size 500 --mix a.jsonl:0.5,b:0.5");
    EXPECT_RUN(1, "another --mix", "--out keep --tokenizer bytes --val_size 500 a.jsonl b");
}

TEST_MAIN()
