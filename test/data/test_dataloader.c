#include "llmc/data/dataloader.h"
#include "llmc/base/rng.h"
#include "test/data/put_shard.h"
#include "test/test.h"
#include <sys/resource.h>

enum { V = 512, SEED = 1337 };

// ---------------------------------------------------------------------------------------------------------------------
// shards to read

// The token at position i of shard number `shard`: every window of these tests is different from every other.
static uint16_t token_at(int shard, size_t i) { return (uint16_t)(rng_u64((uint64_t)shard, RNG_TEST, i) % V); }

static char* shard_name(const char* folder, int shard) {
    return format("%s/%s/part_%03d.bin", test_folder, folder, shard);
}

// Makes a folder of shards with these sizes; returns the pattern that matches them.
static char* make_shards(const char* folder, const size_t* sizes, int count) {
    Error err;
    char* path = format("%s/%s", test_folder, folder);
    if (!make_directories(path, &err)) { fatal("%s", err.text); }
    free(path);
    for (int shard = 0; shard < count; shard++) {
        uint16_t* tokens = (uint16_t*)alloc_or_die(sizes[shard], sizeof *tokens, "tokens");
        for (size_t i = 0; i < sizes[shard]; i++) { tokens[i] = token_at(shard, i); }
        path = shard_name(folder, shard);
        put_shard(path, tokens, sizes[shard]);
        free(path);
        free(tokens);
    }
    return format("%s/%s/part_*.bin", test_folder, folder);
}

static Dataset open_or_die(const char* patterns, int T) {
    Error err;
    Dataset d;
    if (!dataset_open(&d, "--train_data", patterns, HEADER_REQUIRED, T, V, &err)) { fatal("%s", err.text); }
    return d;
}

// Writes two shards, of `count` zeros and of ones, with a 7 at position `at` of one; returns true if dataset_find()
// finds the 7.
static bool is_found(int shard, size_t count, size_t at) {
    Error err;
    uint16_t* tokens = (uint16_t*)alloc_or_die(count, sizeof *tokens, "tokens");
    for (int s = 0; s < 2; s++) {
        for (size_t i = 0; i < count; i++) { tokens[i] = s == shard && i == at ? 7 : (uint16_t)s; }
        put_shard(test_path(s ? "find_1.bin" : "find_0.bin"), tokens, count);
    }
    Dataset d = open_or_die(test_path("find_?.bin"), 16);
    bool found = false;
    if (!dataset_find(&d, 7, &found, &err)) { fatal("%s", err.text); }
    dataset_close(&d);
    free(tokens);
    return found;
}

TEST(a_token_is_looked_for_in_the_first_file_and_at_the_ends_of_others) {
    for (int shard = 0; shard < 2; shard++) {
        EXPECT(!is_found(shard, 100000, 0) && is_found(shard, 100000, 1) && is_found(shard, 100000, 32767));
        EXPECT(is_found(shard, 100000, 32768) == !shard && is_found(shard, 100000, 67231) == !shard);
        EXPECT(is_found(shard, 100000, 67232) && is_found(shard, 100000, 99999));
        EXPECT(is_found(shard, 50000, 32768) && is_found(shard, 50000, 49999)); // the ends overlap
        EXPECT(is_found(shard, 17, 16) && is_found(shard, 17, 1) && !is_found(shard, 17, 0)); // shorter than an end
    }
}

static void expect_no_dataset(const char* patterns, int T, const char* words) {
    Error err;
    Dataset d;
    bool ok = dataset_open(&d, "--train_data", patterns, HEADER_REQUIRED, T, V, &err);
    if (ok || !strstr(err.text, words)) { TEST_FAIL("expected \"%s\", got %s", words, ok ? "a data set" : err.text); }
    if (ok) { dataset_close(&d); }
}

enum { T = 8 };
static const size_t sizes[] = {8 * T + 1, 3 * T, T + 1, 5 * T + T / 2}; // 8, 2, 1 and 5 windows
enum { SHARDS = 4, WINDOWS = 16 };

