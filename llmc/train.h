// The training loop, once for all devices and storage types: like gpt2.h it is compiled for each, after the kernels.
//
//   train()           the run as a sequence of one-line phases
//     train_open()    settings, data, model, weights or checkpoint, logs     (setup.h)
//     train_step()    one update: micro-batches, norm, clipping, AdamW
//     train_validate(), train_sample(), train_save()
#pragma once
#include "report.h"
#include "setup.h"

// ---------------------------------------------------------------------------------------------------------------------
// data

// Asks for this rank's next micro-batch. Row r of a step's windows belongs to the same micro-batch for any number of
// ranks, and a step's windows are the same for any micro-batch size. The first steps of a batch ramp may have none for
// the last ranks.
static inline void train_request(TrainRun* run) {
    Cursor* c = &run->cursor;
    const long long B = run->model.B, stride = B * run->comm->size, first_row = B * run->comm->rank;
    long long windows = ramp_batch(&run->ramp, c->tokens) / run->model.T;
    while (c->row >= windows) { // on to the next step
        c->row = first_row;
        c->window += (uint64_t)windows;
        c->tokens += windows * run->model.T;
        windows = ramp_batch(&run->ramp, c->tokens) / run->model.T;
    }
    const long long left = windows - c->row;
    dataloader_request(&run->loader, (run->config->overfit ? 0 : c->window) + (uint64_t)c->row,
                       (int)(left < B ? left : B));
    c->row += stride;
}

static inline void batch_to_device(GPT2* g, const Batch* b) {
    const size_t n = (size_t)b->rows * (size_t)b->T;
    gpt2_next_batch(g, n);
    device_upload(g->tokens, b->tokens, 3 * n * sizeof(int)); // targets and order lie behind them
}

// ---------------------------------------------------------------------------------------------------------------------
// one update

static volatile sig_atomic_t stop_requested; // SIGINT or SIGTERM came: save and end after this step, on all ranks

static inline void request_stop(int signal_number) {
    stop_requested = 1;
    signal(signal_number, SIG_DFL); // who asks twice does not want to wait
}

// Begins to add up a range of the gradients over all ranks, or for each rank the part of it that it keeps the moments
// of.
static inline void train_range_ready(void* train_run, float* grads, TensorRange range) {
    TrainRun* run = (TrainRun*)train_run;
    if (run->model.sharers) { comm_scatter_begin(run->comm, grads + range.begin, range.size); }
    else { comm_sum_begin(run->comm, grads + range.begin, range.size); }
}

// A micro-batch forward and backward. Gradients go out to the other ranks with a step's last one, layer by layer.
static inline void train_micro_step(TrainRun* run, double tokens, bool is_last) {
    GPT2* g = &run->model;
    const Batch* b = dataloader_wait(&run->loader);
    batch_to_device(g, b);
    train_request(run);
    gpt2_micro_step(g, b->rows, b->T, (float)(1.0 / tokens), is_last && run->comm->size > 1 ? train_range_ready : NULL,
                    run);
}

// Queues the gradients of the mean loss over `windows` sequences, accumulated over micro-batches and ranks, and their
// norm.
static inline void train_gradients(TrainRun* run, long long windows) {
    GPT2* g = &run->model;
    const long long B = g->B, stride = B * run->comm->size;
    gpt2_zero_grads(g);
    for (long long first = 0; first < windows; first += stride) {
        const bool is_last = first + stride >= windows;
        if (first + B * run->comm->rank < windows) { train_micro_step(run, (double)windows * g->T, is_last); }
        else { gpt2_all_ready(g, train_range_ready, run); } // no rows for this rank
    }
    comm_end(run->comm);
    gpt2_grad_norm(g);
    gpt2_send_stop(g, stop_requested);
    comm_sum(run->comm, g->sums, g->sharers ? NUM_SUMS : SUM_NORM); // unshared, each rank has the whole norm
    gpt2_fetch_sums(g);
}

