// Tests the emulator's PTX instructions against the formulas of the manual "PTX ISA", written here a second time with
// the manual's own names. Built by nvcc, the tests run on a GPU, except those of undefined behaviour.
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include "../test.h"
#include <signal.h>

#define OK(call) EXPECT((call) == cudaSuccess)

// device_copy() copies an array to new device memory; device_back() waits, copies it back and frees it.
template <class T>
static T* device_copy(const T* host, size_t n) {
    T* p = NULL;
    OK(cudaMalloc(&p, n * sizeof(T)));
    OK(cudaMemcpy(p, host, n * sizeof(T), cudaMemcpyHostToDevice));
    return p;
}

template <class T>
static void device_back(T* host, T* device, size_t n) {
    OK(cudaGetLastError());
    OK(cudaDeviceSynchronize());
    OK(cudaMemcpy(host, device, n * sizeof(T), cudaMemcpyDeviceToHost));
    OK(cudaFree(device));
}

static uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

// ---------------------------------------------------------------------------------------------------------------------
// mma

enum Shape { BF16_K16, F16_K16, F16_K8 };

__device__ void mma_bf16_k16(float* d, const uint32_t* a, const uint32_t* b, const float* c) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
                 : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]),
                   "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}
__device__ void mma_f16_k16(float* d, const uint32_t* a, const uint32_t* b, const float* c) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
                 : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]),
                   "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}
__device__ void mma_f16_k8(float* d, const uint32_t* a, const uint32_t* b, const float* c) {
    d[0] = c[0], d[1] = c[1], d[2] = c[2], d[3] = c[3];
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32\n\t"
                 "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};\n"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b[0]));
}

// Fragments lie lane by lane, with room for four registers of A, two of B, and four of C and D per lane.
template <Shape shape>
__global__ void mma_kernel(float* d, const uint32_t* a, const uint32_t* b, const float* c) {
    const int l = threadIdx.x;
    if (shape == BF16_K16) { mma_bf16_k16(d + 4 * l, a + 4 * l, b + 2 * l, c + 4 * l); }
    if (shape == F16_K16) { mma_f16_k16(d + 4 * l, a + 4 * l, b + 2 * l, c + 4 * l); }
    if (shape == F16_K8) { mma_f16_k8(d + 4 * l, a + 4 * l, b + 2 * l, c + 4 * l); }
}

// "Matrix Fragments for mma.m16n8k16 with floating point type" and "... for mma.m16n8k8".
static void place_a(Shape shape, int laneid, int i, int* row, int* col) {
    const int groupID = laneid >> 2, threadID_in_group = laneid % 4;
    if (shape != F16_K8) {
        *row = (0 <= i && i < 2) || (4 <= i && i < 6) ? groupID : groupID + 8;
        *col = i < 4 ? (threadID_in_group * 2) + (i & 0x1) : (threadID_in_group * 2) + (i & 0x1) + 8;
    } else {
        *row = i == 0 || i == 1 ? groupID : groupID + 8;
        *col = threadID_in_group * 2 + (i & 0x1);
    }
}
static void place_b(Shape shape, int laneid, int i, int* row, int* col) {
    const int groupID = laneid >> 2, threadID_in_group = laneid % 4;
    if (shape != F16_K8) {
        *row = i < 2 ? (threadID_in_group * 2) + (i & 0x1) : (threadID_in_group * 2) + (i & 0x1) + 8;
    } else {
        *row = (threadID_in_group * 2) + i;
    }
    *col = groupID;
}
static void place_c(int laneid, int i, int* row, int* col) {
    const int groupID = laneid >> 2, threadID_in_group = laneid % 4;
    *row = i < 2 ? groupID : groupID + 8;
    *col = (threadID_in_group * 2) + (i & 0x1);
}

// Puts element i into a lane's registers. A bf16 is the upper half of a float; even elements are in the lower half of a
// register.
static void put(Shape shape, uint32_t* registers, int i, float x) {
    const uint32_t bits = shape == BF16_K16 ? bits_of(x) >> 16 : __half_raw(__float2half_rn(x)).x;
    registers[i / 2] |= bits << (i % 2 ? 16 : 0);
}

