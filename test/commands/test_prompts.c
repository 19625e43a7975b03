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
        if (!test_set_open(&s, SHOTS[i].file, NULL, &options, &err)) { TEST_FAIL("%s", err.text); continue; }
        const json_t* of_set = json_object_get(json_object_get(expected, "shots"), SHOTS[i].key);
        check_set(&g, &s, of_set, &score);
        EXPECT((int)score.correct_by_sum == json_integer_value(json_object_get(of_set, "correct_by_sum")));
        char* words = format("; %d example%s in front", SHOTS[i].shots, plural((uint64_t)SHOTS[i].shots));
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
    Tokenizer t = tokenizer_bytes();
    const TestSetOptions options = {.tokenizer = &t, .T = T, .vocab_size = V, .rules = "llm.c", .shots = shots,
                                    .examples = examples};
    expect_set_refused(file, &options, words);
    tokenizer_free(&t);
}

TEST(missing_examples_are_an_error) {
    check_refused(FOLDER "piqa.jsonl", 11, "", "piqa.jsonl:1: there are only 10 examples for it, "
                  "shots: of --eval_rules is 11");
    check_refused(FOLDER "mmlu.jsonl", 4, FOLDER "mmlu_dev.jsonl", "mmlu.jsonl:1: there are only 3 examples");
    check_refused(FOLDER "piqa.jsonl", 1, FOLDER "mmlu_dev.jsonl", "--eval_rules examples:" FOLDER "mmlu_dev.jsonl: "
                  "items of MMLU, in front of PIQA");
    check_refused(FOLDER "piqa.jsonl", 1, "nowhere", "nowhere: cannot open");
    check_refused(FOLDER "hellaswag.bin", 1, "", "hellaswag.bin has tokens, not text");
}

TEST(examples_of_a_limited_set_are_among_all_its_items) {
    Error err;
    TestSet s;
    Tokenizer t = tokenizer_bytes();
    const TestSetOptions options = {.tokenizer = &t, .T = T, .vocab_size = V, .rules = "llm.c", .shots = 10,
                                    .limit = 1};
    if (!test_set_open(&s, FOLDER "piqa.jsonl", NULL, &options, &err)) { fatal("%s", err.text); }
    EXPECT(s.num_items == 1 && strstr(s.convention, "; 10 examples in front"));
    test_set_free(&s);
    tokenizer_free(&t);
}

TEST(rules_have_parts_in_any_order) {
    static const char* const wrong[] = {"", ",", "llm", "llm.c:1", "lm-eval,", "shots", "shots:x", "shots:1001",
                                        "limit:0", "every:-1", "shots:1,examples:", "examples"};
    Error err = {.text = ""};
    TestSetOptions o = {.T = 5};
    EXPECT(eval_rules_parse(&o, "llm.c", &err));
    EXPECT(!strcmp(o.rules, "llm.c") && o.shots == 0 && !o.examples && o.limit == 0 && o.every == -1 && o.T == 5);
    EXPECT(eval_rules_parse(&o, "every:0,shots:5,lm-eval,limit:9,examples:a:b", &err));
    EXPECT(!strcmp(o.rules, "lm-eval") && o.shots == 5 && !strcmp(o.examples, "a:b") && o.limit == 9 && o.every == 0);
    EXPECT(eval_rules_parse(&o, "limit:2", &err) && !strcmp(o.rules, "llm.c") && o.shots == 0 && !o.examples);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        test_case = wrong[i];
        EXPECT(!eval_rules_parse(&o, wrong[i], &err) && strstr(err.text, "give llm.c or lm-eval, shots:N"));
    }
    EXPECT(!eval_rules_parse(&o, "examples:file", &err) && strstr(err.text, "no effect without shots:N"));
}

// ---------------------------------------------------------------------------------------------------------------------
// CORE

// Tasks as those of CORE, of files that dev/golden/prompts.py wrote.
static const TestTask TASKS[] = {
    {"choices_zeroshot", "a/choices", " ", &CORE_FORMS[CORE_CHOICE], 0, 0.25},
    {"choices", "a/choices", "\nAnswer: ", &CORE_FORMS[CORE_CHOICE], 3, 0.403},
    {"long", "a/long", " ", &CORE_FORMS[CORE_CHOICE], 10, 0.5},
    {"pronouns", "b/schema", " ", &CORE_FORMS[CORE_SCHEMA], 2, 0.5},
    {"last_word", "b/words", " =", &CORE_FORMS[CORE_LANGUAGE], 0, 0},
    {"answers", "b/answers", "\nAnswer:", &CORE_FORMS[CORE_LANGUAGE], 4, 0},
};
enum { NUM_TASKS = sizeof TASKS / sizeof *TASKS };

