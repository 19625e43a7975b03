// The two 8-bit formats of Micikevicius et al. 2022, "FP8 Formats for Deep Learning", by arithmetic on exact numbers.
#pragma once
#include <cmath>
#include <cstdint>

namespace emu {

struct Fp8Format {
    int mantissa, bias;
    int largest;       // code of the largest finite number
    bool has_infinity; // in the code above it
};
inline const Fp8Format E4M3 = {3, 7, 0x7e, false};
inline const Fp8Format E5M2 = {2, 15, 0x7b, true};

inline float from_fp8(uint8_t code, const Fp8Format& f) {
    const int magnitude = code & 0x7f, exponent = magnitude >> f.mantissa, part = magnitude & ((1 << f.mantissa) - 1);
    float x;
    if (magnitude > f.largest) {
        x = f.has_infinity && magnitude == f.largest + 1 ? INFINITY : NAN;
    } else if (exponent == 0) {
        x = ldexpf((float)part, 1 - f.bias - f.mantissa);
    } else {
        x = ldexpf((float)(part + (1 << f.mantissa)), exponent - f.bias - f.mantissa);
    }
    return code & 0x80 ? -x : x;
}

// Rounds to the nearest number, ties to the even code. Beyond the largest number, and at infinity, returns that number
// if `saturates`, else infinity or NaN.
inline uint8_t to_fp8(float x, const Fp8Format& f, bool saturates) {
    const uint8_t sign = std::signbit(x) ? 0x80 : 0;
    if (std::isnan(x)) { return 0x7f; }
    int exponent;
    frexpf(x, &exponent); // |x| in [1/2, 1) * 2^exponent
    const int least = 1 - f.bias;
    const int unit = (exponent - 1 > least && x != 0 ? exponent - 1 : least) - f.mantissa; // 2^unit is the spacing at x
    const double steps = std::isinf(x) ? INFINITY : std::nearbyint(std::ldexp(std::fabs((double)x), -unit));
    // whole steps count codes on from the first one of this exponent
    const double first = (double)((unit + f.mantissa - least) << f.mantissa);
    const double code = first + steps;
    if (code > f.largest) { return sign | (uint8_t)(saturates ? f.largest : f.largest + 1); }
    return sign | (uint8_t)code;
}

} // namespace emu