// Checks a window of the data set above against the shard and position that it must come from.
static void expect_window(uint64_t window, const int* tokens, const int* targets) {
    static const int shard_of[WINDOWS] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 3, 3, 3, 3, 3};
    static const int place_of[WINDOWS] = {0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 0, 0, 1, 2, 3, 4};
    for (size_t t = 0; t < T; t++) {
        size_t i = (size_t)place_of[window] * T + t;
        EXPECT(tokens[t] == token_at(shard_of[window], i));
        EXPECT(targets[t] == token_at(shard_of[window], i + 1));
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// the data set

TEST(windows_lie_within_shards) {
    Error err;
    int tokens[T], targets[T];
    char* pattern = make_shards("windows", sizes, SHARDS);
    Dataset d = open_or_die(pattern, T);
    EXPECT(d.num_files == SHARDS && d.num_windows == WINDOWS);
    EXPECT(d.num_tokens == sizes[0] + sizes[1] + sizes[2] + sizes[3]);
    for (uint64_t w = 0; w < WINDOWS; w++) {
        EXPECT(dataset_read(&d, w, tokens, targets, &err));
        expect_window(w, tokens, targets);
    }
    dataset_close(&d);
    free(pattern);
}

TEST(patterns_are_joined_and_sorted) {
    char* pattern = make_shards("pat terns", sizes, SHARDS); // a folder with a space
    Error err;
    free(pattern);
    char* several = format("%s/pat\\ terns/part_003.bin, %s/pat\\ terns/part_00[012].bin,,%s/pat\\ terns/part_003.*",
                           test_folder, test_folder, test_folder);
    Dataset d;
    if (!dataset_open(&d, "--train_data", several, HEADER_REQUIRED, T, V, &err)) { TEST_FAIL("%s", err.text); return; }
    EXPECT(d.num_files == SHARDS && d.num_windows == WINDOWS);
    for (int i = 0; i < d.num_files; i++) {
        char* path = shard_name("pat terns", i);
        EXPECT(strcmp(d.files[i].path, path) == 0);
        free(path);
    }
    dataset_close(&d);
    free(several);
}

TEST(records_beside_shards_are_passed_over) {
    Error err;
    char *pattern = make_shards("beside", sizes, SHARDS), *all = test_path("beside/*");
    char *record = test_path("beside/part_val.json"), *sums = test_path("beside/part.b2sums");
    Dataset d = open_or_die(pattern, T);
    const uint64_t hash = d.hash;
    dataset_close(&d);
    EXPECT(write_file_atomically(record, "{}", 2, &err) && write_file_atomically(sums, "0", 1, &err));
    d = open_or_die(all, T);
    EXPECT(d.num_files == SHARDS && d.hash == hash);
    dataset_close(&d);
    expect_no_dataset(record, T, "part_val.json: not a token shard: it looks like text; make shards of it");
    free(pattern);
}

TEST(names_what_cannot_be_opened) {
    static const uint16_t few[T] = {0};
    char* pattern = make_shards("refused", sizes, 1);
    expect_no_dataset("", T, "--train_data: no file is given");
    expect_no_dataset(" , ", T, "--train_data: no file is given");
    char* absent = format("%s,%s/absent_*.bin", pattern, test_folder);
    char* words = format("--train_data %s/absent_*.bin: no such file: token shards are made by ./prepare", test_folder);
    expect_no_dataset(absent, T, words);
    free(words);
    expect_no_dataset(pattern, (int)sizes[0], "part_000.bin: 65 tokens are too few for one window of 65");
    expect_no_dataset(test_folder, T, "not a regular file");
    char* path = shard_name("refused", 1);
    put_shard(path, few, T); // T tokens have no last target
    expect_no_dataset(pattern, T, "part_001.bin: 8 tokens are too few for one window of 8");
    put_shard(path, few, 0);
    expect_no_dataset(pattern, T, "part_001.bin: 0 tokens are too few");
    free(path);
    free(absent);
    free(pattern);
}

TEST(hash_tells_data_apart) {
    Error err;
    enum { N = 200000 }; // more than the parts that are hashed
    static uint16_t tokens[N];
    char* pattern = make_shards("hash", sizes, SHARDS);
    char* path = shard_name("hash", 1);
    Dataset d = open_or_die(pattern, T);
    const uint64_t small = d.hash;
    dataset_close(&d);
    for (int i = 0; i < N; i++) { tokens[i] = token_at(9, (size_t)i); }
    put_shard(path, tokens, N);
    uint64_t hashes[8], content[8]; // of all, of the shard
    const size_t changed[4] = {N, 0, N - 1, N - 30000}; // the first: no change
    for (int i = 0; i < 4; i++) {
        if (changed[i] < N) { tokens[changed[i]] ^= 1; }
        put_shard(path, tokens, N);
        d = open_or_die(pattern, T - i); // the hash does not depend on T
        hashes[i] = d.hash;
        content[i] = d.files[1].content;
        dataset_close(&d);
    }
    put_shard(path, tokens, N - 1);
    d = open_or_die(pattern, T);
    hashes[4] = d.hash;
    content[4] = d.files[1].content;
    dataset_close(&d);
    char* renamed = test_path("hash/part_001x.bin"); // in the same place of the order
    EXPECT(rename(path, renamed) == 0);
    d = open_or_die(pattern, T);
    hashes[5] = d.hash;
    content[5] = d.files[1].content;
    dataset_close(&d);
    memset(tokens, 0, sizeof tokens);
    for (int i = 6; i < 8; i++) { // more of the same in the middle
        put_shard(renamed, tokens, (size_t)(N - i));
        d = open_or_die(pattern, T);
        hashes[i] = d.hash;
        content[i] = d.files[1].content;
        dataset_close(&d);
    }
    for (int i = 0; i < 8; i++) {
        EXPECT(hashes[i] != small);
        for (int j = 0; j < i; j++) {
            EXPECT(hashes[i] != hashes[j] && (content[i] == content[j]) == (i == 5 && j == 4)); // only the name changed
        }
    }
    free(pattern);
    pattern = make_shards("hash elsewhere", sizes, SHARDS); // the same data in another folder
    char* escaped = test_path("hash\\ elsewhere/*");
    if (!dataset_open(&d, "--train_data", escaped, HEADER_REQUIRED, T, V, &err)) { TEST_FAIL("%s", err.text); return; }
    EXPECT(d.hash == small);
    dataset_close(&d);
    free(path);
    free(pattern);
}

TEST(names_tokens_outside_the_vocabulary) {
    enum { LONG = 5 << 15, AT = 5 << 14 }; // dataset_open reads 2^15 tokens at each end
    Error err;
    int out[T], targets[T];
    static uint16_t tokens[LONG + 1];
    tokens[2 * T + 3] = V;
    char* pattern = make_shards("vocabulary", sizes, 1);
    char* path = shard_name("vocabulary", 0);
    put_shard(path, tokens, LONG + 1);
    expect_no_dataset(pattern, T, "token 19 is 512, but the vocabulary has 512");
    tokens[2 * T + 3] = V - 1;
    tokens[AT] = V;
    put_shard(path, tokens, LONG + 1);
    Dataset d = open_or_die(pattern, T);
    EXPECT(dataset_read(&d, 2, out, targets, &err) && out[3] == V - 1 && targets[2] == V - 1);
    EXPECT(!dataset_read(&d, AT / T, out, targets, &err) && strstr(err.text, "token 81920 is 512"));
    EXPECT(strstr(err.text, path) && strstr(err.text, "--tokenizer"));
    EXPECT(!dataset_check_file(&d, 0, &err) && strstr(err.text, "token 81920 is 512"));
    dataset_close(&d);
    free(path);
    free(pattern);
}

// Reads all windows of 100 shards, in an order that changes the shard each time, where 32 files can be open.
static void read_with_few_descriptors(const char* pattern) {
    Error err;
    int tokens[T], targets[T];
    struct rlimit limit = {32, 32};
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) { fatal("setrlimit: %s", strerror(errno)); }
    Dataset d = open_or_die(pattern, T);
    for (uint64_t g = 0; g < 2 * d.num_windows; g++) {
        uint64_t window = data_window(g, d.num_windows, DATA_SHUFFLED, SEED);
        if (!dataset_read(&d, window, tokens, targets, &err)) { fatal("%s", err.text); }
        if (tokens[0] != token_at((int)(window / 2), window % 2 * T)) { fatal("window %d is wrong", (int)window); }
    }
    if (d.num_files != 100) { fatal("%d files", d.num_files); }
    dataset_close(&d);
    fatal("all was read");
}

