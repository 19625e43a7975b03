// A stand-in for NVTX: ranges are counted, nothing is recorded. As in NVTX, a call returns the depth of the range that
// it opened or closed, or -2 (NVTX_NO_PUSH_POP_TRACKING) if none is open.
#pragma once

namespace emu {
inline thread_local int nvtx_depth = 0;
}

inline int nvtxRangePushA(const char*) { return emu::nvtx_depth++; }
inline int nvtxRangePop() { return emu::nvtx_depth > 0 ? --emu::nvtx_depth : -2; }
