#include "open_plan.h"
#include "../base/json.h"
#include "../data/dataloader.h"
#include "../data/provenance.h"
#include "../tokenizer/tokenizer_json.h"
#include "../tokenizer/tokenizer_open.h"
#include "weights.h"

void open_dataset(Dataset* d, const char* option, const char* patterns, const Plan* p) {
    Error err;
    if (!dataset_open(d, option, patterns, p->data.header, p->T, p->shape.vocab_size, &err)) { fatal("%s", err.text); }
}

int* open_batches(const Backend* b, int B, int T) {
    return b->host_alloc(dataloader_ints(B, T) * sizeof(int), "batches of tokens");
}

Tokenizer* open_tokenizer(const TokenizerPlan* plan, const GPT2Config* m) {
    if (!strcmp(plan->option, "none")) { return NULL; }
    Tokenizer* t = alloc_or_die(1, sizeof *t, "the tokenizer");
    *t = tokenizer_open(plan->path);
    if (t->vocab_size > m->vocab_size) {
        fatal("the tokenizer %s has %d tokens, the model's vocabulary only %d: give --tokenizer, the one that the "
              "model's data was prepared with", plan->option, t->vocab_size, m->vocab_size);
    }
    return t;
}

void close_tokenizer(Tokenizer* t) {
    if (t) { tokenizer_free(t); }
    free(t);
}

int documents_eot(const DataPlan* data, const Tokenizer* t) {
    if (!data->masks_documents) { return NO_DOCUMENTS; }
    if (!t) {
        usage_error("--document_mask 1: documents begin at the tokenizer's end-of-text token, and --tokenizer is none: "
                    "give the tokenizer of the data");
    }
    return t->eot;
}

TestSet* open_test_sets(const PhasePlan* p, const Tokenizer* t, int* count) {
    TestSetOptions options = p->test_sets;
    options.tokenizer = t;
    return test_sets_open(p->eval_data, &options, count);
}

// Finds the hash of the tokenizer in a folder of weights, which may be NULL or have none. Reads it only if the option
// names another one.
static bool folder_tokenizer_hash(const char* option, const char* folder, uint64_t* hash) {
    Tokenizer t;
    Error ignored; // a model's own tokenizer may be of another kind
    if (!folder || !strcmp(option, folder) || !folder_has_tokenizer(folder)) { return false; }
    if (!tokenizer_read(&t, folder, &ignored)) { return false; }
    *hash = tokenizer_hash(&t);
    tokenizer_free(&t);
    return true;
}

void check_tokenizer(const char* option, const Tokenizer* t, const char* folder, bool may_differ) {
    uint64_t hash;
    if (!t && may_differ) { return; }
    json_t* state = folder_state(folder);
    const bool is_run = json_get_hex(state, "tokenizer_hash", &hash);
    const bool is_known = is_run ? hash || !may_differ // 0: it had none
                                 : may_differ && folder_tokenizer_hash(option, folder, &hash);
    const bool is_same = !is_known || hash == (t ? tokenizer_hash(t) : 0);
    json_decref(state);
    if (is_same) { return; }
    char* text = format("--tokenizer %s: not the tokenizer that the %s in %s has been trained with: its tokens, or the "
                        "end of text, differ", option, is_run ? "run" : "model", folder);
    if (!may_differ) { fatal("%s", text); }
    notice("warning: %s", text);
    free(text);
}

void check_data_tokenizer(Dataset* d, const char* option, const Tokenizer* t, const char* name) {
    Error err;
    if (t && !dataset_check_tokenizer(d, option, t, name, &err)) { fatal("%s", err.text); }
}
