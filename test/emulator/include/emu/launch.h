// Kernel launches: the limits, the arguments, and the loop over blocks.
#pragma once
#include "graph.h"
#include "shared.h"

namespace emu {

// Attributes of a kernel, or of one instantiation of a template. The rewriter puts a Kernel into the kernel's body:
//     static emu::Kernel emu_kernel = {__PRETTY_FUNCTION__, LAUNCH_BOUNDS}; if (emu::probe(emu_kernel)) { return; }
struct Kernel {
    const char* signature;
    int max_threads;
    int max_dynamic = MAX_STATIC_SHARED; // bytes of dynamic shared memory, raised by cudaFuncSetAttribute
    size_t static_bytes = 0;             // of shared memory, as far as the kernel has run
    const char* name = nullptr;
    int registers = 0;   // of a thread, as far as known
    bool loaded = false; // into the device's memory
};

// Returns the registers of a kernel by ptxas' report (nvcc -Xptxas -v), the file that EMU_PTXAS names: of a template,
// the most that one of its instantiations has. 0 if there is no report.
inline int registers_of(const char* name) {
    static const std::map<std::string, int> all = [] {
        std::map<std::string, int> most;
        const char* path = getenv("EMU_PTXAS");
        FILE* f = path && *path ? fopen(path, "r") : nullptr;
        if (path && *path && !f) { die("EMU_PTXAS: no %s", path); }
        char line[4096];
        std::string kernel;
        for (int count; f && fgets(line, sizeof line, f);) {
            if (const char* mangled = strstr(line, "entry function '_Z")) { // _Z<length of the name><name>...
                char* begin;
                const size_t length = strtoul(mangled + strlen("entry function '_Z"), &begin, 10);
                kernel.assign(begin, length);
            } else if (const char* used = strstr(line, "Used "); used && sscanf(used, "Used %d registers", &count)) {
                most[kernel] = std::max(most[kernel], count);
            }
        }
        if (f) { fclose(f); }
        return most;
    }();
    std::string kernel(name, strcspn(name, " "));
    kernel.erase(0, kernel.rfind(':') + 1); // its namespace
    const auto found = all.find(kernel);
    return found == all.end() ? 0 : found->second;
}
constexpr int BLOCK_REGISTERS = 65536;

// Returns the registers that a block takes: warps get them in units of 256.
inline size_t block_registers(int registers, size_t threads) {
    return (threads + 31) / 32 * round_up((size_t)registers * 32, 256);
}

// The arguments of __launch_bounds__: returns the most threads of a block.
constexpr int launch_bounds(int threads = MAX_THREADS, int = 0, int = 0) { return threads; }

inline bool probing;
inline Kernel* probed;

inline bool probe(Kernel& kernel) {
    if (!probing) { return false; }
    probed = &kernel;
    return true;
}

// "void ns::k(float*) [with T = int]" -> "ns::k [with T = int]"
inline const char* name_of(const Kernel& kernel) {
    std::string text = kernel.signature, with;
    if (size_t at = text.find(" [with"); at != std::string::npos) {
        with = text.substr(at);
        text.resize(at);
    }
    text = text.substr(0, text.find('('));
    return strdup((text.substr(text.rfind(' ') + 1) + with).c_str());
}

// Finds a kernel by calling it: it hands over its Kernel and returns. Returns null if `call` is no kernel.
template <class F> Kernel* kernel_of(F call) {
    probed = nullptr;
    probing = true;
    call();
    probing = false;
    if (probed && !probed->name) {
        probed->name = name_of(*probed);
        probed->registers = registers_of(probed->name);
    }
    return probed;
}

// Finds a kernel by its address. Its arguments are never read, so any type will do.
inline Kernel* kernel_at(const void* function) {
    return kernel_of([=] { ((void (*)())function)(); });
}

// Ends the program unless argument i is null or a pointer to device or page-locked memory that is not freed.
inline void check_argument(const char* kernel, int i, const void* p) {
    if (!p || is_pinned(p)) { return; }
    if (!on_device(p)) { die("%s: argument %d (%p) is a host pointer", kernel, i, p); }
    auto* a = allocation_before(mem.live, p);
    if (!a || (size_t)((char*)p - a->first) > a->second) { die("%s: argument %d (%p) is freed memory", kernel, i, p); }
}

// Returns an argument that is a pointer, and null for others. Pointers inside of structs are not checked.
template <class T> const void* pointer_of(const T& value) {
    if constexpr (std::is_pointer_v<T>) { return (const void*)value; }
    else { return nullptr; }
}

struct alignas(16) Bytes16 {
    char bytes[16];
};

struct Launch {
    const char* text; // the kernel as the source names it
    dim3 grid, block;
    size_t dynamic;
    Stream* stream;

    Launch(const char* text, dim3 grid, dim3 block, size_t dynamic = 0, Stream* stream = nullptr)
        : text(text), grid(grid), block(block), dynamic(dynamic), stream(stream) {}

