// Decompresses gzip, zstd and snappy by zlib, libzstd and libsnappy. Each library is optional: make builds in those
// whose headers it finds, and a file that needs a missing one is refused with the name of the package.
//
// Nothing is trusted: input that is damaged or cut short, or whose size differs from the one promised, is an error.
#pragma once
#include "../base/base.h"

typedef enum { CODEC_NONE, CODEC_GZIP, CODEC_ZSTD, CODEC_SNAPPY } Codec;

// Returns the codec of a file that begins with these bytes: CODEC_GZIP, CODEC_ZSTD, or CODEC_NONE for anything else.
Codec codec_of_file(const void* begin, size_t bytes);

// Fails, naming `file` and the missing package, if this program was built without the codec's library.
bool codec_check(Codec codec, const char* file, Error* err);

// Decompresses a whole block of `in_bytes` to exactly `out_bytes`. `file` is for messages.
bool decompress_block(void* out, size_t out_bytes, const void* in, size_t in_bytes, Codec codec, const char* file,
                      Error* err);

// Returns the CRC-32 of gzip and Parquet of a block in `crc`; false if this program was built without zlib.
bool crc32_of(const void* data, size_t bytes, uint32_t* crc);

// ---------------------------------------------------------------------------------------------------------------------
// streams

// Decompresses a gzip or zstd file piece by piece. Both formats allow several compressed files one behind the other.
typedef struct {
    Codec codec;
    void* state;      // of the library
    bool within;      // in a compressed file that has not ended
    const char* file; // for messages
} Decompressor;

// Begins. decompressor_close() frees it; nothing is left to free on failure.
bool decompressor_open(Decompressor* d, Codec codec, const char* file, Error* err);

// Decompresses from *in, which is moved forward, up to in_end; sets *out_bytes, the room in `out`, to the number of
// bytes written. Neither need be used up. At the file's end d->within must be false: else it was cut short.
bool decompressor_run(Decompressor* d, void* out, size_t* out_bytes, const unsigned char** in,
                      const unsigned char* in_end, Error* err);

// Frees the state. Harmless after a failure of decompressor_open(), and for CODEC_NONE.
void decompressor_close(Decompressor* d);