// Every element of A, B and C is a different small integer, so that each sum is exact and shows which elements met.
template <Shape shape>
static void expect_mma(int K) {
    float a[16][16], b[16][8], c[16][8], frag_c[32 * 4], frag_d[32 * 4];
    uint32_t frag_a[32 * 4] = {0}, frag_b[32 * 2] = {0};
    for (int i = 0; i < 16 * K; i++) { a[i / K][i % K] = (float)(i - 100); }
    for (int i = 0; i < K * 8; i++) { b[i / 8][i % 8] = (float)(i - 40); }
    for (int i = 0; i < 16 * 8; i++) { c[i / 8][i % 8] = (float)(1000 * i); }
    int row, col;
    for (int l = 0; l < 32; l++) {
        for (int i = 0; i < 16 * K / 32; i++) {
            place_a(shape, l, i, &row, &col);
            put(shape, frag_a + 4 * l, i, a[row][col]);
        }
        for (int i = 0; i < K * 8 / 32; i++) {
            place_b(shape, l, i, &row, &col);
            put(shape, frag_b + 2 * l, i, b[row][col]);
        }
        for (int i = 0; i < 4; i++) {
            place_c(l, i, &row, &col);
            frag_c[4 * l + i] = c[row][col];
        }
    }
    float* d = device_copy(frag_c, 32 * 4);
    uint32_t *da = device_copy(frag_a, 32 * 4), *db = device_copy(frag_b, 32 * 2);
    float* dc = device_copy(frag_c, 32 * 4);
    mma_kernel<shape><<<1, 32>>>(d, da, db, dc);
    device_back(frag_d, d, 32 * 4);
    OK(cudaFree(da));
    OK(cudaFree(db));
    OK(cudaFree(dc));
    for (int l = 0; l < 32; l++) {
        for (int i = 0; i < 4; i++) {
            place_c(l, i, &row, &col);
            float want = c[row][col];
            for (int k = 0; k < K; k++) { want += a[row][k] * b[k][col]; }
            EXPECT_NEAR(frag_d[4 * l + i], want, 0);
        }
    }
}

TEST(mma_m16n8k16_bf16) { expect_mma<BF16_K16>(16); }
TEST(mma_m16n8k16_f16) { expect_mma<F16_K16>(16); }
TEST(mma_m16n8k8_f16) { expect_mma<F16_K8>(8); }

// ---------------------------------------------------------------------------------------------------------------------
// ex2

__global__ void ex2_kernel(float* y, const float* x, int n) {
    if ((int)threadIdx.x >= n) { return; }
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y[threadIdx.x]) : "f"(x[threadIdx.x]));
}

TEST(ex2_is_a_power_of_two_and_flushes_subnormals) {
    const float in[] = {0,    1,    -1,   0.5f,   -3.75f,    23.125f, -125.5f, 1e-40f,
                        -126, -127, -150, -1e30f, -INFINITY, INFINITY};
    enum { N = sizeof in / sizeof *in, FIRST_ZERO = 9, LAST_ZERO = 12 };
    float out[N];
    float *x = device_copy(in, N), *y = device_copy(in, N);
    ex2_kernel<<<1, 32>>>(y, x, N);
    device_back(out, y, N);
    OK(cudaFree(x));
    for (int i = 0; i < N - 1; i++) {
        const double want = i >= FIRST_ZERO && i <= LAST_ZERO ? 0 : exp2(in[i]);
        EXPECT_NEAR(out[i], want, want / (1 << 22));
    }
    EXPECT(out[N - 1] == INFINITY);
}

// ---------------------------------------------------------------------------------------------------------------------
// ldmatrix

__device__ uint32_t shared_address(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }

template <bool trans>
__device__ void ldmatrix(uint32_t* r, const void* row) {
    const uint32_t p = shared_address(row);
    if (!trans) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(p) : "memory");
    } else {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(p) : "memory");
    }
}

enum { ROW = 24 };  // elements from one row in shared memory to the next: 16-byte aligned, with a gap

// Matrix i, row r is row 31 - (8 * i + r) of `tile`: the kernel must not assume the order or distance of rows.
template <bool trans>
__global__ void ldmatrix_kernel(uint32_t* out, const uint16_t* in) {
    __shared__ __align__(16) uint16_t tile[32 * ROW];
    const int l = threadIdx.x;
    for (int c = 0; c < 8; c++) { tile[(31 - l) * ROW + c] = in[l * 8 + c]; }
    __syncthreads();
    uint32_t r[4];
    ldmatrix<trans>(r, tile + (31 - l) * ROW);
    for (int i = 0; i < 4; i++) { out[4 * l + i] = r[i]; }
}

