// Tests the stand-in for NCCL with 1, 2 and 3 processes: each collective against the values of its definition.
#include <cuda_runtime.h>
#include <nccl.h>
#include "../test.h"
#include <signal.h>
#include <vector>

#define OK(call) EXPECT((call) == cudaSuccess)
#define NCCL(call) EXPECT((call) == ncclSuccess)

// ---------------------------------------------------------------------------------------------------------------------
// ranks

// State of a rank's process.
struct Rank {
    int rank, ranks;
    ncclComm_t comm;
    cudaStream_t stream;
};
typedef void (*Body)(Rank* r);
static bool shared_device; // all ranks take device 0

static void run_rank(int rank, int ranks, const ncclUniqueId* id, Body body) {
    Rank r = {rank, ranks, NULL, NULL};
    OK(cudaSetDevice(shared_device ? 0 : rank));
    NCCL(ncclCommInitRank(&r.comm, ranks, *id, rank));
    OK(cudaStreamCreate(&r.stream));
    body(&r);
    OK(cudaStreamSynchronize(r.stream));
    OK(cudaStreamDestroy(r.stream));
    NCCL(ncclCommDestroy(r.comm));
}

// Runs `body` in one process for each rank. Returns the number of processes that failed.
static int run_ranks(int ranks, Body body) {
    ncclUniqueId id;
    std::vector<pid_t> children;
    int failed = 0;
    NCCL(ncclGetUniqueId(&id));
    fflush(stdout);
    for (int rank = 0; rank < ranks; rank++) {
        const pid_t child = fork();
        EXPECT(child >= 0);
        if (child == 0) {
            test_failures = 0;
            run_rank(rank, ranks, &id, body);
            fflush(stdout);
            _exit(test_failures != 0);
        }
        children.push_back(child);
    }
    for (pid_t child : children) {
        int status = 0;
        EXPECT(waitpid(child, &status, 0) == child);
        failed += !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    }
    return failed;
}
static void expect_ranks(Body body) {
    EXPECT(run_ranks(1, body) == 0);
    EXPECT(run_ranks(2, body) == 0);
    EXPECT(run_ranks(3, body) == 0);
}

// ---------------------------------------------------------------------------------------------------------------------
// numbers

template <class T> struct TypeOf;
template <> struct TypeOf<float> { static constexpr ncclDataType_t value = ncclFloat; };
template <> struct TypeOf<double> { static constexpr ncclDataType_t value = ncclDouble; };
template <> struct TypeOf<uint8_t> { static constexpr ncclDataType_t value = ncclUint8; };

// Returns element i of rank r's input, which is small enough to be exact in every type.
static float brought(int r, size_t i) { return (float)((r * 7 + (int)(i % 11)) % 16 + r); }

enum { N = 5000 };

// Returns n elements of device memory with rank r's input.
template <class T>
static T* bring(int r, size_t n) {
    std::vector<T> host(n);
    T* p = NULL;
    for (size_t i = 0; i < n; i++) { host[i] = (T)brought(r, i); }
    OK(cudaMalloc(&p, n * sizeof(T)));
    OK(cudaMemcpy(p, host.data(), n * sizeof(T), cudaMemcpyHostToDevice));
    return p;
}

// Waits for the stream, compares p[0 .. n) with want(i), and frees `memory`, where p lies.
template <class T, class Want>
static void expect_numbers(Rank* r, T* memory, T* p, size_t n, Want want) {
    std::vector<T> host(n);
    OK(cudaStreamSynchronize(r->stream));
    OK(cudaMemcpy(host.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost));
    OK(cudaFree(memory));
    for (size_t i = 0; i < n; i++) { EXPECT_NEAR(host[i], want(i), 0); }
}

static double total(int ranks, size_t i) {
    double sum = 0;
    for (int r = 0; r < ranks; r++) { sum += brought(r, i); }
    return sum;
}

