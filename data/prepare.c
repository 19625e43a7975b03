// ./prepare: from text to token shards (data/README.md has their format).
//
//     ./prepare --out data/shakespeare --split blank data/tinyshakespeare.txt
//     zstdcat web.jsonl.zst | ./prepare --out data/web --format jsonl --val_size 1000000 -
//     ./prepare --out data/stories --stories 2000000
//
// Every document begins with the end-of-text token. The first tokens are the validation split, the others training
// shards; documents go on from one shard to the next. Beside the shards PREFIX.json records what they are made from and
// which are done: after an interruption the same command goes on from there, to the same bytes.
#include "prepare.h"
#ifdef _OPENMP
#include <omp.h>
#endif

// ---------------------------------------------------------------------------------------------------------------------
// writing shards

typedef struct {
    const PrepareOptions* options;
    char *manifest_path, *floor_path;
    json_t* manifest;
    ShardWriter shard;  // the one being written, if `writing`
    bool writing, show; // `show`: progress, on a terminal
    size_t number;      // of the shard being written, or next
    uint64_t val_size, skip, total; // skip: tokens of the first chunk that stand in finished shards; total: so far
    double nll, started, shown;
} Output;

static json_t* pack_position(const Position* at, uint64_t skip) {
    return json_pack("{s:I, s:I, s:I, s:b, s:I}", "input", (json_int_t)at->input, "offset", (json_int_t)at->offset,
                     "line", (json_int_t)at->line, "inside_document", at->inside_document, "skip", (json_int_t)skip);
}

static Position unpack_position(const json_t* json, uint64_t* skip, const char* path) {
    json_int_t input, offset, line, tokens;
    int inside_document;
    if (json_unpack((json_t*)json, "{s:I, s:I, s:I, s:b, s:I}", "input", &input, "offset", &offset, "line", &line,
                    "inside_document", &inside_document, "skip", &tokens) != 0) {
        fatal("%s: damaged: use --force to make everything anew", path);
    }
    Position at = {(size_t)input, (uint64_t)offset, (uint64_t)line, inside_document != 0};
    *skip = (uint64_t)tokens;
    return at;
}

// What the validation stories cost a perfect model (stories.h).
static void save_floor(const Output* out, size_t tokens) {
    json_t* floor = json_pack("{s:f, s:I, s:f, s:f}", "floor", out->nll / (double)tokens, "tokens", (json_int_t)tokens,
                              "nll", out->nll, "H", story_state_entropy());
    save_json(floor, out->floor_path);
    json_decref(floor);
}

// Completes the shard being written; the next one begins `skip` tokens behind a place of the input.
static void finish_shard(Output* out, const Position* next, uint64_t skip) {
    size_t tokens = out->shard.num_tokens;
    Error err;
    if (!shard_commit(&out->shard, &err)) { fatal("%s", err.text); }
    if (out->number == 0 && out->options->stories > 0) {
        save_floor(out, tokens);
        json_object_set_new(out->manifest, "nll", json_real(out->nll));
    }
    json_array_append_new(json_object_get(out->manifest, "shards"), json_integer((json_int_t)tokens));
    json_object_set_new(out->manifest, "next", pack_position(next, skip));
    save_json(out->manifest, out->manifest_path);
    out->writing = false;
    out->number++;
    if (!out->show) { notice("%" PRIu64 " tokens", out->total); }
}

static void append_tokens(Output* out, const int* ids, size_t count) {
    uint16_t tokens[4096];
    Error err;
    if (!out->writing) {
        char* name = shard_name(out->options, out->number);
        if (!shard_create(&out->shard, name, &err)) { fatal("%s", err.text); }
        out->writing = true;
        free(name);
    }
    out->total += count;
    for (size_t n; count > 0; ids += n, count -= n) {
        n = min_size(count, sizeof tokens / sizeof *tokens);
        for (size_t i = 0; i < n; i++) { tokens[i] = (uint16_t)ids[i]; }
        if (!shard_write(&out->shard, tokens, n, &err)) { fatal("%s", err.text); }
    }
}

