#include "documents.h"
#include "../base/rng.h"
#include "../base/threads.h"
#include "../tokenizer/piece_counts.h"
#include <inttypes.h>
#include <jansson.h>

// ---------------------------------------------------------------------------------------------------------------------
// encoding chunks

void encode_document(const Tokenizer* t, const char* text, size_t bytes, TokenList* out) {
    if (bytes == 0) { return; }
    token_list_append(out, t->eot);
    tokenizer_encode(t, text, bytes, out);
}

// Fails if a word of the text needs too much memory.
static bool check_words(const PrepareOptions* o, const Tokenizer* t, const char* text, size_t bytes, Chunk* c,
                        Error* err) {
    if (bytes <= MAX_WORD_BYTES || t->longest == 1) { return true; }
    const unsigned char *p = (const unsigned char*)text, *end = p + bytes;
    for (size_t n; p < end; p += n) {
        n = tokenizer_piece(t, p, end);
        if (n <= MAX_WORD_BYTES) { continue; }
        // A part of a document cannot be left out.
        c->skip = c->format == format_text ? NOT_SKIPPED : SKIPPED_LONG;
        const bool is_row = c->format == format_parquet;
        return fail(err, "%s: %s %" PRIu64 ": a word of more than %d MiB", o->inputs[c->at.input],
                    is_row ? "row" : "line", c->at.line + !is_row, MAX_WORD_BYTES >> 20);
    }
    return true;
}

// Encodes a document, or a part of one, or counts its pieces.
static bool encode_text(const PrepareOptions* o, const Tokenizer* t, const char* text, size_t bytes, Chunk* c,
                        Error* err) {
    c->bytes = bytes;
    if (bytes == 0) { c->skip = SKIPPED_EMPTY; }
    if (o->counts) { piece_counts_add(o->counts, thread_number(), text, bytes); }
    if (!t) { return true; }
    if (!check_words(o, t, text, bytes, c, err)) { return false; }
    if (c->at.inside_document) { tokenizer_encode(t, text, bytes, &c->tokens); }
    else { encode_document(t, text, bytes, &c->tokens); }
    return true;
}

// Whole numbers are read as reals: those beyond 64 bits are valid, too.
static bool encode_json(const PrepareOptions* o, const Tokenizer* t, Chunk* c, Error* err) {
    const char* path = o->inputs[c->at.input];
    unsigned long long line = c->at.line + 1;
    json_error_t error;
    json_t* object = json_loadb(c->text.data, c->text.bytes, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &error);
    json_t* text = json_object_get(object, o->field);
    bool ok = true;
    c->skip = SKIPPED_INVALID;
    if (!object) {
        ok = fail(err, "%s:%llu: invalid JSON: %s (column %d)", path, line, error.text, error.column);
    } else if (!json_is_object(object)) {
        ok = fail(err, "%s:%llu: not a JSON object like {\"%s\": \"...\"}", path, line, o->field);
    } else if (!text) {
        ok = fail(err, "%s:%llu: no field \"%s\": name the one with the text by --field", path, line, o->field);
    } else if (json_is_null(text)) {
        c->skip = SKIPPED_NULL;
    } else if (!json_is_string(text)) {
        ok = fail(err, "%s:%llu: field \"%s\" is not a string", path, line, o->field);
    } else {
        c->skip = NOT_SKIPPED;
        ok = encode_text(o, t, json_string_value(text), json_string_length(text), c, err);
    }
    json_decref(object);
    return ok;
}

static void encode_chunk(const PrepareOptions* o, const Tokenizer* t, Chunk* c) {
    if (!c->ok || c->skip != NOT_SKIPPED) { return; }
    if (o->stories > 0) { story_make((uint64_t)o->seed, c->at.offset, &c->text, &c->nll); }
    Error err;
    c->ok = c->format == format_jsonl ? encode_json(o, t, c, &err)
                                      : encode_text(o, t, c->text.data, c->text.bytes, c, &err);
    if (!c->ok) { c->error = format("%s", err.text); }
}

// ---------------------------------------------------------------------------------------------------------------------
// batches

typedef struct {
    Chunk* chunks;
    int* order; // chunks[order[i]] is handed on as number i
    int count;
} ChunkBatch;

