// All kernels of the CPU, for tests that call them directly; backend.h is their contract.
#pragma once
#include "device.h"
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
