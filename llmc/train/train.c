#include "train.h"
#include "../base/file.h"
#include "consistency.h"
#include "replay.h"
#include "requests.h"
#include "setup.h"
#include "spikes.h"

// ---------------------------------------------------------------------------------------------------------------------
// one update

// Begins the all-reduce of a range of the gradients or, with ZeRO, the reduction to the ranks that update it.
static void train_range_ready(void* train_run, float* grads, TensorRange range) {
    TrainRun* run = train_run;
    if (run->optimizer.zero_group) { optimizer_reduce_begin(&run->optimizer, range); }
    else { comm_all_reduce_begin(run->ranks.comm, grads + range.begin, range.size); }
}

// Begins the reduction of all ranges, on a rank that has no micro-batch in the last round of the step.
static void train_all_ready(TrainRun* run) {
    const TensorTable* table = &run->model.params_table;
    gpt2_no_backward(&run->model);
    for (int i = tensors_num_ranges(table) - 1; i >= 0; i--) {
        train_range_ready(run, run->model.grads, tensors_range(table, i));
    }
}

// Returns true if this step begins with a replay: the first of each start, and every --replay steps. All ranks agree,
// also those that have no micro-batch to replay.
static bool is_replayed_step(const TrainRun* run) {
    const long long every = run->plan->replay_every;
    return every > 0 && (run->step == run->first_step || run->step % every == 0);
}

// Ends the program if this rank's first micro-batch of a step has another gradient when it is computed again.
static void train_replay(TrainRun* run, MicroBatch m, float dloss) {
    if (!replay_agrees(&run->model, m.rows, m.T, dloss)) {
        fatal_corruption("step %lld: the same micro-batch gave two results: %s, device %s, computes wrongly. The "
                         "weights may be wrong since the last replay (--replay %lld): look at the GPU "
                         "(scripts/gpu_health.sh), and resume on another one",
                         run->step + 1, run->plan->backend->device_name(), run->plan->backend->device_identity(),
                         run->plan->replay_every);
    }
    gpt2_zero_grads(&run->model);
}

// Runs forward and backward of micro-batch number i of the step. In the last one, reduces gradients over ranks layer by
// layer.
static void train_micro_step(TrainRun* run, double tokens, long long i, bool is_last) {
    const float dloss = (float)(run->numerics.loss_scale.scale / tokens);
    const MicroBatch m = position_take(&run->position, &run->model);
    if (i == 0 && is_replayed_step(run)) { train_replay(run, m, dloss); }
    const bool reduces = is_last && run->ranks.comm->size > 1;
    gpt2_micro_step(&run->model, m.rows, m.T, dloss, reduces ? train_range_ready : NULL, run);
}

// Returns true if the ranks compare their times in the step that begins now.
static bool is_timed_step(const TrainRun* run) {
    enum { EVERY = 100 };
    return run->ranks.comm->size > 1 && (run->step + 1) % EVERY == 0;
}

// Logs how long each rank has computed in this step, from its begin to the end of its backward. What follows, the rest
// of the all-reduces and the update, waits for the slowest one.
static void train_compare_ranks(TrainRun* run, double compute_seconds) {
    const int size = run->ranks.comm->size;
    double* seconds = alloc_or_die((size_t)size, sizeof *seconds, "times of ranks");
    seconds[run->ranks.comm->rank] = compute_seconds;
    comm_all_reduce_host(run->ranks.comm, seconds, (size_t)size); // each adds to zeros: a gather
    logger_ranks(&run->log, (int)run->step, seconds, size);
    free(seconds);
}

// Queues the gradient of the mean loss over `windows` sequences, accumulated over micro-batches and ranks, its norm,
// and the votes. Returns false if the run is to stop before the last micro-batch, whose gradients are reduced: the
// gradient is then incomplete. compute_seconds: NULL, or set to the time from the step's begin to the end of backward.
static bool train_gradients(TrainRun* run, long long windows, double* compute_seconds) {
    const Backend* b = run->plan->backend;
    Ranks* ranks = &run->ranks;
    Progress shown = {0, 0};
    const long long B = run->plan->B, stride = B * ranks->comm->size, rounds = (windows + stride - 1) / stride;
    const double start = seconds_now();
    if (compute_seconds) { b->device_timer_start(); }
    gpt2_zero_grads(&run->model);
    for (long long i = 0; i < rounds; i++) {
        const long long first = i * stride + B * ranks->comm->rank;
        if (ranks_leave_step(ranks)) { return false; }
        if (first < windows) { train_micro_step(run, (double)windows * run->plan->T, i, i + 1 == rounds); }
        else { train_all_ready(run); }
        progress(&shown, "step %lld: micro-batch %lld of %lld", run->step + 1, i + 1, rounds);
    }
    if (compute_seconds) { *compute_seconds = b->device_timer_stop(); }
    comm_end(ranks->comm);
    optimizer_norm(&run->optimizer);
    const bool saves_again = run->saving.failed_saves > 0 && !run->saving.saver.is_busy; // once for a failure
    ranks_vote(ranks, &run->optimizer, saves_again, seconds_now() - start, rounds);
    return true;
}

