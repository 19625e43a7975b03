#include "core.h"

// ---------------------------------------------------------------------------------------------------------------------
// the tasks

#define NEXT_LINE "\nAnswer: "
#define CHOICE &CORE_FORMS[CORE_CHOICE]
#define SCHEMA &CORE_FORMS[CORE_SCHEMA]
#define LANGUAGE &CORE_FORMS[CORE_LANGUAGE]

const TestTask CORE[CORE_TASKS] = {
    {"hellaswag_zeroshot", "language_understanding/hellaswag", " ", CHOICE, 0, 0.25},
    {"jeopardy", "world_knowledge/jeopardy_all", NEXT_LINE, LANGUAGE, 10, 0},
    {"bigbench_qa_wikidata", "world_knowledge/bigbench_qa_wikidata", " ", LANGUAGE, 10, 0},
    {"arc_easy", "world_knowledge/arc_easy", NEXT_LINE, CHOICE, 10, 0.25},
    {"arc_challenge", "world_knowledge/arc_challenge", NEXT_LINE, CHOICE, 10, 0.25},
    {"copa", "commonsense_reasoning/copa", " ", CHOICE, 0, 0.5},
    {"commonsense_qa", "commonsense_reasoning/commonsense_qa", " ", CHOICE, 10, 0.2},
    {"piqa", "commonsense_reasoning/piqa", NEXT_LINE, CHOICE, 10, 0.5},
    {"openbook_qa", "commonsense_reasoning/openbook_qa", " ", CHOICE, 0, 0.25},
    {"lambada_openai", "language_understanding/lambada_openai", " ", LANGUAGE, 0, 0},
    {"hellaswag", "language_understanding/hellaswag", " ", CHOICE, 10, 0.25},
    {"winograd", "language_understanding/winograd_wsc", " ", SCHEMA, 0, 0.5},
    {"winogrande", "language_understanding/winogrande", " ", SCHEMA, 0, 0.5},
    {"bigbench_dyck_languages", "symbolic_problem_solving/bigbench_dyck_languages", " ", LANGUAGE, 10, 0},
    {"agi_eval_lsat_ar", "symbolic_problem_solving/agi_eval_lsat_ar", " ", CHOICE, 3, 0.2},
    {"bigbench_cs_algorithms", "symbolic_problem_solving/bigbench_cs_algorithms", " ", LANGUAGE, 10, 0},
    {"bigbench_operators", "symbolic_problem_solving/bigbench_operators", " ", LANGUAGE, 10, 0},
    {"bigbench_repeat_copy_logic", "symbolic_problem_solving/bigbench_repeat_copy_logic", " ", LANGUAGE, 10, 0},
    {"squad", "reading_comprehension/squad", " ", LANGUAGE, 10, 0},
    {"coqa", "reading_comprehension/coqa", " ", LANGUAGE, 0, 0},
    {"boolq", "reading_comprehension/boolq", NEXT_LINE, CHOICE, 10, 0.62},
    {"bigbench_language_identification", "language_understanding/bigbench_language_identification", " ", CHOICE, 10,
     0.091},
};

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
