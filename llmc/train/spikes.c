#include "spikes.h"
#include "consistency.h"
#include "../base/json.h"
#include "nonfinite.h"
#include "phases.h"
#include "resume.h"

OnSpike on_spike(const Config* c, long long* steps) {
    static const char rewind[] = "rewind:";
    const size_t length = strlen(rewind);
    char* end;
    if (!strcmp(c->on_spike, "skip")) { return ON_SPIKE_SKIP; }
    if (!strcmp(c->on_spike, "stop")) { return ON_SPIKE_STOP; }
    const long long n = strncmp(c->on_spike, rewind, length) ? 0 : strtoll(c->on_spike + length, &end, 10);
    if (n < 1 || n > 1000000 || *end) {
        usage_error("--on_spike '%s': give skip, stop or rewind:N, such as rewind:200", c->on_spike);
    }
    if (c->overfit) { usage_error("--on_spike %s leaves data out, but --overfit has a single batch", c->on_spike); }
    if (!*c->out || c->save_every == 0) {
        usage_error("--on_spike %s goes back to a checkpoint, but %s asks for none", c->on_spike,
                    *c->out ? "--save_every 0" : "an empty --out");
    }
    if (steps) { *steps = n; }
    return ON_SPIKE_REWIND;
}

bool spikes_may_skip(const Config* c) {
    return c->skip_loss_z > 0 || c->skip_norm_z > 0 || on_spike(c, NULL) != ON_SPIKE_SKIP;
}

// ---------------------------------------------------------------------------------------------------------------------
// losses and norms that are not finite

// Names the last good checkpoint.
static void name_last_good(const TrainRun* run) {
    size_t count;
    const char* out = run->config->out;
    long long* steps = checkpoint_list(out, &count);
    const long long good = checkpoint_before(out, run->state.step, CHECKPOINT_TO_NAME);
    const bool has_bad = count > 0 && steps[0] == run->state.step;
    if (has_bad) { notice("%s/step_%08lld holds the weights that gave this loss.", out, steps[0]); }
    if (good >= 0) {
        notice("The last good checkpoint is %s/step_%08lld; continue from it with --resume auto%s.", out, good,
               has_bad ? ", after moving the newer one away" : "");
    }
    free(steps);
}

// Returns the last window of the step that has just been computed.
static unsigned long long last_window(const TrainRun* run, const StepRecord* r) {
    return run->state.window + r->step_tokens / (size_t)run->plan.T - 1;
}

// Ends the run at a step whose loss or gradient is not finite. Rank 0 may have to write a checkpoint and to verify one:
// the others wait for it, since a rank that ends alone ends all.
static void ATTR_NORETURN stop_nonfinite(TrainRun* run, const StepRecord* r) {
    char scale[80] = "";
    const bool can_shrink = isfinite(r->loss) && r->loss_scale > 1;
    comm_report_activity(run->comm, run->state.step, RANK_ENDS);
    train_finish_save(run);
    logger_erase_bar(&run->log);
    if (r->loss_scale > 0) { snprintf(scale, sizeof scale, " with a loss scale of %.9g", r->loss_scale); }
    char* where = first_nonfinite(&run->optimizer);
    char* text = format("step %d: loss %f, norm of the gradient %f%s: not finite, so the run ends here. %s. The first "
                        "was %s; the step's data are windows %llu to %llu.",
                        r->step, plain_nan(r->loss), plain_nan(r->norm), scale,
                        can_shrink ? "Give --loss_scale dynamic" : "Lower --lr, or raise --warmup_steps",
                        where ? where : "the loss or a sum", (unsigned long long)run->state.window,
                        last_window(run, r));
    notice("error: %s", text);
    free(where);
    logger_end(&run->log, (int)run->state.step, "non-finite", text);
    train_report(run);
    if (*run->config->out && run->comm->rank == 0) { name_last_good(run); }
    comm_close(run->comm);
    wait_for_rank0_message();
    exit(EXIT_NONFINITE);
}

// ---------------------------------------------------------------------------------------------------------------------
// judging a step

// Bad steps in a row that --on_spike skip skips if they are not finite and --skip_loss_z or --skip_norm_z is given.
// More are taken for a fault of the weights, not of the data (chosen).
enum { MAX_NONFINITE_STEPS = 8 };

// Returns true if the z-score of a step's loss or norm is above --skip_loss_z or --skip_norm_z.
static bool is_spike(TrainRun* run, const StepRecord* r) {
    const Config* c = run->config;
    const bool skip_loss = c->skip_loss_z > 0 && r->loss_z > c->skip_loss_z,
               skip_norm = c->skip_norm_z > 0 && r->norm_z > c->skip_norm_z;
    if (skip_loss) { logger_skip(&run->log, r->step, "loss", r->loss_z); }
    else if (skip_norm) { logger_skip(&run->log, r->step, "grad", r->norm_z); }
    return skip_loss || skip_norm;
}

static bool step_is_finite(const StepRecord* r) { return isfinite(r->loss) && isfinite(r->norm); }

