#include "position.h"
#include "open_plan.h"

// Returns the tokens that a run is asked for: those of --max_steps full batches, or of the full batches in an epoch.
static long long asked_tokens(const Plan* plan, long long epoch) {
    const long long batch = plan->total_batch_size;
    return plan->max_steps >= 0 ? plan->max_steps * batch : epoch / batch * batch;
}

RunLength run_length(const Plan* plan, long long epoch, long long step, long long tokens) {
    const long long asked = asked_tokens(plan, epoch);
    const bool counts_tokens = plan->batch_ramp.start || plan->max_steps < 0;
    const long long steps = counts_tokens ? step + ramp_steps(&plan->batch_ramp, tokens, asked) : plan->max_steps;
    const long long left = steps > step ? steps - step : 0;
    return (RunLength){steps, plan->batch_ramp.start ? asked : tokens + left * plan->total_batch_size};
}

// Sets the length of the run, of which so many steps and tokens are done, perhaps in batches of another size.
static void count_steps(Position* p, long long step, long long tokens) {
    const Plan* plan = p->plan;
    const long long batch = plan->total_batch_size, most = 2000000000; // AdamW and the log hold the step in an int
    if (plan->max_steps > most || plan->max_steps > (1LL << 62) / batch) {
        usage_error("--max_steps %lld is too many", plan->max_steps);
    }
    p->epoch_tokens = (long long)p->data.num_windows * plan->T;
    if (asked_tokens(plan, p->epoch_tokens) == 0 && plan->max_steps < 0) {
        fatal("--train_data %s: an epoch of %lld tokens is less than --total_batch_size %lld: give --max_steps or a "
              "smaller batch", plan->data.train, p->epoch_tokens, batch);
    }
    p->length = run_length(plan, p->epoch_tokens, step, tokens);
    if (p->length.steps < step) {
        usage_error("--max_steps %lld: the run has done %lld steps: give at least as many", plan->max_steps, step);
    }
    if (plan->max_steps >= 0 && tokens - p->length.tokens >= batch) { // in a batch ramp; its last step may go beyond
        usage_error("--max_steps %lld: the run has done %lld tokens, %lld full steps: give at least as many",
                    plan->max_steps, tokens, tokens / batch);
    }
    if (p->length.steps > most) {
        usage_error("%lld steps are too many: give a larger --total_batch_size", p->length.steps);
    }
}

// Ends the program if there is nothing for --document_mask to do: dataset_find() finds no end of text.
static void check_documents(Position* p, const Tokenizer* tokenizer) {
    Error err;
    const int eot = documents_eot(&p->plan->data, tokenizer);
    bool found;
    if (eot == NO_DOCUMENTS) { return; }
    if (!dataset_find(&p->data, eot, &found, &err)) { fatal("%s", err.text); }
    if (found) { return; }
    fatal("--document_mask 1: --train_data %s: no end-of-text token (%d) between documents in the first file, nor in "
          "the first and last 32768 tokens of the others: give the --tokenizer of the data, or data of several "
          "documents, or leave the option out",
          p->plan->data.train, eot);
}

void position_open(Position* p, const Plan* plan, const Comm* comm, const Tokenizer* tokenizer,
                   const TrainState* begin) {
    *p = (Position){.plan = plan, .rank = comm->rank, .ranks = comm->size};
    open_dataset(&p->data, "--train_data", plan->data.train, plan);
    check_documents(p, tokenizer);
    count_steps(p, begin->step, begin->tokens);
}

// Requests this rank's next micro-batch. The windows of a step are the same for any micro-batch size, and a window
// belongs to the same micro-batch for any number of ranks. In the first steps of a batch ramp the last ranks may have
// none.
static void request_next(Position* p) {
    Cursor* c = &p->next;
    const Ramp* ramp = &p->plan->batch_ramp;
    const DataPlan* data = &p->plan->data;
    const long long B = p->plan->B, T = p->plan->T, stride = B * p->ranks, first_row = B * p->rank;
    long long windows = ramp_size(ramp, c->tokens) / T;
    while (c->row >= windows) { // the next step
        c->row = first_row;
        c->window = skip_windows_next(&data->skip, c->window, (uint64_t)windows);
        c->tokens += windows * T;
        windows = ramp_size(ramp, c->tokens) / T;
    }
    const long long left = windows - c->row;
    const uint64_t first = skip_windows_next(&data->skip, data->overfits ? 0 : c->window, (uint64_t)c->row);
    dataloader_request(&p->loader, first, (int)(left < B ? left : B));
    c->row += stride;
}

void position_begin(Position* p, long long tokens, uint64_t window) {
    const Plan* plan = p->plan;
    const DataOrder order = plan->data.shuffles ? DATA_SHUFFLED : DATA_IN_ORDER;
    p->memory = open_batches(plan->backend, plan->B, plan->T);
    dataloader_open(&p->loader, &p->data, order, plan->seed, &plan->data.skip, plan->B, p->memory);
    p->tokens = tokens;
    p->window = window;
    p->next = (Cursor){.tokens = tokens, .window = window, .row = (long long)plan->B * p->rank};
    request_next(p);
}

void position_close(Position* p) {
    if (p->memory) {
        dataloader_close(&p->loader);
        p->plan->backend->host_free(p->memory);
    }
    dataset_close(&p->data);
}

long long position_step_tokens(const Position* p) { return ramp_size(&p->plan->batch_ramp, p->tokens); }

bool position_set_seq_len(Position* p) {
    const int T = (int)ramp_size(&p->plan->seq_ramp, p->tokens);
    const bool changes = p->plan->seq_ramp.start && T != p->seq_len;
    p->seq_len = T;
    return changes;
}

// The tokens of a window stay where they are: the target of a sequence's last token is the first token of the next one.
MicroBatch position_take(Position* p, GPT2* g) {
    const Batch* b = dataloader_wait(&p->loader);
    const MicroBatch cut = {b->rows * (b->T / p->seq_len), p->seq_len};
    gpt2_upload(g, b->tokens, (size_t)b->rows * (size_t)b->T); // targets and order lie behind the tokens
    request_next(p);
    return cut;
}

uint64_t position_first(const Position* p) { return skip_windows_next(&p->plan->data.skip, p->window, 0); }

uint64_t position_last(const Position* p, long long tokens) {
    return skip_windows_next(&p->plan->data.skip, p->window, (uint64_t)(tokens / p->plan->T) - 1);
}

StepCount step_count(const Plan* plan, RunLength length, long long step, long long tokens) {
    const double full = (double)plan->total_batch_size;
    if (!plan->batch_ramp.start) { return (StepCount){(double)step, (double)length.steps}; }
    return (StepCount){(double)tokens / full, (double)length.tokens / full};
}

StepCount position_steps(const Position* p, long long step) {
    return step_count(p->plan, p->length, step, p->tokens);
}

void position_advance(Position* p, long long tokens) {
    p->tokens += tokens;
    p->window = skip_windows_next(&p->plan->data.skip, p->window, (uint64_t)(tokens / p->plan->T));
}