// Opens them into `sets` (NUM_TASKS).
static void open_tasks(TestSet* sets, const TestSetOptions* options) {
    Error err;
    for (int i = 0; i < NUM_TASKS; i++) {
        char* path = format(FOLDER "core/%s.jsonl", TASKS[i].file);
        if (!test_set_open(&sets[i], path, &TASKS[i], options, &err)) { fatal("%s", err.text); }
        free(path);
    }
}

static void check_core(GPT2* g, const Tokenizer* t, const json_t* expected, long long limit) {
    const TestSetOptions options = {.tokenizer = t, .T = T, .vocab_size = V, .rules = "llm.c", .limit = limit};
    const json_t* of_tasks = json_object_get(expected, "tasks");
    double error;
    int tasks;
    TestSet sets[NUM_TASKS];
    TestScore scores[NUM_TASKS];
    open_tasks(sets, &options);
    EXPECT(json_object_size(of_tasks) == NUM_TASKS);
    for (int i = 0; i < NUM_TASKS; i++) {
        test_case = TASKS[i].name;
        check_set(g, &sets[i], json_object_get(of_tasks, TASKS[i].name), &scores[i]);
    }
    EXPECT_NEAR(core_score(sets, scores, NUM_TASKS, &error, &tasks),
                json_number_value(json_object_get(expected, "core")), 1e-12);
    double variance = 0; // of the mean of independent accuracies, each (p - baseline) / (1 - baseline)
    for (int i = 0; i < NUM_TASKS; i++) {
        const double p = (double)scores[i].correct / (double)scores[i].total, scale = 1 - TASKS[i].baseline;
        variance += p * (1 - p) / ((double)scores[i].total - 1) / (scale * scale) / (NUM_TASKS * NUM_TASKS);
    }
    EXPECT_NEAR(error, sqrt(variance), 1e-12);
    EXPECT(tasks == NUM_TASKS && error > 0.01 && error < 0.2);
    for (int i = 0; i < NUM_TASKS; i++) { test_set_free(&sets[i]); }
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
    TestSet sets[NUM_TASKS];
    open_tasks(sets, &options);
    for (int i = 0; i < NUM_TASKS; i++) {
        const json_t* rows = json_object_get(json_object_get(of_tasks, TASKS[i].name), "gpt2");
        test_case = TASKS[i].name;
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
    for (int i = 0; i < NUM_TASKS; i++) { test_set_free(&sets[i]); }
    tokenizer_free(&t);
    json_decref(expected);
}

// As nanochat's core.yaml counts them.
TEST(core_has_22_tasks) {
    double sum = 0;
    int shots = 0, schemas = 0, languages = 0, answers = 0;
    for (int i = 0; i < CORE_TASKS; i++) {
        const TestTask* task = &CORE[i];
        EXPECT(task->form && *task->file && task->baseline >= 0 && task->baseline < 1);
        for (int k = 0; k < i; k++) { EXPECT(strcmp(CORE[k].name, task->name)); }
        sum += task->baseline;
        shots += task->shots;
        schemas += task->form == &CORE_FORMS[CORE_SCHEMA];
        languages += task->form == &CORE_FORMS[CORE_LANGUAGE];
        answers += !strcmp(task->delimiter, "\nAnswer: ");
    }
    EXPECT_NEAR(sum, 4.361, 1e-12);
    EXPECT(shots == 143 && schemas == 2 && languages == 9 && answers == 5);
    char* table = NULL;
    for (int i = 0; i < CORE_TASKS; i++) { // with '=' if "\nAnswer: " stands before the answer
        const char* file = strchr(CORE[i].file, '/') + 1;
        append_format(&table, "%s %s%s %d %g\n", CORE[i].name, strcmp(file, CORE[i].name) ? file : "",
                      *CORE[i].delimiter == ' ' ? "" : "=", CORE[i].shots, CORE[i].baseline);
    }
    EXPECT(!strcmp(table, "hellaswag_zeroshot hellaswag 0 0.25\njeopardy jeopardy_all= 10 0\n"
                          "bigbench_qa_wikidata  10 0\narc_easy = 10 0.25\narc_challenge = 10 0.25\ncopa  0 0.5\n"
                          "commonsense_qa  10 0.2\npiqa = 10 0.5\nopenbook_qa  0 0.25\nlambada_openai  0 0\n"
                          "hellaswag  10 0.25\nwinograd winograd_wsc 0 0.5\nwinogrande  0 0.5\n"
                          "bigbench_dyck_languages  10 0\nagi_eval_lsat_ar  3 0.2\nbigbench_cs_algorithms  10 0\n"
                          "bigbench_operators  10 0\nbigbench_repeat_copy_logic  10 0\nsquad  10 0\ncoqa  0 0\n"
                          "boolq = 10 0.62\nbigbench_language_identification  10 0.091\n"));
    free(table);
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