template <bool trans>
static void expect_ldmatrix(void) {
    uint16_t m[4][8][8];
    uint32_t out[32 * 4];
    for (int i = 0; i < 4 * 64; i++) { m[i / 64][i / 8 % 8][i % 8] = (uint16_t)(0x5000 + 7 * i); }
    uint16_t* in = device_copy(&m[0][0][0], 4 * 64);
    memset(out, 0, sizeof out);
    uint32_t* d = device_copy(out, 32 * 4);
    ldmatrix_kernel<trans><<<1, 32>>>(d, in);
    device_back(out, d, 32 * 4);
    OK(cudaFree(in));
    for (int l = 0; l < 32; l++) {
        for (int i = 0; i < 4; i++) {
            // without .trans four neighbouring threads hold a row, two elements each; with it, a column
            const int line = l / 4, first = 2 * (l % 4);
            const uint32_t low = trans ? m[i][first][line] : m[i][line][first];
            const uint32_t high = trans ? m[i][first + 1][line] : m[i][line][first + 1];
            EXPECT(out[4 * l + i] == (low | high << 16));
        }
    }
}

TEST(ldmatrix_of_four) { expect_ldmatrix<false>(); }
TEST(ldmatrix_of_four_transposed) { expect_ldmatrix<true>(); }

// Multiplies A and B, row-major in shared memory: mma takes the registers that ldmatrix returns. B is two matrices: the
// other two are the same again.
__global__ void matmul_kernel(float* d, const uint16_t* a, const uint16_t* b) {
    __shared__ __align__(16) uint16_t tile_a[16 * 16], tile_b[16 * 8];
    const int l = threadIdx.x;
    for (int i = l; i < 16 * 16; i += 32) { tile_a[i] = a[i]; }
    for (int i = l; i < 16 * 8; i += 32) { tile_b[i] = b[i]; }
    __syncthreads();
    uint32_t ra[4], rb[4];
    const float zero[4] = {0, 0, 0, 0};
    float sums[4];
    ldmatrix<false>(ra, tile_a + (l % 16) * 16 + (l / 16) * 8);
    ldmatrix<true>(rb, tile_b + (l % 16) * 8);
    mma_bf16_k16(sums, ra, rb, zero);
    for (int i = 0; i < 4; i++) { d[(l / 4 + 8 * (i / 2)) * 8 + 2 * (l % 4) + i % 2] = sums[i]; }
}

