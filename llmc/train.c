#include "train.h"
#include "comm/consistency.h"
#include "generate.h"
#include "log/report.h"
#include "setup.h"
#include <signal.h>

// ---------------------------------------------------------------------------------------------------------------------
// stopping

static volatile sig_atomic_t stop_requested; // SIGINT or SIGTERM came

static void request_stop(int signal_number) {
    static const char text[] = "\nstopping, and saving what is not saved yet; the same signal again ends at once\n";
    stop_requested = 1;
    if (process_rank == 0 && write(STDERR_FILENO, text, sizeof text - 1) < 0) { /* standard error is closed */ }
    signal(signal_number, SIG_DFL);
}

static bool is_stopped(void) { return stop_requested != 0; }

// ---------------------------------------------------------------------------------------------------------------------
// data

// Requests this rank's next micro-batch. The windows of a step are the same for any micro-batch size, and a window
// belongs to the same micro-batch for any number of ranks. In the first steps of a batch ramp the last ranks may have
// none.
static void train_request(TrainRun* run) {
    Cursor* c = &run->cursor;
    const long long B = run->plan.B, T = run->plan.T, stride = B * run->comm->size, first_row = B * run->comm->rank;
    long long windows = ramp_batch(&run->ramp, c->tokens) / T;
    while (c->row >= windows) { // the next step
        c->row = first_row;
        c->window += (uint64_t)windows;
        c->tokens += windows * T;
        windows = ramp_batch(&run->ramp, c->tokens) / T;
    }
    const long long left = windows - c->row;
    dataloader_request(&run->loader, (run->config->overfit ? 0 : c->window) + (uint64_t)c->row,
                       (int)(left < B ? left : B));
    c->row += stride;
}

// Queues the upload of a batch: targets and order lie behind the tokens.
static void upload(GPT2* g, const Batch* b) { gpt2_upload(g, b->tokens, (size_t)b->rows * (size_t)b->T); }

// ---------------------------------------------------------------------------------------------------------------------
// one update

// Begins the all-reduce of a range of the gradients or, with ZeRO, its reduce-scatter.
static void train_range_ready(void* train_run, float* grads, TensorRange range) {
    TrainRun* run = train_run;
    if (run->optimizer.zero_group) { comm_reduce_scatter_begin(run->comm, grads + range.begin, range.size); }
    else { comm_all_reduce_begin(run->comm, grads + range.begin, range.size); }
}

// Begins the reduction of all ranges, on a rank that has no micro-batch in the last round of the step.
static void train_all_ready(TrainRun* run) {
    const TensorTable* table = &run->model.params_table;
    for (int i = tensors_num_ranges(table) - 1; i >= 0; i--) {
        train_range_ready(run, run->model.grads, tensors_range(table, i));
    }
}

// Runs forward and backward of one micro-batch. In the last one of a step, reduces gradients over ranks layer by layer.
static void train_micro_step(TrainRun* run, double tokens, bool is_last) {
    const Batch* b = dataloader_wait(&run->loader);
    upload(&run->model, b);
    train_request(run);
    gpt2_micro_step(&run->model, b->rows, b->T, (float)(1.0 / tokens),
                    is_last && run->comm->size > 1 ? train_range_ready : NULL, run);
}

// Queues the gradient of the mean loss over `windows` sequences, accumulated over micro-batches and ranks, and its
// norm. Returns false if a single process was asked to stop in between: the gradient is then incomplete.
static bool train_gradients(TrainRun* run, long long windows) {
    GPT2* g = &run->model;
    const Backend* b = run->plan.backend;
    Mailbox* mail = run->mailbox;
    Progress shown = {0, 0};
    const long long B = run->plan.B, stride = B * run->comm->size;
    gpt2_zero_grads(g);
    for (long long first = 0; first < windows; first += stride) {
        const bool is_last = first + stride >= windows;
        if (run->comm->size == 1 && stop_requested) { return false; }
        if (first + B * run->comm->rank < windows) { train_micro_step(run, (double)windows * run->plan.T, is_last); }
        else { train_all_ready(run); }
        progress(&shown, "step %lld: micro-batch %lld of %lld", run->state.step + 1, first / stride + 1,
                 (windows + stride - 1) / stride);
    }
    comm_end(run->comm);
    optimizer_norm(&run->optimizer);
    mail->stop = stop_requested;
    b->device_send(&g->sums[SUM_STOP], &mail->stop, sizeof mail->stop);
    // without ZeRO each rank has the norm of the whole gradient: only the sums before SUM_NORM are reduced
    comm_all_reduce_sums(run->comm, g->sums, run->optimizer.zero_group ? NUM_SUMS : SUM_NORM);
    b->device_fetch(mail->sums, g->sums, sizeof mail->sums);
    return true;
}

