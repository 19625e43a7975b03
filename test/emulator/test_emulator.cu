// Tests that the emulator behaves as CUDA: kernels, shared memory, warps, an atomic, bf16, streams, graphs, errors.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <nv/target>
#include <nvtx3/nvToolsExt.h>
#include "cases.h"
#include <cmath>
#include <vector>

// An array on the device; host() copies it to the host.
template <class T> struct Array {
    T* data;
    size_t n;
    explicit Array(size_t n) : data(nullptr), n(n) { OK(cudaMalloc(&data, n * sizeof(T))); }
    std::vector<T> host() const {
        std::vector<T> h(n);
        OK(cudaDeviceSynchronize());
        OK(cudaMemcpy(h.data(), data, n * sizeof(T), cudaMemcpyDeviceToHost));
        return h;
    }
};

// ---------------------------------------------------------------------------------------------------------------------
// kernels and launches

__global__ void index_kernel(int* out) {
    int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    int threads = blockDim.x * blockDim.y * blockDim.z;
    out[block * threads + thread] = block * threads + thread;
}
static void indices() {
    Array<int> a(2 * 3 * 4 * 5 * 6 * 7);
    index_kernel<<<dim3(2, 3, 4), dim3(5, 6, 7)>>>(a.data);
    std::vector<int> h = a.host();
    for (size_t i = 0; i < a.n; i++) { EXPECT(h[i] == (int)i); }
}

namespace outer {
namespace {
template <class T, int n> __global__ void __launch_bounds__(32 * n) scaled_kernel(T* out, T factor) {
    out[threadIdx.x] = factor * (T)threadIdx.x + n;
}
} // namespace
struct View {
    int *out, bias;
};
static __global__ __launch_bounds__(64, 2) void view_kernel(View v, const char* text) {
    v.out[threadIdx.x] = v.bias + (text == nullptr);
}
} // namespace outer
template <class T> __global__ void deduced_kernel(T* out, size_t n);
template <class T> __global__ void deduced_kernel(T* out, size_t n) { *out = (T)n; }

#define LAUNCH_IN_MACRO(kernel, blocks, ...) kernel<<<blocks, (blocks) > 0 ? 32 : 1>>>(__VA_ARGS__)
static void launches() {
    Array<int> a(64);
    Array<float> f(32);
    LAUNCH_IN_MACRO((outer::scaled_kernel<int, (2 > 1 ? 2 : 1)>), 1, a.data, 3);
    EXPECT(a.host()[31] == 95);
    if (a.n)
        outer::scaled_kernel<float, 1><<<1, 32, 0, nullptr>>>(f.data,
                                                             0.5f);
    else
        outer::scaled_kernel<float, 1><<<1, 64 >> 1>>>(f.data, 1.5f);
    EXPECT(f.host()[31] == 16.5f);
    outer::view_kernel<<<1, 64>>>(outer::View{a.data, 7}, nullptr);
    EXPECT(a.host()[63] == 8);
    deduced_kernel<<<1, 1>>>(f.data, 9);
    EXPECT(f.host()[0] == 9);
    const auto chosen = a.n > 1 ? outer::scaled_kernel<int, 2> : outer::scaled_kernel<int, 1>;
    chosen<<<1, 64>>>(a.data, 5);
    EXPECT(a.host()[63] == 317);
    const char* raw = R"x(a "<<<" b)x";
    EXPECT(strlen(raw) == 9 && '"' == 34 && 1'000 == 1000);
}

// Records in which order the threads ran: each takes the next number.
__global__ void order_kernel(int* out, int* counter) {
    out[blockIdx.x * blockDim.x + threadIdx.x] = (*counter)++;
}
static std::vector<int> running_order() {
    Array<int> a(256), counter(1);
    OK(cudaMemset(counter.data, 0, 4));
    order_kernel<<<4, 64>>>(a.data, counter.data);
    return a.host();
}
static void forward_order() {
    std::vector<int> order = running_order();
    for (int i = 0; i < 256; i++) { EXPECT(order[i] == i); }
}
static void reverse_order() {
    std::vector<int> order = running_order();
    for (int i = 0; i < 256; i++) { EXPECT(order[i] == 255 - i); }
}
static void random_order() {
    std::vector<int> order = running_order();
    bool seen[256] = {}, ascending = true, descending = true;
    for (int i = 0; i < 256; i++) {
        seen[order[i]] = true;
        ascending &= i == 0 || order[i] > order[i - 1];
        descending &= i == 0 || order[i] < order[i - 1];
    }
    for (bool s : seen) { EXPECT(s); }
    EXPECT(!ascending && !descending);
}

template <int bounds> __global__ void __launch_bounds__(bounds) limited_kernel() {
    extern __shared__ int s[];
    s[threadIdx.x] = 0;
}
static void launch_limits() {
    limited_kernel<1024><<<1, 1025>>>();
    EXPECT(cudaGetLastError() == cudaErrorInvalidConfiguration);
    EXPECT(cudaGetLastError() == cudaSuccess);
    limited_kernel<1024><<<0, 32>>>();
    EXPECT(cudaGetLastError() == cudaErrorInvalidConfiguration);
    limited_kernel<1024><<<1, 0>>>();
    EXPECT(cudaGetLastError() == cudaErrorInvalidConfiguration);
    limited_kernel<1024><<<dim3(1, 65536), 32>>>();
    EXPECT(cudaGetLastError() == cudaErrorInvalidConfiguration);
    limited_kernel<1024><<<1, dim3(1, 1, 65)>>>();
    EXPECT(cudaGetLastError() == cudaErrorInvalidConfiguration);
    limited_kernel<128><<<1, 256>>>();
    EXPECT(cudaGetLastError() != cudaSuccess);
    limited_kernel<128><<<1, 128, 48 << 10>>>();
    EXPECT(cudaGetLastError() == cudaSuccess);
    limited_kernel<128><<<1, 128, 64 << 10>>>();
    EXPECT(cudaGetLastError() == cudaErrorInvalidValue);
    OK(cudaFuncSetAttribute(limited_kernel<128>, cudaFuncAttributeMaxDynamicSharedMemorySize, 64 << 10));
    limited_kernel<128><<<1, 128, 64 << 10>>>();
    EXPECT(cudaGetLastError() == cudaSuccess);
    limited_kernel<64><<<1, 32, 64 << 10>>>(); // another instantiation
    EXPECT(cudaGetLastError() == cudaErrorInvalidValue);
    EXPECT(cudaFuncSetAttribute(limited_kernel<64>, cudaFuncAttributeMaxDynamicSharedMemorySize, 228 << 10) ==
           cudaErrorInvalidValue);
    cudaFuncAttributes attributes;
    OK(cudaFuncGetAttributes(&attributes, (const void*)limited_kernel<128>));
    EXPECT(attributes.ptxVersion == 80);
    int blocks = 0;
    OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, limited_kernel<128>, 128, 0));
    EXPECT(blocks == 16);
}

