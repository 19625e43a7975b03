// Tests that traffic is counted as published for access patterns whose cost is known. Needs `emucc --check`.
//   [1] M. Harris, "An Efficient Matrix Transpose in CUDA C/C++", NVIDIA 2013: a tile of 32 x 32 floats has 32-way bank
//       conflicts where a warp reads a column, one of 32 x 33 has none
//   [2] M. Harris, "How to Access Global Memory Efficiently in CUDA C/C++ Kernels", NVIDIA 2013: stride and offset
//   [3] NVIDIA forums, 359822: LDS.128 whose lanes are 128 bytes apart takes 32 wavefronts by Nsight Compute, 4 without
//       conflicts
#include <cuda_runtime.h>
#include "cases.h"
#include <string>
#ifndef EMU_CHECK
#error "build it with emucc --check"
#endif

static float* device_floats(size_t n) {
    float* p;
    OK(cudaMalloc(&p, n * sizeof *p));
    OK(cudaMemset(p, 0, n * sizeof *p));
    return p;
}

// The traffic of all launches whose kernel's name has this part.
static emu::Traffic traffic_of(const char* part) {
    OK(cudaDeviceSynchronize());
    for (auto& [name, t] : emu::traffic) {
        if (name.find(part) != std::string::npos) { return t; }
    }
    EXPECT(!"the kernel ran");
    return {};
}

static bool is(const emu::Moved& m, size_t requests, size_t moved, size_t least) {
    if (m.requests == requests && m.moved == moved && m.least == least) { return true; }
    fprintf(stderr, "%zu requests, %zu moved, %zu least\n", m.requests, m.moved, m.least);
    return false;
}

enum { GLOBAL, SHARED };

// ---------------------------------------------------------------------------------------------------------------------
// published patterns

// [1]: each of the four requests of a warp's 8 rows; the tile's pitch decides about the column's banks
template <int PITCH> __global__ void transpose_kernel(float* out, const float* in) {
    __shared__ float tile[32][PITCH];
    const int x = threadIdx.x;
    for (int y = threadIdx.y; y < 32; y += 8) { tile[y][x] = in[y * 32 + x]; }
    __syncthreads();
    for (int y = threadIdx.y; y < 32; y += 8) { out[y * 32 + x] = tile[x][y]; }
}
template <int PITCH> static emu::Traffic transpose() {
    transpose_kernel<PITCH><<<1, dim3(32, 8)>>>(device_floats(1024), device_floats(1024));
    return traffic_of("transpose_kernel");
}
static void transpose_with_conflicts() {
    const emu::Traffic t = transpose<32>();
    EXPECT(is(t.total(GLOBAL), 64, 64 * 4, 64 * 4));
    EXPECT(is(t.total(SHARED), 64, 32 + 32 * 32, 64));
}
static void transpose_with_padding() {
    const emu::Traffic t = transpose<33>();
    EXPECT(is(t.total(GLOBAL), 64, 64 * 4, 64 * 4));
    EXPECT(is(t.total(SHARED), 64, 64, 64));
    EXPECT(is(t.read, 0, 4096, 4096) && is(t.written, 0, 4096, 4096));
}

// [2]: a warp reads 32 floats, `stride` apart, from `offset` on
__global__ void stride_kernel(float* out, const float* in, int stride, int offset) {
    out[threadIdx.x] = in[threadIdx.x * stride + offset];
}
static void strides() {
    size_t sectors[] = {4, 8, 16, 32, 32, 5}, i = 0;
    size_t before = 0;
    for (int stride : {1, 2, 4, 8, 32, 1}) {
        stride_kernel<<<1, 32>>>(device_floats(32), device_floats(2048), stride, i == 5);
        const size_t moved = traffic_of("stride_kernel").total(GLOBAL).moved;
        EXPECT(moved - before == 4 + sectors[i]);
        before = moved;
        i++;
    }
    EXPECT(traffic_of("stride_kernel").total(GLOBAL).least == 6 * 8);
}

// [3], in units of float4: 8 units between lanes, or 1
__global__ void wide_shared_kernel(float4* out, int stride) {
    extern __shared__ float4 units[];
    if (threadIdx.y == 1) { units[threadIdx.x * stride] = {1, 2, 3, 4}; }
    __syncthreads();
    if (threadIdx.y == 0) { out[threadIdx.x] = units[threadIdx.x * stride]; }
}
template <int STRIDE> static emu::Moved wide_shared_loads() {
    wide_shared_kernel<<<1, dim3(32, 2), 32 * 128>>>((float4*)device_floats(128), STRIDE);
    emu::Moved loads;
    for (auto& [place, m] : traffic_of("wide_shared").places) {
        if (place.shared && !place.writes) { loads.add(m); }
    }
    EXPECT(is(traffic_of("wide_shared").total(GLOBAL), 1, 16, 16)); // 32 lanes store 16 bytes each
    return loads;
}
static void wide_loads_with_conflicts() { EXPECT(is(wide_shared_loads<8>(), 1, 32, 4)); }
static void wide_loads_in_a_row() { EXPECT(is(wide_shared_loads<1>(), 1, 4, 4)); }

