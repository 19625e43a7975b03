#include "parquet.h"
#include "../base/file.h"
#include "thrift.h"
#include <inttypes.h>

enum { MAX_HEADER = 64 << 20 }; // of a page

bool is_parquet(const char begin[4]) { return memcmp(begin, "PAR1", 4) == 0 || memcmp(begin, "PARE", 4) == 0; }

void parquet_close(Parquet* p) {
    if (p->fd > STDIN_FILENO) { close(p->fd); }
    free(p->chunks);
    free(p->packed);
    free(p->page);
    dictionary_free(&p->dictionary);
    memset(p, 0, sizeof *p);
    p->fd = -1;
}

bool parquet_open(Parquet* p, const char* path, const char* column, Error* err) {
    size_t size;
    memset(p, 0, sizeof *p);
    p->path = path;
    p->fd = open_regular(path, &size, err);
    if (p->fd < 0) { return false; }
    p->size = size;
    const bool ok = parquet_read_footer(p, column, err);
    if (!ok) { parquet_close(p); }
    return ok;
}

// ---------------------------------------------------------------------------------------------------------------------
// pages

enum { DATA_PAGE = 0, DICTIONARY_PAGE = 2, DATA_PAGE_V2 = 3 };

typedef struct {
    int64_t type, uncompressed, compressed, num_values, encoding, level_encoding, level_bytes, repetition_bytes;
    uint32_t crc;
    bool has_crc, is_compressed;
} PageHeader;

// Reads the struct in a page header that belongs to its type: fields 5, 7 and 8.
static void read_page_details(Thrift* t, int which, PageHeader* h) {
    for (int id = 0, type; thrift_field(t, &id, &type);) {
        const bool is_v2 = which == 8;
        if (is_v2 && id == 7 && type <= THRIFT_FALSE) { h->is_compressed = type == THRIFT_TRUE; continue; }
        if (type != THRIFT_I32) { thrift_skip(t, type); continue; }
        const int64_t x = thrift_int(t);
        if (id == 1) { h->num_values = x; }
        else if (id == (is_v2 ? 4 : 2)) { h->encoding = x; }
        else if (id == 3 && which == 5) { h->level_encoding = x; }
        else if (id == 5 && is_v2) { h->level_bytes = x; }
        else if (id == 6 && is_v2) { h->repetition_bytes = x; }
    }
}

static bool parse_page_header(Thrift* t, PageHeader* h) {
    memset(h, 0, sizeof *h);
    h->type = -1;
    h->is_compressed = true;
    for (int id = 0, type; thrift_field(t, &id, &type);) {
        if ((id == 5 || id == 7 || id == 8) && type == THRIFT_STRUCT) { read_page_details(t, id, h); continue; }
        if (type != THRIFT_I32) { thrift_skip(t, type); continue; }
        const int64_t x = thrift_int(t);
        if (id == 1) { h->type = x; }
        else if (id == 2) { h->uncompressed = x; }
        else if (id == 3) { h->compressed = x; }
        else if (id == 4) { h->crc = (uint32_t)x; h->has_crc = true; }
    }
    return !t->is_bad && h->uncompressed >= 0 && h->uncompressed <= INT32_MAX && h->compressed >= 0 &&
           h->num_values >= 0 && h->num_values <= INT32_MAX && h->level_bytes >= 0 && h->level_bytes <= INT32_MAX &&
           h->repetition_bytes >= 0 && h->repetition_bytes <= INT32_MAX;
}

static bool damaged_page(const Parquet* p, const char* what, Error* err) {
    return fail(err, "%s: damaged: row %" PRIu64 ": %s: download or make it again", p->path, p->row, what);
}

// Returns a buffer for `bytes`, the same one if it is large enough, and not much too large: a buffer does not stay as
// large as the largest page.
static unsigned char* make_room(unsigned char* buffer, size_t* room, size_t bytes) {
    enum { SMALL = 4 << 20 };
    if (buffer && *room >= bytes && *room <= max_size(2 * bytes, SMALL)) { return buffer; }
    free(buffer);
    *room = max_size(bytes, 1 << 16);
    return realloc_or_die(NULL, *room, "a page of a Parquet file");
}

// Reads the header of the next page. How long it is shows only when it is parsed: it may have strings as statistics.
static bool read_page_header(Parquet* p, PageHeader* h, Error* err) {
    for (size_t window = 256;; window *= 16) {
        const size_t bytes = min_size((size_t)(p->end - p->at), min_size(window, MAX_HEADER));
        p->packed = make_room(p->packed, &p->packed_room, bytes);
        if (!read_exactly(p->fd, p->path, p->packed, bytes, (size_t)p->at, err)) { return false; }
        Thrift t = {.p = p->packed, .end = p->packed + bytes};
        if (parse_page_header(&t, h)) { p->at += (uint64_t)(t.p - p->packed); break; }
        if (bytes < window) { return damaged_page(p, "a page has no header", err); }
    }
    if ((uint64_t)h->compressed > p->end - p->at) { return damaged_page(p, "a page is longer than its chunk", err); }
    if ((uint64_t)h->compressed + (uint64_t)h->uncompressed + p->dictionary.bytes > PARQUET_MAX_PAGE) {
        return fail(err, "%s: row %" PRIu64 ": a page of %" PRId64 " MiB, too much for memory: write the file again "
                    "with smaller pages or row groups", p->path, p->row, h->uncompressed >> 20);
    }
    return true;
}

