#include "manifest.h"
#include "../base/json.h"
#include "../data/shard.h"

size_t first_shard(const json_t* manifest) {
    return json_integer_value(json_object_get(manifest, "val_size")) == 0 ? 1 : 0;
}

char* shard_name(const PrepareOptions* o, size_t number) {
    return format("%s_%s_%06zu.bin", o->out, number == 0 ? "val" : "train", number);
}

static json_t* describe_mix(const PrepareOptions* o) {
    json_t* sources = json_array();
    for (size_t i = 0; i < o->num_sources; i++) {
        const Source* s = &o->sources[i];
        json_array_append_new(sources, json_pack("{s:I, s:f}", "files", (json_int_t)(s->end_input - s->first_input),
                                                 "weight", s->weight));
    }
    return json_pack("{s:o}", "sources", sources);
}

static struct stat stat_or_die(const char* path) {
    struct stat s;
    if (stat(path, &s) != 0) { fatal("%s: cannot look at it: %s", path, strerror(errno)); }
    return s;
}

struct stat* look_at_inputs(const PrepareOptions* o) {
    if (is_standard_input(o)) { return NULL; }
    struct stat* inputs = alloc_or_die(o->num_inputs + 1, sizeof *inputs, "inputs"); // stories: there are none
    for (size_t i = 0; i < o->num_inputs; i++) { inputs[i] = stat_or_die(o->inputs[i]); }
    return inputs;
}

const char* changed_input(const PrepareOptions* o, const struct stat* before) {
    for (size_t i = 0; before && i < o->num_inputs; i++) {
        const struct stat now = stat_or_die(o->inputs[i]), *then = &before[i];
        const bool is_same = now.st_dev == then->st_dev && now.st_ino == then->st_ino && now.st_size == then->st_size &&
                             now.st_mtim.tv_sec == then->st_mtim.tv_sec && now.st_mtim.tv_nsec == then->st_mtim.tv_nsec;
        if (!is_same) { return o->inputs[i]; }
    }
    return NULL;
}

// Reads a whole input file and returns {"name", "bytes", "hash"}, a new reference; NULL if its name is not UTF-8. Ends
// the program if it cannot be read.
static json_t* describe_input(const char* path) {
    enum { PIECE = 1 << 20 };
    Error err;
    FILE* f = fopen_regular(path, &err);
    if (!f) { fatal("%s", err.text); }
    unsigned char* buffer = realloc_or_die(NULL, PIECE, path);
    uint64_t hash = 0, size = 0;
    for (size_t n; (n = fread(buffer, 1, PIECE, f)) > 0; size += n) { hash = hash64(buffer, n, hash); }
    if (ferror(f)) { fatal("%s: cannot read: %s", path, strerror(errno)); }
    fclose(f);
    free(buffer);
    return json_pack("{s:s, s:I, s:o}", "name", path, "bytes", (json_int_t)size, "hash", json_hex(hash));
}

json_t* describe_work(const PrepareOptions* o, const Tokenizer* t) {
    json_t* inputs = json_array();
    for (size_t i = 0; i < o->num_inputs; i++) {
        json_t* input = is_standard_input(o) ? json_pack("{s:s}", "name", "-") : describe_input(o->inputs[i]);
        if (!input) { fatal("%s: the name is not valid UTF-8: rename the file", o->inputs[i]); }
        json_array_append_new(inputs, input);
    }
    json_t* work = json_pack("{s:o, s:o, s:s, s:s, s:s, s:I, s:I, s:I, s:I}", "inputs", inputs, "tokenizer_hash",
                             json_hex(tokenizer_hash(t)), "split", o->split, "format", format_names[o->format],
                             "field", o->field, "val_size", (json_int_t)o->val_size, "shard_size",
                             (json_int_t)o->shard_size, "stories", (json_int_t)o->stories, "seed", (json_int_t)o->seed);
    // Only if they are given, so that the records of older versions stay valid.
    if (work && o->shuffle) { json_object_set_new(work, "shuffle", json_true()); }
    if (work && *o->mix) { json_object_set_new(work, "mix", describe_mix(o)); }
    if (!work) { usage_error("--split, --format or --field is not valid UTF-8"); }
    return work;
}

void save_manifest(const json_t* manifest, const char* path) {
    Error err;
    if (!json_save(manifest, path, &err)) { fatal("%s", err.text); }
}

