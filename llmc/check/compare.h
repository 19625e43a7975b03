// Measures the difference of two tensors, and bounds the differences between a device and the reference that rounding
// explains.
#pragma once
#include "op_cases.h"

typedef struct {
    double error;  // |got - want| / |want|, Euclidean norms; infinite if only `want` is zero
    double worst;  // the largest |got - want| of an element, over its |want| + the root mean square of all |want|
    double rest;   // the error if the element with the largest |got - want| had none
    double cosine; // of the angle between the two; 0 if one of them is zero, 1 if both are
} Difference;

// Compares two tensors of n >= 1 elements. If a number of either is not finite, all results are NaN: test with
// `error <= bound`, which is false for NaN.
Difference compare(const double* got, const double* want, size_t n);

// Compares a tensor of the model layer by layer: got with want or, unless `from` is NULL, got - from with want - from.
// All three point to the first element of the table. Returns the difference of the layer with the largest error, or of
// the first whose error is NaN; `rest` is the largest of any layer.
Difference compare_layers(const float* got, const float* want, const float* from, const Tensor* t);

// ---------------------------------------------------------------------------------------------------------------------
// bounds

// The largest relative errors of a tensor (Difference.error) that rounding explains, by --dtype.
//
// Operations see the same numbers on both sides. u is the unit roundoff of a type: fp32 2^-24, TF32 2^-11 (2^-10 where
// inputs are truncated, not rounded), bf16 2^-8, fp16 2^-11. Rounding changes a tensor of many normally distributed
// elements by 0.42 u of its norm.
//   exact     float results without matmuls: rounding grows with the square root of the K terms of a sum, and
//             u sqrt(50304) is 1.3e-5 at worst, for one long chain; sums in parts do better. exp and tanh add some u.
//   stored    the same, stored in the storage type: one more rounding. A residual stream in bf16 too
//   twice     residual_layernorm_forward with a residual stream in bf16: its sums are rounded, and what follows from
//             them is rounded again. The statistics too: that of a mean of rounded numbers is an error of 0.42 u
//   matmul    float results of matmuls and attention. fp32: as above. tf32: both factors are rounded, 2 u. bf16:
//             factors are exact, but tensor cores truncate the terms of a sum, some u of fp32 for each of up to K / 16
//             additions
//   rounded   the same, stored. bf16: up to five roundings in a row (scores, probabilities, their gradients, results)
//   logits    float results of the classifier, which pass through stored logits and their gradients
//   linear    results of linear layers with fp8, in backward; half of it in forward. u is 2^-4 for E4M3 and 2^-3 for
//             E5M2. The errors of both factors, 0.42 u each, together give 3.7e-2 for two E4M3, and 5.9e-2 for E4M3
//             and E5M2. Other operations and types have the bounds above
//   muon      muon_update: fifteen products in a row, each rounded; the iteration moves singular values back to 1, so
//             errors do not grow. Measured with bf16: 1.7e-2 for (3,1), 5e-3 for large matrices; with fp16 an eighth of
//             it; with fp32 1e-6. The bounds are 8 u (fp32: as above; tf32: truncated factors, 16 u)
//
// Training starts from the same fp32 weights on both sides; in bf16 they are rounded before the first step.
//   loss      the relative error of the loss, at each of the steps
//   norm      the relative error of the gradient's norm, at each of the steps. fp16 has an eighth of all bounds of bf16
//             that depend on u; of `gradient` a quarter, of `change` about a sixth, since gradients below 2^-14 have
//             fewer bits
//   gradient  of each tensor's gradient after one step. bf16: 4.4e-2 is a cosine of 0.999. fp8: twice the error
//             measured with 12 layers (0.13)
//   change    of each tensor's change from the initial to the last weights. fp32: this change is about 1e-3 of a
//             layernorm's weight, and rounding the weight to u is an error of 1e3 u of its change. AdamW
//             enlarges the errors of small gradients: a bias' change has ten times the error of its gradient with
//             bf16 (0.058 after one step), eight times with fp8 (0.46). Its first step goes by the sign of a gradient,
//             which rounding to 16 bits can turn around: one element of a tensor does not count there
typedef struct {
    enum dtype dtype;
    double exact, stored, matmul, rounded, logits;
    double twice;  // where Residual can be bf16, else 0
    double linear; // fp8 only, else 0
    double muon;
    double loss, norm, gradient, change;
} Bounds;

// Returns the bounds of a --dtype; ends the program if there are none.
const Bounds* bounds_of(enum dtype dtype);

// Returns the bound for the error of one tensor of an operation on this device.
double op_bound(const Bounds* b, const Backend* device, const char* op, Elem elem);

// Returns the error of a change that its bound is for. (Of a bias of 128 elements an H200 turned one around in bf16.)
double change_error(const Bounds* b, const Difference* d);

// Returns the bound for a single element (Difference.worst) of a tensor with this bound.
double element_bound(double bound);

// Returns true if both the tensor and its worst element are within their bounds.
bool is_within(const Difference* d, double bound);
