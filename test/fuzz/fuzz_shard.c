// Any bytes as a token shard: they are refused, or checked and read.
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
    Shard s;
    int last = 0;
    if (!shard_open(&s, path, &err)) { return 0; }
    if (shard_check_all(&s, 50257, &err) && s.num_tokens > 0) {
        if (!shard_read(&s, s.num_tokens - 1, 1, &last, &err) || last >= 50257) { abort(); }
    }
    shard_close(&s);
    return 0;
}