bool spikes_judge(TrainRun* run, StepRecord* r) {
    TrainState* s = &run->state;
    const bool is_finite = step_is_finite(r);
    const bool has_overflowed = isfinite(r->loss) && !is_finite && loss_scale_can_shrink(&s->loss_scale);
    run->nonfinite_steps = is_finite || has_overflowed ? 0 : run->nonfinite_steps + 1;
    if (on_spike(run->config, NULL) == ON_SPIKE_SKIP &&
        run->nonfinite_steps > (spikes_may_skip(run->config) ? MAX_NONFINITE_STEPS : 0)) {
        stop_nonfinite(run, r);
    }
    if (is_finite || has_overflowed) { loss_scale_update(&s->loss_scale, has_overflowed); }
    if (has_overflowed) { logger_overflow(&run->log, r->step, r->loss_scale, s->loss_scale.scale); }
    else if (!is_finite) { logger_skip(&run->log, r->step, isfinite(r->loss) ? "grad" : "loss", INFINITY); }
    if (is_finite) {
        r->loss_z = outlier_update(&s->loss_window, r->loss);
        r->norm_z = outlier_update(&s->norm_window, r->norm);
    }
    const bool skips = !is_finite || is_spike(run, r);
    s->bad_steps = skips && !has_overflowed ? s->bad_steps + 1 : 0;
    return skips;
}

// ---------------------------------------------------------------------------------------------------------------------
// going back

// Returns the path of the last good checkpoint, on all ranks, and sets aside newer ones; NULL if there is none.
static char* find_last_good(TrainRun* run) {
    const char* out = run->config->out;
    size_t count = 0;
    char* path = NULL;
    train_finish_save(run);
    if (run->comm->rank == 0 && *out) {
        const long long first_bad = run->state.step + 1 - run->state.bad_steps; // made by the weights of this step
        const long long good = checkpoint_before(out, first_bad, CHECKPOINT_TO_GO_BACK);
        long long* steps = good < 0 ? NULL : checkpoint_list(out, &count);
        for (size_t i = 0; i < count && steps[i] > good; i++) {
            char* newer = checkpoint_path(out, steps[i]);
            checkpoint_set_aside(newer, "rewound");
            free(newer);
        }
        free(steps);
        path = good < 0 ? NULL : checkpoint_path(out, good);
    }
    return share_text(run->comm, path);
}

// Returns the number of windows in the next `steps` steps.
static uint64_t windows_of_steps(const TrainRun* run, long long steps) {
    long long tokens = run->state.tokens;
    while (steps-- > 0) { tokens += ramp_size(&run->batch_ramp, tokens); }
    return (uint64_t)((tokens - run->state.tokens) / run->plan.T);
}

// Leaves out the data of `steps` steps, at least up to the window `last`. Returns the windows.
static WindowRange leave_out(TrainRun* run, long long steps, uint64_t last) {
    TrainState* s = &run->state;
    const WindowRange range = {s->window, max_size(windows_of_steps(run, steps), last + 1 - s->window)};
    s->rewinds.left_out[s->rewinds.num_ranges++] = range;
    s->window += range.count;
    return range;
}

// Goes back to a checkpoint, at which the run then stands as if it had just been resumed there.
static void go_back(TrainRun* run, const StepRecord* r, long long steps, const char* path) {
    Error err;
    TrainState* s = &run->state;
    const uint64_t last = last_window(run, r);
    const int rewinds = s->rewinds.count + 1;
    resume_again(run, path);
    s->rewinds.count = rewinds;
    s->bad_steps = 0;
    s->pending = (Phases){.val = false}; // they were done before the run went on from there
    const WindowRange range = leave_out(run, steps, last);
    const RewindRecord record = {.step = (int)s->step, .bad = r, .path = path, .rewinds = rewinds,
                                 .first_window = range.first, .windows = range.count};
    comm_barrier(run->comm); // before rewind.json is written, all have read the checkpoint without it
    if (run->comm->rank == 0 && !rewind_write(path, &s->rewinds, s->window, &err)) { fatal("%s", err.text); }
    if (!logger_rewind(&run->log, &record, &err)) { fatal("%s", err.text); }
}

// Ends the run after the step `r`. `refusal`: why it does not go back, or "".
static void end_run(TrainRun* run, const StepRecord* r, const char* refusal) {
    if (!step_is_finite(r)) {
        if (*refusal) { logger_notice(&run->log, "error: %s", refusal); }
        stop_nonfinite(run, r);
    }
    run->stops = true;
    run->spike = format("step %d: loss %f (z-score %.2f), norm of the gradient %f (%.2f): %lld bad step%s in a row, so "
                        "the run ends here. %s%sThe step's data are windows %llu to %llu.", r->step, r->loss,
                        plain_nan(r->loss_z), r->norm, plain_nan(r->norm_z), run->state.bad_steps,
                        run->state.bad_steps == 1 ? "" : "s", refusal,
                        *refusal ? ". " : "", (unsigned long long)run->state.window, last_window(run, r));
    logger_notice(&run->log, "error: %s", run->spike);
}

bool spikes_answer(TrainRun* run, const StepRecord* r) {
    const Config* c = run->config;
    long long steps;
    char refusal[80] = "";
    const OnSpike how = on_spike(c, &steps);
    if (how == ON_SPIKE_SKIP || run->state.bad_steps < c->bad_steps) { return false; }
    if (how == ON_SPIKE_REWIND && run->state.rewinds.count >= c->max_rewinds) {
        snprintf(refusal, sizeof refusal, "The run went back %d times, as often as --max_rewinds allows",
                 run->state.rewinds.count);
    } else if (how == ON_SPIKE_REWIND) {
        comm_report_activity(run->comm, run->state.step, RANK_REWINDS); // the others wait while rank 0 looks
        char* path = find_last_good(run);
        const bool is_found = path != NULL;
        if (is_found) { go_back(run, r, steps, path); }
        free(path);
        if (is_found) { return true; }
        snprintf(refusal, sizeof refusal, "There is no good checkpoint in --out to go back to");
    }
    end_run(run, r, refusal);
    return false;
}
