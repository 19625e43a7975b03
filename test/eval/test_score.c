// Test sets: rows have tiktoken's tokens, losses and scores are those that PyTorch recorded (dev/golden/test_sets.py),
// for any batch size; wrong files are refused with their line or item.
#include "llmc/eval/score.h"
#include "llmc/eval/test_set.h"
#include "test/eval/golden.h"
#include "test/test.h"

enum { T = 19, V = 269 }; // of the model in test/golden/gpt2

static const struct {
    const char *key, *file, *rules; // key: in expected.json and tokens.json
} SETS[] = {
    {"hellaswag llm.c", FOLDER "hellaswag.jsonl", "llm.c"},
    {"hellaswag lm-eval", FOLDER "hellaswag.jsonl", "lm-eval"},
    {"piqa", FOLDER "piqa.jsonl", "llm.c"},
    {"arc", FOLDER "arc.jsonl", "llm.c"},
    {"winogrande", FOLDER "winogrande.jsonl", "llm.c"},
    {"lambada", FOLDER "lambada.jsonl", "llm.c"},
    {"choices", FOLDER "choices.jsonl", "llm.c"},
    {"schema", FOLDER "schema.jsonl", "llm.c"},
    {"continuation", FOLDER "continuation.jsonl", "llm.c"},
    {"mmlu", FOLDER "mmlu.jsonl", "llm.c"},
    {"boolq", FOLDER "boolq.jsonl", "llm.c"},
    {"openbookqa", FOLDER "openbookqa.jsonl", "llm.c"},
    {"commonsenseqa", FOLDER "commonsenseqa.jsonl", "llm.c"},
};
enum { NUM_SETS = sizeof SETS / sizeof *SETS };

static GPT2 open_rows(const Backend* b, int B) { return open_golden_model("test/golden/gpt2", b, B, T); }

static TestSet open_set(const char* path, const TestSetOptions* options) {
    Error err;
    TestSet s;
    if (!test_set_open(&s, path, NULL, options, &err)) { fatal("%s", err.text); }
    return s;
}

// ---------------------------------------------------------------------------------------------------------------------
// scores

// Compares rows and scores with the recorded ones.
static void check_set(GPT2* g, const TestSet* s, const json_t* expected) {
    Error err;
    TestScore score;
    Comm alone = comm_alone();
    const json_t* rows = json_object_get(expected, "rows");
    double *losses = alloc_or_die(s->num_rows, sizeof *losses, "losses"), sum = 0;
    EXPECT(s->num_rows == json_array_size(rows));
    EXPECT(test_set_score(&score, losses, s, g, &alone, NULL, NULL, &err));
    for (size_t i = 0; i < s->num_rows; i++) {
        const json_t* row = json_array_get(rows, i);
        EXPECT(s->rows[i].tokens == json_integer_value(json_object_get(row, "tokens")));
        EXPECT(s->rows[i].scored == json_integer_value(json_object_get(row, "scored")));
        EXPECT_NEAR(losses[i], json_number_value(json_object_get(row, "loss")), 1e-4);
        sum += json_number_value(json_object_get(row, "loss"));
    }
    EXPECT(score.total == s->num_items);
    if (s->form->norm == AS_FORESEEN) { EXPECT_NEAR(log(score.perplexity), sum / (double)s->num_rows, 1e-4); }
    EXPECT((int)score.correct == json_integer_value(json_object_get(expected, "correct")));
    EXPECT((int)score.correct_by_sum == json_integer_value(json_object_get(expected, "correct_by_sum")));
    free(losses);
}

TEST(scores_are_those_of_pytorch) {
    json_t* expected = golden("expected.json");
    Tokenizer t = open_tokenizer_file();
    EACH_CPU_BACKEND(b) {
        if (b->element_bytes != sizeof(float)) { continue; }
        for (int B = 1; B <= 3; B += 2) {
            GPT2 g = open_rows(b, B);
            for (int i = 0; i < NUM_SETS; i++) {
                const TestSetOptions options = {.tokenizer = &t, .T = T, .vocab_size = V, .rules = SETS[i].rules};
                TestSet s = open_set(SETS[i].file, &options);
                test_case = SETS[i].key;
                for (int k = 0; k < 2; k++) {
                    s.sharing = k ? SHARE_ALWAYS : SHARE_NEVER;
                    check_set(&g, &s, json_object_get(expected, SETS[i].key));
                }
                test_set_free(&s);
            }
            gpt2_free(&g);
        }
    }
    tokenizer_free(&t);
    json_decref(expected);
}