static void show_progress(Output* out) {
    double now = seconds_now();
    if (!out->show || now < out->shown + 0.5) { return; }
    out->shown = now;
    fprintf(stderr, "\r%.1f million tokens, %.0f s ", 1e-6 * (double)out->total, now - out->started);
}

// How many tokens the shard being written can take. The validation split of the stories ends with a story.
static size_t room_in_shard(const Output* out) {
    bool whole_stories = out->number == 0 && out->options->stories > 0;
    uint64_t size = whole_stories ? SHARD_MAX_TOKENS : out->number == 0 ? out->val_size : out->options->shard_size;
    return (size_t)size - (out->writing ? out->shard.num_tokens : 0);
}

static bool write_chunk(void* context, const Chunk* c) {
    Output* out = (Output*)context;
    if (out->options->stories > 0 && out->skip == 0) { // not in the middle of a story
        bool val_is_full = out->number == 0 && out->writing && out->shard.num_tokens >= out->val_size;
        if (val_is_full) { finish_shard(out, &c->at, 0); }
        if (out->number > 0 && out->total >= out->options->stories) { return false; }
    }
    // A shard is finished when a token comes that it cannot take, so that the last one is never empty.
    for (size_t i = (size_t)out->skip, n; i < c->tokens.count; i += n) {
        if (out->writing && room_in_shard(out) == 0) { finish_shard(out, &c->at, i); }
        n = min_size(c->tokens.count - i, room_in_shard(out));
        append_tokens(out, c->tokens.ids + i, n);
    }
    out->skip = 0;
    if (out->number == 0) { out->nll += c->nll; }
    show_progress(out);
    return true;
}

// ---------------------------------------------------------------------------------------------------------------------
// the program

static const uint64_t DEFAULT_VAL_FRACTION = 10, MAX_DEFAULT_VAL = 100000000; // of the tokens; tokens

static bool count_chunk(void* context, const Chunk* c) {
    uint64_t* total = (uint64_t*)context;
    *total += c->tokens.count;
    return *total < DEFAULT_VAL_FRACTION * MAX_DEFAULT_VAL;
}

// The size of the validation split. By default a tenth of all tokens, which takes a first pass over the input: to its
// end, or until it is certain that the maximum applies.
static uint64_t choose_val_size(const PrepareOptions* o, const Tokenizer* t) {
    if (o->val_size != NOT_GIVEN) { return o->val_size; }
    uint64_t total = o->stories;
    Position start;
    memset(&start, 0, sizeof start);
    if (total == 0) {
        notice("counting tokens, for lack of --val_size");
        encode_input(o, t, start, count_chunk, &total);
    }
    if (total == 0) { fatal("%s: the input is empty", o->inputs[0]); }
    if (total < DEFAULT_VAL_FRACTION) { fatal("only %" PRIu64 " tokens: too few to split, give --val_size", total); }
    return total / DEFAULT_VAL_FRACTION < MAX_DEFAULT_VAL ? total / DEFAULT_VAL_FRACTION : MAX_DEFAULT_VAL;
}

// A manifest of nothing done yet, also in the file.
static json_t* begin_manifest(const PrepareOptions* o, const Tokenizer* t, const char* path, json_t* work) {
    Position start;
    memset(&start, 0, sizeof start);
    json_t* manifest = json_pack("{s:O, s:I, s:[], s:o, s:f, s:b}", "made_from", work,
                                 "val_size", (json_int_t)choose_val_size(o, t), "shards",
                                 "next", pack_position(&start, 0), "nll", 0.0, "complete", 0);
    Error err;
    char* folder = format("%s", path);
    char* slash = strrchr(folder, '/');
    if (slash && slash > folder) {
        *slash = 0;
        if (!make_directories(folder, &err)) { fatal("%s", err.text); }
    }
    free(folder);
    save_json(manifest, path);
    return manifest;
}

