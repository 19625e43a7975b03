// Reads one column of strings from a Parquet file, row by row, page by page.
//
//   "PAR1", column chunks, footer, uint32 length of the footer, "PAR1"
//
// The footer and the headers of pages are structs of Thrift's compact protocol (thrift.h). The footer has the schema
// and, for each row group, where the chunk of each column is and how it is compressed. A chunk is a sequence of pages,
// each with a header: perhaps a dictionary page first, then data pages, each with an encoding of its own
// (parquet_values.h). A data page has definition levels before its values if the column may have nulls: 1 for a row
// with a value, 0 for a null. In pages of version 1 they are compressed together with the values, behind their length;
// in version 2 they come first, not compressed, and the header has their length.
//
// Read are columns at the top of the schema, required or optional, of type BYTE_ARRAY, in plain and dictionary
// encoding, compressed by snappy, gzip, zstd or not at all. Brotli, LZ4, nested columns and encryption are refused.
// Any input is allowed: every offset, length and count is checked before it is used. Checksums of pages are verified
// where there are any. Memory: the footer, then a dictionary and a page, at most PARQUET_MAX_PAGE bytes together.
#pragma once
#include "compression.h"
#include "parquet_values.h"

enum { PARQUET_MAX_PAGE = 384 << 20 };

// A column chunk.
typedef struct {
    uint64_t num_rows;
    uint64_t offset, bytes; // in the file, all pages with their headers
    Codec codec;
} ColumnChunk;

typedef struct {
    const char* path; // not owned
    int fd;
    uint64_t size, num_rows;
    bool is_optional; // nulls are possible
    ColumnChunk* chunks;
    size_t num_chunks;
    // what is being read
    uint64_t row;      // the next one
    size_t next_chunk; // behind the chunk of the pages
    uint64_t at, end;  // of the chunk: the next page, and its end
    Codec codec;       // of the chunk
    uint64_t in_chunk, in_page; // rows still to be read
    Hybrid levels;
    Values values;
    Dictionary dictionary;
    unsigned char *packed, *page; // as in the file, and decompressed
    size_t packed_room, page_room;
} Parquet;

typedef enum { PARQUET_END, PARQUET_NULL, PARQUET_VALUE } ParquetRow;

// Returns true if a file that begins with these four bytes may be a Parquet file.
bool is_parquet(const char begin[4]);

// Opens a file, whose name must live as long as `p`, to read the column from its first row on. Fails, naming the
// columns there are, if there is no such column of strings. Nothing is left open on failure.
bool parquet_open(Parquet* p, const char* path, const char* column, Error* err);

// Reads the footer into p->chunks, p->num_rows and p->is_optional: a part of parquet_open() (parquet_footer.c).
bool parquet_read_footer(Parquet* p, const char* column, Error* err);

// Frees it. Harmless after a failure of parquet_open(), and a second time.
void parquet_close(Parquet* p);

// Goes forward to a row. Fails if there are fewer.
bool parquet_skip(Parquet* p, uint64_t row, Error* err);

// Reads the next row; `value` lives until the next call.
bool parquet_next(Parquet* p, ParquetRow* kind, Bytes* value, Error* err);