// Returns what the optimizer's kernels need for the next step.
static Hyper train_hyper(const TrainRun* run) {
    const Rates* rates = &run->plan->rates;
    const StepCount s = position_steps(&run->position, run->step);
    Hyper h = rates->peak;
    for (int g = 0; g < NUM_GROUPS; g++) {
        h.adamw.lr[g] = (float)schedule_rate(&run->plan->schedule, rates->lr[g], s.step, s.steps);
    }
    h.muon.lr = h.adamw.lr[GROUP_MATRIX];
    h.muon.momentum = (float)rates_momentum(rates, s.step, s.steps);
    h.adamw.grad_scale = h.muon.grad_scale = 1 / run->numerics.loss_scale.scale;
    h.adamw.step = h.muon.step = (int)run->updates + 1;
    h.adamw.rounding_seed = h.muon.rounding_seed = run->optimizer.rounding.seed;
    return h;
}

// Sets the rates of a step: --lr, which biases and layernorms have, those that are not --lr, and a momentum that
// changes.
static void record_rates(const Rates* rates, const Hyper* h, StepRecord* r) {
    const double embedding = rates->lr[GROUP_EMBEDDING], matrix = rates->lr[GROUP_MATRIX], lr = rates->lr[GROUP_VECTOR];
    r->lr = (double)h->adamw.lr[GROUP_VECTOR];
    r->embedding_lr = embedding != lr ? (double)h->adamw.lr[GROUP_EMBEDDING] : (double)NAN;
    r->matrix_lr = matrix != lr ? (double)h->adamw.lr[GROUP_MATRIX] : (double)NAN;
    r->momentum = rates->warmup.steps || rates->cooldown.steps ? (double)h->muon.momentum : (double)NAN;
}

// Returns the record of the step that begins, which counts `tokens`; loss, norm and times are set at its end.
static StepRecord train_record(const TrainRun* run, long long tokens, const Hyper* hyper) {
    const LossScale* scale = &run->numerics.loss_scale;
    StepRecord r = {.step = (int)run->step + 1,
                    .tokens = (size_t)(run->position.tokens + tokens),
                    .step_tokens = (size_t)tokens,
                    .loss_z = NAN,
                    .norm_z = NAN,
                    .loss_scale = loss_scale_is_on(scale) ? scale->scale : 0};
    record_rates(&run->plan->rates, hyper, &r);
    return r;
}

// Sets and logs what the step has taken, since `start`.
static void train_log_step(TrainRun* run, StepRecord* r, double start) {
    const double seconds = seconds_now() - start;
    const double flops = gpt2_flops_per_token(&run->model, run->position.seq_len) * (double)r->step_tokens / seconds;
    r->ms = 1e3 * seconds;
    r->mfu = run->peak_flops > 0 ? flops / (run->peak_flops * run->ranks.comm->size) : NAN;
    logger_step(&run->log, r);
}

// Does one step, or nothing if the run is to stop between its micro-batches (ranks_leave_step). Queues all work of
// the device and waits for it once: the update is queued before the loss is known, since it changes nothing if the norm
// is not finite. If a finite step may be skipped, the update has to wait for loss and norm.
static void train_step(TrainRun* run) {
    const Backend* b = run->plan->backend;
    const double start = seconds_now(), *sums = run->ranks.mailbox->sums;
    const long long tokens = position_step_tokens(&run->position);
    const bool may_skip = numerics_may_skip(&run->plan->spikes), is_timed = is_timed_step(run);
    const Hyper hyper = train_hyper(run);
    StepRecord r = train_record(run, tokens, &hyper);
    double compute_seconds = 0;
    if (position_set_seq_len(&run->position)) {
        logger_notice(&run->log, "step %d: sequences of %d tokens", r.step, run->position.seq_len);
    }
    if (is_replayed_step(run)) { check_same_weights(&run->model, run->ranks.comm); }
    if (!train_gradients(run, tokens / run->plan->T, is_timed ? &compute_seconds : NULL)) { return; } // ranks.stops
    if (!may_skip) { optimizer_update(&run->optimizer, &hyper); }
    b->device_sync();
    r.loss = sums[SUM_LOSS] / (double)tokens;
    r.norm = sqrt(sums[SUM_NORM]) / run->numerics.loss_scale.scale;
    const Verdict verdict = numerics_judge(&run->numerics, &r, &run->plan->spikes, &run->log);
    if (verdict == STEP_ENDS_RUN) { spikes_end_run(run, &r); }
    ranks_count_votes(&run->ranks);
    if (may_skip && verdict == STEP_UPDATES) {
        optimizer_update(&run->optimizer, &hyper);
        b->device_sync();
    }
    run->step++;
    run->updates += verdict == STEP_UPDATES;
    position_advance(&run->position, tokens);
    train_log_step(run, &r, start);
    if (is_timed) { train_compare_ranks(run, compute_seconds); }
    if (seconds_now() >= run->phases.report_due) { phases_report(&run->phases); }
}

