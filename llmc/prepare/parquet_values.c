#include "parquet_values.h"
#include "thrift.h"

static bool read_varint(const unsigned char** p, const unsigned char* end, uint64_t* x) {
    Thrift t = {.p = *p, .end = end};
    *x = thrift_varint(&t);
    *p = t.p;
    return !t.is_bad;
}

// Reads `width` bits, at most 64, from bit number `bit` on.
static bool read_bits(const unsigned char* p, const unsigned char* end, uint64_t bit, int width, uint64_t* x) {
    *x = 0;
    if ((bit + (uint64_t)width + 7) / 8 > (uint64_t)(end - p)) { return false; }
    for (int have = 0, n; have < width; have += n, bit += (uint64_t)n) {
        const int shift = (int)(bit % 8);
        n = min_int(8 - shift, width - have);
        *x |= (uint64_t)(p[bit / 8] >> shift & ((1 << n) - 1)) << have;
    }
    return true;
}

// ---------------------------------------------------------------------------------------------------------------------
// integers

Hybrid hybrid_begin(const unsigned char* p, const unsigned char* end, int width) {
    return (Hybrid){.p = p, .end = end, .width = width};
}

static bool hybrid_begin_run(Hybrid* h) {
    uint64_t header, x;
    if (h->is_packed) { h->p += min_size((h->bit + 7) / 8, (size_t)(h->end - h->p)); }
    h->is_packed = false;
    if (!read_varint(&h->p, h->end, &header) || header >> 32 != 0) { return false; }
    h->is_packed = header & 1;
    h->left = h->is_packed ? 8 * (header >> 1) : header >> 1;
    h->bit = 0;
    if (h->is_packed) { return true; }
    const int bytes = (h->width + 7) / 8;
    if (!read_bits(h->p, h->end, 0, 8 * bytes, &x)) { return false; }
    h->p += bytes;
    h->value = (uint32_t)x;
    return true;
}

bool hybrid_next(Hybrid* h, uint32_t* value) {
    while (h->left == 0) { if (!hybrid_begin_run(h)) { return false; } }
    h->left--;
    *value = h->value;
    if (!h->is_packed) { return true; }
    uint64_t x;
    const bool ok = read_bits(h->p, h->end, h->bit, h->width, &x);
    h->bit += (uint64_t)h->width;
    *value = (uint32_t)x;
    return ok;
}

// ---------------------------------------------------------------------------------------------------------------------
// strings

static bool take_plain(const unsigned char** p, const unsigned char* end, Bytes* value) {
    uint32_t length;
    if ((size_t)(end - *p) < sizeof length) { return false; }
    memcpy(&length, *p, sizeof length);
    *p += sizeof length;
    if (length > (size_t)(end - *p)) { return false; }
    *value = (Bytes){(const char*)*p, length};
    *p += length;
    return true;
}

void dictionary_free(Dictionary* d) {
    free(d->data);
    free(d->offset);
    memset(d, 0, sizeof *d);
}

bool dictionary_index(Dictionary* d, uint64_t count) {
    const unsigned char *p = d->data, *end = p + d->bytes;
    Bytes value;
    d->count = 0;
    if (count > d->bytes / sizeof(uint32_t)) { return false; }
    free(d->offset);
    d->offset = alloc_or_die(max_size((size_t)count, 1), sizeof *d->offset, "a dictionary page");
    for (; d->count < count; d->count++) {
        d->offset[d->count] = (uint32_t)(p - d->data);
        if (!take_plain(&p, end, &value)) { d->count = 0; return false; }
    }
    return true;
}

bool values_encoding_is_known(int64_t encoding) {
    return encoding == ENCODING_PLAIN || encoding == ENCODING_PLAIN_DICTIONARY || encoding == ENCODING_RLE_DICTIONARY;
}

bool values_begin(Values* v, int64_t encoding, const unsigned char* p, const unsigned char* end,
                  const Dictionary* dictionary) {
    *v = (Values){.is_plain = encoding == ENCODING_PLAIN, .p = p, .end = end, .dictionary = dictionary};
    if (v->is_plain) { return true; }
    if (p == end) { v->indices = hybrid_begin(p, end, 0); return true; } // no strings
    v->indices = hybrid_begin(p + 1, end, min_int(*p, 33));
    return *p <= 32;
}

bool values_next(Values* v, Bytes* value) {
    uint32_t index;
    const Dictionary* d = v->dictionary;
    if (v->is_plain) { return take_plain(&v->p, v->end, value); }
    if (!hybrid_next(&v->indices, &index) || index >= d->count) { return false; }
    const unsigned char* p = d->data + d->offset[index];
    return take_plain(&p, d->data + d->bytes, value);
}
