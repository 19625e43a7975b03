#include "train.h"
#include "consistency.h"
#include "phases.h"
#include "replay.h"
#include "requests.h"
#include "setup.h"
#include "spikes.h"

// ---------------------------------------------------------------------------------------------------------------------
// data

// Requests this rank's next micro-batch. The windows of a step are the same for any micro-batch size, and a window
// belongs to the same micro-batch for any number of ranks. In the first steps of a batch ramp the last ranks may have
// none.
static void train_request(TrainRun* run) {
    Cursor* c = &run->cursor;
    const long long B = run->plan->B, T = run->plan->T, stride = B * run->comm->size, first_row = B * run->comm->rank;
    long long windows = ramp_size(&run->plan->batch_ramp, c->tokens) / T;
    while (c->row >= windows) { // the next step
        c->row = first_row;
        c->window = skip_windows_next(&run->plan->data.skip, c->window, (uint64_t)windows);
        c->tokens += windows * T;
        windows = ramp_size(&run->plan->batch_ramp, c->tokens) / T;
    }
    const long long left = windows - c->row;
    const DataPlan* data = &run->plan->data;
    const uint64_t first = skip_windows_next(&data->skip, data->overfits ? 0 : c->window, (uint64_t)c->row);
    dataloader_request(&run->loader, first, (int)(left < B ? left : B));
    c->row += stride;
}

// A micro-batch as the model sees it: `rows` sequences of T tokens.
typedef struct {
    int rows, T;
} MicroBatch;

// Cuts the windows of a batch into sequences of the step's length (--seq_ramp): its tokens stay where they are, and the
// target of a sequence's last token is the first token of the next one.
static MicroBatch cut_windows(const TrainRun* run, const Batch* b) {
    const MicroBatch cut = {b->rows * (b->T / run->seq_len), run->seq_len};
    return cut;
}

// ---------------------------------------------------------------------------------------------------------------------
// one update

// Begins the all-reduce of a range of the gradients or, with ZeRO, the reduction to the ranks that update it.
static void train_range_ready(void* train_run, float* grads, TensorRange range) {
    TrainRun* run = train_run;
    if (run->optimizer.zero_group) { optimizer_reduce_begin(&run->optimizer, range); }
    else { comm_all_reduce_begin(run->comm, grads + range.begin, range.size); }
}

// Begins the reduction of all ranges, on a rank that has no micro-batch in the last round of the step.
static void train_all_ready(TrainRun* run) {
    const TensorTable* table = &run->model.params_table;
    for (int i = tensors_num_ranges(table) - 1; i >= 0; i--) {
        train_range_ready(run, run->model.grads, tensors_range(table, i));
    }
}

// Ends the program if this rank's first micro-batch of a step has another gradient when it is computed again.
static void train_replay(TrainRun* run, MicroBatch m, float dloss) {
    if (!replay_agrees(&run->model, m.rows, m.T, dloss)) {
        fatal_corruption("step %lld: the same micro-batch gave two results: %s, device %s, computes wrongly. The "
                         "weights may be wrong since the last replay (--replay %lld): look at the GPU "
                         "(scripts/gpu_health.sh), and resume on another one",
                         run->state.step + 1, run->plan->backend->device_name(), run->plan->backend->device_identity(),
                         run->plan->replay_every);
    }
    gpt2_zero_grads(&run->model);
}

// Runs forward and backward of micro-batch number i of the step. In the last one, reduces gradients over ranks layer by
// layer.
static void train_micro_step(TrainRun* run, double tokens, long long i, bool is_last) {
    const Batch* b = dataloader_wait(&run->loader);
    const float dloss = (float)(run->state.loss_scale.scale / tokens);
    const MicroBatch m = cut_windows(run, b);
    upload_batch(&run->model, b);
    train_request(run);
    if (i == 0 && run->replays) { train_replay(run, m, dloss); }
    gpt2_micro_step(&run->model, m.rows, m.T, dloss, is_last && run->comm->size > 1 ? train_range_ready : NULL, run);
}

// Returns true if the ranks compare their times in the step that begins or runs now.
static bool is_timed_step(const TrainRun* run) {
    enum { EVERY = 100 };
    return run->comm->size > 1 && (run->state.step + 1) % EVERY == 0;
}

