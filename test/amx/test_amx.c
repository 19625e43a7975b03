// The emulated tiles: matmuls bit for bit as in Intel's manual, shapes, and faults.
#include <immintrin.h>
#include "../../llmc/base/rng.h"
#include "../test.h"
#include <signal.h>

// ---------------------------------------------------------------------------------------------------------------------
// the manual's pseudocode, number by number

static float flush(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0.0f, x) : x; }
static float make_fp32(uint16_t bf16) { return flush(float_of_bits((uint32_t)bf16 << 16)); }

// c (rows,cols) += a (rows,2*pairs) @ b (2*pairs,cols), b in pairs
static void matmul(float* c, const uint16_t* a, const uint16_t* b, int rows, int cols, int pairs) {
    for (int m = 0; m < rows; m++) {
        for (int n = 0; n < cols; n++) {
            float sum[2] = {0, 0};
            for (int k = 0; k < pairs; k++) {
                for (int i = 0; i < 2; i++) {
                    const float x = make_fp32(a[m * 32 + 2 * k + i]), y = make_fp32(b[k * 32 + 2 * n + i]);
                    sum[i] = flush(fmaf(x, y, sum[i]));
                }
            }
            c[m * 16 + n] = flush(flush(c[m * 16 + n]) + flush(sum[0] + sum[1]));
        }
    }
}

// ---------------------------------------------------------------------------------------------------------------------

// Returns the shapes of tiles 0 (c), 1 (a), 2 (b) and 3 (16 rows of 64 bytes); others have none.
static AmxConfig config_of(int rows, int cols, int pairs) {
    AmxConfig c;
    memset(&c, 0, sizeof c);
    c.palette = 1;
    c.rows[0] = c.rows[1] = (uint8_t)rows;
    c.row_bytes[0] = c.row_bytes[2] = (uint16_t)(4 * cols);
    c.row_bytes[1] = (uint16_t)(4 * pairs);
    c.rows[2] = (uint8_t)pairs;
    c.rows[3] = 16;
    c.row_bytes[3] = 64;
    return c;
}

static void configure(int rows, int cols, int pairs) {
    const AmxConfig c = config_of(rows, cols, pairs);
    _tile_loadconfig(&c);
}

// Ranges of random numbers: ANY, with denormals, infinities and NaN; NEAR_ONE, so that each step rounds; TINY, so that
// products are the smallest normal numbers, and sums often denormal.
typedef enum { ANY, NEAR_ONE, TINY, RANGES } Range;

static uint16_t some_bf16(uint64_t i, Range range) {
    const unsigned bits = (uint16_t)rng_u64(9, RNG_TEST, i);
    return (uint16_t)(range == ANY ? bits : (bits & 0x81ff) | (range == NEAR_ONE ? 0x3e00 : 0x2000));
}

static void check_matmul(int rows, int cols, int pairs, Range range, uint64_t seed) {
    uint16_t a[16 * 32], b[16 * 32];
    float c[16 * 16], want[16 * 16];
    for (int i = 0; i < 16 * 32; i++) {
        a[i] = some_bf16(seed * 4096 + (uint64_t)i, range);
        b[i] = some_bf16(seed * 4096 + 512 + (uint64_t)i, range);
    }
    for (int i = 0; i < 16 * 16; i++) {
        c[i] = want[i] = rng_normal(seed, RNG_TEST, (uint64_t)i) * (range == TINY ? 0x1p-126f : 1.0f);
    }
    configure(rows, cols, pairs);
    _tile_loadd(0, c, 64);
    _tile_loadd(1, a, 64);
    _tile_stream_loadd(2, b, 64);
    _tile_dpbf16ps(0, 1, 2);
    _tile_stored(0, c, 64);
    matmul(want, a, b, rows, cols, pairs);
    int wrong = 0;
    for (int i = 0; i < 16 * 16; i++) {
        const bool both_nan = c[i] != c[i] && want[i] != want[i];
        wrong += !both_nan && bits_of_float(c[i]) != bits_of_float(want[i]);
    }
    if (wrong) { TEST_FAIL("(%d,%d) @ (%d,%d): %d numbers differ", rows, 2 * pairs, 2 * pairs, cols, wrong); }
}

TEST(matmuls_are_those_of_the_manual_bit_for_bit) {
    const int sizes[5] = {1, 3, 8, 15, 16};
    for (int i = 0; i < 125; i++) {
        for (int range = 0; range < RANGES; range++) {
            check_matmul(sizes[i % 5], sizes[i / 5 % 5], sizes[i / 25], (Range)range, (uint64_t)(RANGES * i + range));
        }
    }
}

TEST(matmuls_ignore_and_keep_mxcsr) {
    const unsigned kept = _mm_getcsr(), upward = 0x5f80;
    _mm_setcsr(upward);
    uint16_t a[32] = {0x3f80, 0x3f80}, b[32] = {0x3f80, 0x3300}; // 1 * 1 + 1 * 2^-25
    float c = 0;
    configure(1, 1, 1);
    _tile_zero(0);
    _tile_loadd(1, a, 64);
    _tile_loadd(2, b, 64);
    _tile_dpbf16ps(0, 1, 2);
    _tile_stored(0, &c, 64);
    const unsigned after = _mm_getcsr();
    _mm_setcsr(kept);
    EXPECT(c == 1.0f && after == upward);
}

