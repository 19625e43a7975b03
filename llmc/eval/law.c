#include "law.h"
#include "../base/rng.h"

// Runs as the fit sees them. Logarithms of sizes and lengths are those over their means: the five numbers then hardly
// depend on each other, and the fit converges.
typedef struct {
    int count;
    double *n, *d, *loss; // logarithms
    double* weight;
    double mean_n, mean_d;
} LawData;

// Returns ln L of the law `x`, and its derivatives by x.
static double law_log(const double x[LAW_NUM], double n, double d, double derivative[LAW_NUM]) {
    const double term[3] = {x[LAW_LN_E], x[LAW_LN_A] - x[LAW_ALPHA] * n, x[LAW_LN_B] - x[LAW_BETA] * d};
    const double most = fmax(term[0], fmax(term[1], term[2]));
    double part[3], sum = 0;
    for (int i = 0; i < 3; i++) { sum += part[i] = exp(term[i] - most); }
    derivative[LAW_LN_E] = part[0] / sum;
    derivative[LAW_LN_A] = part[1] / sum;
    derivative[LAW_ALPHA] = -n * part[1] / sum;
    derivative[LAW_LN_B] = part[2] / sum;
    derivative[LAW_BETA] = -d * part[2] / sum;
    return most + log(sum);
}

static const double HUBER_DELTA = 1e-3; // Hoffmann et al.
static const double LAW_LEAST = -13.8;  // logarithm of a loss that runs cannot tell from 0: 1e-6 (chosen)

static double law_objective(const LawData* data, const double x[LAW_NUM]) {
    double sum = 0, unused[LAW_NUM];
    for (int i = 0; i < data->count; i++) {
        const double error = fabs(data->loss[i] - law_log(x, data->n[i], data->d[i], unused));
        sum += data->weight[i] * (error <= HUBER_DELTA ? error * error / 2 : HUBER_DELTA * (error - HUBER_DELTA / 2));
    }
    return sum;
}

// Sets the normal equations of a Gauss-Newton step: H step = g. Huber's loss is the square of errors that count less
// beyond delta (iteratively reweighted least squares).
static void law_normal_equations(const LawData* data, const double x[LAW_NUM], double H[LAW_NUM][LAW_NUM],
                                 double g[LAW_NUM]) {
    double slope[LAW_NUM];
    memset(H, 0, sizeof(double[LAW_NUM][LAW_NUM]));
    memset(g, 0, sizeof(double[LAW_NUM]));
    for (int k = 0; k < data->count; k++) {
        const double error = data->loss[k] - law_log(x, data->n[k], data->d[k], slope);
        const double weight = data->weight[k] * fmin(1, HUBER_DELTA / fmax(fabs(error), HUBER_DELTA));
        for (int i = 0; i < LAW_NUM; i++) {
            g[i] += weight * slope[i] * error;
            for (int j = 0; j < LAW_NUM; j++) { H[i][j] += weight * slope[i] * slope[j]; }
        }
    }
}

// Solves (H + damping * (diag H + tiny)) step = g by Cholesky's decomposition H = L L^T.
static void law_solve(double step[LAW_NUM], const double H[LAW_NUM][LAW_NUM], const double g[LAW_NUM], double damping) {
    double L[LAW_NUM][LAW_NUM];
    for (int i = 0; i < LAW_NUM; i++) {
        for (int j = 0; j <= i; j++) {
            double sum = H[i][j] + (i == j ? damping * (H[i][i] + 1e-9) : 0);
            for (int k = 0; k < j; k++) { sum -= L[i][k] * L[j][k]; }
            L[i][j] = i == j ? sqrt(fmax(sum, 1e-30)) : sum / L[j][j];
        }
    }
    for (int i = 0; i < LAW_NUM; i++) {
        double sum = g[i];
        for (int k = 0; k < i; k++) { sum -= L[i][k] * step[k]; }
        step[i] = sum / L[i][i];
    }
    for (int i = LAW_NUM; i-- > 0;) {
        for (int k = i + 1; k < LAW_NUM; k++) { step[i] -= L[k][i] * step[k]; }
        step[i] /= L[i][i];
    }
}

// Moves x to a minimum by damped Gauss-Newton steps (Levenberg 1944, Marquardt 1963), and returns the objective there.
static double law_minimize(const LawData* data, double x[LAW_NUM]) {
    enum { MOST_STEPS = 2000 };
    double H[LAW_NUM][LAW_NUM], g[LAW_NUM], step[LAW_NUM], next[LAW_NUM];
    double best = law_objective(data, x), damping = 1e-2;
    for (int i = 0; i < MOST_STEPS && damping < 1e12; i++) {
        law_normal_equations(data, x, H, g);
        law_solve(step, (const double(*)[LAW_NUM])H, g, damping);
        for (int k = 0; k < LAW_NUM; k++) { next[k] = x[k] + step[k]; }
        const double objective = law_objective(data, next);
        if (!(objective < best)) {
            damping *= 4;
            continue;
        }
        const bool is_there = best - objective < 1e-12 * best;
        memcpy(x, next, sizeof next);
        best = objective;
        damping = fmax(damping / 3, 1e-12);
        if (is_there) { break; }
    }
    return best;
}

