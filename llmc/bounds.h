// How far `check` lets a device be from the reference.
#pragma once
#include "compare.h"
#include "harness.h"

// The largest relative errors that rounding explains, by tensor (Difference.error).
//
// Operations see the same numbers on both sides. u is the unit roundoff of a type: fp32 2^-24, TF32 2^-11 (2^-10 where
// inputs are cut, not rounded), bf16 2^-9.
//   exact     float results without products: rounding grows with the square root of the K terms of a sum, and
//             u sqrt(50304) is 1.3e-5 at worst, for one long chain; sums in parts do better. exp and tanh add some u.
//   stored    of those what is stored as floatX: one more rounding
//   product   float results of matmuls and attention. fp32: as above. tf32: both factors are rounded, 2 u. bf16:
//             factors are exact, but tensor cores cut what they add, some u of fp32 for each of up to K / 16 additions
//   rounded   those as floatX. bf16: up to five roundings in a row (scores, probabilities, their gradients, results)
//   logits    float results of the classifier, which come through logits and their gradients as floatX
//   linear    results of linear layers with fp8, in backward; half of it in forward. u is 2^-4 for E4M3 and 2^-3 for
//             E5M2, and what rounding does to a tensor is 0.42 u of its size: 3.7e-2 for the product of two E4M3,
//             5.9e-2 with E5M2. Those of other operations and types are the above
//
// Training starts from the same weights, but bf16 rounds them at once.
//   loss      relative, at each of the steps
//   norm      the same, of the gradient's norm
//   gradient  after one step. bf16: 4.4e-2 is a cosine of 0.999. fp8: twice of what was seen in 12 layers (0.13)
//   change    of the weights after the last step from the initial ones. fp32: that is about 1e-3 of a layernorm's
//             weight, which is rounded to u of itself. AdamW makes errors of small elements larger: of a bias' by
//             ten with bf16, by eight with fp8 (0.46)
typedef struct {
    const char* dtype;
    double exact, stored, product, rounded, logits;
    double linear; // of linear layers, where their factors are coarser than all others; else 0
    double loss, norm, gradient, change;
} Bounds;

static const Bounds BOUNDS[] = {
    //       exact stored product rounded logits linear loss  norm  gradient change
    {"fp32", 1e-5, 1e-5, 1e-5, 1e-5, 1e-5, 0, 1e-5, 1e-5, 1e-5, 1e-4},
    {"tf32", 1e-5, 1e-5, 2e-3, 2e-3, 2e-3, 0, 1e-4, 5e-3, 1e-2, 1e-2},
    {"bf16", 1e-5, 2e-3, 1e-4, 1e-2, 1e-2, 0, 1e-3, 2e-2, 4.4e-2, 5e-2},
    {"fp8", 1e-5, 2e-3, 1e-4, 1e-2, 1e-2, 8e-2, 2e-3, 3e-2, 2.5e-1, 7e-1},
};

// How far a single element may be off, in bounds (Difference.worst): the largest of 10^8 normal numbers is below 6
// deviations; one element in a million that is simply wrong does not show in the error of the tensor, but here.
enum { ELEMENT_FACTOR = 16 };

static inline const Bounds* bounds_of(const char* dtype) {
    for (size_t i = 0; i < sizeof BOUNDS / sizeof *BOUNDS; i++) {
        if (!strcmp(BOUNDS[i].dtype, dtype)) { return &BOUNDS[i]; }
    }
    fatal("check knows no bounds for --dtype %s", dtype);
}

static inline double op_bound(const Bounds* b, const char* op, Elem elem) {
    const bool classifies = strstr(op, "classifier") != NULL;
    const bool multiplies = classifies || strstr(op, "matmul") || strstr(op, "attention");
    if (!multiplies) { return elem == ELEM_FLOATX ? b->stored : b->exact; }
    if (b->linear > 0 && strstr(op, "matmul")) { return strstr(op, "forward") ? b->linear / 2 : b->linear; }
    return elem == ELEM_FLOATX ? b->rounded : classifies ? b->logits : b->product;
}

static inline bool is_within(const Difference* d, double bound) {
    return d->error <= bound && d->worst <= ELEMENT_FACTOR * bound;
}