// ---------------------------------------------------------------------------------------------------------------------
// shared memory

struct alignas(16) Pair {
    float x;
    int y;
};
template <class T, int n> __global__ void static_shared_kernel(float* out) {
    __shared__ T a[n], b[n][2];
    __shared__ Pair pair;
    static __shared__ __align__(32) float c[2][3][4];
    const float before = (float)b[threadIdx.x][1];
    bool poisoned = before != before && pair.x != pair.x;
    __syncthreads();
    a[threadIdx.x] = (T)(float)threadIdx.x;
    b[n - 1 - threadIdx.x][1] = a[threadIdx.x];
    if (threadIdx.x == 0) {
        c[1][2][0] = (float)((size_t)c % 32);
        pair.y = 100;
    }
    __syncthreads();
    out[threadIdx.x] = poisoned ? (float)b[threadIdx.x][1] + (float)pair.y + c[1][2][0] : -1.0f;
}
__global__ void dynamic_shared_kernel(float* out) {
    extern __shared__ __align__(16) unsigned char bytes[];
    float* s = (float*)bytes;
    bool poisoned = s[threadIdx.x] != s[threadIdx.x];
    s[threadIdx.x] = (float)((size_t)bytes % 16);
    __syncthreads();
    out[threadIdx.x] = poisoned ? s[31 - threadIdx.x] : -1.0f;
}
__global__ void rows_kernel(float* out) {
    extern __shared__ float rows[][8];
    rows[threadIdx.x / 8][threadIdx.x % 8] = (float)threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = rows[3 - threadIdx.x / 8][threadIdx.x % 8];
}
static void shared_memory() {
    Array<float> a(32);
    static_shared_kernel<float, 32><<<1, 32>>>(a.data);
    EXPECT(a.host()[3] == 128);
    static_shared_kernel<__nv_bfloat16, 16><<<1, 16>>>(a.data);
    EXPECT(a.host()[3] == 112);
    dynamic_shared_kernel<<<1, 32, 128>>>(a.data);
    EXPECT(a.host()[31] == 0);
    rows_kernel<<<1, 32, 128>>>(a.data);
    EXPECT(a.host()[0] == 24 && a.host()[31] == 7);
}

// ---------------------------------------------------------------------------------------------------------------------
// barriers and warps

