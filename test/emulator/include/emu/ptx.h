// Inline PTX, executed from its text.
//
// The rewriter turns   asm volatile("text" : "=f"(d) : "r"(a), "n"(4))   into
//     static emu::Ptx emu_p("text");
//     emu::Op emu_o[] = {emu::out("=f", d), emu::in("r", a), emu::in("n", 4), {}};
//     emu_p.run(emu_o);
// The text is parsed once. Each instruction is looked up in PTX_FORMATS, which also says what operands it takes; one
// that is not there ends the program. Layouts and rules are those of NVIDIA's manual "PTX ISA", whose sections the
// comments name in quotes.
#pragma once
#include "bf16.h"
#include "fp16.h"
#include "device.h"
#include "tensor_core.h"
#include <cctype>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <type_traits>
#include <vector>

namespace emu {

// ---------------------------------------------------------------------------------------------------------------------
// operands of an asm statement

// One operand: its constraint, and the variable (outputs) or its value (inputs). An Op without mode ends the list.
struct Op {
    char mode = 0;       // '=' written, '+' read and written, 'i' read only
    char constraint = 0; // 'r' 32-bit integer, 'l' 64-bit integer or pointer, 'f' float, 'n' constant
    bool fits = false;   // the C++ type is one that nvcc takes for the constraint
    void* variable = nullptr;
    uint64_t value = 0;
};

template <class T>
EMU_FAST constexpr bool constraint_fits(char constraint) {
    constexpr bool integer = std::is_integral_v<T> || std::is_enum_v<T> || std::is_pointer_v<T>;
    switch (constraint) {
    case 'r': return integer && sizeof(T) == 4;
    case 'l': return integer && sizeof(T) == 8;
    case 'f': return std::is_same_v<T, float>;
    case 'n': return std::is_integral_v<T> || std::is_enum_v<T>;
    default: return false;
    }
}

template <class T>
EMU_FAST Op out(const char* constraint, T& x) {
    Op op;
    op.mode = constraint[0];
    op.constraint = constraint[1];
    op.fits = constraint_fits<T>(op.constraint);
    op.variable = (void*)&x;
    return op;
}

template <class T>
EMU_FAST Op in(const char* constraint, T x) {
    static_assert(sizeof(T) <= sizeof(uint64_t), "an asm operand is at most 64 bits wide");
    Op op;
    op.mode = 'i';
    op.constraint = constraint[0];
    op.fits = constraint_fits<T>(op.constraint);
    memcpy(&op.value, &x, sizeof x);
    return op;
}

// ---------------------------------------------------------------------------------------------------------------------
// instructions

struct PtxThread;
typedef void (*PtxThreadFunction)(const PtxThread& thread);

// `operands` is their shape: {..} a vector, [.] an address, one letter for each register's constraint; a leading '='
// says that the first operand is written. Each thread calls `run`, if any; then its warp meets for run_warp.
struct PtxFormat {
    const char* opcode;
    const char* operands;
    PtxThreadFunction run;
    WarpOp run_warp;
    int variant; // a further argument of the functions
    int target;  // the compute capability from which on GPUs have the instruction ("Target ISA Notes")
};

struct PtxArgument {
    int index; // of the asm statement's operand; -1: a literal in the text
    uint64_t literal;
};

constexpr unsigned MAX_PTX_ARGUMENTS = 20;

struct PtxInstruction {
    std::string text; // for messages
    std::string opcode;
    std::string marks; // the operands' punctuation, with '%' for each argument: "{%%%%} [%]"
    PtxArgument arguments[MAX_PTX_ARGUMENTS];
    unsigned count = 0; // of the arguments
    const PtxFormat* format = nullptr;
};

// One thread at one instruction: its registers by position in the instruction's text.
struct PtxThread {
    const PtxInstruction* instruction;
    const Op* ops;
    void* pc; // for note_access()

