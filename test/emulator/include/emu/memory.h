// Device memory: one reserved range of addresses, in which allocations have their exact size, 256 bytes of red zone
// behind them, and 0xff (NaN as float, bf16 and half) in their first 8 MiB. It is closed to the host except while
// device work runs, if the system has large pages. In an audit (audit.h) it is address space alone, and open.
//
//   EMU_REUSE=1        freed addresses are used again, those that were freed last first
//   EMU_CHARGES=1      CUDA and NCCL take memory for themselves, as they do on a GPU
//   EMU_LOCKABLE=N     larger allocations of page-locked host memory fail
#pragma once
#include "error.h"
#include <map>
#include <csignal>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

namespace emu {

inline const bool audits = option("EMU_AUDIT", 0) != 0; // audit.h

constexpr size_t ALIGNMENT = 256; // of allocations, as cudaMalloc promises
inline const size_t RED_ZONE = audits ? (size_t)16 << 30 : 256; // an index of 32 bits does not leap over the large one
constexpr size_t PAGE = 4096, LARGE_PAGE = 2 << 20;
constexpr int POISON = 0xff;
constexpr size_t MOST_POISONED = 8 << 20; // bytes of an allocation: all of cuBLASLt's workspace would take 0.1 s
constexpr size_t MUCH = 64 << 20;         // bytes whose zeroes take long

inline size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

struct Memory {
    char* base = nullptr;
    size_t reserved = 0;            // bytes of address space
    size_t top = 0;                 // bytes of it ever handed out
    size_t used = 0;                // bytes in live allocations
    int open = 0;                   // nesting of Open: device work is running
    std::map<char*, size_t> live;   // device allocations and their sizes
    std::vector<std::pair<char*, size_t>> freed; // addresses to use again, and their bytes with the red zones
    std::map<char*, size_t> pinned; // page-locked host allocations, which the device may use too
};
inline Memory mem;

// Returns the size of the device's memory. Pages that are never touched cost nothing.
inline size_t device_memory() {
    static const size_t bytes = (size_t)option("EMU_MEMORY", 16ll << 30);
    return bytes;
}

// Returns the most bytes that one allocation of page-locked host memory may have.
inline size_t lockable_memory() {
    static const size_t bytes = (size_t)option("EMU_LOCKABLE", -1);
    return bytes;
}

// Bytes that CUDA and NCCL take with EMU_CHARGES=1: in all about 1.5 GB in a run on several GPUs. Chosen, not measured.
constexpr size_t CONTEXT_BYTES = 512 << 20, KERNEL_BYTES = 4 << 20, GRAPH_NODE_BYTES = 64 << 10, NCCL_BYTES = 512 << 20;

inline bool charges() {
    static const bool value = option("EMU_CHARGES", 0) != 0;
    return value;
}

// Takes such memory. Returns false if the device has no more.
inline bool charge(size_t bytes) {
    if (charges() && bytes > device_memory() - mem.used) { return false; }
    mem.used += charges() ? bytes : 0;
    return true;
}
inline void give_back(size_t bytes) { mem.used -= charges() ? bytes : 0; }

// Takes the memory of a context, at the first call that needs one.
inline bool charge_context() {
    static const bool charged = charge(CONTEXT_BYTES);
    return charged;
}

EMU_UNSEEN inline bool on_device(const void* p) { return (size_t)((char*)p - mem.base) < mem.reserved; }

// Returns the allocation of `map` that p lies in or behind, or null.
inline const std::pair<char* const, size_t>* allocation_before(const std::map<char*, size_t>& map, const void* p) {
    auto next = map.upper_bound((char*)p);
    return next == map.begin() ? nullptr : &*std::prev(next);
}

inline bool is_pinned(const void* p) {
    auto* a = allocation_before(mem.pinned, p);
    return a && (char*)p < a->first + a->second;
}

struct Touched; // audit.h
inline Touched* audit_part(const char* allocation);
inline void audit_touch(Touched* part, size_t offset, size_t n);

// A device allocation.
struct Allocation {
    const char* first;
    size_t bytes;     // 0: none
    Touched* touched; // in an audit
};
// Those that kernels accessed last, each by a page of it: nearly every access is to one of them.
inline Allocation recent_allocations[64];

EMU_UNSEEN inline Allocation& recent_allocation(const void* p) { return recent_allocations[(uintptr_t)p / PAGE % 64]; }

// Returns the allocation that [p, p + n), in device memory, lies within; ends the program if there is none. place():
// how the message begins.
template <class Place> Allocation allocation_of(const void* p, size_t n, Place place) {
    auto* a = allocation_before(mem.live, p);
    const size_t offset = a ? (size_t)((const char*)p - a->first) : 0;
    if (a && offset <= a->second && n <= a->second - offset) {
        return {a->first, a->second, audits ? audit_part(a->first) : nullptr};
    }
    const std::string begin = place();
    if (!a) { die("%s: %zu bytes before the first allocation, or in a freed one", begin.c_str(), n); }
    die("%s: %zu bytes at offset %zu of an allocation of %zu, or in a freed one", begin.c_str(), n, offset, a->second);
}

// Ends the program unless [p, p + n) lies within one device allocation.
inline void check_range(const void* p, size_t n, const char* what) {
    if (!on_device(p)) { die("%s: %p is not device memory", what, p); }
    const Allocation a = allocation_of(p, n, [&] { return what; });
    if (audits) { audit_touch(a.touched, (size_t)((const char*)p - a.first), n); }
}

// ---------------------------------------------------------------------------------------------------------------------
// the guard

// Sets the protection of what was ever handed out, up to the end of its last large page: a part would split the page,
// and every launch would go over 512 small ones.
inline void protect_all(int protection) {
    const size_t bytes = round_up(mem.top, LARGE_PAGE); // all that is reserved is a multiple of it
    if (mprotect(mem.base, bytes, protection) != 0) { die("mprotect of device memory failed"); }
}

// Returns true if the system makes large pages for madvise(MADV_HUGEPAGE).
inline bool has_large_pages() {
    static const bool value = [] {
        char text[64] = "";
        FILE* f = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "r");
        const bool is_read = f && fgets(text, sizeof text, f);
        if (f) { fclose(f); }
        return is_read && !strstr(text, "[never]");
    }();
    return value;
}