__global__ void shuffle_kernel(int* out) {
    int i = threadIdx.x, k = 0;
    auto put = [&](int value) { out[32 * k++ + i] = value; };
    put(__shfl_sync(~0u, i, 5));
    put(__shfl_xor_sync(~0u, i, 3));
    put(__shfl_sync(~0u, i, 9, 8));
    // A lane of a later segment cannot be read (the result is the thread's own value), one of an earlier segment can.
    put(__shfl_xor_sync(~0u, i, 8, 8));
    put(i < 16 ? __shfl_sync(0xffff, i, 3) : __shfl_sync(0xffff0000, i, 3)); // the other half gets poison
    float x = (float)i;
    for (int o = 16; o > 0; o /= 2) { x += __shfl_xor_sync(~0u, x, o); }
    put((int)x);
}
static void shuffles() {
    Array<int> a(192);
    shuffle_kernel<<<1, 32>>>(a.data);
    std::vector<int> h = a.host();
    for (int i = 0; i < 32; i++) {
        const int first = i / 8 * 8;
        EXPECT(h[i] == 5);
        EXPECT(h[32 + i] == (i ^ 3));
        EXPECT(h[64 + i] == first + 1);
        EXPECT(h[96 + i] == (i & 8 ? i ^ 8 : i));
        EXPECT(h[128 + i] == (i < 16 ? 3 : -1));
        EXPECT(h[160 + i] == 496);
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// functions that kernels call

// Blocks may run in parallel.
__global__ void atomic_kernel(unsigned* most) { atomicMax(most, (blockIdx.x * blockDim.x + threadIdx.x) * 37 % 128); }
static void atomic() {
    Array<unsigned> most(1);
    OK(cudaMemset(most.data, 0, 4));
    atomic_kernel<<<2, 64>>>(most.data);
    EXPECT(most.host()[0] == 127);
}

static unsigned bits_of(__nv_bfloat16 h) { return __nv_bfloat16_raw(h).x; }
static void bf16() {
    for (unsigned u = 0; u < 65536; u++) { // bf16 to float and back is exact; floats between two are rounded
        const float f = __bfloat162float(__nv_bfloat16_raw{(unsigned short)u});
        if (f != f) {
            EXPECT(bits_of(__float2bfloat16_rn(f)) == 0x7fff);
            continue;
        }
        EXPECT(bits_of(__float2bfloat16_rn(f)) == u);
        if (std::isinf(f) || (u & 0x7fff) == 0x7f7f) { continue; }
        float half = __uint_as_float(u << 16 | 0x8000), above = __uint_as_float(u << 16 | 0x8001);
        EXPECT(bits_of(__float2bfloat16_rn(half)) == u + u % 2);
        EXPECT(bits_of(__float2bfloat16_rn(above)) == u + 1);
    }
    __nv_bfloat162 pair = __floats2bfloat162_rn(1.5f, -2.0f);
    EXPECT(__low2float(pair) == 1.5f && __high2float(pair) == -2.0f && sizeof pair == 4);
}

// The value of the half before infinity's bits by its definition, and of infinity's 65536, where rounding ends.
static double value_of_half(unsigned u) {
    const int exponent = (int)(u >> 10 & 31), mantissa = (int)(u & 1023);
    return exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
}
static unsigned bits_of(__half h) { return __half_raw(h).x; }
static float value_of(unsigned bits) { return __half2float(__half_raw{(unsigned short)bits}); }
static void fp16() {
    for (unsigned u = 0; u < 0x7c00; u++) { // as bf16()
        const float f = (float)value_of_half(u), half = (float)((value_of_half(u) + value_of_half(u + 1)) / 2);
        EXPECT(value_of(u) == f);
        EXPECT(value_of(u | 0x8000) == -f);
        EXPECT(bits_of(__float2half_rn(f)) == u && bits_of(__float2half_rn(-f)) == (u | 0x8000));
        EXPECT(bits_of(__float2half_rn(half)) == u + u % 2);
        EXPECT(bits_of(__float2half_rn(nextafterf(half, 0))) == u);
        EXPECT(bits_of(__float2half_rn(nextafterf(half, INFINITY))) == u + 1);
    }
    for (unsigned u = 0x7c01; u < 0x8000; u++) { EXPECT(std::isnan(value_of(u))); }
    EXPECT(bits_of(__float2half_rn(NAN)) == 0x7fff && value_of(0x7c00) == INFINITY);
    EXPECT(bits_of(__float2half_rn(-INFINITY)) == 0xfc00 && bits_of(__float2half_rn(1e6f)) == 0x7c00);
    const __half2 pair = __floats2half2_rn(1.5f, -2.0f);
    EXPECT(__low2float(pair) == 1.5f && __high2float(pair) == -2.0f && sizeof pair == 4);
}

// 2^-24 beside 1 is cut off, in each product; what is kept of a sum is cut off too, towards zero.
static void tensor_cores() {
    float ones[8], tiny[8];
    for (int i = 0; i < 8; i++) { ones[i] = 1, tiny[i] = 0x1.8p-23f; }
    const auto add = [&](float sum, int count, int bits) {
        return emu::tensor_core_add(sum, ones, 1, tiny, 1, (size_t)count, bits);
    };
    EXPECT(add(1, 8, 23) == 1 + 8 * 0x1p-23f && add(-1, 8, 23) == -1 + 8 * 0x1p-23f);
    EXPECT(add(1, 8, 25) == 1 + 12 * 0x1p-23f && add(1, 1, 25) == 1 + 0x1p-23f && add(1, 8, 13) == 1);
    EXPECT(add(0, 0, 23) == 0 && add(INFINITY, 1, 23) == INFINITY && add(NAN, 1, 23) != add(NAN, 1, 23));
}

static void approximate_functions() {
    int up = 0;
    for (int i = 1; i <= 100; i++) {
        const float x = 0.01f * (float)i, y = emu::approximate(x, expf(x), 2), error = y / expf(x) - 1;
        EXPECT(fabsf(error) >= 0x1p-23f && fabsf(error) <= 0x1.8p-22f);
        EXPECT(emu::approximate(x, expf(x), 2) == y);
        up += error > 0;
    }
    EXPECT(up > 10 && up < 90 && emu::approximate(-INFINITY, 0, INFINITY) == 0);
}

// ---------------------------------------------------------------------------------------------------------------------
// memory

__global__ void copy_kernel(float* out, const float* in) { out[threadIdx.x] = in[threadIdx.x]; }
static void memory() {
    size_t before, after, total;
    OK(cudaMemGetInfo(&before, &total));
    EXPECT(before == 1 << 20 && total == 1 << 20);
    Array<float> a(1000);
    EXPECT((size_t)a.data % 256 == 0);
    for (float x : a.host()) { EXPECT(x != x); }
    OK(cudaMemGetInfo(&after, &total));
    EXPECT(before - after == 4000);
    float* p = (float*)1;
    EXPECT(cudaMalloc(&p, 1 << 20) == cudaErrorMemoryAllocation && cudaGetLastError() == cudaErrorMemoryAllocation);
    OK(cudaMalloc(&p, 0));
    EXPECT(p == nullptr);
    OK(cudaFree(p));
    OK(cudaFree(a.data));
    OK(cudaMemGetInfo(&after, &total));
    EXPECT(before == after);
    OK(cudaMallocHost(&p, 128)); // a kernel may use page-locked memory
    p[3] = 5;
    Array<float> b(4);
    copy_kernel<<<1, 4>>>(b.data, p);
    EXPECT(b.host()[3] == 5);
    cudaPointerAttributes attributes;
    OK(cudaPointerGetAttributes(&attributes, b.data));
    EXPECT(attributes.type == cudaMemoryTypeDevice);
    OK(cudaFreeHost(p));
}

static void reused_addresses() {
    float *a, *b, *c, *d;
    OK(cudaMalloc(&a, 4000));
    OK(cudaMemset(a, 0, 4000));
    OK(cudaFree(a));
    OK(cudaMalloc(&b, 10000)); // more than was freed
    OK(cudaMalloc(&c, 1000));
    OK(cudaMalloc(&d, 1000));
    EXPECT(b != a && c == a && d > c && d < c + 1000);
    float x = 0;
    OK(cudaMemcpy(&x, c, sizeof x, cudaMemcpyDeviceToHost));
    EXPECT(x != x);
}

struct Held {
    const float* x;
};
__global__ void held_kernel(float* out, Held held) { *out = *held.x; }
static void freed_memory() { // of a pointer inside of a struct, which a launch does not check
    Array<float> kept(1), freed(1);
    OK(cudaMemset(kept.data, 0, 4));
    OK(cudaMemset(freed.data, 0, 4));
    OK(cudaFree(freed.data));
    held_kernel<<<1, 1>>>(kept.data, Held{freed.data});
    EXPECT(std::isnan(kept.host()[0]));
}

__global__ void loaded_kernel() {}
static void charged_memory() {
    size_t fresh, before, after, total;
    OK(cudaMemGetInfo(&fresh, &total));
    EXPECT(total - fresh == emu::CONTEXT_BYTES);
    for (int i = 0; i < 2; i++) { loaded_kernel<<<1, 1>>>(); }
    OK(cudaMemGetInfo(&before, &total));
    EXPECT(fresh - before == emu::KERNEL_BYTES);
    cudaStream_t s;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    OK(cudaStreamCreate(&s));
    OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < 3; i++) { loaded_kernel<<<1, 1, 0, s>>>(); }
    OK(cudaStreamEndCapture(s, &graph));
    OK(cudaGraphInstantiate(&exec, graph));
    OK(cudaMemGetInfo(&after, &total));
    EXPECT(before - after == 3 * emu::GRAPH_NODE_BYTES);
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(graph));
    OK(cudaMemGetInfo(&after, &total));
    EXPECT(before == after);
}

