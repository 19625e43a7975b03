#include "llmc/data/provenance.h"
#include "llmc/tokenizer/tokenizer_open.h"
#include "test/data/put_shard.h"
#include "test/test.h"

enum { T = 8, TOKENS = 70000 }; // more than are read when the data set is opened

// Writes TOKENS ids that are all 7, but for `id` at position `at`.
static void put_id(const char* name, int id, size_t at) {
    uint16_t* tokens = alloc_or_die(TOKENS, sizeof *tokens, "tokens");
    for (size_t i = 0; i < TOKENS; i++) { tokens[i] = i == at ? (uint16_t)id : 7; }
    put_shard(test_path(name), tokens, TOKENS);
    free(tokens);
}

static void put_record(const char* name, uint64_t hash) {
    char* text = format("{\"made_from\": {\"tokenizer_hash\": \"%016llx\"}}", (unsigned long long)hash);
    test_write(test_path(name), text, strlen(text));
    free(text);
}

// Opens the shards and compares them with a tokenizer; `middle` becomes the result of reading the window in the middle.
static bool check(const char* shards, const char* tokenizer, bool* middle, Error* err) {
    Dataset d;
    int tokens[T], targets[T];
    char* path = test_path(shards);
    Tokenizer t = tokenizer_open(tokenizer);
    if (!dataset_open(&d, "--train_data", path, HEADER_REQUIRED, T, 50257, err)) { fatal("%s", err->text); }
    const bool ok = dataset_check_tokenizer(&d, "--train_data", &t, tokenizer, err);
    if (middle) { *middle = dataset_read(&d, TOKENS / 2 / T, tokens, targets, err); }
    dataset_close(&d);
    tokenizer_free(&t);
    return ok;
}

TEST(shards_are_compared_with_the_tokenizer_of_their_record) {
    Error err;
    Tokenizer gpt2 = tokenizer_builtin(), bytes = tokenizer_bytes();
    put_id("g_train_000001.bin", 300, 0);
    put_id("g_val_000000.bin", 300, 0);
    put_record("g.json", tokenizer_hash(&gpt2));
    put_id("b_train_000001.bin", 200, 0);
    put_record("b.json", tokenizer_hash(&bytes));
    put_id("o_train_000001.bin", 200, 0);
    put_record("o.json", 0x1234);
    EXPECT(check("g_*.bin", "gpt2", NULL, &err) && check("b_*.bin", "bytes", NULL, &err));
    EXPECT(!check("b_*.bin", "gpt2", NULL, &err) && strstr(err.text, "/b_train_000001.bin: "));
    EXPECT(strstr(err.text, "/b.json says that it was made with --tokenizer bytes, and this run has --tokenizer gpt2"));
    EXPECT(!check("g_val_*.bin", "bytes", NULL, &err) && strstr(err.text, "with --tokenizer gpt2, and"));
    EXPECT(!check("o_*.bin", "gpt2", NULL, &err) && strstr(err.text, "hash 0000000000001234"));
    EXPECT(!check("[bg]_*.bin", "gpt2", NULL, &err) && strstr(err.text, "/b_train_000001.bin: "));
    EXPECT(!check("[go]_*.bin", "gpt2", NULL, &err) && strstr(err.text, "/o_train_000001.bin: ")); // the last file
    tokenizer_free(&gpt2);
    tokenizer_free(&bytes);
}

// A socket exists, and cannot be opened.
TEST(a_record_that_cannot_be_read_is_an_error) {
    Error err;
    put_id("n_train_000001.bin", 200, 0);
    EXPECT(mknod(test_path("n.json"), S_IFSOCK | 0600, 0) == 0);
    EXPECT(!check("n_*.bin", "bytes", NULL, &err) && strstr(err.text, "/n.json: "));
}

// As of llm.c's downloads. A file of the record's name may be anything.
TEST(shards_without_a_record_are_compared_by_their_ids) {
    Error err;
    bool middle;
    put_id("first_train_000001.bin", 300, 0);
    put_id("last.bin", 257, TOKENS - 1);
    put_id("middle.bin", 300, TOKENS / 2);
    test_write(test_path("first.json"), "[1, 2", 5);
    EXPECT(check("first_*.bin", "gpt2", NULL, &err) && check("last.bin", "gpt2", NULL, &err));
    EXPECT(!check("first_*.bin", "bytes", NULL, &err) && strstr(err.text, "first_train_000001.bin: token id 300 is "));
    EXPECT(!check("last.bin", "bytes", NULL, &err) && strstr(err.text, "the 257 tokens of --tokenizer bytes"));
    EXPECT(check("middle.bin", "gpt2", &middle, &err) && middle);
    EXPECT(check("middle.bin", "bytes", &middle, &err) && !middle && strstr(err.text, "the vocabulary has 257"));
}

// Writes shards and a floor of this number; returns the floor that is found.
static double floor_of(const char* shards, const char* record, const char* number) {
    Dataset d;
    Error err;
    put_id(shards, 7, 0);
    char* text = format("{\"floor\": %s}", number);
    test_write(test_path(record), text, strlen(text));
    free(text);
    if (!dataset_open(&d, "--val_data", test_path(shards), HEADER_REQUIRED, T, 50257, &err)) { fatal("%s", err.text); }
    const double found = corpus_floor(&d);
    dataset_close(&d);
    return found;
}

TEST(only_a_validation_split_of_prepare_has_a_floor) {
    EXPECT(floor_of("s_val_000000.bin", "s_val.json", "0.5") == 0.5);
    EXPECT(isnan(floor_of("s_val_000000.bin", "s_val.json", "\"low\"")));
    EXPECT(isnan(floor_of("t_train_000001.bin", "t_val.json", "0.5")));
    EXPECT(isnan(floor_of("t_train_000001.bin", "t_train.json", "0.5")));
    EXPECT(isnan(floor_of("tokens_of_mine.bin", "tokens_.json", "0.5"))); // a name that is as long
}

TEST_MAIN()
