// A stand-in for NCCL: collectives between processes of one machine, over Unix sockets, in stream order.
//
// Every rank is connected to every other. In a collective, each rank first tells rank 0 its call. If two calls differ,
// all ranks end with a message that names both. Else rank 0 reads the inputs in the order of ranks and sends out the
// results. If a rank ends or is silent for EMU_NCCL_TIMEOUT seconds (60), the ranks that wait for it end with a
// message. Constants have the values of NVIDIA's header; test_enums.cu compares them where that is installed.
//
// Unlike NCCL, a call returns only after its work is done, unless streams are lazy (EMU_LAZY=1).
#pragma once
#include "cuda_runtime.h"
#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#include <vector>

#define NCCL_MAJOR 2
#define NCCL_UNIQUE_ID_BYTES 128

typedef struct {
    char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

typedef enum {
    ncclSuccess = 0,
    ncclUnhandledCudaError = 1,
    ncclSystemError = 2,
    ncclInvalidArgument = 4,
    ncclRemoteError = 6,
    ncclInProgress = 7,
} ncclResult_t;

typedef enum { ncclSum = 0 } ncclRedOp_t;

typedef enum { ncclUint8 = 1, ncclFloat = 7, ncclDouble = 8 } ncclDataType_t;

// ---------------------------------------------------------------------------------------------------------------------
// names and sizes

namespace emu::nccl {

enum Kind : int32_t { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, REDUCE };

inline const char* kind_name(int32_t kind) {
    static const char* const names[] = {"AllReduce", "ReduceScatter", "AllGather", "Broadcast", "Reduce"};
    return names[kind];
}

struct Type {
    const char* name;
    size_t size;
};
inline Type type_of(int32_t type) {
    switch (type) {
    case ncclUint8: return {"uint8", 1};
    case ncclFloat: return {"float", 4};
    case ncclDouble: return {"double", 8};
    default: return {"a type not emulated", 0};
    }
}

// A rank's call, as it is sent to rank 0.
struct Call {
    Kind kind;
    int32_t type, root;     // root -1: does not apply
    uint64_t count, number; // number: of the collective
};

inline std::string describe(const Call& call) {
    char text[160];
    snprintf(text, sizeof text, "%s of %llu %s", kind_name(call.kind), (unsigned long long)call.count,
             type_of(call.type).name);
    std::string s = text;
    if (call.root >= 0) { s += ", root " + std::to_string(call.root); }
    return s;
}

// ---------------------------------------------------------------------------------------------------------------------
// sockets

struct Communicator {
    int rank, ranks;
    std::vector<int> sockets; // by rank; -1 for this one
    uint64_t collectives = 0; // calls so far
    int least_priority = GREATEST_PRIORITY; // of the streams that they were queued in
    std::string algorithms; // NCCL_ALGO when it was initialized
    bool repeats_bits = true; // NVSwitches do not add up
    ncclResult_t async_error = ncclSuccess;
};

// Ends the program. Rank 0 tells the others first, so that they end with the same message.
struct Frame {
    uint32_t failed, size;
};
[[noreturn]] inline void fail(const Communicator& c, const std::string& message) {
    for (int r = 1; c.rank == 0 && r < c.ranks; r++) {
        const Frame frame = {1, (uint32_t)message.size()};
        if (send(c.sockets[r], &frame, sizeof frame, MSG_NOSIGNAL) == sizeof frame) {
            (void)!send(c.sockets[r], message.data(), message.size(), MSG_NOSIGNAL);
        }
    }
    die("NCCL rank %d: %s", c.rank, message.c_str());
}

inline int timeout_seconds() {
    const char* text = getenv("EMU_NCCL_TIMEOUT");
    return text ? atoi(text) : 60;
}

inline void put(const Communicator& c, int peer, const void* data, size_t size, const char* during) {
    for (size_t done = 0; done < size;) {
        const ssize_t n = send(c.sockets[peer], (const char*)data + done, size - done, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) { continue; }
        if (n <= 0) {
            const char* why = errno == EAGAIN ? " does not answer, in " : " has ended, in ";
            fail(c, "rank " + std::to_string(peer) + why + during);
        }
        done += (size_t)n;
    }
}

inline void take(const Communicator& c, int peer, void* data, size_t size, const char* during) {
    for (size_t done = 0; done < size;) {
        const ssize_t n = recv(c.sockets[peer], (char*)data + done, size - done, 0);
        if (n < 0 && errno == EINTR) { continue; }
        if (n <= 0) {
            const char* why = n < 0 && errno == EAGAIN ? " does not answer, in " : " has ended, in ";
            fail(c, "rank " + std::to_string(peer) + why + during);
        }
        done += (size_t)n;
    }
}

// Waits for rank 0's permission to go on. Ends the program with its message if it refuses.
inline void take_leave(const Communicator& c, const char* during) {
    Frame frame;
    take(c, 0, &frame, sizeof frame, during);
    if (!frame.failed) { return; }
    std::string message(frame.size, 0);
    take(c, 0, &message[0], message.size(), during);
    fail(c, message);
}

// The Unix socket on which a rank listens: a file, so that processes in different network namespaces find it too.
inline socklen_t address_of(const ncclUniqueId& id, int rank, sockaddr_un* address) {
    *address = {};
    address->sun_family = AF_UNIX;
    snprintf(address->sun_path, sizeof address->sun_path, "/tmp/%.64s-%d", id.internal, rank);
    return (socklen_t)sizeof *address;
}

inline void set_timeout(int fd) {
    const timeval limit = {timeout_seconds(), 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

inline int listen_as(const ncclUniqueId& id, int rank, int ranks) {
    sockaddr_un address;
    const socklen_t size = address_of(id, rank, &address);
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0 || bind(fd, (const sockaddr*)&address, size) != 0 || listen(fd, ranks) != 0) {
        die("NCCL rank %d: cannot listen: %s (is this rank there twice?)", rank, strerror(errno));
    }
    set_timeout(fd);
    return fd;
}

inline int connect_to(const ncclUniqueId& id, int rank, int peer) {
    sockaddr_un address;
    const socklen_t size = address_of(id, peer, &address);
    for (int tries = timeout_seconds() * 100; tries >= 0; tries--) {
        const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        if (fd < 0) { die("NCCL rank %d: cannot make a socket: %s", rank, strerror(errno)); }
        if (connect(fd, (const sockaddr*)&address, size) == 0) {
            set_timeout(fd);
            return fd;
        }
        close(fd);
        const timespec pause = {0, 10 * 1000 * 1000};
        nanosleep(&pause, nullptr);
    }
    die("NCCL rank %d: rank %d did not call ncclCommInitRank", rank, peer);
}

// The first message of either end of a new connection.
struct Hello {
    int32_t rank, ranks, device;
    char host[64];
};

// Ends the program if the ends do not belong together. It leaves no socket: `path` is this rank's.
inline void check_hello(const Hello& mine, const Hello& other, const char* path) {
    const bool is_same = other.device == mine.device && !strncmp(other.host, mine.host, sizeof mine.host);
    if (other.ranks != mine.ranks || is_same) { unlink(path); }
    if (other.ranks != mine.ranks) {
        die("NCCL rank %d counts %d ranks, rank %d counts %d", mine.rank, mine.ranks, other.rank, other.ranks);
    }
    if (is_same) {
        die("NCCL ranks %d and %d both use device %d: call cudaSetDevice first", std::min(mine.rank, other.rank),
            std::max(mine.rank, other.rank), mine.device);
    }
}

// Connects to the ranks below, and waits for those above.
inline void connect_all(Communicator* c, const ncclUniqueId& id) {
    const int listening = listen_as(id, c->rank, c->ranks);
    sockaddr_un address;
    address_of(id, c->rank, &address);
    Hello mine = {c->rank, c->ranks, 0, {}};
    gethostname(mine.host, sizeof mine.host);
    if (cudaGetDevice(&mine.device) != cudaSuccess) { die("NCCL rank %d: no device", c->rank); }
    for (int peer = 0; peer < c->rank; peer++) {
        Hello other;
        c->sockets[peer] = connect_to(id, c->rank, peer);
        put(*c, peer, &mine, sizeof mine, "ncclCommInitRank");
        take(*c, peer, &other, sizeof other, "ncclCommInitRank");
        check_hello(mine, other, address.sun_path);
    }
    for (int arrived = c->rank + 1; arrived < c->ranks; arrived++) {
        const int fd = accept(listening, nullptr, nullptr);
        Hello other;
        if (fd < 0) { die("NCCL rank %d: only %d of %d ranks came", c->rank, arrived, c->ranks); }
        set_timeout(fd);
        if (recv(fd, &other, sizeof other, MSG_WAITALL) != sizeof other) {
            die("NCCL rank %d: another rank ended in ncclCommInitRank", c->rank);
        }
        const int peer = other.rank;
        if (peer <= c->rank || peer >= c->ranks) { die("NCCL rank %d: rank %d of %d", c->rank, peer, other.ranks); }
        c->sockets[peer] = fd;
        put(*c, peer, &mine, sizeof mine, "ncclCommInitRank");
        check_hello(mine, other, address.sun_path);
    }
    close(listening);
    unlink(address.sun_path);
}

// ---------------------------------------------------------------------------------------------------------------------
// reduction

typedef std::vector<char> Bytes;

template <class T>
Bytes sum_as(const std::vector<Bytes>& in, size_t count) {
    Bytes out = in[0];
    T* const sums = (T*)out.data();
    for (size_t r = 1; r < in.size(); r++) {
        const T* const x = (const T*)in[r].data();
        for (size_t i = 0; i < count; i++) { sums[i] += x[i]; }
    }
    return out;
}

inline Bytes sum(const std::vector<Bytes>& in, size_t count, int32_t type) {
    switch (type) {
    case ncclUint8: return sum_as<uint8_t>(in, count);
    case ncclDouble: return sum_as<double>(in, count);
    default: return sum_as<float>(in, count);
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// operations

struct Operation {
    Communicator* c;
    Call call;
    const void* in;
    void* out;
    cudaStream_t stream;

    // Bytes of the call's count of elements, that a rank gives, and that it gets.
    size_t bytes() const { return (size_t)call.count * type_of(call.type).size; }
    size_t gives(int rank) const {
        switch (call.kind) {
        case REDUCE_SCATTER: return bytes() * (size_t)c->ranks;
        case BROADCAST: return rank == call.root ? bytes() : 0;
        default: return bytes();
        }
    }
    size_t gets(int rank) const {
        switch (call.kind) {
        case ALL_GATHER: return bytes() * (size_t)c->ranks;
        case REDUCE: return rank == call.root ? bytes() : 0;
        default: return bytes();
        }
    }
};

inline bool same_call(const Call& a, const Call& b) {
    return a.kind == b.kind && a.type == b.type && a.root == b.root && a.count == b.count;
}

// Returns the output of each rank, computed from the inputs of all. Where NVSwitches may add up, the rank with which a
// sum begins changes from call to call (NCCL's issue 1497).
inline std::vector<Bytes> results(const Operation& x, std::vector<Bytes>& in) {
    const int ranks = x.c->ranks;
    const size_t bytes = x.bytes();
    const bool reduces = x.call.kind == REDUCE_SCATTER || x.call.kind == ALL_REDUCE || x.call.kind == REDUCE;
    if (reduces && !x.c->repeats_bits) {
        std::rotate(in.begin(), in.begin() + (long)(x.call.number % (uint64_t)ranks), in.end());
    }
    std::vector<Bytes> out(ranks);
    Bytes all;
    switch (x.call.kind) {
    case BROADCAST: all = in[x.call.root]; break;
    case ALL_GATHER:
        for (const Bytes& part : in) { all.insert(all.end(), part.begin(), part.end()); }
        break;
    case REDUCE_SCATTER: all = sum(in, x.call.count * (size_t)ranks, x.call.type); break;
    default: all = sum(in, x.call.count, x.call.type); break;
    }
    for (int r = 0; r < ranks; r++) {
        const char* begin = all.data() + (x.call.kind == REDUCE_SCATTER ? (size_t)r * bytes : 0);
        out[r].assign(begin, begin + x.gets(r));
    }
    return out;
}

inline void run_as_root(const Operation& x, const char* name) {
    Communicator& c = *x.c;
    std::vector<Bytes> in(c.ranks);
    for (int r = 1; r < c.ranks; r++) {
        Call other;
        take(c, r, &other, sizeof other, name);
        if (!same_call(other, x.call)) {
            fail(c, "the ranks do not agree on collective " + std::to_string(x.call.number) + ": rank 0 calls " +
                        describe(x.call) + "; rank " + std::to_string(r) + " calls " + describe(other));
        }
    }
    const Frame go = {0, 0};
    for (int r = 1; r < c.ranks; r++) { put(c, r, &go, sizeof go, name); }
    in[0].assign((const char*)x.in, (const char*)x.in + x.gives(0));
    for (int r = 1; r < c.ranks; r++) {
        in[r].resize(x.gives(r));
        take(c, r, in[r].data(), in[r].size(), name);
    }
    const std::vector<Bytes> out = results(x, in);
    for (int r = 1; r < c.ranks; r++) {
        put(c, r, &go, sizeof go, name);
        put(c, r, out[r].data(), out[r].size(), name);
    }
    if (!out[0].empty()) { memcpy(x.out, out[0].data(), out[0].size()); }
}

inline void run_collective(Operation x) {
    Open open;
    Communicator& c = *x.c;
    const char* name = kind_name(x.call.kind);
    x.call.number = ++c.collectives;
    static const long long failing = option("EMU_NCCL_FAIL", 0);
    if ((long long)x.call.number == failing) { // as after an error of the network: the kernel waits on
        __atomic_store_n(&c.async_error, ncclRemoteError, __ATOMIC_RELEASE);
        for (;;) { pause(); }
    }
    if (c.rank == 0) {
        run_as_root(x, name);
        return;
    }
    put(c, 0, &x.call, sizeof x.call, name);
    take_leave(c, name);
    put(c, 0, x.in, x.gives(c.rank), name);
    take_leave(c, name);
    take(c, 0, x.out, x.gets(c.rank), name);
}

// ---------------------------------------------------------------------------------------------------------------------
// calls

inline std::string last_error;

inline ncclResult_t __attribute__((format(printf, 2, 3))) complain(ncclResult_t result, const char* format, ...) {
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    last_error = text;
    fprintf(stderr, "emu: NCCL: %s\n", text);
    return result;
}

inline bool overlap(const char* a, size_t size_a, const char* b, size_t size_b) {
    return a < b + size_b && b < a + size_a;
}

// Returns true if the call is in place: the smaller buffer is this rank's part of the larger one.
inline bool in_place(const Operation& x) {
    const char *in = (const char*)x.in, *out = (const char*)x.out;
    const size_t shift = x.bytes() * (size_t)x.c->rank;
    switch (x.call.kind) {
    case ALL_GATHER: return in == out + shift;
    case REDUCE_SCATTER: return out == in + shift;
    default: return in == out;
    }
}

inline ncclResult_t call(Kind kind, const void* in, void* out, size_t count, ncclDataType_t type, int op, int root,
                         Communicator* c, cudaStream_t stream) {
    const char* name = kind_name(kind);
    if (!c) { return complain(ncclInvalidArgument, "%s: the communicator is NULL", name); }
    if (!type_of(type).size) { return complain(ncclInvalidArgument, "%s: type %d is not emulated", name, (int)type); }
    if (op != ncclSum) { return complain(ncclInvalidArgument, "%s: operation %d is not emulated", name, op); }
    const bool rooted = kind == BROADCAST || kind == REDUCE;
    if (rooted && (root < 0 || root >= c->ranks)) {
        return complain(ncclInvalidArgument, "%s: rank %d of %d cannot take that part", name, root, c->ranks);
    }
    const Operation x = {c, {kind, type, root, count, 0}, in, out, stream};
    const size_t gives = x.gives(c->rank), gets = x.gets(c->rank);
    if (gives) { check_range(in, gives, "sendbuff of NCCL"); }
    if (gets) { check_range(out, gets, "recvbuff of NCCL"); }
    if (gives && gets && !in_place(x) && overlap((const char*)in, gives, (const char*)out, gets)) {
        return complain(ncclInvalidArgument, "%s: sendbuff and recvbuff overlap, but are not in place", name);
    }
    c->least_priority = std::max(c->least_priority, st(stream)->priority);
    enqueue(stream, [x] { run_collective(x); });
    return ncclSuccess;
}

} // namespace emu::nccl

typedef emu::nccl::Communicator* ncclComm_t;

inline const char* ncclGetErrorString(ncclResult_t result) {
    switch (result) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError: return "unhandled cuda error";
    case ncclSystemError: return "unhandled system error";
    case ncclInvalidArgument: return "invalid argument";
    case ncclRemoteError: return "remote process exited or there was a network error";
    case ncclInProgress: return "operation in progress";
    }
    return "unknown result code";
}
inline const char* ncclGetLastError(ncclComm_t) { return emu::nccl::last_error.c_str(); }

inline ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
    static int calls = 0;
    timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    *id = {};
    snprintf(id->internal, sizeof id->internal, "emu-nccl-%ld-%lld-%ld-%d", (long)getpid(), (long long)now.tv_sec,
             now.tv_nsec, ++calls);
    return ncclSuccess;
}

inline ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
    using namespace emu::nccl;
    if (!comm || ranks < 1 || rank < 0 || rank >= ranks) {
        return complain(ncclInvalidArgument, "ncclCommInitRank: rank %d of %d", rank, ranks);
    }
    if (strncmp(id.internal, "emu-nccl-", 9) != 0) {
        return complain(ncclInvalidArgument, "ncclCommInitRank: the id does not come from ncclGetUniqueId");
    }
    auto c = std::make_unique<Communicator>();
    c->rank = rank;
    c->ranks = ranks;
    c->sockets.assign(ranks, -1);
    const char* algorithms = getenv("NCCL_ALGO");
    c->algorithms = algorithms ? algorithms : "any";
    c->repeats_bits = algorithms && (algorithms[0] == '^') == (strstr(algorithms, "NVLS") != nullptr);
    const char* nvls = getenv("NCCL_NVLS_ENABLE"); // NCCL sets it up whatever NCCL_ALGO says, among three GPUs or more
    if (!emu::option("EMU_MULTICAST", 1) && ranks > 2 && !(nvls && !strcmp(nvls, "0"))) {
        return complain(ncclUnhandledCudaError, "ncclCommInitRank: cannot bind multicast memory for NVLS");
    }
    if (!emu::charge_context() || !emu::charge(emu::NCCL_BYTES)) {
        return complain(ncclUnhandledCudaError, "ncclCommInitRank: out of device memory");
    }
    connect_all(c.get(), id);
    *comm = c.release();
    return ncclSuccess;
}

inline ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    const ncclResult_t result = cudaDeviceSynchronize() == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
    if (emu::option("EMU_COUNT", 0)) {
        fprintf(stderr, "emu: NCCL: algorithms %s, streams of priority %d\n", comm->algorithms.c_str(),
                comm->least_priority);
    }
    for (int fd : comm->sockets) {
        if (fd >= 0) { close(fd); }
    }
    delete comm;
    return result;
}

