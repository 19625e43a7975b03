// The tokenizer files of Hugging Face and OpenAI: written with the bytes of OpenAI's release, read back as the same
// tokenizer, read as Hugging Face's library saves them (test/golden/bpe), and refused if they are damaged, hostile, or
// of another kind.
#include "llmc/tokenizer/tokenizer_open.h"
#include "llmc/tokenizer/tokenizer_json.h"
#include "llmc/tokenizer/tokenizer_save.h"
#include "llmc/base/json.h"
#include "llmc/files/sums.h"
#include "test/test.h"

static void remove_all(void) {
    for (int i = 0; i < NUM_TOKENIZER_FILES; i++) {
        char* path = test_path(TOKENIZER_FILES[i]);
        remove(path);
    }
}

// Writes a tokenizer's files to the test's folder, those whose numbers are not in `left_out`.
static void write_files(const Tokenizer* t, int max_length, const char* left_out) {
    TokenizerFiles files;
    Error err;
    memset(&files, 0, sizeof files);
    remove_all();
    if (!tokenizer_files_make(&files, t, max_length, "t", &err)) { fatal("%s", err.text); }
    EXPECT(tokenizer_files_write(&files, test_folder, &err));
    tokenizer_files_free(&files);
    for (; *left_out; left_out++) {
        char* path = test_path(TOKENIZER_FILES[*left_out - '0']);
        remove(path);
    }
}

static bool encodes_alike(const Tokenizer* a, const Tokenizer* b, const char* text) {
    TokenList x = token_list(), y = token_list();
    tokenizer_encode(a, text, strlen(text), &x);
    tokenizer_encode(b, text, strlen(text), &y);
    const bool same = x.count == y.count && !memcmp(x.ids, y.ids, x.count * sizeof *x.ids);
    token_list_free(&x);
    token_list_free(&y);
    return same;
}

TEST(gpt2_is_written_with_the_bytes_of_openai) {
    // `b2sum` of OpenAI's encoder.json (SHA-256 196139668be6...) and vocab.bpe (1ce1664773c5...), and of tokenizer.json
    // (8414cab924d8...) and tokenizer_config.json (5e04eb606e3a...) of Hugging Face's copy: their beginnings
    static const char* const sums[] = {"d855665807b3c7339e5b5a6c6546b7ed", "1498d3bcedce80e65ade3dc4fccbe8e2",
                                       "137a1ab439d57a34b8428f6687ef3d79",
                                       "0ee1792e034edd391ee63eee0e61d9b7"};
    static const size_t sizes[] = {1042301, 456318, 1355256, 26};
    Tokenizer t = tokenizer_builtin();
    Error err;
    write_files(&t, 1024, "");
    for (int i = 0; i < NUM_TOKENIZER_FILES; i++) {
        char hex[BLAKE2B_HEX + 1], *path = test_path(TOKENIZER_FILES[i]);
        struct stat s;
        EXPECT(stat(path, &s) == 0 && (size_t)s.st_size == sizes[i]);
        if (!sum_file(path, hex, &err) || strncmp(hex, sums[i], 32)) { TEST_FAIL("%s: %.32s", path, hex); }
    }
    tokenizer_free(&t);
}