// Returns true if this step's update is to be skipped: the z-score of its loss or norm is above --skip_loss_z or
// --skip_norm_z.
static bool train_is_outlier(TrainRun* run, double loss_z, double norm_z) {
    const Config* c = run->config;
    const int step = (int)run->state.step + 1;
    const bool skip_loss = c->skip_loss_z > 0 && loss_z > c->skip_loss_z,
               skip_norm = c->skip_norm_z > 0 && norm_z > c->skip_norm_z;
    if (skip_loss) { logger_skip(&run->log, step, "loss", loss_z); }
    else if (skip_norm) { logger_skip(&run->log, step, "grad", norm_z); }
    return skip_loss || skip_norm;
}

static void ATTR_NORETURN train_stop_nonfinite(TrainRun* run, double loss, double norm) {
    size_t count = 0;
    logger_erase_bar(&run->log);
    long long* steps = *run->config->out ? checkpoint_list(run->config->out, &count) : NULL;
    notice("error: step %lld: loss %f, norm of the gradient %f: not finite, so the run ends here. Lower --lr, or raise "
           "--warmup_steps.", run->state.step + 1, loss, norm);
    if (count) {
        notice("The last good checkpoint is %s/step_%08lld; continue from it with --resume auto.", run->config->out,
               steps[0]);
    }
    wait_for_rank0_message();
    exit(EXIT_NONFINITE);
}

// Returns the learning rate of the next step. With a batch ramp, steps are counted as tokens / tokens of a full batch.
static double train_lr(const TrainRun* run) {
    const TrainState* s = &run->state;
    const double full = (double)run->ramp.full;
    return run->ramp.start ? schedule_lr(run->config, (double)s->tokens / full, (double)run->total_tokens / full)
                           : schedule_lr(run->config, (double)s->step, (double)run->num_steps);
}

static AdamW train_hyper(const TrainRun* run, double lr) {
    const Config* c = run->config;
    const AdamW hyper = {.lr = (float)lr,
                         .beta1 = (float)c->beta1,
                         .beta2 = (float)c->beta2,
                         .eps = (float)c->eps,
                         .weight_decay = (float)c->weight_decay,
                         .grad_clip = (float)c->grad_clip,
                         .step = (int)run->state.step + 1,
                         .rounding_seed = c->stochastic_round ? mix64((uint64_t)c->seed) | 1 : 0};
    return hyper;
}

// Does one step, or nothing if a single process was asked to stop. Queues all work of the device and waits for it once:
// the update is queued before the loss is known, since it changes nothing if the norm is not finite. With --skip_loss_z
// or --skip_norm_z it has to wait for both.
static void train_step(TrainRun* run) {
    const Config* c = run->config;
    const Backend* b = run->plan.backend;
    TrainState* s = &run->state;
    const double start = seconds_now();
    const long long tokens = ramp_batch(&run->ramp, s->tokens), windows = tokens / run->plan.T;
    const bool may_skip = c->skip_loss_z > 0 || c->skip_norm_z > 0;
    const double lr = train_lr(run);
    const AdamW hyper = train_hyper(run, lr);
    if (!train_gradients(run, windows)) { return; }
    if (!may_skip) { optimizer_update(&run->optimizer, &hyper); }
    b->device_sync();
    const double* sums = run->mailbox->sums;
    const double loss = sums[SUM_LOSS] / (double)tokens, norm = sqrt(sums[SUM_NORM]);
    if (!isfinite(loss) || !isfinite(norm)) { train_stop_nonfinite(run, loss, norm); }
    const double loss_z = outlier_update(&s->loss_window, loss), norm_z = outlier_update(&s->norm_window, norm);
    if (may_skip && !train_is_outlier(run, loss_z, norm_z)) {
        optimizer_update(&run->optimizer, &hyper);
        b->device_sync();
    }
    run->stops = sums[SUM_STOP] > 0;
    s->step++;
    s->tokens += tokens;
    s->window += (uint64_t)windows;
    const double seconds = seconds_now() - start, flops = gpt2_flops_per_token(&run->model) * (double)tokens / seconds;
    const StepRecord record = {.step = (int)s->step,
                               .tokens = (size_t)s->tokens,
                               .step_tokens = (size_t)tokens,
                               .loss = loss,
                               .norm = norm,
                               .lr = lr,
                               .loss_z = loss_z,
                               .norm_z = norm_z,
                               .ms = 1e3 * seconds,
                               .mfu = run->peak_flops > 0 ? flops / (run->peak_flops * run->comm->size) : NAN};
    logger_step(&run->log, &record);
}

// ---------------------------------------------------------------------------------------------------------------------
// validation, samples, checkpoints

double validation_loss(GPT2* g, EvalLoader* val, Comm* comm, bool (*stopped)(void)) {
    const Backend* b = g->backend;
    double loss = 0;
    long long batch = 0;
    Progress shown = {0, 0};
    const long long share = (long long)g->B * comm->size, batches = ((long long)val->num_windows + share - 1) / share;
    b->device_zero(g->sums, NUM_SUMS * sizeof(double));
    evalloader_begin(val, comm->rank, comm->size);
    for (const Batch* next; (next = evalloader_next(val)) != NULL;) {
        if (stopped && stopped()) { return NAN; }
        upload(g, next);
        gpt2_forward(g, next->rows, next->T, NULL);
        gpt2_loss(g, next->rows, next->T);
        progress(&shown, "validating: batch %lld of %lld", ++batch, batches);
    }
    comm_all_reduce_sums(comm, &g->sums[SUM_LOSS], 1);
    b->device_copy_out(&loss, &g->sums[SUM_LOSS], sizeof loss);
    return loss / ((double)val->num_windows * g->T);
}