// Logs how long each rank has computed in this step, from its begin to the end of its backward. What follows, the rest
// of the all-reduces and the update, waits for the slowest one.
static void train_compare_ranks(TrainRun* run) {
    const int size = run->comm->size;
    double* seconds = alloc_or_die((size_t)size, sizeof *seconds, "times of ranks");
    seconds[run->comm->rank] = run->compute_seconds;
    comm_all_reduce_host(run->comm, seconds, (size_t)size); // each adds to zeros: a gather
    logger_ranks(&run->log, (int)run->state.step, seconds, size);
    free(seconds);
}

// Queues the gradient of the mean loss over `windows` sequences, accumulated over micro-batches and ranks, and its
// norm. Returns false if the run is to stop before the last micro-batch, whose gradients are reduced: the gradient is
// then incomplete.
static bool train_gradients(TrainRun* run, long long windows) {
    GPT2* g = &run->model;
    const Backend* b = run->plan->backend;
    Mailbox* mail = run->mailbox;
    Progress shown = {0, 0};
    const long long B = run->plan->B, stride = B * run->comm->size, rounds = (windows + stride - 1) / stride;
    const double start = seconds_now();
    if (is_timed_step(run)) { b->device_timer_start(); }
    gpt2_zero_grads(g);
    for (long long i = 0; i < rounds; i++) {
        const long long first = i * stride + B * run->comm->rank;
        if (run_is_interrupted(run)) { return false; }
        if (first < windows) { train_micro_step(run, (double)windows * run->plan->T, i, i + 1 == rounds); }
        else { train_all_ready(run); }
        progress(&shown, "step %lld: micro-batch %lld of %lld", run->state.step + 1, i + 1, rounds);
    }
    if (is_timed_step(run)) { run->compute_seconds = b->device_timer_stop(); }
    comm_end(run->comm);
    optimizer_norm(&run->optimizer);
    mail->votes[0] = request_to_stop() != NULL;
    mail->votes[1] = request_to_save() || (run->failed_saves > 0 && !run->saver.is_busy); // once for a failure
    mail->votes[2] = seconds_now() - start > (double)rounds * SLOW_BATCH;
    b->device_send(&g->sums[SUM_STOP], mail->votes, sizeof mail->votes);
    // without ZeRO each rank has the norm of the whole gradient: only the sums before SUM_NORM are reduced
    comm_all_reduce_sums(run->comm, g->sums, run->optimizer.zero_group ? NUM_SUMS : SUM_NORM);
    b->device_fetch(mail->sums, g->sums, sizeof mail->sums);
    return true;
}

// The next step and the steps of the run; with a batch ramp counted as tokens / tokens of a full batch.
typedef struct {
    double step, steps;
} StepCount;

static StepCount train_steps(const TrainRun* run) {
    const double full = (double)run->plan->batch_ramp.full;
    if (!run->plan->batch_ramp.start) { return (StepCount){(double)run->state.step, (double)run->num_steps}; }
    return (StepCount){(double)run->state.tokens / full, (double)run->total_tokens / full};
}

// Returns a learning rate of the next step.
static double train_lr(const TrainRun* run, double peak) {
    const StepCount s = train_steps(run);
    return schedule_rate(&run->plan->schedule, peak, s.step, s.steps);
}

static Hyper train_hyper(const TrainRun* run) {
    const Rates* rates = &run->plan->rates;
    const StepCount s = train_steps(run);
    Hyper h = rates->peak;
    for (int g = 0; g < NUM_GROUPS; g++) { h.adamw.lr[g] = (float)train_lr(run, rates->lr[g]); }
    h.muon.lr = h.adamw.lr[GROUP_MATRIX];
    h.muon.momentum = (float)rates_momentum(rates, s.step, s.steps);
    h.adamw.grad_scale = h.muon.grad_scale = 1 / run->state.loss_scale.scale;
    h.adamw.step = h.muon.step = (int)run->state.updates + 1;
    h.adamw.rounding_seed = h.muon.rounding_seed = run->optimizer.rounding.seed;
    return h;
}