// ---------------------------------------------------------------------------------------------------------------------
// collectives

template <class T>
static void all_reduce_of(Rank* r) {
    T *in = bring<T>(r->rank, N), *out = bring<T>(0, N);
    NCCL(ncclAllReduce(in, out, N, TypeOf<T>::value, ncclSum, r->comm, r->stream));
    NCCL(ncclAllReduce(in, in, N, TypeOf<T>::value, ncclSum, r->comm, r->stream)); // in place
    expect_numbers(r, out, out, N, [=](size_t i) { return total(r->ranks, i); });
    expect_numbers(r, in, in, N, [=](size_t i) { return total(r->ranks, i); });
}
TEST(all_reduce) {
    expect_ranks(all_reduce_of<float>);
    expect_ranks(all_reduce_of<double>);
    expect_ranks(all_reduce_of<uint8_t>);
}

static void reduce_scatter(Rank* r) {
    const size_t all = (size_t)N * r->ranks, first = (size_t)N * r->rank;
    float *in = bring<float>(r->rank, all), *out = bring<float>(0, N);
    NCCL(ncclReduceScatter(in, out, N, ncclFloat, ncclSum, r->comm, r->stream));
    NCCL(ncclReduceScatter(in, in + first, N, ncclFloat, ncclSum, r->comm, r->stream));
    expect_numbers(r, out, out, N, [=](size_t i) { return total(r->ranks, first + i); });
    expect_numbers(r, in, in + first, N, [=](size_t i) { return total(r->ranks, first + i); });
}
TEST(reduce_scatter) { expect_ranks(reduce_scatter); }

template <class T>
static void all_gather_of(Rank* r) {
    const size_t all = (size_t)N * r->ranks;
    T *in = bring<T>(r->rank, N), *out = bring<T>(9, all), *same = bring<T>(9, all);
    OK(cudaMemcpy(same + (size_t)N * r->rank, in, N * sizeof(T), cudaMemcpyDeviceToDevice));
    NCCL(ncclAllGather(in, out, N, TypeOf<T>::value, r->comm, r->stream));
    NCCL(ncclAllGather(same + (size_t)N * r->rank, same, N, TypeOf<T>::value, r->comm, r->stream));
    expect_numbers(r, out, out, all, [](size_t i) { return brought((int)(i / N), i % N); });
    expect_numbers(r, same, same, all, [](size_t i) { return brought((int)(i / N), i % N); });
    OK(cudaFree(in));
}
TEST(all_gather) {
    expect_ranks(all_gather_of<float>);
    expect_ranks(all_gather_of<uint8_t>);
}

static void broadcast_and_reduce(Rank* r) {
    const int root = r->ranks - 1;
    float *in = bring<float>(r->rank, N), *out = bring<float>(9, N), *sum = bring<float>(9, N);
    NCCL(ncclBroadcast(in, out, N, ncclFloat, root, r->comm, r->stream));
    NCCL(ncclReduce(in, sum, N, ncclFloat, ncclSum, root, r->comm, r->stream));
    NCCL(ncclBroadcast(in, in, N, ncclFloat, root, r->comm, r->stream));
    const bool mine = r->rank == root;
    const int ranks = r->ranks;
    expect_numbers(r, out, out, N, [=](size_t i) { return brought(root, i); });
    expect_numbers(r, in, in, N, [=](size_t i) { return brought(root, i); });
    expect_numbers(r, sum, sum, N, [=](size_t i) { return mine ? total(ranks, i) : (double)brought(9, i); });
}
TEST(broadcast_and_reduce_to_a_root) { expect_ranks(broadcast_and_reduce); }

