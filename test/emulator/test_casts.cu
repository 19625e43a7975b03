// Tests the kernels that cast to 8-bit floats (llmc/cuda/fp8.cuh) against plain loops, at sizes that do not fill their
// tiles and blocks, and the cache of cast weights.
#define FLOATX bf16
#include "../../llmc/cuda/fp8.cuh"
#include "../../llmc/cuda/open.cuh"
#include "../../llmc/base/rng.h"
#include "../test.h"
#include <vector>

enum { GUARD = 64, UNTOUCHED = 0xee };
typedef std::vector<uint8_t> Bytes;

// Allocates n bytes of device memory, followed by a guard that must not be written.
static uint8_t* guarded(size_t n) {
    uint8_t* p = (uint8_t*)device_alloc(n + GUARD, "a test");
    cuda_check(cudaMemset(p, UNTOUCHED, n + GUARD), "a test");
    return p;
}
// Returns the n bytes, expects the guard untouched, and frees both.
static Bytes take(uint8_t* p, size_t n) {
    Bytes out(n + GUARD);
    device_copy_out(out.data(), p, out.size());
    for (size_t i = n; i < out.size(); i++) { EXPECT(out[i] == UNTOUCHED); }
    device_free(p, n + GUARD);
    out.resize(n);
    return out;
}

static floatX* put(const std::vector<float>& x) {
    std::vector<floatX> stored(x.size());
    for (size_t i = 0; i < x.size(); i++) { stored[i] = to_floatX(x[i]); }
    floatX* p = (floatX*)device_alloc(x.size() * sizeof(floatX), "a test");
    device_copy_in(p, stored.data(), x.size() * sizeof(floatX));
    return p;
}

// Returns normally distributed numbers times `size`, rounded to bf16.
static std::vector<float> numbers(size_t n, float size, uint64_t seed) {
    std::vector<float> x(n);
    for (size_t i = 0; i < n; i++) { x[i] = to_float(to_floatX(size * rng_normal(seed, RNG_TEST, i))); }
    return x;
}

static float largest(const std::vector<float>& x) {
    float most = 0;
    for (float value : x) { most = fmaxf(most, fabsf(value)); }
    return most;
}

// Returns the largest power of two, up to 2^126, that keeps amax * scale within `most`.
static float scale_for(float amax, float most) {
    float scale = 0x1p126f;
    while ((double)amax * (double)scale > (double)most) { scale /= 2; }
    return scale;
}

static Fp8Scale scale_of(const Fp8Scale* p) {
    Fp8Scale s;
    device_copy_out(&s, p, sizeof s);
    return s;
}

// Checks all three casts of x (N,C). Returns the scale's inverse.
template <Fp8Format FORMAT> static float check_casts(const std::vector<float>& x, size_t N, size_t C) {
    const float scale = scale_for(largest(x), FORMAT == __NV_E4M3 ? 448.0f : 57344.0f);
    const size_t n = N * C;
    floatX* input = put(x);
    Fp8Scale* device_scale = (Fp8Scale*)device_alloc(sizeof *device_scale, "a test");
    uint8_t *cast = guarded(n), *rows = guarded(n), *both = guarded(n), *alone = guarded(n);
    fp8_cast<FORMAT>(cast, device_scale, input, N, C);
    fp8_cast_transpose<FORMAT>(rows, both, device_scale, input, N, C);
    fp8_cast_transpose<FORMAT>(NULL, alone, device_scale, input, N, C);
    const Bytes got = take(cast, n), got_rows = take(rows, n), got_both = take(both, n), got_alone = take(alone, n);
    size_t wrong = 0;
    for (size_t row = 0; row < N; row++) {
        for (size_t col = 0; col < C; col++) {
            const size_t at = row * C + col, turned = col * N + row;
            const uint8_t want = __nv_cvt_float_to_fp8(x[at] * scale, __NV_NOSAT, FORMAT);
            wrong += got[at] != want || got_rows[at] != want || got_both[turned] != want || got_alone[turned] != want;
        }
    }
    EXPECT(wrong == 0);
    const Fp8Scale s = scale_of(device_scale);
    EXPECT(s.inverse == 1 / scale);
    device_free(device_scale, sizeof *device_scale);
    device_free(input, n * sizeof(floatX));
    return s.inverse;
}

TEST(casts_and_their_transposes_at_sizes_that_cut_tiles) {
    const size_t sizes[][2] = {{16, 16}, {128, 64}, {48, 80}, {272, 208}, {144, 336}, {16, 1040}};
    for (const auto& s : sizes) {
        check_casts<__NV_E4M3>(numbers(s[0] * s[1], 0.5f, s[0]), s[0], s[1]);
        check_casts<__NV_E5M2>(numbers(s[0] * s[1], 1e-6f, s[1]), s[0], s[1]);
    }
}

