// main.c of a trainer whose AMX is emulated: any processor with AVX512_BF16 is said to have it.
#define processor_has processor_really_has
#include "../../llmc/cpu/processor.h"
#undef processor_has

static inline bool processor_has(const char* level) {
    return processor_really_has(strcmp(level, "amx") ? level : "avx512_bf16");
}

#include "../../llmc/main.c"
