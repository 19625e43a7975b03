// Asks the processor and the system which levels of instructions they offer. train_gpt2.c is compiled for each level
// (Makefile, LEVELS), and backends.c chooses one of the objects (--cpu).
//
//   generic       what the compiler assumes of any processor
//   avx2          x86-64-v3: AVX2 and FMA
//   avx512        x86-64-v4: AVX-512 F, BW, CD, DQ, VL
//   avx512_bf16   that and AVX512_BF16: dot products of pairs of bf16
//   amx           that and AMX: matmuls of tiles of bf16
//
// Bits of CPUID: Intel's manual, volume 2, instruction CPUID. The levels v3 and v4: x86-64 psABI, section 3.1.1.
#pragma once
#include "../base/base.h"

#ifdef __x86_64__
#include <cpuid.h>
#include <sys/syscall.h>

typedef struct {
    unsigned a, b, c, d;
} Cpuid;

static inline Cpuid cpuid(unsigned leaf, unsigned subleaf) {
    Cpuid r = {0, 0, 0, 0};
    __get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d);
    return r;
}

static inline bool processor_is_intel(void) { return cpuid(0, 0).b == 0x756e6547; } // "Genu" of "GenuineIntel"

// Returns which registers the system saves when it switches between threads (XCR0; Intel's manual, volume 1, chapter
// 13).
static inline unsigned system_saves(void) {
    unsigned low, high;
    if (!(cpuid(1, 0).c >> 27 & 1)) { return 0; } // OSXSAVE
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

// Asks Linux for permission to use AMX's tiles, 8 KB of registers. Returns true if granted (Linux,
// Documentation/arch/x86/xstate.rst).
static inline bool system_permits_tiles(void) {
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

// Returns true if all bits of `mask` are set.
static inline bool has_bits(unsigned bits, unsigned mask) { return (bits & mask) == mask; }

// Returns true if this processor and its system can run the code of a level; false for an unknown name.
static inline bool processor_has(const char* level) {
    enum { YMM = 0x6, ZMM = 0xe6, TILES = 0x60000 };
    const unsigned saves = system_saves();
    const Cpuid leaf1 = cpuid(1, 0), leaf7 = cpuid(7, 0), extended = cpuid(0x80000001u, 0);
    const bool avx2 = has_bits(saves, YMM) &&
                      has_bits(leaf1.c, 1u << 12 | 1u << 22 | 1u << 28 | 1u << 29) && // FMA, MOVBE, AVX, F16C
                      has_bits(leaf7.b, 1u << 3 | 1u << 5 | 1u << 8) &&               // BMI1, AVX2, BMI2
                      has_bits(extended.c, 1u << 5);                                  // LZCNT
    const bool avx512 = avx2 && has_bits(saves, ZMM) &&
                        has_bits(leaf7.b, 1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31); // F, DQ, CD, BW, VL
    const bool avx512_bf16 = avx512 && has_bits(cpuid(7, 1).a, 1u << 5);
    if (!strcmp(level, "avx2")) { return avx2; }
    if (!strcmp(level, "avx512")) { return avx512; }
    if (!strcmp(level, "avx512_bf16")) { return avx512_bf16; }
    if (!strcmp(level, "amx")) {
        return avx512_bf16 && has_bits(saves, TILES) && has_bits(leaf7.d, 1u << 22 | 1u << 24) && // AMX-BF16, AMX-TILE
               system_permits_tiles();
    }
    return !strcmp(level, "generic");
}
#else
static inline bool processor_is_intel(void) { return false; }
static inline bool processor_has(const char* level) { return !strcmp(level, "generic"); }
#endif