static json_t* pack_start(const PrepareOptions* o, const ShardStart* start) {
    json_t* sources = json_array();
    for (size_t i = 0; i < o->num_sources; i++) {
        const SourceState* s = &start->input.sources[i];
        json_array_append_new(sources, json_pack("{s:I, s:I, s:I, s:b, s:I, s:I}", "input", (json_int_t)s->at.input,
                                                 "offset", (json_int_t)s->at.offset, "line", (json_int_t)s->at.line,
                                                 "inside_document", s->at.inside_document, "chunks",
                                                 (json_int_t)s->chunks, "tokens", (json_int_t)s->tokens));
    }
    return json_pack("{s:o, s:I, s:I}", "sources", sources, "current", (json_int_t)start->input.current, "skip",
                     (json_int_t)start->skip);
}

json_t* new_manifest(const PrepareOptions* o, json_t* work, uint64_t val_size) {
    const ShardStart start = {.input = input_begin(o)};
    return json_pack("{s:O, s:I, s:[], s:o, s:f, s:b}", "made_from", work, "val_size", (json_int_t)val_size, "shards",
                     "next", pack_start(o, &start), "nll", 0.0, "complete", 0);
}

void record_shard(const PrepareOptions* o, json_t* manifest, size_t tokens, const ShardStart* next) {
    json_array_append_new(json_object_get(manifest, "shards"), json_integer((json_int_t)tokens));
    json_object_set_new(manifest, "next", pack_start(o, next));
}

// Reads how far a source was handed on. Returns false if the record is damaged.
static bool unpack_source(json_t* object, const Source* source, SourceState* s) {
    json_int_t input, offset, line, chunks = 0, tokens = 0; // older records have neither chunks nor tokens
    int inside_document;
    if (json_unpack(object, "{s:I, s:I, s:I, s:b, s?I, s?I}", "input", &input, "offset", &offset, "line", &line,
                    "inside_document", &inside_document, "chunks", &chunks, "tokens", &tokens) != 0) {
        return false;
    }
    s->at = (Position){.input = (size_t)input, .offset = (uint64_t)offset, .line = (uint64_t)line,
                       .inside_document = inside_document != 0};
    s->chunks = (uint64_t)chunks;
    s->tokens = (uint64_t)tokens;
    return input >= (json_int_t)source->first_input && input <= (json_int_t)source->end_input && offset >= 0 &&
           line >= 0 && chunks >= 0 && tokens >= 0;
}

ShardStart next_shard_start(const PrepareOptions* o, const json_t* manifest, const char* path) {
    ShardStart start = {.skip = 0};
    json_t *next = json_object_get(manifest, "next"), *sources = json_object_get(next, "sources");
    json_int_t current = 0, skip = -1;
    json_unpack(next, "{s?I, s:I}", "current", &current, "skip", &skip);
    bool ok = skip >= 0 && current >= 0 && current < (json_int_t)o->num_sources;
    ok = ok && (!sources || json_array_size(sources) == o->num_sources);
    for (size_t i = 0; ok && i < o->num_sources; i++) { // in older records `next` is the only source
        ok = unpack_source(sources ? json_array_get(sources, i) : next, &o->sources[i], &start.input.sources[i]);
    }
    if (!ok) { fatal("%s: damaged: use --force to make everything anew", path); }
    start.input.current = (size_t)current;
    start.skip = (uint64_t)skip;
    return start;
}

// Finds the shards of this prefix that exist, whichever run made them, or with another ending those that a kill left.
static glob_t find_shards(const PrepareOptions* o, const char* ending) {
    char* escaped = path_as_pattern(o->out);
    Error err;
    glob_t found = {0};
    static const char* const kinds[] = {"val", "train"};
    for (int i = 0; i < 2; i++) {
        char* pattern = format("%s_%s_[0-9][0-9][0-9][0-9][0-9][0-9]%s", escaped, kinds[i], ending);
        if (!find_paths(&found, pattern, &err)) { fatal("%s", err.text); }
        free(pattern);
    }
    free(escaped);
    return found;
}

static void remove_or_die(const char* path) {
    if (unlink(path) != 0 && errno != ENOENT) { fatal("%s: cannot remove: %s", path, strerror(errno)); }
}

// Returns true if there is a file that does not mention `key`: it is not ours.
static bool is_foreign(const char* path, const char* key) {
    Error err;
    size_t size;
    if (!path_exists(path)) { return false; }
    char *text = read_file(path, &size, &err), *quoted = format("\"%s\"", key);
    if (!text) { fatal("%s", err.text); }
    const bool is_ours = memmem(text, size, quoted, strlen(quoted)) != NULL;
    free(quoted);
    free(text);
    return !is_ours;
}