TEST(llm_c_s_bin_has_the_scores_of_the_lines) {
    json_t* expected = golden("expected.json");
    const TestSetOptions options = {.T = T, .vocab_size = V, .rules = "lm-eval"};
    GPT2 g = open_rows(find_cpu_backend(dtype_fp32, cpu_auto), 2);
    g.backend->device_open(&FAST);
    TestSet s = open_set(FOLDER "hellaswag.bin", &options);
    check_set(&g, &s, json_object_get(expected, "hellaswag llm.c"));
    test_set_free(&s);
    gpt2_free(&g);
    json_decref(expected);
}

// Rows of a batch that is not full, and rows of many lengths, have the losses of rows alone.
TEST(a_score_does_not_depend_on_the_batch) {
    Error err;
    TestScore score;
    Comm alone = comm_alone();
    Tokenizer t = open_tokenizer_file();
    const TestSetOptions options = {.tokenizer = &t, .T = T, .vocab_size = V, .rules = "llm.c"};
    TestSet s = open_set(FOLDER "hellaswag.jsonl", &options);
    double one[64], many[64];
    GPT2 small = open_rows(&cpu_fp32_generic, 1), large = open_rows(&cpu_fp32_generic, 7);
    small.backend->device_open(&PLAIN);
    EXPECT(test_set_score(&score, one, &s, &small, &alone, NULL, NULL, &err));
    EXPECT(test_set_score(&score, many, &s, &large, &alone, NULL, NULL, &err));
    for (size_t i = 0; i < s.num_rows; i++) { EXPECT(one[i] == many[i]); }
    gpt2_free(&small);
    gpt2_free(&large);
    test_set_free(&s);
    tokenizer_free(&t);
}

static bool stops_at_third(void* calls) { return ++*(int*)calls == 3; }

TEST(scoring_can_be_interrupted_and_refuses_what_is_not_finite) {
    Error err;
    TestScore score;
    Comm alone = comm_alone();
    int calls = 0;
    const TestSetOptions options = {.T = T, .vocab_size = V, .rules = "llm.c"};
    TestSet s = open_set(FOLDER "hellaswag.bin", &options);
    GPT2 g = open_rows(&cpu_fp32_generic, 2);
    g.backend->device_open(&FAST);
    s.sharing = SHARE_NEVER;
    EXPECT(test_set_score(&score, NULL, &s, &g, &alone, stops_at_third, &calls, &err));
    EXPECT(score.total == 0 && calls == 3);
    s.sharing = SHARE_ALWAYS;
    calls = 1; // there are two runs of items
    EXPECT(test_set_score(&score, NULL, &s, &g, &alone, stops_at_third, &calls, &err));
    EXPECT(score.total == 0 && calls == 3);
    const float nan = NAN;
    gpt2_put(&g, 0, &nan, 1); // of the first token's embedding, which every logit row has
    g.backend->params_changed();
    EXPECT(!test_set_score(&score, NULL, &s, &g, &alone, NULL, NULL, &err));
    EXPECT(strstr(err.text, "hellaswag.bin: the loss is not finite"));
    gpt2_free(&g);
    test_set_free(&s);
}

TEST(standard_errors_are_those_of_a_sample) {
    EXPECT_NEAR(test_standard_error(2967, 10042), 0.004553, 1e-6); // lm-eval's 0.0046
    EXPECT_NEAR(test_standard_error(1, 2), 0.5, 0);
    EXPECT(test_standard_error(1, 1) == 0 && test_standard_error(7, 7) == 0);
}

// ---------------------------------------------------------------------------------------------------------------------
// files

TEST(rows_have_the_tokens_of_tiktoken) {
    json_t* all = golden("tokens.json");
    Tokenizer t = tokenizer_builtin();
    for (int i = 0; i < NUM_SETS; i++) {
        const TestSetOptions options = {.tokenizer = &t, .T = 1024, .vocab_size = 50257, .rules = SETS[i].rules};
        TestSet s = open_set(SETS[i].file, &options);
        const json_t* rows = json_object_get(all, SETS[i].key);
        test_case = SETS[i].key;
        EXPECT(s.num_rows == json_array_size(rows) && s.num_cut == 0);
        for (size_t r = 0; r < s.num_rows; r++) {
            const json_t *row = json_array_get(rows, r), *ids = json_array_get(row, 0);
            bool same = s.rows[r].tokens == (int)json_array_size(ids);
            for (int k = 0; same && k < s.rows[r].tokens; k++) {
                same = s.tokens.ids[s.rows[r].begin + (size_t)k] == json_integer_value(json_array_get(ids, (size_t)k));
            }
            EXPECT(same && s.rows[r].scored == json_integer_value(json_array_get(row, 1)));
        }
        test_set_free(&s);
    }
    tokenizer_free(&t);
    json_decref(all);
}