// Validates. A single process can be stopped between two batches.
static void train_validate(TrainRun* run) {
    const bool alone = run->comm->size == 1;
    check_same_weights(&run->model, run->comm);
    const double loss = validation_loss(&run->model, &run->val, run->comm, alone ? is_stopped : NULL);
    if (alone && stop_requested && isnan(loss)) { return; }
    logger_val(&run->log, (int)run->state.step, loss);
}

typedef struct {
    char* text;
    size_t bytes;
} TextBuffer;

static void text_append(void* buffer, const char* text, size_t bytes) {
    TextBuffer* b = buffer;
    b->text = realloc_or_die(b->text, b->bytes + bytes, "a sample");
    memcpy(b->text + b->bytes, text, bytes);
    b->bytes += bytes;
}

static void train_sample(TrainRun* run) {
    const Config* c = run->config;
    if (run->comm->rank != 0) { return; }
    const Sampling s = {.temperature = c->temperature, .top_k = (int)c->top_k, .top_p = c->top_p,
                        .seed = (uint64_t)c->seed};
    TextBuffer b = {NULL, 0};
    text_append(&b, c->prompt, strlen(c->prompt));
    generate(&run->model, &run->tokenizer, c->prompt, (size_t)c->sample_tokens, &s, text_append, &b);
    logger_sample(&run->log, (int)run->state.step, b.text, b.bytes);
    free(b.text);
}

static void train_save(TrainRun* run) {
    Error err;
    const Config* c = run->config;
    check_same_weights(&run->model, run->comm);
    if (run->comm->rank != 0) {
        checkpoint_hand_over(&run->optimizer);
        return;
    }
    const int eot = run->has_tokenizer ? run->tokenizer.eot : -1;
    char* path = checkpoint_save(c->out, &run->optimizer, &run->state, &run->plan, c, eot, &err);
    if (!path) { fatal("%s", err.text); }
    logger_save(&run->log, (int)run->state.step, path);
    free(path);
    char* report = format("%s/report.html", c->out);
    const char* folders[1] = {c->out};
    if (!report_write(report, folders, 1, &err)) { notice("warning: %s", err.text); }
    free(report);
}

// ---------------------------------------------------------------------------------------------------------------------
// the loop

// Returns true before the first step, after every multiple of `every`, and after the last step; never if `every` is 0.
static bool train_due(const TrainRun* run, long long every) {
    return every > 0 && (run->state.step % every == 0 || run->state.step >= run->num_steps);
}

// Does a phase, after telling the other ranks of it: their messages name it if they have to wait for this rank.
static void train_phase(TrainRun* run, RankActivity activity, void (*phase)(TrainRun*)) {
    comm_report_activity(run->comm, run->state.step, activity);
    phase(run);
}

// Does what is due after an update, or at the start.
static void train_due_phases(TrainRun* run) {
    const Config* c = run->config;
    const bool samples = run->has_tokenizer && train_due(run, c->sample_every);
    if (run->has_val && train_due(run, c->val_every)) { train_phase(run, RANK_VALIDATES, train_validate); }
    if (samples && !(run->comm->size == 1 && stop_requested)) { train_phase(run, RANK_SAMPLES, train_sample); }
    if (run->comm->size == 1) { run->stops = stop_requested; } // else all ranks must stop after the same step
}

static bool train_save_due(const TrainRun* run) {
    const Config* c = run->config;
    return *c->out && run->state.step > 0 && c->save_every > 0 && (run->stops || train_due(run, c->save_every));
}

int train(Config* config, const Backend* b, const char* dtype, Comm* comm) {
    TrainRun* run = train_open(config, b, dtype, comm);
    long long done = run->resumed ? run->state.step : -1; // the step whose phases were done
    long long saved = done; // the step of the last checkpoint
    signal(SIGINT, request_stop);
    signal(SIGTERM, request_stop);
    train_request(run);
    for (;;) {
        if (comm->size == 1) { run->stops = stop_requested; }
        if (done != run->state.step) { train_due_phases(run); }
        if (saved != run->state.step && train_save_due(run)) {
            train_phase(run, RANK_SAVES, train_save);
            saved = run->state.step;
        }
        done = run->state.step;
        if (run->stops || run->state.step >= run->num_steps) { break; }
        train_phase(run, RANK_TRAINS, train_step);
    }
    comm_report_activity(comm, run->state.step, RANK_ENDS);
    if (run->stops && (!*config->out || config->save_every == 0)) {
        notice("stopped; nothing was saved, as --out or --save_every asked");
    }
    return train_close(run);
}
