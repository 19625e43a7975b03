// Fits a law of loss to finished runs, and forecasts other runs by it:
//
//     L(N, D) = E + A / N^alpha + B / D^beta
//
// N is the number of parameters, D of tokens, E the loss that neither lowers: the text's own entropy, if the law holds.
// Kaplan et al. 2020 ("Scaling laws for neural language models") found that losses follow such powers over many
// decades. The sum is approach 3 of Hoffmann et al. 2022 ("Training compute-optimal large language models"), and so is
// the fit: from a grid of starts it minimizes the sum over the runs of Huber's loss (delta = 1e-3) of
//
//     ln L - ln(exp(ln A - alpha ln N) + exp(ln B - beta ln D) + exp(ln E))
//
// and takes the lowest minimum. Besiroglu et al. 2024 ("Chinchilla scaling: a replication attempt") show what went
// wrong in 2022: losses were averaged, so that the optimizer stopped early; the printed numbers had too few digits to
// compute with; the intervals were far too narrow. Here losses are summed, the fit ends when a step changes the sum by
// less than 1e-12 of it, and intervals come from a bootstrap.
//
// The bootstrap is Rubin's (1981, "The Bayesian bootstrap"): each refit gives each run a random weight from an
// exponential distribution. Plain resampling would drop whole sizes from a small set of runs.
//
// The law is not exact: sizes and lengths beyond the fitted ones miss it by more than single runs scatter. So the
// interval of a forecast adds to each refit the error of a run whose size or length was left out of a fit.
#pragma once
#include "../base/base.h"

enum { LAW_LN_E, LAW_LN_A, LAW_ALPHA, LAW_LN_B, LAW_BETA, LAW_NUM };
enum { LAW_REFITS = 500, LAW_MOST_RUNS = 4096 };

typedef struct {
    double x[LAW_NUM]; // E, A and B as logarithms
} Law;

typedef struct {
    double parameters, tokens, loss;
} LawRun;

typedef struct {
    Law best, refit[LAW_REFITS];
    double error[LAW_REFITS]; // for each refit a random error ln(loss / law) of a run that was left out, up or down
    double scatter, left_out; // root mean square of ln(loss / law): of the fitted runs, and of runs left out
} LawFit;

// A value and where it lies in 95% of the refits.
typedef struct {
    double value, low, high;
} Interval;

// Fits the law; equal seeds give equal intervals. Fails if the runs cannot tell its five numbers: fewer than seven
// runs, three sizes or three lengths, a term that vanishes, or exponents that are not between 0.001 and 5.
bool law_fit(LawFit* fit, const LawRun* runs, int count, uint64_t seed, Error* err);

// Returns the loss that a law gives for a run.
double law_loss(const Law* law, double parameters, double tokens);

// Returns E; 0 if it is so small that the runs cannot tell it from 0.
double law_floor(const Law* law);

// Returns the parameters with which `flops` = 6 * parameters * tokens give the lowest loss (Hoffmann et al., eq. 4).
// Refits can have exponents below 0: by them the smallest model is best, 0, or the largest, INFINITY.
double law_best_size(const Law* law, double flops);

// Returns `value` of the best law, and the interval of its values of the refits. `context` is passed on.
Interval law_interval(const LawFit* fit, double (*value)(const Law* law, const void* context), const void* context);

// Returns the loss to expect of one new run; the interval includes the errors of single runs.
Interval law_forecast(const LawFit* fit, double parameters, double tokens);