// Reads the page behind its header and decompresses it to `page`, but for the first `plain` bytes, which are copied.
static bool read_page(Parquet* p, const PageHeader* h, size_t plain, unsigned char* page, Error* err) {
    const size_t packed = (size_t)h->compressed, unpacked = (size_t)h->uncompressed;
    const bool is_packed = p->codec != CODEC_NONE && h->is_compressed;
    if (plain > packed || plain > unpacked || (!is_packed && packed != unpacked)) {
        return damaged_page(p, "a page's sizes contradict each other", err);
    }
    if (is_packed) { p->packed = make_room(p->packed, &p->packed_room, packed); }
    unsigned char* raw = is_packed ? p->packed : page;
    if (!read_exactly(p->fd, p->path, raw, packed, (size_t)p->at, err)) { return false; }
    p->at += packed;
    uint32_t crc;
    if (h->has_crc && crc32_of(raw, packed, &crc) && crc != h->crc) {
        return damaged_page(p, "a page differs from its checksum", err);
    }
    if (!is_packed) { return true; }
    memcpy(page, raw, plain);
    if (unpacked == plain) { return true; } // whatever the codec makes of no bytes
    return decompress_block(page + plain, unpacked - plain, raw + plain, packed - plain, p->codec, p->path, err);
}

static bool read_dictionary(Parquet* p, const PageHeader* h, Error* err) {
    Dictionary* d = &p->dictionary;
    d->count = 0;
    d->bytes = 0;
    d->data = make_room(d->data, &d->room, (size_t)h->uncompressed);
    if (!read_page(p, h, 0, d->data, err)) { return false; }
    d->bytes = (size_t)h->uncompressed;
    const bool is_plain = h->encoding == ENCODING_PLAIN || h->encoding == ENCODING_PLAIN_DICTIONARY;
    return (is_plain && dictionary_index(d, (uint64_t)h->num_values)) ||
           damaged_page(p, "a dictionary cannot be read", err);
}

static bool read_data_page(Parquet* p, const PageHeader* h, Error* err) {
    const bool is_v2 = h->type == DATA_PAGE_V2;
    const size_t plain = is_v2 ? (size_t)(h->level_bytes + h->repetition_bytes) : 0;
    if ((uint64_t)h->num_values > p->in_chunk) { return damaged_page(p, "a page has too many values", err); }
    if (!values_encoding_is_known(h->encoding)) {
        return fail(err, "%s: row %" PRIu64 ": strings in encoding %" PRId64 " are not read: write the file with plain "
                    "or dictionary encoding", p->path, p->row, h->encoding);
    }
    p->page = make_room(p->page, &p->page_room, (size_t)h->uncompressed);
    if (!read_page(p, h, plain, p->page, err)) { return false; }
    const unsigned char *data = p->page, *end = data + h->uncompressed;
    uint32_t level_bytes = (uint32_t)h->level_bytes;
    data += is_v2 ? h->repetition_bytes : 0;
    if (!is_v2 && p->is_optional) {
        if (h->level_encoding != ENCODING_RLE || end - data < 4) { return damaged_page(p, "no levels", err); }
        memcpy(&level_bytes, data, sizeof level_bytes);
        data += sizeof level_bytes;
        if (level_bytes > (size_t)(end - data)) { return damaged_page(p, "levels too long", err); }
    }
    p->levels = hybrid_begin(data, data + level_bytes, 1);
    data += level_bytes;
    p->in_page = (uint64_t)h->num_values;
    return values_begin(&p->values, h->encoding, data, end, &p->dictionary) ||
           damaged_page(p, "values cannot be read", err);
}

// Goes on to the next page with values. There is a row left.
static bool next_page(Parquet* p, Error* err) {
    while (p->in_page == 0) {
        PageHeader h;
        if (p->in_chunk == 0) {
            const ColumnChunk* c = &p->chunks[p->next_chunk++];
            p->at = c->offset;
            p->end = c->offset + c->bytes;
            p->in_chunk = c->num_rows;
            dictionary_free(&p->dictionary);
            p->codec = c->codec;
        }
        if (p->at == p->end) { return damaged_page(p, "the chunk has fewer values than promised", err); }
        if (!read_page_header(p, &h, err)) { return false; }
        if (h.type == DICTIONARY_PAGE) {
            if (!read_dictionary(p, &h, err)) { return false; }
        } else if (h.type == DATA_PAGE || h.type == DATA_PAGE_V2) {
            if (!read_data_page(p, &h, err)) { return false; }
        } else {
            p->at += (uint64_t)h.compressed; // an index
        }
    }
    return true;
}

// ---------------------------------------------------------------------------------------------------------------------
// rows

bool parquet_next(Parquet* p, ParquetRow* kind, Bytes* value, Error* err) {
    uint32_t level = 1;
    if (p->row == p->num_rows) { *kind = PARQUET_END; return true; }
    if (p->in_page == 0 && !next_page(p, err)) { return false; }
    if (p->is_optional && (!hybrid_next(&p->levels, &level) || level > 1)) {
        return damaged_page(p, "levels cannot be read", err);
    }
    if (level && !values_next(&p->values, value)) { return damaged_page(p, "a value cannot be read", err); }
    *kind = level ? PARQUET_VALUE : PARQUET_NULL;
    p->row++;
    p->in_page--;
    p->in_chunk--;
    return true;
}

bool parquet_skip(Parquet* p, uint64_t row, Error* err) {
    if (row > p->num_rows || row < p->row) {
        return fail(err, "%s: %" PRIu64 " rows, none to go on from at %" PRIu64, p->path, p->num_rows, row);
    }
    // whole row groups without reading them
    while (p->in_chunk == 0 && p->next_chunk < p->num_chunks && p->row + p->chunks[p->next_chunk].num_rows <= row) {
        p->row += p->chunks[p->next_chunk++].num_rows;
    }
    ParquetRow kind;
    Bytes value;
    while (p->row < row) { if (!parquet_next(p, &kind, &value, err)) { return false; } }
    return true;
}
