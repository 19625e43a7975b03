// Included before llmc/backends.c for a program whose AMX tiles are emulated: any processor with AVX512_BF16 is said to
// have AMX.
#pragma once
#define processor_has processor_really_has
#include "../../llmc/cpu/processor.h"
#undef processor_has

static inline bool processor_has(const char* level) {
    return processor_really_has(strcmp(level, "amx") ? level : "avx512_bf16");
}