static void stream_order(Rank* r) {
    float *x = bring<float>(r->rank, N), *copy = bring<float>(9, N);
    OK(cudaMemsetAsync(x, 0, N * sizeof *x, r->stream));
    NCCL(ncclAllReduce(x, x, N, ncclFloat, ncclSum, r->comm, r->stream));
    OK(cudaMemcpyAsync(copy, x, N * sizeof *x, cudaMemcpyDeviceToDevice, r->stream));
    expect_numbers(r, copy, copy, N, [](size_t) { return 0; });
    OK(cudaFree(x));
}
TEST(work_is_in_stream_order) { expect_ranks(stream_order); }

static void questions(Rank* r) {
    ncclResult_t state = ncclInProgress;
    NCCL(ncclCommGetAsyncError(r->comm, &state));
    EXPECT(state == ncclSuccess);
    EXPECT(strcmp(ncclGetErrorString(ncclSuccess), "no error") == 0);
}
TEST(communicators_answer) { expect_ranks(questions); }

#ifndef __NVCC__
// ---------------------------------------------------------------------------------------------------------------------
// errors: every rank ends, with the same message

static void other_count(Rank* r) {
    float* x = bring<float>(0, N);
    NCCL(ncclAllReduce(x, x, r->rank == 2 ? 10 : 11, ncclFloat, ncclSum, r->comm, r->stream));
    OK(cudaStreamSynchronize(r->stream));
}
static void other_type(Rank* r) {
    float* x = bring<float>(0, N);
    NCCL(ncclAllReduce(x, x, 10, r->rank == 2 ? ncclUint8 : ncclFloat, ncclSum, r->comm, r->stream));
    OK(cudaStreamSynchronize(r->stream));
}
static void other_call(Rank* r) {
    float* x = bring<float>(0, N);
    if (r->rank == 1) {
        NCCL(ncclBroadcast(x, x, 10, ncclFloat, 2, r->comm, r->stream));
    } else {
        NCCL(ncclAllReduce(x, x, 10, ncclFloat, ncclSum, r->comm, r->stream));
    }
    OK(cudaStreamSynchronize(r->stream));
}
static void one_dies(Rank* r) {
    float* x = bring<float>(0, N);
    if (r->rank == 2) { _exit(1); }
    NCCL(ncclAllReduce(x, x, 10, ncclFloat, ncclSum, r->comm, r->stream));
    OK(cudaStreamSynchronize(r->stream));
}
static void root_dies(Rank* r) {
    float* x = bring<float>(0, N);
    if (r->rank == 0) { _exit(1); }
    NCCL(ncclAllReduce(x, x, 10, ncclFloat, ncclSum, r->comm, r->stream));
    OK(cudaStreamSynchronize(r->stream));
}
static void one_is_silent(Rank* r) {
    float* x = bring<float>(0, N);
    if (r->rank == 2) {
        sleep(3);
        _exit(1);
    }
    NCCL(ncclAllReduce(x, x, 10, ncclFloat, ncclSum, r->comm, r->stream));
    OK(cudaStreamSynchronize(r->stream));
}

// Sums do not repeat their bits where NVSwitches may add up.
static bool sums_repeat(Rank* r) {
    const float parts[] = {1, 0x1p-24f, 0x1p-24f};
    std::vector<float> sums;
    for (int i = 0; i < 3; i++) {
        float *x = NULL, sum;
        OK(cudaMalloc(&x, sizeof *x));
        OK(cudaMemcpy(x, &parts[r->rank], sizeof *x, cudaMemcpyHostToDevice));
        NCCL(ncclAllReduce(x, x, 1, ncclFloat, ncclSum, r->comm, r->stream));
        OK(cudaStreamSynchronize(r->stream));
        OK(cudaMemcpy(&sum, x, sizeof sum, cudaMemcpyDeviceToHost));
        OK(cudaFree(x));
        sums.push_back(sum);
    }
    return sums[0] == sums[1] && sums[1] == sums[2];
}
TEST(sums_repeat_their_bits_without_nvswitches) {
    unsetenv("NCCL_ALGO");
    EXPECT(run_ranks(3, [](Rank* r) { EXPECT(!sums_repeat(r)); }) == 0);
    for (const char* algorithms : {"Ring", "^NVLS,NVLSTree"}) {
        setenv("NCCL_ALGO", algorithms, 1);
        EXPECT(run_ranks(3, [](Rank* r) { EXPECT(sums_repeat(r)); }) == 0);
    }
    unsetenv("NCCL_ALGO");
}

