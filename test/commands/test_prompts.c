// Examples in front of items, CORE's tasks and texts: rows, losses and scores are those that PyTorch recorded
// (dev/golden/prompts.py), with contexts shared and not; CORE's examples are Python's; wrong lists are refused.
#include "llmc/eval/core.h"
#include "llmc/eval/python_random.h"
#include "llmc/eval/text.h"
#include "test/eval/golden.h"
#include "test/test.h"

enum { T = 256, TEXT_T = 48, V = 257 };

// Compares rows and the number of right items, scored with contexts shared and not.
static void check_set(GPT2* g, TestSet* s, const json_t* expected, TestScore* score) {
    Error err;
    Comm alone = comm_alone();
    const json_t* rows = json_object_get(expected, "rows");
    double* losses = alloc_or_die(s->num_rows, sizeof *losses, "losses");
    EXPECT(s->num_rows == json_array_size(rows));
    for (int k = 0; k < 2; k++) {
        s->sharing = k ? SHARE_ALWAYS : SHARE_NEVER;
        EXPECT(test_set_score(score, losses, s, g, &alone, NULL, NULL, &err));
        for (size_t i = 0; i < s->num_rows; i++) {
            const json_t* row = json_array_get(rows, i);
            EXPECT(s->rows[i].tokens == json_integer_value(json_array_get(row, 0)));
            EXPECT(s->rows[i].scored == json_integer_value(json_array_get(row, 1)));
            EXPECT_NEAR(losses[i], json_number_value(json_array_get(row, 2)), 1e-4);
        }
        EXPECT((int)score->correct == json_integer_value(json_object_get(expected, "correct")));
    }
    free(losses);
}

static GPT2 open_model(int B, int rows_T) {
    GPT2 g = open_golden_model(FOLDER "model", find_cpu_backend(dtype_fp32, cpu_auto), B, rows_T);
    g.backend->device_open(&FAST);
    return g;
}

// ---------------------------------------------------------------------------------------------------------------------
// examples

static const struct {
    const char *key, *file, *rules, *examples;
    int shots;
} SHOTS[] = {
    {"mmlu dev 2", FOLDER "mmlu.jsonl", "llm.c", FOLDER "mmlu_dev.jsonl", 2},
    {"choices 3", FOLDER "choices.jsonl", "llm.c", "", 3},
    {"hellaswag llm.c 1", FOLDER "hellaswag.jsonl", "llm.c", NULL, 1},
    {"hellaswag lm-eval 2", FOLDER "hellaswag.jsonl", "lm-eval", NULL, 2},
    {"winogrande 10", FOLDER "winogrande.jsonl", "llm.c", NULL, 10},
    {"boolq 2", FOLDER "boolq.jsonl", "llm.c", NULL, 2},
    {"lambada 3", FOLDER "lambada.jsonl", "llm.c", NULL, 3},
};

TEST(items_behind_examples_have_the_scores_of_pytorch) {
    Error err;
    TestScore score;
    json_t* expected = golden("prompts.json");
    Tokenizer t = open_tokenizer_file();
    GPT2 g = open_model(2, T);
    for (size_t i = 0; i < sizeof SHOTS / sizeof *SHOTS; i++) {
        const TestSetOptions options = {.tokenizer = &t, .T = T, .vocab_size = V, .rules = SHOTS[i].rules,
                                        .shots = SHOTS[i].shots, .examples = SHOTS[i].examples};
        TestSet s;
        test_case = SHOTS[i].key;
        if (!test_set_open(&s, SHOTS[i].file, &options, &err)) { TEST_FAIL("%s", err.text); continue; }
        const json_t* of_set = json_object_get(json_object_get(expected, "shots"), SHOTS[i].key);
        check_set(&g, &s, of_set, &score);
        EXPECT((int)score.correct_by_sum == json_integer_value(json_object_get(of_set, "correct_by_sum")));
        char* words = format("; %d examples in front", SHOTS[i].shots);
        EXPECT(strstr(s.convention, words));
        free(words);
        test_set_free(&s);
    }
    gpt2_free(&g);
    tokenizer_free(&t);
    json_decref(expected);
}

