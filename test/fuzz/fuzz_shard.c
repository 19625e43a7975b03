// Any bytes as a token shard: shard_verify accepts or refuses them, and a shard that it accepts can be read.
#include "llmc/data/shard.h"
#include "test/fuzz/input.h"

// Most inputs get the right magic number and size in the header: without them only the first check would run.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const char* path = input_file(data, size);
    Error err;
    if (size > 0 && data[0] % 4 != 0 && size >= SHARD_HEADER_BYTES) {
        const int32_t header[3] = {SHARD_MAGIC, SHARD_VERSION, (int32_t)((size - SHARD_HEADER_BYTES) / 2)};
        if (pwrite(input_fd(), header, sizeof header, 0) != sizeof header) { abort(); }
    }
    size_t num_tokens = 0;
    Shard s;
    int last;
    if (shard_verify(path, 50257, &num_tokens, &err) && num_tokens > 0) {
        if (!shard_open(&s, path, &err) || !shard_read(&s, num_tokens - 1, 1, &last, &err)) { abort(); }
        if (last >= 50257) { abort(); }
        shard_close(&s);
    }
    return 0;
}