TEST(what_is_written_is_read_back) {
    static const char text[] = "It's 12 o'clock\n\n  in Z\xc3\xbcrich; we'll see... \xe4\xb8\xad\xe6\x96\x87 "
                               "\xf0\x9f\x98\x80 <|endoftext|>\xff\x80!";
    static const char* const left_out[] = {"", "01", "2"}; // all; tokenizer.json alone; vocab.json and merges.txt
    Tokenizer special, original[3] = {tokenizer_builtin(), tokenizer_bytes()};
    Error err;
    EXPECT(tokenizer_read(&special, "test/golden/bpe/specials.json", &err));
    original[2] = special;
    const uint64_t hash = tokenizer_hash(&original[1]);
    original[1].is_special['a'] = true;
    EXPECT(tokenizer_hash(&original[1]) != hash);
    original[1].is_special['a'] = false;
    EXPECT(tokenizer_hash(&original[1]) == hash);
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < 3; k++) {
            Tokenizer t;
            write_files(&original[i], 0, left_out[k]);
            if (!tokenizer_read(&t, test_folder, &err)) { TEST_FAIL("%s", err.text); continue; }
            EXPECT(t.vocab_size == original[i].vocab_size && t.eot == original[i].eot);
            EXPECT(tokenizer_hash(&t) == tokenizer_hash(&original[i]));
            EXPECT(!memcmp(t.is_special, original[i].is_special, (size_t)t.vocab_size));
            EXPECT(encodes_alike(&t, &original[i], text));
            tokenizer_free(&t);
        }
        tokenizer_free(&original[i]);
    }
    remove_all();
}

// In vocab.json as Python escapes them, in tokenizer.json as they are.
TEST(characters_of_a_special_token_are_escaped) {
    static const char name[] = "<\x1f\t\"\xf0\x9f\x98\x80>";
    Tokenizer bytes = tokenizer_bytes(), t, again;
    TokenBytes tokens[257];
    Error err;
    size_t size;
    for (int id = 0; id < 256; id++) {
        tokens[id] = (TokenBytes){.bytes = tokenizer_token(&bytes, id, &size), .count = 1};
    }
    tokens[256] = (TokenBytes){name, strlen(name), true};
    EXPECT(tokenizer_from_tokens(&t, tokens, 257, 256, "t", &err));
    write_files(&t, 0, "");
    static const char* const want[][2] = {
        {"vocab.json", "\"<\\u001f\\t\\\"\\ud83d\\ude00>\": 256}"},
        {"tokenizer.json", "\"<\\u001f\\t\\\"\xf0\x9f\x98\x80>\":256}"},
        {"tokenizer_config.json",
         "{\"tokenizer_class\": \"GPT2Tokenizer\", \"bos_token\": \"<\\u001f\\t\\\"\\ud83d\\ude00>\", \"eos_token\""}};
    for (int i = 0; i < 3; i++) {
        char* file = read_file(test_path(want[i][0]), &size, &err);
        if (!file || !strstr(file, want[i][1])) { TEST_FAIL("no %s in %s", want[i][1], want[i][0]); }
        free(file);
    }
    char* json = read_file(test_path("tokenizer.json"), &size, &err); // JSON may begin with white space
    char* spaced = format("\n\t\r %s", json);
    test_write(test_path("spaced.json"), spaced, strlen(spaced));
    for (int i = 0; i < 2; i++) {
        EXPECT(tokenizer_read(&again, i ? test_path("spaced.json") : test_folder, &err) &&
               tokenizer_hash(&again) == tokenizer_hash(&t));
        tokenizer_free(&again);
    }
    free(json);
    free(spaced);
    tokenizer_free(&bytes);
    tokenizer_free(&t);
    remove_all();
}

// ---------------------------------------------------------------------------------------------------------------------
// files of Hugging Face's libraries

// Sets the value at a path like "model/merges/0"; NULL removes it.
static void edit(json_t* root, const char* path, const char* value) {
    char *copy = format("%s", path), *rest, *key = strtok_r(copy, "/", &rest);
    json_t* at = root;
    for (char* next; (next = strtok_r(NULL, "/", &rest)); key = next) {
        at = json_is_array(at) ? json_array_get(at, strtoul(key, NULL, 10)) : json_object_get(at, key);
    }
    json_t* v = value ? json_loads(value, JSON_DECODE_ANY, NULL) : NULL;
    if (value && !v) { fatal("test: %s", value); }
    if (json_is_array(at) && v) { json_array_set_new(at, strtoul(key, NULL, 10), v); }
    else if (json_is_array(at)) { json_array_remove(at, strtoul(key, NULL, 10)); }
    else if (v) { json_object_set_new(at, key, v); }
    else { json_object_del(at, key); }
    free(copy);
}

