#include "spikes.h"
#include "nonfinite.h"
#include "../base/json.h"

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

// Returns how to go on after the bad steps; window `last` is the last that they trained on. "" on ranks other than 0,
// and without --out. The caller frees it. With --on_spike stop the text ends with the options, which supervise.sh takes
// from there.
static char* way_back(const TrainRun* run, uint64_t last) {
    const char* out = run->plan->save.out;
    const DataPlan* data = &run->plan->data;
    uint64_t window;
    if (run->ranks.comm->rank > 0 || !*out) { return format("%s", ""); }
    // a checkpoint of the step before the streak has the weights that made its first bad step
    const long long good = checkpoint_before(out, run->step + 1 - run->numerics.bad_steps, &window);
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

// Rank 0 may have to write a checkpoint, and verifies those that it may go back to: the others wait for it, since a
// rank that ends alone ends all.
void spikes_end_run(TrainRun* run, const StepRecord* r) {
    const uint64_t first = position_first(&run->position),
                   last = position_last(&run->position, (long long)r->step_tokens);
    comm_report_activity(run->ranks.comm, run->step, RANK_ENDS);
    saving_finish(&run->saving);
    logger_erase_bar(&run->log);
    char *why = step_is_finite(r) ? spike_text(r, run->numerics.bad_steps) : nonfinite_text(run, r),
         *back = way_back(run, last);
    char* text = format("%s The step's data are windows %llu to %llu.%s", why, (unsigned long long)first,
                        (unsigned long long)last, back);
    notice("error: %s", text);
    logger_end(&run->log, (int)run->step, step_is_finite(r) ? "spike" : "non-finite", text);
    phases_report(&run->phases);
    free(why);
    free(back);
    free(text);
    comm_close(run->ranks.comm);
    wait_for_rank0_message();
    exit(EXIT_NONFINITE);
}
