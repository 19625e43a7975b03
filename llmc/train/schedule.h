// Schedules of the learning rate, of the batch size and of the sequence length. They are pure functions of the step and
// of the tokens seen, so that a resumed run needs no state for them.
#pragma once
#include "../base/base.h"
#include "../options/config.h"

typedef struct {
    enum schedule kind;
    double min_lr_frac, decay_frac;
    long long warmup_steps;
} Schedule;

// The next step and the steps of a run, by which its rates change. Both may be fractions: with a batch ramp, tokens
// over tokens of a full step.
typedef struct {
    double step, steps;
} StepCount;

// Returns the learning rate with this peak at `step` of `steps` (StepCount).
//   warm-up   peak * (step + 1) / warmup_steps
//   cosine    half a wave from the peak down to peak * min_lr_frac at the end (Loshchilov & Hutter 2017)
//   linear    a straight line between the same two
//   wsd       flat, and over the last decay_frac of the steps down to the minimum: by 1 - sqrt(part) (Hägele et al.
//             2024)
//   wsd_linear  the same, falling in a straight line
double schedule_rate(const Schedule* s, double peak, double step, double steps);

// Returns true at what is to be done every so many steps: before the first one, after each multiple of `every`, and
// after the last one; never if `every` is 0.
bool step_is_due(long long step, long long last_step, long long every);

// A size that grows: `start` at first, doubled at equal distances so that it is `full` after `tokens` tokens.
typedef struct {
    long long start;  // 0: no ramp, `full` from the beginning
    long long tokens;
    long long full;
    const char* text; // of the option, for errors
} Ramp;

// The longest ramp, in tokens (chosen: sums of it do not overflow).
#define MAX_RAMP_TOKENS 1000000000000000LL

// Returns the size in the step that begins after `seen` tokens.
long long ramp_size(const Ramp* ramp, long long seen);

// Reads START:TOKENS of an option (empty: no ramp), whose sizes the next two check.
bool ramp_parse(Ramp* ramp, const char* option, const char* text, Error* err);

// Sets the full size of --batch_ramp, the tokens of a step: it grows to a full batch, as in Brown et al. 2020. Fails if
// the sizes on the way would not be whole sequences of T, or not double up to the full batch.
bool batch_ramp_fit(Ramp* ramp, long long full, int T, Error* err);

// Sets the full size of --seq_ramp, the tokens of a sequence: it grows to T (Li et al. 2022, "The Stability-Efficiency
// Dilemma"). Fails if START does not double up to T. A step keeps its tokens, because the loader's windows of T tokens
// are cut into T / size sequences.
bool seq_ramp_fit(Ramp* ramp, int T, Error* err);

// Returns the steps from `seen` tokens on until at least `tokens` tokens were seen.
long long ramp_steps(const Ramp* batch, long long seen, long long tokens);
