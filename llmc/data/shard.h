// Token shards: files of token ids in llm.c's format, read in pieces and written atomically.
//
//   bytes 0..1023   256 int32: 20240520, version 1, number of tokens, zeros
//   bytes 1024..    the tokens, uint16 each, and nothing behind them
//
// Token files of other programs (token_formats.h) are read too.
//
// All integers are little-endian, as are the processors that this program runs on.
// Shards are read by pread, not mapped: a file that gets cut short meanwhile is then an error and not a SIGBUS.
#pragma once
#include "../files/sums.h"
#include "token_formats.h"

enum { SHARD_MAGIC = 20240520, SHARD_VERSION = 1, SHARD_HEADER_INTS = 256, SHARD_HEADER_BYTES = 1024,
       SHARD_BLOCK = 1 << 14 }; // bytes that are read back and summed at a time; chosen

// The header counts tokens in a signed 32-bit integer.
#define SHARD_MAX_TOKENS ((size_t)INT32_MAX)

// A token file open for reading, of any format. Several threads may read from one.
typedef struct {
    char* path;
    int fd;
    TokenLayout layout;
    size_t num_tokens; // as in `layout`
} Shard;

// Closes the file. Harmless after a failure of shard_open.
void shard_close(Shard* s);

// Opens a token file and checks its header and size; the caller closes it. Nothing is left open on failure.
bool shard_open(Shard* s, const char* path, Error* err);

// The same; with HEADER_OPTIONAL a file with no known header is nanoGPT's.
bool shard_open_as(Shard* s, const char* path, TokenHeader header, Error* err);

// Reads the tokens first .. first+count-1. Fails if the file has fewer, or was cut short since it was opened. An id
// beyond INT_MAX becomes negative.
bool shard_read(const Shard* s, size_t first, size_t count, int* out, Error* err);

// Fails unless tokens (count), those from token `first` on of the file `path`, are all below `vocab_size`.
bool shard_check_tokens(const char* path, size_t first, const int* tokens, size_t count, int vocab_size, Error* err);

// Reads all of a file and checks that every token is below `vocab_size`.
bool shard_check_all(const Shard* s, int vocab_size, Error* err);

// The same for a file that is not open. Sets `num_tokens`, which may be NULL.
bool shard_verify(const char* path, int vocab_size, size_t* num_tokens, Error* err);

// Returns the path of what ./prepare left beside PREFIX_train_000001.bin and its like: PREFIX and `ending`, which is
// .b2sums for checksums (sums.h) or .json for the record of its work. NULL for another name. The caller frees it.
char* shard_record_path(const char* path, const char* ending);

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
    uint64_t sum; // hash64() of the tokens so far, block by block, but for those in `block`
    unsigned char block[SHARD_BLOCK];
    size_t filled; // bytes in `block`
} ShardWriter;

// Gives up: removes the temporary file. Harmless after shard_commit.
void shard_abandon(ShardWriter* w);

// Begins a shard that will be called `path`. If this or one of the two functions below fails, the temporary file is
// removed and the writer closed.
bool shard_create(ShardWriter* w, const char* path, Error* err);

// Appends `count` tokens.
bool shard_write(ShardWriter* w, const uint16_t* tokens, size_t count, Error* err);

// Completes the header, syncs the file, reads it back and renames it to its final name. Writes the checksum of what
// was read back to `hex`, which may be NULL. If it returns true, the shard survives a power cut.
bool shard_commit(ShardWriter* w, char hex[BLAKE2B_HEX + 1], Error* err);
