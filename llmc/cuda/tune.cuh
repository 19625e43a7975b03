// Chooses the algorithm of each matmul by measuring. cuBLASLt's heuristic estimates speed from the shape; which of the
// algorithms that it offers is the fastest depends on the GPU, its clocks and the version of the library.
//
// Matmuls run on the data that they were queued with, so that the GPU draws the power, and has the clocks, of training:
// on zeros a GPU is faster (an H200: 894 TFLOP/s on zeros, 788 on random numbers).
#pragma once
#include "../base/text_stream.h"
#include "../files/tune_cache.h"
#include "matmul.cuh"

// ---------------------------------------------------------------------------------------------------------------------
// measuring. All numbers here are chosen, not measured.

static constexpr double TUNE_WARM_UP = 0.2; // seconds, until the clocks are those of a busy GPU
static constexpr double TUNE_MARGIN = 0.98; // something else than the first choice must be faster by 2%
static constexpr int TUNE_ROUNDS = 4;

// Returns the seconds of one run; INFINITY if the algorithm fails. The GPU works on the first run while the timed ones
// are queued.
static inline double seconds_of_algorithm(const MatmulPlan* p, const Algorithm* with) {
    const int runs = 2;
    if (plan_queue(p, &p->last, with) != CUBLAS_STATUS_SUCCESS) { return INFINITY; }
    device_timer_start();
    for (int i = 0; i < runs; i++) { cublas_check(plan_queue(p, &p->last, with), "timing a matmul"); }
    return device_timer_stop() / runs;
}

static inline int fastest_algorithm(const MatmulPlan* p) {
    int best = 0;
    for (int i = 1; i < p->count; i++) {
        const double margin = best ? 1.0 : TUNE_MARGIN;
        if (p->algorithm[i].seconds < margin * p->algorithm[best].seconds) { best = i; }
    }
    return best;
}

// Sets the seconds of a plan's algorithms, the shortest of several runs, and chooses the fastest. After the first round
// only those run that are at most a tenth slower than the best. After the deadline (seconds_now()) only the heuristic's
// first two still run, once.
static inline void tune_plan(MatmulPlan* p, double deadline) {
    for (int i = 0; i < p->count; i++) { p->algorithm[i].seconds = INFINITY; }
    for (int round = 0; round < TUNE_ROUNDS && p->count > 1; round++) {
        const double most = 1.1 * p->algorithm[fastest_algorithm(p)].seconds;
        for (int i = 0; i < p->count; i++) {
            Algorithm* a = &p->algorithm[i];
            if (round && a->seconds > most) { continue; }
            if ((round || i >= 2) && seconds_now() > deadline) { continue; }
            a->seconds = fmin(a->seconds, seconds_of_algorithm(p, a));
        }
    }
    p->chosen = fastest_algorithm(p);
    p->is_tuned = true;
}

// Runs a matmul until the clocks are those of a busy GPU.
static inline void warm_up(const MatmulPlan* p) {
    for (const double begin = seconds_now(); seconds_now() - begin < TUNE_WARM_UP;) {
        if (!isfinite(seconds_of_algorithm(p, &p->algorithm[0]))) { return; }
    }
}

static inline void matmuls_watch(void) {
    for (size_t i = 0; i < num_plans(); i++) { plans.plan[i].is_watched = false; }
}