// ---------------------------------------------------------------------------------------------------------------------
// the rules one by one

// Lane i loads a T of shared memory at byte i / same * apart.
template <class T> __global__ void banks_kernel(T* out, int same, int apart) {
    extern __shared__ char bytes[];
    out[threadIdx.x] = *(T*)(bytes + threadIdx.x / same * apart);
}
template <class T> static size_t wavefronts(int same, int apart) {
    static size_t before = 0;
    banks_kernel<T><<<1, 32, 16 << 10>>>((T*)device_floats(128), same, apart);
    const size_t sum = traffic_of("banks_kernel").total(SHARED).moved, now = sum - before;
    before = sum;
    return now;
}
static void words() {
    EXPECT(wavefronts<float>(1, 4) == 1);
    EXPECT(wavefronts<float>(1, 8) == 2);
    EXPECT(wavefronts<float>(1, 12) == 1); // an odd number of words
    EXPECT(wavefronts<float>(1, 128) == 32);
    EXPECT(wavefronts<float>(32, 4) == 1); // one word for all
    EXPECT(wavefronts<float>(4, 128) == 8);
}
static void halves() {
    EXPECT(wavefronts<short>(1, 2) == 1); // two lanes share a word
    EXPECT(wavefronts<short>(1, 4) == 1);
    EXPECT(wavefronts<short>(1, 130) == 2); // words 0, 32, 65, 97, ...
}
static void pairs() {
    EXPECT(wavefronts<float2>(1, 8) == 2); // 16 lanes fill a wavefront
    EXPECT(wavefronts<float2>(1, 16) == 4);
    EXPECT(wavefronts<float2>(16, 128) == 2); // lanes of different phases do not conflict
}
static void quads() {
    EXPECT(wavefronts<float4>(1, 16) == 4); // 8 lanes fill one
    EXPECT(wavefronts<float4>(1, 32) == 8);
    EXPECT(wavefronts<float4>(1, 144) == 4); // rows of 128 bytes, padded by 16
}

// ldmatrix: a wavefront for each matrix of 8 rows of 16 bytes, if the rows are in different banks
__global__ void ldmatrix_kernel(unsigned* out, int pitch) {
    extern __shared__ int4 rows[];
    unsigned x[4], address = (unsigned)__cvta_generic_to_shared((char*)rows + threadIdx.x * pitch);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(address));
    out[threadIdx.x] = x[0] + x[1] + x[2] + x[3];
}
template <int PITCH> static emu::Moved matrices() {
    ldmatrix_kernel<<<1, 32, 32 * PITCH>>>((unsigned*)device_floats(32), PITCH);
    return traffic_of("ldmatrix_kernel").total(SHARED);
}
static void matrices_with_conflicts() { EXPECT(is(matrices<128>(), 1, 32, 4)); }
static void matrices_with_padding() { EXPECT(is(matrices<144>(), 1, 4, 4)); }

// cp.async: a load of global and a store of shared memory, once; with zeros only the store
__global__ void copy_kernel(const float4* in, int bytes) {
    __shared__ float4 tile[32];
    const unsigned to = (unsigned)__cvta_generic_to_shared(&tile[threadIdx.x]);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" : : "r"(to), "l"(in + threadIdx.x), "r"(bytes));
    asm volatile("cp.async.commit_group; cp.async.wait_group 0;");
}
static void asynchronous_copies() {
    copy_kernel<<<1, 32>>>((float4*)device_floats(128), 16);
    EXPECT(is(traffic_of("copy_kernel").total(GLOBAL), 1, 16, 16));
    EXPECT(is(traffic_of("copy_kernel").total(SHARED), 1, 4, 4));
    copy_kernel<<<1, 32>>>((float4*)device_floats(128), 0);
    EXPECT(is(traffic_of("copy_kernel").total(GLOBAL), 1, 16, 16));
    EXPECT(is(traffic_of("copy_kernel").total(SHARED), 2, 8, 8));
}

// A float4 moves as a whole, also if the kernel uses its elements one by one.
__global__ void whole_kernel(float4* out, const float4* in) {
    float4 x = in[threadIdx.x];
    x.y += x.z;
    out[threadIdx.x] = x;
}
static void whole() {
    whole_kernel<<<1, 32>>>((float4*)device_floats(128), (float4*)device_floats(128));
    EXPECT(is(traffic_of("whole_kernel").total(GLOBAL), 2, 2 * 16, 2 * 16));
}

// A struct moves in pieces as large as its alignment allows: 4 bytes each, of which a lane's lie side by side.
template <int N> struct Floats {
    float x[N];
};
template <int N> __global__ void pieces_kernel(Floats<N>* out, const Floats<N>* in) {
    const Floats<N> x = in[threadIdx.x];
    out[threadIdx.x] = x;
}
template <int N> static void pieces() {
    pieces_kernel<N><<<1, 32>>>((Floats<N>*)device_floats(128), (Floats<N>*)device_floats(128));
    EXPECT(is(traffic_of("pieces_kernel").total(GLOBAL), 2 * N, 2 * N * 4 * N, 2 * N * 4));
}