// Sets the rates that are not --lr, and a momentum that changes. Biases and layernorms have --lr.
static void record_rates(const TrainRun* run, const Hyper* h, StepRecord* r) {
    const Rates* rates = &run->plan->rates;
    const double embedding = rates->lr[GROUP_EMBEDDING], matrix = rates->lr[GROUP_MATRIX], lr = rates->lr[GROUP_VECTOR];
    r->embedding_lr = embedding != lr ? train_lr(run, embedding) : (double)NAN;
    r->matrix_lr = matrix != lr ? train_lr(run, matrix) : (double)NAN;
    r->momentum = rates->warmup.steps || rates->cooldown.steps ? (double)h->muon.momentum : (double)NAN;
}

// Sets the length of the next step's sequences, and logs it at the first step of a start and where it changes.
static void train_set_seq_len(TrainRun* run) {
    const int T = (int)ramp_size(&run->plan->seq_ramp, run->state.tokens);
    if (run->plan->seq_ramp.start && T != run->seq_len) {
        logger_notice(&run->log, "step %lld: sequences of %d tokens", run->state.step + 1, T);
    }
    run->seq_len = T;
}

// Returns true if this step begins with a replay: the first of each start, and every --replay steps. All ranks agree,
// also those that have no micro-batch to replay.
static bool is_replayed_step(const TrainRun* run) {
    const long long every = run->plan->replay_every;
    return every > 0 && (run->state.step == run->first_step || run->state.step % every == 0);
}

// Begins at the state that was loaded or, in a fresh run, made: requests its first micro-batch.
static void train_begin(TrainRun* run) {
    run->done_step = run->saved_step = run->resumed ? run->state.step : -1;
    run->first_step = run->state.step;
    run->is_slow = true; // until a step has shown otherwise
    run->cursor = (Cursor){.tokens = run->state.tokens, .window = run->state.window,
                           .row = (long long)run->plan->B * run->comm->rank};
    train_request(run);
}

// Does one step, or nothing if the run is to stop between its micro-batches (run_is_interrupted). Queues all work of
// the device and waits for it once: the update is queued before the loss is known, since it changes nothing if the norm
// is not finite. If a finite step may be skipped, the update has to wait for loss and norm.
static void train_step(TrainRun* run) {
    const Backend* b = run->plan->backend;
    TrainState* s = &run->state;
    const double start = seconds_now();
    const long long tokens = ramp_size(&run->plan->batch_ramp, s->tokens), windows = tokens / run->plan->T;
    const bool may_skip = spikes_may_skip(&run->plan->spikes);
    StepRecord r = {.step = (int)s->step + 1,
                    .tokens = (size_t)(s->tokens + tokens),
                    .step_tokens = (size_t)tokens,
                    .lr = train_lr(run, run->plan->rates.lr[GROUP_VECTOR]),
                    .loss_z = NAN,
                    .norm_z = NAN,
                    .loss_scale = loss_scale_is_on(&s->loss_scale) ? s->loss_scale.scale : 0};
    const Hyper hyper = train_hyper(run);
    record_rates(run, &hyper, &r);
    train_set_seq_len(run);
    run->replays = is_replayed_step(run);
    if (run->replays) { check_same_weights(&run->model, run->comm); }
    if (!train_gradients(run, windows)) { return; } // run->stops
    if (!may_skip) { optimizer_update(&run->optimizer, &hyper); }
    b->device_sync();
    const double* sums = run->mailbox->sums;
    r.loss = sums[SUM_LOSS] / (double)tokens;
    r.norm = sqrt(sums[SUM_NORM]) / s->loss_scale.scale;
    const bool is_timed = is_timed_step(run), skips = spikes_judge(run, &r);
    run->stops = sums[SUM_STOP] > 0;
    run->saves = sums[SUM_SAVE] > 0;
    run->is_slow = sums[SUM_SLOW] > 0;
    if (may_skip && !skips) {
        optimizer_update(&run->optimizer, &hyper);
        b->device_sync();
    }
    s->step++;
    s->updates += !skips;
    s->tokens += tokens;
    s->window = skip_windows_next(&run->plan->data.skip, s->window, (uint64_t)windows);
    const double seconds = seconds_now() - start, per_token = gpt2_flops_per_token(&run->model, run->seq_len);
    const double flops = per_token * (double)tokens / seconds;
    r.ms = 1e3 * seconds;
    r.mfu = run->peak_flops > 0 ? flops / (run->peak_flops * run->comm->size) : NAN;
    logger_step(&run->log, &r);
    if (is_timed) { train_compare_ranks(run); }
    if (seconds_now() >= run->report_due) { train_report(run); }
}