static inline void matmuls_tune(double seconds) {
    const double begin = seconds_now();
    bool is_warm = false;
    for (size_t i = 0; i < num_plans(); i++) {
        MatmulPlan* p = &plans.plan[i];
        if (!p->count || p->is_tuned || !p->is_watched) { continue; }
        if (!is_warm) { warm_up(p); }
        is_warm = true;
        const double share = (seconds - (seconds_now() - begin)) / (double)(num_plans() - i);
        tune_plan(p, seconds_now() + share);
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// choices as text. A line: the key's numbers, a space, and the words of the algorithm

static constexpr int KEY_NUMBERS = sizeof(MatmulKey) / sizeof(int), ALGORITHM_WORDS = sizeof(cublasLtMatmulAlgo_t) / 8;

static inline void write_key(FILE* out, const MatmulKey* key) {
    for (int i = 0; i < KEY_NUMBERS; i++) { fprintf(out, "%s%d", i ? "," : "", ((const int*)key)[i]); }
}
static inline void write_algorithm(FILE* out, const cublasLtMatmulAlgo_t* a) {
    for (int i = 0; i < ALGORITHM_WORDS; i++) {
        fprintf(out, "%s%llx", i ? "." : "", (unsigned long long)a->data[i]);
    }
}

// Calls write(stream) and returns what it wrote; free() it.
template <class Write> static inline char* text_of(Write write) {
    static const char what[] = "the choice of algorithms";
    char* text;
    size_t size;
    FILE* out = open_text_stream(&text, &size, what);
    write(out);
    close_text_stream(out, what);
    return text;
}

static inline char* matmuls_save(void) {
    return text_of([](FILE* out) {
        for (size_t i = 0; i < num_plans(); i++) {
            const MatmulPlan* p = &plans.plan[i];
            if (!p->is_tuned) { continue; }
            write_key(out, &p->key);
            fputc(' ', out);
            write_algorithm(out, &p->algorithm[p->chosen].algorithm);
            fputc('\n', out);
        }
    });
}

// Returns the rest of the line that begins with `key` and a space, and sets its length; NULL if there is none.
static inline const char* find_choice(const char* lines, const MatmulKey* key, size_t* length) {
    char* text = text_of([&](FILE* out) { write_key(out, key); });
    const size_t n = strlen(text);
    const char* line = tune_line(lines, text, n);
    free(text);
    if (!line || line[n] != ' ') { return NULL; }
    *length = strcspn(line + n + 1, "\n");
    return line + n + 1;
}

// Takes a choice of an earlier start. Returns false if the library no longer offers that algorithm.
static inline bool take_choice(MatmulPlan* p, const char* choice, size_t length) {
    for (int i = 0; i < p->count && !p->is_tuned; i++) {
        char* text = text_of([&](FILE* out) { write_algorithm(out, &p->algorithm[i].algorithm); });
        p->is_tuned = strlen(text) == length && !strncmp(text, choice, length);
        if (p->is_tuned) { p->chosen = i; }
        free(text);
    }
    return p->is_tuned;
}

static inline void matmuls_load(const char* lines) {
    for (size_t i = 0; i < num_plans(); i++) {
        MatmulPlan* p = &plans.plan[i];
        size_t length = 0;
        const bool is_open = p->count && !p->is_tuned && p->is_watched;
        const char* choice = is_open ? find_choice(lines, &p->key, &length) : NULL;
        if (choice && !take_choice(p, choice, length)) {
            notice("cuBLASLt no longer offers the algorithm that was chosen for a matmul of %d x %d x %d: choosing "
                   "again",
                   p->key.rows, p->key.cols, p->key.depth);
        }
    }
}

static inline const char* matmuls_identity(void) {
    static char text[sizeof gpu.name + 64];
    int driver = 0;
    cuda_check(cudaDriverGetVersion(&driver), "asking for the driver's version");
    snprintf(text, sizeof text, "%s, CUDA driver %d, cuBLASLt %zu, %s", gpu.name, driver,
             gpu.cublaslt ? cublasLtGetVersion() : 0, STRING(FLOATX)); // --kernels plain does not open it
    return text;
}

// ---------------------------------------------------------------------------------------------------------------------
// facts for `bench plans`

static inline uint32_t algorithm_config(const Algorithm* a, cublasLtMatmulAlgoConfigAttributes_t attribute) {
    uint32_t value = 0;
    size_t written = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoConfigGetAttribute(&a->algorithm, attribute, &value, sizeof value, &written);
    return status == CUBLAS_STATUS_SUCCESS ? value : 0;
}

static inline bool matmul_facts(int i, int algorithm, MatmulFacts* facts) {
    static const char* const FUSIONS[] = {"", "bias", "bias, GELU", "GELU'"};
    if (i < 0 || (size_t)i >= num_plans()) { return false; }
    const MatmulPlan* p = &plans.plan[i];
    const MatmulKey* k = &p->key;
    memset(facts, 0, sizeof *facts);
    facts->batch = k->batch;
    facts->rows = k->rows;
    facts->cols = k->cols;
    facts->depth = k->depth;
    facts->a_transposed = k->a_transposed != 0;
    facts->b_transposed = k->b_transposed != 0;
    facts->is_fp8 = k->a_storage != AS_FLOATX;
    facts->fusion = k->adds_matrix ? "a matrix" : FUSIONS[k->fusion];
    facts->count = p->count;
    facts->chosen = p->chosen;
    if (algorithm < 0 || algorithm >= p->count) { return true; }
    const Algorithm* a = &p->algorithm[algorithm];
    facts->seconds = a->seconds;
    facts->workspace_bytes = a->workspace_bytes;
    facts->id = (int)algorithm_config(a, CUBLASLT_ALGO_CONFIG_ID);
    facts->tile = (int)algorithm_config(a, CUBLASLT_ALGO_CONFIG_TILE_ID);
    facts->stages = (int)algorithm_config(a, CUBLASLT_ALGO_CONFIG_STAGES_ID);
    facts->split_k = (int)algorithm_config(a, CUBLASLT_ALGO_CONFIG_SPLITK_NUM);
    facts->reduction = (int)algorithm_config(a, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME);
    return true;
}