// ---------------------------------------------------------------------------------------------------------------------
// what is one request

// Lanes take different numbers of turns, and half of them another branch; a function is called from two places.
static __attribute__((noinline)) float load(const float* p) { return *p; }
__global__ void branches_kernel(float* out, const float* in) {
    const int lane = threadIdx.x;
    float x = 0;
    for (int i = 0; i <= lane / 8; i++) { x += load(in + 32 * i + lane); } // 32, 24, 16, 8 lanes
    x += load(in);                                                        // all lanes, each after another turn
    if (lane % 2) {
        out[lane] = x;
    } else {
        out[lane] = -x;
    }
}
static void branches() {
    branches_kernel<<<1, 32>>>(device_floats(32), device_floats(128));
    const emu::Traffic t = traffic_of("branches_kernel");
    EXPECT(is(t.total(GLOBAL), 5 + 2, 4 + 3 + 2 + 1 + 1 + 4 + 4, 4 + 3 + 2 + 1 + 1 + 2 + 2));
}

// Counts what a launch moves: each sector once, however often it is read; what it wrote itself it need not read.
__global__ void again_kernel(float* out, const float* in) {
    for (int i = 0; i < 3; i++) { out[threadIdx.x] = in[threadIdx.x] + (float)i; __syncwarp(); }
    out[64 + threadIdx.x] = out[threadIdx.x];
}
static void again() {
    for (int launch = 1; launch <= 2; launch++) {
        again_kernel<<<2, 32>>>(device_floats(96), device_floats(32));
        const emu::Traffic t = traffic_of("again_kernel");
        EXPECT(is(t.read, 0, (size_t)launch * 2 * 4 * 128, (size_t)launch * 128));
        EXPECT(is(t.written, 0, (size_t)launch * 2 * 4 * 128, (size_t)launch * 2 * 128));
        EXPECT(t.launches == (size_t)launch);
    }
}

static void names() {
    EXPECT(emu::short_name("plain_kernel") == "plain");
    EXPECT(emu::short_name("a_kernel [with Type = __nv_bfloat16; int HD = 64]") == "a<bf16,64>");
    EXPECT(emu::short_name("a_kernel [with Type = __half; int HD = 64]") == "a<fp16,64>");
    EXPECT(emu::short_name("b_kernel [with bool X = true; size_t = long unsigned int]") == "b<true>");
    EXPECT(emu::short_name("c_kernel [with floatX = float]") == "c");
}

// The file has a line for each kernel, and names the access that conflicts.
static void report() {
    transpose<32>();
    char* text = nullptr;
    size_t size = 0;
    FILE* f = open_memstream(&text, &size);
    emu::print_traffic(f);
    fclose(f);
    EXPECT(strstr(text, "transpose<32>    1       64   4.00   1.00       64  16.50  16.50 "
                        "     4.0   1.00      4.0   1.00\n"));
    EXPECT(strstr(text, "\n\ntest_traffic.cu:"));
    const char* said = ": transpose<32>: shared load: 32 requests, 32.00 x least\n";
    const char* said_in_group = ": test_traffic::transpose<32>: shared load: 32 requests, 32.00 x least\n"; // run.sh
    EXPECT(strstr(text, said) || strstr(text, said_in_group));
    if (expectations_failed) { fputs(text, stderr); }
}

static const Case CASES[] = {
    {"transpose with conflicts", transpose_with_conflicts, nullptr, nullptr, EVERY},
    {"transpose with padding", transpose_with_padding, nullptr, nullptr, EVERY},
    {"strides", strides, nullptr, nullptr, EVERY},
    {"wide loads with conflicts", wide_loads_with_conflicts, nullptr, nullptr, EVERY},
    {"wide loads in a row", wide_loads_in_a_row, nullptr, nullptr, EVERY},
    {"words", words, nullptr, nullptr, EVERY},
    {"halves", halves, nullptr, nullptr, EVERY},
    {"pairs", pairs, nullptr, nullptr, EVERY},
    {"quads", quads, nullptr, nullptr, EVERY},
    {"matrices with conflicts", matrices_with_conflicts, nullptr, nullptr, EVERY},
    {"matrices with padding", matrices_with_padding, nullptr, nullptr, EVERY},
    {"asynchronous copies", asynchronous_copies, nullptr, nullptr, EVERY},
    {"whole", whole, nullptr, nullptr, EVERY},
    {"pairs of floats", pieces<2>, nullptr, nullptr, EVERY},
    {"structs of floats", pieces<4>, nullptr, nullptr, EVERY},
    {"branches", branches, nullptr, nullptr, EVERY},
    {"branches, reverse", branches, "EMU_ORDER=1", nullptr, EVERY},
    {"branches, random", branches, "EMU_ORDER=5", nullptr, EVERY},
    {"again", again, nullptr, nullptr, EVERY},
    {"names", names, nullptr, nullptr, EVERY},
    {"report", report, nullptr, nullptr, EVERY},
};

int main(int argc, char** argv) {
    emu::counts_traffic = true;
    return run_cases(CASES, sizeof CASES / sizeof *CASES, argc, argv);
}
