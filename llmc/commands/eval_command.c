#include "../base/json.h"
#include "commands.h"
#include "open_model.h"
#include "../data/provenance.h"
#include "../eval/core.h"
#include "../eval/score.h"
#include "../eval/text.h"
#include "../eval/validation.h"
#include "../train/consistency.h"
#include "../train/open_plan.h"

// Prints the validation loss of an open model; returns the exit code. `what` names its weights in errors.
static int eval_val_data(GPT2* g, Dataset* data, long long val_tokens, Comm* comm, const char* what) {
    EvalLoader loader;
    int* memory = open_batches(g->backend, g->B, g->T);
    comm_report_activity(comm, 0, RANK_VALIDATES);
    evalloader_open(&loader, data, val_tokens, g->B, memory);
    const double start = seconds_now(), loss = validation_loss(g, &loader, comm, NULL, NULL);
    notice("%llu window%s of %d tokens in %.1f s", (unsigned long long)loader.num_windows, plural(loader.num_windows),
           g->T, seconds_now() - start);
    if (comm->rank == 0) { printf("val loss %f\n", plain_nan(loss)); }
    if (!isfinite(loss)) { notice("error: %s: the loss is not finite", what); }
    const double floor_loss = corpus_floor(data);
    if (isfinite(floor_loss)) { notice("the corpus' own entropy is %f nats a token", floor_loss); }
    evalloader_close(&loader);
    g->backend->host_free(memory);
    return isfinite(loss) ? EXIT_DONE : EXIT_NONFINITE;
}

// Prints the scores of an open model on test sets; returns the exit code.
static int eval_test_sets(GPT2* g, const TestSet* sets, int count, Comm* comm, const char* what) {
    Error err;
    TestScore* scores = alloc_or_die((size_t)count, sizeof *scores, "scores");
    int status = EXIT_DONE;
    comm_report_activity(comm, 0, RANK_SCORES);
    for (int i = 0; i < count; i++) {
        const double start = seconds_now();
        if (!test_set_score(&scores[i], NULL, &sets[i], g, comm, NULL, NULL, &err)) {
            notice("error: %s: %s", what, err.text);
            status = EXIT_NONFINITE;
            break;
        }
        notice("%zu row%s in %.1f s", sets[i].num_rows, plural(sets[i].num_rows), seconds_now() - start);
        if (comm->rank == 0) { test_score_print(&sets[i], &scores[i]); }
    }
    if (status == EXIT_DONE && comm->rank == 0) { core_print(sets, scores, count); }
    free(scores);
    return status;
}

// Opens the sets of --eval_data, and before them those of --text. test_sets_close() frees them.
static TestSet* open_scored_sets(const Config* c, const Tokenizer* t, const Plan* p, int* count) {
    int num_texts, num_sets;
    const TestSetOptions options = {.tokenizer = t, .T = p->T, .vocab_size = p->shape.vocab_size};
    TestSet *texts = text_sets_open(c->text, c->field, &options, (int)c->stride, &num_texts),
            *sets = open_test_sets(&p->phases, t, &num_sets);
    *count = num_texts + num_sets;
    texts = realloc_or_die(texts, ((size_t)*count + 1) * sizeof *texts, "test sets");
    if (num_sets) { memcpy(texts + num_texts, sets, (size_t)num_sets * sizeof *sets); }
    free(sets);
    return texts;
}

// Returns true if eval opens a tokenizer: what it scores is text, or else the data is compared with it. The default is
// not meant for weights with fewer tokens that do not say which tokenizer they have.
static bool opens_tokenizer(const Config* c, const Plan* p, bool scores) {
    return scores || c->document_mask || config_source(c, "tokenizer") > FROM_DEFAULT ||
           p->shape.vocab_size > TOKENIZER_V1_EOT;
}

int eval_command(Config* c, const Backend* b, enum dtype dtype, Comm* comm) {
    Error err;
    Plan plan;
    GPT2 g;
    Dataset data;
    int num_sets = 0;
    TestSet* sets = NULL;
    const bool scores = *c->eval_data || *c->text;
    char* folder = share_text(comm, comm->rank == 0 ? weights_folder(c) : NULL); // another rank might find a newer one
    const char* what = folder ? folder : "random weights";
    take_data_options(c, folder);
    if (!config_check_needs(c, EVAL, &err)) { usage_error("%s", err.text); }
    if (scores) { c->document_mask = 0; } // a row of a test set is one document
    check_same_run(comm, c, dtype, NULL);
    if (!plan_make(&plan, b, dtype, c, folder, &err)) { usage_error("%s", err.text); }
    open_device(b, &plan.device, comm);
    plan.keep = FORWARD_ONLY;
    plan.samples = scores && b->is_host; // the cache of shared contexts
    plan.sample_capacity = plan.shape.max_seq_len;
    plan.total_batch_size = plan.batch_ramp.start = plan.seq_ramp.start = 0; // of a --config that train reads too
    if (!plan_batch(&plan, comm, &err)) { usage_error("%s", err.text); }
    if (c->stride > plan.T) {
        usage_error("--stride %lld is more than --seq_len %d: tokens would be left out", c->stride, plan.T);
    }
    Tokenizer* tokenizer = opens_tokenizer(c, &plan, scores) ? open_tokenizer(&plan.tokenizer, &plan.shape) : NULL;
    check_weights_tokenizer(c, tokenizer, folder);
    if (scores) { sets = open_scored_sets(c, tokenizer, &plan, &num_sets); }
    else {
        open_dataset(&data, "--val_data", plan.data.val, &plan);
        check_data_tokenizer(&data, "--val_data", tokenizer, c->tokenizer);
    }
    check_same_data(comm, 0, scores ? 0 : data.hash, test_sets_hash(sets, num_sets));
    open_model(&g, &plan, comm);
    g.eot = documents_eot(&plan.data, tokenizer);
    check_same_weights(&g, comm);
    const long long val_tokens = config_source(c, "val_tokens") < FROM_FILE ? -1 : c->val_tokens;
    const int status = scores ? eval_test_sets(&g, sets, num_sets, comm, what)
                              : eval_val_data(&g, &data, val_tokens, comm, what);
    if (scores) { test_sets_close(sets, num_sets); }
    else { dataset_close(&data); }
    close_tokenizer(tokenizer);
    gpt2_free(&g);
    free(folder);
    return status;
}
