// A stand-in for the CUDA runtime, on the CPU: see README.md. Found before the toolkit's headers (-isystem).
//
// The parts, lowest first: types, errors, device memory, streams, graphs; fibers, the scheduler, shared memory,
// launches; functions that kernels call; inline PTX; and the runtime's functions.
#pragma once
#include "emu/types.h"
#include "emu/error.h"
#include "emu/memory.h"
#include "emu/stream.h"
#include "emu/graph.h"
#include "emu/fiber.h"
#include "emu/scheduler.h"
#include "emu/shared.h"
#include "emu/launch.h"
#include "emu/warp.h"
#include "emu/device.h"
#include "emu/ptx.h"
#include "emu/runtime_memory.h"
#include "emu/runtime_stream.h"
#include "emu/runtime_device.h"
