// The command line of ./prepare, and the record of what it has done.
#pragma once
#include "../llmc/config.h"
#include "../llmc/shard.h"
#include "input.h"
#include <glob.h>

static const uint64_t NOT_GIVEN = UINT64_MAX; // of a number on the command line

// ---------------------------------------------------------------------------------------------------------------------
// the command line

typedef enum { OPTION_TEXT, OPTION_NUMBER, OPTION_SWITCH } OptionKind;

typedef struct {
    const char* name;
    OptionKind kind;
    size_t offset; // in PrepareOptions
    const char* help;
} PrepareOption;

static const PrepareOption PREPARE_OPTIONS[] = {
    {"out", OPTION_TEXT, offsetof(PrepareOptions, out),
     "PREFIX of the shards: PREFIX_val_000000.bin, PREFIX_train_000001.bin, ... (required)"},
    {"tokenizer", OPTION_TEXT, offsetof(PrepareOptions, tokenizer), "gpt2, bytes, or a tokenizer file (gpt2)"},
    {"val_size", OPTION_NUMBER, offsetof(PrepareOptions, val_size),
     "tokens of the validation split (a tenth, at most 100000000; needed with standard input)"},
    {"shard_size", OPTION_NUMBER, offsetof(PrepareOptions, shard_size), "tokens of a training shard (100000000)"},
    {"split", OPTION_TEXT, offsetof(PrepareOptions, split),
     "where a text ends a document: none, blank (after a blank line), or at a line like this, which is dropped (none)"},
    {"format", OPTION_TEXT, offsetof(PrepareOptions, format),
     "of the input: text, jsonl, or auto: jsonl if its name ends in .jsonl, .ndjson or .json (auto)"},
    {"field", OPTION_TEXT, offsetof(PrepareOptions, field), "which field of a line of JSONL has the text (text)"},
    {"stories", OPTION_NUMBER, offsetof(PrepareOptions, stories),
     "in place of input files: this many tokens of the built-in corpus, in whole stories"},
    {"seed", OPTION_NUMBER, offsetof(PrepareOptions, seed), "of the built-in corpus (1337)"},
    {"threads", OPTION_NUMBER, offsetof(PrepareOptions, threads), "0: as many as OpenMP sees fit (0)"},
    {"force", OPTION_SWITCH, offsetof(PrepareOptions, force), "remove the shards of this PREFIX first"},
    {"help", OPTION_SWITCH, offsetof(PrepareOptions, help), "show this"},
};
enum { NUM_PREPARE_OPTIONS = sizeof PREPARE_OPTIONS / sizeof *PREPARE_OPTIONS };

static inline void print_help(void) {
    puts("Makes token shards from text.\n");
    puts("usage: ./prepare --out PREFIX [--option value ...] FILE... | - | --stories N\n");
    const PrepareOption* end = PREPARE_OPTIONS + NUM_PREPARE_OPTIONS;
    for (const PrepareOption* o = PREPARE_OPTIONS; o < end; o++) { printf("  --%-11s %s\n", o->name, o->help); }
}

static const PrepareOption* find_option(const char* name) {
    const PrepareOption* nearest = PREPARE_OPTIONS;
    for (const PrepareOption* o = PREPARE_OPTIONS; o < PREPARE_OPTIONS + NUM_PREPARE_OPTIONS; o++) {
        if (edit_distance(name, o->name) < edit_distance(name, nearest->name)) { nearest = o; }
    }
    if (strcmp(name, nearest->name) != 0) { usage_error("no option --%s; did you mean --%s?", name, nearest->name); }
    return nearest;
}

static inline uint64_t parse_number(const char* name, const char* value) {
    char* end;
    errno = 0;
    unsigned long long n = strtoull(value, &end, 10);
    bool digits = *value && strspn(value, "0123456789") == strlen(value);
    if (!digits || errno || n > INT64_MAX) { usage_error("--%s '%s': not a number of digits alone", name, value); }
    return n;
}

// Takes the option at argv[i]; returns the index of its last word.
static inline int parse_option(PrepareOptions* o, int argc, char** argv, int i) {
    const PrepareOption* option = find_option(strcmp(argv[i], "-h") == 0 ? "help" : argv[i] + 2);
    char* field = (char*)o + option->offset;
    if (option->kind == OPTION_SWITCH) {
        bool given = i + 1 < argc && (!strcmp(argv[i + 1], "0") || !strcmp(argv[i + 1], "1"));
        *(bool*)field = !given || argv[i + 1][0] == '1';
        return i + given;
    }
    if (i + 1 == argc) { usage_error("--%s needs a value", option->name); }
    if (option->kind == OPTION_NUMBER) { *(uint64_t*)field = parse_number(option->name, argv[i + 1]); }
    else { *(const char**)field = argv[i + 1]; }
    return i + 1;
}

