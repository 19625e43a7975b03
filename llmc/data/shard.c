#include "shard.h"
#include "../base/file.h"

void shard_close(Shard* s) {
    if (s->fd >= 0) { close(s->fd); }
    free(s->path);
    s->fd = -1;
    s->path = NULL;
}

bool shard_open_as(Shard* s, const char* path, TokenHeader header, Error* err) {
    s->path = format("%s", path);
    size_t size;
    s->fd = open_regular(path, &size, err);
    const bool ok = s->fd >= 0 && shard_find_tokens(s, size, header, err);
    if (!ok) { shard_close(s); }
    return ok;
}

bool shard_open(Shard* s, const char* path, Error* err) { return shard_open_as(s, path, HEADER_REQUIRED, err); }

bool shard_read(const Shard* s, size_t first, size_t count, int* out, Error* err) {
    const size_t width = (size_t)s->width;
    if (first > s->num_tokens || count > s->num_tokens - first) {
        return fail(err, "%s: asked for %zu tokens at %zu, but it has %zu", s->path, count, first, s->num_tokens);
    }
    // Two bytes are widened in place, from the second half of `out` on: an int is written where ids were read before.
    char* raw = (char*)(out + count) - count * width;
    if (!read_exactly(s->fd, s->path, raw, count * width, s->offset + first * width, err)) { return false; }
    for (size_t i = 0; width == sizeof(uint16_t) && i < count; i++) {
        uint16_t id;
        memcpy(&id, raw + i * sizeof id, sizeof id);
        out[i] = id;
    }
    return true;
}

bool shard_check_tokens(const char* path, size_t first, const int* tokens, size_t count, int vocab_size, Error* err) {
    for (size_t i = 0; i < count; i++) {
        // NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): shard_read() has set them
        if (tokens[i] >= 0 && tokens[i] < vocab_size) { continue; }
        return fail(err, "%s: token %zu is %u, but the vocabulary has %d: was it prepared with another tokenizer? See "
                    "--tokenizer and V of --model", path, first + i, (unsigned)tokens[i], vocab_size);
    }
    return true;
}

bool shard_check_all(const Shard* s, int vocab_size, Error* err) {
    enum { CHUNK = 1 << 15 };
    int tokens[CHUNK];
    bool ok = true;
    for (size_t first = 0; ok && first < s->num_tokens; first += CHUNK) {
        const size_t count = min_size(CHUNK, s->num_tokens - first);
        ok = shard_read(s, first, count, tokens, err) &&
             shard_check_tokens(s->path, first, tokens, count, vocab_size, err);
    }
    return ok;
}

// Returns `text` without `end`, cut off in place, or NULL if it does not end so.
static char* without_end(char* text, const char* end) {
    const size_t n = strlen(text), m = strlen(end);
    if (n < m || strcmp(text + n - m, end)) { return NULL; }
    text[n - m] = 0;
    return text;
}

char* shard_record_path(const char* path, const char* ending) {
    char *prefix = format("%s", path), *record = NULL;
    const size_t n = strlen(path), tail = strlen("_000001.bin");
    if (n > tail && path[n - tail] == '_' && strspn(path + n - tail + 1, "0123456789") == 6 &&
        !strcmp(path + n - 4, ".bin")) {
        prefix[n - tail] = 0;
        if (without_end(prefix, "_train") || without_end(prefix, "_val")) { record = format("%s%s", prefix, ending); }
    }
    free(prefix);
    return record;
}

bool shard_verify_sum(const char* path, bool* has_sum, Error* err) {
    char* list = shard_record_path(path, ".b2sums");
    const bool ok = sum_verify_by_list(path, list, has_sum, err);
    free(list);
    return ok;
}

// ---------------------------------------------------------------------------------------------------------------------
// writing

void shard_abandon(ShardWriter* w) {
    if (w->file) { fclose(w->file); }
    if (w->temporary) { unlink(w->temporary); }
    free(w->path);
    free(w->temporary);
    memset(w, 0, sizeof *w);
}