TEST(loads_and_stores_keep_to_the_shape) {
    enum { ROWS = 5, COLS = 3, STRIDE = 20, BYTES = (ROWS - 1) * STRIDE + 4 * COLS };
    unsigned char from[1024], to[1024], all[1024];
    for (int i = 0; i < 1024; i++) { from[i] = (unsigned char)(i % 251 + 1); }
    configure(ROWS, COLS, 1);
    memset(to, 0, sizeof to);
    void* no_more = alloc_or_die(BYTES, 1, "a test"); // so that the address sanitizer finds reads beyond
    memcpy(no_more, from, BYTES);
    _tile_loadd(0, no_more, STRIDE);
    _tile_stored(0, to, STRIDE);
    free(no_more);
    for (int i = 0; i < 1024; i++) {
        const bool inside = i / STRIDE < ROWS && i % STRIDE < 4 * COLS;
        EXPECT(to[i] == (inside ? from[i] : 0));
    }
    _tile_loadd(3, from, 64);
    _tile_stored(3, all, 64);
    EXPECT(!memcmp(all, from, sizeof all));
    _tile_zero(3);
    _tile_stored(3, all, 64);
    configure(ROWS, COLS, 1); // all tiles become zero
    _tile_stored(0, to, STRIDE);
    for (int i = 0; i < 1024; i++) { EXPECT(all[i] == 0 && (i >= STRIDE * ROWS || to[i] == 0)); }
}

// ---------------------------------------------------------------------------------------------------------------------
// faults: abort() with a message; leave() turns the signal into an exit code

static void leave(int signal) { _exit(signal); }

#define EXPECT_FAULT(words, ...) EXPECT_DEATH(SIGABRT, words, signal(SIGABRT, leave); __VA_ARGS__)

static void configure_with(size_t offset, uint8_t value) {
    AmxConfig c = config_of(16, 16, 16);
    memcpy((char*)&c + offset, &value, 1);
    _tile_loadconfig(&c);
}

TEST(faults_end_the_program) {
    char memory[1024] = {0};
    _tile_release();
    EXPECT_FAULT("not configured", _tile_zero(0));
    EXPECT_FAULT("not configured", _tile_loadd(0, memory, 64));
    EXPECT_FAULT("not configured", configure(1, 1, 1); _tile_release(); _tile_stored(0, memory, 64));
    configure(4, 5, 6);
    EXPECT_FAULT("tile 4 has no shape", _tile_zero(4));
    EXPECT_FAULT("no tile 8", _tile_zero(8));
    const size_t rows = offsetof(AmxConfig, rows), row_bytes = offsetof(AmxConfig, row_bytes);
    EXPECT_FAULT("do not fit", configure_with(rows + 1, 7); _tile_dpbf16ps(0, 1, 2));           // rows of a
    EXPECT_FAULT("do not fit", configure_with(rows + 2, 7); _tile_dpbf16ps(0, 1, 2));           // rows of b
    EXPECT_FAULT("do not fit", configure_with(row_bytes + 2 * 1, 60); _tile_dpbf16ps(0, 1, 2)); // columns of a
    EXPECT_FAULT("do not fit", configure_with(row_bytes + 2 * 2, 60); _tile_dpbf16ps(0, 1, 2)); // columns of b
    EXPECT_FAULT("do not fit", configure_with(row_bytes + 2 * 1, 63); _tile_dpbf16ps(0, 1, 2)); // half pairs
    configure(16, 16, 16);
    EXPECT_FAULT("a tile twice: 0 0 2", _tile_dpbf16ps(0, 0, 2));
    EXPECT_FAULT("a tile twice: 0 1 0", _tile_dpbf16ps(0, 1, 0));
    EXPECT_FAULT("a tile twice: 0 1 1", _tile_dpbf16ps(0, 1, 1));
    EXPECT_FAULT("palette 2", configure_with(offsetof(AmxConfig, palette), 2));
    EXPECT_FAULT("reserved", configure_with(offsetof(AmxConfig, reserved) + 13, 1));
    EXPECT_FAULT("tile 7 of 1 rows, 0 bytes", configure_with(rows + 7, 1));
    EXPECT_FAULT("tile 0 of 17 rows", configure_with(rows, 17));
    EXPECT_FAULT("tile 1 of 16 rows, 65 bytes", configure_with(row_bytes + 2, 65));
    EXPECT_FAULT("tile 8, which does not exist", configure_with(rows + 8, 1));
}

TEST(a_thread_configures_its_own_tiles) {
#ifdef _OPENMP
    configure(1, 1, 1);
    int configured = 0;
    #pragma omp parallel num_threads(3) reduction(+ : configured)
    configured += amx.config.palette;
    EXPECT(configured == 1);
#else
    SKIP("built without OpenMP");
#endif
}

TEST_MAIN()