static inline bool is_same_file(const char* a, const char* b) {
    struct stat s, t;
    return stat(a, &s) == 0 && stat(b, &t) == 0 && s.st_dev == t.st_dev && s.st_ino == t.st_ino;
}

static inline void check_options(const PrepareOptions* o) {
    if (!o->out || !*o->out) { usage_error("--out is missing: the PREFIX of the shards to be made, like data/mytext"); }
    if (o->stories > 0 && o->num_inputs > 0) { usage_error("--stories and input files: give one or the other"); }
    if (o->stories == 0 && o->num_inputs == 0) {
        usage_error("no input: give text or JSONL files, - for standard input, or --stories N; see --help");
    }
    char* manifest = format("%s.json", o->out);
    for (size_t i = 0; i < o->num_inputs; i++) {
        if (o->num_inputs > 1 && !strcmp(o->inputs[i], "-")) { usage_error("- must be the only input"); }
        if (is_same_file(o->inputs[i], manifest)) {
            usage_error("--out %s: its record would be written over the input %s", o->out, o->inputs[i]);
        }
    }
    free(manifest);
    if (o->num_inputs > 0 && is_standard_input(o) && o->val_size == NOT_GIVEN) {
        usage_error("--val_size must be given with standard input, whose length is not known in advance");
    }
    if (!is_one_of(o->format, "auto|text|jsonl")) { usage_error("--format '%s': auto, text or jsonl", o->format); }
    if (!*o->split) { usage_error("--split '': give none, blank, or a line"); }
    if (o->threads > 4096) { usage_error("--threads %" PRIu64 ": 0 to 4096", o->threads); }
    if (o->shard_size == 0 || o->shard_size > SHARD_MAX_TOKENS) {
        usage_error("--shard_size %" PRIu64 ": 1 to %zu tokens", o->shard_size, SHARD_MAX_TOKENS);
    }
    if (o->val_size != NOT_GIVEN && o->val_size > SHARD_MAX_TOKENS) {
        usage_error("--val_size %" PRIu64 ": 0 to %zu tokens", o->val_size, SHARD_MAX_TOKENS);
    }
}

static inline PrepareOptions parse_options(int argc, char** argv) {
    PrepareOptions o;
    memset(&o, 0, sizeof o);
    o.tokenizer = "gpt2";
    o.split = "none";
    o.format = "auto";
    o.field = "text";
    o.val_size = NOT_GIVEN;
    o.shard_size = 100000000;
    o.seed = 1337;
    o.inputs = (char**)alloc_or_die((size_t)argc, sizeof *o.inputs, "the names of the inputs");
    for (int i = 1; i < argc; i++) {
        bool is_option = strncmp(argv[i], "--", 2) == 0 || strcmp(argv[i], "-h") == 0;
        if (is_option) { i = parse_option(&o, argc, argv, i); continue; }
        if (argv[i][0] == '-' && argv[i][1]) { usage_error("no option %s: see --help", argv[i]); }
        o.inputs[o.num_inputs++] = argv[i];
    }
    if (!o.help) { check_options(&o); }
    return o;
}

// ---------------------------------------------------------------------------------------------------------------------
// the manifest, PREFIX.json: {"made_from": inputs and options, "val_size": resolved, "shards": [tokens of each that is
// done], "next": where the next one begins, "nll": of the validation stories, "complete": bool}

// Shard 0 is the validation split, which there may not be.
static inline size_t first_shard(const json_t* manifest) {
    return json_integer_value(json_object_get(manifest, "val_size")) == 0 ? 1 : 0;
}

static inline char* shard_name(const PrepareOptions* o, size_t number) {
    return format("%s_%s_%06zu.bin", o->out, number == 0 ? "val" : "train", number);
}

static inline uint64_t tokenizer_hash(const Tokenizer* t) {
    uint64_t hash = (uint64_t)t->eot;
    for (int id = 0; id < t->vocab_size; id++) {
        size_t bytes;
        const char* token = tokenizer_token(t, id, &bytes);
        hash = hash64(token, bytes, hash);
    }
    return hash;
}

// All that the shards' bytes depend on.
static inline json_t* describe_work(const PrepareOptions* o, const Tokenizer* t) {
    json_t* inputs = json_array();
    for (size_t i = 0; i < o->num_inputs; i++) {
        json_t* input = is_standard_input(o) ? json_pack("{s:s}", "name", "-") : describe_input(o->inputs[i]);
        if (!input) { fatal("%s: the name is not valid UTF-8: rename the file", o->inputs[i]); }
        json_array_append_new(inputs, input);
    }
    char hash[17];
    snprintf(hash, sizeof hash, "%016" PRIx64, tokenizer_hash(t));
    json_t* work = json_pack("{s:o, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I}", "inputs", inputs, "tokenizer_hash", hash,
                             "split", o->split, "format", o->format, "field", o->field, "val_size",
                             o->val_size == NOT_GIVEN ? (json_int_t)-1 : (json_int_t)o->val_size, "shard_size",
                             (json_int_t)o->shard_size, "stories", (json_int_t)o->stories, "seed", (json_int_t)o->seed);
    if (!work) { usage_error("--split, --format or --field is not valid UTF-8"); }
    return work;
}

