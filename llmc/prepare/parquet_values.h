// Decodes the values of a Parquet page, one after the other, without memory for more than one. No length or count in
// the data is trusted; each function returns false for damaged data.
//
//   PLAIN               a uint32 of length and the bytes, for each string
//   RLE_DICTIONARY      a byte w, then indices of w bits into the dictionary page, as a hybrid
//   (PLAIN_DICTIONARY)  its older name; that of the dictionary page itself too, whose strings are PLAIN
//
// A hybrid of run lengths and bits is a sequence of runs with a varint h before each: if h is even, h / 2 copies of a
// value in ceil(w / 8) bytes; if odd, h / 2 * 8 values of w bits, the lowest bits first. Definition levels are a
// hybrid too.
#pragma once
#include "../base/base.h"

enum { ENCODING_PLAIN = 0, ENCODING_PLAIN_DICTIONARY = 2, ENCODING_RLE = 3, ENCODING_RLE_DICTIONARY = 8 };

typedef struct {
    const unsigned char *p, *end; // behind the header of the run
    int width;                    // bits of a value, at most 32
    uint64_t left, bit;           // of the run: values, and the next one's first bit if they are packed
    bool is_packed;
    uint32_t value;               // of a run of copies
} Hybrid;

// Strings that pages refer to by number.
typedef struct {
    unsigned char* data; // as PLAIN
    size_t bytes, room;
    uint32_t* offset;    // where the length of each string is
    size_t count;
} Dictionary;

typedef struct {
    const char* data;
    size_t bytes;
} Bytes;

typedef struct {
    bool is_plain;
    const unsigned char *p, *end; // bytes of plain strings
    const Dictionary* dictionary;
    Hybrid indices;
} Values;

// ---------------------------------------------------------------------------------------------------------------------
// integers

// Begins a hybrid of values of `width` bits, 0 to 32.
Hybrid hybrid_begin(const unsigned char* p, const unsigned char* end, int width);
bool hybrid_next(Hybrid* h, uint32_t* value);

// ---------------------------------------------------------------------------------------------------------------------
// strings

// Finds `count` strings in d->data.
bool dictionary_index(Dictionary* d, uint64_t count);
void dictionary_free(Dictionary* d);

// Returns true if strings in this encoding can be read.
bool values_encoding_is_known(int64_t encoding);

// Begins the strings of a page in such an encoding. `p` and the dictionary must live as long as `v` is read.
bool values_begin(Values* v, int64_t encoding, const unsigned char* p, const unsigned char* end,
                  const Dictionary* dictionary);

// Sets `value` to the next string, which lies in the page or in the dictionary.
bool values_next(Values* v, Bytes* value);