// Expects that a set is refused with these words.
static void check_refused(const char* file, int shots, const char* examples, const char* words) {
    Error err = {.text = ""};
    TestSet s;
    Tokenizer t = tokenizer_bytes();
    const TestSetOptions options = {.tokenizer = &t, .T = T, .vocab_size = V, .rules = "llm.c", .shots = shots,
                                    .examples = examples};
    if (test_set_open(&s, file, &options, &err)) { TEST_FAIL("read, not refused: %s", words); }
    else if (!strstr(err.text, words)) { TEST_FAIL("no \"%s\" in: %s", words, err.text); }
    tokenizer_free(&t);
}

TEST(missing_examples_are_an_error) {
    check_refused(FOLDER "piqa.jsonl", 11, "", "piqa.jsonl:1: there are only 10 examples for it, --eval_shots is 11");
    check_refused(FOLDER "mmlu.jsonl", 4, FOLDER "mmlu_dev.jsonl", "mmlu.jsonl:1: there are only 3 examples");
    check_refused(FOLDER "piqa.jsonl", 1, FOLDER "mmlu_dev.jsonl", "--eval_examples test/golden/eval/mmlu_dev.jsonl: "
                  "items of MMLU, in front of PIQA");
    check_refused(FOLDER "piqa.jsonl", 1, "nowhere", "nowhere: cannot open");
    check_refused(FOLDER "hellaswag.bin", 1, "", "hellaswag.bin has tokens, not text");
}

// ---------------------------------------------------------------------------------------------------------------------
// CORE

static void check_core(GPT2* g, const Tokenizer* t, const json_t* expected, long long limit) {
    const TestSetOptions options = {.tokenizer = t, .T = T, .vocab_size = V, .rules = "llm.c", .limit = limit};
    const json_t* of_tasks = json_object_get(expected, "tasks");
    double error;
    int count, tasks;
    TestSet* sets = test_sets_open(FOLDER "core", &options, &count);
    TestScore* scores = alloc_or_die((size_t)count, sizeof *scores, "scores");
    EXPECT(count == (int)json_object_size(of_tasks));
    for (int i = 0; i < count; i++) {
        test_case = sets[i].name;
        check_set(g, &sets[i], json_object_get(of_tasks, sets[i].name), &scores[i]);
    }
    EXPECT_NEAR(core_score(sets, scores, count, &error, &tasks), json_number_value(json_object_get(expected, "core")),
                1e-12);
    EXPECT(tasks == count && error > 0.01 && error < 0.2);
    free(scores);
    test_sets_close(sets, count);
}

TEST(core_is_that_of_pytorch) {
    json_t* expected = golden("prompts.json");
    Tokenizer t = open_tokenizer_file();
    GPT2 g = open_model(3, T);
    check_core(&g, &t, json_object_get(expected, "core"), 0);
    check_core(&g, &t, json_object_get(expected, "core of 6"), 6);
    gpt2_free(&g);
    tokenizer_free(&t);
    json_decref(expected);
}

TEST(core_s_rows_have_the_tokens_of_tiktoken) {
    json_t* expected = golden("prompts.json");
    const json_t* of_tasks = json_object_get(json_object_get(expected, "core"), "tasks");
    Tokenizer t = tokenizer_builtin();
    const TestSetOptions options = {.tokenizer = &t, .T = 1024, .vocab_size = 50257, .rules = "llm.c"};
    int count;
    TestSet* sets = test_sets_open(FOLDER "core", &options, &count);
    for (int i = 0; i < count; i++) {
        const json_t* rows = json_object_get(json_object_get(of_tasks, sets[i].name), "gpt2");
        test_case = sets[i].name;
        EXPECT(json_array_size(rows) >= 4);
        for (size_t r = 0; r < json_array_size(rows); r++) {
            const json_t *row = json_array_get(rows, r), *ids = json_array_get(row, 0);
            bool same = sets[i].rows[r].tokens == (int)json_array_size(ids);
            for (size_t k = 0; same && k < json_array_size(ids); k++) {
                same = sets[i].tokens.ids[sets[i].rows[r].begin + k] == json_integer_value(json_array_get(ids, k));
            }
            EXPECT(same && sets[i].rows[r].scored == json_integer_value(json_array_get(row, 1)));
        }
    }
    test_sets_close(sets, count);
    tokenizer_free(&t);
    json_decref(expected);
}

