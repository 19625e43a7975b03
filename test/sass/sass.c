// Reads the machine code of the GPU's kernels and reports, for each kernel: registers, blocks that fit on an SM, the
// instructions of its main loop by pipe, narrow memory accesses, and which share of the tensor cores' peak the loop can
// reach at most. Fails on local memory in a loop, on generic accesses, and where a recorded bound is exceeded.
//
// usage: sass check|record LAUNCHES BOUNDS <DUMP
//   DUMP      output of `cuobjdump -res-usage -sass OBJECT`, names demangled, after a line "type bf16" (or fp16, fp32).
//             Turing's machine code is another one: its types are called fp16-75 and fp32-75
//   LAUNCHES  lines of type, kernel, threads of a block, dynamic shared memory (launches.cu); for other kernels
//             DEFAULT_THREADS and 0
//   BOUNDS    what `record` prints (bounds.txt)
//
// The main loop of a kernel is the shortest one that has all of its tensor instructions; without such instructions the
// longest loop, or the whole kernel if it has no loop. Loops inside are counted once.
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_KERNELS = 4096, MAX_LAUNCHES = 512, MAX_NAME = 160, DEFAULT_THREADS = 256, SLACK_PERCENT = 2 };

// Instructions by the unit that executes them. OTHER: branches, barriers, uniform registers, constants.
enum { TENSOR, FMA, ALU, MUFU, LSU, OTHER, PIPES };

// ---------------------------------------------------------------------------------------------------------------------
// GPUs. Registers, threads, blocks and shared memory of an SM: CUDA Programming Guide, "Technical Specifications per
// Compute Capability". Clocks that a warp's instruction occupies its quarter of an SM: the same guide, "Throughput of
// Native Arithmetic Instructions"; of mma.m16n8k16 in bf16: from the peaks and clocks of the data sheets of A100, A40,
// L40S, H100 SXM, B200 and RTX PRO 6000, as 2048 multiply-adds / (those of an SM in a clock / 4). On 9.0 and 10.0 only
// other instructions (wgmma, tcgen05) reach that peak. 7.5: of mma.m16n8k8 in fp16 with sums in fp32 on a T4, 1024
// multiply-adds; a GeForce takes twice as long. Bytes of shared memory in a clock: NVIDIA's white paper on GA102, which
// names Turing's too.

typedef struct {
    int arch, threads, blocks, shared_kb;
    double tensor, fma, alu; // clocks for an instruction of a warp
    int block_reserved;      // bytes of shared memory that the system takes from each block
    int shared_bytes;        // of shared memory that an SM moves in a clock
} Gpu;

static const Gpu GPUS[] = {
    {75, 1024, 16, 64, 8, 2, 2, 0, 64},       {80, 2048, 32, 164, 8, 2, 2, 1024, 128},
    {86, 1536, 16, 100, 16, 1, 2, 1024, 128}, {89, 1536, 24, 100, 16, 1, 2, 1024, 128},
    {90, 2048, 32, 228, 4, 1, 2, 1024, 128},  {100, 2048, 32, 228, 2, 1, 2, 1024, 128},
    {120, 1536, 24, 100, 16, 1, 2, 1024, 128},
};
enum {
    REGISTERS = 65536,
    REGISTER_UNIT = 256, // a warp's registers are allocated in such units
    MUFU_CLOCKS = 8,
    WAVEFRONT_BYTES = 128, // of the shared memory's banks
    QUARTERS = 4, // of an SM, which share its shared memory
};

static const Gpu* find_gpu(int arch) {
    for (size_t i = 0; i < sizeof GPUS / sizeof *GPUS; i++) {
        if (GPUS[i].arch == arch) { return &GPUS[i]; }
    }
    fprintf(stderr, "error: sm_%d is not in the table of GPUs\n", arch);
    exit(1);
}

// ---------------------------------------------------------------------------------------------------------------------
// kernels