TEST(a_tensor_of_any_size_fills_the_format) {
    for (float size : {1e-37f, 1e-20f, 1.0f, 1e20f, 5e37f}) {
        check_casts<__NV_E4M3>(numbers(256, size, 1), 16, 16);
        check_casts<__NV_E5M2>(numbers(256, size, 2), 16, 16);
    }
    std::vector<float> x(256, 1.0f); // 448 = 1.75 * 2^8 still fits, the next number does not
    x[7] = 1.75f;
    EXPECT(check_casts<__NV_E4M3>(x, 16, 16) == 0x1p-8f);
    x[7] = -1.7578125f;
    EXPECT(check_casts<__NV_E4M3>(x, 16, 16) == 0x1p-7f);
    check_casts<__NV_E4M3>(std::vector<float>(256, 0.0f), 16, 16);
}

TEST(the_largest_magnitude_is_found_wherever_it_is) {
    Fp8Scale* scale = (Fp8Scale*)device_alloc(sizeof *scale, "a test");
    float most = 4096; // smaller every time, so that the amax before would show
    for (size_t n : {(size_t)8, (size_t)264, (size_t)2056, (size_t)300008}) {
        for (size_t at : {(size_t)0, min_size(n, 2048) - 1, n - 1}) { // 2048: what a block reads at once
            std::vector<float> x(n, 0.5f);
            x[at] = -(most *= 0.5f);
            floatX* input = put(x);
            fp8_amax(scale, input, n);
            EXPECT(float_of_bits(scale_of(scale).amax) == most);
            device_free(input, n * sizeof(floatX));
        }
    }
    device_free(scale, sizeof *scale);
}

// Infinity and NaN make the scale NaN, so that a saturating cast cannot hide them.
TEST(what_is_not_finite_shows_in_the_scale) {
    uint8_t* out = guarded(256);
    Fp8Scale* scale = (Fp8Scale*)device_alloc(sizeof *scale, "a test");
    for (float bad : {INFINITY, -INFINITY, NAN, -NAN}) {
        std::vector<float> x = numbers(256, 1, 3);
        x[255] = bad;
        floatX* input = put(x);
        fp8_cast<__NV_E4M3>(out, scale, input, 16, 16);
        EXPECT(isnan(scale_of(scale).inverse));
        fp8_cast_transpose<__NV_E5M2>(NULL, out, scale, input, 16, 16);
        EXPECT(isnan(scale_of(scale).inverse));
        device_free(input, 256 * sizeof(floatX));
    }
    take(out, 256);
    device_free(scale, sizeof *scale);
}

TEST(a_weight_is_cast_when_it_is_new_or_changed_and_goes_with_its_memory) {
    const size_t n = 48 * 32;
    floatX* memory = put(numbers(2 * n, 0.5f, 4));
    const Fp8Weight first = *fp8_weight(memory, 48, 32, FP8_ROWS);
    EXPECT(!first.transposed && fp8_weights.count == 1);
    const Fp8Weight second = *fp8_weight(memory + n, 32, 48, FP8_TRANSPOSED);
    EXPECT(second.transposed && fp8_weights.count == 2);
    EXPECT(fp8_weight(memory, 48, 32, FP8_TRANSPOSED)->rows == first.rows && fp8_weights.count == 2);
    uint8_t before, after;
    const floatX changed = to_floatX(-30);
    device_copy_out(&before, second.rows + 5, 1);
    device_copy_in(memory + n + 5, &changed, sizeof changed);
    EXPECT(fp8_weight(memory + n, 32, 48, FP8_ROWS)->rows == second.rows);
    device_copy_out(&after, second.rows + 5, 1);
    EXPECT(after == before);
    fp8_weights_changed();
    device_copy_out(&after, second.rows + 5, 1);
    EXPECT(after == __nv_cvt_float_to_fp8(-30.0f * 8, __NV_NOSAT, __NV_E4M3));
    device_copy_out(&after, second.transposed + 5 * 32, 1);
    EXPECT(after == __nv_cvt_float_to_fp8(-30.0f * 8, __NV_NOSAT, __NV_E4M3));
    device_free(memory, 2 * n * sizeof(floatX));
    EXPECT(fp8_weights.count == 0);
    fp8_weights_changed();
    device_sync();
}

// Only the matrices of the blocks are cast, neither the embedding nor vectors.
TEST(the_plan_of_memory_counts_the_matrices_of_the_blocks) {
    const Tensor list[] = {{"wte", 1, ONCE, 64, 32, 64, INIT_ZERO, AS_IS, NULL, NULL, 0, 0, 0},
                           {"bias", 1, EACH, 1, 96, 1, INIT_ZERO, AS_IS, NULL, NULL, 0, 0, 0},
                           {"weight", 1, EACH, 96, 32, 96, INIT_ZERO, AS_IS, NULL, NULL, 0, 0, 0}};
    const TensorTable table = tensors_layout(list, 3, 5);
    const size_t N = 48, C = 32, matrices = 5 * 96 * 32;
    EXPECT(fp8_bytes(&table, true, N, C) == 2 * matrices + 9 * N * C);
    EXPECT(fp8_bytes(&table, false, N, C) == matrices + 4 * N * C);
}

int main(int argc, char** argv) {
    setenv("EMU_CC", "90", 1);
    DeviceOptions options = {};
    options.fused = options.flash = options.fp8 = true;
    device_open(&options);
    return test_main(argc, argv, argv[0]);
}
