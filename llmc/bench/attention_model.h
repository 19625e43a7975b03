// Predicts the part of a GPU's peak that our flash attention (cuda/flash.cuh) reaches, from the machine code of its
// inner loops. Each of an SM's four schedulers starts one instruction a cycle, and each kind of instruction occupies
// its pipe for some cycles. The loop cannot take less than its busiest pipe: with the matmuls alone at the peak, that
// is the static bound.
//
// The part of that bound that is reached must be measured. FlashAttention-2 has the same structure and is bound by the
// same mma.sync; others measured its forward and backward on an H100 at 306 and 238 TFLOP/s with heads of 64 and 1024
// tokens (Shah et al. 2024, FlashAttention-3), of the 622 that mma.sync allows there. Ours is assumed to reach that
// part of its own bound.
#pragma once
#include "../cuda/gpus.h"

typedef enum { FLASH_FORWARD, FLASH_BACKWARD_KEYS, FLASH_BACKWARD_QUERIES, NUM_FLASH_LOOPS } FlashLoop;

// Returns the part of the peak in 16 bits of all the loop's matmuls that its instructions allow.
double flash_static_bound(const GpuFacts* gpu, FlashLoop loop);

// Returns the part of that peak that attention is predicted to reach with T tokens, of the FLOPs that it needs:
// backward needs five matmuls where our kernels do seven. Measured machine code: heads of 64 channels; others are
// assumed alike.
double flash_part_of_peak(const GpuFacts* gpu, bool forward, int T);