typedef struct {
    unsigned at, target; // target: of a branch, else 0
    bool ends;           // leaves the kernel, whatever the predicates
    char op[32];         // with its suffixes: LDG.E.128
} Instruction;

typedef struct {
    int arch;
    char type[8], name[MAX_NAME];
    int registers, shared;
    Instruction* code;
    int count;
} Kernel;

// Results of a kernel. In all of its code: `narrow`, accesses of less than 128 bits; `local`, accesses to local memory
// that stand in a loop; `generic`, accesses by pointers of which the compiler does not know what memory they point to.
typedef struct {
    int blocks, loop, pipe[PIPES], narrow_global, narrow_shared, local, generic;
    double wavefronts;
} Report;

static Kernel kernels[MAX_KERNELS];
static int kernel_count;

static bool is_op(const char* op, const char* name) {
    const size_t n = strlen(name);
    return strncmp(op, name, n) == 0 && (op[n] == '.' || op[n] == 0);
}
static bool is_one_of(const char* op, const char* names) {
    char name[32];
    for (int n; sscanf(names, "%31s%n", name, &n) == 1; names += n) {
        if (is_op(op, name)) { return true; }
    }
    return false;
}

static int pipe_of(const char* op) {
    if (is_one_of(op, "HMMA IMMA QMMA DMMA")) { return TENSOR; }
    if (is_one_of(op, "FFMA FMUL FADD IMAD HFMA2 HADD2 HMUL2 FFMA2 FMUL2 FADD2")) { return FMA; }
    if (is_one_of(op, "MUFU F2I I2F F2F FRND POPC FLO")) { return MUFU; }
    if (is_one_of(op, "LDG STG LDS STS LDSM LDGSTS LD ST LDL STL ATOM ATOMG ATOMS RED REDG SHFL")) { return LSU; }
    if (op[0] == 'U' || is_one_of(op, "R2UR S2UR S2R CS2R LDC LDCU BRA BSSY BSYNC BAR NOP EXIT RET CALL WARPSYNC "
                                      "BMOV YIELD DEPBAR LDGDEPBAR BREAK ENDCOLLECTIVE ERRBAR MEMBAR")) {
        return OTHER;
    }
    return ALU;
}

// Bytes of one thread's access. LDSM moves 4 bytes for each matrix.
static int access_bytes(const char* op) {
    if (is_op(op, "LDSM")) { return strstr(op, ".4") ? 16 : strstr(op, ".2") ? 8 : 4; }
    return strstr(op, ".128") ? 16 : strstr(op, ".64") ? 8 : strstr(op, ".U8") || strstr(op, ".S8") ? 1
         : strstr(op, ".U16") || strstr(op, ".S16") ? 2 : 4;
}

// Returns true if instructions first .. last are a loop: its last one branches to its first. Code that compilers move
// behind the end of a kernel branches back too; such a range has an exit in it.
static bool is_loop(const Kernel* k, int first, int last) {
    for (int i = first; i <= last; i++) {
        if (k->code[i].ends) { return false; }
    }
    return true;
}

static int index_of(const Kernel* k, unsigned at) {
    int i = 0;
    while (i < k->count && k->code[i].at < at) { i++; }
    return i;
}

static int count_tensor(const Kernel* k, int first, int last) {
    int n = 0;
    for (int i = first; i <= last; i++) { n += pipe_of(k->code[i].op) == TENSOR; }
    return n;
}

// Finds the main loop, and marks instructions that stand in some loop.
static void find_loops(const Kernel* k, int* main_first, int* main_last, bool* in_loop) {
    int most = -1;
    *main_first = 0, *main_last = k->count - 1;
    for (int last = 0; last < k->count; last++) {
        const Instruction* branch = &k->code[last];
        if (!branch->target || branch->target >= branch->at) { continue; }
        const int first = index_of(k, branch->target), length = last - first;
        if (!is_loop(k, first, last)) { continue; }
        for (int i = first; i <= last; i++) { in_loop[i] = true; }
        const int tensor = count_tensor(k, first, last), longest = *main_last - *main_first;
        if (tensor > most || (tensor == most && (tensor ? length < longest : length > longest))) {
            most = tensor, *main_first = first, *main_last = last;
        }
    }
}

