// Tests that the emulator reports each kind of mistake in a CUDA program, in the builds that can detect it.
#include <cuda_runtime.h>
#include "cases.h"

static float* device_floats(size_t n) {
    float* p;
    OK(cudaMalloc(&p, n * sizeof(float)));
    return p;
}

__global__ void fill_kernel(float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { out[i] = 1; }
}

// ---------------------------------------------------------------------------------------------------------------------
// memory

static void host_pointer_as_argument() {
    float x[32];
    fill_kernel<<<1, 32>>>(x, 32);
}
static void freed_pointer_as_argument() {
    float* p = device_floats(32);
    OK(cudaFree(p));
    fill_kernel<<<1, 32>>>(p, 32);
}
// The comparison makes the compiler read the value; poisoned memory is NaN, so no expectation fails.
static void host_reads_device_memory() { expectations_failed += *(volatile float*)device_floats(1) == 0; }
static void copy_too_long() {
    float x[33];
    cudaMemcpy(x, device_floats(32), sizeof x, cudaMemcpyDeviceToHost);
}
static void copy_too_long_for_the_host() {
    float* x;
    OK(cudaMallocHost(&x, 128));
    cudaMemcpy(x + 1, device_floats(32), 128, cudaMemcpyDeviceToHost);
}
static void copy_of_wrong_kind() {
    float x[32] = {};
    cudaMemcpy(device_floats(32), x, sizeof x, cudaMemcpyDeviceToHost);
}
static void free_twice() {
    float* p = device_floats(32);
    OK(cudaFree(p));
    cudaFree(p);
}
static void one_element_too_many() { fill_kernel<<<1, 64>>>(device_floats(33), 34); }
static void far_behind_the_end() { fill_kernel<<<1 << 12, 1024>>>(device_floats(1), 1 << 22); }

__global__ void misaligned_kernel(float* out) { *(float4*)(out + 1) = {1, 2, 3, 4}; }
static void misaligned_vector() { misaligned_kernel<<<1, 1>>>(device_floats(8)); }

struct Tensor {
    float* data;
};
__global__ void tensor_kernel(Tensor t) { t.data[threadIdx.x] = 1; }
static void freed_pointer_in_struct() {
    Tensor t = {device_floats(32)};
    OK(cudaFree(t.data));
    tensor_kernel<<<1, 32>>>(t);
}

template <int n> __device__ __noinline__ int recurse(volatile char* above) {
    volatile char here[1024];
    here[0] = above[0];
    if constexpr (n > 0) { return recurse<n - 1>(here) + here[0]; }
    return here[0];
}
__global__ void deep_kernel() {
    char zero = 0;
    recurse<200>(&zero);
}
static void stack_overflow() { deep_kernel<<<1, 1>>>(); }

// ---------------------------------------------------------------------------------------------------------------------
// shared memory

__global__ void large_static_kernel() {
    __shared__ float a[8192], b[8192];
    a[threadIdx.x] = b[threadIdx.x] = 0;
}
static void large_static_shared() { large_static_kernel<<<1, 32>>>(); }

__global__ void static_and_dynamic_kernel() {
    __shared__ float a[1024];
    extern __shared__ float b[];
    a[threadIdx.x] = b[threadIdx.x] = 0;
}
template <int dynamic> static void static_and_dynamic_shared() {
    OK(cudaFuncSetAttribute(static_and_dynamic_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, dynamic));
    static_and_dynamic_kernel<<<1, 32, dynamic>>>();
}

__global__ void commit_kernel() { asm volatile("cp.async.commit_group;" : : : "memory"); }
static void instruction_of_ampere() { commit_kernel<<<1, 1>>>(); }

__global__ void static_overrun_kernel() {
    __shared__ float a[32];
    a[threadIdx.x + 1] = 0;
}
static void static_shared_overrun() { static_overrun_kernel<<<1, 32>>>(); }

__global__ void dynamic_overrun_kernel() {
    extern __shared__ float a[];
    a[threadIdx.x + 1] = 0;
}
static void dynamic_shared_overrun() { dynamic_overrun_kernel<<<1, 32, 32 * sizeof(float)>>>(); }

__global__ void generic_address_kernel(float* p) { __cvta_generic_to_shared(p); }
static void device_pointer_as_shared() { generic_address_kernel<<<1, 1>>>(device_floats(1)); }

// ---------------------------------------------------------------------------------------------------------------------
// barriers and warps

enum Divergence {
    EXITED,
    OTHER_BARRIER,
    OTHER_SHUFFLE,
    SHUFFLE_AND_SYNCWARP,
    LANES_EXITED,
    LANES_ELSEWHERE,
    NOT_IN_MASK,
    WIDTH
};

