// Options of ./prepare (see options.h).
#pragma once
#include "../options/options.h"

#define PREPARE_OPTIONS(GROUP, INT, REAL, FLAG, TEXT, CHOICE)                                                         \
    GROUP("output")                                                                                                   \
    TEXT(out, "", 1, "PREFIX of the shards: PREFIX_val_000000.bin, PREFIX_train_000001.bin, ...; must be given",      \
         .also = "output|prefix|output_dir (a prefix, as in data/mytext)")                                            \
    INT(val_size, -1, -1, SHARD_TOKENS_LIMIT, NULL, 1,                                                                \
        "tokens of the validation split; -1: a tenth, at most 100000000; must be given with standard input",          \
        .needs = "!train_tokenizer")                                                                                  \
    INT(shard_size, 100000000, 1, SHARD_TOKENS_LIMIT, NULL, 1, "tokens of a training shard",                          \
        .needs = "!train_tokenizer")                                                                                  \
    FLAG(force, 0, 1, "replace the shards of this PREFIX")                                                            \
    GROUP("input")                                                                                                    \
    TEXT(tokenizer, "gpt2", 1, "gpt2, bytes, or a tokenizer file or folder", .needs = "!train_tokenizer")             \
    TEXT(split, "none", 1,                                                                                            \
         "ends a document within a file: none, blank (a blank line), or the text of a line, which is dropped",        \
         .needs = "!stories")                                                                                         \
    CHOICE(format, auto, (auto, text, jsonl, parquet), 1,                                                             \
           "auto: parquet by the first bytes, jsonl by a name in .jsonl, .ndjson or .json, before .gz or .zst",       \
           .needs = "!stories")                                                                                       \
    TEXT(field, "text", 1, "field of a line of JSONL, or column of a Parquet file, that has the text",                \
         .needs = "!stories format!=text", .also = "column|text_column|text_key")                                     \
    TEXT(mix, "", 1,                                                                                                  \
         "in place of input files: SOURCE:WEIGHT,SOURCE:WEIGHT,...; a weight is a source's share of the tokens",      \
         .needs = "!train_tokenizer")                                                                                 \
    FLAG(skip_bad, 0, 1, "leave out documents that cannot be used, and count them; 0: stop at the first one",         \
         .needs = "!stories")                                                                                         \
    FLAG(shuffle, 0, 1, "shuffle the files, and the documents in windows of 32 MiB of text, by --seed; 0: in order",  \
         .needs = "!stories !train_tokenizer")                                                                        \
    INT(stories, 0, 0, 9e18, NULL, 1,                                                                                 \
        "in place of input files: this many tokens of the built-in corpus, in whole stories",                         \
        .needs = "!train_tokenizer")                                                                                  \
    INT(seed, 1337, 0, 9e18, NULL, 1, "of the built-in corpus, or of --shuffle", .needs = "!train_tokenizer")         \
    GROUP("tokenizer")                                                                                                \
    INT(train_tokenizer, 0, 0, 65536, NULL, 1,                                                                        \
        "learn a tokenizer of this many tokens from the input and write it to the folder --out; make no shards",      \
        .also = "vocab_size (the tokens of a new tokenizer)")                                                         \
    GROUP("speed")                                                                                                    \
    INT(threads, 0, 0, 4096, NULL, 1, "CPU threads; 0: OpenMP's choice")

#define SHARD_TOKENS_LIMIT 2147483647 // see SHARD_MAX_TOKENS

enum { MAX_SOURCES = 32 }; // each has batches and a page of Parquet in memory; chosen

// A source of --mix, or else the whole input.
typedef struct {
    const char* name;
    double weight;                 // its share of the tokens, greater than 0, relative to those of the other sources
    size_t first_input, end_input; // its files in `inputs`
} Source;

OPTION_ENUMS(PREPARE_OPTIONS)
OPTION_EXTERN_NAMES(PREPARE_OPTIONS)

typedef struct {
    OPTION_FIELDS(PREPARE_OPTIONS)
    char** inputs; // names of files, those in folders included, or "-" alone
    size_t num_inputs;
    struct PieceCounts* counts; // of --train_tokenizer: pieces are counted, not encoded; else NULL
    Source sources[MAX_SOURCES];
    size_t num_sources;
    char* mix_words; // the names of the sources
} PrepareOptions;

// Reads the command line after the program's name and checks that the options fit together. Ends the program with a
// usage error if not. Texts lie in argv. prepare_options_free() frees the names of the inputs.
PrepareOptions prepare_options_parse(int argc, char** argv);
void prepare_options_free(PrepareOptions* o);

// Prints the help of ./prepare to standard output.
void prepare_options_help(void);

// Returns `advice`, which ends an error of ./prepare; "" where another program reads texts (eval --text).
const char* prepare_advice(const PrepareOptions* o, const char* advice);

// Returns true if the input is standard input ("-").
bool is_standard_input(const PrepareOptions* o);

// Paths of the files beside the shards of a prefix. floor: the lowest loss that a model can reach on the stories.
typedef struct {
    char *manifest, *floor, *sums, *lock;
} Records;

// records_free() frees the paths.
Records records_of(const char* prefix);
void records_free(Records* r);
