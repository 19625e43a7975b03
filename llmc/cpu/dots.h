// Dot products with rows of a weight, and the matmul of few rows over them, for each type of the weight's elements.
//
// Part of few_rows.h, which says how. WEIGHED() adds the type to the name of a function.

// sum (inputs,rows) += DOT_LANES columns of x (inputs) times those of w (rows). Inlined, as dot_tile, with constant
// `inputs` and `rows`.
static inline __attribute__((always_inline)) void WEIGHED(dot_step)(DotVec sum[DOT_INPUTS][DOT_ROWS], const float* x,
                                                                    size_t ldx, const WEIGHT* w, size_t ldw,
                                                                    int inputs, int rows) {
    #pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
        const DotVec row = WEIGHED(dot_load)(w + (size_t)r * ldw);
        #pragma GCC unroll 4
        for (int m = 0; m < inputs; m++) { sum[m][r] += row * *(const DotVec*)(x + (size_t)m * ldx); }
    }
}

// out (inputs,rows) = x (inputs,n) @ w (rows,n)^T. Rows of out are ldo apart, of x ldx, of w ldw.
static inline __attribute__((always_inline)) void WEIGHED(dot_tile)(float* out, size_t ldo, const float* x, size_t ldx,
                                                                    const WEIGHT* w, size_t ldw, int inputs, int rows,
                                                                    int n) {
    enum { LINE = 64 / sizeof(WEIGHT) }; // elements in a cache line
    DotVec sum[DOT_INPUTS][DOT_ROWS] = {{{0}}};
    int i = 0;
    for (; i + LINE <= n; i += LINE) {
        #pragma GCC unroll 4
        for (int r = 0; r < rows; r++) { // of the next tile: the processor's own prefetching stops at each page
            __builtin_prefetch(w + (size_t)(r + DOT_ROWS) * ldw + i);
        }
        #pragma GCC unroll 4
        for (int k = i; k < i + LINE; k += DOT_LANES) {
            WEIGHED(dot_step)(sum, x + k, ldx, w + k, ldw, inputs, rows);
        }
    }
    for (; i + DOT_LANES <= n; i += DOT_LANES) { WEIGHED(dot_step)(sum, x + i, ldx, w + i, ldw, inputs, rows); }
    #pragma GCC unroll 4
    for (int m = 0; m < inputs; m++) {
        #pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            float total = dot_lanes(sum[m][r]);
            for (int j = i; j < n; j++) {
                total += x[(size_t)m * ldx + j] * WEIGHED(dot_float)(w[(size_t)r * ldw + j]);
            }
            out[(size_t)m * ldo + r] = total;
        }
    }
}

// The same for any `inputs`, and up to DOT_ROWS rows.
static inline void WEIGHED(dot_products)(float* out, size_t ldo, const float* x, size_t ldx, const WEIGHT* w,
                                         size_t ldw, int inputs, int rows, int n) {
    int m = 0;
    for (; rows == DOT_ROWS && m + DOT_INPUTS <= inputs; m += DOT_INPUTS) {
        WEIGHED(dot_tile)(out, ldo, x, ldx, w, ldw, DOT_INPUTS, DOT_ROWS, n);
        out += DOT_INPUTS * ldo, x += DOT_INPUTS * ldx;
    }
    for (; m < inputs; m++, out += ldo, x += ldx) {
        if (rows == DOT_ROWS) {
            WEIGHED(dot_tile)(out, ldo, x, ldx, w, ldw, 1, DOT_ROWS, n);
            continue;
        }
        for (int r = 0; r < rows; r++) {
            WEIGHED(dot_tile)(out + r, ldo, x, ldx, w + (size_t)r * ldw, ldw, 1, 1, n);
        }
    }
}

// out (N,OC) = inp (N,C) @ weight (OC,C)^T * scale (OC) + bias (OC), for up to FEW_ROWS rows. scale and bias may be
// NULL.
static inline void WEIGHED(matmul_few_rows)(Stored* out, const Stored* inp, const WEIGHT* weight, const float* scale,
                                            const Stored* bias, int N, int C, int OC) {
    const size_t n = (size_t)N * C;
    const float* x = dot_floats(thread_scratch(n * sizeof(float)), inp, n);
    #pragma omp parallel for if (n * OC >= DOT_SHARED)
    for (int o = 0; o < OC; o += DOT_ROWS) {
        float sums[FEW_ROWS * DOT_ROWS];
        const int rows = min_int(DOT_ROWS, OC - o);
        WEIGHED(dot_products)(sums, DOT_ROWS, x, (size_t)C, weight + (size_t)o * C, (size_t)C, N, rows, C);
        for (int m = 0; m < N; m++) {
            for (int r = 0; r < rows; r++) {
                const float sum = sums[m * DOT_ROWS + r] * (scale ? scale[o + r] : 1.0f);
                out[(size_t)m * OC + o + r] = to_stored(bias ? sum + to_float(bias[o + r]) : sum);
            }
        }
    }
}