// ---------------------------------------------------------------------------------------------------------------------
// between steps

// Tells the other ranks what this one does: their messages name it if they have to wait for it.
static void train_tell(const TrainRun* run, RankActivity activity) {
    comm_report_activity(run->ranks.comm, run->step, activity);
}

// Does what is due after an update, or at the start, and what a stop has left of it.
static void train_phases(TrainRun* run) {
    PhaseState* p = &run->phases;
    const bool* stops = &run->ranks.stops; // which each phase may set
    Validated validated;
    phases_add_due(p, run->step);
    if (p->pending.val) {
        train_tell(run, RANK_VALIDATES);
        if (phases_validate(p, &validated)) { saving_take_validation(&run->saving, validated); }
    }
    if (p->pending.eval && !*stops) {
        train_tell(run, RANK_SCORES);
        phases_score(p);
    }
    if (p->pending.sample && !*stops) {
        train_tell(run, RANK_SAMPLES);
        phases_sample(p);
    }
}

// Returns the state of the run, which a checkpoint holds (restore_state).
static TrainState train_state(const TrainRun* run) {
    return (TrainState){.step = run->step,
                        .updates = run->updates,
                        .tokens = run->position.tokens,
                        .window = run->position.window,
                        .data_hash = run->position.data.hash,
                        .tokenizer_hash = run->tokenizer ? tokenizer_hash(run->tokenizer) : 0,
                        .numerics = run->numerics,
                        .pending = run->phases.pending};
}

// Begins a checkpoint if one is due.
static void train_save(TrainRun* run) {
    const bool is_asked = run->ranks.stops || run->ranks.saves;
    if (!saving_is_due(&run->saving, run->step, run->position.length.steps, is_asked)) { return; }
    train_tell(run, RANK_SAVES);
    check_same_weights(&run->model, run->ranks.comm);
    if (saving_begin(&run->saving, &run->optimizer, train_state(run))) { phases_report(&run->phases); }
}

// ---------------------------------------------------------------------------------------------------------------------
// the end

// Leaves the file DONE_%08d if llm.c's letters started this program: llm.c's scripts start it again and again until the
// file is there. The last checkpoint is complete.
static void train_leave_done_file(const TrainRun* run) {
    Error err;
    const SavePlan* p = &run->plan->save;
    const bool is_complete = train_is_complete(run);
    if (!p->leaves_done_file || !is_complete || !*p->out || p->every == 0 || run->ranks.comm->rank != 0) { return; }
    char* path = format("%s/DONE_%08lld", p->out, run->step);
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
    const bool is_recorded = !start->checkpoint || run->step > run->first_step;
    logger_notice(&run->log, "continue with%s: %s", start->needs_launcher ? ", started by the same launcher" : "",
                  is_recorded ? start->command_if_recorded : start->command_if_not);
}

// Says what ended the loop, in the logs and to who watches.
static void train_say_end(TrainRun* run) {
    const char* asked = request_to_stop();
    const bool is_complete = train_is_complete(run);
    if (run->ranks.stops) { train_say_how_to_go_on(run); }
    logger_end(&run->log, (int)run->step, is_complete ? "finished" : "stopped",
               is_complete ? "" : asked ? asked : "asked by another process of the run");
}

int train(Config* config, const Backend* b, enum dtype dtype, Comm* comm) {
    TrainRun* run = train_open(start_run(config, b, dtype, comm), comm);
    if (run->start.checkpoint && train_is_complete(run)) {
        notice("finished at step %lld; to go on, give a larger --max_steps", run->step);
    }
    if (run->was_finished) {
        train_leave_done_file(run); // a kill may have come before
        train_tell(run, RANK_ENDS);
        return train_close(run);
    }
    for (;;) {
        ranks_look(&run->ranks);
        train_phases(run);
        train_save(run);
        if (run->ranks.stops || run->step >= run->position.length.steps) { break; }
        train_tell(run, RANK_TRAINS);
        train_step(run);
        if (saving_look(&run->saving)) { phases_report(&run->phases); }
    }
    saving_finish(&run->saving);
    train_leave_done_file(run);
    train_tell(run, RANK_ENDS);
    train_say_end(run);
    phases_report(&run->phases);
    return train_close(run);
}