// Minimizes from a grid of starts: exponents, the part of the lowest loss that is E, and the part of the rest that is
// the parameters' term.
static void law_search(const LawData* data, double best[LAW_NUM]) {
    static const double exponents[] = {0.15, 0.4, 1}, parts[] = {0.2, 0.5, 0.9};
    double lowest = INFINITY, mean = 0, best_objective = INFINITY;
    for (int i = 0; i < data->count; i++) {
        lowest = fmin(lowest, data->loss[i]);
        mean += exp(data->loss[i]) / data->count;
    }
    for (int i = 0; i < 3 * 3 * 3 * 3; i++) {
        const double E = exp(lowest) * parts[i % 3], part = parts[i / 3 % 3];
        double x[LAW_NUM] = {log(E), log((mean - E) * part), exponents[i / 9 % 3], log((mean - E) * (1 - part)),
                             exponents[i / 27]};
        const double objective = law_minimize(data, x);
        if (objective < best_objective) {
            best_objective = objective;
            memcpy(best, x, sizeof x);
        }
    }
}

// Returns the law whose numbers hold for sizes and lengths that are not divided by their means.
static Law law_of(const LawData* data, const double x[LAW_NUM]) {
    Law law;
    memcpy(law.x, x, sizeof law.x);
    law.x[LAW_LN_A] += x[LAW_ALPHA] * data->mean_n;
    law.x[LAW_LN_B] += x[LAW_BETA] * data->mean_d;
    return law;
}

// ---------------------------------------------------------------------------------------------------------------------
// fit and bootstrap

static int count_distinct(const double* x, int count) {
    int distinct = 0;
    for (int i = 0; i < count; i++) {
        int before = 0;
        while (before < i && x[before] != x[i]) { before++; }
        distinct += before == i;
    }
    return distinct;
}

static bool law_check(const LawData* data, Error* err) {
    enum { LEAST_RUNS = 7, LEAST_VALUES = 3 };
    const int sizes = count_distinct(data->n, data->count), lengths = count_distinct(data->d, data->count);
    return (data->count >= LEAST_RUNS && sizes >= LEAST_VALUES && lengths >= LEAST_VALUES) ||
           fail(err, "%d run%s of %d size%s and %d length%s: a law has five numbers, so give at least %d runs of %d "
                "sizes and %d lengths", data->count, plural((uint64_t)data->count), sizes, plural((uint64_t)sizes),
                lengths, plural((uint64_t)lengths), LEAST_RUNS, LEAST_VALUES, LEAST_VALUES);
}

// Allocates the data in one block, `n`, which the caller frees.
static LawData law_data(const LawRun* runs, int count) {
    const size_t size = (size_t)count;
    double* block = alloc_or_die(4 * size, sizeof *block, "the runs of a law");
    LawData data = {.count = count, .n = block, .d = block + size, .loss = block + 2 * size,
                    .weight = block + 3 * size};
    for (int i = 0; i < count; i++) {
        data.mean_n += log(runs[i].parameters) / count;
        data.mean_d += log(runs[i].tokens) / count;
    }
    for (int i = 0; i < count; i++) {
        data.n[i] = log(runs[i].parameters) - data.mean_n;
        data.d[i] = log(runs[i].tokens) - data.mean_d;
        data.loss[i] = log(runs[i].loss);
        data.weight[i] = 1;
    }
    return data;
}

static double law_error(const LawData* data, const double x[LAW_NUM], int i) {
    double unused[LAW_NUM];
    return data->loss[i] - law_log(x, data->n[i], data->d[i], unused);
}

// Leaves each group of runs out that have the same `key`, and sets its runs' errors by the law of the others.
static void law_errors(double* error, const LawData* data, const double* key, const double best[LAW_NUM]) {
    for (int first = 0; first < data->count; first++) {
        double x[LAW_NUM];
        int before = 0;
        while (key[before] != key[first]) { before++; }
        if (before < first) { continue; } // its group is done
        for (int i = 0; i < data->count; i++) { data->weight[i] = key[i] != key[first]; }
        memcpy(x, best, sizeof x);
        law_minimize(data, x);
        for (int i = first; i < data->count; i++) {
            if (key[i] == key[first]) { error[i] = law_error(data, x, i); }
        }
    }
}

