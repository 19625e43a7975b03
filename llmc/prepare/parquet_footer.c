#include "../base/file.h"
#include "parquet.h"
#include "thrift.h"

enum { MAGIC_BYTES = 4, TAIL_BYTES = 8, MAX_FOOTER = 256 << 20 };

static const char* const TYPES[] = {"BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY",
                                    "FIXED_LEN_BYTE_ARRAY"};
static const char* const CODEC_NAMES[] = {"none", "snappy", "gzip", "LZO", "brotli", "LZ4", "zstd", "LZ4"};
enum { NUM_TYPES = 8, NUM_CODECS = 8, BYTE_ARRAY = 6, REPEATED = 2 };

// The codec that a footer's number means; false if it is not supported.
static bool codec_of_number(int64_t number, Codec* codec) {
    *codec = number == 0 ? CODEC_NONE : number == 1 ? CODEC_SNAPPY : number == 2 ? CODEC_GZIP : CODEC_ZSTD;
    return number == 0 || number == 1 || number == 2 || number == 6;
}

typedef struct {
    const char* name;
    size_t name_bytes;
    int64_t type, repetition, children;
} SchemaElement;

static SchemaElement read_schema_element(Thrift* t) {
    SchemaElement e = {.name = "", .type = -1};
    for (int id = 0, type; thrift_field(t, &id, &type);) {
        switch (type == THRIFT_I32 || type == THRIFT_BYTES ? id : 0) {
        case 1: e.type = thrift_int(t); break;
        case 3: e.repetition = thrift_int(t); break;
        case 4: e.name = thrift_bytes(t, &e.name_bytes); break;
        case 5: e.children = thrift_int(t); break;
        default: thrift_skip(t, type);
        }
    }
    if (e.children < 0 || e.children > INT32_MAX) { t->is_bad = true; }
    return e;
}

// Places of the wanted column in the schema.
typedef struct {
    SchemaElement element;
    uint64_t leaf;   // its number among the leaves, and its chunk's in a row group
    bool is_found;
    char names[256]; // of all columns, for a message
} Column;

static void add_name(Column* c, const SchemaElement* e) {
    const size_t n = strlen(c->names), room = sizeof c->names - n;
    if (room < 8) { return; }
    snprintf(c->names + n, room, "%s%.*s", n ? ", " : "", (int)min_size(e->name_bytes, 64), e->name);
    for (char* p = c->names + n; *p; p++) { if ((unsigned char)*p < ' ' || *p == 127) { *p = '?'; } }
}

// Reads the schema, a tree written depth first.
static void read_schema(Thrift* t, const char* name, Column* c) {
    int type;
    uint64_t count = thrift_list(t, &type), leaf = 0, nested = 0; // nested: elements to come of a column's own tree
    if (type != THRIFT_STRUCT || count == 0) { t->is_bad = true; }
    for (uint64_t i = 0; i < count && !t->is_bad; i++) {
        const SchemaElement e = read_schema_element(t);
        if (i == 0) { continue; } // the root
        if (nested == 0) {
            add_name(c, &e);
            if (!c->is_found && e.name_bytes == strlen(name) && memcmp(e.name, name, e.name_bytes) == 0) {
                c->is_found = true;
                c->element = e;
                c->leaf = leaf;
            }
        }
        nested = nested > 0 ? nested - 1 : 0;
        nested += (uint64_t)e.children;
        leaf += e.children == 0;
    }
}

// The metadata of one column of a row group.
typedef struct {
    int64_t type, codec, num_values, compressed, data_offset, dictionary_offset;
} ColumnMeta;

static ColumnMeta read_column_meta(Thrift* t) {
    ColumnMeta m = {.type = -1, .codec = -1};
    for (int id = 0, type; thrift_field(t, &id, &type);) {
        switch (type == THRIFT_I32 || type == THRIFT_I64 ? id : 0) {
        case 1: m.type = thrift_int(t); break;
        case 4: m.codec = thrift_int(t); break;
        case 5: m.num_values = thrift_int(t); break;
        case 7: m.compressed = thrift_int(t); break;
        case 9: m.data_offset = thrift_int(t); break;
        case 11: m.dictionary_offset = thrift_int(t); break;
        default: thrift_skip(t, type);
        }
    }
    return m;
}

// Reads a row group; the metadata of column `leaf` go to `m`.
static int64_t read_row_group(Thrift* t, uint64_t leaf, ColumnMeta* m) {
    int64_t rows = -1;
    bool is_found = false;
    for (int id = 0, type; thrift_field(t, &id, &type);) {
        if (id == 3 && type == THRIFT_I64) { rows = thrift_int(t); continue; }
        if (id != 1 || type != THRIFT_LIST) { thrift_skip(t, type); continue; }
        const uint64_t count = thrift_list(t, &type);
        for (uint64_t i = 0; i < count && !t->is_bad; i++) {
            if (i != leaf || type != THRIFT_STRUCT) { thrift_skip(t, type); continue; }
            for (int part = 0, part_type; thrift_field(t, &part, &part_type);) {
                if (part != 3 || part_type != THRIFT_STRUCT) { thrift_skip(t, part_type); continue; }
                *m = read_column_meta(t);
                is_found = true;
            }
        }
    }
    if (!is_found || rows < 0) { t->is_bad = true; }
    return rows;
}

