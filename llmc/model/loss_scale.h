// Loss scaling (Micikevicius et al. 2018, "Mixed Precision Training"). In fp16 a gradient of an activation below 3e-8
// is zero. The loss is therefore multiplied by a scale, and with it every gradient; the optimizer divides by it again.
//
//   scale     dloss of gpt2_micro_step()
//   unscale   the norm: what is logged, compared with --grad_clip and judged as an outlier is the true norm
//   clip      together with unscaling, one factor in adamw_update()
//   update
//
// A scale is a power of two: it changes the exponents of gradients, and no other bit.
//
// A dynamic scale comes close to the largest one that the gradients allow, as PyTorch's GradScaler does. It begins at
// 65536.
// - A gradient that is not finite is an overflow: no rank updates its weights, and the scale halves.
// - After 2000 steps in a row without overflow it doubles.
// As in PyTorch's loops, a step that overflows counts: its batch is consumed, and the learning rate's schedule goes on.
// AdamW's bias correction counts updates that were made.
//
// With a fixed scale, or at scale 1, an overflow ends the run, as a norm that is not finite ends an unscaled run. A
// loss that is not finite ends it too: no scale can mend that.
#pragma once
#include "../base/base.h"
#include <jansson.h>

typedef struct {
    double scale;         // of the next step; 1: the loss is not scaled
    bool is_dynamic;
    long long good_steps; // without overflow, since the scale last changed
} LossScale;

// Reads --loss_scale: auto (dynamic with fp16, else off), off, dynamic, dynamic:START, or a fixed NUMBER. Fails if it
// is none of these, or if the number is not a power of two from 1 to 2^127.
bool loss_scale_parse(LossScale* s, const char* option, bool is_fp16, Error* err);

// Returns true if the loss is scaled.
bool loss_scale_is_on(const LossScale* s);

// Returns true if a smaller scale may mend an overflow.
bool loss_scale_can_shrink(const LossScale* s);

// Adapts a dynamic scale to the outcome of a step.
void loss_scale_update(LossScale* s, bool has_overflowed);

// Returns the state of a dynamic scale for state.json, a new reference.
json_t* loss_scale_to_json(const LossScale* s);

// Continues a dynamic scale from such a state; does nothing to a fixed one. Fails if no run can have written it.
bool loss_scale_from_json(LossScale* s, const json_t* saved, Error* err);