__global__ void diverge_kernel(Divergence how) {
    int i = threadIdx.x;
    if (how == EXITED && i == 5) { return; }
    if (how == EXITED) { __syncthreads(); }
    if (how == OTHER_BARRIER) {
        if (i < 32) {
            __syncthreads();
        } else {
            __syncthreads();
        }
    }
    if (how == OTHER_SHUFFLE) {
        if (i % 2) {
            __shfl_xor_sync(~0u, i, 1);
        } else {
            __shfl_xor_sync(~0u, i, 1);
        }
    }
    if (how == SHUFFLE_AND_SYNCWARP) {
        if (i % 2) {
            __shfl_xor_sync(~0u, i, 1);
        } else {
            __syncwarp();
        }
    }
    if (how == LANES_EXITED && i >= 48) { return; }
    if (how == LANES_EXITED) { __shfl_xor_sync(~0u, i, 1); }
    if (how == LANES_ELSEWHERE && i < 8) { __syncwarp(); }
    if (how == LANES_ELSEWHERE) { __syncthreads(); }
    if (how == NOT_IN_MASK) { __syncwarp(0xffff); }
    if (how == WIDTH) { __shfl_xor_sync(~0u, i, 1, 12); }
}
template <Divergence how> static void diverge() { diverge_kernel<<<1, 64>>>(how); }
static void half_a_warp() { diverge_kernel<<<1, 48>>>(LANES_EXITED); } // none exits: the last 16 do not exist

static void barrier_on_the_host() { __syncthreads(); }

// ---------------------------------------------------------------------------------------------------------------------
// races

enum Exchange { NOTHING, SYNCWARP, SYNCTHREADS, SHUFFLE };

// Each thread reads the element of shared memory that the thread `distance` before it wrote, with `order` in between.
__global__ void exchange_kernel(float* out, int distance, Exchange order) {
    __shared__ float s[64];
    int i = threadIdx.x;
    s[i] = (float)i;
    if (order == SYNCWARP) { __syncwarp(); }
    if (order == SYNCTHREADS) { __syncthreads(); }
    if (order == SHUFFLE) { __shfl_xor_sync(~0u, i, 1); }
    out[i] = i >= distance ? s[i - distance] : 0;
}
template <int distance, Exchange order> static void exchange() {
    exchange_kernel<<<1, 64>>>(device_floats(64), distance, order);
}
// One warp reads elements that another one overwrites: a barrier is missing between the two.
__global__ void write_after_read_kernel(float* out) {
    __shared__ float s[64];
    int i = threadIdx.x;
    s[i] = (float)i;
    __syncthreads();
    out[i] = s[63 - i];
    s[i] = 0;
}
static void write_after_read() { write_after_read_kernel<<<1, 64>>>(device_floats(64)); }

__device__ void begin_copy(float* to, const float* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;\ncp.async.commit_group;"
                 : : "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from), "r"(4) : "memory");
}

// Each thread copies an element and waits for its own copy, which another thread then reads. A barrier between the two
// orders the beginnings of the copies, not their ends.
enum Missing { NONE, BEFORE, BEHIND };
__global__ void copies_kernel(float* out, const float* in, Missing barrier) {
    __shared__ float s[64];
    const int i = threadIdx.x;
    s[i] = 0;
    __syncthreads();
    out[i] = s[63 - i];
    if (barrier != BEFORE) { __syncthreads(); }
    begin_copy(s + i, in + i);
    __syncthreads();
    asm volatile("cp.async.wait_group 0;" : : : "memory");
    if (barrier != BEHIND) { __syncthreads(); }
    if (barrier != BEFORE) { out[i] = s[63 - i]; }
}
template <Missing barrier> static void copies() {
    copies_kernel<<<1, 64>>>(device_floats(64), device_floats(64), barrier);
}

__global__ void blocks_kernel(float* out, int each) { out[each ? blockIdx.x : 0] = 1; }
template <int each> static void blocks() { blocks_kernel<<<4, 1>>>(device_floats(4), each); }

// Each block writes an element that the block before has read, after it has read it too.
__global__ void neighbours_kernel(float* x) {
    const float sum = x[blockIdx.x] + x[blockIdx.x + 1];
    x[blockIdx.x] = sum;
}
static void neighbours() { neighbours_kernel<<<4, 1>>>(device_floats(5)); }

__global__ void atomics_kernel(unsigned* out) { atomicMax(out, threadIdx.x); }
static void atomics() {
    unsigned* most = (unsigned*)device_floats(1);
    OK(cudaMemset(most, 0, sizeof *most));
    atomics_kernel<<<4, 64>>>(most);
}

static void launch_after_launch() {
    float* p = device_floats(64);
    fill_kernel<<<1, 64>>>(p, 64);
    exchange_kernel<<<1, 64>>>(p, 1, SYNCTHREADS);
}

// ---------------------------------------------------------------------------------------------------------------------

