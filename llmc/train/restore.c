#include "restore.h"
#include "../base/file.h"
#include "weights.h"
#include "../base/json.h"
#include "../log/metrics.h"

void restore_check_data(const Start* start, uint64_t train_data) {
    const char *checkpoint = start->checkpoint, *data = start->plan.data.train;
    if (!checkpoint || start->begin.data_hash == train_data) { return; }
    fatal("--train_data %s: not the data that the run in %s has been trained on (names, sizes or tokens differ); give "
          "the same data, or begin a new run with --init %s", data, checkpoint, checkpoint);
}

// Returns true if the last record of metrics.jsonl says that the run finished at this step. A kill may have prevented
// it.
static bool logs_have_end(const char* out, long long step) {
    Error err;
    Run logs;
    const bool has_end = run_read(&logs, out, &err) && !strcmp(record_text(logs.end, "reason"), "finished") &&
                         record_number(logs.end, "step") == (double)step;
    run_free(&logs);
    return has_end;
}

bool restore_logs_have_end(const Start* start, Comm* comm, long long step) {
    const char* out = start->plan.save.out;
    const bool has_logs = comm->rank == 0 && path_is_entry_of(start->checkpoint, out);
    return comm_all(comm, !has_logs || logs_have_end(out, step));
}

// Takes the scale of a checkpoint if it is dynamic, unless this start gives another option.
static void restore_loss_scale(LossScale* scale, const Start* start) {
    Error err;
    const json_t* saved = json_object_get(start->state, "loss_scale");
    const json_t *option = json_object_get(start->options, "loss_scale"),
                 *before = json_object_get(json_object_get(start->state, "options"), "loss_scale");
    if (!saved || !json_equal(option, before)) { return; }
    if (!loss_scale_from_json(scale, saved, &err)) { fatal("%s: %s", start->checkpoint, err.text); }
}

// Forgets the checkpoint with the lowest validation loss if --out does not have it.
static void forget_missing_best(TrainState* s, const char* out, Comm* comm) {
    char* path = checkpoint_path(out, s->best.step);
    const bool is_there = comm->rank > 0 || path_exists(path); // rank 0 decides
    if (!comm_all(comm, is_there)) { s->best = (Validated){.step = 0}; }
    free(path);
}

TrainState restore_state(Optimizer* o, const Start* start, Comm* comm) {
    Error err;
    TrainState s = start->begin;
    s.numerics.loss_scale = start->plan.loss_scale;
    if (!start->checkpoint) {
        load_weights(o->model, o, &start->plan);
        return s;
    }
    o->rounding.step = (int)s.updates; // the masters that are loaded are rounded as in the last update
    if (!checkpoint_load(o, start->checkpoint, &err)) { fatal("%s", err.text); }
    forget_missing_best(&s, start->plan.save.out, comm);
    restore_loss_scale(&s.numerics.loss_scale, start);
    return s;
}

void restore_warn_of_lr_jump(const Start* start, const Position* p, long long step) {
    static const char* const groups[NUM_GROUPS] = {
        [GROUP_EMBEDDING] = " of embeddings", [GROUP_MATRIX] = " of matrices", [GROUP_VECTOR] = " of vectors"};
    Error err;
    if (!start->checkpoint) { return; }
    const Plan* new = &start->plan;
    Plan old = start->before; // its batch is not resolved
    if (!old.total_batch_size) { old.total_batch_size = new->total_batch_size; }
    if (!batch_ramp_fit(&old.batch_ramp, old.total_batch_size, new->T, &err)) { return; }
    const RunLength old_length = run_length(&old, p->epoch_tokens, step, p->tokens);
    const StepCount then = step_count(&old, old_length, step, p->tokens), now = position_steps(p, step);
    const double *lr = new->rates.lr, *old_lr = old.rates.lr;
    const bool is_one = lr[0] == lr[1] && lr[0] == lr[2] && old_lr[0] == old_lr[1] && old_lr[0] == old_lr[2];
    for (int g = 0; g < (is_one ? 1 : NUM_GROUPS); g++) {
        const double old_rate = schedule_rate(&old.schedule, old_lr[g], then.step, then.steps);
        const double rate = schedule_rate(&new->schedule, lr[g], now.step, now.steps);
        if (fabs(rate - old_rate) <= 0.02 * old_rate) { continue; }
        notice("warning: the learning rate%s goes from %.2e to %.2e at this resumption, because its options changed "
               "(%.0f steps then, %.0f now)", is_one ? "" : groups[g], old_rate, rate, then.steps, now.steps);
    }
}
