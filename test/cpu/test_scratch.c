// The memory that the CPU's operations take beside the tensors of a model, counted where it is mapped, is what
// operations_bytes() says. The plan of a run relies on that (llmc/train/plan.h). The one test of its program: scratch
// that another one left would not be mapped again.
#include "test/cpu/stored.h"
#include "llmc/model/gpt2.h"
#include <sys/syscall.h>

// Bytes that are mapped: of device_alloc(). malloc() and threads' stacks call the C library's own functions.
static size_t mapped;

void* mmap(void* at, size_t bytes, int protection, int flags, int file, off_t offset) {
    __atomic_fetch_add(&mapped, bytes, __ATOMIC_RELAXED);
    return (void*)syscall(SYS_mmap, at, bytes, protection, flags, file, offset);
}

int munmap(void* at, size_t bytes) {
    __atomic_fetch_sub(&mapped, bytes, __ATOMIC_RELAXED);
    return (int)syscall(SYS_munmap, at, bytes);
}

// A head so wide that attention's backward takes more than a matmul. Few enough rows that weights are kept packed.
static const GPT2Config SHAPE = {.max_seq_len = 400, .vocab_size = 150, .padded_vocab_size = 192, .num_layers = 1,
                                 .num_heads = 1, .channels = 256};

// Trains a model for two micro-batches: the second is the first to use packed weights (packed.h). Returns the bytes
// that are mapped then, beside the model, and sets *planned to those of operations_bytes().
static size_t bytes_of_a_step(const Backend* b, size_t* planned) {
    const int T = SHAPE.max_seq_len;
    const size_t before = mapped;
    GPT2 g;
    gpt2_layout(&g, b, &SHAPE, 1, T, KEEP_ALL, 1);
    gpt2_alloc(&g);
    const size_t of_model = mapped - before;
    int* batch = b->host_alloc(3 * (size_t)T * sizeof *batch, "a batch"); // all tokens are 0, so in any order
    for (int t = 0; t < T; t++) { batch[2 * T + t] = t; }
    gpt2_upload(&g, batch, (size_t)T);
    b->params_changed();
    for (int i = 0; i < 2; i++) { gpt2_micro_step(&g, 1, T, 1.0f / (float)T, NULL, NULL); }
    const size_t bytes = mapped - of_model;
    *planned = b->operations_bytes(&g.params_table, true, 1, T, SHAPE.channels, SHAPE.num_heads);
    for (int i = 0; i < 2; i++) { b->params_changed(); } // the second frees what was not used since the first
    b->host_free(batch);
    gpt2_free(&g);
    return bytes;
}

// One thread maps all that is planned, but for the sums of layernorm's backward, for which a matmul's scratch is large
// enough. Of two threads one may get all of attention's long tasks.
TEST(operations_take_the_memory_that_is_planned_for_them) {
    const size_t layernorm = (size_t)256 * 2 * (size_t)SHAPE.channels * sizeof(float); // of its most blocks
    EACH_CPU_BACKEND(b) {
        size_t planned;
        const size_t before = mapped;
        const DeviceOptions one = with_threads(FAST, 1), two = with_threads(FAST, 2);
        b->device_open(&one);
        const size_t of_one = bytes_of_a_step(b, &planned) - before;
        if (of_one != planned - layernorm) { TEST_FAIL("%zu bytes, planned are %zu", of_one, planned - layernorm); }
        b->device_open(&two);
        const size_t of_both = bytes_of_a_step(b, &planned) - before;
        if (of_both > planned) { TEST_FAIL("two threads: %zu bytes, planned are %zu", of_both, planned); }
    }
}

TEST_MAIN()