TEST(many_shards_need_few_descriptors) {
    size_t many[100];
    for (int i = 0; i < 100; i++) { many[i] = 2 * T + 1; }
    char* pattern = make_shards("many", many, 100);
    EXPECT_DEATH(EXIT_RUNTIME, "all was read", read_with_few_descriptors(pattern));
    free(pattern);
}

TEST(a_shard_that_changes_is_an_error) {
    Error err;
    int tokens[T], targets[T];
    char* pattern = make_shards("changes", sizes, SHARDS);
    char* path = shard_name("changes", 0);
    Dataset d = open_or_die(pattern, T);
    EXPECT(truncate(path, SHARD_HEADER_BYTES + 20) == 0); // while it is open
    EXPECT(!dataset_read(&d, 1, tokens, targets, &err) && strstr(err.text, path) && strstr(err.text, "cut short"));
    shard_close(&d.open[0].shard); // while it is closed
    d.open[0].file = -1;
    EXPECT(!dataset_read(&d, 1, tokens, targets, &err) && strstr(err.text, path));
    uint16_t others[2 * T + 1] = {0};
    put_shard(path, others, 2 * T + 1);
    for (int again = 0; again < 2; again++) {
        EXPECT(!dataset_read(&d, 1, tokens, targets, &err) && strstr(err.text, "it had 65 tokens when the run began"));
    }
    dataset_close(&d);
    free(path);
    free(pattern);
}

