#include "parquet_values.h"
#include "thrift.h"

static bool read_varint(const unsigned char** p, const unsigned char* end, uint64_t* x) {
    Thrift t = {.p = *p, .end = end};
    *x = thrift_varint(&t);
    *p = t.p;
    return !t.is_bad;
}

static bool read_zigzag(const unsigned char** p, const unsigned char* end, uint64_t* x) {
    Thrift t = {.p = *p, .end = end};
    *x = (uint64_t)thrift_int(&t);
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

bool delta_begin(Delta* d, const unsigned char* p, const unsigned char* end, uint64_t max_count) {
    enum { MAX_BLOCK = 1 << 20 }; // values; writers take 128
    uint64_t block;
    memset(d, 0, sizeof *d);
    if (!read_varint(&p, end, &block) || !read_varint(&p, end, &d->miniblocks) || !read_varint(&p, end, &d->left) ||
        !read_zigzag(&p, end, &d->value)) {
        return false;
    }
    if (block == 0 || block > MAX_BLOCK || d->miniblocks == 0 || block % d->miniblocks != 0) { return false; }
    d->per_miniblock = block / d->miniblocks;
    d->miniblock = d->miniblocks; // all used up: a block follows
    d->p = p;
    d->end = end;
    d->is_first = true;
    return d->per_miniblock % 8 == 0 && d->left <= max_count;
}

static uint64_t miniblock_bytes(const Delta* d) {
    return d->in_miniblock == 0 ? 0 : d->per_miniblock / 8 * d->widths[d->miniblock];
}

// Goes to the next miniblock, and to the next block if need be. Its bytes lie before d->end.
static bool delta_begin_miniblock(Delta* d) {
    d->p += miniblock_bytes(d);
    d->miniblock += d->in_miniblock > 0;
    d->in_miniblock = 0;
    if (d->miniblock == d->miniblocks) {
        if (!read_zigzag(&d->p, d->end, &d->least_delta)) { return false; }
        if (d->miniblocks > (uint64_t)(d->end - d->p)) { return false; }
        d->widths = d->p;
        d->p += d->miniblocks;
        d->miniblock = 0;
    }
    const unsigned width = d->widths[d->miniblock];
    return width <= 64 && d->per_miniblock / 8 * width <= (uint64_t)(d->end - d->p);
}

bool delta_next(Delta* d, int64_t* value) {
    uint64_t bits;
    if (d->left == 0) { return false; }
    d->left--;
    if (!d->is_first) {
        const bool is_used_up = d->in_miniblock == 0 || d->in_miniblock == d->per_miniblock;
        if (is_used_up && !delta_begin_miniblock(d)) { d->left = 0; return false; }
        const int width = d->widths[d->miniblock];
        if (!read_bits(d->p, d->end, d->in_miniblock++ * (uint64_t)width, width, &bits)) { return false; }
        d->value += d->least_delta + bits;
    }
    d->is_first = false;
    *value = (int64_t)d->value;
    return true;
}

const unsigned char* delta_end(const Delta* integers) {
    Delta d = *integers;
    if (d.left > 0) { d.left--; } // the first, which is in the header
    while (d.left > 0) {
        if (!delta_begin_miniblock(&d)) { return NULL; }
        d.in_miniblock = d.per_miniblock;
        d.left -= d.left < d.per_miniblock ? d.left : d.per_miniblock;
    }
    return d.p + miniblock_bytes(&d);
}

// ---------------------------------------------------------------------------------------------------------------------
// strings

// Takes `length` bytes from *p.
static bool take_bytes(const unsigned char** p, const unsigned char* end, uint64_t length, Bytes* value) {
    if (length > (uint64_t)(end - *p)) { return false; }
    *value = (Bytes){(const char*)*p, (size_t)length};
    *p += length;
    return true;
}

static bool take_plain(const unsigned char** p, const unsigned char* end, Bytes* value) {
    uint32_t length;
    if ((size_t)(end - *p) < sizeof length) { return false; }
    memcpy(&length, *p, sizeof length);
    *p += sizeof length;
    return take_bytes(p, end, length, value);
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

bool values_encoding_is_known(int encoding) {
    return encoding == ENCODING_PLAIN || encoding == ENCODING_PLAIN_DICTIONARY || encoding == ENCODING_RLE_DICTIONARY ||
           encoding == ENCODING_DELTA_LENGTH_BYTE_ARRAY || encoding == ENCODING_DELTA_BYTE_ARRAY;
}

void values_free(Values* v) {
    free(v->last);
    memset(v, 0, sizeof *v);
}

bool values_begin(Values* v, int encoding, const unsigned char* p, const unsigned char* end, uint64_t max_count,
                  const Dictionary* dictionary) {
    v->encoding = encoding == ENCODING_PLAIN_DICTIONARY ? ENCODING_RLE_DICTIONARY : encoding;
    v->dictionary = dictionary;
    v->last_bytes = 0;
    if (v->encoding == ENCODING_RLE_DICTIONARY) {
        if (p == end) { v->indices = hybrid_begin(p, end, 0); return true; } // no strings
        v->indices = hybrid_begin(p + 1, end, min_int(*p, 33));
        return *p <= 32;
    }
    if (v->encoding == ENCODING_DELTA_BYTE_ARRAY) {
        if (!delta_begin(&v->prefixes, p, end, max_count) || !(p = delta_end(&v->prefixes))) { return false; }
    }
    if (v->encoding != ENCODING_PLAIN) {
        if (!delta_begin(&v->lengths, p, end, max_count) || !(p = delta_end(&v->lengths))) { return false; }
    }
    v->p = p;
    v->end = end;
    return true;
}

// Appends a string's own bytes to those that it shares with the one before.
static bool join_prefix(Values* v, Bytes* value) {
    int64_t prefix;
    if (!delta_next(&v->prefixes, &prefix) || prefix < 0 || (uint64_t)prefix > v->last_bytes) { return false; }
    const size_t bytes = (size_t)prefix + value->bytes;
    if (bytes > v->last_room) {
        v->last_room = max_size(bytes, 2 * v->last_room);
        v->last = realloc_or_die(v->last, v->last_room, "a string of a Parquet file");
    }
    if (value->bytes > 0) { memcpy(v->last + prefix, value->data, value->bytes); }
    v->last_bytes = bytes;
    *value = (Bytes){v->last ? v->last : "", bytes};
    return true;
}

bool values_next(Values* v, Bytes* value) {
    uint32_t index;
    int64_t length;
    switch (v->encoding) {
    case ENCODING_PLAIN:
        return take_plain(&v->p, v->end, value);
    case ENCODING_RLE_DICTIONARY: {
        if (!hybrid_next(&v->indices, &index) || index >= v->dictionary->count) { return false; }
        const Dictionary* d = v->dictionary;
        const unsigned char* p = d->data + d->offset[index];
        return take_plain(&p, d->data + d->bytes, value);
    }
    default:
        if (!delta_next(&v->lengths, &length) || length < 0) { return false; }
        if (!take_bytes(&v->p, v->end, (uint64_t)length, value)) { return false; }
        return v->encoding == ENCODING_DELTA_LENGTH_BYTE_ARRAY || join_prefix(v, value);
    }
}
