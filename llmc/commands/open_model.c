#include "open_model.h"
#include "../base/file.h"
#include "../files/checkpoint.h"
#include "../train/open_plan.h"
#include "../train/weights.h"

char* weights_folder(const Config* c) {
    if (strcmp(c->init, "random")) {
        if (is_directory(c->init)) { checkpoint_hold(c->init); } // its run may go on
        return format("%s", c->init);
    }
    if (config_source(c, "init") >= FROM_FILE) { return NULL; }
    json_t* state = NULL;
    char* folder = *c->out ? checkpoint_newest(c->out, &state, CHECKPOINT_READ) : NULL;
    if (!folder && *c->out && folder_has(c->out, "config.json")) {
        fatal("--out %s holds weights, not a run: give --init %s", c->out, shell_word(c->out));
    }
    if (!folder) {
        fatal("--out %s holds no checkpoint: train first, or give --init FOLDER (or --init random)",
              *c->out ? c->out : "\"\"");
    }
    json_decref(state);
    notice("using %s", folder);
    return folder;
}

void take_data_options(Config* c, const char* folder) {
    static const char* const names[] = {"tokenizer", "val_data", "data_format", "seq_len", "document_mask"};
    Error err;
    json_t* state = folder_state(folder);
    json_t *options = json_object_get(state, "options"), *taken = json_object();
    for (size_t i = 0; options && i < sizeof names / sizeof *names; i++) {
        json_object_set(taken, names[i], json_object_get(options, names[i]));
    }
    if (!config_from_json(c, taken, folder ? folder : "", &err)) { fatal("%s", err.text); }
    json_decref(taken);
    json_decref(state);
    take_folder_tokenizer(c, folder);
}

int trained_positions(const GPT2Config* m, const char* folder) {
    json_t *state = folder_state(folder), *options = json_object_get(state, "options");
    const char* init = json_string_value(json_object_get(options, "init"));
    const json_int_t seq_len = json_integer_value(json_object_get(options, "seq_len"));
    const bool are_fewer = init && !strcmp(init, "random") && seq_len > 0 && seq_len < m->max_seq_len;
    json_decref(state);
    return are_fewer ? (int)seq_len : m->max_seq_len;
}

void check_weights_tokenizer(const Config* c, const Tokenizer* t, const char* folder) {
    if (t) { check_tokenizer(c->tokenizer, t, folder, config_source(c, "tokenizer") >= FROM_FILE); }
}

Tokenizer* open_text_tokenizer(const Config* c, const Plan* p, const char* folder, const char* command) {
    Tokenizer* tokenizer = open_tokenizer(&p->tokenizer, &p->shape);
    if (!tokenizer) {
        usage_error("%s needs a tokenizer, and the run was trained with --tokenizer none: give --tokenizer FILE",
                    command);
    }
    check_weights_tokenizer(c, tokenizer, folder);
    return tokenizer;
}

void open_model(GPT2* g, const Plan* p, Comm* comm) {
    Error err;
    if (!plan_check_memory(p, comm, &err)) { fatal("%s", err.text); }
    plan_layout(p, g);
    gpt2_alloc(g);
    load_weights(g, NULL, p);
}
