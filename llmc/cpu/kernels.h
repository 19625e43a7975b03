// All of the CPU: include this and llmc/ops.h is complete.
#pragma once
#include "device.h"
#include "../ops.h"
#include "encoder.h"
#include "layernorm.h"
#include "gelu.h"
#include "matmul.h"
#include "attention.h"
#include "crossentropy.h"
#include "norm.h"
#include "adamw.h"
#include "plan.h"
#include "peak.h"
