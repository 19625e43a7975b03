// Runs a fuzz target without libFuzzer: on seed files, each changed at random in a few places. Finds less than
// libFuzzer, which follows the code that an input reaches, but needs only the sanitizers of any compiler, and always
// tries the same inputs.
// usage: mutate_TARGET COUNT SEED...     COUNT inputs; seeds of more than 64 KiB are left out
#include "llmc/base/file.h"
#include "test/fuzz/input.h"
#include <sanitizer/common_interface_defs.h>

enum { MAX_SEED = 1 << 16, MAX_GROWTH = 64, MAX_CHANGES = 8 };

static uint64_t state;
static size_t input; // number of the input that runs

static size_t random_below(size_t n) { return n ? mix64(state++) % n : 0; }

static void say_input(void) { fprintf(stderr, "input %zu\n", input); }

// Changes the data in one place; returns the new size, at most `room`.
static size_t change(uint8_t* data, size_t size, size_t room) {
    static const uint8_t odd[] = {0, 1, 0x7f, 0x80, 0xff, '"', '{', '\n'};
    const size_t at = random_below(size), n = 1 + random_below(8);
    switch (random_below(6)) {
    case 0: // a bit
        if (size) { data[at] ^= (uint8_t)(1u << random_below(8)); }
        return size;
    case 1: // a byte that is often a limit
        if (size) { data[at] = odd[random_below(sizeof odd)]; }
        return size;
    case 2: // some random bytes
        for (size_t i = at; i < size && i < at + n; i++) { data[i] = (uint8_t)random_below(256); }
        return size;
    case 3: // an insertion
        if (size + n > room) { return size; }
        memmove(data + at + n, data + at, size - at);
        for (size_t i = at; i < at + n; i++) { data[i] = (uint8_t)random_below(256); }
        return size + n;
    case 4: // a deletion
        if (at + n > size) { return size; }
        memmove(data + at, data + at + n, size - at - n);
        return size - n;
    default: return random_below(4) ? size : at; // the end
    }
}

int main(int argc, char** argv) {
    static uint8_t data[MAX_SEED + MAX_GROWTH];
    Error err;
    if (argc < 3) { usage_error("usage: %s COUNT SEED...", argv[0]); }
    if (!freopen("/dev/null", "w", stdout)) { fatal("/dev/null: %s", strerror(errno)); }
    __sanitizer_set_death_callback(say_input);
    const size_t count = strtoull(argv[1], NULL, 10), seeds = (size_t)argc - 2;
    for (input = 0; input < count; input++) {
        size_t size;
        char* seed = read_file(argv[2 + input % seeds], &size, &err);
        if (!seed) { fatal("%s", err.text); }
        if (size <= MAX_SEED) {
            state = mix64(input) & ~(uint64_t)0xffff;
            memcpy(data, seed, size);
            for (size_t changes = input < seeds ? 0 : 1 + random_below(MAX_CHANGES); changes > 0; changes--) {
                size = change(data, size, sizeof data);
            }
            LLVMFuzzerTestOneInput(data, size);
        }
        free(seed);
    }
    return 0;
}
