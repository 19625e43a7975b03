// Token and position embeddings. Backward gathers instead of scattering: the positions come sorted by token, so that
// each row of dwte is written by one thread, in one order.
#pragma once
#include "device.h"
#include "../ops.h"

OP void encoder_forward(float* out, const int* tokens, const floatX* wte, const floatX* wpe, int B, int T, int C) {
    #pragma omp parallel for
    for (int n = 0; n < B * T; n++) {
        const floatX* token = wte + (size_t)tokens[n] * C;
        const floatX* position = wpe + (size_t)(n % T) * C;
        for (int c = 0; c < C; c++) { out[(size_t)n * C + c] = to_float(token[c]) + to_float(position[c]); }
    }
}

OP void encoder_backward(float* dwte, float* dwpe, const float* dout, const int* tokens, const int* order, int B, int T, int C) {
    const int N = B * T;
    #pragma omp parallel for schedule(dynamic, 16)
    for (int first = 0; first < N; first++) {
        const int token = tokens[order[first]];
        if (first > 0 && tokens[order[first - 1]] == token) { continue; } // inside a run that another iteration sums
        float* row = dwte + (size_t)token * C;
        for (int i = first; i < N && tokens[order[i]] == token; i++) {
            for (int c = 0; c < C; c++) { row[c] += dout[(size_t)order[i] * C + c]; }
        }
    }
    #pragma omp parallel for
    for (int t = 0; t < T; t++) {
        for (int b = 0; b < B; b++) {
            for (int c = 0; c < C; c++) { dwpe[(size_t)t * C + c] += dout[((size_t)b * T + t) * C + c]; }
        }
    }
}