// Expects that a file of these bytes is refused, with a message that begins with its path and contains the words.
static void check_refused(const void* bytes, size_t size, const TestSetOptions* options, const char* words) {
    char* path = test_path("set");
    test_write(path, bytes, size);
    const Error err = expect_set_refused(path, options, words);
    if (strncmp(err.text, path, strlen(path))) { TEST_FAIL("no file in: %s", err.text); }
}

#define GOOD "{\"ctx\": \"a\", \"endings\": [\"b\", \"c\"], \"label\": 1}\n"
static const struct {
    const char *lines, *words;
} REFUSED[] = {
    {"", " has no items"},
    {"\n\n", " has no items"},
    {GOOD "{\"ctx\": \"a\"\n", ":2: no JSON in UTF-8: "},
    {GOOD GOOD "{\"ctx\": \"\xff\", \"endings\": [\"b\"], \"label\": 0}\n", ":3: no JSON in UTF-8: "},
    {"{\"ctx\": \"a\\u0000\", \"endings\": [\"b\"], \"label\": 0}\n", ":1: no JSON in UTF-8: "},
    {"[1]\n", ":1: its members are those of no known test set"},
    {GOOD "\n{\"endings\": [\"b\"], \"label\": 0}\n", ":3: its members are those of no known test set"},
    {"{\"ctx\": 1, \"endings\": [\"b\"], \"label\": 0}\n", ":1: member \"ctx\" is missing, or no text"},
    {"{\"ctx\": \"a\", \"endings\": [], \"label\": 0}\n", ":1: member \"endings\" is missing, or no list of"},
    {"{\"ctx\": \"a\", \"endings\": [\"b\", 2], \"label\": 0}\n", ":1: member \"endings\" is missing, or no list of"},
    {"{\"ctx\": \"a\", \"endings\": [\"b\"]}\n", ":1: member \"label\" is missing, or no number"},
    {"{\"ctx\": \"a\", \"endings\": [\"b\"], \"label\": \"\"}\n", ":1: member \"label\" is missing, or no number"},
    {"{\"ctx\": \"a\", \"endings\": [\"b\"], \"label\": 0.5}\n", ":1: member \"label\" is missing, or no number"},
    {GOOD "{\"ctx\": \"a\", \"endings\": [\"b\"], \"label\": 1}\n", ":2: \"label\" is 1, but the endings are 0 to 0"},
    {GOOD "{\"ctx\": \"a\", \"endings\": [\"b\"], \"label\": \"-1\"}\n", ":2: \"label\" is -1, but"},
    {GOOD "{\"ctx\": \"a\", \"endings\": [\"b\", \"0123456789012345678\"], \"label\": 0}\n",
     ":2: an ending has 20 tokens, the model reads only 19"},
};