void refuse_foreign_files(const PrepareOptions* o, const Records* r) {
    const char* path = is_foreign(r->manifest, "made_from")                 ? r->manifest
                       : o->stories > 0 && is_foreign(r->floor, "nll") ? r->floor
                                                                       : NULL;
    if (path) { fatal("%s is no file of ./prepare and would be replaced: move it, or give another --out", path); }
}

static void remove_found(const PrepareOptions* o, const char* ending) {
    glob_t shards = find_shards(o, ending);
    for (size_t i = 0; i < shards.gl_pathc; i++) { remove_or_die(shards.gl_pathv[i]); }
    globfree(&shards);
}

void remove_unfinished(const PrepareOptions* o) { remove_found(o, ".bin.tmp"); }

void remove_shards(const PrepareOptions* o, const Records* r) {
    if (!is_foreign(r->floor, "nll")) { remove_or_die(r->floor); }
    remove_or_die(r->sums);
    remove_found(o, ".bin");
}

static void check_same_work(const char* path, const json_t* there, const json_t* now) {
    const char* key;
    json_t* unused;
    json_t* keys = json_object(); // of both
    json_object_update(keys, (json_t*)now);
    json_object_update(keys, (json_t*)there);
    json_object_foreach(keys, key, unused) {
        json_t *old = json_object_get(there, key), *value = json_object_get(now, key);
        if (json_equal(value, old)) { continue; }
        char *was = json_value_text(old), *is = json_value_text(value);
        char* what = !strcmp(key, "inputs")           ? format("other input")
                     : !strcmp(key, "tokenizer_hash") ? format("another --tokenizer")
                     : !strcmp(key, "mix")            ? format("another --mix")
                     : !was                           ? format("no --%s", key)
                     : !is                            ? format("--%s %s", key, was)
                                                      : format("--%s %s, now %s", key, was, is);
        fatal("%s: the shards there were made with %s: use another --out, or --force to replace them", path, what);
    }
    json_decref(keys);
}

uint64_t check_shards(const PrepareOptions* o, const char* path, const json_t* manifest) {
    uint64_t sum = 0;
    const json_t* shards = json_object_get(manifest, "shards");
    size_t first = first_shard(manifest);
    for (size_t i = 0; i < json_array_size(shards); i++) {
        char* name = shard_name(o, first + i);
        json_int_t tokens = json_integer_value(json_array_get(shards, i));
        Shard shard;
        Error err;
        if (!shard_open(&shard, name, &err)) { fatal("%s (recorded in %s; --force makes all anew)", err.text, path); }
        if ((json_int_t)shard.num_tokens != tokens) {
            fatal("%s: %zu tokens, but %s records %" JSON_INTEGER_FORMAT ": --force makes all anew", name,
                  shard.num_tokens, path, tokens);
        }
        sum += shard.num_tokens;
        shard_close(&shard);
        free(name);
    }
    return sum;
}

json_t* load_manifest(const PrepareOptions* o, const char* path, const json_t* work) {
    Error err;
    bool exists = path_exists(path);
    json_t* manifest = exists ? json_read(path, SIZE_MAX, 0, &err) : NULL;
    if (exists && !manifest && err.is_unknown) { fatal("%s", err.text); }
    const json_t *made_from = json_object_get(manifest, "made_from"), *shards = json_object_get(manifest, "shards");
    const bool is_complete = json_is_true(json_object_get(manifest, "complete"));
    const bool is_damaged = !json_is_object(made_from) || !json_is_array(shards) ||
                            (is_complete && json_array_size(shards) <= 1 - first_shard(manifest));
    if (exists && is_damaged) {
        fatal("%s: damaged: use --force to make everything anew", path);
    }
    glob_t found = find_shards(o, ".bin");
    if (found.gl_pathc > 0 && !exists) {
        fatal("%s exists already: use another --out, or --force to replace it", found.gl_pathv[0]);
    }
    bool begun = json_array_size(shards) > 0 || found.gl_pathc > 0;
    globfree(&found);
    if (!begun) { json_decref(manifest); return NULL; }
    if (is_standard_input(o)) {
        fatal("%s exists already, and standard input cannot be continued: use another --out, or --force", path);
    }
    check_same_work(path, made_from, work);
    return manifest;
}
