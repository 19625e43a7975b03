#include "prepare_options.h"
#include "../base/file.h"
#include "../base/rng.h"
#include "inputs.h"
#include "../data/shard.h"

_Static_assert(SHARD_TOKENS_LIMIT == SHARD_MAX_TOKENS, "the limit of an option is a shard's");

enum { NUM_ROWS = OPTION_NUM_ROWS(PREPARE_OPTIONS) };

OPTION_NAMES(PREPARE_OPTIONS)
#define OPTION_STRUCT PrepareOptions
static const Option ROWS[NUM_ROWS] = {OPTION_ROWS(PREPARE_OPTIONS)};
static const OptionTable TABLE = {.rows = ROWS, .num_rows = NUM_ROWS};

void prepare_options_help(void) {
    puts("Makes token shards from text.\n");
    puts("usage: ./prepare --out PREFIX [--option value ...] INPUT... | - | --mix INPUT:WEIGHT,... | --stories N");
    puts("       ./prepare --train_tokenizer N --out FOLDER INPUT... | -\n");
    puts("INPUT is text, JSONL or Parquet, plain or compressed by gzip or zstd: a file, a folder of such files, or a");
    puts("pattern like 'data/*.parquet'. - is standard input.");
    options_print_help(&TABLE, 1);
}

const char* prepare_advice(const PrepareOptions* o, const char* advice) { return o->out ? advice : ""; }

bool is_standard_input(const PrepareOptions* o) {
    return o->num_inputs == 1 && strcmp(o->inputs[0], "-") == 0;
}

// Ends the program if an option was given that has no effect beside the others.
static void check_needs(const PrepareOptions* o) {
    PrepareOptions defaults;
    Error err;
    options_set_defaults(&TABLE, &defaults);
    for (int i = 0; i < NUM_ROWS; i++) {
        const Option* row = &ROWS[i];
        if (row->name && !option_check_need(&TABLE, row, o, &defaults, 1, &err)) { usage_error("%s", err.text); }
    }
}

Records records_of(const char* prefix) {
    return (Records){.manifest = format("%s.json", prefix), .floor = format("%s_val.json", prefix),
                     .sums = format("%s.b2sums", prefix), .lock = format("%s.lock", prefix)};
}

void records_free(Records* r) {
    free(r->manifest);
    free(r->floor);
    free(r->sums);
    free(r->lock);
}

// Ends the program if a record of the run has the name of an input.
static void check_records(const PrepareOptions* o, const char* input) {
    Records r = records_of(o->out);
    if (is_same_file(input, r.manifest) || is_same_file(input, r.floor) || is_same_file(input, r.sums) ||
        is_same_file(input, r.lock)) {
        usage_error("--out %s: its record would be written over the input %s", o->out, input);
    }
    records_free(&r);
}

static void check_options(const PrepareOptions* o) {
    check_needs(o);
    if (o->train_tokenizer > 0 && o->train_tokenizer < 257) {
        usage_error("--train_tokenizer %lld: a tokenizer has at least 257 tokens, the bytes and the end of text",
                    o->train_tokenizer);
    }
    if (!*o->out) { usage_error("--out is missing: the PREFIX of the shards to be made, like data/mytext"); }
    if (!*path_name(o->out)) { usage_error("--out %s: a folder: give a PREFIX in it, like %smytext", o->out, o->out); }
    if (o->stories > 0 && o->num_inputs > 0) {
        usage_error("--stories and %s: give one or the other", *o->mix ? "--mix" : "input files");
    }
    if (o->stories == 0 && o->num_inputs == 0) {
        usage_error("no input: give files of text, JSONL or Parquet, - for standard input, or --stories N; see --help");
    }
    for (size_t i = 0; i < o->num_inputs; i++) {
        if (o->num_inputs > 1 && !strcmp(o->inputs[i], "-")) { usage_error("- must be the only input"); }
        if (o->train_tokenizer == 0) { check_records(o, o->inputs[i]); }
    }
    if (is_standard_input(o) && o->val_size < 0 && o->train_tokenizer == 0) {
        usage_error("--val_size must be given with standard input, whose length is not known in advance");
    }
    if (is_standard_input(o) && o->format == format_parquet) {
        usage_error("a Parquet file ends with its table of contents: give its name, not standard input");
    }
    if (!*o->split) { usage_error("--split '': give none, blank, or a line"); }
}