static void write_shards(Output* out, const Tokenizer* t) {
    const PrepareOptions* o = out->options;
    out->val_size = (uint64_t)json_integer_value(json_object_get(out->manifest, "val_size"));
    out->nll = json_real_value(json_object_get(out->manifest, "nll"));
    out->number = first_shard(out->manifest) + json_array_size(json_object_get(out->manifest, "shards"));
    out->total = check_shards(o, out->manifest_path, out->manifest);
    if (json_is_true(json_object_get(out->manifest, "complete"))) {
        notice("%s: done already", out->manifest_path);
        return;
    }
    Position at = unpack_position(json_object_get(out->manifest, "next"), &out->skip, out->manifest_path);
    if (out->total > 0) { notice("going on after %" PRIu64 " tokens", out->total); }
    encode_input(o, t, at, write_chunk, out);
    if (out->show) { fputc('\n', stderr); }
    if (out->total > 0 && out->number == 0) {
        shard_abandon(&out->shard);
        remove_or_die(out->manifest_path);
        fatal("--val_size %" PRIu64 ": the input has only %" PRIu64 " tokens, and some must be left for training",
              out->val_size, out->total);
    }
    if (out->total == 0) {
        remove_or_die(out->manifest_path);
        fatal("%s: the input is empty", o->inputs[0]);
    }
    json_object_set_new(out->manifest, "complete", json_true());
    memset(&at, 0, sizeof at); // no place to go on from
    finish_shard(out, &at, 0);
}

static void print_summary(const Output* out) {
    const json_t* shards = json_object_get(out->manifest, "shards");
    uint64_t val = first_shard(out->manifest) == 0 ? (uint64_t)json_integer_value(json_array_get(shards, 0)) : 0;
    const char* prefix = out->options->out;
    if (val > 0) { printf("%s_val_000000.bin: %" PRIu64 " tokens\n", prefix, val); }
    size_t count = out->number - 1;
    printf("%s_train_*.bin: %" PRIu64 " tokens in %zu shard%s\n", prefix, out->total - val, count, &"s"[count == 1]);
    if (out->options->stories > 0 && val > 0) {
        printf("floor of the validation loss: %.6f nats per token\n", out->nll / (double)val);
    }
}

int main(int argc, char** argv) {
    PrepareOptions o = parse_options(argc, argv);
    if (o.help) {
        print_help();
        free(o.inputs);
        return EXIT_DONE;
    }
#ifdef _OPENMP
    if (o.threads > 0) { omp_set_num_threads((int)o.threads); }
#endif
    json_object_seed(1); // before there are threads
    Tokenizer tokenizer = tokenizer_open(o.tokenizer);
    if (tokenizer.vocab_size > UINT16_MAX + 1) {
        fatal("--tokenizer %s: %d tokens, but shards hold 16-bit ids", o.tokenizer, tokenizer.vocab_size);
    }
    Output out;
    memset(&out, 0, sizeof out);
    out.options = &o;
    out.manifest_path = format("%s.json", o.out);
    out.floor_path = format("%s_val.json", o.out);
    out.show = isatty(STDERR_FILENO);
    out.started = seconds_now();
    json_t* work = describe_work(&o, &tokenizer);
    if (o.force) { remove_output(&o, out.manifest_path, out.floor_path); }
    out.manifest = load_manifest(&o, out.manifest_path, work);
    if (!out.manifest) { out.manifest = begin_manifest(&o, &tokenizer, out.manifest_path, work); }
    write_shards(&out, &tokenizer);
    print_summary(&out);
    json_decref(out.manifest);
    json_decref(work);
    tokenizer_free(&tokenizer);
    free(out.manifest_path);
    free(out.floor_path);
    free(o.inputs);
    return EXIT_DONE;
}