TEST(ldmatrix_feeds_mma) {
    uint16_t a[16 * 16], b[16 * 8];
    float d[16 * 8];
    for (int i = 0; i < 16 * 16; i++) { a[i] = (uint16_t)(bits_of((float)(i - 128)) >> 16); }
    for (int i = 0; i < 16 * 8; i++) { b[i] = (uint16_t)(bits_of((float)(i - 64)) >> 16); }
    for (int i = 0; i < 16 * 8; i++) { d[i] = 0; }
    uint16_t *da = device_copy(a, 16 * 16), *db = device_copy(b, 16 * 8);
    float* dd = device_copy(d, 16 * 8);
    matmul_kernel<<<1, 32>>>(dd, da, db);
    device_back(d, dd, 16 * 8);
    OK(cudaFree(da));
    OK(cudaFree(db));
    for (int row = 0; row < 16; row++) {
        for (int col = 0; col < 8; col++) {
            float want = 0;
            for (int k = 0; k < 16; k++) { want += (float)(row * 16 + k - 128) * (float)(k * 8 + col - 64); }
            EXPECT_NEAR(d[row * 8 + col], want, 0);
        }
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// cp.async

__device__ void copy_4(void* to, const void* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 :: "r"(shared_address(to)), "l"(from), "r"(4) : "memory");
}
__device__ void copy_8(void* to, const void* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;\n"
                 :: "r"(shared_address(to)), "l"(from), "n"(8), "r"(8) : "memory");
}
__device__ void copy_16(void* to, const void* from, unsigned bytes = 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"(shared_address(to)), "l"(from), "r"(bytes) : "memory");
}
__device__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N>
__device__ void wait_group() { asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory"); }
__device__ void wait_all() {
    commit();
    wait_group<0>();
}

// Run by one thread. Copies 4, 8 and 16 bytes, then 16 bytes twice, of which 8 and 0 come from memory.
__global__ void copy_kernel(uint32_t* out, const uint32_t* in) {
    __shared__ __align__(16) uint32_t s[16];
    copy_4(s, in + 1);
    copy_8(s + 2, in + 2);
    copy_16(s + 4, in + 4);
    copy_16(s + 8, in + 8, 8);
    copy_16(s + 12, in + 4, 0);
    wait_all();
    for (int i = 0; i < 16; i++) { out[i] = i == 1 ? 0 : s[i]; }
}

TEST(cp_async_copies_and_fills_with_zeros) {
    uint32_t in[16], out[16];
    for (uint32_t i = 0; i < 16; i++) { in[i] = out[i] = 100 + i; }
    uint32_t *x = device_copy(in, 16), *y = device_copy(out, 16);
    copy_kernel<<<1, 1>>>(y, x);
    device_back(out, y, 16);
    OK(cudaFree(x));
    const uint32_t want[16] = {101, 0, 102, 103, 104, 105, 106, 107, 108, 109, 0, 0, 0, 0, 0, 0};
    for (int i = 0; i < 16; i++) { EXPECT(out[i] == want[i]); }
}

// Waits in steps for three groups and an open copy; `out` has shared memory after each step. The second group is empty,
// but counts.
__global__ void groups_kernel(uint32_t* out, const uint32_t* in) {
    __shared__ uint32_t s[4];
    for (int i = 0; i < 4; i++) { s[i] = 7; }
    copy_4(s, in);
    commit();
    commit();
    copy_4(s + 1, in + 1);
    commit();
    copy_4(s + 2, in + 2);
    for (int i = 0; i < 4; i++) { out[i] = s[i]; }
    wait_group<2>();
    for (int i = 0; i < 4; i++) { out[4 + i] = s[i]; }
    wait_group<1>();
    for (int i = 0; i < 4; i++) { out[8 + i] = s[i]; }
    wait_group<0>();
    for (int i = 0; i < 4; i++) { out[12 + i] = s[i]; }
    wait_all();
    for (int i = 0; i < 4; i++) { out[16 + i] = s[i]; }
}

#ifndef __NVCC__
// ---------------------------------------------------------------------------------------------------------------------
// undefined behaviour: the emulator shows it as poison or ends the program

TEST(cp_async_target_is_poison_until_its_group_is_waited_for) {
    const uint32_t in[3] = {1, 2, 3}, P = 0xffffffff;
    uint32_t out[20] = {0};
    uint32_t *x = device_copy(in, 3), *y = device_copy(out, 20);
    groups_kernel<<<1, 1>>>(y, x);
    device_back(out, y, 20);
    OK(cudaFree(x));
    const uint32_t want[20] = {P, P, P, 7, 1, P, P, 7, 1, P, P, 7, 1, 2, P, 7, 1, 2, 3, 7};
    for (int i = 0; i < 20; i++) { EXPECT(out[i] == want[i]); }
}

// Commits empty groups, like a pipeline that has nothing left to copy.
__global__ void empty_groups_kernel(uint32_t* out, const uint32_t* in) {
    __shared__ uint32_t s[1];
    copy_4(s, in);
    commit();
    commit();
    commit();
    wait_group<2>();
    out[0] = s[0];
}

TEST(empty_groups_may_be_left) {
    uint32_t in = 5, out = 0;
    uint32_t *x = device_copy(&in, 1), *y = device_copy(&out, 1);
    empty_groups_kernel<<<1, 1>>>(y, x);
    device_back(&out, y, 1);
    OK(cudaFree(x));
    EXPECT(out == 5);
}

enum Fault {
    PENDING, TARGET_MISALIGNED, SOURCE_MISALIGNED, SOURCE_BEYOND, SOURCE_LARGER, CG_OF_8, TARGET_BEYOND,
    MMA_LANE_MISSING, MMA_LANES_APART, LDMATRIX_MISALIGNED, LDMATRIX_BEYOND,
    UNKNOWN, FEW_OPERANDS, WRONG_CLASS, WRONG_TYPE, WRITTEN_INPUT, READ_OUTPUT, NO_SUCH_OPERAND, NAMED_OPERAND
};

// Makes one fault; `in` has 8 words.
__device__ void fault_in_copy(Fault fault, uint32_t* s, const uint32_t* in) {
    switch (fault) {
    case PENDING: copy_4(s, in); commit(); break;
    case TARGET_MISALIGNED: copy_16(s + 1, in); break;
    case SOURCE_MISALIGNED: copy_8(s, in + 1); break;
    case SOURCE_BEYOND: copy_16(s, in + 8); break;
    case SOURCE_LARGER: copy_16(s, in, 17); break;
    case CG_OF_8:
        asm volatile("cp.async.cg.shared.global [%0], [%1], 8, %2;" :: "r"(shared_address(s)), "l"(in), "r"(8));
        break;
    case TARGET_BEYOND: copy_4(s + (1 << 18), in); break;
    default: break;
    }
}

__device__ void fault_in_statement(Fault fault, uint32_t* out) {
    float x = 1, y = 1;
    uint32_t u = 1;
    switch (fault) {
    case UNKNOWN: asm volatile("add.u32 %0, %1, 1;" : "=r"(u) : "r"(u)); break;
    case FEW_OPERANDS: asm volatile("cp.async.wait_group;" ::: "memory"); break;
    case WRONG_CLASS: asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=r"(u) : "f"(x)); break;
    case WRONG_TYPE: asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(u) : "f"(x)); break;
    case WRITTEN_INPUT: asm volatile("ex2.approx.ftz.f32 %0, %1;" :: "f"(y), "f"(x)); break;
    case READ_OUTPUT: asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(y), "=f"(x)); break;
    case NO_SUCH_OPERAND: asm volatile("ex2.approx.ftz.f32 %0, %2;" : "=f"(y) : "f"(x)); break;
    case NAMED_OPERAND: asm volatile("ex2.approx.ftz.f32 %[to], %[from];" : "=f"(y) : "f"(x)); break;
    default: break;
    }
    out[0] = u + (uint32_t)y;
}

