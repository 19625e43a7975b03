// Included before llmc/train/backends.c in programs whose AMX tiles are emulated: processor_has() is true for AMX on
// any processor with AVX512_BF16.
#pragma once
#define processor_has processor_really_has
#include "../../llmc/cpu/processor.h"
#undef processor_has

static inline bool processor_has(const char* level) {
    return processor_really_has(strcmp(level, "amx") ? level : "avx512_bf16");
}