// Reads ahead in a source.
typedef struct {
    const PrepareOptions* options;
    Reader reader;
    ChunkBatch batches[3];
    ChunkBatch *next, *now, *ready; // to be read, to be encoded, to be handed on
    bool is_encoded;           // `now`
    int taken;                 // chunks of `ready` that were handed on
    uint64_t passed;           // chunks still to come that were taken in an earlier run
    int limit, max_chunks;     // chunks in a batch; begins small, so that a short corpus needs few stories too many
    size_t max_bytes;
    bool is_at_end;            // of the source
} Feed;

// Brings the documents of a window, which begins at `start`, into random order.
static void shuffle_window(ChunkBatch* b, Position start, uint64_t seed) {
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

static void read_batch(Feed* f, ChunkBatch* b) {
    const Position start = f->reader.at;
    size_t bytes = 0;
    b->count = 0;
    while (!f->is_at_end && b->count < f->limit && bytes < f->max_bytes) {
        Chunk* c = &b->chunks[b->count];
        memset(c, 0, sizeof *c);
        f->is_at_end = !reader_next(&f->reader, c);
        if (f->is_at_end) { break; }
        bytes += c->text.bytes;
        b->order[b->count] = b->count;
        c->resume = c->at;
        b->count++;
        if (!c->ok && c->skip == NOT_SKIPPED) { f->is_at_end = true; }
    }
    f->limit = (int)min_size(2 * (size_t)f->limit, (size_t)f->max_chunks);
    if (f->options->shuffle) { shuffle_window(b, start, (uint64_t)f->options->seed); }
}

static void feed_open(Feed* f, const PrepareOptions* o, const Source* source, double share, const SourceState* state) {
    const int max_chunks = o->shuffle ? WINDOW_CHUNKS : BATCH_CHUNKS;
    memset(f, 0, sizeof *f);
    f->options = o;
    f->max_chunks = (int)max_size(1, (size_t)(share * max_chunks));
    f->max_bytes = max_size(1, (size_t)(share * (o->shuffle ? WINDOW_BYTES : BATCH_BYTES)));
    f->limit = o->shuffle ? f->max_chunks : (int)min_size(FIRST_BATCH, (size_t)f->max_chunks);
    f->passed = state->chunks;
    f->next = &f->batches[0];
    f->now = &f->batches[1];
    f->ready = &f->batches[2];
    for (int i = 0; i < 3; i++) { // memory that is never used costs nothing
        f->batches[i].chunks = alloc_or_die((size_t)f->max_chunks, sizeof(Chunk), "a batch of documents");
        f->batches[i].order = alloc_or_die((size_t)f->max_chunks, sizeof(int), "a batch of documents");
    }
    reader_open(&f->reader, o, source, state->at);
}

static void feed_close(Feed* f) {
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < f->batches[i].count; k++) { chunk_clear(&f->batches[i].chunks[k]); }
        free(f->batches[i].chunks);
        free(f->batches[i].order);
    }
    reader_close(&f->reader);
}

static bool has_ready(const Feed* f) { return f->taken < f->ready->count; }

// Moves the batches on if all of `ready` was handed on.
static void feed_advance(Feed* f) {
    if (has_ready(f)) { return; }
    ChunkBatch* used = f->ready;
    used->count = f->taken = 0;
    f->ready = f->now;
    f->now = f->next;
    f->next = used;
    f->is_encoded = false;
}

// ---------------------------------------------------------------------------------------------------------------------
// the mixture

InputState input_begin(const PrepareOptions* o) {
    InputState state;
    memset(&state, 0, sizeof state);
    for (size_t i = 0; i < o->num_sources; i++) { state.sources[i].at.input = o->sources[i].first_input; }
    return state;
}

size_t mix_choose(const PrepareOptions* o, const InputState* state) {
    size_t best = o->num_sources;
    double least = INFINITY;
    for (size_t i = 0; i < o->num_sources; i++) {
        const double progress = (double)state->sources[i].tokens / o->sources[i].weight;
        if (progress >= least) { continue; }
        least = progress;
        best = i;
    }
    return best;
}

typedef struct {
    const PrepareOptions* options;
    InputState* state;
    Feed* feeds;                  // one for each source
    bool is_used_up[MAX_SOURCES]; // set between rounds
    bool is_enough;               // no more chunks are wanted
    int bad_shown;                // messages about documents that were left out
} Mixer;

static Chunk* first_ready(const Feed* f) { return &f->ready->chunks[f->ready->order[f->taken]]; }