static int blocks_per_sm(const Kernel* k, const Gpu* gpu, int threads, int dynamic) {
    const int warps = (threads + 31) / 32;
    const int warp_registers = (k->registers * 32 + REGISTER_UNIT - 1) / REGISTER_UNIT * REGISTER_UNIT;
    // a quarter of the registers belongs to each quarter of the SM, which runs a quarter of the warps
    const int by_registers = REGISTERS / 4 / warp_registers * 4 / warps;
    const int shared = k->shared + dynamic + gpu->block_reserved;
    const int by_shared = !shared ? gpu->blocks : gpu->shared_kb * 1024 / shared;
    int blocks = gpu->threads / (warps * 32);
    if (by_registers < blocks) { blocks = by_registers; }
    if (by_shared < blocks) { blocks = by_shared; }
    return gpu->blocks < blocks ? gpu->blocks : blocks;
}

static void measure(const Kernel* k, int threads, int dynamic, Report* r) {
    bool* in_loop = calloc((size_t)k->count + 1, sizeof *in_loop);
    int first, last;
    memset(r, 0, sizeof *r);
    find_loops(k, &first, &last, in_loop);
    for (int i = 0; i < k->count; i++) {
        const char* op = k->code[i].op;
        const int bytes = access_bytes(op), pipe = pipe_of(op);
        r->local += is_one_of(op, "LDL STL") && in_loop[i];
        r->generic += is_one_of(op, "LD ST ATOM");
        r->narrow_global += is_one_of(op, "LDG STG LDGSTS") && bytes < 16;
        r->narrow_shared += is_one_of(op, "LDS STS LDSM") && bytes < 16;
        if (i < first || i > last || is_op(op, "NOP")) { continue; }
        r->loop++;
        r->pipe[pipe]++;
        if (pipe == LSU) { r->wavefronts += bytes < 4 || is_op(op, "SHFL") ? 1 : bytes / 4; }
    }
    r->blocks = blocks_per_sm(k, find_gpu(k->arch), threads, dynamic);
    free(in_loop);
}

// Share of the tensor cores' peak that the main loop can reach: no unit is busy for longer than its instructions need,
// and one instruction is issued in a clock.
static double static_bound(const Gpu* gpu, const Report* r) {
    const double clocks[] = {r->pipe[TENSOR] * gpu->tensor, r->pipe[FMA] * gpu->fma, r->pipe[ALU] * gpu->alu,
                             r->pipe[MUFU] * MUFU_CLOCKS,
                             r->wavefronts * WAVEFRONT_BYTES / gpu->shared_bytes * QUARTERS, r->loop};
    double longest = 1;
    for (size_t i = 0; i < sizeof clocks / sizeof *clocks; i++) {
        if (clocks[i] > longest) { longest = clocks[i]; }
    }
    return clocks[0] / longest;
}

// ---------------------------------------------------------------------------------------------------------------------
// reading

// "void name<bf16, 64>(arguments)" becomes "name<bf16,64>".
static void shorten_name(char* name, const char* demangled) {
    const char* from = strncmp(demangled, "void ", 5) == 0 ? demangled + 5 : demangled;
    size_t n = 0;
    for (; *from && *from != '(' && *from != '\n' && n + 1 < MAX_NAME; from++) {
        if (*from != ' ') { name[n++] = *from; }
    }
    name[n] = 0;
}

// Returns the kernel of this name; adds it if it is new.
static Kernel* kernel_named(int arch, const char* type, const char* demangled) {
    char name[MAX_NAME];
    shorten_name(name, demangled);
    for (int i = 0; i < kernel_count; i++) {
        Kernel* k = &kernels[i];
        if (k->arch == arch && !strcmp(k->type, type) && !strcmp(k->name, name)) { return k; }
    }
    if (kernel_count == MAX_KERNELS) { fprintf(stderr, "error: more than %d kernels\n", MAX_KERNELS), exit(1); }
    Kernel* k = &kernels[kernel_count++];
    k->arch = arch;
    snprintf(k->type, sizeof k->type, "%s", type);
    snprintf(k->name, sizeof k->name, "%s", name);
    return k;
}