// Writes test/golden/bpe/specials.json to the test's folder with one value changed; returns the file's path.
static char* write_edited(const char* path, const char* value) {
    Error err;
    char* file = test_path("edited.json");
    json_t* root = json_read("test/golden/bpe/specials.json", SIZE_MAX, 0, &err);
    edit(root, path, value);
    if (json_dump_file(root, file, 0) != 0) { fatal("%s", file); }
    json_decref(root);
    return file;
}

// The other way to say how GPT-2 cuts text, as the library saves it: Split, then ByteLevel.
static const char SPLIT[] =
    "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": {\"Regex\": "
    "\"'s|'t|'re|'ve|'m|'ll|'d| ?\\\\p{L}+| ?\\\\p{N}+| ?[^\\\\s\\\\p{L}\\\\p{N}]+|\\\\s+(?!\\\\S)|\\\\s+\"}, "
    "\"behavior\": \"Isolated\", \"invert\": false}, {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
    "\"trim_offsets\": true, \"use_regex\": false}]}";

TEST(files_of_hugging_face_give_its_ids) {
    const char* const files[] = {"test/golden/bpe/specials.json", write_edited("pre_tokenizer", SPLIT)};
    Error err;
    json_t* golden = json_read("test/golden/bpe/ids.json", SIZE_MAX, 0, &err);
    const json_t* ids = json_object_get(golden, "ids");
    const char* text = json_string_value(json_object_get(golden, "text"));
    EXPECT(json_array_size(ids) == 16);
    for (int i = 0; i < 2; i++) {
        Tokenizer t;
        TokenList list = token_list();
        if (!tokenizer_read(&t, files[i], &err)) { TEST_FAIL("%s", err.text); continue; }
        EXPECT(t.vocab_size == 292 && t.eot == 1 && t.is_special[0] && t.is_special[2] && !t.is_special[3]);
        tokenizer_encode(&t, text, strlen(text), &list);
        EXPECT(list.count == json_array_size(ids));
        for (size_t k = 0; k < list.count; k++) {
            EXPECT(list.ids[k] == (int)json_integer_value(json_array_get(ids, k)));
        }
        tokenizer_encode(&t, "<pad><|endoftext|>", 18, &list);
        for (size_t k = 0; k < list.count; k++) { EXPECT(!t.is_special[list.ids[k]]); }
        token_list_free(&list);
        tokenizer_free(&t);
    }
    json_decref(golden);
}

// ---------------------------------------------------------------------------------------------------------------------
// what is refused

static void expect_refused(const char* path, const char* words) {
    Tokenizer t;
    Error err = {.text = ""};
    if (tokenizer_read(&t, path, &err)) { tokenizer_free(&t); TEST_FAIL("accepted: expected \"%s\"", words); return; }
    if (!strstr(err.text, path) || !strstr(err.text, words)) { TEST_FAIL("expected \"%s\" in: %s", words, err.text); }
}

static const struct {
    const char *path, *value, *words;
} EDITS[] = {
    {"model", NULL, "no \"model\""},
    {"model", "3", "no \"model\""},
    {"model/type", "\"Unigram\"", "its model is not supported: only byte-level BPE"},
    {"model/type", "7", "its model is not supported"},
    {"model/dropout", "0.1", "dropout"},
    {"model/ignore_merges", "true", "ignore_merges"},
    {"model/end_of_word_suffix", "\"</w>\"", "end_of_word_suffix"},
    {"model/continuing_subword_prefix", "\"##\"", "continuing_subword_prefix"},
    {"model/vocab", "[]", "no vocab"},
    {"model/merges", "{}", "no vocab or no merges"},
    {"normalizer", "{\"type\": \"NFC\"}", "normalizer"},
    {"pre_tokenizer", "null", "its pre_tokenizer is not supported"},
    {"pre_tokenizer/type", "\"Whitespace\"", "its pre_tokenizer is not supported"},
    {"pre_tokenizer/use_regex", "false", "its pre_tokenizer is not supported"},
    {"pre_tokenizer/add_prefix_space", "true", "without a space before it"},
    {"added_tokens/0/special", "false", "added token \"<pad>\" is not special"},
    {"added_tokens/0/id", NULL, "added_tokens: entry 0 has no id"},
    {"added_tokens/0/id", "2", "token \"<pad>\" has two ids"},
    {"added_tokens/0/content", "\"<pad2>\"", "\"<pad2>\" have the same id, 0"},
    {"model/vocab/low", "-1", "token \"low\" should have an id from 0 to 291"},
    {"model/vocab/low", "292", "token \"low\" should have an id from 0 to 291"},
    {"model/vocab/low", "9223372036854775807", "token \"low\" should have an id from 0 to 291"},
    {"model/vocab/low", "1e300", "token \"low\" should have an id from 0 to 291"},
    {"model/vocab/low", "\"291\"", "token \"low\" should have an id from 0 to 291"},
    {"model/vocab/low", "263", "tokens \"lo\" and \"low\" have the same id, 263"},
    {"model/vocab/a", NULL, "should have an id from 0 to 290"},
    {"model/merges/0", "7", "merge 1: neither a text nor a pair of texts"},
    {"model/merges/0", "[\"w\"]", "merge 1: neither a text nor a pair of texts"},
    {"model/merges/0", "[\"w\", 3]", "merge 1: neither a text nor a pair of texts"},
    {"model/merges/0", "\"we\"", "merge 1, \"we\": not two tokens with a space between"},
    {"model/merges/0", "\"w e e\"", "merge 1, \"w e e\": not two tokens with a space between"},
    {"model/merges/0", "[\"w\", \"zz\"]", "merge 1, \"w\" and \"zz\": there is no token of text \"zz\""},
    {"model/merges/0", "[\"w\", \"<pad>\"]", "there is no token of text \"<pad>\""},
    {"model/merges/0", "[\"w\", \"w\"]", "there is no token of text \"ww\""},
    {"model/merges/0", "[\"\", \"we\"]", "there is no token of text \"\""},
    {"model/merges/1", "[\"w\", \"e\"]", "merge 2 makes token 259, the one before it 259"},
    {"model/merges/3", "[\"id\", \"e\"]", "there is no token of text \"id\""},
    {"model/merges/22", "[\"\xc4\xa0wid\", \"er\"]", "there is no token of text \"Ġwid\""},
    {"model/merges/2", NULL, "token 262, \"ide\": its bytes do not become it"}, // "de" is not made
    {"added_tokens", "{\"a\": 1}", "added_tokens is not an array"},
    {"added_tokens", "\"<pad>\"", "added_tokens is not an array"},
    {"added_tokens/1", NULL, ""}, // <|endoftext|> stays in the vocabulary, as a token that no merge makes
};

TEST(other_kinds_and_damage_are_refused_by_entry) {
    Error err;
    for (size_t i = 0; i < sizeof EDITS / sizeof *EDITS; i++) {
        char* path = write_edited(EDITS[i].path, EDITS[i].value);
        test_case = format("%s = %s", EDITS[i].path, EDITS[i].value ? EDITS[i].value : "nothing");
        Tokenizer t;
        if (*EDITS[i].words) { expect_refused(path, EDITS[i].words); }
        else if (!tokenizer_read(&t, path, &err)) { TEST_FAIL("%s", err.text); }
        else { EXPECT(t.eot == 1); tokenizer_free(&t); }
        free((char*)test_case);
        test_case = NULL;
    }
    expect_refused("test/golden/bpe/cases.json", "no \"model\"");
}

#define THREE "[{\"type\": \"Digits\"}, {\"type\": \"Digits\"}, {\"type\": \"ByteLevel\"}]"

TEST(other_splits_are_refused) {
    static const char* const edits[][2] = {
        {"pretokenizers/0/type", "\"Digits\""}, {"pretokenizers/0/behavior", "\"Removed\""},
        {"pretokenizers/0/invert", "true"}, {"pretokenizers/0/pattern", "\" \""},
        {"pretokenizers/0/pattern/Regex", "\"'s|'t\""}, {"pretokenizers/1/use_regex", "true"},
        {"pretokenizers/1/type", "\"Metaspace\""}, {"pretokenizers", "[]"}, {"pretokenizers", THREE}};
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        json_t* split = json_loads(SPLIT, 0, NULL);
        edit(split, edits[i][0], edits[i][1]);
        char* text = json_dumps(split, 0);
        test_case = edits[i][1];
        expect_refused(write_edited("pre_tokenizer", text), "its pre_tokenizer is not supported");
        test_case = NULL;
        free(text);
        json_decref(split);
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// tokenizer_config.json and added_tokens.json

static void write_beside(const char* file, const char* text) { test_write(test_path(file), text, strlen(text)); }

TEST(the_end_of_text_is_the_one_that_tokenizer_config_names) {
    static const struct {
        const char* config;
        int eot;
    } given[] = {{"{\"eos_token\": \"<pad>\", \"model_max_length\": 1000000000000000019884624838656}", 0},
                 {"{\"eos_token\": {\"__type\": \"AddedToken\", \"content\": \"<|\xc3\xa9 user|>\"}}", 2},
                 {"{\"eos_token\": null}", 1},
                 {"{\"eos_token\": \"<|not there|>\"}", 1},
                 {"{\"eos_token\": \"low\"}", 1}, // a token of text
                 {"{}", 1}};
    EXPECT(rename(write_edited("version", "\"1.0\""), test_path("tokenizer.json")) == 0);
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        Tokenizer t;
        Error err;
        write_beside("tokenizer_config.json", given[i].config);
        if (!tokenizer_read(&t, test_folder, &err)) { TEST_FAIL("%s", err.text); continue; }
        if (t.eot != given[i].eot) { TEST_FAIL("%s: %d, not %d", given[i].config, t.eot, given[i].eot); }
        tokenizer_free(&t);
    }
    write_beside("tokenizer_config.json", "{\"eos_token\": ");
    expect_refused(test_folder, "tokenizer_config.json:1: ");
    write_beside("tokenizer_config.json", "{\"add_prefix_space\": true}");
    expect_refused(test_folder, "tokenizer_config.json: its add_prefix_space is not supported");
    remove_all();
}

TEST(added_tokens_beside_a_vocabulary_are_not_left_out) {
    Tokenizer bytes = tokenizer_bytes(), t;
    Error err;
    write_files(&bytes, 0, "2");
    write_beside("added_tokens.json", "{\"<|endoftext|>\": 256}"); // vocab.json has it too
    EXPECT(tokenizer_read(&t, test_folder, &err) && t.vocab_size == 257);
    tokenizer_free(&t);
    write_beside("added_tokens.json", "{\"<|endoftext|>\": 256, \"[PAD]\": 257}");
    expect_refused(test_folder, "added_tokens.json: token \"[PAD]\" is not in vocab.json");
    write_beside("added_tokens.json", "{\"<|endoftext|>\": 7}");
    expect_refused(test_folder, "added_tokens.json: token \"<|endoftext|>\" is not in vocab.json");
    write_beside("added_tokens.json", "[");
    expect_refused(test_folder, "added_tokens.json:1: ");
    remove(test_path("added_tokens.json"));
    remove_all();
    tokenizer_free(&bytes);
}

TEST(special_tokens_have_1_to_255_bytes) {
    Error err;
    for (int i = 0; i < 3; i++) {
        Tokenizer t;
        json_t* root = json_read("test/golden/bpe/specials.json", SIZE_MAX, 0, &err);
        char *path = test_path("edited.json"), *content = i ? format("\"%0*d\"", 254 + i, 0) : format("\"\"");
        edit(root, "model/vocab/<pad>", NULL);
        edit(root, "added_tokens/0/content", content);
        EXPECT(json_dump_file(root, path, 0) == 0);
        if (i != 1) { expect_refused(path, "it should stand for 1 to 255 bytes"); }
        else if (!tokenizer_read(&t, path, &err)) { TEST_FAIL("%s", err.text); }
        else { EXPECT(t.is_special[0]); tokenizer_free(&t); }
        free(content);
        json_decref(root);
    }
}

TEST(an_end_of_text_must_be_known) {
    Error err;
    Tokenizer t;
    json_t* root = json_read("test/golden/bpe/specials.json", SIZE_MAX, 0, &err);
    char* path = test_path("edited.json");
    edit(root, "added_tokens/1/content", "\"</s>\"");
    edit(root, "model/vocab/<|endoftext|>", NULL);
    edit(root, "model/vocab/</s>", "1");
    EXPECT(json_dump_file(root, path, 0) == 0);
    expect_refused(path, "which token ends a text? 3 tokens are special");
    json_decref(root);
    Tokenizer bytes = tokenizer_bytes(); // one is special, whatever its name
    write_files(&bytes, 0, "013");
    root = json_read(test_path("tokenizer.json"), SIZE_MAX, 0, &err);
    edit(root, "added_tokens/0/content", "\"</s>\"");
    edit(root, "model/vocab/<|endoftext|>", NULL);
    EXPECT(json_dump_file(root, path, 0) == 0 && tokenizer_read(&t, path, &err) && t.eot == 256);
    tokenizer_free(&t);
    tokenizer_free(&bytes);
}

TEST(hostile_files_are_refused) {
    static const char* const texts[][2] = {{"{", "edited.json:1"},
                                           {"{\"a\": 1, \"a\": 2}", "duplicate object key"},
                                           {"{\"model\": \"\xff\xfe\"}", "unable to decode byte 0xff"},
                                           {"{\"model\": \"\\u0000\"}", "edited.json:1"},
                                           {"{\"model\": 1\x1b[31m}", "edited.json:1"}};
    Error err;
    size_t size;
    char *path = test_path("edited.json"), *whole = read_file("test/golden/bpe/specials.json", &size, &err);
    for (int i = 0; i < 5; i++) {
        test_write(test_path("edited.json"), texts[i][0], strlen(texts[i][0]));
        expect_refused(path, texts[i][1]);
    }
    for (size_t cut = 1; cut < size; cut += 97) { // cut off anywhere
        test_write(test_path("edited.json"), whole, cut);
        expect_refused(path, "edited.json:");
    }
    char* deep = alloc_or_die(100000, 1, "brackets");
    memset(deep, '[', 100000);
    memcpy(deep, "{\"a\":", 5);
    test_write(test_path("edited.json"), deep, 100000);
    expect_refused(path, "maximum parsing depth");
    test_write(test_path("edited.json"), "{", 1);
    EXPECT(truncate(path, (off_t)1 << 30) == 0); // takes no room on the disk
    expect_refused(path, "edited.json: more than 64 MiB");
    expect_refused("/nowhere/tokenizer.json", "cannot open");
    free(deep);
    free(whole);
}

TEST(lines_of_merges_are_checked) {
    static const struct {
        const char* text;
        size_t size;
        const char* words;
    } bad[] = {{"#version: 0.2\nw e\nw", 19, "merge 2, \"w\": not two tokens"},
               {"w e\nx\0y", 7, "it has a byte 0"},
               {"w e\nw e\n", 8, "merge 2 makes token 259, the one before it 259"},
               {"w e\n#version: 0.2\n", 18, "merge 2, \"#version:\" and \"0.2\": there is no token of text"},
               {"w \x1b[31m", 7, "there is no token of text \"?[31m\""}};
    Tokenizer t;
    Error err;
    EXPECT(tokenizer_read(&t, "test/golden/bpe/specials.json", &err));
    write_files(&t, 0, "2");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        test_write(test_path("merges.txt"), bad[i].text, bad[i].size);
        expect_refused(test_folder, bad[i].words);
    }
    write_files(&t, 0, "12");
    expect_refused(test_folder, "merges.txt: cannot open");
    remove_all();
    expect_refused(test_folder, "neither tokenizer.json, nor vocab.json and merges.txt, nor tokenizer.bin");
    tokenizer_free(&t);
}