    size_t threads() const { return (size_t)block.x * block.y * block.z; }

    bool within_limits(const Kernel& k) const {
        bool block_fits = threads() > 0 && block.x <= MAX_THREADS && block.y <= MAX_THREADS && block.z <= 64 &&
                          threads() <= MAX_THREADS;
        bool grid_fits = grid.x > 0 && grid.y > 0 && grid.z > 0 && grid.x <= 0x7fffffff && grid.y <= 65535 &&
                         grid.z <= 65535;
        if (!block_fits || !grid_fits) {
            fail(cudaErrorInvalidConfiguration, "%s<<<(%u,%u,%u), (%u,%u,%u)>>>: the %s is empty or too large", k.name,
                 grid.x, grid.y, grid.z, block.x, block.y, block.z, block_fits ? "grid" : "block");
        } else if (threads() > (size_t)k.max_threads) {
            fail(cudaErrorInvalidConfiguration, "%s: %zu threads in a block, but __launch_bounds__(%d)", k.name,
                 threads(), k.max_threads);
        } else if (dynamic > (size_t)k.max_dynamic) {
            fail(cudaErrorInvalidValue, "%s: %zu bytes of dynamic shared memory, but %d allowed: cudaFuncSetAttribute",
                 k.name, dynamic, k.max_dynamic);
        } else if (block_registers(k.registers, threads()) > BLOCK_REGISTERS) {
            fail(cudaErrorLaunchOutOfResources, "%s: %zu threads of %d registers: a block has %d", k.name, threads(),
                 k.registers, BLOCK_REGISTERS);
        } else {
            return true;
        }
        return false;
    }

    // A kernel has code of its own only for what follows: the rest takes its arguments as bytes.
    template <class F, class... A> void operator()(F call, A... args) const {
        const auto closure = [=] { call(args...); };
        typedef decltype(closure) Closure;
        static_assert(std::is_trivially_copyable_v<Closure> && alignof(Closure) <= alignof(Bytes16));
        const void* const pointers[] = {pointer_of(args)..., nullptr};
        queue([](void* p) { (*(Closure*)p)(); }, &closure, sizeof closure, pointers, sizeof...(args));
    }

    // Puts the kernel into the stream. body(a copy of the `bytes` bytes at `closure`) calls it with its arguments.
    void queue(void (*body)(void*), const void* closure, size_t bytes, const void* const* pointers,
               size_t count) const {
        if (enter() != cudaSuccess) { return; }
        std::vector<Bytes16> copy((bytes + sizeof(Bytes16) - 1) / sizeof(Bytes16));
        memcpy(copy.data(), closure, bytes);
        Kernel* kernel = kernel_of([&] { body(copy.data()); });
        if (!kernel) { die("%s is launched but is no __global__ function", text); }
        if (!within_limits(*kernel)) { return; }
        kernel->loaded = kernel->loaded || charge(KERNEL_BYTES);
        if (!kernel->loaded) {
            fail(cudaErrorMemoryAllocation, "%s: no memory to load it", kernel->name);
            return;
        }
        for (size_t i = 0; i < count; i++) { check_argument(kernel->name, (int)i + 1, pointers[i]); }
        enqueue(stream, [=, launch = *this]() mutable { launch.run(*kernel, body, copy.data()); });
    }

    void run(Kernel& kernel, void (*body)(void*), void* arg) const {
        count_launch();
        if (broken_by != cudaSuccess) { return; }
        clock_launch(kernel.name);
        Open open;
        const size_t blocks = (size_t)grid.x * grid.y * grid.z;
        uint64_t rng = (uint64_t)order() * 0x9e3779b97f4a7c15ull + launches;
        std::vector<size_t> list; // of blocks to run; empty: all, in ascending or descending order
        if (audits) {
            list = audited_blocks(blocks);
        } else if (order() > 1) {
            list.resize(blocks);
            arrange(list.data(), blocks, rng);
        }
        const size_t count = list.empty() ? blocks : list.size();
        for (size_t i = 0; i < count; i++) {
            size_t b = !list.empty() ? list[i] : order() == 1 ? blocks - 1 - i : i;
            if (!S) { S = new Scheduler; }
            S->rng = rng + b;
            S->name = kernel.name;
            S->body = body;
            S->body_arg = arg;
            S->dyn = dynamic_memory;
            S->dyn_n = dynamic;
            gridDim = grid;
            blockDim = block;
            blockIdx = {(unsigned)(b % grid.x), (unsigned)(b / grid.x % grid.y), (unsigned)(b / grid.x / grid.y)};
            race_block_begin();
            run_block();
            if (i == 0) { kernel.static_bytes = S->shared_bytes; }
        }
        race_launch_end();
        traffic_launch_end();
    }
};

} // namespace emu
