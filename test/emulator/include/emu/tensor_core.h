// Sums as tensor cores make them, with EMU_TENSOR_CORES=1: the exact products of 16 bytes of each factor and the sum so
// far are aligned to the largest of them, cut off behind the last bit kept, and added; the sum is cut off, too. 23 bits
// are kept behind the first, with FP8 13. So do V100 and A100 (Fasi, Higham, Mikaitis & Pranesh 2021, "Numerical
// behavior of NVIDIA tensor cores") and, with FP8, H100 (DeepSeek-AI 2024, "DeepSeek-V3", 3.3.2), but for a bit or two
// that newer ones keep more. FP8 is summed in full precision after each 128 products, unless FAST_ACCUM is set.
#pragma once
#include "error.h"

namespace emu {

inline bool sums_as_tensor_cores() {
    static const bool value = option("EMU_TENSOR_CORES", 0) != 0;
    return value;
}

enum { TENSOR_CORE_BITS = 23, TENSOR_CORE_FP8_BITS = 13, TENSOR_CORE_GROUP_BYTES = 16, FP8_PROMOTED = 128 };

// Returns sum plus `count` <= 16 products of a[0], a[step_a], ... and b[0], b[step_b], ....
EMU_FAST inline float tensor_core_add(float sum, const float* a, size_t step_a, const float* b, size_t step_b,
                                      size_t count, int bits) {
    double terms[TENSOR_CORE_GROUP_BYTES + 1] = {sum}, plain = sum, largest = std::fabs(sum);
    for (size_t i = 0; i < count; i++) {
        terms[i + 1] = (double)a[i * step_a] * (double)b[i * step_b];
        plain += terms[i + 1];
        largest = std::fmax(largest, std::fabs(terms[i + 1]));
    }
    if (!std::isfinite(plain) || largest == 0) { return (float)plain; }
    const double unit = std::ldexp(1.0, std::ilogb(largest) - bits), inverse = 1 / unit;
    int64_t units = 0;
    for (size_t i = 0; i <= count; i++) { units += (int64_t)(terms[i] * inverse); }
    const double total = (double)units * unit;
    const float rounded = (float)total;
    return std::fabs((double)rounded) > std::fabs(total) ? std::nextafterf(rounded, 0) : rounded;
}

} // namespace emu