// Whether this step's update is to be left out: its loss or norm is too far above the last 128 (--skip_loss_z,
// _norm_z).
static inline bool train_is_outlier(TrainRun* run, double loss_z, double norm_z) {
    const Config* c = run->config;
    const int step = (int)run->state.step + 1;
    const bool skip_loss = c->skip_loss_z > 0 && loss_z > c->skip_loss_z,
               skip_norm = c->skip_norm_z > 0 && norm_z > c->skip_norm_z;
    if (skip_loss) { logger_skip(&run->log, step, "loss", loss_z); }
    else if (skip_norm) { logger_skip(&run->log, step, "grad", norm_z); }
    return skip_loss || skip_norm;
}

static inline void ATTR_NORETURN train_stop_nonfinite(TrainRun* run, double loss, double norm) {
    size_t count = 0;
    logger_erase_bar(&run->log);
    long long* steps = *run->config->out ? checkpoint_list(run->config->out, &count) : NULL;
    notice("error: step %lld: loss %f, norm of the gradient %f: not finite, so the run ends here. Lower --lr, or raise "
           "--warmup_steps.",
           run->state.step + 1, loss, norm);
    if (count) {
        notice("The last good checkpoint is %s/step_%08lld; go on from it with --resume auto.", run->config->out,
               steps[0]);
    }
    let_first_speak();
    exit(EXIT_NONFINITE);
}

static inline double train_lr(const TrainRun* run) {
    const TrainState* s = &run->state;
    const double full = (double)run->ramp.full;
    return run->ramp.start ? schedule_lr(run->config, (double)s->tokens / full, (double)run->total_tokens / full)
                           : schedule_lr(run->config, (double)s->step, (double)run->num_steps);
}

static inline AdamW train_hyper(const TrainRun* run, double lr) {
    const Config* c = run->config;
    const AdamW hyper = {(float)lr,
                         (float)c->beta1,
                         (float)c->beta2,
                         (float)c->eps,
                         (float)c->weight_decay,
                         (float)c->grad_clip,
                         (int)run->state.step + 1,
                         c->stochastic_round ? mix64((uint64_t)c->seed) | 1 : 0};
    return hyper;
}

// Everything is queued first and waited for once; unless the update may have to be left out, it is queued too, and then
// changes nothing if the norm turns out not to be finite.
static inline void train_step(TrainRun* run) {
    const Config* c = run->config;
    TrainState* s = &run->state;
    const double start = seconds_now();
    const long long tokens = ramp_batch(&run->ramp, s->tokens), windows = tokens / run->model.T;
    const bool may_skip = c->skip_loss_z > 0 || c->skip_norm_z > 0;
    const double lr = train_lr(run);
    const AdamW hyper = train_hyper(run, lr);
    train_gradients(run, windows);
    if (!may_skip) { gpt2_update(&run->model, &hyper); }
    device_sync();
    const double* sums = run->model.mailbox->sums;
    const double loss = sums[SUM_LOSS] / (double)tokens, norm = sqrt(sums[SUM_NORM]);
    if (!isfinite(loss) || !isfinite(norm)) { train_stop_nonfinite(run, loss, norm); }
    const double loss_z = outlier_update(&s->loss_window, loss), norm_z = outlier_update(&s->norm_window, norm);
    if (may_skip && !train_is_outlier(run, loss_z, norm_z)) {
        gpt2_update(&run->model, &hyper);
        device_sync();
    }
    run->stops = sums[SUM_STOP] > 0;
    s->step++;
    s->tokens += tokens;
    s->window += (uint64_t)windows;
    const double seconds = seconds_now() - start;
    const double mfu =
        model_flops_per_token(&run->model) * (double)tokens / seconds / (run->peak_flops * run->comm->size);
    const StepRecord record = {
        (int)s->step, (size_t)s->tokens, (size_t)tokens, loss, norm, lr, loss_z, norm_z, 1e3 * seconds, mfu};
    logger_step(&run->log, &record);
}

// ---------------------------------------------------------------------------------------------------------------------
// now and then

