#include "inputs.h"
#include "input_names.h"
#include "parquet.h"
#include "stream.h"
#include <inttypes.h>

enum { BEGIN_BYTES = 4 }; // which tell a compressed or Parquet file

// ---------------------------------------------------------------------------------------------------------------------
// formats and contents

// Reads the first bytes of a regular file; returns their number.
static size_t read_begin(const char* path, unsigned char begin[BEGIN_BYTES]) {
    Error err;
    FILE* f = fopen_regular(path, &err);
    if (!f) { fatal("%s; a pipe is read by cat ... | ./prepare - ...", err.text); }
    const size_t n = fread(begin, 1, BEGIN_BYTES, f);
    if (ferror(f)) { fatal("%s: cannot read: %s", path, strerror(errno)); }
    fclose(f);
    return n;
}

InputFormat input_format(const PrepareOptions* o, const char* path) {
    unsigned char begin[BEGIN_BYTES];
    if (o->format == format_text) { return FORMAT_TEXT; }
    if (o->format == format_jsonl) { return FORMAT_JSONL; }
    if (o->format == format_parquet) { return FORMAT_PARQUET; }
    if (strcmp(path, "-") == 0) { return FORMAT_TEXT; }
    if (is_parquet(begin, read_begin(path, begin))) { return FORMAT_PARQUET; }
    if (name_ends_with(path, ".parquet")) { return FORMAT_PARQUET; } // it says what is wrong with the file
    const bool is_jsonl = name_ends_with(path, ".jsonl") || name_ends_with(path, ".ndjson") ||
                          name_ends_with(path, ".json");
    return is_jsonl ? FORMAT_JSONL : FORMAT_TEXT;
}

bool is_text_checked(const PrepareOptions* o) { return o->format != format_text; }

// Ends the program unless the file can be read by this program.
static void check_readable(const PrepareOptions* o, const char* path) {
    Error err;
    Parquet parquet;
    Stream stream;
    const InputFormat file_format = input_format(o, path);
    bool ok;
    if (file_format == FORMAT_PARQUET) {
        ok = parquet_open(&parquet, path, o->field, &err);
        if (ok) { parquet_close(&parquet); }
    } else {
        ok = stream_open(&stream, path, &err) &&
             (file_format != FORMAT_TEXT || !is_text_checked(o) || stream_check_text(&stream, &err));
        stream_close(&stream);
    }
    if (!ok) { fatal("%s", err.text); }
}

json_t* describe_input(const PrepareOptions* o, const char* path) {
    enum { PIECE = 1 << 20 };
    check_readable(o, path);
    Error err;
    FILE* f = fopen_regular(path, &err);
    if (!f) { fatal("%s", err.text); }
    unsigned char* buffer = realloc_or_die(NULL, PIECE, path);
    uint64_t hash = 0, size = 0;
    for (size_t n; (n = fread(buffer, 1, PIECE, f)) > 0; size += n) { hash = hash64(buffer, n, hash); }
    if (ferror(f)) { fatal("%s: cannot read: %s", path, strerror(errno)); }
    fclose(f);
    free(buffer);
    char hex[17];
    snprintf(hex, sizeof hex, "%016" PRIx64, hash);
    return json_pack("{s:s, s:I, s:s}", "name", path, "bytes", (json_int_t)size, "hash", hex);
}