TEST(lines_of_merges_may_end_as_on_windows) {
    Tokenizer t, again;
    Error err;
    size_t size;
    Buffer lines = {NULL, 0, 0};
    EXPECT(tokenizer_read(&t, "test/golden/bpe/specials.json", &err));
    write_files(&t, 0, "2");
    char* merges = read_file(test_path("merges.txt"), &size, &err);
    for (size_t i = 0; i < size; i++) {
        buffer_append(&lines, merges[i] == '\n' ? "\r\n" : &merges[i], merges[i] == '\n' ? 2 : 1);
    }
    test_write(test_path("merges.txt"), lines.data, lines.bytes);
    EXPECT(tokenizer_read(&again, test_folder, &err) && tokenizer_hash(&again) == tokenizer_hash(&t));
    tokenizer_free(&t);
    tokenizer_free(&again);
    free(lines.data);
    free(merges);
    remove_all();
}

// A tokenizer of llm.c's format may have tokens that only whole words give.
TEST(tokens_that_no_merge_makes_are_not_written) {
    Tokenizer bytes = tokenizer_bytes(), t;
    TokenBytes tokens[259];
    TokenizerFiles files;
    Error err;
    int half[2];
    memset(&files, 0, sizeof files);
    for (int id = 0; id < 257; id++) {
        tokens[id].bytes = tokenizer_token(&bytes, id, &tokens[id].count);
        tokens[id].is_special = false;
    }
    tokens[257] = (TokenBytes){"ab", 2, false};
    tokens[258] = (TokenBytes){"abcd", 4, false};
    EXPECT(tokenizer_from_tokens(&t, tokens, 259, 256, "t", &err));
    EXPECT(tokenizer_halves(&t, 257, half) && half[0] == 'a' && half[1] == 'b' && !tokenizer_halves(&t, 258, half));
    EXPECT(!tokenizer_halves(&t, 'a', half) && !tokenizer_halves(&t, 256, half));
    EXPECT(!tokenizer_files_make(&files, &t, 0, "mine", &err) && strstr(err.text, "mine: token 258 is not a merge"));
    tokenizer_free(&t);
    tokens[256] = (TokenBytes){"\xff\xff", 2, false};
    EXPECT(tokenizer_from_tokens(&t, tokens, 258, 256, "t", &err));
    EXPECT(!tokenizer_files_make(&files, &t, 0, "mine", &err) && strstr(err.text, "special token 256 is not UTF-8"));
    tokenizer_free(&t);
    tokens[256] = (TokenBytes){"a\0b", 3, false};
    EXPECT(tokenizer_from_tokens(&t, tokens, 258, 256, "t", &err));
    EXPECT(!tokenizer_files_make(&files, &t, 0, "mine", &err) && strstr(err.text, "not UTF-8, or has a byte 0"));
    tokenizer_free(&t);
    tokens[256] = (TokenBytes){"ab", 2, false};
    EXPECT(tokenizer_from_tokens(&t, tokens, 258, 256, "t", &err));
    EXPECT(!tokenizer_files_make(&files, &t, 0, "mine", &err) && strstr(err.text, "two tokens have the name \"ab\""));
    tokenizer_free(&t);
    tokens[257].is_special = true; // as a token of text that no merge makes
    EXPECT(tokenizer_from_tokens(&t, tokens, 258, 256, "t", &err));
    EXPECT(!tokenizer_files_make(&files, &t, 0, "mine", &err) && strstr(err.text, "two tokens have the name \"ab\""));
    tokenizer_free(&t);
    tokenizer_free(&bytes);
}

TEST_MAIN()
