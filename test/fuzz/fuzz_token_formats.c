// Any bytes as a token file of another program: it is refused, or all of its tokens can be read, and no more.
#include "llmc/data/shard.h"
#include "test/fuzz/input.h"

static void read_all(const char* path, size_t size, TokenHeader header) {
    Error err;
    Shard s;
    if (!shard_open_as(&s, path, header, &err)) { return; }
    if (s.offset + s.num_tokens * (size_t)s.width != size) { abort(); }
    int* tokens = alloc_or_die(s.num_tokens + 1, sizeof *tokens, "tokens");
    tokens[s.num_tokens] = 12345;
    if (!shard_read(&s, 0, s.num_tokens, tokens, &err) || tokens[s.num_tokens] != 12345) { abort(); }
    if (s.num_tokens > 0) {
        int last;
        if (!shard_read(&s, s.num_tokens - 1, 1, &last, &err) || last != tokens[s.num_tokens - 1]) { abort(); }
        if (s.width == 2 && (last < 0 || last > UINT16_MAX)) { abort(); }
    }
    if (shard_read(&s, s.num_tokens, 1, tokens, &err)) { abort(); }
    free(tokens);
    shard_close(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const char* path = input_file(data, size);
    read_all(path, size, HEADER_REQUIRED);
    read_all(path, size, HEADER_OPTIONAL);
    return 0;
}