static const struct {
    const char *line, *words;
} REFUSED_ELSEWHERE[] = {
    {"{\"goal\": \"a\", \"sol1\": \"b\", \"label\": 0}", ":2: member \"sol2\" is missing, or no text"},
    {"{\"goal\": \"a\", \"sol1\": \"b\", \"sol2\": \"c\", \"label\": 2}",
     ":2: \"label\" is 2, but the endings are 0 to 1"},
    {"{\"question\": \"a\", \"answerKey\": 1}", ":2: member \"answerKey\" is missing, or no text"},
    {"{\"question\": \"a\", \"answerKey\": \"A\"}", ":2: member \"choices\" is missing, or has not 1 to 64"},
    {"{\"question\": {\"stem\": \"a\", \"choices\": [{\"text\": \"b\"}]}, \"answerKey\": \"A\"}",
     ":2: member \"choices\": choice 1 has no text or no label"},
    {"{\"question\": \"a\", \"choices\": {\"text\": [\"b\"], \"label\": [\"A\"]}, \"answerKey\": \"B\"}",
     ":2: \"answerKey\" is \"B\", which is the label of no choice"},
    {"{\"sentence\": \"a b\", \"option1\": \"c\", \"option2\": \"d\", \"answer\": \"1\"}", ":2: \"sentence\" has no _"},
    {"{\"sentence\": \"a _ b\", \"option1\": \"c\", \"option2\": \"d\", \"answer\": \"3\"}",
     ":2: \"answer\" is 3, but the endings are 1 to 2"},
    {"{\"sentence\": \"a _ b\", \"option1\": \"c\", \"answer\": \"1\"}",
     ":2: member \"option2\" is missing, or no text"},
    {"{\"sentence\": \"a _ \", \"option1\": \"c\", \"option2\": \"d\", \"answer\": \"1\"}",
     ":2: \"sentence\" ends with its _"},
    {"{\"ctx\": \"a\", \"endings\": [\"b\"], \"label\": \"0x\"}", ":2: member \"label\" is missing, or no number"},
    {"{\"text\": \"word\"}", ":2: \"text\" is one word"},
    {"{\"query\": \"a\", \"choices\": \"b\", \"gold\": 0}", ":2: member \"choices\" is missing, or no list"},
    {"{\"query\": \"a\", \"choices\": [\"b\"], \"gold\": 1}", ":2: \"gold\" is 1, but"},
    {"{\"context_options\": [\"a\"], \"continuation\": \"b\"}", ":2: member \"gold\" is missing, or no number"},
    {"{\"context\": \"a\", \"continuation\": 1}", ":2: member \"continuation\" is missing, or no text"},
    {"{\"goal\": \"a\", \"sol1\": \"\", \"sol2\": \"c\", \"label\": 1}", ":2: member \"sol1\" is empty"},
    {"{\"ctx\": \"a\", \"endings\": [\"b\", \"\"], \"label\": 0}", ":2: member \"endings\": text 2 is empty"},
    {"{\"question\": {\"stem\": \"a\", \"choices\": [{\"text\": \"\", \"label\": \"A\"}]}, \"answerKey\": \"A\"}",
     ":2: member \"choices\": choice 1 has no text"},
    {"{\"question\": \"a\", \"answer\": \"E\", \"A\": \"b\", \"B\": \"c\", \"C\": \"d\", \"D\": \"e\"}",
     ":2: \"answer\" is \"E\", but the choices are A to D"},
    {"{\"question\": \"a\", \"answer\": \"A\", \"A\": \"b\"}", ":2: member \"B\" is missing, or no text"},
    {"{\"question\": \"a\", \"answer\": 4, \"choices\": [\"b\", \"c\"]}",
     ":2: \"answer\" is 4, but the endings are 0 to 1"},
    {"{\"question\": \"a\", \"choices\": [\"b\", \"c\"], \"answer\": null}",
     ":2: member \"answer\" is missing, or no number"},
    {"{\"question\": \"a\", \"passage\": \"b\"}", ":2: member \"label\" is missing, or no number"},
    {"{\"question\": \"a\", \"passage\": \"b\", \"answer\": 2}", ":2: \"answer\" is 2, but the endings are 0 to 1"},
    {"{\"question_stem\": \"a\", \"choices\": {\"text\": [\"b\"], \"label\": []}, \"answerKey\": \"A\"}",
     ":2: member \"choices\": choice 1 has no text or no label"},
    {"{\"context\": \"a\", \"continuation\": \" \"}", ":2: member \"continuation\" has only spaces"},
    {"{\"text\": \"a b \"}", ":2: \"text\" ends with a space"},
    {"{\"ctx\": \"a\", \"endings\": [\"b\"], \"label\": 0}\n{\"text\": \"a b\"}",
     ":3: a line of LAMBADA in a file of HellaSwag"},
};

