// The operations on the residual stream, for each type that it can have. encoder.h and layernorm.h are written over
// RESIDUAL and compiled once for fp32 and once for bf16. TYPED() adds the type to the name of a function:
// TYPED(layernorm_forward) is layernorm_forward_fp32, then layernorm_forward_bf16.
#pragma once
#include "device.h"

#define TYPED(function) JOIN(function, JOIN(_, RESIDUAL))
#define residual_to_float JOIN(RESIDUAL, _to_float)
#define residual_from_float JOIN(RESIDUAL, _from_float)

static const float LAYERNORM_EPS = 1e-5f;
enum { LAYERNORM_BLOCKS = 256 }; // maximum number of blocks of rows in backward; chosen, not measured

#define RESIDUAL fp32
#include "encoder.h"
#include "layernorm.h"
#undef RESIDUAL

#define RESIDUAL bf16
#include "encoder.h"
#include "layernorm.h"
#undef RESIDUAL
