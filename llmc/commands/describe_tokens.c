#include "describe_tokens.h"
#include "../data/dataset.h"
#include "../base/json.h"

enum { END_OF_TEXT = 50256, END_OF_BYTES = 256 }; // the last ids of GPT-2's tokenizer, and of --tokenizer bytes

typedef struct {
    uint32_t least, greatest;
    size_t ends, ends_of_bytes; // tokens END_OF_TEXT, END_OF_BYTES
} IdCounts;

static bool count_ids(IdCounts* c, const Shard* s, Error* err) {
    enum { CHUNK = 1 << 15 };
    int tokens[CHUNK];
    *c = (IdCounts){.least = UINT32_MAX};
    for (size_t first = 0; first < s->num_tokens; first += CHUNK) {
        const size_t count = min_size(CHUNK, s->num_tokens - first);
        if (!shard_read(s, first, count, tokens, err)) { return false; }
        for (size_t i = 0; i < count; i++) {
            const uint32_t id = (uint32_t)tokens[i];
            if (id < c->least) { c->least = id; }
            if (id > c->greatest) { c->greatest = id; }
            c->ends += id == END_OF_TEXT;
            c->ends_of_bytes += id == END_OF_BYTES;
        }
    }
    return true;
}

bool describe_tokens(const char* path, TokenHeader header, Error* err) {
    Shard s;
    IdCounts c;
    bool has_sum;
    if (!shard_open_as(&s, path, header, err)) { return false; }
    const bool ok = count_ids(&c, &s, err) && shard_verify_sum(path, &has_sum, err);
    if (ok) {
        print_result("file        %s\n", path);
        printf("format      %s, %d bytes a token\n", s.layout.format, s.layout.width);
        printf("tokens      %zu\n", s.num_tokens);
    }
    if (ok && s.num_tokens > 0) {
        const bool bytes = c.greatest <= END_OF_BYTES;
        printf("ids         %u to %u%s\n", c.least, c.greatest,
               c.greatest > END_OF_TEXT ? ", beyond GPT-2's vocabulary of 50257" : "");
        if (c.greatest <= END_OF_TEXT) {
            printf("end of text %zu times (%d)\n", bytes ? c.ends_of_bytes : c.ends,
                   bytes ? END_OF_BYTES : END_OF_TEXT);
        }
    }
    if (ok) { printf("checksum    %s\n", has_sum ? "right" : "none"); }
    shard_close(&s);
    return ok;
}
