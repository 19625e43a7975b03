// Token shards: files of token ids. Those of several programs are read; those of llm.c are written, atomically.
//
//   begins with                  written by                     tokens
//   int32 20240520, version 1    llm.c, modded-nanogpt, here    uint16 from byte 1024
//   int32 20240801, version 7    llm.c for Llama 3              uint32 from byte 1024
//   "\x93NUMPY"                  NumPy (build-nanogpt)          uint16, uint32 or int32, behind the header
//   nothing                      nanoGPT                        uint16 from byte 0
//
// llm.c's header has 256 int32: the two above, the number of tokens, zeros. Nothing stands behind the tokens. NumPy's
// header: the six bytes above, two bytes of version (1.0, 2.0 or 3.0), its length (uint16; uint32 from 2.0 on), and a
// dict of Python: {'descr': '<u2', 'fortran_order': False, 'shape': (1000,), } with spaces and a newline.
//
// A file says itself which of the first three it is, so one pattern may match several of them. Nothing in nanoGPT's
// says so: any file of even size could be one, and plain text has valid ids only. So it is read only where the user
// asks for it, as --data_format nanogpt, and refused if it is text.
//
// All integers are little-endian, as are the processors that this program runs on.
// Shards are read by pread, not mapped: a file that gets cut short meanwhile is then an error and not a SIGBUS.
#pragma once
#include "../files/sums.h"

enum { SHARD_MAGIC = 20240520, SHARD_VERSION = 1, SHARD_HEADER_INTS = 256, SHARD_HEADER_BYTES = 1024 };

// The header counts tokens in a signed 32-bit integer.
#define SHARD_MAX_TOKENS ((size_t)INT32_MAX)

typedef enum { HEADER_REQUIRED, HEADER_OPTIONAL } TokenHeader;

// A token file open for reading. Several threads may read from one.
typedef struct {
    char* path;
    int fd;
    const char* format; // for messages
    size_t num_tokens, offset;
    int width;          // bytes of a token; 2 are unsigned
} Shard;

// Closes the file. Harmless after a failure of shard_open.
void shard_close(Shard* s);

// Opens a token file and checks its header and size; the caller closes it. Nothing is left open on failure.
bool shard_open(Shard* s, const char* path, Error* err);

// The same; with HEADER_OPTIONAL a file with no known header is nanoGPT's.
bool shard_open_as(Shard* s, const char* path, TokenHeader header, Error* err);

// Finds the tokens of a file of `size` bytes that was just opened: a part of shard_open_as() (token_formats.c). Fails
// if the header is wrong, the size does not fit, or the tokens are stored in a way that is not read.
bool shard_find_tokens(Shard* s, size_t size, TokenHeader header, Error* err);

// Reads the tokens first .. first+count-1. Fails if the file has fewer, or was cut short since it was opened. An id
// beyond INT_MAX becomes negative.
bool shard_read(const Shard* s, size_t first, size_t count, int* out, Error* err);

// Fails unless tokens (count), those from token `first` on of the file `path`, are all below `vocab_size`.
bool shard_check_tokens(const char* path, size_t first, const int* tokens, size_t count, int vocab_size, Error* err);

// Reads all of a file and checks that every token is below `vocab_size`.
bool shard_check_all(const Shard* s, int vocab_size, Error* err);

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
    uint64_t sum; // of the tokens so far
} ShardWriter;

// Gives up: removes the temporary file. Harmless after shard_commit.
void shard_abandon(ShardWriter* w);

// Begins a shard that will be called `path`. If this or one of the functions below fails, the temporary file is removed
// and the writer closed.
bool shard_create(ShardWriter* w, const char* path, Error* err);

// Appends `count` tokens.
bool shard_write(ShardWriter* w, const uint16_t* tokens, size_t count, Error* err);

// Completes the header, syncs the file and reads it back: only its final name is missing then. Writes the checksum of
// what was read back to `hex`.
bool shard_seal(ShardWriter* w, char hex[BLAKE2B_HEX + 1], Error* err);

// Renames the file to its final name; does the above first, if that was not done. If it returns true, the shard
// survives a power cut.
bool shard_commit(ShardWriter* w, char hex[BLAKE2B_HEX + 1], Error* err);
