// Reads Thrift's compact protocol, in which Parquet writes its footer and the headers of its pages.
//
// A struct is a sequence of fields, ended by a 0 byte. A field begins with a byte: its type in the lower four bits; in
// the upper four how much greater its id is than the last one's, or 0, and then the id follows. Integers are varints
// (seven bits in a byte, the lowest first, the eighth bit set in all bytes but the last), signed ones in zigzag
// (0, -1, 1, -2, ...). A boolean is the type of its field. Bytes have their number before them. A list begins with a
// byte: the type of its elements, and in the upper four bits their number or, for 15 and more, a 15 with a varint
// behind it.
//
// Any input is allowed: nothing is read beyond the end. After the first error is_bad stays true, values are 0, and all
// loops end.
#pragma once
#include "../base/base.h"

enum { THRIFT_TRUE = 1, THRIFT_FALSE, THRIFT_I8, THRIFT_I16, THRIFT_I32, THRIFT_I64, THRIFT_DOUBLE, THRIFT_BYTES,
       THRIFT_LIST, THRIFT_SET, THRIFT_MAP, THRIFT_STRUCT };

typedef struct {
    const unsigned char *p, *end; // still to be read
    bool is_bad;
} Thrift;

// Reads an unsigned varint: of Thrift, and of Parquet's encodings.
uint64_t thrift_varint(Thrift* t);

// Reads a signed integer of any size.
int64_t thrift_int(Thrift* t);

// Returns the bytes of a string and sets `bytes` to their number.
const char* thrift_bytes(Thrift* t, size_t* bytes);

// Reads the beginning of a field: adds to *id, 0 before the first field, and sets *type. Returns false at the end of
// the struct.
bool thrift_field(Thrift* t, int* id, int* type);

// Reads the beginning of a list; returns its number of elements and sets their type.
uint64_t thrift_list(Thrift* t, int* type);

// Passes over a value.
void thrift_skip(Thrift* t, int type);
