// Damages every file of a checkpoint, a shard and a tokenizer: a bit of each byte is flipped, and the file is cut to
// each length. Damage that nothing notices is lost data. Prints `N tried, M lost`. Takes every 23rd byte; with
// the variable `long`, as in `sh scripts/test.sh long`, every bit of every byte.
#include "llmc/data/shard.h"
#include "llmc/tokenizer/tokenizer.h"
#include "llmc/files/checkpoint.h"
#include "test/files/small_save.h"
#include "test/test.h"

// Returns true if damage of the file is noticed, or changes nothing that is used.
typedef bool (*Notices)(void* context);

static int tried, lost;

static void try_damage(const char* path, size_t at, const char* what, Notices notices, void* context) {
    tried++;
    if (notices(context)) { return; }
    if (lost++ < 3) { TEST_FAIL("%s: byte %zu %s: not noticed", path, at, what); }
}

// Damages a file, which is whole again afterwards.
static void damage(const char* path, Notices notices, void* context) {
    Error err;
    size_t size;
    char* bytes = read_file(path, &size, &err);
    const int fd = open(path, O_RDWR);
    if (!bytes || fd < 0) { fatal("%s: %s", path, strerror(errno)); }
    const bool all = getenv("long") && *getenv("long");
    EXPECT(!notices(context)); // it is whole
    for (size_t at = 0; at < size; at += all ? 1 : 23) {
        for (int bit = all ? 0 : (int)(at % 8); bit < 8; bit += all ? 1 : 8) {
            const char flipped = (char)(bytes[at] ^ (1 << bit));
            if (pwrite(fd, &flipped, 1, (off_t)at) != 1) { fatal("%s: %s", path, strerror(errno)); }
            try_damage(path, at, "flipped", notices, context);
        }
        if (pwrite(fd, &bytes[at], 1, (off_t)at) != 1) { fatal("%s: %s", path, strerror(errno)); }
    }
    for (size_t cut = size; cut-- > 0; cut -= min_size(cut, all ? 0 : 22)) { // from the last byte to an empty file
        if (ftruncate(fd, (off_t)cut) != 0) { fatal("%s: %s", path, strerror(errno)); }
        try_damage(path, cut, "and those behind it cut off", notices, context);
    }
    if (pwrite(fd, bytes, size, 0) != (ssize_t)size) { fatal("%s: %s", path, strerror(errno)); }
    EXPECT(!notices(context));
    close(fd);
    free(bytes);
}

static void print_counts(const char* what) {
    printf("%s: %d tried, %d lost\n", what, tried, lost);
    EXPECT(tried > 0 && lost == 0);
    tried = lost = 0;
}

static bool checkpoint_notices(void* folder) {
    Error err;
    json_t* state = checkpoint_verify(folder, &err);
    json_decref(state);
    return !state && !err.is_unknown;
}

TEST(damage_of_a_checkpoint_is_noticed) {
    Model* m = open_model(C);
    fill_weights(m);
    char *out = new_folder(), *folder = save(out, m, 5, 1);
    for (int i = 0; i <= NUM_CHECKPOINT_FILES; i++) {
        char* path = below(folder, i < NUM_CHECKPOINT_FILES ? CHECKPOINT_FILES[i] : CHECKPOINT_SUMS);
        damage(path, checkpoint_notices, folder);
        free(path);
    }
    print_counts("a checkpoint");
    free(folder);
    free(out);
    close_model(m);
}

static bool shard_notices(void* path) {
    Error err;
    bool has_sum;
    return !shard_verify_sum(path, &has_sum, &err) || !has_sum;
}

TEST(damage_of_a_shard_is_noticed) {
    enum { TOKENS = 3000 };
    uint16_t tokens[TOKENS];
    ShardWriter w;
    Error err;
    Sums sums = {.list = NULL};
    char hex[BLAKE2B_HEX + 1], *path = below(test_folder, "s_val_000000.bin"),
         *list = shard_record_path(path, ".b2sums");
    for (int i = 0; i < TOKENS; i++) { tokens[i] = (uint16_t)(i * 7 % 257); }
    EXPECT(shard_create(&w, path, &err) && shard_write(&w, tokens, TOKENS, &err) && shard_commit(&w, hex, &err));
    sums_set(&sums, "s_val_000000.bin", hex);
    EXPECT(sums_save(&sums, list, &err));
    damage(path, shard_notices, path);
    damage(list, shard_notices, path);
    print_counts("a shard");
    sums_free(&sums);
    free(list);
    free(path);
}

// The tokens and the end of text that a run was trained with, and the file that they were read from.
typedef struct {
    const char* path;
    uint64_t hash;
} Trained;

// A change of bytes that are not used is noticed too if the tokenizer then is still the same.
static bool tokenizer_notices(void* context) {
    const Trained* trained = context;
    Error err;
    Tokenizer t;
    size_t size;
    char* file = read_file(trained->path, &size, &err);
    bool is_unused = true; // all bytes but those of the header that have no meaning are as in tokenizer_bytes()
    Tokenizer bytes = tokenizer_bytes();
    const size_t whole = TOKENIZER_HEADER + 2 * 256 + 1 + strlen("<|endoftext|>");
    for (size_t i = 0; i < size; i++) {
        is_unused = is_unused && size == whole && ((i >= 16 && i < TOKENIZER_HEADER) || file[i] == (char)bytes.file[i]);
    }
    const bool is_changed = size != whole || memcmp(file, bytes.file, whole) != 0;
    bool notices = !tokenizer_load(&t, trained->path, &err);
    if (!notices) {
        notices = tokenizer_hash(&t) != trained->hash || (is_changed && is_unused);
        tokenizer_free(&t);
    }
    tokenizer_free(&bytes);
    free(file);
    return notices;
}

TEST(damage_of_a_tokenizer_is_noticed) {
    Tokenizer bytes = tokenizer_bytes();
    char* path = below(test_folder, "tokenizer.bin");
    FILE* f = fopen(path, "wb");
    const size_t size = TOKENIZER_HEADER + 2 * 256 + 1 + strlen("<|endoftext|>");
    EXPECT(f && fwrite(bytes.file, 1, size, f) == size && fclose(f) == 0);
    Trained trained = {path, tokenizer_hash(&bytes)};
    damage(path, tokenizer_notices, &trained);
    print_counts("a tokenizer");
    tokenizer_free(&bytes);
    free(path);
}

TEST_MAIN()