// ---------------------------------------------------------------------------------------------------------------------
// streams and graphs

__global__ void add_kernel(float* x, float y) { *x += y; }
__global__ void multiply_kernel(float* x, const float* y) { *x *= *y; }

struct Pinned {
    float* x;
    explicit Pinned(float value) : x(nullptr) {
        OK(cudaMallocHost(&x, sizeof *x));
        *x = value;
    }
};

static void lazy_streams() {
    Array<float> a(1);
    Pinned one(1), result(0);
    float pageable = 2;
    cudaStream_t s, t;
    cudaEvent_t e;
    OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithPriority(&t, cudaStreamNonBlocking, -1));
    OK(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
    OK(cudaMemcpyAsync(a.data, &pageable, 4, cudaMemcpyHostToDevice, s));
    pageable = 3; // too late: the copy has read it
    OK(cudaMemcpyAsync(result.x, a.data, 4, cudaMemcpyDeviceToHost, s));
    EXPECT(*result.x == 0); // not waited for yet
    OK(cudaStreamSynchronize(s));
    EXPECT(*result.x == 2);
    OK(cudaMemcpyAsync(a.data, one.x, 4, cudaMemcpyHostToDevice, s));
    *one.x = 10; // too early: the copy of page-locked memory has not run
    OK(cudaEventRecord(e, s));
    OK(cudaStreamWaitEvent(t, e));
    add_kernel<<<1, 1, 0, t>>>(a.data, 5);
    OK(cudaMemcpyAsync(result.x, a.data, 4, cudaMemcpyDeviceToHost, t));
    OK(cudaStreamSynchronize(t));
    EXPECT(*result.x == 15);
    add_kernel<<<1, 1, 0, s>>>(a.data, 1); // not waited for
    OK(cudaMemcpyAsync(result.x, a.data, 4, cudaMemcpyDeviceToHost, t));
    OK(cudaStreamSynchronize(t));
    EXPECT(*result.x == 15);
    OK(cudaStreamDestroy(s));
    OK(cudaEventDestroy(e));
}