// ---------------------------------------------------------------------------------------------------------------------
// the order

TEST(every_window_once_per_epoch) {
    static const uint64_t counts[] = {1,  2,  3,  4,  5,   7,   8,   9,   16,   17,
                                      63, 64, 65, 100, 255, 256, 257, 1000, 65536, 65537};
    static unsigned char seen[65537];
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        const uint64_t W = counts[c];
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            memset(seen, 0, sizeof seen);
            for (uint64_t place = 0; place < W; place++) {
                uint64_t window = data_window(epoch * W + place, W, DATA_SHUFFLED, SEED);
                if (window >= W || seen[window]++) { TEST_FAIL("%d of %d comes twice", (int)window, (int)W); break; }
                EXPECT(data_window(epoch * W + place, W, DATA_IN_ORDER, SEED) == place);
            }
        }
    }
    const uint64_t large = (1ull << 40) - 3;
    double mean = 0;
    for (uint64_t i = 0; i < 10000; i++) {
        uint64_t window = permute(large - 1 - i, large, SEED);
        EXPECT(window < large);
        mean += (double)window / (double)large / 10000;
    }
    EXPECT_NEAR(mean, 0.5, 0.015);
}

TEST(epochs_and_seeds_differ) {
    enum { W = 1000 };
    int same_epoch = 0, same_seed = 0, fixed = 0;
    for (uint64_t g = 0; g < W; g++) {
        uint64_t window = data_window(g, W, DATA_SHUFFLED, SEED);
        same_epoch += window == data_window(g + W, W, DATA_SHUFFLED, SEED);
        same_seed += window == data_window(g, W, DATA_SHUFFLED, SEED + 1);
        fixed += window == g;
    }
    EXPECT(same_epoch < 8 && same_seed < 8 && fixed < 8); // each Poisson with mean 1: P(>= 8) = 1e-5
}

