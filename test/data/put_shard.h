// Writes a shard for a test.
#pragma once
#include "llmc/data/shard.h"

static inline void put_shard(const char* path, const uint16_t* tokens, size_t count) {
    Error err;
    ShardWriter w;
    char hex[BLAKE2B_HEX + 1];
    if (!shard_create(&w, path, &err) || !shard_write(&w, tokens, count, &err) || !shard_commit(&w, hex, &err)) {
        fatal("%s", err.text);
    }
}