// The legacy default stream waits for a blocking one, and that for it.
static void default_stream_between() {
    Array<float> a(2);
    const float start[2] = {1, 2};
    cudaStream_t s;
    OK(cudaMemcpy(a.data, start, 8, cudaMemcpyHostToDevice));
    OK(cudaStreamCreate(&s));
    add_kernel<<<1, 1, 0, s>>>(a.data, 5);
    multiply_kernel<<<1, 1>>>(a.data, a.data + 1);
    add_kernel<<<1, 1, 0, s>>>(a.data, 1);
    OK(cudaStreamSynchronize(s));
    EXPECT(a.host()[0] == 13);
}

// The second stream does not wait for the addition in the first one.
static void later_streams_first() {
    Array<float> a(1);
    Pinned one(1), result(0);
    cudaStream_t s, t;
    OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithFlags(&t, cudaStreamNonBlocking));
    OK(cudaMemcpyAsync(a.data, one.x, 4, cudaMemcpyHostToDevice, s));
    OK(cudaStreamSynchronize(s));
    add_kernel<<<1, 1, 0, s>>>(a.data, 5);
    OK(cudaMemcpyAsync(result.x, a.data, 4, cudaMemcpyDeviceToHost, t));
    OK(cudaStreamSynchronize(s));
    OK(cudaStreamSynchronize(t));
    EXPECT(*result.x == (atoi(getenv("EMU_LAZY")) == 2 ? 1 : 6));
    OK(cudaStreamDestroy(s));
    OK(cudaStreamDestroy(t));
}

// Copies between device and device count in neither direction.
static void page_locked_memory() {
    const size_t in = emu::counts.copied_in, out = emu::counts.copied_out;
    Array<float> a(2);
    float* x;
    EXPECT(cudaMallocHost(&x, 2000) == cudaErrorMemoryAllocation && cudaGetLastError() == cudaErrorMemoryAllocation);
    OK(cudaMallocHost(&x, 8));
    OK(cudaMemcpy(a.data, x, 8, cudaMemcpyHostToDevice));
    OK(cudaMemcpy(a.data, a.data + 1, 4, cudaMemcpyDeviceToDevice));
    OK(cudaMemcpy(x, a.data, 4, cudaMemcpyDeviceToHost));
    EXPECT(emu::counts.copied_in == in + 8 && emu::counts.copied_out == out + 4);
    OK(cudaFreeHost(x));
}

static void events() {
    cudaEvent_t a, b;
    cudaStream_t s;
    float ms = -1;
    OK(cudaStreamCreate(&s));
    OK(cudaEventCreate(&a));
    OK(cudaEventCreate(&b));
    EXPECT(cudaEventElapsedTime(&ms, a, b) == cudaErrorInvalidResourceHandle);
    OK(cudaEventRecord(a, s));
    OK(cudaEventRecord(b, s));
    OK(cudaEventSynchronize(b));
    OK(cudaEventElapsedTime(&ms, a, b));
    EXPECT(ms > 0 && ms < 0.01);
    int least, greatest;
    OK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    EXPECT(greatest < least);
    EXPECT(nvtxRangePushA("range") == 0 && nvtxRangePop() == 0);
}

// EMU_SLOW=add_kernel makes that kernel take 1 ms on the clock of events; other kernels take no time.
static void clock_of_events() {
    Array<float> x(1);
    cudaEvent_t e[3];
    float add = 0, other = 0;
    for (int i = 0; i < 3; i++) { OK(cudaEventCreate(&e[i])); }
    OK(cudaMemset(x.data, 0, 4));
    OK(cudaEventRecord(e[0]));
    add_kernel<<<1, 1>>>(x.data, 1);
    add_kernel<<<1, 1>>>(x.data, 1);
    OK(cudaEventRecord(e[1]));
    multiply_kernel<<<1, 1>>>(x.data, x.data);
    OK(cudaEventRecord(e[2]));
    OK(cudaEventSynchronize(e[2]));
    OK(cudaEventElapsedTime(&add, e[0], e[1]));
    OK(cudaEventElapsedTime(&other, e[1], e[2]));
    EXPECT(add > 1.99f && add < 2.01f);
    EXPECT(other > 0 && other < 0.01f);
}

