// A trial trains a model for a few steps on given batches, outside of train(): `check` compares trials on two devices,
// `bench ladder` times them.
#pragma once
#include "../train/random_batch.h"
#include "../train/plan.h"

// ---------------------------------------------------------------------------------------------------------------------
// trials

typedef struct Trial Trial;

// Opens a model and an optimizer as planned, with initial weights. The device must be open. variants: device_kernels()
// of an earlier trial, so that this one uses the same variants and gives the same bits; NULL: the fastest are chosen by
// timing. Returns NULL with an Error if memory does not suffice.
Trial* trial_open(const Plan* p, const char* variants, Error* err);

// Frees the model, the optimizer and the trial.
void trial_close(Trial* t);

// Makes one update from the gradients of `micro_batches` full micro-batches, stored one after another in `batches`, and
// waits for it. Sets *loss to the mean loss of their tokens before the update and *norm to the norm of the gradient.
void trial_step(Trial* t, const int* batches, int micro_batches, double* loss, double* norm);

// Copies the gradients of the last step, or the fp32 weights, in the layout of the parameters (model->params_table.size
// floats).
typedef enum { TRIAL_GRADS, TRIAL_MASTERS } TrialPart;
void trial_read(const Trial* t, TrialPart part, float* out);

// Returns the model of a trial.
const GPT2* trial_model(const Trial* t);
