#include "compression.h"
#ifdef HAS_ZLIB
#include <zlib.h>
#else
#define HAS_ZLIB 0
#endif
#ifdef HAS_ZSTD
#include <zstd.h>
#else
#define HAS_ZSTD 0
#endif
#ifdef HAS_SNAPPY
#include <snappy-c.h>
#else
#define HAS_SNAPPY 0
#endif

Codec codec_of_file(const void* begin, size_t bytes) {
    if (bytes >= 2 && memcmp(begin, "\x1f\x8b", 2) == 0) { return CODEC_GZIP; }
    if (bytes >= 4 && memcmp(begin, "\x28\xb5\x2f\xfd", 4) == 0) { return CODEC_ZSTD; }
    // or a frame that readers skip, with which pzstd's files begin
    const unsigned char* b = begin;
    if (bytes >= 4 && (b[0] & 0xf0) == 0x50 && memcmp(b + 1, "\x2a\x4d\x18", 3) == 0) { return CODEC_ZSTD; }
    return CODEC_NONE;
}

static const struct { const char *name, *package; bool is_built_in; } CODECS[] = {
    [CODEC_NONE] = {"", "", true},
    [CODEC_GZIP] = {"gzip", "zlib1g-dev", HAS_ZLIB},
    [CODEC_ZSTD] = {"zstd", "libzstd-dev", HAS_ZSTD},
    [CODEC_SNAPPY] = {"snappy", "libsnappy-dev", HAS_SNAPPY},
};

bool codec_check(Codec codec, const char* file, Error* err) {
    if (CODECS[codec].is_built_in) { return true; }
    return fail(err, "%s: compressed by %s, which this program was built without: install %s and run make again", file,
                CODECS[codec].name, CODECS[codec].package);
}

static bool damaged(Codec codec, const char* file, const char* how, Error* err) {
    return fail(err, "%s: damaged %s data: %s: download or make it again", file, CODECS[codec].name, how);
}

bool crc32_of(const void* data, size_t bytes, uint32_t* crc) {
#if HAS_ZLIB
    *crc = (uint32_t)crc32_z(0, data, bytes);
    return true;
#else
    (void)data, (void)bytes, (void)crc;
    return false;
#endif
}

// ---------------------------------------------------------------------------------------------------------------------
// streams

void decompressor_close(Decompressor* d) {
#if HAS_ZLIB
    if (d->codec == CODEC_GZIP && d->state) { inflateEnd(d->state); free(d->state); }
#endif
#if HAS_ZSTD
    if (d->codec == CODEC_ZSTD && d->state) { ZSTD_freeDStream(d->state); }
#endif
    memset(d, 0, sizeof *d);
}

bool decompressor_open(Decompressor* d, Codec codec, const char* file, Error* err) {
    memset(d, 0, sizeof *d);
    if (!codec_check(codec, file, err)) { return false; }
    d->codec = codec;
    d->file = file;
#if HAS_ZLIB
    enum { GZIP_OR_ZLIB = 15 + 32 }; // the largest window, and either header
    if (codec == CODEC_GZIP) {
        d->state = alloc_or_die(1, sizeof(z_stream), "zlib");
        if (inflateInit2((z_stream*)d->state, GZIP_OR_ZLIB) != Z_OK) { fatal("%s: out of memory for zlib", file); }
    }
#endif
#if HAS_ZSTD
    if (codec == CODEC_ZSTD) {
        d->state = ZSTD_createDStream();
        if (!d->state) { fatal("%s: out of memory for libzstd", file); }
    }
#endif
    return true;
}