// The mean loss over the validation windows.
static inline double validation_loss(GPT2* g, EvalLoader* val, Comm* comm) {
    double loss = 0;
    device_zero(g->sums, NUM_SUMS * sizeof(double));
    evalloader_begin(val, comm->rank, comm->size);
    for (const Batch* b; (b = evalloader_next(val)) != NULL;) {
        batch_to_device(g, b);
        gpt2_forward(g, b->rows, b->T, NULL);
        gpt2_loss(g, b->rows, b->T);
    }
    comm_sum(comm, &g->sums[SUM_LOSS], 1);
    device_copy_out(&loss, &g->sums[SUM_LOSS], sizeof loss);
    return loss / ((double)val->num_windows * g->T);
}

static inline void train_validate(TrainRun* run) {
    check_same_weights(&run->model, run->comm);
    logger_val(&run->log, (int)run->state.step, validation_loss(&run->model, &run->val, run->comm));
}

typedef struct {
    char* text;
    size_t bytes;
} TextBuffer;

static inline void text_append(void* buffer, const char* text, size_t bytes) {
    TextBuffer* b = (TextBuffer*)buffer;
    b->text = (char*)realloc_or_die(b->text, b->bytes + bytes, "a sample");
    memcpy(b->text + b->bytes, text, bytes);
    b->bytes += bytes;
}

static inline void train_sample(TrainRun* run) {
    const Config* c = run->config;
    if (run->comm->rank != 0) { return; }
    const Sampling s = {c->temperature, (int)c->top_k, c->top_p, (uint64_t)c->seed};
    TextBuffer b = {NULL, 0};
    text_append(&b, c->prompt, strlen(c->prompt));
    generate(&run->model, &run->tokenizer, c->prompt, (size_t)c->sample_tokens, &s, text_append, &b);
    logger_sample(&run->log, (int)run->state.step, b.text, b.bytes);
    free(b.text);
}

static inline void train_save(TrainRun* run) {
    Error err;
    const Config* c = run->config;
    check_same_weights(&run->model, run->comm);
    if (run->comm->rank != 0) { checkpoint_hand_over(&run->model); return; }
    char* path = checkpoint_save(c->out, &run->model, &run->state, c, run->tokenizer.eot, &err);
    if (!path) { fatal("%s", err.text); }
    logger_save(&run->log, (int)run->state.step, path);
    free(path);
    char* report = format("%s/report.html", c->out);
    const char* folders[1] = {c->out};
    if (!report_write(report, folders, 1, &err)) { notice("warning: %s", err.text); }
    free(report);
}

// True at the first step, at every multiple of `every`, and at the last one; never if `every` is 0.
static inline bool train_due(const TrainRun* run, long long every) {
    return every > 0 && (run->state.step % every == 0 || run->state.step >= run->num_steps);
}

// A phase of the loop, of which the other ranks are told, should they have to wait for it.
static inline void train_now(TrainRun* run, RankActivity activity, void (*phase)(TrainRun*)) {
    comm_tell(run->comm, run->state.step, activity);
    phase(run);
}

static inline int train(Config* config, Comm* comm) {
    TrainRun* run = train_open(config, comm);
    signal(SIGINT, request_stop);
    signal(SIGTERM, request_stop);
    train_request(run);
    for (bool fresh = !run->resumed;; fresh = true) { // what was due at the step resumed from has been done
        if (comm->size == 1) { run->stops = stop_requested; } // else all ranks must stop after the same step
        const bool stop = run->stops || run->state.step >= run->num_steps;
        const bool validates = run->has_val && train_due(run, config->val_every);
        if (fresh && validates) { train_now(run, RANK_VALIDATES, train_validate); }
        if (fresh && train_due(run, config->sample_every)) { train_now(run, RANK_SAMPLES, train_sample); }
        const bool save = train_due(run, config->save_every) || (run->stops && config->save_every > 0);
        if (fresh && *config->out && run->state.step > 0 && save) { train_now(run, RANK_SAVES, train_save); }
        if (stop) { break; }
        train_now(run, RANK_TRAINS, train_step);
    }
    comm_tell(comm, run->state.step, RANK_ENDS);
    if (run->stops && (!*config->out || config->save_every == 0)) {
        notice("stopped; nothing was saved, as --out or --save_every asked");
    }
    return train_close(run);
}
