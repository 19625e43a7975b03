// Stand-in for NVTX: ranges are counted, nothing is recorded. As there, the results are the depth of the range that was
// opened or closed, and -2 (NVTX_NO_PUSH_POP_TRACKING) where there is none to close.
#pragma once
#include <cstdint>

namespace emu {
inline thread_local int nvtx_depth = 0;
}

inline int nvtxRangePushA(const char*) { return emu::nvtx_depth++; }
inline int nvtxRangePop() { return emu::nvtx_depth > 0 ? --emu::nvtx_depth : -2; }
inline void nvtxMarkA(const char*) {}
inline void nvtxNameOsThreadA(uint32_t, const char*) {}
#define nvtxRangePush nvtxRangePushA
#define nvtxMark nvtxMarkA
#define nvtxNameOsThread nvtxNameOsThreadA