// Expects that all three ranks fail, and that one prints `words`.
#define EXPECT_ALL_END(words, body) EXPECT_DEATH(3, words, _exit(run_ranks(3, body)))

TEST(ranks_that_do_not_agree) {
    EXPECT_ALL_END("rank 0 calls AllReduce of 11 float; rank 2 calls AllReduce of 10 float", other_count);
    EXPECT_ALL_END("NCCL rank 1: the ranks do not agree on collective 1", other_count);
    EXPECT_ALL_END("rank 0 calls AllReduce of 10 float; rank 2 calls AllReduce of 10 uint8", other_type);
    EXPECT_ALL_END("rank 0 calls AllReduce of 10 float; rank 1 calls Broadcast of 10 float, root 2", other_call);
}

TEST(a_rank_that_ends) {
    EXPECT_ALL_END("NCCL rank 0: rank 2 has ended, in AllReduce", one_dies);
    EXPECT_ALL_END("NCCL rank 1: rank 2 has ended, in AllReduce", one_dies);
    EXPECT_ALL_END("NCCL rank 2: rank 0 has ended, in AllReduce", root_dies);
}

TEST(a_rank_that_is_silent) {
    setenv("EMU_NCCL_TIMEOUT", "1", 1);
    EXPECT_ALL_END("NCCL rank 0: rank 2 does not answer, in AllReduce", one_is_silent);
    unsetenv("EMU_NCCL_TIMEOUT");
}

static void refused(Rank* r) {
    float* x = bring<float>(0, N);
    EXPECT(ncclAllReduce(x, x + 1, 10, ncclFloat, ncclSum, r->comm, r->stream) == ncclInvalidArgument);
    EXPECT(ncclBroadcast(x, x, 10, ncclFloat, r->ranks, r->comm, r->stream) == ncclInvalidArgument);
    const ncclDataType_t half = (ncclDataType_t)6;
    EXPECT(ncclAllReduce(x, x, 10, half, ncclSum, r->comm, r->stream) == ncclInvalidArgument);
    EXPECT(strstr(ncclGetLastError(r->comm), "type 6 is not emulated") != NULL);
    OK(cudaFree(x));
}
static void too_long(Rank* r) {
    float* x = bring<float>(0, N);
    ncclAllReduce(x, x, N + 1, ncclFloat, ncclSum, r->comm, r->stream);
}
static void refused_quietly(Rank* r) {
    OK(freopen("/dev/null", "w", stderr) ? cudaSuccess : cudaErrorInvalidValue); // errors are expected
    refused(r);
}
TEST(two_ranks_on_one_device) {
    shared_device = true;
    EXPECT_DEATH(2, "ranks 0 and 1 both use device 0", _exit(run_ranks(2, questions)));
    shared_device = false;
}

TEST(refused_arguments) {
    EXPECT(run_ranks(2, refused_quietly) == 0);
    EXPECT_DEATH(1, "NCCL: ncclCommInitRank: rank 2 of 2", {
        ncclUniqueId id;
        ncclComm_t comm;
        ncclGetUniqueId(&id);
        _exit(ncclCommInitRank(&comm, 2, id, 2) == ncclInvalidArgument);
    });
    EXPECT_DEATH(1, "sendbuff of NCCL", _exit(run_ranks(1, too_long)));
}
#endif

// The emulator ends by abort(), but EXPECT_DEATH compares exit codes.
int main(int argc, char** argv) {
    signal(SIGABRT, [](int) { _exit(EXIT_RUNTIME); });
    return test_main(argc, argv, argv[0]);
}
