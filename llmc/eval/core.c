#include "core.h"

// ---------------------------------------------------------------------------------------------------------------------
// the tasks

#define NEXT_LINE "\nAnswer: "
static const struct {
    const char *name, *file;
    CoreKind form;
    int shots;
    const char* delimiter;
    double baseline; // in percent
} TASKS[CORE_TASKS] = {
    {"hellaswag_zeroshot", "language_understanding/hellaswag", CORE_CHOICE, 0, " ", 25},
    {"jeopardy", "world_knowledge/jeopardy_all", CORE_LANGUAGE, 10, NEXT_LINE, 0},
    {"bigbench_qa_wikidata", "world_knowledge/bigbench_qa_wikidata", CORE_LANGUAGE, 10, " ", 0},
    {"arc_easy", "world_knowledge/arc_easy", CORE_CHOICE, 10, NEXT_LINE, 25},
    {"arc_challenge", "world_knowledge/arc_challenge", CORE_CHOICE, 10, NEXT_LINE, 25},
    {"copa", "commonsense_reasoning/copa", CORE_CHOICE, 0, " ", 50},
    {"commonsense_qa", "commonsense_reasoning/commonsense_qa", CORE_CHOICE, 10, " ", 20},
    {"piqa", "commonsense_reasoning/piqa", CORE_CHOICE, 10, NEXT_LINE, 50},
    {"openbook_qa", "commonsense_reasoning/openbook_qa", CORE_CHOICE, 0, " ", 25},
    {"lambada_openai", "language_understanding/lambada_openai", CORE_LANGUAGE, 0, " ", 0},
    {"hellaswag", "language_understanding/hellaswag", CORE_CHOICE, 10, " ", 25},
    {"winograd", "language_understanding/winograd_wsc", CORE_SCHEMA, 0, " ", 50},
    {"winogrande", "language_understanding/winogrande", CORE_SCHEMA, 0, " ", 50},
    {"bigbench_dyck_languages", "symbolic_problem_solving/bigbench_dyck_languages", CORE_LANGUAGE, 10, " ", 0},
    {"agi_eval_lsat_ar", "symbolic_problem_solving/agi_eval_lsat_ar", CORE_CHOICE, 3, " ", 20},
    {"bigbench_cs_algorithms", "symbolic_problem_solving/bigbench_cs_algorithms", CORE_LANGUAGE, 10, " ", 0},
    {"bigbench_operators", "symbolic_problem_solving/bigbench_operators", CORE_LANGUAGE, 10, " ", 0},
    {"bigbench_repeat_copy_logic", "symbolic_problem_solving/bigbench_repeat_copy_logic", CORE_LANGUAGE, 10, " ", 0},
    {"squad", "reading_comprehension/squad", CORE_LANGUAGE, 10, " ", 0},
    {"coqa", "reading_comprehension/coqa", CORE_LANGUAGE, 0, " ", 0},
    {"boolq", "reading_comprehension/boolq", CORE_CHOICE, 10, NEXT_LINE, 62},
    {"bigbench_language_identification", "language_understanding/bigbench_language_identification", CORE_CHOICE, 10,
     " ", 9.1},
};

TestTask core_task(const char* folder, int i) {
    return (TestTask){.name = TASKS[i].name,
                      .path = format("%s/eval_data/%s.jsonl", folder, TASKS[i].file),
                      .delimiter = TASKS[i].delimiter,
                      .form = test_form_core(TASKS[i].form),
                      .shots = TASKS[i].shots,
                      .baseline = TASKS[i].baseline / 100};
}

// ---------------------------------------------------------------------------------------------------------------------
// the score

double core_score(const TestSet* sets, const TestScore* scores, int count, double* standard_error, int* tasks) {
    double sum = 0, variance = 0;
    *tasks = 0;
    for (int i = 0; i < count; i++) {
        if (isnan(sets[i].baseline)) { continue; }
        const double scale = 1 - sets[i].baseline,
                     error = test_standard_error(scores[i].correct, scores[i].total) / scale;
        sum += (test_accuracy(scores[i].correct, scores[i].total) - sets[i].baseline) / scale;
        variance += error * error;
        ++*tasks;
    }
    *standard_error = sqrt(variance) / *tasks;
    return *tasks ? sum / *tasks : NAN;
}

void core_print(const TestSet* sets, const TestScore* scores, int count) {
    int tasks;
    double error;
    const double core = core_score(sets, scores, count, &error, &tasks);
    if (!tasks) { return; }
    printf("CORE: %f\n  standard error %.4f; the mean of %d centered accuracies\n", core, error, tasks);
    printf("  published: OpenAI's 124M 0.1139, 355M 0.1849, 774M 0.2146, 1558M 0.2565 (nanochat)\n");
}