// ---------------------------------------------------------------------------------------------------------------------
// the loop

// Does a phase, after telling the other ranks of it: their messages name it if they have to wait for this rank.
static void train_phase(TrainRun* run, RankActivity activity, void (*phase)(TrainRun*)) {
    comm_report_activity(run->comm, run->state.step, activity);
    phase(run);
}

// Does what is due after an update, or at the start, and what a stop has left of it.
static void train_due_phases(TrainRun* run) {
    Phases* pending = &run->state.pending;
    if (run->done_step != run->state.step) {
        *pending = train_phases_due(run);
        // before other batches are uploaded
    }
    run->done_step = run->state.step;
    if (pending->val) { train_phase(run, RANK_VALIDATES, train_validate); }
    if (pending->eval && !run->stops) { train_phase(run, RANK_SCORES, train_score); }
    if (pending->sample && !run->stops) { train_phase(run, RANK_SAMPLES, train_sample); }
}

// Leaves the file DONE_%08d if llm.c's letters started this program: llm.c's scripts start it again and again until the
// file is there. The last checkpoint is complete.
static void train_leave_done_file(const TrainRun* run) {
    Error err;
    const SavePlan* p = &run->plan->save;
    const bool is_complete = train_is_complete(run);
    if (!p->leaves_done_file || !is_complete || !*p->out || p->every == 0 || run->comm->rank != 0) { return; }
    char* path = format("%s/DONE_%08lld", p->out, run->state.step);
    if (!path_exists(path) && !write_file_atomically(path, "", 0, &err)) { notice("warning: %s", err.text); }
    free(path);
}

// Says how to continue a run that was stopped.
static void train_say_how_to_go_on(TrainRun* run) {
    const SavePlan* p = &run->plan->save;
    if (!*p->out || p->every == 0) {
        notice("stopped; nothing was saved, as --out or --save_every asked");
        return;
    }
    const Start* start = &run->start;
    const bool is_recorded = !run->resumed || run->state.step > run->first_step;
    logger_notice(&run->log, "continue with%s: %s", start->needs_launcher ? ", started by the same launcher" : "",
                  is_recorded ? start->command_if_recorded : start->command_if_not);
}

// Says what ended the loop, in the logs and to who watches.
static void train_say_end(TrainRun* run) {
    const char* asked = request_to_stop();
    const bool is_complete = train_is_complete(run);
    if (run->stops) { train_say_how_to_go_on(run); }
    logger_end(&run->log, (int)run->state.step, is_complete ? "finished" : "stopped",
               is_complete ? "" : asked ? asked : "asked by another process of the run");
}

int train(Config* config, const Backend* b, enum dtype dtype, Comm* comm) {
    requests_open();
    TrainRun* run = train_open(start_run(config, b, dtype, comm), comm);
    if (run->resumed && train_is_complete(run)) {
        notice("finished at step %lld; to go on, give a larger --max_steps", run->state.step);
    }
    if (run->was_finished) {
        train_leave_done_file(run); // a kill may have come before
        comm_report_activity(comm, run->state.step, RANK_ENDS);
        return train_close(run);
    }
    train_begin(run);
    for (;;) {
        if (comm->size == 1 && request_to_stop()) { run->stops = true; }
        train_due_phases(run);
        if (train_save_is_due(run)) { train_phase(run, RANK_SAVES, train_save); }
        if (run->stops || run->state.step >= run->num_steps) { break; }
        train_phase(run, RANK_TRAINS, train_step);
        train_look_at_save(run);
    }
    train_finish_save(run);
    train_leave_done_file(run);
    comm_report_activity(comm, run->state.step, RANK_ENDS);
    train_say_end(run);
    train_report(run);
    return train_close(run);
}