__global__ void fault_kernel(uint32_t* out, const uint32_t* in, Fault fault) {
    __shared__ __align__(16) uint32_t s[64];
    const int l = threadIdx.x;
    const uint32_t a[4] = {0, 0, 0, 0};
    const float c[4] = {0, 0, 0, 0};
    uint32_t r[4];
    float d[4];
    s[l] = s[l + 32] = 0;
    __syncthreads();
    if (l == 0) { fault_in_copy(fault, s, in); }
    if (l == 0) { fault_in_statement(fault, out); }
    if (fault == MMA_LANE_MISSING && l != 7) { mma_bf16_k16(d, a, a, c); }
    if (fault == MMA_LANES_APART && l < 16) { mma_bf16_k16(d, a, a, c); }
    if (fault == MMA_LANES_APART && l >= 16) { mma_f16_k16(d, a, a, c); }
    if (fault == LDMATRIX_MISALIGNED) { ldmatrix<false>(r, s + 2); }
    if (fault == LDMATRIX_BEYOND) { ldmatrix<false>(r, s + 32 + 4 * (l % 16)); }
}

static void run_fault(Fault fault) {
    const uint32_t in[8] = {0};
    uint32_t* x = device_copy(in, 8);
    fault_kernel<<<1, 32>>>(device_copy(in, 8), x, fault);
    cudaDeviceSynchronize();
}
#define EXPECT_FAULT(fault, words) EXPECT_DEATH(EXIT_RUNTIME, words, run_fault(fault))

TEST(cp_async_faults) {
    EXPECT_FAULT(PENDING, "cp.async not waited for");
    EXPECT_FAULT(TARGET_MISALIGNED, "the shared address is not aligned");
    EXPECT_FAULT(SOURCE_MISALIGNED, "the global address is not aligned");
    EXPECT_FAULT(SOURCE_BEYOND, "cp.async source");
    EXPECT_FAULT(SOURCE_LARGER, "src-size is larger than cp-size");
    EXPECT_FAULT(CG_OF_8, ".cg copies 16 bytes");
    EXPECT_FAULT(TARGET_BEYOND, "not shared memory");
}

TEST(warp_faults) {
    EXPECT_FAULT(MMA_LANE_MISSING, "ffffff7f");
    EXPECT_FAULT(MMA_LANES_APART, "different warp instructions");
    EXPECT_FAULT(LDMATRIX_MISALIGNED, "the shared address is not aligned");
    EXPECT_FAULT(LDMATRIX_BEYOND, "not shared memory");
}

TEST(faulty_statements) {
    EXPECT_FAULT(UNKNOWN, "fault_kernel: PTX instruction not emulated: add.u32 %0, %1, 1");
    EXPECT_FAULT(FEW_OPERANDS, "its operands are n, the statement gives none");
    EXPECT_FAULT(WRONG_CLASS, "its operands are ff, the statement gives rf");
    EXPECT_FAULT(WRONG_TYPE, "operand %0: the type does not fit");
    EXPECT_FAULT(WRITTEN_INPUT, "operand %0 is written, but an input");
    EXPECT_FAULT(READ_OUTPUT, "operand %1 is read, but");
    EXPECT_FAULT(NO_SUCH_OPERAND, "there is no operand %2");
    EXPECT_FAULT(NAMED_OPERAND, "the statement gives");
}
#endif

// The emulator ends by abort(), but EXPECT_DEATH compares exit codes.
int main(int argc, char** argv) {
    signal(SIGABRT, [](int) { _exit(EXIT_RUNTIME); });
    return test_main(argc, argv, argv[0]);
}