// Without large pages only a few megabytes are closed: more would take longer than the kernels.
inline void protect(int protection) {
    constexpr size_t FEW = 4 << 20; // chosen
    if (mem.top && !audits && (has_large_pages() || mem.top < FEW)) { protect_all(protection); }
}

// Device memory can be read and written while one of these lives.
struct Open {
    Open() {
        if (mem.open++ == 0) { protect(PROT_READ | PROT_WRITE); }
    }
    ~Open() {
        if (--mem.open == 0) { protect(PROT_NONE); }
    }
    Open(const Open&) = delete;
};

inline struct sigaction segv_before;
inline const char* describe_fault(const void* p); // fiber.h: what a kernel may have done

// Explains a fault at a device address, then restores the handler from before, under which the access is repeated.
inline void on_segv(int, siginfo_t* info, void*) {
    const char* text = describe_fault(info->si_addr);
    if (on_device(info->si_addr)) {
        text = mem.open ? "emu: a kernel touches device memory behind all allocations\n"
                        : "emu: host code touches device memory: copy with cudaMemcpy\n";
    }
    if (text && write(STDERR_FILENO, text, strlen(text)) < 0) { _exit(1); }
    sigaction(SIGSEGV, &segv_before, nullptr);
}

inline void install_segv_handler() {
    static bool installed = false;
    if (installed) { return; }
    installed = true;
    static char stack[64 << 10]; // a kernel that overflows its own stack leaves none for the handler
    stack_t alternative = {};
    if (sigaltstack(nullptr, &alternative) == 0 && (alternative.ss_flags & SS_DISABLE)) {
        alternative = {};
        alternative.ss_sp = stack;
        alternative.ss_size = sizeof stack;
        sigaltstack(&alternative, nullptr);
    }
    struct sigaction action = {};
    action.sa_sigaction = on_segv;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, &segv_before);
}

// ---------------------------------------------------------------------------------------------------------------------
// allocation

