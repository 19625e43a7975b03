#include "prepare.h"
#include "../../data/stories.h"
#include "../base/json.h"
#include "manifest.h"
#include "../data/shard.h"
#include "summary.h"
#include "../tokenizer/tokenizer_open.h"
#include <inttypes.h>

// ---------------------------------------------------------------------------------------------------------------------
// writing shards

// The input so far.
typedef struct {
    InputState input;
    Summary summary;
} State;

typedef struct {
    const PrepareOptions* options;
    Records records;
    struct stat* inputs;            // before they were read
    json_t* manifest;
    Sums sums;                      // of the finished shards
    ShardWriter shard;              // the one being written, if `writing`
    bool writing;
    bool is_last;                   // of the input
    size_t number;                  // of the shard being written, or of the next one
    uint64_t val_size;              // tokens of the validation split
    State now;                      // of the chunks that were taken
    int eot;                        // the end-of-text token
    uint64_t passed;                // tokens still to come that are in finished shards
    uint64_t total;                 // tokens written, earlier runs included
    double nll;                     // -ln p of the stories of the validation split
    Progress shown;
} Output;

// Writes PREFIX_val.json: the loss of a perfect model on the validation stories, which no model can go below.
static void save_floor(const Output* out, size_t tokens) {
    Error err;
    json_t* floor = json_pack("{s:f, s:I, s:f, s:f}", "floor", out->nll / (double)tokens, "tokens", (json_int_t)tokens,
                              "nll", out->nll, "H", story_state_entropy());
    if (!json_save(floor, out->records.floor, &err)) { fatal("%s", err.text); }
    json_decref(floor);
}

// Completes the shard being written and records it. The next one begins behind `skip` tokens of the next chunk. Only
// with the first one complete is it known that the input can replace the shards that --force gives up.
static void finish_shard(Output* out, uint64_t skip) {
    size_t tokens = out->shard.num_tokens;
    Error err;
    char hex[BLAKE2B_HEX + 1], *path = shard_name(out->options, out->number);
    if (!shard_seal(&out->shard, hex, &err)) { fatal("%s", err.text); }
    if (out->number == first_shard(out->manifest)) {
        const bool replaces = out->options->force || path_exists(out->records.manifest); // a killed --force left it
        save_manifest(out->manifest, out->records.manifest); // it records no shard: those that are there don't count
        if (replaces) { remove_shards(out->options, &out->records); }
    }
    if (!shard_commit(&out->shard, hex, &err)) { fatal("%s", err.text); }
    sums_set(&out->sums, path_name(path), hex);
    if (!sums_save(&out->sums, out->records.sums, &err)) { fatal("%s", err.text); }
    free(path);
    if (out->number == 0 && out->options->stories > 0) {
        save_floor(out, tokens);
        json_object_set_new(out->manifest, "nll", json_real(out->nll));
    }
    json_object_set_new(out->manifest, "summary", summary_to_json(&out->now.summary));
    const ShardStart next = {.input = out->now.input, .skip = skip};
    record_shard(out->options, out->manifest, tokens, &next);
    if (out->is_last) { json_object_set_new(out->manifest, "complete", json_true()); }
    save_manifest(out->manifest, out->records.manifest);
    out->writing = false;
    out->number++;
}

static void append_tokens(Output* out, const int* ids, size_t count) {
    uint16_t tokens[4096];
    Error err;
    out->total += count;
    for (size_t n; count > 0; ids += n, count -= n) {
        n = min_size(count, sizeof tokens / sizeof *tokens);
        for (size_t i = 0; i < n; i++) { tokens[i] = (uint16_t)ids[i]; }
        if (!shard_write(&out->shard, tokens, n, &err)) { fatal("%s", err.text); }
    }
}

// Returns true if the input is one text, a single document.
static bool is_one_document(const PrepareOptions* o) {
    return o->num_inputs == 1 && !strcmp(o->split, "none") && input_format(o, o->inputs[0]) == format_text;
}

// Creates the next shard, whose first token of the input is `first`. The only end-of-text token of a single document
// is in the validation split. The training split then begins with another one: samples begin with it, so it must be
// trained.
static void begin_shard(Output* out, int first) {
    Error err;
    char* name = shard_name(out->options, out->number);
    if (!shard_create(&out->shard, name, &err)) { fatal("%s", err.text); }
    out->writing = true;
    free(name);
    if (out->number == 1 && first != out->eot && is_one_document(out->options)) { append_tokens(out, &out->eot, 1); }
}

// Returns how many tokens the shard being written can take. The validation split of the stories ends with a story.
static size_t room_in_shard(const Output* out) {
    bool whole_stories = out->number == 0 && out->options->stories > 0;
    uint64_t size = whole_stories      ? SHARD_MAX_TOKENS
                    : out->number == 0 ? out->val_size
                                       : (uint64_t)out->options->shard_size;
    return (size_t)size - (out->writing ? out->shard.num_tokens : 0);
}

