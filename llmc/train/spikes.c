#include "spikes.h"
#include "consistency.h"
#include "../base/json.h"
#include "nonfinite.h"
#include "phases.h"

bool spikes_may_skip(const SpikeRule* rule) { return rule->loss_z > 0 || rule->norm_z > 0 || rule->bad_steps > 0; }

static bool step_is_finite(const StepRecord* r) { return isfinite(r->loss) && isfinite(r->norm); }

// ---------------------------------------------------------------------------------------------------------------------
// the end of a run

// Returns the options that continue from the checkpoint whose next window is `window` without the data up to `last`.
// The caller frees them.
static char* options_without(const SkipWindows* left_out, uint64_t window, uint64_t last) {
    SkipWindows skip = {NULL, 0};
    for (size_t i = 0; i < left_out->count; i++) {
        skip_windows_add(&skip, left_out->range[i].first, left_out->range[i].end);
    }
    skip_windows_add(&skip, window, last + 1);
    char *ranges = skip_windows_text(&skip), *options = format("--resume auto --skip_windows %s", ranges);
    skip_windows_free(&skip);
    free(ranges);
    return options;
}

// Returns how to go on after `bad_steps` bad steps, of which the last one's data end at window `last`; "" on ranks
// other than 0, and without --out. The caller frees it. With --on_spike stop it ends with the options: supervise.sh
// takes them from there.
static char* way_back(const TrainRun* run, long long bad_steps, uint64_t last) {
    const char* out = run->plan->save.out;
    const DataPlan* data = &run->plan->data;
    uint64_t window;
    if (run->comm->rank > 0 || !*out) { return format("%s", ""); }
    // a checkpoint of the step before the streak has the weights that made its first bad step
    const long long good = checkpoint_before(out, run->state.step + 1 - bad_steps, &window);
    if (good < 0) { return format(" %s has no good checkpoint to go back to.", out); }
    char *path = checkpoint_path(out, good), *options = options_without(&data->skip, window, last), *text;
    if (data->overfits) { text = format(" The last good checkpoint is %s.", path); }
    else if (run->plan->spikes.bad_steps > 0) {
        text = format(" The last good checkpoint is %s. To go on from it without the data since then: %s", path,
                      options);
    } else {
        text = format(" The last good checkpoint is %s; %s goes on from it without the data since then.", path,
                      options);
    }
    free(path);
    free(options);
    return text;
}

// Returns why the run ends at a step with a finite loss and norm; the caller frees it.
static char* spike_text(const StepRecord* r, long long bad_steps) {
    return format("step %d: loss %f (z-score %.2f), norm of the gradient %f (%.2f): %lld bad step%s in a row, so the "
                  "run ends here.", r->step, r->loss, plain_nan(r->loss_z), r->norm, plain_nan(r->norm_z), bad_steps,
                  bad_steps == 1 ? "" : "s");
}

// Returns why the run ends at a step whose loss or norm is not finite; the caller frees it.
static char* nonfinite_text(const TrainRun* run, const StepRecord* r) {
    char scale[80] = "";
    const bool can_shrink = isfinite(r->loss) && r->loss_scale > 1;
    if (r->loss_scale > 0) { snprintf(scale, sizeof scale, " with a loss scale of %.9g", r->loss_scale); }
    char* where = first_nonfinite(&run->optimizer);
    char* text = format("step %d: loss %f, norm of the gradient %f%s: not finite, so the run ends here. %s. The first "
                        "was %s.", r->step, plain_nan(r->loss), plain_nan(r->norm), scale,
                        can_shrink ? "Give --loss_scale dynamic" : "Lower --lr, or raise --warmup_steps",
                        where ? where : "the loss or a sum");
    free(where);
    return text;
}

// Ends the run at the last of `bad_steps` bad steps in a row. Rank 0 may have to write a checkpoint, and verifies those
// that it may go back to: the others wait for it, since a rank that ends alone ends all.
static void ATTR_NORETURN end_run(TrainRun* run, const StepRecord* r, long long bad_steps) {
    const uint64_t windows = r->step_tokens / (size_t)run->plan->T,
                   first = skip_windows_next(&run->plan->data.skip, run->state.window, 0),
                   last = skip_windows_next(&run->plan->data.skip, run->state.window, windows - 1);
    comm_report_activity(run->comm, run->state.step, RANK_ENDS);
    train_finish_save(run);
    logger_erase_bar(&run->log);
    char *why = step_is_finite(r) ? spike_text(r, bad_steps) : nonfinite_text(run, r),
         *back = way_back(run, bad_steps, last);
    char* text = format("%s The step's data are windows %llu to %llu.%s", why, (unsigned long long)first,
                        (unsigned long long)last, back);
    notice("error: %s", text);
    logger_end(&run->log, (int)run->state.step, step_is_finite(r) ? "spike" : "non-finite", text);
    train_report(run);
    free(why);
    free(back);
    free(text);
    comm_close(run->comm);
    wait_for_rank0_message();
    exit(EXIT_NONFINITE);
}

// ---------------------------------------------------------------------------------------------------------------------
// judging a step

// Bad steps in a row that --on_spike skip skips if they are not finite and --skip_z is given. More are taken for a fault
// of the weights, not of the data (chosen).
enum { MAX_NONFINITE_STEPS = 8 };

// Returns true if the z-score of a step's loss or norm is above --skip_z.
static bool is_spike(TrainRun* run, const StepRecord* r) {
    const SpikeRule* rule = &run->plan->spikes;
    const bool skip_loss = rule->loss_z > 0 && r->loss_z > rule->loss_z,
               skip_norm = rule->norm_z > 0 && r->norm_z > rule->norm_z;
    if (skip_loss) { logger_skip(&run->log, r->step, "loss", r->loss_z); }
    else if (skip_norm) { logger_skip(&run->log, r->step, "grad", r->norm_z); }
    return skip_loss || skip_norm;
}

bool spikes_judge(TrainRun* run, StepRecord* r) {
    const SpikeRule* rule = &run->plan->spikes;
    TrainState* s = &run->state;
    const bool is_finite = step_is_finite(r);
    const bool has_overflowed = isfinite(r->loss) && !is_finite && loss_scale_can_shrink(&s->loss_scale);
    run->nonfinite_steps = is_finite || has_overflowed ? 0 : run->nonfinite_steps + 1;
    if (rule->bad_steps == 0 && run->nonfinite_steps > (spikes_may_skip(rule) ? MAX_NONFINITE_STEPS : 0)) {
        end_run(run, r, s->bad_steps + 1);
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
    if (rule->bad_steps > 0 && s->bad_steps >= rule->bad_steps) { end_run(run, r, s->bad_steps); }
    return skips;
}