// Disagreements of the ranks end the program, so only EMU_NCCL_FAIL has something to report. Any thread may call this.
inline ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* result) {
    *result = __atomic_load_n(&comm->async_error, __ATOMIC_ACQUIRE);
    return ncclSuccess;
}

inline ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                  ncclComm_t comm, cudaStream_t stream) {
    return emu::nccl::call(emu::nccl::ALL_REDUCE, in, out, count, type, op, -1, comm, stream);
}
inline ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                      ncclComm_t comm, cudaStream_t stream) {
    return emu::nccl::call(emu::nccl::REDUCE_SCATTER, in, out, count, type, op, -1, comm, stream);
}
inline ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type, ncclComm_t comm,
                                  cudaStream_t stream) {
    return emu::nccl::call(emu::nccl::ALL_GATHER, in, out, count, type, ncclSum, -1, comm, stream);
}
inline ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t type, int root,
                                  ncclComm_t comm, cudaStream_t stream) {
    return emu::nccl::call(emu::nccl::BROADCAST, in, out, count, type, ncclSum, root, comm, stream);
}
inline ncclResult_t ncclReduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                               ncclComm_t comm, cudaStream_t stream) {
    return emu::nccl::call(emu::nccl::REDUCE, in, out, count, type, op, root, comm, stream);
}
