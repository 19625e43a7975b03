// All of the GPU: include this and llmc/ops.h is complete.
#pragma once
#include "device.cuh"
#include "../ops.h"
#include "encoder.cuh"
#include "layernorm.cuh"
#include "gelu.cuh"
#include "matmul.cuh"
#include "attention.cuh"
#include "crossentropy.cuh"
#include "norm.cuh"
#include "adamw.cuh"
#include "peak.cuh"
#include "choices.cuh"