static void shuffle_inputs(PrepareOptions* o, const Source* s) {
    char** names = o->inputs + s->first_input;
    for (size_t i = s->end_input - s->first_input; i > 1; i--) { // Fisher and Yates
        const size_t k = (size_t)(rng_u64((uint64_t)o->seed, RNG_DOCUMENTS, i) % i);
        char* name = names[k];
        names[k] = names[i - 1];
        names[i - 1] = name;
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// the mixture

// Takes the next "SOURCE:WEIGHT" off *at and ends it with a 0; a backslash before a comma makes it part of the name.
// Returns the source; NULL at the end.
static char* next_word(char** at) {
    char *word = *at, *to = *at;
    if (!*word) { return NULL; }
    for (; **at && **at != ','; (*at)++) {
        if (**at == '\\' && (*at)[1] == ',') { (*at)++; }
        *to++ = **at;
    }
    *at += **at == ',';
    *to = 0;
    return word;
}

// Takes ":WEIGHT" off the end of a word and returns the weight.
static double take_weight(char* word) {
    char* colon = strrchr(word, ':');
    double weight;
    if (!colon || colon == word) { usage_error("--mix %s: no weight: give SOURCE:WEIGHT, like web.jsonl:0.7", word); }
    if (!number_parse(colon + 1, 1e-9, 1e15, &weight)) {
        usage_error("--mix %s: the weight '%s' is not a number from 1e-9 to 1e15; leave out a source without", word,
                    colon + 1);
    }
    *colon = 0;
    return weight;
}

static void check_named_once(const PrepareOptions* o) {
    const char* twice = text_that_stands_twice(o->inputs, o->num_inputs);
    if (twice) { usage_error("--mix: %s is in it twice", twice); }
}

// Reads --mix into sources and inputs.
static void mix_parse(PrepareOptions* o) {
    o->mix_words = format("%s", o->mix);
    o->num_sources = 0;
    char* at = o->mix_words;
    for (char* word; (word = next_word(&at)) != NULL;) {
        if (o->num_sources == MAX_SOURCES) { usage_error("--mix: more than %d sources", MAX_SOURCES); }
        Source* s = &o->sources[o->num_sources++];
        *s = (Source){.name = word, .weight = take_weight(word), .first_input = o->num_inputs};
        if (strcmp(word, "-") == 0) { usage_error("--mix: standard input cannot be mixed: give files"); }
        size_t count = 1;
        char** names = inputs_expand(&word, &count);
        o->inputs = realloc_or_die(o->inputs, (o->num_inputs + count) * sizeof *names, "input files");
        memcpy(o->inputs + o->num_inputs, names, count * sizeof *names);
        o->num_inputs += count;
        s->end_input = o->num_inputs;
        free(names);
        for (size_t i = s->first_input; i < s->end_input; i++) {
            if (!path_exists(o->inputs[i])) { usage_error("--mix: %s: no such file", o->inputs[i]); }
        }
    }
    check_named_once(o);
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
    if (*o.mix && o.num_inputs > 0) { usage_error("--mix and %s: give one or the other", words[0]); }
    o.inputs = inputs_expand(words, &o.num_inputs);
    free(words);
    o.sources[0] = (Source){.name = "", .weight = 1, .end_input = o.num_inputs};
    o.num_sources = 1;
    if (*o.mix) { mix_parse(&o); }
    check_options(&o);
    for (size_t i = 0; o.shuffle && i < o.num_sources; i++) { shuffle_inputs(&o, &o.sources[i]); }
    return o;
}

void prepare_options_free(PrepareOptions* o) {
    for (size_t i = 0; i < o->num_inputs; i++) { free(o->inputs[i]); }
    free(o->inputs);
    free(o->mix_words);
}
