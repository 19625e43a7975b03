// Instructions that CUDA C++ has no function for, one small function each. No other file has inline assembly. Names in
// quotes are sections of NVIDIA's manual "PTX ISA". Lane l of a warp has g = l / 4 and t = l % 4.
#pragma once
#include "device.cuh"

// Instructions address shared memory by 32 bits.
static __device__ inline uint32_t shared_address(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }

// ---------------------------------------------------------------------------------------------------------------------
// tensor cores

// d (16,8) += a (16,16) @ b (16,8), each spread over a warp ("Matrix Fragments for mma.m16n8k16"):
//   d[0], d[1]  row g, columns 2t and 2t+1; d[2], d[3] the same of row g+8
//   a[0]        row g, columns 2t and 2t+1, the first in the lower half; a[1] of row g+8; a[2], a[3] 8 columns further
//   b0          rows 2t and 2t+1 of column g; b1 8 rows further
static __device__ inline void mma_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Loads four matrices of 8 rows of 16 bytes from shared memory. Lane l gives the address of row l % 8 of matrix l / 8;
// its x[i] becomes row g, columns 2t and 2t+1, of matrix i ("Warp-level matrix load instruction: ldmatrix").
static __device__ inline void ldmatrix_x4(uint32_t (&x)[4], const bf16* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(shared_address(row))
                 : "memory");
}

// Loads the same matrices transposed: x[i] becomes rows 2t and 2t+1 of column g.
static __device__ inline void ldmatrix_x4_trans(uint32_t (&x)[4], const bf16* row) {
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
// for its groups. Other threads see the data after a barrier.

// Copies 16 bytes; writes zeros if not `inside`. Both addresses must be multiples of 16 in either case.
static __device__ inline void cp_async_16(void* shared, const void* global, bool inside) {
    const int bytes = inside ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(shared_address(shared)), "l"(global), "r"(bytes)
                 : "memory");
}

// Copies one float; writes zero if not `inside`.
static __device__ inline void cp_async_4(float* shared, const float* global, bool inside) {
    const int bytes = inside ? 4 : 0;
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 :
                 : "r"(shared_address(shared)), "l"(global), "r"(bytes)
                 : "memory");
}

static __device__ inline void cp_async_commit() { asm volatile("cp.async.commit_group;" : : : "memory"); }

// Waits until at most the `groups` newest groups are unfinished.
template <int groups> static __device__ inline void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" : : "n"(groups) : "memory");
}