// With EMU_NOISE the same work takes different times, and now and then the same.
static void noisy_events() {
    cudaEvent_t e[40];
    int counts[5] = {};
    for (cudaEvent_t& x : e) {
        OK(cudaEventCreate(&x));
        OK(cudaEventRecord(x));
    }
    for (int i = 1; i < 40; i++) {
        float ms = 0;
        OK(cudaEventElapsedTime(&ms, e[i - 1], e[i]));
        const int us = (int)lroundf(1e3f * ms);
        EXPECT(us >= 1 && us <= 4);
        counts[us % 5]++;
    }
    EXPECT(counts[1] > 1 && counts[2] > 1 && counts[3] > 1 && counts[4] > 1);
}

// Returns a graph on stream *s, and on another one that waits for it at its beginning or behind its first kernel:
// a[0] += 1 on s, a[0] *= a[1] on the other. a becomes 1, 2.
enum WaitFor { THE_BEGINNING, THE_ADDITION };
static cudaGraphExec_t graph_of_two_streams(Array<float>& a, cudaStream_t* s, WaitFor wait_for) {
    const float start[2] = {1, 2};
    OK(cudaMemcpy(a.data, start, 8, cudaMemcpyHostToDevice));
    cudaStream_t t;
    cudaEvent_t fork, join;
    OK(cudaStreamCreateWithFlags(s, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithFlags(&t, cudaStreamNonBlocking));
    OK(cudaEventCreate(&fork));
    OK(cudaEventCreate(&join));
    OK(cudaStreamBeginCapture(*s, cudaStreamCaptureModeThreadLocal));
    if (wait_for == THE_BEGINNING) { OK(cudaEventRecord(fork, *s)); }
    add_kernel<<<1, 1, 0, *s>>>(a.data, 1);
    if (wait_for == THE_ADDITION) { OK(cudaEventRecord(fork, *s)); }
    OK(cudaStreamWaitEvent(t, fork));
    multiply_kernel<<<1, 1, 0, t>>>(a.data, a.data + 1);
    OK(cudaEventRecord(join, t));
    OK(cudaStreamWaitEvent(*s, join));
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    OK(cudaStreamEndCapture(*s, &graph));
    EXPECT(a.host()[0] == 1); // recorded, not run
    OK(cudaGraphInstantiate(&exec, graph));
    OK(cudaGraphDestroy(graph));
    return exec;
}

// x = (x + 1) * y on two streams, captured, and replayed with other y.
static void graphs() {
    Array<float> a(2);
    cudaStream_t s;
    const cudaGraphExec_t exec = graph_of_two_streams(a, &s, THE_ADDITION);
    OK(cudaGraphLaunch(exec, s));
    OK(cudaStreamSynchronize(s));
    EXPECT(a.host()[0] == 4);
    Pinned ten(10);
    OK(cudaMemcpyAsync(a.data + 1, ten.x, 4, cudaMemcpyHostToDevice, s));
    OK(cudaGraphLaunch(exec, s));
    OK(cudaStreamSynchronize(s));
    EXPECT(a.host()[0] == 50);
    OK(cudaGraphExecDestroy(exec));
}

// The second stream does not wait for the first one's addition: with EMU_LAZY the graph runs in another order, and the
// result differs.
static void graph_without_dependency() {
    Array<float> a(2);
    cudaStream_t s;
    const cudaGraphExec_t exec = graph_of_two_streams(a, &s, THE_BEGINNING);
    OK(cudaGraphLaunch(exec, s));
    OK(cudaStreamSynchronize(s));
    EXPECT(a.host()[0] == (getenv("EMU_LAZY") ? 3 : 4));
}

// With EMU_CAPTURE=2 the capture of the second launch fails: that capture is invalid, the next capture works.
static void refused_capture() {
    Array<float> a(1);
    cudaStream_t s;
    cudaGraph_t graph;
    OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    for (int attempt = 0; attempt < 2; attempt++) {
        OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
        add_kernel<<<1, 1, 0, s>>>(a.data, 1);
        OK(cudaGetLastError());
        add_kernel<<<1, 1, 0, s>>>(a.data, 1);
        EXPECT(cudaGetLastError() == (attempt ? cudaSuccess : cudaErrorStreamCaptureUnsupported));
        EXPECT(cudaStreamEndCapture(s, &graph) == (attempt ? cudaSuccess : cudaErrorStreamCaptureInvalidated));
        cudaGetLastError();
    }
    OK(cudaGraphDestroy(graph));
}

// Makes calls that are not allowed during a capture: each fails and invalidates the capture.
static void capture_errors() {
    Array<float> a(1);
    float x = 0, *p;
    cudaStream_t s, t;
    cudaEvent_t outside, fork;
    cudaGraph_t graph;
    OK(cudaStreamCreate(&s));
    OK(cudaStreamCreateWithFlags(&t, cudaStreamNonBlocking));
    OK(cudaEventCreate(&outside));
    OK(cudaEventCreate(&fork));
    OK(cudaEventRecord(outside, t));
    auto begin = [&] { OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal)); };
    auto is_invalid = [&] { return cudaStreamEndCapture(s, &graph) == cudaErrorStreamCaptureInvalidated; };
    begin();
    EXPECT(cudaStreamSynchronize(s) == cudaErrorStreamCaptureUnsupported && is_invalid());
    begin();
    EXPECT(cudaDeviceSynchronize() == cudaErrorStreamCaptureUnsupported && is_invalid());
    begin();
    EXPECT(cudaMalloc(&p, 4) == cudaErrorStreamCaptureUnsupported && is_invalid());
    begin();
    EXPECT(cudaMemcpyAsync(a.data, &x, 4, cudaMemcpyHostToDevice, s) == cudaErrorStreamCaptureUnsupported &&
           is_invalid());
    begin();
    EXPECT(cudaStreamWaitEvent(s, outside) == cudaErrorStreamCaptureIsolation && is_invalid());
    begin();
    add_kernel<<<1, 1>>>(a.data, 1); // the default stream would have to wait for s
    EXPECT(cudaGetLastError() == cudaErrorStreamCaptureImplicit && is_invalid());
    begin();
    OK(cudaEventRecord(fork, s));
    OK(cudaStreamWaitEvent(t, fork));
    add_kernel<<<1, 1, 0, t>>>(a.data, 1);
    EXPECT(cudaStreamEndCapture(s, &graph) == cudaErrorStreamCaptureUnjoined);
    EXPECT(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeThreadLocal) == cudaErrorStreamCaptureUnsupported);
    cudaStream_t other;
    OK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    begin();
    OK(cudaEventRecord(fork, s));
    OK(cudaStreamBeginCapture(other, cudaStreamCaptureModeThreadLocal));
    EXPECT(cudaStreamWaitEvent(other, fork) == cudaErrorStreamCaptureMerge);
    cudaStreamEndCapture(other, &graph);
    OK(cudaStreamEndCapture(s, &graph));
    EXPECT(cudaStreamWaitEvent(t, fork) == cudaErrorCapturedEvent);
}