// Returns true if --stories tokens have been written, at least one of them for training.
static bool has_enough_stories(const Output* out) {
    const bool has_training = out->number > 1 || (out->number == 1 && out->writing);
    return has_training && out->total >= (uint64_t)out->options->stories;
}

// Writes a chunk's tokens, but for those that are in finished shards. A full shard is finished only when another token
// comes: so no shard is ever empty.
static void write_tokens(Output* out, const TokenList* tokens) {
    size_t at = (size_t)min_size(tokens->count, out->passed);
    out->passed -= at;
    for (size_t n; at < tokens->count; at += n) {
        if (out->writing && room_in_shard(out) == 0) { finish_shard(out, at); }
        if (!out->writing) { begin_shard(out, tokens->ids[at]); }
        n = min_size(tokens->count - at, room_in_shard(out));
        append_tokens(out, tokens->ids + at, n);
    }
}

static bool write_chunk(void* context, Chunk* c) {
    Output* out = context;
    if (c->was_taken) { return true; }
    if (out->options->stories > 0 && out->passed == 0) { // a story begins
        bool val_is_full = out->number == 0 && out->writing && out->shard.num_tokens >= out->val_size;
        if (val_is_full) { finish_shard(out, 0); }
        if (has_enough_stories(out)) { return false; }
    }
    write_tokens(out, &c->tokens);
    summary_add(&out->now.summary, c);
    if (out->number == 0) { out->nll += c->nll; }
    progress(&out->shown, "%.1f million tokens", 1e-6 * (double)out->total);
    return true;
}

// ---------------------------------------------------------------------------------------------------------------------
// all shards

// The default validation split is one in DEFAULT_VAL_DIVISOR tokens, at most MAX_DEFAULT_VAL.
static const uint64_t DEFAULT_VAL_DIVISOR = 10, MAX_DEFAULT_VAL = 100000000;

static bool count_chunk(void* context, Chunk* c) {
    uint64_t* total = context;
    *total += c->tokens.count;
    return *total < DEFAULT_VAL_DIVISOR * MAX_DEFAULT_VAL;
}

// Returns the tokens of the input, counted by a first pass over it: to its end, or until more make no difference to the
// validation split. Ends the program if there are none.
static uint64_t count_tokens(const PrepareOptions* o, const Tokenizer* t) {
    uint64_t total = 0;
    InputState start = input_begin(o);
    notice("counting tokens, because --val_size is not given");
    encode_input(o, t, &start, count_chunk, &total);
    if (total == 0) { fatal("%s: the input is empty", o->inputs[0]); }
    return total;
}

// Returns the size of the validation split: by default a tenth of all tokens, at most MAX_DEFAULT_VAL.
static uint64_t choose_val_size(const PrepareOptions* o, const Tokenizer* t) {
    if (o->val_size >= 0) { return (uint64_t)o->val_size; }
    uint64_t total = o->stories > 0 ? (uint64_t)o->stories : count_tokens(o, t);
    if (total < DEFAULT_VAL_DIVISOR) {
        fatal("the input has only %" PRIu64 " tokens: too few to split: give --val_size N (0: all are for training)",
              total);
    }
    return min_size(total / DEFAULT_VAL_DIVISOR, MAX_DEFAULT_VAL);
}

// Ends the program if an input cannot be read, or there can be no folder for --out: before all of the input is read.
static void check_ends(const PrepareOptions* o) {
    Error err;
    reader_check_files(o);
    if (!make_parent(o->out, &err)) { fatal("--out %s", err.text); }
}

// Reads from the manifest how far an earlier run came.
static void continue_run(Output* out) {
    const json_t* manifest = out->manifest;
    Error err;
    out->val_size = (uint64_t)json_integer_value(json_object_get(manifest, "val_size"));
    out->nll = json_real_value(json_object_get(manifest, "nll"));
    out->number = first_shard(manifest) + json_array_size(json_object_get(manifest, "shards"));
    out->total = check_shards(out->options, out->records.manifest, manifest);
    const ShardStart start = next_shard_start(out->options, manifest, out->records.manifest);
    out->now = (State){.input = start.input, .summary = summary_from_json(json_object_get(manifest, "summary"))};
    out->passed = start.skip;
    if (out->total > 0 && path_exists(out->records.sums) && !sums_load(&out->sums, out->records.sums, &err)) {
        fatal("%s", err.text);
    }
}

