// Schedules of the learning rate and of the batch size. Both are pure functions of the step and of the tokens seen, so
// that a resumed run needs no state for them.
#pragma once
#include "base.h"
#include "config.h"

// Returns the learning rate at `step` of `steps` (both may be fractions: with a batch ramp, tokens seen / tokens of a
// full step).
//   warm-up   lr * (step + 1) / warmup_steps
//   cosine    half a wave from lr down to lr * min_lr_frac at the end (Loshchilov & Hutter 2017)
//   linear    a straight line between the same two
//   wsd       flat, and over the last decay_frac of the steps down to the minimum: by 1 - sqrt(part) (Hägele et al.
//             2024), or in a straight line (decay_shape)
double schedule_lr(const Config* c, double step, double steps);

// --batch_ramp START:TOKENS (Brown et al. 2020 grew the batch likewise): START tokens a step at first, doubled at equal
// distances so that the full batch is reached after TOKENS tokens.
typedef struct {
    long long start;  // tokens; 0: no ramp
    long long tokens;
    long long full;   // --total_batch_size
} BatchRamp;

// The longest ramp, in tokens (chosen: sums of it do not overflow).
#define MAX_RAMP_TOKENS 1000000000000000LL

// Reads --batch_ramp (empty: no ramp) for a full batch of `full` tokens and sequences of T. Fails if the sizes on the
// way would not be whole sequences, or not double up to the full batch.
bool ramp_parse(const char* text, long long full, int T, BatchRamp* ramp, Error* err);

// Returns the tokens of the step that begins after `seen` tokens.
long long ramp_batch(const BatchRamp* ramp, long long seen);

// Returns the factor of the learning rate for the step that begins after `seen` tokens (--ramp_lr): the square root of
// its batch over the full one, as Adam's steps, whose noise falls with the batch's root, allow (Malladi et al. 2022).
double ramp_lr_factor(const BatchRamp* ramp, long long seen);

// Returns the steps until at least `tokens` tokens were seen.
long long ramp_steps(const BatchRamp* ramp, long long tokens);