// ---------------------------------------------------------------------------------------------------------------------
// devices and their failures

static void device() {
    int count = 0, driver = 0, value = 0;
    OK(cudaGetDeviceCount(&count));
    OK(cudaDriverGetVersion(&driver));
    EXPECT(count == 8 && driver == 13000);
    EXPECT(cudaSetDevice(8) == cudaErrorInvalidDevice);
    cudaDeviceProp p;
    OK(cudaGetDeviceProperties(&p, 0));
    OK(cudaDeviceGetAttribute(&value, cudaDevAttrComputeCapabilityMinor, 0));
    EXPECT(p.major == 7 && p.minor == 5 && value == 5);
    EXPECT(strcmp(cudaGetErrorName(cudaErrorECCUncorrectable), "cudaErrorECCUncorrectable") == 0);
    EXPECT(strcmp(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory") == 0);
}

__global__ void target_kernel(float* out) {
    NV_IF_TARGET(NV_PROVIDES_SM_80, (out[0] = 1;))
    NV_IF_ELSE_TARGET(NV_PROVIDES_SM_80, (out[1] = 80, out[2] = 81;), (out[1] = 79;))
}
// Code and limits are those of the device: blocks of 256 threads, with and without 30 KB of shared memory.
template <int capability> static void device_limits() {
    const bool is_turing = capability == 75;
    int blocks = 0, blocks_30k = 0;
    OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, add_kernel, 256, 0));
    OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks_30k, add_kernel, 256, 30 << 10));
    EXPECT(blocks == (is_turing ? 4 : 6) && blocks_30k == (is_turing ? 2 : 3));
    OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, add_kernel, 32, 0));
    EXPECT(blocks == 16);
    Array<float> out(3);
    OK(cudaMemset(out.data, 0, 12));
    target_kernel<<<1, 1>>>(out.data);
    EXPECT(out.host() == (is_turing ? std::vector<float>{0, 79, 0} : std::vector<float>{1, 80, 81}));
}
__global__ void greedy_kernel() {}
static void registers() {
    char path[] = "/tmp/emu-ptxas-XXXXXX";
    FILE* report = fdopen(mkstemp(path), "w");
    fprintf(report, "ptxas info    : Compiling entry function '_Z13greedy_kernelv' for 'sm_80'\n"
                    "ptxas info    : Used 80 registers, used 0 barriers\n");
    fclose(report);
    setenv("EMU_PTXAS", path, 1);
    int blocks = 0;
    OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, greedy_kernel, 256, 0));
    EXPECT(blocks == 65536 / (256 * 80));
    greedy_kernel<<<1, 512>>>();
    OK(cudaGetLastError());
    greedy_kernel<<<1, 1024>>>();
    EXPECT(cudaGetLastError() == cudaErrorLaunchOutOfResources);
    unlink(path);
}

