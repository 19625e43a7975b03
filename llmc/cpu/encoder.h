// Embeddings: a token's row of wte plus its position's row of wpe. Backward gathers instead of scattering: positions
// are sorted by token, so that one thread sums each row of dwte, in a fixed order.
//
// Part of residual.h, for each type of the residual stream.

static inline void TYPED(encoder_forward)(Residual* out, const int* tokens, const Stored* wte, const Stored* wpe, int B,
                                          int T, int C) {
    #pragma omp parallel for if (B * T > 1)
    for (int n = 0; n < B * T; n++) {
        const Stored *token = wte + (size_t)tokens[n] * C, *position = wpe + (size_t)(n % T) * C;
        RESIDUAL* row = (RESIDUAL*)out + (size_t)n * C;
        #pragma omp simd
        for (int c = 0; c < C; c++) { row[c] = residual_from_float(to_float(token[c]) + to_float(position[c])); }
    }
}

static inline void TYPED(add_row)(float* sum, const RESIDUAL* row, int C) {
    #pragma omp simd
    for (int c = 0; c < C; c++) { sum[c] += residual_to_float(row[c]); }
}

static inline void TYPED(encoder_backward)(float* dwte, float* dwpe, const Residual* dout, const int* tokens,
                                           const int* order, int B, int T, int C) {
    const int N = B * T;
    const RESIDUAL* rows = (const RESIDUAL*)dout;
    #pragma omp parallel
    {
        #pragma omp for nowait schedule(dynamic, 16)
        for (int first = 0; first < N; first++) {
            const int token = tokens[order[first]];
            if (first > 0 && tokens[order[first - 1]] == token) { continue; } // an earlier iteration sums this token
            for (int i = first; i < N && tokens[order[i]] == token; i++) {
                TYPED(add_row)(dwte + (size_t)token * C, rows + (size_t)order[i] * C, C);
            }
        }
        #pragma omp for
        for (int t = 0; t < T; t++) {
            for (int b = 0; b < B; b++) { TYPED(add_row)(dwpe + (size_t)t * C, rows + ((size_t)b * T + t) * C, C); }
        }
    }
}