static void check_numbers(const size_t* numbers, const json_t* expected) {
    for (size_t i = 0; i < json_array_size(expected); i++) {
        EXPECT((long long)numbers[i] == json_integer_value(json_array_get(expected, i)));
    }
}

TEST(random_numbers_are_those_of_python) {
    json_t* all = golden("prompts.json");
    json_t* expected = json_object_get(all, "python");
    const char* key;
    json_t* value;
    json_object_foreach(expected, key, value) {
        size_t seed, n, k, numbers[700];
        PythonRandom r;
        if (!strcmp(key, "shuffle")) {
            r = python_random(1337);
            for (size_t i = 0; i < 700; i++) { numbers[i] = i; }
            python_shuffle(&r, numbers, 700);
        } else {
            EXPECT(sscanf(key, "%zu %zu %zu", &seed, &n, &k) == 3);
            r = python_random((uint32_t)seed);
            python_sample(&r, numbers, n, k);
        }
        test_case = key;
        check_numbers(numbers, value);
    }
    json_decref(all);
}

#define TASK "icl_tasks:\n- label: a\n  dataset_uri: b\n  num_fewshot: [1]\n  icl_task_type: schema\n"
static const struct {
    const char *text, *words;
} LISTS[] = {
    {"", "core.yaml has no tasks"},
    {"icl_tasks:\n", "core.yaml has no tasks"},
    {"tasks:\n", "core.yaml:1: the list does not begin with \"icl_tasks:\""},
    {"icl_tasks:\n  label: a\n", "core.yaml:2: neither \"- \" nor a member of a task"},
    {TASK "label: a\n", "core.yaml:6: neither \"- \" nor a member of a task"},
    {TASK "  label: a\n", "core.yaml:6: \"label\" is there twice"},
    {TASK "  dataset_uri: a\n", "core.yaml:6: \"dataset_uri\" is there twice"},
    {TASK "  metric: a\n", "core.yaml:6: key \"metric\" is not known"},
    {TASK "  continuation_delimiter: \"\\q\"\n", "core.yaml:6: \"continuation_delimiter\" is no text"},
    {TASK "  continuation_delimiter: \"a\n", "core.yaml:6: \"continuation_delimiter\" is no text"},
    {TASK "  continuation_delimiter: 'a' b\n", "core.yaml:6: \"continuation_delimiter\" is no text"},
    {TASK "  continuation_delimiter: |\n", "core.yaml:6: \"continuation_delimiter\" is no text"},
    {TASK "  continuation_delimiter:\n", "core.yaml:6: \"continuation_delimiter\" is no text"},
    {TASK "  text\n", "core.yaml:6: no \"key: value\""},
    {TASK "- label: b\n", "core.yaml:6: the task that ends here has no \"dataset_uri\""},
    {"icl_tasks:\n- label: a\n- label: b\n", "core.yaml:3: the task that ends here has no \"dataset_uri\""},
    {"icl_tasks:\n- num_fewshot: 3\n", "core.yaml:2: \"num_fewshot\" is one number in brackets"},
    {"icl_tasks:\n- num_fewshot: [1, 2]\n", "core.yaml:2: \"num_fewshot\" is one number in brackets"},
    {"icl_tasks:\n- num_fewshot: [-1]\n", "core.yaml:2: \"num_fewshot\" is one number in brackets"},
    {"icl_tasks:\n- icl_task_type: other\n", "core.yaml:2: \"icl_task_type\" is multiple_choice, schema or"},
};

TEST(wrong_lists_are_refused_with_their_line) {
    for (size_t i = 0; i < sizeof LISTS / sizeof *LISTS; i++) {
        Error err = {.text = ""};
        CoreList list;
        if (core_read_yaml(&list, "x", "core.yaml", LISTS[i].text, &err)) { TEST_FAIL("read: %s", LISTS[i].text); }
        else if (!strstr(err.text, LISTS[i].words)) { TEST_FAIL("no \"%s\" in: %s", LISTS[i].words, err.text); }
    }
}