static void no_device() {
    int count = 1;
    EXPECT(cudaGetDeviceCount(&count) == cudaErrorNoDevice && count == 0);
    EXPECT(cudaFree(nullptr) == cudaErrorNoDevice);
}
static void forked() { // a process whose parent has used the device
    int count = 0;
    OK(cudaFree(nullptr));
    const pid_t child = fork();
    if (child == 0) { _exit(cudaGetDeviceCount(&count) == cudaErrorInitializationError && count == 0 ? 0 : 1); }
    int status = -1;
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
}
static void no_driver() {
    int count, version = 1;
    EXPECT(cudaGetDeviceCount(&count) == cudaErrorInsufficientDriver);
    OK(cudaDriverGetVersion(&version));
    EXPECT(version == atoi(getenv("EMU_DRIVER")));
}
static void failing_launch() {
    Array<float> a(1);
    OK(cudaMemset(a.data, 0, 4));
    add_kernel<<<1, 1>>>(a.data, 1);
    EXPECT(a.host()[0] == 1);
    add_kernel<<<1, 1>>>(a.data, 1);
    EXPECT(cudaDeviceSynchronize() == cudaErrorECCUncorrectable);
    EXPECT(cudaGetLastError() == cudaErrorECCUncorrectable && cudaGetLastError() == cudaErrorECCUncorrectable);
    float x;
    EXPECT(cudaMemcpy(&x, a.data, 4, cudaMemcpyDeviceToHost) == cudaErrorECCUncorrectable);
}

static const Case CASES[] = {
    {"indices", indices, nullptr, nullptr, EVERY},
    {"launches", launches, nullptr, nullptr, EVERY},
    {"launch limits", launch_limits, nullptr, nullptr, EVERY},
    {"forward order", forward_order, nullptr, nullptr, PLAIN},
    {"reverse order", reverse_order, "EMU_ORDER=1", nullptr, PLAIN},
    {"random order", random_order, "EMU_ORDER=7", nullptr, PLAIN},
    {"shared memory", shared_memory, nullptr, nullptr, EVERY},
    {"shuffles", shuffles, nullptr, nullptr, EVERY},
    {"shuffles, reverse", shuffles, "EMU_ORDER=1", nullptr, EVERY},
    {"shuffles, random", shuffles, "EMU_ORDER=3", nullptr, EVERY},
    {"atomic", atomic, nullptr, nullptr, EVERY},
    {"bf16", bf16, nullptr, nullptr, EVERY},
    {"fp16", fp16, nullptr, nullptr, EVERY},
    {"memory", memory, "EMU_MEMORY=0x100000", nullptr, EVERY},
    {"freed memory", freed_memory, nullptr, nullptr, PLAIN},
    {"reused addresses", reused_addresses, "EMU_REUSE=1", nullptr, EVERY},
    {"charged memory", charged_memory, "EMU_CHARGES=1", nullptr, EVERY},
    {"tensor cores", tensor_cores, nullptr, nullptr, EVERY},
    {"approximate functions", approximate_functions, "EMU_APPROX=1", nullptr, EVERY},
    {"noisy events", noisy_events, "EMU_NOISE=1", nullptr, EVERY},
    {"registers", registers, nullptr, nullptr, EVERY},
    {"lazy streams", lazy_streams, "EMU_LAZY=1", nullptr, EVERY},
    {"default stream", default_stream_between, nullptr, nullptr, EVERY},
    {"default stream, lazy", default_stream_between, "EMU_LAZY=1", nullptr, EVERY},
    {"later streams first, lazy", later_streams_first, "EMU_LAZY=1", nullptr, EVERY},
    {"later streams first", later_streams_first, "EMU_LAZY=2", nullptr, EVERY},
    {"page-locked memory", page_locked_memory, "EMU_LOCKABLE=1000", nullptr, EVERY},
    {"events", events, nullptr, nullptr, EVERY},
    {"clock of events", clock_of_events, "EMU_SLOW=add_kernel", nullptr, EVERY},
    {"graphs", graphs, nullptr, nullptr, EVERY},
    {"graphs, lazy", graphs, "EMU_LAZY=1", nullptr, EVERY},
    {"graph without dependency", graph_without_dependency, nullptr, nullptr, EVERY},
    {"graph without dependency, lazy", graph_without_dependency, "EMU_LAZY=1", nullptr, EVERY},
    {"capture errors", capture_errors, nullptr, nullptr, EVERY},
    {"refused capture", refused_capture, "EMU_CAPTURE=2", nullptr, EVERY},
    {"device", device, "EMU_CC=75", nullptr, EVERY},
    {"limits of Turing", device_limits<75>, "EMU_CC=75", nullptr, EVERY},
    {"limits of the small Ampere", device_limits<86>, "EMU_CC=86", nullptr, EVERY},
    {"no device", no_device, "EMU_DEVICES=0", nullptr, EVERY},
    {"a forked process", forked, nullptr, nullptr, EVERY},
    {"no driver", no_driver, "EMU_DRIVER=0", nullptr, EVERY},
    {"old driver", no_driver, "EMU_DRIVER=12020", nullptr, EVERY},
    {"failing launch", failing_launch, "EMU_FAIL=2:214", nullptr, EVERY},
};

int main(int argc, char** argv) { return run_cases(CASES, sizeof CASES / sizeof *CASES, argc, argv); }
