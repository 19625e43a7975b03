#include "llmc/data/dataloader.h"
#include "test/data/put_shard.h"
#include "test/test.h"

enum { T = 8, V = 512 };

// Three shards of 5, 1 and 7 windows; token number i of them all is i, so a window's first token tells which it is.
static const int windows_of[] = {5, 1, 7};
enum { SHARDS = 3, WINDOWS = 13 };

static Dataset open_data(void) {
    Error err;
    Dataset d;
    uint16_t tokens[7 * T + T / 2];
    int first = 0;
    for (int shard = 0; shard < SHARDS; shard++) {
        char* path = format("%s/val_%d.bin", test_folder, shard);
        size_t n = (size_t)windows_of[shard] * T + 1 + (shard == 1 ? T - 2 : 0); // the rest is too short for a window
        for (size_t i = 0; i < n; i++) { tokens[i] = (uint16_t)(first + (int)i); }
        first += windows_of[shard] * T;
        put_shard(path, tokens, n);
        free(path);
    }
    char* pattern = test_path("val_*.bin");
    if (!dataset_open(&d, "--val_data", pattern, HEADER_REQUIRED, T, V, &err)) { fatal("%s", err.text); }
    return d;
}

TEST(max_tokens_becomes_whole_windows) {
    Dataset d = open_data();
    EXPECT(d.num_windows == WINDOWS);
    EXPECT(eval_windows(&d, -1) == WINDOWS);
    EXPECT(eval_windows(&d, 0) == 1);
    EXPECT(eval_windows(&d, 1) == 1);
    EXPECT(eval_windows(&d, 2 * T - 1) == 1);
    EXPECT(eval_windows(&d, 2 * T) == 2);
    EXPECT(eval_windows(&d, WINDOWS * T) == WINDOWS);
    EXPECT(eval_windows(&d, 1LL << 60) == WINDOWS);
    dataset_close(&d);
}

// Takes a pass of every rank and counts the windows.
static void expect_each_once(Dataset* d, long long max_tokens, int rows, int ranks) {
    int seen[WINDOWS] = {0}, batches = 0;
    int* memory = (int*)alloc_or_die(dataloader_ints(rows, T), sizeof *memory, "batches");
    const int expected = (int)eval_windows(d, max_tokens);
    for (int rank = 0; rank < ranks; rank++) {
        EvalLoader e;
        const Batch* b;
        evalloader_open(&e, d, max_tokens, rows, memory);
        evalloader_begin(&e, rank, ranks);
        int own = 0;
        while ((b = evalloader_next(&e))) {
            EXPECT(b->first == (uint64_t)((rank + own++ * ranks) * rows)); // batches in turn
            EXPECT(b->rows == rows || b->first + (uint64_t)b->rows == (uint64_t)expected); // only the last is ragged
            for (int row = 0; row < b->rows; row++) {
                int window = b->tokens[row * T] / T;
                seen[window]++;
                EXPECT((uint64_t)window == b->first + (uint64_t)row);
                for (int t = 0; t < T; t++) {
                    EXPECT(b->tokens[row * T + t] == window * T + t && b->targets[row * T + t] == window * T + t + 1);
                }
            }
        }
        EXPECT(evalloader_next(&e) == NULL);
        batches += own;
        evalloader_close(&e);
    }
    EXPECT(batches == (int)ceil_div((size_t)expected, (size_t)rows));
    for (int w = 0; w < WINDOWS; w++) { EXPECT(seen[w] == (w < expected)); }
    free(memory);
}

TEST(each_window_once_for_any_split) {
    static const long long limits[] = {-1, 0, 6 * T + 3, WINDOWS * T};
    Dataset d = open_data();
    for (int i = 0; i < 4; i++) {
        for (int rows = 1; rows <= 14; rows++) {
            for (int ranks = 1; ranks <= 5; ranks++) { expect_each_once(&d, limits[i], rows, ranks); }
        }
    }
    dataset_close(&d);
}

TEST(passes_can_be_repeated_and_left) {
    Dataset d = open_data();
    EvalLoader e;
    int* memory = (int*)alloc_or_die(dataloader_ints(4, T), sizeof *memory, "batches");
    evalloader_open(&e, &d, -1, 4, memory);
    for (int pass = 0; pass < 12; pass++) {
        const int leave_after = pass % 6; // 4 batches and the end
        evalloader_begin(&e, 0, 1);
        for (int i = 0; i < leave_after; i++) {
            const Batch* b = evalloader_next(&e);
            EXPECT(i == 4 ? b == NULL : b != NULL && b->tokens[0] == i * 4 * T && b->rows == (i == 3 ? 1 : 4));
        }
    }
    evalloader_close(&e);
    free(memory);
    dataset_close(&d);
}

TEST_MAIN()
