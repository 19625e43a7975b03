#include "core.h"

// ---------------------------------------------------------------------------------------------------------------------
// the tasks

#define NEXT_LINE "\nAnswer: "
static const struct {
    const char *name, *file, *form;
    int shots;
    const char* delimiter;
    double baseline; // in percent
} TASKS[CORE_TASKS] = {
    {"hellaswag_zeroshot", "language_understanding/hellaswag", "multiple_choice", 0, " ", 25},
    {"jeopardy", "world_knowledge/jeopardy_all", "language_modeling", 10, NEXT_LINE, 0},
    {"bigbench_qa_wikidata", "world_knowledge/bigbench_qa_wikidata", "language_modeling", 10, " ", 0},
    {"arc_easy", "world_knowledge/arc_easy", "multiple_choice", 10, NEXT_LINE, 25},
    {"arc_challenge", "world_knowledge/arc_challenge", "multiple_choice", 10, NEXT_LINE, 25},
    {"copa", "commonsense_reasoning/copa", "multiple_choice", 0, " ", 50},
    {"commonsense_qa", "commonsense_reasoning/commonsense_qa", "multiple_choice", 10, " ", 20},
    {"piqa", "commonsense_reasoning/piqa", "multiple_choice", 10, NEXT_LINE, 50},
    {"openbook_qa", "commonsense_reasoning/openbook_qa", "multiple_choice", 0, " ", 25},
    {"lambada_openai", "language_understanding/lambada_openai", "language_modeling", 0, " ", 0},
    {"hellaswag", "language_understanding/hellaswag", "multiple_choice", 10, " ", 25},
    {"winograd", "language_understanding/winograd_wsc", "schema", 0, " ", 50},
    {"winogrande", "language_understanding/winogrande", "schema", 0, " ", 50},
    {"bigbench_dyck_languages", "symbolic_problem_solving/bigbench_dyck_languages", "language_modeling", 10, " ", 0},
    {"agi_eval_lsat_ar", "symbolic_problem_solving/agi_eval_lsat_ar", "multiple_choice", 3, " ", 20},
    {"bigbench_cs_algorithms", "symbolic_problem_solving/bigbench_cs_algorithms", "language_modeling", 10, " ", 0},
    {"bigbench_operators", "symbolic_problem_solving/bigbench_operators", "language_modeling", 10, " ", 0},
    {"bigbench_repeat_copy_logic", "symbolic_problem_solving/bigbench_repeat_copy_logic", "language_modeling", 10, " ",
     0},
    {"squad", "reading_comprehension/squad", "language_modeling", 10, " ", 0},
    {"coqa", "reading_comprehension/coqa", "language_modeling", 0, " ", 0},
    {"boolq", "reading_comprehension/boolq", "multiple_choice", 10, NEXT_LINE, 62},
    {"bigbench_language_identification", "language_understanding/bigbench_language_identification", "multiple_choice",
     10, " ", 9.1},
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
