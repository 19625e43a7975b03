// Fibers: each CUDA thread of the running block has a stack of its own and runs until it has to wait for others. Within
// a pass over a warp each fiber switches directly to the next in the list that the scheduler (scheduler.h) made.
#pragma once
#include "capability.h"
#include "memory.h"
#include <vector>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif
#if !defined(__x86_64__) || defined(EMU_UCONTEXT)
#define EMU_UCONTEXT
#include <ucontext.h>
#endif

namespace emu {

constexpr size_t STACK_BYTES = 144 << 10;           // of a fiber; the lowest STACK_GUARD of them are closed
constexpr size_t STACK_GUARD = 16 << 10;
constexpr size_t MAX_DYNAMIC_SHARED = 227 << 10;    // of one block, static included, on any device
constexpr unsigned MAX_THREADS = 1024;              // of one block

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

// A warp-wide instruction: run once when all its lanes have come. lane[l] is what lane l passed to wait(), or null.
typedef void (*WarpOp)(void** lane, unsigned mask);

// State that a switch saves. ASan also has to be told where the stacks are.
struct Context {
#ifdef EMU_UCONTEXT
    ucontext_t registers;
#else
    void* stack_pointer = nullptr;
#endif
    const void* bottom = nullptr;
    size_t bytes = 0;
    void* fake_stack = nullptr;
};

struct Fiber {
    Context context;
    State st;
    uint3 tid;
    unsigned lane, warp;
    unsigned mask;   // WARP: the lanes that have to arrive
    WarpOp op;       // WARP: the instruction that runs then
    void* arg;       // WARP: this lane's part of it
    int vote;        // BLOCK: its argument of __syncthreads_count, _and or _or
    CallSite at;        // where it waits
    std::vector<Copy>* cp; // cp.async not yet waited for
};

struct SharedArray {
    char* begin;
    size_t bytes;
};

// State with which one OpenMP thread runs a block.
struct Scheduler {
    Context self;
    char* stacks = nullptr;
    std::vector<Fiber> fibers;
    std::vector<std::vector<Copy>> copies;
    Fiber* pass[32];              // the fibers of the warp that are being run
    unsigned pass_count, pass_next;
    const char* name;             // of the kernel
    void (*body)(void*);          // the kernel, with its arguments
    void* body_arg;
    char* dyn;                    // dynamic shared memory
    size_t dyn_n;
    std::vector<SharedArray> shared; // static shared memory that this block has touched
    size_t shared_bytes;
    int vote;                     // the result of __syncthreads_count
    uint64_t rng;
};

inline EMU_THREAD Scheduler* S;
inline EMU_THREAD Fiber* cur; // null on the host

// In builds that observe memory accesses (hooks.h) these count only while `quiet` is 0: in kernels, not in the emulator
// or the host.
#ifdef EMU_RACE
inline EMU_THREAD int quiet = 1;
#define EMU_QUIET(value) (emu::quiet = (value))
#define EMU_UNSEEN __attribute__((no_sanitize_thread)) // of functions that run at each access: no hook sees their own
#else
#define EMU_UNSEEN
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

#define EMU_SWITCHES __attribute__((noinline, no_sanitize_address))

// Goes on in `to`; returns when another fiber switches back to `from`. `ended`: none will.
EMU_SWITCHES inline void switch_context(Context* from, Context* to, bool ended = false) {
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(ended ? nullptr : &from->fake_stack, to->bottom, to->bytes);
#endif
    (void)ended;
#ifdef EMU_UCONTEXT
    swapcontext(&from->registers, &to->registers);
#else
    emu_switch(&from->stack_pointer, to->stack_pointer);
#endif
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(from->fake_stack, nullptr, nullptr);
#endif
}

// The current fiber stops: the next one of the pass goes on, or the scheduler.
EMU_SWITCHES inline void leave(bool ended = false) {
    Fiber* self = cur;
    Context* next = &S->self;
    if (S->pass_next < S->pass_count) {
        cur = S->pass[S->pass_next++];
        next = &cur->context;
    }
    switch_context(&self->context, next, ended);
    cur = self;
    threadIdx = self->tid;
}

EMU_SWITCHES inline void fiber_main() {
#ifdef __SANITIZE_ADDRESS__
    const void* bottom;
    size_t bytes;
    __sanitizer_finish_switch_fiber(nullptr, &bottom, &bytes);
    if (!S->self.bottom) { // the first fiber of all was entered from the scheduler
        S->self.bottom = bottom;
        S->self.bytes = bytes;
    }
#endif
    threadIdx = cur->tid;
    EMU_QUIET(0);
    S->body(S->body_arg);
    EMU_QUIET(1);
    cur->st = DONE;
    leave(true);
    abort();
}

inline char* stack_of(size_t i) { return S->stacks + i * STACK_BYTES; }

// Makes fiber i start at fiber_main() when it is switched to.
inline void prepare_context(size_t i) {
    Context& c = S->fibers[i].context;
    c.bottom = stack_of(i);
    c.bytes = STACK_BYTES;
    ASAN_UNPOISON_MEMORY_REGION(stack_of(i) + STACK_BYTES - PAGE, PAGE);
#ifdef EMU_UCONTEXT
    getcontext(&c.registers);
    c.registers.uc_stack.ss_sp = stack_of(i);
    c.registers.uc_stack.ss_size = STACK_BYTES;
    makecontext(&c.registers, fiber_main, 0);
#else
    void** sp = (void**)(stack_of(i) + STACK_BYTES - 64); // a multiple of 16, as the ABI wants it before a call
    *--sp = nullptr;                                      // where fiber_main would return to
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
    S->stacks = (char*)p;
    for (size_t i = 0; i < MAX_THREADS; i++) { mprotect(stack_of(i), STACK_GUARD, PROT_NONE); }
}

// Returns true if p is in the stack of a thread of the block.
EMU_UNSEEN inline bool on_stack(const void* p) {
    return S && S->stacks && p >= S->stacks && p < S->stacks + MAX_THREADS * STACK_BYTES;
}

inline const char* describe_fault(const void* p) {
    return on_stack(p) ? "emu: a thread of a kernel needs more than its stack of 128 KB\n" : nullptr;
}

// The current thread waits: at a barrier of the block, or in a warp-wide instruction for the lanes of `mask`.
inline void wait(State state, unsigned mask, WarpOp op = nullptr, void* arg = nullptr,
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