TEST(wrong_lines_of_other_sets_are_refused) {
    Tokenizer t = tokenizer_bytes();
    const TestSetOptions options = {.tokenizer = &t, .T = T, .vocab_size = V, .rules = "llm.c"};
    for (size_t i = 0; i < sizeof REFUSED_ELSEWHERE / sizeof *REFUSED_ELSEWHERE; i++) {
        char* lines = format("\n%s\n", REFUSED_ELSEWHERE[i].line);
        check_refused(lines, strlen(lines), &options, REFUSED_ELSEWHERE[i].words);
        free(lines);
    }
    char *endings = format("{\"ctx\": \"a\", \"label\": 0, \"endings\": [\"b\""), // 65 of them
         *choices = format("{\"question\": \"a\", \"answerKey\": \"A\", \"choices\": {\"label\": [\"A\""),
         *texts = format("\"b\"");
    for (int i = 1; i < 65; i++) {
        append_format(&endings, ", \"b\"");
        append_format(&choices, ", \"A\"");
        append_format(&texts, ", \"b\"");
    }
    append_format(&endings, "]}\n");
    append_format(&choices, "], \"text\": [%s]}}\n", texts);
    check_refused(endings, strlen(endings), &options, ":1: member \"endings\" is missing, or no list of 1 to 64");
    check_refused(choices, strlen(choices), &options, ":1: member \"choices\" is missing, or has not 1 to 64");
    free(endings);
    free(choices);
    free(texts);
    tokenizer_free(&t);
}

TEST(wrong_lines_are_refused_with_their_number) {
    Tokenizer t = tokenizer_bytes();
    const TestSetOptions options = {.tokenizer = &t, .T = T, .vocab_size = V, .rules = "llm.c"};
    const TestSetOptions none = {.T = T, .vocab_size = V, .rules = "llm.c"};
    for (size_t i = 0; i < sizeof REFUSED / sizeof *REFUSED; i++) {
        check_refused(REFUSED[i].lines, strlen(REFUSED[i].lines), &options, REFUSED[i].words);
    }
    check_refused(GOOD, strlen(GOOD), &none, " is text, which needs a --tokenizer");
    tokenizer_free(&t);
}

TEST(a_huge_line_is_refused) {
    Tokenizer t = tokenizer_bytes();
    const TestSetOptions options = {.tokenizer = &t, .T = T, .vocab_size = V, .rules = "llm.c"};
    const size_t size = MAX_LINE_BYTES + 1;
    char* line = alloc_or_die(size, 1, "a line");
    memset(line, 'x', size);
    check_refused(line, size, &options, ":1: a line of more than 16 MiB");
    free(line);
    tokenizer_free(&t);
}

TEST(a_limit_reads_the_first_items_alone) {
    Tokenizer t = tokenizer_bytes();
    const TestSetOptions options = {.tokenizer = &t, .T = T, .vocab_size = V, .limit = 2, .rules = "llm.c"};
    char* path = test_path("set");
    test_write(path, GOOD GOOD "damage", strlen(GOOD GOOD "damage"));
    TestSet s = open_set(path, &options);
    EXPECT(s.num_items == 2 && s.num_rows == 4);
    test_set_free(&s);
    TestSet bin = open_set(FOLDER "hellaswag.bin", &options);
    EXPECT(bin.num_items == 2 && bin.num_rows == 8);
    test_set_free(&bin);
    tokenizer_free(&t);
}

// llm.c's files of tokens do not say whose items they are. Scores of other models are those without examples.
TEST(sets_have_the_published_scores_of_their_like_alone) {
    Error err;
    size_t size;
    Tokenizer t = tokenizer_bytes();
    TestSetOptions options = {.tokenizer = &t, .T = T, .vocab_size = V, .rules = "llm.c"};
    char *copy = test_path("mmlu_val.bin"), *file = read_file(FOLDER "hellaswag.bin", &size, &err);
    test_write(copy, file, size);
    TestSet bin = open_set(FOLDER "hellaswag.bin", &options), mmlu = open_set(copy, &options);
    EXPECT(!strcmp(bin.form->name, "HellaSwag") && bin.published && !strcmp(bin.convention, mmlu.convention));
    EXPECT(!strcmp(mmlu.form->name, "MMLU") && !mmlu.published);
    test_set_free(&bin);
    test_set_free(&mmlu);
    TestSet zero = open_set(FOLDER "hellaswag.jsonl", &options);
    options.shots = 1;
    TestSet one = open_set(FOLDER "hellaswag.jsonl", &options);
    EXPECT(zero.published && !one.published && strstr(one.convention, "; 1 example in front"));
    test_set_free(&zero);
    test_set_free(&one);
    free(file);
    tokenizer_free(&t);
}

