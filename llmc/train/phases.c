#include "phases.h"
#include "consistency.h"
#include "open_plan.h"
#include "requests.h"
#include "../eval/core.h"
#include "../eval/score.h"
#include "../eval/validation.h"
#include "../log/report.h"

void phases_open(PhaseState* p, const Plan* plan, long long last_step, const Tokenizer* tokenizer) {
    *p = (PhaseState){.plan = plan, .tokenizer = tokenizer, .last_step = last_step, .done_step = -1};
    p->has_val = *plan->data.val && plan->phases.val_every > 0;
    if (p->has_val) { open_dataset(&p->val_data, "--val_data", plan->data.val, plan); }
    if (plan->phases.test_sets.every > 0) {
        p->test_sets = open_test_sets(&plan->phases, tokenizer, &p->num_test_sets);
    }
}

static Phases phases_due(const PhaseState* p, long long step) {
    const PhasePlan* plan = &p->plan->phases;
    return (Phases){.val = p->has_val && step_is_due(step, p->last_step, plan->val_every),
                    .eval = p->num_test_sets && step_is_due(step, p->last_step, plan->test_sets.every),
                    .sample = p->tokenizer && step_is_due(step, p->last_step, plan->sample_every)};
}

void phases_resume(PhaseState* p, long long step, Phases pending) {
    const Phases due = phases_due(p, step);
    p->done_step = step;
    p->pending = (Phases){.val = pending.val && due.val,
                          .eval = pending.eval && due.eval,
                          .sample = pending.sample && due.sample};
}

void phases_begin(PhaseState* p, GPT2* model, Ranks* ranks, Logger* log) {
    p->model = model;
    p->ranks = ranks;
    p->log = log;
    if (!p->has_val) { return; }
    p->val_memory = open_batches(p->plan->backend, p->plan->B, p->plan->T);
    evalloader_open(&p->val, &p->val_data, p->plan->data.val_tokens, p->plan->B, p->val_memory);
}

void phases_close(PhaseState* p) {
    if (p->val_memory) {
        evalloader_close(&p->val);
        p->plan->backend->host_free(p->val_memory);
    }
    if (p->has_val) { dataset_close(&p->val_data); }
    test_sets_close(p->test_sets, p->num_test_sets);
}

void phases_add_due(PhaseState* p, long long step) {
    if (p->done_step != step) { p->pending = phases_due(p, step); }
    p->done_step = step;
}

bool phases_are_pending(const PhaseState* p) { return p->pending.val || p->pending.eval || p->pending.sample; }

bool phases_validate(PhaseState* p, Validated* result) {
    Ranks* ranks = p->ranks;
    check_same_weights(p->model, ranks->comm);
    const double loss = validation_loss(p->model, &p->val, ranks->comm, ranks_are_interrupted, ranks);
    if (ranks->stops && isnan(loss)) { return false; }
    p->pending.val = false;
    logger_val(p->log, (int)p->done_step, loss);
    const uint64_t data = hash64(&p->val.num_windows, sizeof p->val.num_windows, p->val_data.hash);
    *result = (Validated){p->done_step, loss, data};
    return true;
}

void phases_score(PhaseState* p) {
    Error err;
    Ranks* ranks = p->ranks;
    const int count = p->num_test_sets;
    TestScore* scores = alloc_or_die((size_t)count, sizeof *scores, "scores");
    bool is_whole = true;
    for (int i = 0; i < count && !ranks->stops; i++) {
        const TestSet* s = &p->test_sets[i];
        TestScore* score = &scores[i];
        if (!test_set_score(score, NULL, s, p->model, ranks->comm, ranks_are_interrupted, ranks, &err)) {
            logger_notice(p->log, "warning: no score: %s", err.text); // the next step will say more
        } else if (score->total) {
            logger_eval(p->log, (int)p->done_step, s->name, s->convention, (int)score->correct, (int)score->total);
        }
        is_whole = is_whole && score->total;
    }
    double error;
    int tasks;
    const double core = core_score(p->test_sets, scores, is_whole ? count : 0, &error, &tasks);
    if (tasks) { logger_notice(p->log, "CORE: %f, standard error %.4f, of %d tasks", core, error, tasks); }
    free(scores);
    p->pending.eval = ranks->stops && !is_whole;
}

typedef struct {
    Buffer text;
    bool is_cut; // by a request to stop
} Sample;

static bool take_token(void* sample, const NextToken* token) {
    Sample* s = sample;
    buffer_append(&s->text, token->bytes, token->size);
    s->is_cut = request_to_stop() != NULL;
    return !s->is_cut;
}

// Makes a sample and logs it. Returns false if a request to stop has cut it.
static bool log_sample(const PhaseState* p) {
    Error err;
    const PhasePlan* plan = &p->plan->phases;
    const GenerateOptions options = {.context = p->plan->sample_context, .sampling = plan->sampling,
                                     .max_tokens = plan->sample_tokens, .samples = 1, .stops_at_eot = true};
    Sample s = {.is_cut = false};
    const TextSink sink = {.token = take_token, .context = &s};
    TokenList prompt = prompt_tokens(p->tokenizer, plan->prompt, strlen(plan->prompt));
    buffer_append(&s.text, plan->prompt, strlen(plan->prompt));
    if (generate(p->model, p->tokenizer, &prompt, 1, &options, &sink, NULL, &err)) {
        logger_sample(p->log, (int)p->done_step, s.text.data, s.text.bytes);
    } else { // the next step will say more
        logger_notice(p->log, "warning: no sample: %s", err.text);
    }
    token_list_free(&prompt);
    free(s.text.data);
    return !s.is_cut;
}

void phases_sample(PhaseState* p) {
    Ranks* ranks = p->ranks;
    p->pending.sample = !comm_all(ranks->comm, ranks->comm->rank > 0 || log_sample(p));
    ranks->stops = ranks->stops || p->pending.sample;
}

void phases_report(PhaseState* p) {
    Error err;
    const char* folder = p->plan->save.out;
    if (p->ranks->comm->rank != 0 || !*folder) { return; }
    const double start = seconds_now();
    char* path = format("%s/report.html", folder);
    if (!report_write(path, &folder, 1, &err)) { notice("warning: %s", err.text); }
    free(path);
    const double now = seconds_now();
    p->report_due = now + fmax(10, 100 * (now - start));
}