// Writes JSON under a temporary name, then renames it.
static inline void save_json(const json_t* json, const char* path) {
    Error err;
    char* temporary = format("%s.tmp", path);
    FILE* f = fopen(temporary, "wb");
    if (!f) { fatal("%s: cannot create: %s", temporary, strerror(errno)); }
    bool ok = json_dumpf(json, f, JSON_INDENT(1) | JSON_REAL_PRECISION(17)) == 0 && fputc('\n', f) != EOF;
    ok = close_synced(f, path, &err) && (ok || fail(&err, "%s: cannot write", path));
    if (ok && rename(temporary, path) != 0) { ok = fail(&err, "%s: cannot rename: %s", temporary, strerror(errno)); }
    if (!ok || !sync_parent(path, &err)) {
        unlink(temporary);
        fatal("%s", err.text);
    }
    free(temporary);
}

// The shards of this prefix that exist, whoever made them.
static inline glob_t find_shards(const PrepareOptions* o) {
    char* escaped = (char*)alloc_or_die(2 * strlen(o->out) + 1, 1, "a name");
    size_t n = 0;
    for (const char* c = o->out; *c; c++) {
        if (strchr("*?[]\\", *c)) { escaped[n++] = '\\'; }
        escaped[n++] = *c;
    }
    glob_t found;
    memset(&found, 0, sizeof found);
    static const char* const kinds[] = {"val", "train"};
    for (int i = 0; i < 2; i++) {
        char* pattern = format("%s_%s_[0-9][0-9][0-9][0-9][0-9][0-9].bin", escaped, kinds[i]);
        int result = glob(pattern, i == 0 ? 0 : GLOB_APPEND, NULL, &found);
        if (result != 0 && result != GLOB_NOMATCH) { fatal("%s: cannot search: %s", pattern, strerror(errno)); }
        free(pattern);
    }
    free(escaped);
    return found;
}

static inline void remove_or_die(const char* path) {
    if (unlink(path) != 0 && errno != ENOENT) { fatal("%s: cannot remove: %s", path, strerror(errno)); }
}

static inline void remove_output(const PrepareOptions* o, const char* manifest_path, const char* floor_path) {
    glob_t shards = find_shards(o);
    remove_or_die(manifest_path);
    remove_or_die(floor_path);
    for (size_t i = 0; i < shards.gl_pathc; i++) { remove_or_die(shards.gl_pathv[i]); }
    globfree(&shards);
}

static inline void check_same_work(const char* path, const json_t* there, const json_t* now) {
    const char* key;
    json_t* value;
    json_object_foreach((json_t*)now, key, value) {
        json_t* old = json_object_get(there, key);
        if (json_equal(value, old)) { continue; }
        char* was = json_dumps(old, JSON_ENCODE_ANY | JSON_COMPACT);
        char* is = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
        fatal("%s: the shards there were made from something else (%s was %.300s, is now %.300s): "
              "use another --out, or --force to replace them", path, key, was ? was : "absent", is);
    }
}

// The shards that the manifest calls done must be there. Returns their tokens.
static inline uint64_t check_shards(const PrepareOptions* o, const char* path, const json_t* manifest) {
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

// The manifest of an earlier run of the same work, or NULL if nothing has been done. Anything else is an error.
static inline json_t* load_manifest(const PrepareOptions* o, const char* path, const json_t* work) {
    json_error_t error;
    bool exists = path_exists(path);
    json_t* manifest = exists ? json_load_file(path, 0, &error) : NULL;
    const json_t *made_from = json_object_get(manifest, "made_from"), *shards = json_object_get(manifest, "shards");
    if (exists && (!json_is_object(made_from) || !json_is_array(shards))) {
        fatal("%s: damaged, or no record of ./prepare: use --force to make everything anew", path);
    }
    glob_t found = find_shards(o);
    if (found.gl_pathc > 0 && !exists) {
        fatal("%s exists already: use another --out, or --force to replace it", found.gl_pathv[0]);
    }
    bool begun = json_array_size(shards) > 0 || found.gl_pathc > 0;
    globfree(&found);
    if (!begun) { json_decref(manifest); return NULL; }
    if (o->num_inputs > 0 && is_standard_input(o)) {
        fatal("%s exists already, and standard input cannot be continued: use another --out, or --force", path);
    }
    check_same_work(path, made_from, work);
    return manifest;
}