// Reads "/*0120*/ @!P0 BRA 0x80 ;"; other lines are skipped.
static void read_instruction(Kernel* k, const char* line) {
    unsigned at;
    int n = 0, length = 0;
    char op[32];
    if (sscanf(line, " /*%x*/%n", &at, &n) < 1 || !n) { return; }
    const char* p = line + n + strspn(line + n, " {");
    const bool guarded = *p == '@';
    if (guarded) { p += strcspn(p, " "); }
    if (sscanf(p, " %31[A-Z0-9_.]%n", op, &length) < 1) { return; }
    if (k->count % 1024 == 0) { k->code = realloc(k->code, (size_t)(k->count + 1024) * sizeof *k->code); }
    Instruction* x = &k->code[k->count++];
    const char* target = is_op(op, "BRA") ? strstr(p, "0x") : NULL;
    *x = (Instruction){at, target ? (unsigned)strtoul(target, NULL, 16) : 0, !guarded && is_one_of(op, "EXIT RET"), ""};
    snprintf(x->op, sizeof x->op, "%s", op);
}

static void read_dump(FILE* file) {
    char line[4096], type[8] = "?";
    int arch = 0, n;
    Kernel* k = NULL;
    while (fgets(line, sizeof line, file)) {
        sscanf(line, "type %7s", type);
        sscanf(line, "arch = sm_%d", &arch);
        n = 0;
        if (sscanf(line, " Function : %n", &n) == 0 && n) { // of the code
            k = kernel_named(arch, type, line + n);
        } else if (sscanf(line, " Function %n", &n) == 0 && n) { // of the resources
            k = kernel_named(arch, type, line + n);
        } else if (k && strstr(line, " REG:")) {
            sscanf(strstr(line, " REG:"), " REG:%d", &k->registers);
            sscanf(strstr(line, " SHARED:"), " SHARED:%d", &k->shared);
        } else if (k) {
            read_instruction(k, line);
        }
    }
}

typedef struct {
    char type[8], name[MAX_NAME];
    int threads, dynamic;
} Launch;