// Returns the source of the next chunk; num_sources at the end of the input.
static size_t next_source(const Mixer* m) {
    const size_t n = m->options->num_sources, current = m->state->current;
    for (size_t i = 0; i < n; i++) { if (m->feeds[i].passed > 0 && !m->is_used_up[i]) { return i; } }
    // The next chunk tells whether the document goes on.
    const Feed* f = &m->feeds[current];
    if (!m->is_used_up[current] && (!has_ready(f) || first_ready(f)->at.inside_document)) { return current; }
    const size_t best = mix_choose(m->options, m->state);
    return m->is_used_up[best] ? n : best;
}

// Ends the program if the chunk is one that it cannot go on after.
static void check_chunk(Mixer* m, const Chunk* c) {
    enum { MAX_SHOWN = 5 };
    if (c->ok) { return; }
    if (c->skip == NOT_SKIPPED) { fatal("%s", c->error); }
    if (!m->options->skip_bad) {
        fatal("%s%s", c->error, prepare_advice(m->options, "; --skip_bad 1 leaves out such documents and goes on"));
    }
    if (c->was_taken) { return; }
    if (m->bad_shown < MAX_SHOWN) { notice("left out: %s", c->error); }
    if (m->bad_shown++ == MAX_SHOWN) { notice("left out: more, which are only counted"); }
}

static void take_chunk(Mixer* m, size_t source, ChunkTaker* take, void* context) {
    Feed* f = &m->feeds[source];
    SourceState* s = &m->state->sources[source];
    Chunk* c = first_ready(f);
    c->was_taken = f->passed > 0;
    check_chunk(m, c);
    m->is_enough = !take(context, c);
    if (c->was_taken) {
        f->passed--;
    } else if (!m->is_enough) {
        s->at = c->resume;
        s->chunks = c->order + 1;
        s->tokens += c->tokens.count;
        m->state->current = source;
    }
    chunk_clear(c);
    f->taken++;
}

// Hands chunks on until the source of the next one has none ready.
static void take_ready(Mixer* m, ChunkTaker* take, void* context) {
    while (!m->is_enough) {
        const size_t source = next_source(m);
        if (source == m->options->num_sources) { m->is_enough = true; break; }
        if (!has_ready(&m->feeds[source])) { break; }
        take_chunk(m, source, take, context);
    }
}

// Reads, encodes and hands on at the same time, each one batch of a source.
static void mixer_round(Mixer* m, const Tokenizer* t, ChunkTaker* take, void* context) {
    const int n = (int)m->options->num_sources;
    for (int i = 0; i < n; i++) {
        Feed* f = &m->feeds[i];
        feed_advance(f);
        m->is_used_up[i] = f->is_at_end && !has_ready(f) && f->now->count == 0 && f->next->count == 0;
    }
    #pragma omp parallel
    {
        #pragma omp for schedule(dynamic) nowait
        for (int i = 0; i < n; i++) {
            if (m->feeds[i].next->count == 0) { read_batch(&m->feeds[i], m->feeds[i].next); }
        }
        #pragma omp single nowait
        take_ready(m, take, context);
        for (int i = 0; i < n; i++) {
            Feed* f = &m->feeds[i];
            const int count = f->is_encoded ? 0 : f->now->count;
            #pragma omp for schedule(dynamic) nowait
            for (int k = 0; k < count; k++) { encode_chunk(m->options, t, &f->now->chunks[k]); }
        }
    }
    for (int i = 0; i < n; i++) { m->feeds[i].is_encoded = true; }
}

void encode_input(const PrepareOptions* o, const Tokenizer* t, InputState* state, ChunkTaker* take, void* context) {
    Mixer* m = alloc_or_die(1, sizeof *m, "the sources of the input");
    double sum = 0;
    m->options = o;
    m->feeds = alloc_or_die(o->num_sources, sizeof *m->feeds, "the sources of the input");
    m->state = state;
    for (size_t i = 0; i < o->num_sources; i++) { sum += o->sources[i].weight; }
    for (size_t i = 0; i < o->num_sources; i++) {
        feed_open(&m->feeds[i], o, &o->sources[i], o->sources[i].weight / sum, &state->sources[i]);
    }
    while (!m->is_enough) { mixer_round(m, t, take, context); }
    for (size_t i = 0; i < o->num_sources; i++) { feed_close(&m->feeds[i]); }
    free(m->feeds);
    free(m);
}
