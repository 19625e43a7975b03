// Any bytes as input of ./prepare, text and JSONL, plain or compressed: chunks are whole, in order and within their
// limits, and reading goes on behind any of them. (Parquet: fuzz_parquet.c.)
#include "llmc/prepare/prepare_options.h"
#include "llmc/prepare/reader.h"
#include "test/fuzz/input.h"

// Reads all chunks from a position on; returns a hash of their texts. With `middle`, which becomes the place behind the
// first chunk, that chunk is left out of the hash. Sets `ok` to whether the file could be read to its end.
static uint64_t read_all(const PrepareOptions* o, Position from, Position* middle, bool* ok) {
    Reader r;
    Chunk c;
    uint64_t hash = 0;
    memset(&c, 0, sizeof c);
    reader_open(&r, o, &o->sources[0], from);
    *ok = true;
    for (size_t chunks = 0; *ok && reader_next(&r, &c); chunks++) {
        if (c.text.bytes > MAX_DOCUMENT_BYTES || (r.at.input == from.input && r.at.offset < from.offset)) { abort(); }
        if (chunks == 0 && middle) { *middle = r.at; }
        else if (c.text.bytes) { hash = hash64(c.text.data, c.text.bytes, hash); }
        *ok = c.ok || c.skip;
        chunk_clear(&c);
    }
    chunk_clear(&c);
    reader_close(&r);
    return hash;
}

static void check(char* path, enum format format, const char* split) {
    PrepareOptions o;
    Position middle = {.input = 1};
    bool ok, ok_again;
    memset(&o, 0, sizeof o);
    o.inputs = &path;
    o.num_inputs = o.num_sources = 1;
    o.sources[0].end_input = 1;
    o.format = format;
    o.split = (char*)split;
    o.field = (char*)"text";
    const uint64_t rest = read_all(&o, (Position){.input = 0}, &middle, &ok);
    if (ok && (read_all(&o, middle, NULL, &ok_again) != rest || !ok_again)) { abort(); }
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    char path[64];
    snprintf(path, sizeof path, "%s", input_file(data, size));
    check(path, format_text, "none");
    check(path, format_text, "blank");
    check(path, format_auto, "blank");
    check(path, format_jsonl, "none");
    return 0;
}
