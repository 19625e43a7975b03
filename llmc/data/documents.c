#include "documents.h"
#include "../rng.h"
#include "piece_counts.h"
#include <inttypes.h>
#ifdef _OPENMP
#include <omp.h>
#endif

// ---------------------------------------------------------------------------------------------------------------------
// encoding chunks

void encode_document(const Tokenizer* t, const char* text, size_t bytes, TokenList* out) {
    if (bytes == 0) { return; }
    token_list_append(out, t->eot);
    tokenizer_encode(t, text, bytes, out);
}

// Fails if a word of the text needs too much memory.
static bool check_words(const PrepareOptions* o, const Tokenizer* t, const char* text, size_t bytes, Chunk* c) {
    if (bytes <= MAX_WORD_BYTES || t->longest == 1) { return true; }
    const unsigned char *p = (const unsigned char*)text, *end = p + bytes;
    for (size_t n; p < end; p += n) {
        n = tokenizer_piece(t, p, end);
        if (n <= MAX_WORD_BYTES) { continue; }
        // A part of a document cannot be left out.
        c->skip = c->format == FORMAT_TEXT ? NOT_SKIPPED : SKIPPED_LONG;
        const bool is_row = c->format == FORMAT_PARQUET;
        return fail(&c->err, "%s: %s %" PRIu64 ": a word of more than %d MiB", o->inputs[c->at.input],
                    is_row ? "row" : "line", c->at.line + !is_row, MAX_WORD_BYTES >> 20);
    }
    return true;
}

// Counts the pieces of a document, or of a part of one.
static bool count_text(const PrepareOptions* o, const char* text, size_t bytes) {
    int thread = 0;
#ifdef _OPENMP
    thread = omp_get_thread_num();
#endif
    piece_counts_add(o->counts, thread, text, bytes);
    return true;
}

// Encodes a document, or a part of one.
static bool encode_text(const PrepareOptions* o, const Tokenizer* t, const char* text, size_t bytes, Chunk* c) {
    c->bytes = bytes;
    if (bytes == 0 && !c->at.inside_document) { c->skip = SKIPPED_EMPTY; }
    if (o->dedup && c->is_whole) { c->hash = document_hash(text, bytes); }
    if (o->counts) { return count_text(o, text, bytes); }
    if (!t) { return true; }
    if (!check_words(o, t, text, bytes, c)) { return false; }
    if (c->at.inside_document) { tokenizer_encode(t, text, bytes, &c->tokens); }
    else { encode_document(t, text, bytes, &c->tokens); }
    return true;
}

static bool encode_json(const PrepareOptions* o, const Tokenizer* t, Chunk* c) {
    const char* path = o->inputs[c->at.input];
    unsigned long long line = c->at.line + 1;
    json_error_t error;
    json_t* object = json_loadb(c->text.data, c->text.bytes, JSON_ALLOW_NUL, &error);
    json_t* text = json_object_get(object, o->field);
    bool ok = true;
    c->skip = SKIPPED_INVALID;
    if (!object) {
        ok = fail(&c->err, "%s:%llu: invalid JSON: %s (column %d)", path, line, error.text, error.column);
    } else if (!json_is_object(object)) {
        ok = fail(&c->err, "%s:%llu: not a JSON object like {\"%s\": \"...\"}", path, line, o->field);
    } else if (!text) {
        ok = fail(&c->err, "%s:%llu: no field \"%s\": name the one with the text by --field", path, line, o->field);
    } else if (json_is_null(text)) {
        c->skip = SKIPPED_NULL;
    } else if (!json_is_string(text)) {
        ok = fail(&c->err, "%s:%llu: field \"%s\" is not a string", path, line, o->field);
    } else {
        c->skip = NOT_SKIPPED;
        ok = encode_text(o, t, json_string_value(text), json_string_length(text), c);
    }
    json_decref(object);
    return ok;
}

static void encode_chunk(const PrepareOptions* o, const Tokenizer* t, Chunk* c) {
    if (!c->ok || c->skip != NOT_SKIPPED) { return; }
    if (o->stories > 0) {
        c->nll = 0;
        story_make((uint64_t)o->seed, c->at.offset, &c->text, &c->nll);
    }
    c->ok = c->format == FORMAT_JSONL ? encode_json(o, t, c) : encode_text(o, t, c->text.data, c->text.bytes, c);
}

// ---------------------------------------------------------------------------------------------------------------------
// batches

typedef struct {
    Chunk* chunks;
    int* order; // chunks[order[i]] is handed on as number i
    int count;
} Batch;

typedef struct {
    const PrepareOptions* options;
    Reader reader;
    int limit;       // chunks in a batch; begins small, so that a short corpus needs few stories too many
    bool is_at_end;  // of the input
    bool is_enough;  // no more chunks are wanted
    int bad_shown;   // messages about documents that were left out
} Encoder;