static bool shard_write_header(ShardWriter* w, Error* err) {
    int32_t header[SHARD_HEADER_INTS] = {SHARD_MAGIC, SHARD_VERSION, (int32_t)w->num_tokens};
    bool ok = fseeko(w->file, 0, SEEK_SET) == 0 && fwrite(header, sizeof header, 1, w->file) == 1;
    return ok || fail_system(err, w->path, "write");
}

bool shard_create(ShardWriter* w, const char* path, Error* err) {
    memset(w, 0, sizeof *w);
    char* temporary = format("%s.tmp", path);
    w->file = create_temporary(temporary, err);
    if (!w->file) { free(temporary); return false; }
    w->path = format("%s", path);
    w->temporary = temporary;
    if (shard_write_header(w, err)) { return true; }
    shard_abandon(w);
    return false;
}

// Returns a checksum of tokens against damage: their sum, each weighted by its place. `sum` is the checksum of the
// `first` tokens before.
static uint64_t sum_tokens(uint64_t sum, size_t first, const uint16_t* tokens, size_t count) {
    const uint64_t odd = 0x9fb21c651e98df25ull;
    for (size_t i = 0; i < count; i++) { sum += tokens[i] * ((first + i + 1) * odd); }
    return sum;
}

bool shard_write(ShardWriter* w, const uint16_t* tokens, size_t count, Error* err) {
    bool ok = count <= SHARD_MAX_TOKENS - w->num_tokens ||
              fail(err, "%s: a shard holds at most %zu tokens: use smaller shards", w->path, SHARD_MAX_TOKENS);
    if (ok && fwrite(tokens, sizeof *tokens, count, w->file) != count) { ok = fail_system(err, w->path, "write"); }
    w->sum = sum_tokens(w->sum, w->num_tokens, tokens, count);
    w->num_tokens += count;
    if (!ok) { shard_abandon(w); }
    return ok;
}

// Reads the written shard back: its tokens must be those that were written. One pass gives its checksum too.
static bool shard_read_back(ShardWriter* w, char hex[BLAKE2B_HEX + 1], Error* err) {
    Shard s;
    uint16_t block[1 << 13];
    uint64_t sum = 0;
    Blake2b hash;
    if (!shard_open(&s, w->temporary, err)) { return false; }
    blake2b_begin(&hash);
    bool ok = read_exactly(s.fd, w->temporary, block, SHARD_HEADER_BYTES, 0, err);
    if (ok) { blake2b_add(&hash, block, SHARD_HEADER_BYTES); }
    const size_t end = SHARD_HEADER_BYTES + s.num_tokens * sizeof *block;
    for (size_t at = SHARD_HEADER_BYTES, n; ok && at < end; at += n) {
        n = min_size(sizeof block, end - at);
        ok = read_exactly(s.fd, w->temporary, block, n, at, err);
        if (!ok) { break; }
        sum = sum_tokens(sum, (at - SHARD_HEADER_BYTES) / sizeof *block, block, n / sizeof *block);
        blake2b_add(&hash, block, n);
    }
    shard_close(&s);
    blake2b_end(&hash, hex);
    if (ok && (s.num_tokens != w->num_tokens || sum != w->sum)) {
        ok = fail(err, "%s: what was written reads back otherwise: is the disk damaged?", w->path);
    }
    return ok;
}

bool shard_seal(ShardWriter* w, char hex[BLAKE2B_HEX + 1], Error* err) {
    bool ok = shard_write_header(w, err);
    if (ok) {
        FILE* file = w->file;
        w->file = NULL;
        ok = close_synced(file, w->path, err) && shard_read_back(w, hex, err);
    }
    if (!ok) { shard_abandon(w); }
    return ok;
}

bool shard_commit(ShardWriter* w, char hex[BLAKE2B_HEX + 1], Error* err) {
    bool ok = !w->file || shard_seal(w, hex, err);
    if (ok && rename(w->temporary, w->path) != 0) { ok = fail_system(err, w->path, "rename to it"); }
    ok = ok && sync_parent(w->path, err);
    shard_abandon(w);
    return ok;
}