// Over many epochs each window comes equally often at each place; and for W = 4 so does each of the 24 orders.
TEST(orders_are_uniform) {
    enum { EPOCHS = 24000 };
    static const uint64_t counts[] = {2, 3, 5, 6, 11, 16};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        const uint64_t W = counts[c];
        double expected = (double)EPOCHS / (double)W, chi2 = 0;
        static int at[16][16];
        memset(at, 0, sizeof at);
        for (uint64_t g = 0; g < EPOCHS * W; g++) { at[g % W][data_window(g, W, DATA_SHUFFLED, SEED)]++; }
        for (uint64_t i = 0; i < W * W; i++) { chi2 += pow(at[i / W][i % W] - expected, 2) / expected; }
        double freedom = (double)((W - 1) * (W - 1)); // 5 standard deviations, and the skew of small ones
        if (chi2 > freedom + 5 * sqrt(2 * freedom) + 10) { TEST_FAIL("W = %d: chi2 = %g", (int)W, chi2); }
    }
    int orders[256] = {0}, different = 0;
    double chi2 = 0;
    for (uint64_t e = 0; e < EPOCHS; e++) {
        int code = 0;
        for (uint64_t i = 0; i < 4; i++) { code = code * 4 + (int)data_window(e * 4 + i, 4, DATA_SHUFFLED, SEED); }
        orders[code]++;
    }
    for (int code = 0; code < 256; code++) {
        if (orders[code] == 0) { continue; } // not a permutation
        chi2 += pow(orders[code] - EPOCHS / 24.0, 2) / (EPOCHS / 24.0);
        different++;
    }
    EXPECT(different == 24);
    EXPECT(chi2 < 23 + 5 * sqrt(2 * 23.0) + 10);
}

TEST(neighbours_are_scattered) {
    enum { W = 10000 };
    double displacement = 0, step = 0, product = 0;
    for (uint64_t i = 0; i < W; i++) {
        double x = (double)data_window(i, W, DATA_SHUFFLED, SEED) / W;
        double next = (double)data_window((i + 1) % W, W, DATA_SHUFFLED, SEED) / W;
        displacement += fabs(x - (double)i / W) / W;
        step += fabs(next - x) / W;
        product += (x - 0.5) * (next - 0.5) / W;
    }
    EXPECT_NEAR(displacement, 1.0 / 3, 0.015); // standard deviation 0.0024
    EXPECT_NEAR(step, 1.0 / 3, 0.015);
    EXPECT_NEAR(product, 0, 0.005);            // 0.0008
}

// ---------------------------------------------------------------------------------------------------------------------
// the loader

typedef struct {
    Dataset data;
    DataLoader loader;
    int* memory;
} Opened;

static void open_loader_without(Opened* o, const char* pattern, DataOrder order, const SkipWindows* skip,
                                int max_rows) {
    o->data = open_or_die(pattern, T);
    o->memory = (int*)alloc_or_die(dataloader_ints(max_rows, T), sizeof *o->memory, "batches");
    dataloader_open(&o->loader, &o->data, order, SEED, skip, max_rows, o->memory);
}

static void open_loader(Opened* o, const char* pattern, DataOrder order, int max_rows) {
    open_loader_without(o, pattern, order, NULL, max_rows);
}

static void close_loader(Opened* o) {
    dataloader_close(&o->loader);
    dataset_close(&o->data);
    free(o->memory);
}

// order (n) sorts tokens stably.
static void expect_sorted(const int* order, const int* tokens, size_t n) {
    int* seen = (int*)alloc_or_die(n, sizeof *seen, "positions");
    for (size_t i = 0; i < n; i++) {
        if (order[i] < 0 || (size_t)order[i] >= n || seen[order[i]]++) { TEST_FAIL("not a permutation"); break; }
        if (i == 0) { continue; }
        const int a = tokens[order[i - 1]], b = tokens[order[i]];
        EXPECT(a < b || (a == b && order[i - 1] < order[i]));
    }
    free(seen);
}

TEST(sorts_stably) {
    enum { N = 3000, VOCAB = 50 };
    static int tokens[N], order[N], counts[VOCAB + 1];
    for (size_t n = 1; n <= N; n = n * 3 + 1) {
        for (size_t i = 0; i < n; i++) { tokens[i] = (int)(rng_u64(SEED, RNG_TEST, i) % VOCAB); }
        tokens[0] = VOCAB - 1;
        data_sort(order, tokens, n, counts, VOCAB);
        expect_sorted(order, tokens, n);
    }
}

