// Random numbers: their distribution, independent streams, pinned values. Bounds are four to six standard deviations
// wide. All numbers are fixed by their seeds, so the results are the same each time.
#include "llmc/base/rng.h"
#include "test/test.h"

enum { N = 400000 };

TEST(pinned_values) { // a change here changes initial weights, data order and samples of every run
    EXPECT(rng_u64(0, 0, 0) == 0x31042cc5515af7eeull);
    EXPECT(rng_u64(1337, RNG_INIT, 0) == 0x4b8711483d702a78ull);
    EXPECT(rng_u64(1337, RNG_SHUFFLE, 1000000007) == 0x9ff25335c9fb4356ull);
    EXPECT(rng_uniform(1337, RNG_SAMPLE, 5) == 0.20265313652005623);
    // logf and cosf differ in the last bit among libraries
    EXPECT_NEAR(rng_normal(1337, RNG_INIT, 0), 0.0981800109, 1e-7);
    EXPECT_NEAR(rng_normal(42, RNG_TEST, 12345), 0.274409533, 3e-7);
}

TEST(uniform_numbers_fill_their_range_evenly) {
    enum { BINS = 64 };
    double sum = 0, squares = 0, chi = 0;
    int bins[BINS] = {0};
    for (uint64_t i = 0; i < N; i++) {
        const double u = rng_uniform(3, RNG_TEST, i);
        if (!(u >= 0 && u < 1)) { TEST_FAIL("%g is outside [0,1)", u); }
        sum += u, squares += (u - 0.5) * (u - 0.5);
        bins[(int)(u * BINS) % BINS]++;
    }
    EXPECT_NEAR(sum / N, 0.5, 5 * 0.2887 / sqrt(N));
    EXPECT_NEAR(squares / N, 1.0 / 12, 5 * 0.0745 / sqrt(N));
    for (int b = 0; b < BINS; b++) { chi += pow(bins[b] - (double)N / BINS, 2) / ((double)N / BINS); }
    EXPECT(chi > 20 && chi < 130); // 63 are expected, with a standard deviation of 11
}

TEST(bits_are_set_half_the_time_and_pairwise_independent) {
    static int set[64], pairs[64][64];
    enum { DRAWS = 40000 };
    for (uint64_t i = 0; i < DRAWS; i++) {
        const uint64_t x = rng_u64(9, RNG_TEST, i);
        for (int a = 0; a < 64; a++) {
            set[a] += (int)(x >> a & 1);
            for (int b = 0; b < a; b++) { pairs[a][b] += (int)((x >> a ^ x >> b) & 1); }
        }
    }
    const double bound = 6 * 0.5 * sqrt(DRAWS);
    for (int a = 0; a < 64; a++) {
        EXPECT_NEAR(set[a], DRAWS / 2.0, bound);
        for (int b = 0; b < a; b++) { EXPECT_NEAR(pairs[a][b], DRAWS / 2.0, bound); }
    }
}

TEST(normal_numbers_have_the_moments_and_tails_of_a_normal_distribution) {
    double m1 = 0, m2 = 0, m3 = 0, m4 = 0, most = 0;
    int beyond[5] = {0};
    for (uint64_t i = 0; i < N; i++) {
        const double x = (double)rng_normal(1, RNG_TEST, i);
        m1 += x, m2 += x * x, m3 += x * x * x, m4 += x * x * x * x;
        most = fmax(most, fabs(x));
        for (int t = 1; t < 5; t++) { beyond[t] += fabs(x) > t; }
    }
    EXPECT_NEAR(m1 / N, 0, 5 / sqrt(N));
    EXPECT_NEAR(m2 / N, 1, 5 * sqrt(2.0 / N));
    EXPECT_NEAR(m3 / N, 0, 5 * sqrt(15.0 / N));
    EXPECT_NEAR(m4 / N, 3, 5 * sqrt(96.0 / N));
    EXPECT_NEAR(beyond[1] / (double)N, 0.31731, 5 * 0.466 / sqrt(N));
    EXPECT_NEAR(beyond[2] / (double)N, 0.04550, 5 * 0.209 / sqrt(N));
    EXPECT_NEAR(beyond[3] / (double)N, 0.00270, 5 * 0.052 / sqrt(N));
    EXPECT(beyond[4] > 5 && beyond[4] < 60 && most > 4.2 && most < 6.7); // 25 are expected
}

static double correlation(double (*x)(uint64_t), double (*y)(uint64_t)) {
    double xy = 0, xx = 0, yy = 0;
    for (uint64_t i = 0; i < N / 4; i++) { xy += x(i) * y(i), xx += x(i) * x(i), yy += y(i) * y(i); }
    return xy / sqrt(xx * yy);
}
static double base(uint64_t i) { return (double)rng_normal(5, RNG_INIT, i); }
static double other_stream(uint64_t i) { return (double)rng_normal(5, RNG_SHUFFLE, i); }
static double other_seed(uint64_t i) { return (double)rng_normal(6, RNG_INIT, i); }
static double next_index(uint64_t i) { return (double)rng_normal(5, RNG_INIT, i + 1); }
// as in weights.c, where each tensor has a stream
static double far_stream(uint64_t i) { return (double)rng_normal(5, RNG_INIT + (1ull << 32), i); }
static double swapped(uint64_t i) { return (double)rng_normal(i, RNG_INIT, 5); }
static double by_stream(uint64_t i) { return (double)rng_normal(5, i, 1); }

TEST(streams_seeds_and_neighbours_are_unrelated) {
    double (*const others[])(uint64_t) = {other_stream, other_seed, next_index, far_stream, swapped, by_stream};
    for (int i = 0; i < 6; i++) { EXPECT_NEAR(correlation(base, others[i]), 0, 5 / sqrt(N / 4)); }
    EXPECT_NEAR(correlation(base, base), 1, 1e-9);
}

static int compare_u64(const void* a, const void* b) {
    const uint64_t x = *(const uint64_t*)a, y = *(const uint64_t*)b;
    return (x > y) - (x < y);
}

TEST(no_number_comes_twice) { // near seeds, streams and indices must not give the same key
    enum { SEEDS = 8, STREAMS = 8, INDICES = 4096, ALL = SEEDS * STREAMS * INDICES };
    uint64_t* x = (uint64_t*)alloc_or_die(ALL, sizeof *x, "numbers");
    size_t n = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        for (uint64_t stream = 0; stream < STREAMS; stream++) {
            for (uint64_t i = 0; i < INDICES; i++) { x[n++] = rng_u64(seed, stream, i); }
        }
    }
    qsort(x, n, sizeof *x, compare_u64);
    size_t twice = 0;
    for (size_t i = 1; i < n; i++) { twice += x[i] == x[i - 1]; }
    EXPECT(twice == 0); // by chance: probability 2e-9
    free(x);
}

TEST(a_number_depends_on_nothing_drawn_before) {
    double forward[100], backward[100];
    for (uint64_t i = 0; i < 100; i++) {
        forward[i] = rng_uniform(2, RNG_TEST, i) + (double)rng_normal(2, RNG_SAMPLE, i);
    }
    for (uint64_t i = 100; i-- > 0;) {
        backward[i] = rng_uniform(2, RNG_TEST, i) + (double)rng_normal(2, RNG_SAMPLE, i);
    }
    EXPECT(!memcmp(forward, backward, sizeof forward));
}

TEST_MAIN()
