// Any bytes as a token shard: shard_verify accepts or refuses them, and a shard that it accepts can be read.
//     clang -std=c11 -D_GNU_SOURCE -g -O1 -fsanitize=fuzzer,address,undefined test/fuzz/fuzz_shard.c llmc/base/base.c
//           llmc/data/shard.c -o fuzz_shard -lm
#include "llmc/data/shard.h"
#include <sys/mman.h>

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

// Most inputs get the right magic number and size in the header: without them only the first check would run.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    char path[64];
    Error err;
    int fd = memfd_create("shard", 0);
    if (fd < 0 || (size > 0 && write(fd, data, size) != (ssize_t)size)) { abort(); }
    if (size > 0 && data[0] % 4 != 0 && size >= SHARD_HEADER_BYTES) {
        int32_t header[3] = {SHARD_MAGIC, SHARD_VERSION, (int32_t)((size - SHARD_HEADER_BYTES) / 2)};
        if (pwrite(fd, header, sizeof header, 0) != sizeof header) { abort(); }
    }
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    size_t num_tokens = 0;
    Shard s;
    int last;
    if (shard_verify(path, 50257, &num_tokens, &err) && num_tokens > 0) {
        if (!shard_open(&s, path, &err) || !shard_read(&s, num_tokens - 1, 1, &last, &err)) { abort(); }
        if (last >= 50257) { abort(); }
        shard_close(&s);
    }
    close(fd);
    return 0;
}