static void write_shards(Output* out, const Tokenizer* t) {
    const PrepareOptions* o = out->options;
    if (out->total > 0) { notice("going on after %" PRIu64 " tokens", out->total); }
    encode_input(o, t, &out->now.input, write_chunk, out);
    if (out->total > 0 && out->number == 0) {
        shard_abandon(&out->shard);
        fatal("--val_size %lld: the input has only %" PRIu64 " tokens, and some must be left for training", o->val_size,
              out->total);
    }
    if (out->total == 0) { fatal("%s: the input is empty", o->inputs[0]); }
    if (!out->writing) { fatal("%s: damaged: use --force to make everything anew", out->records.manifest); }
    const char* changed = changed_input(o, out->inputs);
    if (changed) {
        shard_abandon(&out->shard);
        fatal("%s: changed while it was read: when nothing writes it any more, give the command again, with --force to "
              "replace shards of what it was", changed);
    }
    out->is_last = true;
    finish_shard(out, 0);
}

static void print_sources(const PrepareOptions* o, const InputState* input) {
    double sum = 0;
    for (size_t i = 0; i < o->num_sources; i++) { sum += (double)input->sources[i].tokens; }
    for (size_t i = 0; i < o->num_sources; i++) {
        const bool ended = mix_choose(o, input) == i;
        print_result("%s: %" PRIu64 " tokens, %.2f %%%s\n", o->sources[i].name, input->sources[i].tokens,
                     100 * (double)input->sources[i].tokens / sum, ended ? "; used up, which ended the mixture" : "");
    }
}

static void print_summary(const Output* out) {
    const json_t* shards = json_object_get(out->manifest, "shards");
    uint64_t val = first_shard(out->manifest) == 0 ? (uint64_t)json_integer_value(json_array_get(shards, 0)) : 0;
    const char* prefix = out->options->out;
    if (val > 0) { print_result("%s_val_000000.bin: %" PRIu64 " tokens\n", prefix, val); }
    size_t count = out->number - 1;
    print_result("%s_train_*.bin: %" PRIu64 " tokens in %zu shard%s\n", prefix, out->total - val, count,
                 plural(count));
    if (out->options->stories > 0 && val > 0) {
        printf("floor of the validation loss: %.6f nats per token\n", out->nll / (double)val);
    }
    summary_print(&out->now.summary, out->total);
    if (*out->options->mix) { print_sources(out->options, &out->now.input); }
}

// Locks PREFIX.lock (`path`): one ./prepare at a time makes the shards of a prefix. The lock ends with the process.
// Returns its descriptor; -1 in a folder that is not to be written to, whose shards may be complete.
static int lock_output(const PrepareOptions* o, const char* path) {
    struct stat there;
    const int lock = open_lock(path);
    if (lock >= 0 && (fstat(lock, &there) != 0 || there.st_size > 0)) {
        fatal("%s is no file of ./prepare and would be removed: move it, or give another --out", path);
    }
    if (lock < 0 && errno == EWOULDBLOCK) {
        fatal("--out %s: another ./prepare is making these: wait for it, or give another --out", o->out);
    }
    if (lock < 0 && errno != EROFS && errno != EACCES) { fatal("%s: cannot write: %s", path, strerror(errno)); }
    return lock;
}

// The lock's file leaves no trace of a run that fails.
static void remove_lock(void* path, const char* message) {
    (void)message;
    unlink(path);
}

void prepare(const PrepareOptions* o) {
    Tokenizer tokenizer = tokenizer_open(o->tokenizer);
    if (tokenizer.vocab_size > UINT16_MAX + 1) {
        fatal("--tokenizer %s: %d tokens, but shards hold 16-bit ids", o->tokenizer, tokenizer.vocab_size);
    }
    Output out = {.options = o, .records = records_of(o->out), .eot = tokenizer.eot};
    const Records* records = &out.records;
    check_ends(o);
    const int lock = lock_output(o, records->lock);
    if (lock >= 0) { on_fatal(remove_lock, records->lock); }
    refuse_foreign_files(o, records);
    out.inputs = look_at_inputs(o);
    json_t* work = describe_work(o, &tokenizer);
    out.manifest = o->force ? NULL : load_manifest(o, records->manifest, work);
    if (!out.manifest) {
        out.manifest = new_manifest(o, work, choose_val_size(o, &tokenizer));
        if (o->force) { remove_unfinished(o); }
    }
    continue_run(&out);
    if (json_is_true(json_object_get(out.manifest, "complete"))) { notice("%s: done already", records->manifest); }
    else { write_shards(&out, &tokenizer); }
    print_summary(&out);
    json_decref(out.manifest);
    json_decref(work);
    tokenizer_free(&tokenizer);
    free(out.inputs);
    sums_free(&out.sums);
    if (lock >= 0) {
        on_fatal(NULL, NULL);
        unlink(records->lock); // in a folder like /tmp another user's stays
        close(lock);
    }
    records_free(&out.records);
}
