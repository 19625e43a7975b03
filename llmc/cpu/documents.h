// The documents of packed sequences, which attention does not cross with --document_mask.
#pragma once
#include "device.h"

static inline void document_bounds(int* starts, int* ends, const int* tokens, int eot, int B, int T) {
    for (int b = 0; b < B; b++, starts += T, ends += T, tokens += T) {
        for (int t = 0; t < T; t++) { starts[t] = t == 0 || tokens[t] == eot ? t : starts[t - 1]; }
        for (int t = T - 1; t >= 0; t--) { ends[t] = t == T - 1 || tokens[t + 1] == eot ? t + 1 : ends[t + 1]; }
    }
}
