// Any bytes as a Parquet file: it is refused, or its rows can be read within its bounds. Begin with files that are:
//     build/fuzz/fuzz_parquet -max_total_time=300 CORPUS test/golden/parquet
#include "llmc/prepare/parquet.h"
#include "test/fuzz/input.h"

static volatile uint64_t sum; // so that all bytes are read

static void check(const char* path) {
    enum { MAX_ROWS = 10000 }; // a few bytes may promise 2^63 nulls
    Parquet p;
    Error err;
    ParquetRow kind = PARQUET_NULL;
    Bytes value;
    uint64_t rows = 0;
    if (!parquet_open(&p, path, "text", &err)) { return; }
    for (; kind != PARQUET_END && rows < MAX_ROWS; rows++) {
        if (!parquet_next(&p, &kind, &value, &err)) { break; }
        if (kind == PARQUET_VALUE) { sum += hash64(value.data, value.bytes, 0); }
    }
    if (kind == PARQUET_END && rows != p.num_rows + 1) { abort(); }
    parquet_close(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    check(input_file(data, size));
    return 0;
}