TEST(texts_of_yaml_are_read_as_they_are_meant) {
    Error err;
    CoreList list;
    static const char text[] = "---\n# a\n\nicl_tasks: # b\r\n-   label: \"a\\n\\t\\\"\\\\'\" # c\n"
                               "    dataset_uri: 'it''s # one'\n    has_categories: true\n"
                               "    num_fewshot: [ 12 ] # d\n    icl_task_type: schema # e\n"
                               "    continuation_delimiter: ''";
    EXPECT(core_read_yaml(&list, "folder", "core.yaml", text, &err));
    EXPECT(list.count == 1 && !strcmp(list.tasks[0].name, "a\n\t\"\\'") && list.tasks[0].shots == 12);
    EXPECT(!strcmp(list.tasks[0].path, "folder/eval_data/it's # one") && !*list.tasks[0].delimiter);
    EXPECT(!strcmp(list.tasks[0].form->name, "schema"));
    core_list_free(&list);
    EXPECT(core_read_yaml(&list, "x", "core.yaml", TASK, &err));
    EXPECT(!strcmp(list.tasks[0].delimiter, " ") && !strcmp(list.tasks[0].path, "x/eval_data/b"));
    core_list_free(&list);
}

#define HEAD "Eval Task,\"Random baseline\"\r\n"
TEST(baselines_are_found_in_csv) {
    static const struct {
        const char *text, *words;
        double baseline; // in percent
    } tables[] = {
        {HEAD "b,3\na,25\n", NULL, 25},
        {HEAD "\"b,\nc\",3\r\n\"a\",\"62.5\"", NULL, 62.5},
        {"x,Eval Task,Random baseline\n1,\"a\"\"\",2\n,a,0\n", NULL, 0},
        {HEAD "b,25\n", "m.csv: no row of \"a\"", 0},
        {"", "m.csv: no row of \"a\"", 0},
        {"Eval Task\na\n", "m.csv: no columns", 0},
        {HEAD "b,3\na,\n", "m.csv:3: \"Random baseline\" of a is not 0 to 100: ", 0},
        {HEAD "\"\n\",3\na,100\n", "m.csv:4: \"Random baseline\" of a is not 0 to 100: 100", 0},
        {HEAD "a,1x\n", "m.csv:2: \"Random baseline\" of a is not 0 to 100: 1x", 0},
        {HEAD "a\n\n", "m.csv: no row of \"a\"", 0},
        {HEAD "\"b\"c,3\n", "m.csv:2: text behind a quotation mark", 0},
        {HEAD "\"b,3\n", "m.csv:3: a quotation mark is not closed", 0},
    };
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        Error err = {.text = ""};
        double baseline = -1;
        const bool ok = core_read_baseline(&baseline, "a", "m.csv", tables[i].text, &err);
        if (ok != !tables[i].words) { TEST_FAIL("table %zu: %s", i, err.text); }
        else if (ok) { EXPECT_NEAR(baseline, tables[i].baseline / 100, 1e-15); }
        else if (!strstr(err.text, tables[i].words)) { TEST_FAIL("no \"%s\" in: %s", tables[i].words, err.text); }
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// texts

TEST(perplexities_are_those_of_pytorch) {
    json_t* all = golden("prompts.json");
    json_t* expected = json_object_get(all, "texts");
    Tokenizer t = open_tokenizer_file();
    GPT2 g = open_model(3, TEXT_T);
    Comm alone = comm_alone();
    const TestSetOptions options = {.tokenizer = &t, .T = TEXT_T, .vocab_size = V};
    const char* key;
    json_t* value;
    EXPECT(json_object_size(expected) == 8);
    json_object_foreach(expected, key, value) {
        Error err;
        TestScore score;
        int count;
        const char* space = strchr(key, ' ');
        char* path = format(FOLDER "%.*s", (int)(space - key), key);
        TestSet* s = text_sets_open(path, "text", &options, (int)strtol(space + 1, NULL, 10), &count);
        test_case = key;
        EXPECT(count == 1 && test_set_score(&score, NULL, s, &g, &alone, NULL, NULL, &err));
        EXPECT((long long)score.tokens == json_integer_value(json_array_get(value, 0)));
        EXPECT((long long)s->bytes == json_integer_value(json_array_get(value, 1)));
        EXPECT_NEAR(log(score.perplexity), log(json_number_value(json_array_get(value, 3))), 1e-5);
        EXPECT_NEAR(score.bits_per_byte, json_number_value(json_array_get(value, 4)), 1e-5);
        test_sets_close(s, count);
        free(path);
    }
    gpt2_free(&g);
    tokenizer_free(&t);
    json_decref(all);
}

TEST_MAIN()