TEST(a_context_that_is_too_long_loses_its_first_tokens) {
    Tokenizer t = tokenizer_bytes();
    const TestSetOptions options = {.tokenizer = &t, .T = T, .vocab_size = V, .rules = "llm.c"};
    for (int more = 0; more < 2; more++) { // T + 1 tokens, and one more
        char *path = test_path("set"), *line = format("{\"ctx\": \"%.*s\", \"endings\": [\"y\"], \"label\": 0}",
                                                      T - 1 + more, "abcdefghijklmnopqrs");
        test_write(path, line, strlen(line));
        TestSet s = open_set(path, &options);
        EXPECT((int)s.num_cut == more && s.rows[0].tokens == T + 1 && s.rows[0].scored == 2);
        EXPECT(s.tokens.ids[s.rows[0].begin] == 'a' + more);
        test_set_free(&s);
        free(line);
    }
    tokenizer_free(&t);
}

// Returns the hash of two sets of a line each.
static uint64_t hash_of(const char* line, const char* second) {
    Tokenizer t = tokenizer_bytes();
    const TestSetOptions options = {.tokenizer = &t, .T = T, .vocab_size = V, .rules = "llm.c"};
    TestSet sets[2];
    for (int i = 0; i < 2; i++) {
        char* path = test_path("set");
        test_write(path, i ? second : line, strlen(i ? second : line));
        sets[i] = open_set(path, &options);
    }
    const uint64_t hash = test_sets_hash(sets, 2);
    for (int i = 0; i < 2; i++) { test_set_free(&sets[i]); }
    tokenizer_free(&t);
    return hash;
}

TEST(a_hash_tells_sets_apart) {
    static const char* const lines[] = {
        GOOD, "{\"ctx\": \"a\", \"endings\": [\"b\", \"c\"], \"label\": 0}",
        "{\"ctx\": \"a b\", \"endings\": [\"c\"], \"label\": 0}",
        "{\"ctx\": \"a\", \"endings\": [\"b c\"], \"label\": 0}"};
    uint64_t hashes[16];
    EXPECT(test_sets_hash(NULL, 0) == 0);
    for (int i = 0; i < 16; i++) {
        hashes[i] = hash_of(lines[i / 4], lines[i % 4]);
        EXPECT(hashes[i] == hash_of(lines[i / 4], lines[i % 4]));
        for (int k = 0; k < i; k++) { EXPECT(hashes[i] != hashes[k]); }
    }
}

// Refuses the file with the uint16 number `word` behind the header set to `value`.
static void check_word(const char* file, size_t size, size_t word, int value, const char* words) {
    const TestSetOptions options = {.T = T, .vocab_size = V, .rules = "llm.c"};
    char* damaged = alloc_or_die(size, 1, "a set");
    memcpy(damaged, file, size);
    damaged[TEST_SET_HEADER + 2 * word] = (char)(value & 255);
    damaged[TEST_SET_HEADER + 2 * word + 1] = (char)(value >> 8);
    check_refused(damaged, size, &options, words);
    free(damaged);
}

TEST(damaged_bin_files_are_refused_with_their_item) {
    Error err;
    size_t size;
    const TestSetOptions options = {.T = T, .vocab_size = V, .rules = "llm.c"};
    char* file = read_file(FOLDER "hellaswag.bin", &size, &err);
    check_word(file, size, 0, 1, ": item 0: it does not begin with 65535");
    check_word(file, size, 1, 8, ": item 0: it has ");
    check_word(file, size, 3, 4, ": item 0: label 4 of 4 endings");
    check_word(file, size, 4, 0, ": item 0: label 0 of 0 endings");
    check_word(file, size, 5, 0, ": item 0: it has no context");
    check_word(file, size, 5, 60000, ": item 0: ");
    check_word(file, size, 6, V, ": item 0: token 269, and the model has only 269");
    Tokenizer bytes = tokenizer_bytes();
    const TestSetOptions of_bytes = {.T = T, .vocab_size = V, .rules = "llm.c", .tokenizer = &bytes};
    const char token[2] = {file[TEST_SET_HEADER + 12], file[TEST_SET_HEADER + 13]};
    memcpy(file + TEST_SET_HEADER + 12, "\1\1", 2);
    check_refused(file, size, &of_bytes, ": item 0: token 257, and the tokenizer has only 257");
    memcpy(file + TEST_SET_HEADER + 12, token, 2);
    tokenizer_free(&bytes);
    for (size_t cut = TEST_SET_HEADER; cut < size; cut++) { check_refused(file, cut, &options, ": item "); }
    file[4] = 2;
    check_refused(file, size, &options, ": version 2, not 1");
    file[4] = 1;
    file[8]--;
    check_refused(file, size, &options, " bytes behind its last item");
    free(file);
}

TEST_MAIN()