static bool add_chunk(Parquet* p, const ColumnMeta* m, int64_t rows, Error* err) {
    const bool has_dictionary = m->dictionary_offset > 0 && m->dictionary_offset < m->data_offset;
    const int64_t offset = has_dictionary ? m->dictionary_offset : m->data_offset;
    if (rows == 0) { return true; }
    if (m->type != BYTE_ARRAY || m->num_values != rows || offset < MAGIC_BYTES || m->compressed < 0 ||
        (uint64_t)offset > p->size || (uint64_t)m->compressed > p->size - (uint64_t)offset ||
        (uint64_t)rows > INT64_MAX - p->num_rows) {
        return fail(err, "%s: damaged: the footer's row group %zu cannot be right: download or make it again", p->path,
                    p->num_chunks);
    }
    Codec codec;
    if (!codec_of_number(m->codec, &codec)) {
        return fail(err, "%s: compressed by %s, which is not supported: write it with zstd, snappy or gzip", p->path,
                    m->codec >= 0 && m->codec < NUM_CODECS ? CODEC_NAMES[m->codec] : "an unknown codec");
    }
    if (!codec_check(codec, p->path, err)) { return false; }
    p->chunks = grown(p->chunks, p->num_chunks, sizeof *p->chunks, p->path);
    p->chunks[p->num_chunks++] = (ColumnChunk){.num_rows = (uint64_t)rows,
                                               .offset = (uint64_t)offset, .bytes = (uint64_t)m->compressed,
                                               .codec = codec};
    p->num_rows += (uint64_t)rows;
    return true;
}

static bool check_column(Parquet* p, const Column* c, const char* name, Error* err) {
    const SchemaElement* e = &c->element;
    if (!c->is_found) {
        return fail(err, "%s: no column \"%s\": name the one with the text by --field; there are: %s", p->path, name,
                    c->names);
    }
    if (e->children > 0 || e->repetition == REPEATED) {
        return fail(err, "%s: column \"%s\" has lists or structs, not strings: name another by --field", p->path, name);
    }
    if (e->type != BYTE_ARRAY) {
        return fail(err, "%s: column \"%s\" has values of type %s, not strings: name another by --field", p->path, name,
                    e->type >= 0 && e->type < NUM_TYPES ? TYPES[e->type] : "unknown");
    }
    p->is_optional = e->repetition != 0;
    return true;
}

static bool parse_footer(Parquet* p, Thrift* t, const char* name, Error* err) {
    Column column;
    memset(&column, 0, sizeof column);
    for (int id = 0, type; thrift_field(t, &id, &type);) {
        if (id == 2 && type == THRIFT_LIST) {
            read_schema(t, name, &column);
            if (!t->is_bad && !check_column(p, &column, name, err)) { return false; }
        } else if (id == 4 && type == THRIFT_LIST && column.is_found) {
            const uint64_t count = thrift_list(t, &type);
            for (uint64_t i = 0; i < count && !t->is_bad; i++) {
                ColumnMeta m;
                memset(&m, 0, sizeof m);
                const int64_t rows = read_row_group(t, column.leaf, &m);
                if (!t->is_bad && !add_chunk(p, &m, rows, err)) { return false; }
            }
        } else {
            thrift_skip(t, type);
        }
    }
    return (!t->is_bad && column.is_found) ||
           fail(err, "%s: damaged: its footer cannot be read: download or make it again", p->path);
}

bool parquet_read_footer(Parquet* p, const char* name, Error* err) {
    unsigned char begin[MAGIC_BYTES], tail[TAIL_BYTES];
    uint32_t bytes;
    if (p->size < MAGIC_BYTES + TAIL_BYTES) { return fail(err, "%s: too short for a Parquet file", p->path); }
    if (!read_exactly(p->fd, p->path, begin, sizeof begin, 0, err)) { return false; }
    if (!read_exactly(p->fd, p->path, tail, sizeof tail, p->size - sizeof tail, err)) { return false; }
    if (memcmp(tail + 4, "PARE", 4) == 0) { return fail(err, "%s: encrypted: decrypt it first", p->path); }
    if (memcmp(begin, "PAR1", 4) != 0 || memcmp(tail + 4, "PAR1", 4) != 0) {
        return fail(err, "%s: not a Parquet file, or cut short: download or make it again", p->path);
    }
    memcpy(&bytes, tail, sizeof bytes);
    if (bytes > p->size - MAGIC_BYTES - TAIL_BYTES || bytes > MAX_FOOTER) {
        return fail(err, "%s: damaged: a footer of %u bytes: download or make it again", p->path, bytes);
    }
    unsigned char* footer = alloc_or_die(max_size(bytes, 1), 1, p->path);
    Thrift t = {.p = footer, .end = footer + bytes};
    const bool ok = read_exactly(p->fd, p->path, footer, bytes, p->size - TAIL_BYTES - bytes, err) &&
                    parse_footer(p, &t, name, err);
    free(footer);
    return ok;
}
