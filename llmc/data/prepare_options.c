#include "../rng.h"
#include "inputs.h"
#include "shard.h"

_Static_assert(SHARD_TOKENS_LIMIT == SHARD_MAX_TOKENS, "the limit of an option is a shard's");

enum { NUM_ROWS = OPTION_NUM_ROWS(PREPARE_OPTIONS) };

#define OPTION_STRUCT PrepareOptions
static const Option ROWS[NUM_ROWS] = {OPTION_ROWS(PREPARE_OPTIONS)};
static const OptionAlias ALIASES[] = {
    {"output", "out", NULL}, {"prefix", "out", NULL}, {"output_dir", "out", "a prefix, as in data/mytext"},
    {"column", "field", NULL}, {"text_column", "field", NULL}, {"text_key", "field", NULL}};
static const OptionTable TABLE = {.rows = ROWS, .num_rows = NUM_ROWS, .aliases = ALIASES,
                                  .num_aliases = sizeof ALIASES / sizeof *ALIASES};

void prepare_options_help(void) {
    puts("Makes token shards from text.\n");
    puts("usage: ./prepare --out PREFIX [--option value ...] INPUT... | - | --stories N");
    puts("       ./prepare --train_tokenizer N --out FOLDER INPUT... | -\n");
    puts("INPUT is text, JSONL or Parquet, plain or compressed by gzip or zstd: a file, a folder of such files, or a");
    puts("pattern like 'data/*.parquet'. - is standard input.");
    options_print_help(&TABLE, 1);
}

bool is_standard_input(const PrepareOptions* o) {
    return o->num_inputs == 1 && strcmp(o->inputs[0], "-") == 0;
}

static bool is_same_file(const char* a, const char* b) {
    struct stat s, t;
    return stat(a, &s) == 0 && stat(b, &t) == 0 && s.st_dev == t.st_dev && s.st_ino == t.st_ino;
}

static void check_training(const PrepareOptions* o) {
    if (o->train_tokenizer < 257) {
        usage_error("--train_tokenizer %lld: a tokenizer has at least 257 tokens, the bytes and the end of text",
                    o->train_tokenizer);
    }
    if (o->dedup || o->stories > 0) { usage_error("--train_tokenizer: leave out --dedup and --stories"); }
}

static void check_options(const PrepareOptions* o) {
    if (o->train_tokenizer != 0) { check_training(o); }
    if (!*o->out) { usage_error("--out is missing: the PREFIX of the shards to be made, like data/mytext"); }
    if (o->stories > 0 && o->num_inputs > 0) { usage_error("--stories and input files: give one or the other"); }
    if (o->stories > 0 && (o->dedup || o->shuffle_documents >= 0)) {
        usage_error("--stories has no repeats and no order: leave out --dedup and --shuffle_documents");
    }
    if (o->stories == 0 && o->num_inputs == 0) {
        usage_error("no input: give files of text, JSONL or Parquet, - for standard input, or --stories N; see --help");
    }
    char* manifest = format("%s.json", o->out);
    for (size_t i = 0; i < o->num_inputs; i++) {
        if (o->num_inputs > 1 && !strcmp(o->inputs[i], "-")) { usage_error("- must be the only input"); }
        if (is_same_file(o->inputs[i], manifest)) {
            usage_error("--out %s: its record would be written over the input %s", o->out, o->inputs[i]);
        }
    }
    free(manifest);
    if (is_standard_input(o) && o->val_size < 0 && o->train_tokenizer == 0) {
        usage_error("--val_size must be given with standard input, whose length is not known in advance");
    }
    if (is_standard_input(o) && strcmp(o->format, "parquet") == 0) {
        usage_error("a Parquet file ends with its table of contents: give its name, not standard input");
    }
    if (!*o->split) { usage_error("--split '': give none, blank, or a line"); }
}

static void shuffle_inputs(PrepareOptions* o) {
    for (size_t i = o->num_inputs; i > 1; i--) { // Fisher and Yates
        const size_t k = (size_t)(rng_u64((uint64_t)o->shuffle_documents, RNG_DOCUMENTS, i) % i);
        char* name = o->inputs[k];
        o->inputs[k] = o->inputs[i - 1];
        o->inputs[i - 1] = name;
    }
}

PrepareOptions prepare_options_parse(int argc, char** argv) {
    PrepareOptions o;
    const Option* option;
    const char* value;
    Error err;
    if (argc == 0) {
        usage_error("no input; for example: ./prepare --out data/mytext book.txt (see --help)");
    }
    memset(&o, 0, sizeof o);
    options_set_defaults(&TABLE, &o);
    char** words = alloc_or_die((size_t)argc, sizeof *words, "the names of the inputs");
    OptionReader reader = {.table = &TABLE, .command = 1, .command_name = "prepare", .words = WORDS_TAKEN,
                           .argc = argc, .argv = argv};
    while (options_next(&reader, &option, &value)) {
        if (!option && value[0] == '-' && value[1]) { usage_error("no option %s: see --help", value); }
        if (!option) {
            words[o.num_inputs++] = (char*)value;
        } else if (!option_parse(option, value, (char*)&o + option->offset, &err)) {
            usage_error("--%s %s", option->name, err.text);
        }
    }
    o.inputs = inputs_expand(words, &o.num_inputs);
    free(words);
    check_options(&o);
    if (o.shuffle_documents >= 0) { shuffle_inputs(&o); }
    return o;
}

void prepare_options_free(PrepareOptions* o) {
    for (size_t i = 0; i < o->num_inputs; i++) { free(o->inputs[i]); }
    free(o->inputs);
}
