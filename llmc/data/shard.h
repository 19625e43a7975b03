// Token shards: files of token ids in llm.c's format, read in pieces and written atomically.
//
//   bytes 0..1023   256 int32: 20240520, version 1, number of tokens, zeros
//   bytes 1024..    the tokens, uint16 each, and nothing behind them
//
// All integers are little-endian, as are the processors that this program runs on.
// Shards are read by pread, not mapped: a file that gets cut short meanwhile is then an error and not a SIGBUS.
#pragma once
#include "../files/sums.h"

enum { SHARD_MAGIC = 20240520, SHARD_VERSION = 1, SHARD_HEADER_INTS = 256, SHARD_HEADER_BYTES = 1024 };

// The header counts tokens in a signed 32-bit integer.
#define SHARD_MAX_TOKENS ((size_t)INT32_MAX)

// A shard open for reading. Several threads may read from one.
typedef struct {
    char* path;
    int fd;
    size_t num_tokens;
} Shard;

// Closes the file. Harmless after a failure of shard_open.
void shard_close(Shard* s);

// Opens a shard and checks its header and size; the caller closes it. Nothing is left open on failure.
bool shard_open(Shard* s, const char* path, Error* err);

// Reads the tokens first .. first+count-1. Fails if the shard has fewer, or was cut short since it was opened.
bool shard_read(const Shard* s, size_t first, size_t count, uint16_t* out, Error* err);

// Reads a whole shard and checks that every token is below `vocab_size`. Sets `num_tokens`, which may be NULL.
bool shard_verify(const char* path, int vocab_size, size_t* num_tokens, Error* err);

// Returns the path of the checksums (sums.h) of PREFIX_train_000001.bin and its like: PREFIX.b2sums; NULL for another
// name. The caller frees it.
char* shard_sums_path(const char* path);

// Compares a shard with its checksum. Sets `has_sum` to false if there is none. Fails if it has another one, or a file
// cannot be read.
bool shard_verify_sum(const char* path, bool* has_sum, Error* err);

// ---------------------------------------------------------------------------------------------------------------------
// writing

// A shard that is being written to PATH.tmp and renamed to PATH when it is complete. The file PATH.tmp that a killed
// process left behind is overwritten by the next one.
typedef struct {
    char *path, *temporary;
    FILE* file;
    size_t num_tokens;
    Blake2b hash; // of the tokens
} ShardWriter;

// Gives up: removes the temporary file. Harmless after shard_commit.
void shard_abandon(ShardWriter* w);

// Begins a shard that will be called `path`. If this or one of the two functions below fails, the temporary file is
// removed and the writer closed.
bool shard_create(ShardWriter* w, const char* path, Error* err);

// Appends `count` tokens.
bool shard_write(ShardWriter* w, const uint16_t* tokens, size_t count, Error* err);

// Completes the header, syncs the file, reads it back and renames it to its final name. Writes its checksum to `hex`,
// which may be NULL. If it returns true, the shard survives a power cut.
bool shard_commit(ShardWriter* w, char hex[BLAKE2B_HEX + 1], Error* err);