static void expect_batch(const Batch* b, uint64_t first, int rows, DataOrder order) {
    EXPECT(b->first == first && b->rows == rows && b->T == T);
    EXPECT(b->targets == b->tokens + rows * T && b->order == b->targets + rows * T);
    for (int row = 0; row < rows; row++) {
        uint64_t window = data_window(first + (uint64_t)row, WINDOWS, order, SEED);
        expect_window(window, b->tokens + row * T, b->targets + row * T);
    }
    expect_sorted(b->order, b->tokens, (size_t)rows * T);
}

// Window g is the same whoever reads it: `ranks` ranks take turns with batches of `rows`, over an epoch's end, from g0.
TEST(same_windows_for_every_split) {
    char* pattern = make_shards("split", sizes, SHARDS);
    static const int splits[][2] = {{1, 1}, {3, 1}, {5, 2}, {16, 1}, {40, 1}, {7, 3}}; // rows, ranks
    for (size_t s = 0; s < sizeof splits / sizeof *splits; s++) {
        const int rows = splits[s][0], ranks = splits[s][1];
        for (int rank = 0; rank < ranks; rank++) {
            Opened o;
            const DataOrder order = s % 2 ? DATA_IN_ORDER : DATA_SHUFFLED;
            const uint64_t g0 = 7, stride = (uint64_t)(rows * ranks);
            uint64_t g = g0 + (uint64_t)(rank * rows);
            open_loader(&o, pattern, order, rows);
            dataloader_request(&o.loader, g, rows);
            for (; g < g0 + 3 * WINDOWS; g += stride) {
                dataloader_request(&o.loader, g + stride, rows);
                expect_batch(dataloader_wait(&o.loader), g, rows, order);
            }
            close_loader(&o);
        }
    }
    free(pattern);
}

// A batch across windows that are left out has those behind them, whichever rows it begins with.
TEST(windows_that_are_left_out_are_not_read) {
    Opened o;
    Error err;
    SkipWindows skip;
    char* pattern = make_shards("skip", sizes, SHARDS);
    enum { ROWS = 5 };
    EXPECT(skip_windows_parse(&skip, "3-4,6,9-20", &err));
    static const uint64_t want[] = {0, 1, 2, 5, 7, 8, 21, 22, 23, 24};
    open_loader_without(&o, pattern, DATA_SHUFFLED, &skip, ROWS);
    for (uint64_t first = 0; first < 6; first++) {
        dataloader_request(&o.loader, want[first], ROWS);
        const Batch* b = dataloader_wait(&o.loader);
        for (size_t row = 0; row < ROWS; row++) {
            const uint64_t window = data_window(want[first + row], WINDOWS, DATA_SHUFFLED, SEED);
            expect_window(window, b->tokens + row * T, b->targets + row * T);
        }
    }
    close_loader(&o);
    skip_windows_free(&skip);
    free(pattern);
}

// Sizes that change from batch to batch, two asked for ahead; a batch stays as it is until the next one is taken.
TEST(batches_of_changing_size) {
    Opened o;
    enum { N = 200, MOST = 9 };
    char* pattern = make_shards("ramp", sizes, SHARDS);
    uint64_t first[N], g = 0;
    int rows[N];
    open_loader(&o, pattern, DATA_SHUFFLED, MOST);
    for (int i = 0, taken = 0; taken < N; taken++) {
        for (; i < N && dataloader_pending(&o.loader) < LOADER_AHEAD; g += (uint64_t)rows[i++]) {
            first[i] = g;
            rows[i] = 1 + (int)(rng_u64(SEED, RNG_TEST, (uint64_t)i) % MOST);
            dataloader_request(&o.loader, g, rows[i]);
        }
        const Batch* b = dataloader_wait(&o.loader);
        if (i < N) {
            first[i] = g;
            rows[i] = MOST;
            dataloader_request(&o.loader, g, MOST); // the thread may fill it while b is in use
            g += (uint64_t)rows[i++];
            usleep(taken % 8 == 0 ? 200 : 0);
        }
        expect_batch(b, first[taken], rows[taken], DATA_SHUFFLED);
    }
    close_loader(&o);
    free(pattern);
}

