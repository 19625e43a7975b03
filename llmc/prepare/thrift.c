#include "thrift.h"

enum { MAX_DEPTH = 32 }; // structs within structs that thrift_skip() follows; Parquet has fewer

static unsigned char thrift_byte(Thrift* t) {
    if (t->p == t->end) { t->is_bad = true; }
    return t->is_bad ? 0 : *t->p++;
}

uint64_t thrift_varint(Thrift* t) {
    uint64_t x = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        const unsigned char byte = thrift_byte(t);
        x |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) { return t->is_bad ? 0 : x; }
    }
    t->is_bad = true;
    return 0;
}

int64_t thrift_int(Thrift* t) {
    const uint64_t x = thrift_varint(t);
    return (int64_t)(x >> 1 ^ (0 - (x & 1)));
}

const char* thrift_bytes(Thrift* t, size_t* bytes) {
    const uint64_t n = thrift_varint(t);
    if (n > (size_t)(t->end - t->p)) { t->is_bad = true; }
    *bytes = t->is_bad ? 0 : (size_t)n;
    const char* text = (const char*)t->p;
    t->p += *bytes;
    return text;
}

bool thrift_field(Thrift* t, int* id, int* type) {
    const unsigned char byte = thrift_byte(t);
    if (byte == 0) { return false; }
    *type = byte & 15;
    *id = byte >> 4 ? *id + (byte >> 4) : (int16_t)thrift_int(t);
    if (*id < 0 || *id > INT16_MAX) { t->is_bad = true; }
    return !t->is_bad;
}

uint64_t thrift_list(Thrift* t, int* type) {
    const unsigned char byte = thrift_byte(t);
    *type = byte & 15;
    const uint64_t count = byte >> 4 == 15 ? thrift_varint(t) : byte >> 4;
    return t->is_bad ? 0 : count;
}

static void skip(Thrift* t, int type, int depth);

static void skip_elements(Thrift* t, uint64_t count, const int types[2], int num_types, int depth) {
    for (; count > 0 && !t->is_bad; count--) {
        for (int i = 0; i < num_types; i++) {
            // a boolean that is no field takes a byte
            if (types[i] == THRIFT_TRUE || types[i] == THRIFT_FALSE) { thrift_byte(t); }
            else { skip(t, types[i], depth); }
        }
    }
}

static void skip(Thrift* t, int type, int depth) {
    size_t bytes = 0;
    int id = 0, types[2];
    if (depth == MAX_DEPTH) { t->is_bad = true; }
    if (t->is_bad) { return; }
    switch (type) {
    case THRIFT_TRUE: case THRIFT_FALSE: break;
    case THRIFT_I8: thrift_byte(t); break;
    case THRIFT_I16: case THRIFT_I32: case THRIFT_I64: thrift_varint(t); break;
    case THRIFT_DOUBLE: for (int i = 0; i < 8; i++) { thrift_byte(t); } break;
    case THRIFT_BYTES: thrift_bytes(t, &bytes); break;
    case THRIFT_LIST: case THRIFT_SET: {
        const uint64_t count = thrift_list(t, &types[0]);
        skip_elements(t, count, types, 1, depth + 1);
        break;
    }
    case THRIFT_MAP: {
        const uint64_t count = thrift_varint(t);
        const unsigned char both = count > 0 ? thrift_byte(t) : 0; // the types of keys and values
        types[0] = both >> 4;
        types[1] = both & 15;
        skip_elements(t, count, types, 2, depth + 1);
        break;
    }
    case THRIFT_STRUCT: while (thrift_field(t, &id, &type)) { skip(t, type, depth + 1); } break;
    default: t->is_bad = true;
    }
}

void thrift_skip(Thrift* t, int type) { skip(t, type, 0); }