    EMU_FAST uint64_t get(size_t k) const {
        const PtxArgument& a = instruction->arguments[k];
        if (a.index < 0) { return a.literal; }
        const Op& op = ops[a.index];
        if (op.mode == 'i') { return op.value; }
        if (op.constraint == 'l') { return *(const uint64_t*)op.variable; }
        return *(const uint32_t*)op.variable;
    }
    EMU_FAST uint32_t get32(size_t k) const { return (uint32_t)get(k); }
    EMU_FAST void set32(size_t k, uint32_t bits) const {
        memcpy(ops[instruction->arguments[k].index].variable, &bits, sizeof bits);
    }
    EMU_FAST void set_float(size_t k, float x) const {
        memcpy(ops[instruction->arguments[k].index].variable, &x, sizeof x);
    }
    [[noreturn]] void fail(const char* what) const {
        die("%s: %s: %s", where(*cur).c_str(), instruction->text.c_str(), what);
    }
    // Returns the `n` bytes at a 32-bit shared address.
    EMU_FAST char* shared(size_t k, size_t n) const {
        char* p = from_shared(get32(k));
        if ((size_t)p % n) { fail("the shared address is not aligned"); }
        check_shared(p, n, instruction->text.c_str());
        return p;
    }
};

// The 32 threads of a warp-wide instruction: the scheduler has seen to it that they are all there.
EMU_FAST inline const PtxThread* const* whole_warp(void** lane) { return (const PtxThread* const*)lane; }

// ---------------------------------------------------------------------------------------------------------------------
// mma: D (16,8) = A (16,K) B (K,8) + C. Element i of lane l's fragment has its place from g = groupID = l / 4 and
// t = threadID_in_group = l % 4 by the formulas of "Matrix Fragments for mma.m16n8k16 with floating point type"; those
// of m16n8k8 are the same with fewer elements. Registers of A and B hold two elements each, the lower half first.

struct Place {
    int row, col;
};

EMU_FAST inline Place place_a(int g, int t, int i) {
    return {i & 2 ? g + 8 : g, 2 * t + (i & 1) + (i >= 4 ? 8 : 0)};
}
EMU_FAST inline Place place_b(int g, int t, int i) { return {2 * t + (i & 1) + (i >= 2 ? 8 : 0), g}; }
EMU_FAST inline Place place_c(int g, int t, int i) { return {i >= 2 ? g + 8 : g, 2 * t + (i & 1)}; }

EMU_FAST inline float float_of_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

enum Number { BF16, FP16 };

template <Number TYPE> EMU_FAST float number_value(uint32_t bits) {
    return TYPE == BF16 ? bf16_value((uint16_t)bits) : fp16_value((uint16_t)bits);
}

typedef float MmaRow __attribute__((vector_size(8 * sizeof(float))));

template <Number TYPE, int K>
EMU_FAST void mma(void** lane, unsigned) {
    if (audits) { return; } // needs no sums (audit.h)
    const PtxThread* const* warp = whole_warp(lane);
    constexpr int COUNT_A = 16 * K / 32, COUNT_B = K * 8 / 32, COUNT_C = 4;
    constexpr int FIRST_A = COUNT_C; // the arguments are D, A, B, C
    constexpr int FIRST_B = FIRST_A + COUNT_A / 2;
    constexpr int FIRST_C = FIRST_B + COUNT_B / 2;
    float a[16][K];
    MmaRow b[K], c[16];
    for (int l = 0; l < 32; l++) {
        const int g = l / 4, t = l % 4;
        for (int i = 0; i < COUNT_A; i += 2) { // two neighbours of a row
            const Place p = place_a(g, t, i);
            const uint32_t pair = warp[l]->get32(FIRST_A + i / 2);
            a[p.row][p.col] = number_value<TYPE>(pair & 0xffff);
            a[p.row][p.col + 1] = number_value<TYPE>(pair >> 16);
        }
        for (int i = 0; i < COUNT_B; i += 2) { // of a column
            const Place p = place_b(g, t, i);
            const uint32_t pair = warp[l]->get32(FIRST_B + i / 2);
            b[p.row][p.col] = number_value<TYPE>(pair & 0xffff);
            b[p.row + 1][p.col] = number_value<TYPE>(pair >> 16);
        }
        for (int i = 0; i < COUNT_C; i++) {
            const Place p = place_c(g, t, i);
            c[p.row][p.col] = float_of_bits(warp[l]->get32(FIRST_C + i));
        }
    }
    constexpr int GROUP = TENSOR_CORE_GROUP_BYTES / 2;
    const bool as_tensor_cores = sums_as_tensor_cores();
    for (int row = 0; row < 16; row++) {
        MmaRow sum = c[row];
        for (int k = 0; k < K && !as_tensor_cores; k++) { sum += a[row][k] * b[k]; }
        for (int i = 0; i < 8 * K && as_tensor_cores; i += GROUP) { // of column i / K, from row i % K on
            const float* const column = (const float*)&b[i % K] + i / K;
            sum[i / K] = tensor_core_add(sum[i / K], &a[row][i % K], 1, column, 8, GROUP, TENSOR_CORE_BITS);
        }
        c[row] = sum;
    }
    for (int l = 0; l < 32; l++) {
        for (int i = 0; i < COUNT_C; i++) {
            const Place p = place_c(l / 4, l % 4, i);
            warp[l]->set_float(i, c[p.row][p.col]);
        }
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// ldmatrix.x4: row r of matrix i lies at the address that lane 8 * i + r gives. Lane l gets of each matrix the elements
// 2 * (l % 4) and the next of row l / 4; with .trans, of the transposed matrix ("Warp-level matrix load instruction").

enum { LDMATRIX, LDMATRIX_TRANS }; // PtxFormat::variant
constexpr int MATRICES = 4;

EMU_FAST inline void ldmatrix(void** lane, unsigned) {
    const PtxThread* const* warp = whole_warp(lane);
    const bool trans = warp[0]->instruction->format->variant == LDMATRIX_TRANS;
    for (int i = 0; i < MATRICES; i++) {
        uint16_t m[8][8];
        for (int row = 0; row < 8; row++) {
            memcpy(m[row], from_shared(warp[8 * i + row]->get32(MATRICES)), sizeof m[row]);
        }
        for (int l = 0; l < 32; l++) {
            const int row = l / 4, col = 2 * (l % 4);
            const uint32_t low = trans ? m[col][row] : m[row][col];
            const uint32_t high = trans ? m[col + 1][row] : m[row][col + 1];
            warp[l]->set32(i, low | high << 16);
        }
    }
}

// Run by each thread before the warp meets.
EMU_FAST inline void ldmatrix_thread(const PtxThread& thread) {
    note_access(thread.shared(MATRICES, 16), 16, false, thread.pc);
}

// ---------------------------------------------------------------------------------------------------------------------
// cp.async: a copy that is only promised until it is waited for ("Non-bulk copy"). Until then its target is poisoned.
// cur->cp is the thread's queue of promises; an entry without target ends a group.

enum { CP_ASYNC_CA, CP_ASYNC_CG }; // PtxFormat::variant

EMU_FAST inline void cp_async(const PtxThread& thread) {
    const size_t size = thread.get(2), source_size = thread.get32(3);
    const bool cg = thread.instruction->format->variant == CP_ASYNC_CG;
    if (size != 16 && (cg || (size != 4 && size != 8))) {
        thread.fail(cg ? ".cg copies 16 bytes" : ".ca copies 4, 8 or 16 bytes");
    }
    if (source_size > size) { thread.fail("src-size is larger than cp-size"); }
    char* target = thread.shared(0, size);
    const char* source = (const char*)thread.get(1);
    if ((size_t)source % size) { thread.fail("the global address is not aligned to the size"); }
    if (source_size) {
        check_range(source, source_size, "cp.async source");
        note_access(source, source_size, false, thread.pc);
    }
    note_access(target, size, true, thread.pc);
    memset(target, 0xff, size);
    cur->cp->push_back({target, source, (unsigned)source_size, (unsigned)(size - source_size)});
}

// Carries out the oldest `count` entries of the queue.
EMU_FAST inline void cp_async_complete(const PtxThread& thread, size_t count) {
    auto& queue = *cur->cp;
    for (size_t i = 0; i < count; i++) {
        const auto& copy = queue[i];
        if (!copy.dst) { continue; }
        memcpy(copy.dst, copy.src, copy.n);
        memset(copy.dst + copy.n, 0, copy.zero);
        note_arrival(copy.dst, copy.n + copy.zero, thread.pc);
    }
    queue.erase(queue.begin(), queue.begin() + (ptrdiff_t)count);
}

// Waits until at most the N newest groups are pending. Empty groups count, but are complete as soon as they are the
// oldest: none is left at the queue's front, so that a queue is empty exactly if no copy is pending.
inline void cp_async_wait_group(const PtxThread& thread) {
    const auto& queue = *cur->cp;
    const size_t keep = thread.get(0);
    size_t groups = 0, count = 0;
    for (const auto& copy : queue) { groups += !copy.dst; }
    for (; groups > keep; count++) { groups -= !queue[count].dst; }
    while (count < queue.size() && !queue[count].dst) { count++; }
    cp_async_complete(thread, count);
}

inline void cp_async_commit(const PtxThread&) {
    if (!cur->cp->empty()) { cur->cp->push_back({nullptr, nullptr, 0, 0}); }
}

// ex2.approx.ftz.f32: 2^x; subnormal arguments and results become 0 ("Floating Point Instructions: ex2"). Its
// relative error is up to 2^-22.
EMU_FAST inline void ex2_ftz(const PtxThread& thread) {
    const auto flushed = [](float x) { return std::fabs(x) < FLT_MIN ? std::copysign(0.0f, x) : x; };
    const float x = flushed(float_of_bits(thread.get32(1)));
    thread.set_float(0, flushed(approximate(x, std::exp2(x), 2)));
}

// ---------------------------------------------------------------------------------------------------------------------
// the table, and the statements that are looked up in it

inline const PtxFormat PTX_FORMATS[] = {
    {"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "={ffff}{rrrr}{rr}{ffff}", nullptr, mma<BF16, 16>, 0, 80},
    {"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "={ffff}{rrrr}{rr}{ffff}", nullptr, mma<FP16, 16>, 0, 80},
    {"mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", "={ffff}{rr}{r}{ffff}", nullptr, mma<FP16, 8>, 0, 75},
    {"ldmatrix.sync.aligned.m8n8.x4.shared.b16", "={rrrr}[r]", ldmatrix_thread, ldmatrix, LDMATRIX, 75},
    {"ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", "={rrrr}[r]", ldmatrix_thread, ldmatrix, LDMATRIX_TRANS, 75},
    {"cp.async.ca.shared.global", "[r][l]nr", cp_async, nullptr, CP_ASYNC_CA, 80},
    {"cp.async.cg.shared.global", "[r][l]nr", cp_async, nullptr, CP_ASYNC_CG, 80},
    {"cp.async.commit_group", "", cp_async_commit, nullptr, 0, 80},
    {"cp.async.wait_group", "n", cp_async_wait_group, nullptr, 0, 80},
    {"ex2.approx.ftz.f32", "=ff", ex2_ftz, nullptr, 0, 50},
};

// Parses one instruction, without its semicolon. Text that does not parse is kept, and its look-up then fails.
inline PtxInstruction ptx_parse(const std::string& text) {
    PtxInstruction instruction;
    instruction.text = text;
    const size_t space = text.find_first_of(" \t\n");
    instruction.opcode = text.substr(0, space);
    const char* p = space == std::string::npos ? "" : text.c_str() + space;
    while (*p) {
        const bool operand = *p == '%';
        if (operand) { p++; }
        char* end;
        const uint64_t number = strtoull(p, &end, 0);
        if (end != p && isdigit((unsigned char)*p)) {
            if (instruction.count == MAX_PTX_ARGUMENTS) { die("PTX with too many operands: %s", text.c_str()); }
            instruction.arguments[instruction.count++] = {operand ? (int)number : -1, number};
            instruction.marks += '%';
            p = end;
            continue;
        }
        if (!isspace((unsigned char)*p) && *p != ',') { instruction.marks += *p; }
        p += *p != 0;
    }
    return instruction;
}

// Finds the instruction's format and compares it with the constraints of the statement's `count` operands.
inline void ptx_check(PtxInstruction* instruction, const Op* ops, int count) {
    const char* text = instruction->text.c_str();
    std::string shape;
    size_t next = 0;
    for (char mark : instruction->marks) {
        if (mark != '%') {
            shape += mark;
            continue;
        }
        const int index = instruction->arguments[next++].index;
        if (index >= count) { die("%s: %s: there is no operand %%%d", S->name, text, index); }
        shape += index < 0 ? 'n' : ops[index].constraint;
    }
    for (const PtxFormat& format : PTX_FORMATS) {
        if (instruction->opcode == format.opcode) { instruction->format = &format; }
    }
    if (!instruction->format) { die("%s: PTX instruction not emulated: %s", S->name, text); }
    const char* operands = instruction->format->operands;
    const char* expected = operands + (operands[0] == '=');
    if (shape != expected) {
        die("%s: %s: its operands are %s, the statement gives %s", S->name, text, *expected ? expected : "none",
            shape.empty() ? "none" : shape.c_str());
    }
    if (instruction->format->target > target_capability()) {
        die("%s: %s: needs sm_%d, and the device is sm_%d", S->name, text, instruction->format->target,
            target_capability());
    }
    const size_t written = operands[0] != '=' ? 0 : operands[1] == '{' ? strcspn(operands, "}") - 2 : 1;
    for (size_t k = 0; k < instruction->count; k++) {
        const int index = instruction->arguments[k].index;
        if (index < 0) { continue; }
        const Op& op = ops[index];
        const bool write = k < written;
        if (op.mode == (write ? 'i' : '=')) {
            die("%s: %s: operand %%%d is %s", S->name, text, index,
                write ? "written, but an input" : "read, but \"=\"");
        }
    }
}

class Ptx {
public:
    explicit Ptx(const char* text) {
        std::string all(text);
        for (size_t begin = 0; begin < all.size();) {
            size_t end = all.find(';', begin);
            if (end == std::string::npos) { end = all.size(); }
            const size_t first = all.find_first_not_of(" \t\n", begin);
            if (first < end) { program.push_back(ptx_parse(all.substr(first, end - first))); }
            begin = end + 1;
        }
        this->begin = program.data();
        this->end = this->begin + program.size();
    }

    EMU_FAST __attribute__((noinline)) void run(const Op* ops, CallSite at = {__builtin_FILE(), __builtin_LINE()}) {
        void* pc = __builtin_return_address(0);
        EMU_QUIET(1);
        if (!__atomic_load_n(&checked, __ATOMIC_ACQUIRE)) { check(ops); }
        for (const PtxInstruction* instruction = begin; instruction < end; instruction++) {
            const PtxFormat& format = *instruction->format;
            PtxThread thread{instruction, ops, pc};
            EMU_QUIET(1); // a wait ends it
            if (format.run) { format.run(thread); }
            if (format.run_warp) { wait(WARP, ~0u, format.run_warp, &thread, at); }
        }
        EMU_QUIET(0);
    }

private:
    void check(const Op* ops) {
        static std::mutex mutex;
        std::lock_guard<std::mutex> lock(mutex);
        int count = 0;
        for (; ops[count].mode; count++) {
            if (!ops[count].fits) {
                die("%s: asm operand %%%d: the type does not fit constraint \"%c\" (\"r\": 32-bit integer, \"l\": "
                    "64-bit integer or pointer, \"f\": float, \"n\": constant)", S->name, count, ops[count].constraint);
            }
        }
        for (PtxInstruction& instruction : program) { ptx_check(&instruction, ops, count); }
        __atomic_store_n(&checked, true, __ATOMIC_RELEASE);
    }

    std::vector<PtxInstruction> program;
    const PtxInstruction *begin, *end; // of the program
    bool checked = false;
};

} // namespace emu