static double root_mean_square(const double* x, int count) {
    double squares = 0;
    for (int i = 0; i < count; i++) { squares += x[i] * x[i]; }
    return sqrt(squares / count);
}

// Refits the law from `best` on by random weights of the runs, and draws for each refit an error of a new run, up or
// down.
static void law_bootstrap(LawFit* fit, const LawData* data, const double best[LAW_NUM], uint64_t seed) {
    const int count = data->count;
    double x[LAW_NUM];
    double* error = alloc_or_die(2 * (size_t)count, sizeof *error, "the errors of a law");
    for (int i = 0; i < count; i++) { error[i] = law_error(data, best, i); }
    fit->scatter = root_mean_square(error, count) * sqrt((double)count / (count - LAW_NUM));
    law_errors(error, data, data->n, best);
    law_errors(error + count, data, data->d, best);
    fit->left_out = root_mean_square(error, 2 * count);
    uint64_t draw = 0;
    for (int b = 0; b < LAW_REFITS; b++) {
        for (int i = 0; i < count; i++) { data->weight[i] = -log(1 - rng_uniform(seed, RNG_SAMPLE, draw++)); }
        memcpy(x, best, sizeof x);
        law_minimize(data, x);
        fit->refit[b] = law_of(data, x);
        const uint64_t bits = rng_u64(seed, RNG_SAMPLE, draw++);
        fit->error[b] = (bits & 1 ? 1 : -1) * error[(bits >> 1) % (2 * (uint64_t)count)];
    }
    free(error);
}

// Fails if the fitted numbers are no law: a term vanishes, or grows with its size or length.
static bool law_check_fit(const double x[LAW_NUM], int count, Error* err) {
    const double alpha = x[LAW_ALPHA], beta = x[LAW_BETA], least = 1e-3, most = 5; // published ones lie below 1
    if (x[LAW_LN_A] < LAW_LEAST || x[LAW_LN_B] < LAW_LEAST) {
        return fail(err, "%d runs that follow no law of this form: it finds no effect of their %s; give more sizes and "
                    "lengths", count, x[LAW_LN_A] < LAW_LEAST ? "parameters" : "tokens");
    }
    return (alpha > least && alpha < most && beta > least && beta < most) ||
           fail(err, "%d runs that follow no law of this form: its exponents would be %.3g for parameters and %.3g for "
                "tokens; give more sizes and lengths", count, alpha, beta);
}

bool law_fit(LawFit* fit, const LawRun* runs, int count, uint64_t seed, Error* err) {
    LawData data = law_data(runs, count);
    bool can_fit = law_check(&data, err);
    if (can_fit) {
        double best[LAW_NUM];
        law_search(&data, best);
        fit->best = law_of(&data, best);
        can_fit = law_check_fit(best, count, err);
        if (can_fit) { law_bootstrap(fit, &data, best, seed); }
    }
    free(data.n);
    return can_fit;
}

// ---------------------------------------------------------------------------------------------------------------------
// what follows from it

double law_loss(const Law* law, double parameters, double tokens) {
    double unused[LAW_NUM];
    return exp(law_log(law->x, log(parameters), log(tokens), unused));
}

double law_floor(const Law* law) { return law->x[LAW_LN_E] > LAW_LEAST ? exp(law->x[LAW_LN_E]) : 0; }

double law_best_size(const Law* law, double flops) {
    const double alpha = law->x[LAW_ALPHA], beta = law->x[LAW_BETA];
    if (alpha <= 0 || beta <= 0) { return alpha <= 0 ? 0 : INFINITY; }
    const double ln_ratio = log(alpha / beta) + law->x[LAW_LN_A] - law->x[LAW_LN_B];
    return exp((ln_ratio + beta * log(flops / 6)) / (alpha + beta));
}

// Returns the interval that 95% of the refits' values lie in; sorts them.
static Interval interval_of(double best, double values[LAW_REFITS]) {
    const int beyond = LAW_REFITS / 40;
    sort_doubles(values, LAW_REFITS);
    return (Interval){best, values[beyond], values[LAW_REFITS - 1 - beyond]};
}

Interval law_interval(const LawFit* fit, double (*value)(const Law*, const void*), const void* context) {
    double values[LAW_REFITS];
    for (int b = 0; b < LAW_REFITS; b++) { values[b] = value(&fit->refit[b], context); }
    return interval_of(value(&fit->best, context), values);
}

Interval law_forecast(const LawFit* fit, double parameters, double tokens) {
    double values[LAW_REFITS];
    for (int b = 0; b < LAW_REFITS; b++) {
        values[b] = law_loss(&fit->refit[b], parameters, tokens) * exp(fit->error[b]);
    }
    return interval_of(law_loss(&fit->best, parameters, tokens), values);
}