static const Case CASES[] = {
    {"host pointer as argument", host_pointer_as_argument, nullptr, "fill_kernel: argument 1 (", EVERY},
    {"freed pointer as argument", freed_pointer_as_argument, nullptr, "is freed memory", EVERY},
    {"host reads device memory", host_reads_device_memory, nullptr, "host code touches device memory", EVERY},
    {"copy too long", copy_too_long, nullptr, "132 bytes at offset 0 of an allocation of 128", EVERY},
    {"copy too long for page-locked memory", copy_too_long_for_the_host, nullptr,
     "128 bytes at offset 4 of 128 page-locked ones", EVERY},
    {"copy of the wrong kind", copy_of_wrong_kind, nullptr, "the kind of the copy says host", EVERY},
    {"free twice", free_twice, nullptr, "or freed already", EVERY},
    {"one element too many", one_element_too_many, nullptr, "4 bytes at offset 132 of an allocation of 132", CHECK},
    {"far behind the end", far_behind_the_end, nullptr, "behind all allocations", PLAIN},
    {"misaligned vector", misaligned_vector, nullptr, "misaligned address", CHECK},
    {"freed pointer in a struct", freed_pointer_in_struct, nullptr, "or in a freed one", CHECK},
    {"stack overflow", stack_overflow, nullptr, "more than its stack", EVERY},
    {"large static shared memory", large_static_shared, nullptr, "65536 bytes of static shared memory", EVERY},
    {"static and dynamic shared memory", static_and_dynamic_shared<225 << 10>, "EMU_CC=90",
     "the limit is 227 KB together", EVERY},
    {"shared memory of Turing", static_and_dynamic_shared<62 << 10>, "EMU_CC=75", "the limit is 64 KB together", EVERY},
    {"shared memory of Ampere", static_and_dynamic_shared<62 << 10>, nullptr, nullptr, EVERY},
    {"instruction of Ampere on Turing", instruction_of_ampere, "EMU_CC=75",
     "cp.async.commit_group: needs sm_80, and the device is sm_75", EVERY},
    {"instruction of Ampere", instruction_of_ampere, nullptr, nullptr, EVERY},
    {"device that is not emulated", instruction_of_ampere, "EMU_CC=79", "EMU_CC=79: only 70, 75, 80", EVERY},
    {"static shared overrun", static_shared_overrun, nullptr, "out of bounds", CHECK},
    {"dynamic shared overrun", dynamic_shared_overrun, nullptr, "4 bytes behind the dynamic shared memory", CHECK},
    {"device pointer as shared", device_pointer_as_shared, nullptr, "is not shared memory", EVERY},
    {"barrier: thread exited", diverge<EXITED>, nullptr, "but thread (5,0,0) has exited", EVERY},
    {"barrier: two of them", diverge<OTHER_BARRIER>, nullptr, "thread (32,0,0) at another one", EVERY},
    {"shuffle: two of them", diverge<OTHER_SHUFFLE>, nullptr, "different warp instructions", EVERY},
    {"shuffle and syncwarp", diverge<SHUFFLE_AND_SYNCWARP>, nullptr, "different warp instructions", EVERY},
    {"shuffle: lanes exited", diverge<LANES_EXITED>, nullptr, "only 0000ffff are there: ffff0000 have exited", EVERY},
    {"shuffle: lanes that are not there", half_a_warp, nullptr, "0000ffff are there: ffff0000 have exited or do not",
     EVERY},
    {"syncwarp: lanes elsewhere", diverge<LANES_ELSEWHERE>, nullptr, "only 000000ff are there: ffffff00 wait elsewhere",
     EVERY},
    {"mask without the lane", diverge<NOT_IN_MASK>, nullptr, "lacks the calling lane 16", EVERY},
    {"width of a shuffle", diverge<WIDTH>, nullptr, "the width 12", EVERY},
    {"barrier on the host", barrier_on_the_host, nullptr, "called on the host", EVERY},
    {"race: no barrier", exchange<32, NOTHING>, nullptr, "nothing orders them", CHECK},
    {"race: not in reverse order", exchange<32, NOTHING>, "EMU_ORDER=1", "nothing orders them", CHECK},
    {"race: within a warp", exchange<1, NOTHING>, nullptr, "test_complaints.cu:", CHECK},
    {"race: shuffles order nothing", exchange<1, SHUFFLE>, nullptr, "nothing orders them", CHECK},
    {"race: syncwarp between warps", exchange<32, SYNCWARP>, nullptr, "nothing orders them", CHECK},
    {"race: write after read", write_after_read, nullptr, "read it", CHECK},
    {"race: a copy to what another thread reads", copies<BEFORE>, nullptr, "nothing orders them", CHECK},
    {"race: a copy that its own thread waits for", copies<BEHIND>, nullptr, "nothing orders them", CHECK},
    {"race: blocks", blocks<0>, nullptr, "byte 0 of 16 device bytes", CHECK},
    {"race: a block writes what an earlier one read", neighbours, nullptr, "block 0 read it", CHECK},
    {"race: the same in reverse order", neighbours, "EMU_ORDER=1", "nothing orders them", CHECK},
    {"no race: syncwarp within a warp", exchange<0, SYNCWARP>, nullptr, nullptr, EVERY},
    {"no race: barrier", exchange<32, SYNCTHREADS>, nullptr, nullptr, EVERY},
    {"no race: barriers before and behind a copy", copies<NONE>, nullptr, nullptr, EVERY},
    {"no race: blocks apart", blocks<1>, nullptr, nullptr, EVERY},
    {"no race: atomics", atomics, nullptr, nullptr, EVERY},
    {"no race: launches", launch_after_launch, nullptr, nullptr, EVERY},
};

int main(int argc, char** argv) { return run_cases(CASES, sizeof CASES / sizeof *CASES, argc, argv); }
