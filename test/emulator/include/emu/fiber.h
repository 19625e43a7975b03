// Fibers: each CUDA thread of the running block has a stack of its own and runs until it has to wait for others. Within
// a pass over a warp each fiber switches directly to the next in the list that the scheduler (scheduler.h) made.
#pragma once
#include "capability.h"
#include "memory.h"
#include <vector>
#if !defined(__x86_64__) || defined(EMU_UCONTEXT)
#define EMU_UCONTEXT
#include <ucontext.h>
#endif

namespace emu {

constexpr size_t STACK_BYTES = 148 << 10;           // of a fiber; the lowest STACK_GUARD of them are closed
constexpr size_t STACK_GUARD = 16 << 10;
constexpr size_t STACK_STAGGER = PAGE / 32;         // see prepare_context
constexpr size_t MAX_DYNAMIC_SHARED = 227 << 10;    // of one block, static included, on any device
constexpr unsigned MAX_THREADS = 1024;              // of one block
constexpr unsigned MAX_SHARED_ARRAYS = 256;         // of one block, an arbitrary limit

enum State : char {
    RUN,   // can go on
    BLOCK, // waits at a barrier of the block
    WARP,  // waits for lanes of its warp
    DONE,
};

// A place in the source, for messages.
struct CallSite {
    const char* file;
    int line;
};

// A copy that cp.async has begun. A null `dst` ends a group of copies.
struct Copy {
    char* dst;
    const char* src;
    unsigned n, zero; // bytes to copy, bytes to clear behind them
};

// A warp-wide instruction: run once when all its lanes have come. lane[l] is what lane l of the mask passed to wait();
// of other lanes it is undefined.
typedef void (*WarpOp)(void** lane, unsigned mask);

// State that a switch saves.
struct Context {
#ifdef EMU_UCONTEXT
    ucontext_t registers;
#else
    void* stack_pointer = nullptr;
#endif
};

// Begins with what every switch reads, within 64 bytes.
struct alignas(64) Fiber {
    Context context;
    WarpOp op;              // WARP: the instruction that runs when all lanes have arrived
    void* arg;              // WARP: this lane's part of it
    CallSite at;            // where it waits
    uint3 tid;
    unsigned mask;          // WARP: the lanes that have to arrive
    State st;
    unsigned char lane, warp;
    std::vector<Copy>* cp;  // cp.async not yet waited for
};

struct SharedArray {
    char* begin;
    size_t bytes;
};

// State with which a block runs.
struct Scheduler {
    Context self;
    std::vector<Fiber> fibers;
    std::vector<std::vector<Copy>> copies;
    Fiber* pass[33];              // the fibers of the warp that are being run, then null
    Fiber** pass_next;
    const char* name;             // of the kernel
    void (*body)(void*);          // the kernel, with its arguments
    void* body_arg;
    char* dyn;                    // dynamic shared memory
    size_t dyn_n;
    SharedArray shared[MAX_SHARED_ARRAYS]; // static shared memory that this block has touched
    unsigned shared_count;
    size_t shared_bytes;
    uint64_t rng;
};

inline Scheduler* S;
inline Fiber* cur; // null on the host
inline char* stacks;

// In builds that observe memory accesses (hooks.h) these count only while `quiet` is 0: in kernels, not in the emulator
// or the host.
#ifdef EMU_CHECK
inline int quiet = 1;
#define EMU_QUIET(value) (emu::quiet = (value))
#define EMU_QUIETLY(call)                                                            \
    do {                                                                             \
        const int quiet_before = emu::quiet;                                         \
        emu::quiet = 1;                                                              \
        call;                                                                        \
        emu::quiet = quiet_before;                                                   \
    } while (0)
#else
#define EMU_QUIET(value) ((void)0)
#endif

// ---------------------------------------------------------------------------------------------------------------------
// switching

#ifndef EMU_UCONTEXT
// Saves the callee-saved registers of the x86-64 System V ABI, puts the stack pointer into *save, and goes on from
// `load`.
extern "C" void emu_switch(void** save, void* load);
asm(R"(
    .text
    .weak emu_switch
    .type emu_switch, @function
emu_switch:
    push %rbp
    push %rbx
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rsp, (%rdi)
    mov %rsi, %rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbx
    pop %rbp
    ret
    .size emu_switch, . - emu_switch
)");
#endif

// Goes on in `to`; returns when another fiber switches back to `from`.
EMU_UNSEEN inline void switch_context(Context* from, Context* to) {
#ifdef EMU_UCONTEXT
    swapcontext(&from->registers, &to->registers);
#else
    emu_switch(&from->stack_pointer, to->stack_pointer);
#endif
}

// The current fiber stops: the next one of the pass goes on, or the scheduler.
EMU_UNSEEN inline void leave() {
    Fiber* const self = cur;
    Fiber* const next = *S->pass_next++;
    cur = next;
    switch_context(&self->context, next ? &next->context : &S->self);
    cur = self;
    threadIdx = self->tid;
}

EMU_UNSEEN inline void fiber_main() {
    threadIdx = cur->tid;
    EMU_QUIET(0);
    S->body(S->body_arg);
    EMU_QUIET(1);
    cur->st = DONE;
    leave();
    abort();
}

inline char* stack_of(size_t i) { return stacks + i * STACK_BYTES; }

// Makes fiber i start at fiber_main() when it is switched to. The lanes of a warp do the same, each on its stack: these
// begin at different places of a page (not with ucontext), or what they touch would share a few sets of the cache.
inline void prepare_context(size_t i) {
    Context& c = S->fibers[i].context;
#ifdef EMU_UCONTEXT
    getcontext(&c.registers);
    c.registers.uc_stack.ss_sp = stack_of(i);
    c.registers.uc_stack.ss_size = STACK_BYTES;
    makecontext(&c.registers, fiber_main, 0);
#else
    // a multiple of 16, as the ABI wants it before a call
    void** sp = (void**)(stack_of(i) + STACK_BYTES - 64 - i % 32 * STACK_STAGGER);
    *--sp = nullptr; // where fiber_main would return to
    *--sp = (void*)fiber_main;
    for (int k = 0; k < 6; k++) { *--sp = nullptr; }
    c.stack_pointer = sp;
#endif
}

inline void allocate_stacks() {
    install_segv_handler();
    size_t bytes = MAX_THREADS * STACK_BYTES;
    void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) { die("cannot allocate %zu bytes of stacks for the threads of a block", bytes); }
    stacks = (char*)p;
    for (size_t i = 0; i < MAX_THREADS; i++) { mprotect(stack_of(i), STACK_GUARD, PROT_NONE); }
}

// Returns true if p is in the stack of a thread of the block.
EMU_UNSEEN inline bool on_stack(const void* p) {
    return (uintptr_t)p - (uintptr_t)stacks < MAX_THREADS * STACK_BYTES;
}

inline const char* describe_fault(const void* p) {
    return stacks && on_stack(p) ? "emu: a thread of a kernel needs more than its stack of 128 KB\n" : nullptr;
}

// The current thread waits: at a barrier of the block, or in a warp-wide instruction for the lanes of `mask`.
EMU_UNSEEN inline void wait(State state, unsigned mask, WarpOp op = nullptr, void* arg = nullptr,
                            CallSite at = {__builtin_FILE(), __builtin_LINE()}) {
    if (!cur) { die("%s:%d: a device function is called on the host", at.file, at.line); }
    EMU_QUIET(1);
    cur->st = state;
    cur->mask = mask;
    cur->op = op;
    cur->arg = arg;
    cur->at = at;
    leave();
    EMU_QUIET(0);
}

} // namespace emu