TEST(closes_with_batches_outstanding) {
    char* pattern = make_shards("outstanding", sizes, SHARDS);
    for (int asked = 0; asked <= LOADER_AHEAD; asked++) {
        Opened o;
        open_loader(&o, pattern, DATA_SHUFFLED, 16);
        for (int i = 0; i < asked; i++) { dataloader_request(&o.loader, 0, 16); }
        close_loader(&o);
    }
    free(pattern);
}

static void read_damaged(const char* pattern, const char* path) {
    Opened o;
    open_loader(&o, pattern, DATA_IN_ORDER, 4);
    if (truncate(path, SHARD_HEADER_BYTES + 10) != 0) { fatal("truncate: %s", strerror(errno)); }
    dataloader_request(&o.loader, 0, 4); // of another shard: is still delivered
    dataloader_request(&o.loader, 12, 4);
    for (bool failed = false; !failed; usleep(100)) {
        pthread_mutex_lock(&o.loader.mutex);
        failed = o.loader.failed;
        pthread_mutex_unlock(&o.loader.mutex);
    }
    if (dataloader_wait(&o.loader)->first != 0) { fatal("another batch"); }
    fprintf(stderr, "the first is there\n");
    dataloader_wait(&o.loader);
}

TEST(errors_of_the_thread_end_the_program) {
    char* pattern = make_shards("damaged", sizes, SHARDS);
    char* path = shard_name("damaged", 3);
    EXPECT_DEATH(EXIT_RUNTIME, "the first is there\nerror: ", read_damaged(pattern, path));
    free(pattern);
    pattern = make_shards("damaged", sizes, SHARDS);
    EXPECT_DEATH(EXIT_RUNTIME, "part_003.bin: the file was cut short", read_damaged(pattern, path));
    free(path);
    free(pattern);
}

static void request(const char* pattern, int rows, int times) {
    Opened o;
    open_loader(&o, pattern, DATA_IN_ORDER, 4);
    for (int i = 0; i < times; i++) { dataloader_request(&o.loader, 0, rows); }
    if (!times) { dataloader_wait(&o.loader); }
}

TEST(wrong_requests_end_the_program) {
    char* pattern = make_shards("requests", sizes, SHARDS);
    Dataset d = open_or_die(pattern, T);
    DataLoader loader;
    EXPECT_DEATH(EXIT_RUNTIME, "asked for 0 rows, of 4", request(pattern, 0, 1));
    EXPECT_DEATH(EXIT_RUNTIME, "asked for 5 rows, of 4", request(pattern, 5, 1));
    EXPECT_DEATH(EXIT_RUNTIME, "too many batches ahead", request(pattern, 4, LOADER_AHEAD + 1));
    EXPECT_DEATH(EXIT_RUNTIME, "nothing was asked", request(pattern, 4, 0));
    EXPECT_DEATH(EXIT_RUNTIME, "268435456 rows of 8 tokens are more than a batch can hold",
                 dataloader_open(&loader, &d, DATA_IN_ORDER, SEED, NULL, 1 << 28, NULL));
    dataset_close(&d);
    free(pattern);
}

// A signal to the process stays for the main thread, also where that one blocks it: another thread would die of it.
TEST(the_thread_takes_no_signals) {
    Opened o;
    sigset_t one;
    int got = 0;
    char* pattern = make_shards("signals", sizes, SHARDS);
    open_loader(&o, pattern, DATA_IN_ORDER, 4);
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    EXPECT(sigprocmask(SIG_BLOCK, &one, NULL) == 0 && kill(getpid(), SIGUSR1) == 0);
    dataloader_request(&o.loader, 0, 4);
    dataloader_wait(&o.loader);
    EXPECT(sigwait(&one, &got) == 0 && got == SIGUSR1 && sigprocmask(SIG_UNBLOCK, &one, NULL) == 0);
    close_loader(&o);
    free(pattern);
}

TEST_MAIN()
