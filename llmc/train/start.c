#include "start.h"
#include "../base/file.h"
#include "consistency.h"
#include "resume.h"
#include "weights.h"
#include "../base/threads.h"
#include "../data/dataset.h"

// Locks --out: one run at a time writes into a folder. The lock ends with the process, however that ends. Rank 0 alone
// writes. Returns the file descriptor of the lock; -1: there is none.
static int lock_out(const char* out, int rank) {
    Error err;
    if (!*out || rank > 0) { return -1; }
    if (!make_directories(out, &err)) { fatal("--out %s", err.text); }
    char* path = format("%s/.lock", out);
    const int lock = open_lock(path);
    if (lock < 0 && errno == EWOULDBLOCK) {
        fatal("--out %s: another run is writing to this folder; wait for it, or give another --out", out);
    }
    if (lock < 0) { fatal("--out %s: cannot write there: %s", path, strerror(errno)); }
    free(path);
    checkpoint_clean(out);
    return lock;
}

// Ends the program if --model is wrong, before anything else is looked for. A checkpoint or a folder brings its own.
static void require_model(const Config* c) {
    Error err;
    GPT2Config shape;
    if (*c->resume || init_folder(c) || model_parse(c->model, c->pad_vocab, &shape, &err)) { return; }
    usage_error("%s", err.text);
}

// Ends the program if there is no training data, before anything is created. Does not check a resumed run, whose
// checkpoint may name the data, nor one that resume_open() is to refuse.
static void require_data(const Config* c) {
    Error err;
    if (*c->resume || dataset_exists("--train_data", c->train_data, &err)) { return; }
    if (config_source(c, "train_data") == FROM_DEFAULT) {
        if (is_directory(c->out) && !check_no_run(c->out, &err)) { return; }
        fatal("no --train_data 'FILES' is given, and there is no %s, its default: `./prepare --stories 3000000 "
              "--out data/stories` writes this small corpus; `sh scripts/quickstart.sh` makes it and trains a small "
              "model on it", c->train_data);
    }
    Error ignored;
    char* shards = format("%s_train_*.bin", c->train_data);
    if (dataset_exists("--train_data", shards, &ignored)) { fatal("%s; did you mean '%s'?", err.text, shards); }
    fatal("%s", err.text);
}

// Returns the validation shards beside training shards: for each pattern with _train_ in a file's name, which ./prepare
// gives them, PREFIX_val_* with the same ending. Empty if there is none. The caller frees the text.
static char* shards_beside(const char* train) {
    char* val = format("%s", "");
    for (char* pattern; (pattern = next_pattern(&train)) != NULL; free(pattern)) {
        const char *name = path_name(pattern), *part = NULL;
        for (const char* at = name; (at = strstr(at, "_train_")) != NULL; at++) { part = at; } // the last one
        if (!part || part == name) { continue; }
        const char* dot = strrchr(part, '.');
        append_format(&val, "%s%.*s_val_*%s", *val ? " " : "", (int)(part - pattern), pattern, dot ? dot : "");
    }
    return val;
}

// Returns true if a run is given data to train on and none to validate on. It then validates on the shards beside
// these: on others its loss would mean nothing.
static bool takes_val_data(const Config* c) {
    return config_source(c, "train_data") != FROM_DEFAULT && config_source(c, "val_data") == FROM_DEFAULT;
}

static void take_val_data(Config* c) {
    Error err;
    if (!takes_val_data(c)) { return; }
    char* val = shards_beside(c->train_data);
    const bool is_used = c->val_every > 0 || dataset_exists("--val_data", val, &err);
    if (!config_set(c, config_find("val_data"), is_used ? val : "", FROM_DEFAULT, &err)) { fatal("%s", err.text); }
    free(val);
}

// Ends the program if there are no shards to validate on, and this start does not name them.
static void require_val_data(const Config* c) {
    Error err;
    const bool is_given = config_source(c, "val_data") > FROM_CHECKPOINT;
    if (is_given || c->val_every == 0 || config_source(c, "train_data") == FROM_DEFAULT) { return; }
    if (!*c->val_data && takes_val_data(c)) {
        notice("no validation: there is no _train_ in --train_data; --val_data gives the shards");
    } else if (*c->val_data && !dataset_exists("--val_data", c->val_data, &err)) {
        fatal("%s; give --val_data 'FILES', or --val_data '' to do without validation", err.text);
    }
}

// Parses the options before a file is created. Those of a checkpoint come later, and may change what they mean.
static Plan parse_given(const Config* c, enum dtype dtype) {
    Error err;
    Plan p;
    if (!plan_parse(&p, dtype, c, &err) || (!*c->resume && !config_check_needs(c, TRAIN, &err))) {
        usage_error("%s", err.text);
    }
    return p;
}

Start start_run(Config* c, const Backend* b, enum dtype dtype, Comm* comm) {
    Error err;
    Start s = {.needs_launcher = comm->size > 1 && !launch_is_local()};
    preset_apply(c);
    require_model(c);
    require_data(c);
    take_val_data(c);
    if (!*c->resume) { require_val_data(c); } // before anything is created
    Plan given = parse_given(c, dtype);
    s.lock = lock_out(c->out, comm->rank);
    s.checkpoint = resume_open(c, &given.data.skip, comm, &s.state);
    skip_windows_free(&given.data.skip);
    if (*c->resume) { require_val_data(c); } // a checkpoint may have named them
    take_folder_tokenizer(c, s.checkpoint ? NULL : init_folder(c));
    check_same_run(comm, c, dtype, s.state);
    s.begin = train_state_from_json(s.state);
    if (!config_check_needs(c, TRAIN, &err) ||
        !plan_make(&s.plan, b, dtype, c, s.checkpoint ? s.checkpoint : init_folder(c), &err) ||
        !plan_check_effects(&s.plan, c, &err)) {
        usage_error("%s", err.text);
    }
    open_device(b, &s.plan.device, comm);
    if (b->device_threads() > num_processors()) {
        notice("warning: %d threads on %d processor%s only wait for one another: give a smaller --threads",
               b->device_threads(), num_processors(), plural((uint64_t)num_processors()));
    }
    if (!plan_batch(&s.plan, comm, &err)) { usage_error("%s", err.text); }
    s.options = plan_options(&s.plan, c);
    if (s.state && !resume_check_changes(&s.before, s.options, dtype, s.state, &err)) { usage_error("%s", err.text); }
    s.command_if_recorded = resume_command(c, true, s.needs_launcher);
    s.command_if_not = resume_command(c, false, s.needs_launcher);
    return s;
}

void start_free(Start* s) {
    free(s->checkpoint);
    json_decref(s->state);
    json_decref(s->options);
    free(s->command_if_recorded);
    free(s->command_if_not);
    skip_windows_free(&s->plan.data.skip);
    skip_windows_free(&s->before.data.skip);
    if (s->lock >= 0) { close(s->lock); }
}