static void find_launch(const char* path, const Kernel* k, int* threads, int* dynamic) {
    static Launch launches[MAX_LAUNCHES];
    static int count = -1;
    if (count < 0) {
        FILE* file = fopen(path, "r");
        if (!file) { perror(path), exit(1); }
        Launch l;
        count = 0;
        for (int n; (n = fscanf(file, "%7s %159s %d %d", l.type, l.name, &l.threads, &l.dynamic)) != EOF;) {
            if (n < 4 || count == MAX_LAUNCHES) {
                fprintf(stderr, "error: %s: launch %d has not 4 words, or is more than %d\n", path, count + 1,
                        MAX_LAUNCHES);
                exit(1);
            }
            launches[count++] = l;
        }
        fclose(file);
    }
    *threads = DEFAULT_THREADS, *dynamic = 0;
    for (int i = 0; i < count; i++) {
        if (strcmp(launches[i].type, k->type) || strcmp(launches[i].name, k->name)) { continue; }
        *threads = launches[i].threads, *dynamic = launches[i].dynamic;
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// bounds: one line for each kernel, which holds for all GPUs

// A column of bounds.txt. Instructions may exceed theirs by SLACK_PERCENT, since compilers differ.
typedef struct {
    const char* name;
    bool at_least, exact;
} Column;

enum { COLUMNS = 12, LOCAL = 10, GENERIC };
static const Column COLUMN[COLUMNS] = {
    {"blocks", true, true}, {"blk100", true, true}, {"loop", false, false}, {"mma", true, true},
    {"fma", false, false},  {"alu", false, false},     {"mufu", false, true},  {"lsu", false, true},
    {"global", false, true}, {"shared", false, true},  {"local", false, true},   {"generic", false, true},
};

typedef struct {
    char type[8], name[MAX_NAME];
    int value[COLUMNS];
    bool used;
} Bound;

// Sets the columns that this GPU measures; -1: another GPU's. SMs with 100 KB of shared memory have their own column.
static void columns_of(const Kernel* k, const Report* r, int (*value)[COLUMNS]) {
    const bool small = find_gpu(k->arch)->shared_kb == 100;
    const int columns[COLUMNS] = {small ? -1 : r->blocks, small ? r->blocks : -1, r->loop, r->pipe[TENSOR],
                                  r->pipe[FMA], r->pipe[ALU], r->pipe[MUFU], r->pipe[LSU], r->narrow_global,
                                  r->narrow_shared, r->local, r->generic};
    memcpy(*value, columns, sizeof columns);
}

static Bound* find_bound(Bound* bounds, int count, const Kernel* k) {
    for (int i = 0; i < count; i++) {
        if (!strcmp(bounds[i].type, k->type) && !strcmp(bounds[i].name, k->name)) { return &bounds[i]; }
    }
    return NULL;
}

static int read_bounds(Bound* bounds, const char* path) {
    FILE* file = fopen(path, "r");
    char line[512];
    int count = 0;
    if (!file) { perror(path), exit(1); }
    while (count < MAX_KERNELS && fgets(line, sizeof line, file)) {
        Bound* b = &bounds[count];
        int n = 0, c = 0;
        if (line[0] == '#' || sscanf(line, "%7s %159s%n", b->type, b->name, &n) < 2) { continue; }
        for (char* p = line + n; c < COLUMNS && sscanf(p, "%d%n", &b->value[c], &n) == 1; p += n) { c++; }
        if (c < COLUMNS) { fprintf(stderr, "error: %s: not %d numbers: %s", path, COLUMNS, line), exit(1); }
        count++;
    }
    fclose(file);
    return count;
}

// A kernel without bounds must have no local accesses in loops and no generic ones.
static bool keeps_bound(const Kernel* k, const Report* r, const Bound* bound) {
    int value[COLUMNS];
    bool ok = true;
    columns_of(k, r, &value);
    for (int c = 0; c < COLUMNS; c++) {
        const int limit = bound ? bound->value[c] : c < LOCAL ? -1 : 0;
        const int slack = COLUMN[c].exact ? 0 : limit * SLACK_PERCENT / 100;
        if (value[c] < 0 || limit < 0 || (COLUMN[c].at_least ? value[c] >= limit : value[c] <= limit + slack)) {
            continue;
        }
        printf("FAILED  sm_%d %s %s: %s is %d; recorded is at %s %d\n", k->arch, k->type, k->name, COLUMN[c].name,
               value[c], COLUMN[c].at_least ? "least" : "most", limit);
        ok = false;
    }
    return ok;
}

// Widens the kernel's bounds by what another GPU measures.
static void widen(Bound* bound, const Kernel* k, const Report* r) {
    int value[COLUMNS];
    columns_of(k, r, &value);
    for (int c = 0; c < COLUMNS; c++) {
        int* b = &bound->value[c];
        if (*b < 0 || (value[c] >= 0 && (COLUMN[c].at_least ? value[c] < *b : value[c] > *b))) { *b = value[c]; }
    }
}

// Kernels of width 1, and most of attention.cuh's, run only on rows that are not aligned and with --kernels plain.
static bool is_recorded(const Kernel* k) {
    const char* arguments = strchr(k->name, '<');
    if (!arguments) { return strstr(k->name, "softmax") || strstr(k->name, "attention_query"); }
    return strncmp(arguments, "<1,", 3) && strcmp(arguments, "<1>");
}

static void record(const char* launches) {
    static Bound bounds[MAX_KERNELS];
    int count = 0;
    for (int i = 0; i < kernel_count; i++) {
        const Kernel* k = &kernels[i];
        Report r;
        int threads, dynamic;
        if (!is_recorded(k)) { continue; }
        find_launch(launches, k, &threads, &dynamic);
        measure(k, threads, dynamic, &r);
        Bound* bound = find_bound(bounds, count, k);
        if (!bound) {
            bound = &bounds[count++];
            memcpy(bound->type, k->type, sizeof bound->type);
            memcpy(bound->name, k->name, sizeof bound->name);
            columns_of(k, &r, &bound->value);
        }
        widen(bound, k, &r);
    }
    printf("# Printed by `sh test/sass/sass.sh build/release record 75 80 86 89 90 100 120` (nvcc 13.0.88).\n"
           "# At least: blocks on an SM (blk100: of GPUs with 100 KB of shared memory), mma: tensor instructions of\n"
           "# the main loop. At most, over these GPUs: instructions of the main loop, all and by pipe; of the kernel:\n"
           "# global and shared accesses of less than 128 bits, local ones in loops, generic ones. fp16-75: on Turing "
           "alone.\n");
    printf("%-7s %-41s", "#", "kernel");
    for (int c = 0; c < COLUMNS; c++) { printf(" %s", COLUMN[c].name); }
    for (int i = 0; i < count; i++) {
        printf("\n%-7s %-41s", bounds[i].type, bounds[i].name);
        for (int c = 0; c < COLUMNS; c++) { printf(" %*d", (int)strlen(COLUMN[c].name), bounds[i].value[c]); }
    }
    printf("\n");
}

static bool was_read(const char* type) {
    for (int i = 0; i < kernel_count; i++) {
        if (!strcmp(kernels[i].type, type)) { return true; }
    }
    return false;
}

static bool check(const char* launches, const char* path) {
    static Bound bounds[MAX_KERNELS];
    const int count = read_bounds(bounds, path);
    int failed = 0, bounded = 0;
    printf("%-4s %-5s %-44s %4s %6s %5s %6s %4s %4s %4s %4s %6s %6s %5s\n", "GPU", "type", "kernel", "regs", "blocks",
           "loop", "tensor", "fma", "alu", "mufu", "lsu", "global", "shared", "peak");
    for (int i = 0; i < kernel_count; i++) {
        const Kernel* k = &kernels[i];
        Report r;
        int threads, dynamic;
        find_launch(launches, k, &threads, &dynamic);
        measure(k, threads, dynamic, &r);
        Bound* bound = find_bound(bounds, count, k);
        failed += !keeps_bound(k, &r, bound);
        if (bound) {
            bounded++;
            bound->used = true;
            printf("%-4d %-5s %-44s %4d %6d %5d %6d %4d %4d %4d %4d %6d %6d", k->arch, k->type, k->name, k->registers,
                   r.blocks, r.loop, r.pipe[TENSOR], r.pipe[FMA], r.pipe[ALU], r.pipe[MUFU], r.pipe[LSU],
                   r.narrow_global, r.narrow_shared);
            printf(r.pipe[TENSOR] ? " %4.0f%%\n" : "\n", 100 * static_bound(find_gpu(k->arch), &r));
        }
    }
    for (int i = 0; i < count; i++) {
        if (bounds[i].used || !was_read(bounds[i].type)) { continue; }
        printf("FAILED  %s %s has bounds in %s, but no code\n", bounds[i].type, bounds[i].name, path);
        failed++;
    }
    if (!kernel_count) { printf("FAILED  no kernels were read\n"); }
    printf("sass: %d kernels read, %d of them with bounds, %d failed\n", kernel_count, bounded, failed);
    return kernel_count && !failed;
}

int main(int argc, char** argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: sass check|record LAUNCHES BOUNDS <DUMP\n");
        return 2;
    }
    read_dump(stdin);
    if (!strcmp(argv[1], "record")) {
        record(argv[2]);
        return 0;
    }
    return check(argv[2], argv[3]) ? 0 : 1;
}