// Reserves as much as a limit of address space, such as a container's, allows.
inline void reserve() {
    install_segv_handler();
    for (size_t bytes = (size_t)1 << (audits ? 46 : 40); bytes >= 1 << 30; bytes /= 2) {
        void* p = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p != MAP_FAILED) {
            mem.base = (char*)round_up((size_t)p, LARGE_PAGE);
            mem.reserved = bytes - LARGE_PAGE;
            if (audits) {
                madvise(mem.base, mem.reserved, MADV_NOHUGEPAGE); // a byte that is written costs a page, not 2 MiB
                mem.top = RED_ZONE;                               // an index below 0 hits no host memory
            } else {
                madvise(mem.base, mem.reserved, MADV_HUGEPAGE); // protect() goes over all pages for each launch
            }
            return;
        }
    }
    die("cannot reserve 1 GB of address space for device memory: raise `ulimit -v`");
}

// Sets [p, p + n) to a byte. Zeroes whole pages by giving them back, in an audit and where there is much: `bench ops`
// writes half a gigabyte before each operation, and nobody reads it.
inline void fill(char* p, int value, size_t n) {
    const size_t page = audits ? PAGE : LARGE_PAGE; // to split a large one costs more than it saves
    char* const end = p + n;
    char* const first = (char*)round_up((size_t)p, page);
    char* const last = (char*)((size_t)end / page * page);
    const bool gives_back = value == 0 && (audits || n >= MUCH) && first < last;
    if (!gives_back || madvise(first, (size_t)(last - first), MADV_DONTNEED) != 0) {
        memset(p, value, n);
        return;
    }
    memset(p, 0, (size_t)(first - p));
    memset(last, 0, (size_t)(end - last));
}

// Fills new or freed memory with POISON, at most MOST_POISONED bytes of it; in an audit with 0.
inline void poison(char* p, size_t n) {
    if (audits) { fill(p, 0, n); }
    else { memset(p, POISON, n < MOST_POISONED ? n : MOST_POISONED); }
}

inline bool reuses() {
    static const bool value = option("EMU_REUSE", 0) != 0;
    return value;
}

// Returns `span` bytes of addresses: of those freed last, if there are as many, else new ones.
inline char* take_addresses(size_t span) {
    for (size_t i = mem.freed.size(); i-- > 0;) {
        auto& [p, bytes] = mem.freed[i];
        if (bytes < span) { continue; }
        char* const first = p;
        p += span;
        bytes -= span;
        return first;
    }
    if (span > mem.reserved - mem.top) { die("the device's address space is used up: EMU_REUSE=1 uses it again"); }
    mem.top += span;
    return mem.base + mem.top - span;
}

inline size_t span_of(size_t n) { return round_up(n, audits ? PAGE : ALIGNMENT) + RED_ZONE; }

// Returns null if the device has no n > 0 bytes left.
inline void* allocate(size_t n) {
    if (!mem.base) { reserve(); }
    if (n > device_memory() - mem.used) { return nullptr; }
    const size_t span = span_of(n);
    char* p = take_addresses(span);
    mem.used += n;
    counts.memory = mem.used > counts.memory ? mem.used : counts.memory;
    mem.live[p] = n;
    protect_all(PROT_READ | PROT_WRITE);
    poison(p, n);
    if (!mem.open) { protect(PROT_NONE); }
    return p;
}

// Frees p. It is poisoned; whole large pages that are not used again go back to the system. Returns false if p is no
// allocation.
inline bool release(void* p) {
    auto it = mem.live.find((char*)p);
    if (it == mem.live.end()) { return false; }
    {
        Open o;
        poison((char*)p, it->second);
    }
    size_t begin = round_up((size_t)p, LARGE_PAGE), end = ((size_t)p + it->second) / LARGE_PAGE * LARGE_PAGE;
    if (reuses()) { mem.freed.push_back({(char*)p, span_of(it->second)}); }
    else if (begin < end) { madvise((void*)begin, end - begin, MADV_DONTNEED); }
    mem.used -= it->second;
    mem.live.erase(it);
    for (Allocation& r : recent_allocations) { r = {}; }
    return true;
}

} // namespace emu