// Brings the documents of a window, which begins at `start`, into random order.
static void shuffle_window(Batch* b, Position start, uint64_t seed) {
    if (b->count == 0) { return; }
    int* first = alloc_or_die((size_t)b->count + 1, sizeof *first, "a window of documents"); // chunks of documents
    int count = 0, place = 0;
    for (int i = 0; i < b->count; i++) {
        if (i == 0 || !b->chunks[i].at.inside_document) { first[count++] = i; }
    }
    first[count] = b->count;
    int* documents = alloc_or_die((size_t)count, sizeof *documents, "a window of documents");
    for (int d = 0; d < count; d++) { documents[d] = d; }
    const int fixed = b->chunks[0].at.inside_document;
    const uint64_t key = rng_u64(seed, RNG_DOCUMENTS, mix64(start.input) + start.offset);
    for (int d = count - 2; d > fixed; d--) { // Fisher and Yates
        const int other = fixed + (int)(rng_u64(key, RNG_DOCUMENTS, (uint64_t)d) % (uint64_t)(d - fixed + 1));
        const int document = documents[d];
        documents[d] = documents[other];
        documents[other] = document;
    }
    for (int d = 0; d < count; d++) {
        for (int i = first[documents[d]]; i < first[documents[d] + 1]; i++, place++) {
            b->order[place] = i;
            b->chunks[i].resume = start;
            b->chunks[i].order = (uint64_t)place;
        }
    }
    free(documents);
    free(first);
}

static bool is_shuffled(const PrepareOptions* o) { return o->shuffle_documents >= 0; }

static void read_batch(Encoder* e, Batch* b) {
    const Position start = e->reader.at;
    const size_t max_bytes = is_shuffled(e->options) ? WINDOW_BYTES : BATCH_BYTES;
    size_t bytes = 0;
    b->count = 0;
    while (!e->is_at_end && b->count < e->limit && bytes < max_bytes) {
        Chunk* c = &b->chunks[b->count];
        e->is_at_end = !reader_next(&e->reader, c);
        if (e->is_at_end) { break; }
        bytes += c->text.bytes;
        b->order[b->count] = b->count;
        c->resume = c->at;
        c->order = 0;
        b->count++;
        if (!c->ok && c->skip == NOT_SKIPPED) { e->is_at_end = true; }
    }
    if (e->limit < BATCH_CHUNKS) { e->limit *= 2; }
    if (is_shuffled(e->options)) { shuffle_window(b, start, (uint64_t)e->options->shuffle_documents); }
}

// Ends the program if the chunk is one that it cannot go on after.
static void check_chunk(Encoder* e, const Chunk* c) {
    enum { MAX_SHOWN = 5 };
    if (c->ok) { return; }
    if (c->skip == NOT_SKIPPED) { fatal("%s", c->err.text); }
    if (!e->options->skip_bad) { fatal("%s; --skip_bad 1 leaves out such documents and goes on", c->err.text); }
    if (e->bad_shown < MAX_SHOWN) { notice("left out: %s", c->err.text); }
    if (e->bad_shown++ == MAX_SHOWN) { notice("left out: more, which are only counted"); }
}

static void take_batch(Encoder* e, Batch* b, ChunkTaker* take, void* context) {
    for (int i = 0; i < b->count; i++) {
        Chunk* c = &b->chunks[b->order[i]];
        if (!e->is_enough) {
            check_chunk(e, c);
            e->is_enough = !take(context, c);
        }
        chunk_clear(c);
    }
    b->count = 0;
}

void encode_input(const PrepareOptions* o, const Tokenizer* t, Position at, ChunkTaker* take, void* context) {
    const int room = is_shuffled(o) ? WINDOW_CHUNKS : BATCH_CHUNKS;
    Encoder e = {.options = o, .limit = is_shuffled(o) ? WINDOW_CHUNKS : FIRST_BATCH};
    Batch batches[3];
    for (int i = 0; i < 3; i++) {
        batches[i].chunks = alloc_or_die((size_t)room, sizeof(Chunk), "a batch of documents");
        batches[i].order = alloc_or_die((size_t)room, sizeof(int), "a batch of documents");
        batches[i].count = 0;
    }
    reader_open(&e.reader, o, at);
    Batch *next = &batches[0], *now = &batches[1], *last = &batches[2];
    read_batch(&e, next);
    while (next->count > 0 || now->count > 0) {
        Batch* free_batch = last;
        last = now;
        now = next;
        next = free_batch;
        if (e.is_enough) { e.is_at_end = true; }
#ifdef _OPENMP
#pragma omp parallel
#endif
        {
#ifdef _OPENMP
#pragma omp single nowait
#endif
            read_batch(&e, next);
#ifdef _OPENMP
#pragma omp single nowait
#endif
            take_batch(&e, last, take, context);
#ifdef _OPENMP
#pragma omp for schedule(dynamic)
#endif
            for (int i = 0; i < now->count; i++) { encode_chunk(o, t, &now->chunks[i]); }
        }
    }
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < batches[i].count; k++) { chunk_clear(&batches[i].chunks[k]); }
        free(batches[i].chunks);
        free(batches[i].order);
    }
    reader_close(&e.reader);
}