#if HAS_ZLIB
static bool run_gzip(Decompressor* d, void* out, size_t* out_bytes, const unsigned char** in,
                     const unsigned char* in_end, Error* err) {
    enum { PIECE = 1 << 30 }; // zlib counts in 32 bits
    z_stream* z = d->state;
    const size_t room = min_size(*out_bytes, PIECE);
    while (!d->within && *in < in_end && **in == 0) { ++*in; } // padding behind a member, as of tapes
    if (!d->within && *in == in_end) {
        *out_bytes = 0;
        return true;
    }
    z->next_in = (unsigned char*)*in;
    z->avail_in = (unsigned)min_size((size_t)(in_end - *in), PIECE);
    z->next_out = out;
    z->avail_out = (unsigned)room;
    d->within = true;
    const int result = inflate(z, Z_NO_FLUSH);
    *in = z->next_in;
    *out_bytes = room - z->avail_out;
    if (result == Z_STREAM_END) {
        d->within = false;
        return inflateReset(z) == Z_OK || damaged(CODEC_GZIP, d->file, "cannot begin anew", err);
    }
    // Z_BUF_ERROR: nothing could be done without more input or more room
    if (result == Z_OK || result == Z_BUF_ERROR) { return true; }
    return damaged(CODEC_GZIP, d->file, z->msg ? z->msg : "it needs a dictionary", err);
}
#endif

#if HAS_ZSTD
static bool run_zstd(Decompressor* d, void* out, size_t* out_bytes, const unsigned char** in,
                     const unsigned char* in_end, Error* err) {
    ZSTD_inBuffer from = {*in, (size_t)(in_end - *in), 0};
    ZSTD_outBuffer to = {out, *out_bytes, 0};
    const size_t result = ZSTD_decompressStream(d->state, &to, &from);
    *in += from.pos;
    *out_bytes = to.pos;
    if (ZSTD_isError(result)) { return damaged(CODEC_ZSTD, d->file, ZSTD_getErrorName(result), err); }
    d->within = result != 0;
    return true;
}
#endif

bool decompressor_run(Decompressor* d, void* out, size_t* out_bytes, const unsigned char** in,
                      const unsigned char* in_end, Error* err) {
#if HAS_ZLIB
    if (d->codec == CODEC_GZIP) { return run_gzip(d, out, out_bytes, in, in_end, err); }
#endif
#if HAS_ZSTD
    if (d->codec == CODEC_ZSTD) { return run_zstd(d, out, out_bytes, in, in_end, err); }
#endif
    (void)d, (void)err;
    *out_bytes = min_size(*out_bytes, (size_t)(in_end - *in));
    memcpy(out, *in, *out_bytes);
    *in += *out_bytes;
    return true;
}

// ---------------------------------------------------------------------------------------------------------------------
// blocks

static bool decompress_snappy(void* out, size_t out_bytes, const void* in, size_t in_bytes, const char* file,
                              Error* err) {
#if HAS_SNAPPY
    size_t bytes = 0;
    if (snappy_uncompressed_length(in, in_bytes, &bytes) != SNAPPY_OK || bytes != out_bytes) {
        return damaged(CODEC_SNAPPY, file, "not of the size promised", err);
    }
    return snappy_uncompress(in, in_bytes, out, &bytes) == SNAPPY_OK ||
           damaged(CODEC_SNAPPY, file, "a block that cannot be decoded", err);
#else
    (void)out, (void)out_bytes, (void)in, (void)in_bytes;
    return codec_check(CODEC_SNAPPY, file, err);
#endif
}

// Decompresses as a stream, which must end where `in` and `out` end.
static bool decompress_stream(unsigned char* out, size_t out_bytes, const unsigned char* in, size_t in_bytes,
                              Codec codec, const char* file, Error* err) {
    Decompressor d;
    if (!decompressor_open(&d, codec, file, err)) { return false; }
    const unsigned char* in_end = in + in_bytes;
    bool ok = true, more = true;
    while (ok && more) {
        const unsigned char* before = in;
        size_t n = out_bytes;
        ok = decompressor_run(&d, out, &n, &in, in_end, err);
        more = ok && (n > 0 || in > before) && (in < in_end || d.within);
        out += ok ? n : 0;
        out_bytes -= ok ? n : 0;
    }
    const bool is_exact = out_bytes == 0 && in == in_end && !d.within;
    ok = ok && (is_exact || damaged(codec, file, "not of the size promised", err));
    decompressor_close(&d);
    return ok;
}

bool decompress_block(void* out, size_t out_bytes, const void* in, size_t in_bytes, Codec codec, const char* file,
                      Error* err) {
    if (codec == CODEC_SNAPPY) { return decompress_snappy(out, out_bytes, in, in_bytes, file, err); }
    return decompress_stream(out, out_bytes, in, in_bytes, codec, file, err);
}
