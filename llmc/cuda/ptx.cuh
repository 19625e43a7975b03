// Instructions that CUDA C++ has no function for, one small function each. No other file has inline assembly. Names in
// quotes are sections of NVIDIA's manual "PTX ISA". Lane l of a warp has g = l / 4 and t = l % 4.
//
// Turing lacks some of these instructions. NV_IF_ELSE_TARGET, of the toolkit's <nv/target>, takes the first code when
// it compiles for a GPU that provides what is asked for, and else the second.
#pragma once
#include "device.cuh"
#include <nv/target>

// True in code that is compiled for Turing. Only __launch_bounds__ may depend on it: the host's code is compiled once.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
static constexpr bool FOR_TURING = true;
#else
static constexpr bool FOR_TURING = false;
#endif

// Instructions address shared memory by 32 bits.
static __device__ inline uint32_t shared_address(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }

// ---------------------------------------------------------------------------------------------------------------------
// tensor cores

// d (16,8) += a (16,16) @ b (16,8), each spread over a warp ("Matrix Fragments for mma.m16n8k16"):
//   d[0], d[1]  row g, columns 2t and 2t+1; d[2], d[3] the same of row g+8
//   a[0]        row g, columns 2t and 2t+1, the first in the lower half; a[1] of row g+8; a[2], a[3] 8 columns further
//   b0          rows 2t and 2t+1 of column g; b1 8 rows further
template <class Type>
static __device__ inline void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);

// Turing has none in bf16: device_open() refuses bf16 there.
template <> __device__ inline void mma<bf16>(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    NV_IF_ELSE_TARGET(NV_PROVIDES_SM_80,
                      (asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                                    "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                                    : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                                    : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));),
                      (__trap();))
}

// The half of such an mma that Turing has, with a depth of 8: d += a (16,8) @ b (8,8), whose fragments are a[0], a[1]
// and b0 of the whole one ("Matrix Fragments for mma.m16n8k8").
static __device__ inline void mma_fp16_k8(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t b0) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a0), "r"(a1), "r"(b0));
}

template <> __device__ inline void mma<fp16>(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    NV_IF_ELSE_TARGET(NV_PROVIDES_SM_80,
                      (asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                                    "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                                    : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                                    : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));),
                      (mma_fp16_k8(d, a[0], a[1], b0); mma_fp16_k8(d, a[2], a[3], b1);))
}

// Loads four matrices of 8 rows of 16 bytes, eight 16-bit floats, from shared memory. Lane l gives the address of row l
// % 8 of matrix l / 8; its x[i] becomes row g, columns 2t and 2t+1, of matrix i ("Warp-level matrix load instruction:
// ldmatrix").
static __device__ inline void ldmatrix_x4(uint32_t (&x)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(shared_address(row))
                 : "memory");
}

// Loads the same matrices transposed: x[i] becomes rows 2t and 2t+1 of column g.
static __device__ inline void ldmatrix_x4_trans(uint32_t (&x)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(shared_address(row))
                 : "memory");
}

// ---------------------------------------------------------------------------------------------------------------------
// arithmetic

static constexpr float LOG2_E = 1.4426950408889634f; // exp(x) is 2^(x * LOG2_E)

// Returns 2^x in one instruction: relative error at most 2^-22, subnormal results are 0 ("Floating Point Instructions:
// ex2"). exp2f() needs four instructions, since it keeps subnormal results.
static __device__ inline float exp2_approx(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// ---------------------------------------------------------------------------------------------------------------------
// asynchronous copies to shared memory ("Non-bulk copy"): a thread starts copies, commits them as a group, and waits
// for its groups. Other threads see the data after a barrier. On Turing a copy is a load and a store: loads that are
// started one after another are in flight together, and other blocks of the SM compute meanwhile.

// True on GPUs since Ampere; the compiler knows it.
static __device__ inline bool copies_are_asynchronous() {
    NV_IF_ELSE_TARGET(NV_PROVIDES_SM_80, (return true;), (return false;))
}

// Copies 16 bytes; writes zeros if not `inside`. Both addresses must be multiples of 16 in either case.
static __device__ inline void cp_async_16(void* shared, const void* global, bool inside) {
    NV_IF_ELSE_TARGET(NV_PROVIDES_SM_80,
                      (const int bytes = inside ? 16 : 0;
                       asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                                    :
                                    : "r"(shared_address(shared)), "l"(global), "r"(bytes)
                                    : "memory");),
                      (*(int4*)shared = inside ? *(const int4*)global : int4{0, 0, 0, 0};))
}

// Copies one float; writes zero if not `inside`.
static __device__ inline void cp_async_4(float* shared, const float* global, bool inside) {
    NV_IF_ELSE_TARGET(NV_PROVIDES_SM_80,
                      (const int bytes = inside ? 4 : 0;
                       asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                                    :
                                    : "r"(shared_address(shared)), "l"(global), "r"(bytes)
                                    : "memory");),
                      (*shared = inside ? *global : 0.0f;))
}

static __device__ inline void cp_async_commit() {
    NV_IF_TARGET(NV_PROVIDES_SM_80, (asm volatile("cp.async.commit_group;" : : : "memory");))
}

// Waits until at most the `groups` newest groups are unfinished.
template <int groups> static __device__ inline void cp_async_wait() {
    NV_IF_TARGET(NV_PROVIDES_SM_80, (asm volatile("cp.async.wait_group %0;" : : "n"(groups) : "memory");))
}
