#include "numerics.h"

// Bad steps in a row that --on_spike skip skips if they are not finite and --skip_z is given. More are taken for a
// fault of the weights, not of the data (chosen).
enum { MAX_NONFINITE_STEPS = 8 };

bool step_is_finite(const StepRecord* r) { return isfinite(r->loss) && isfinite(r->norm); }

bool numerics_may_skip(const SpikeRule* rule) { return rule->loss_z > 0 || rule->norm_z > 0 || rule->bad_steps > 0; }

// Returns true if the z-score of a step's loss or norm is above --skip_z.
static bool is_spike(const StepRecord* r, const SpikeRule* rule, Logger* log) {
    const bool skip_loss = rule->loss_z > 0 && r->loss_z > rule->loss_z,
               skip_norm = rule->norm_z > 0 && r->norm_z > rule->norm_z;
    if (skip_loss) { logger_skip(log, r->step, "loss", r->loss_z); }
    else if (skip_norm) { logger_skip(log, r->step, "grad", r->norm_z); }
    return skip_loss || skip_norm;
}

Verdict numerics_judge(Numerics* n, StepRecord* r, const SpikeRule* rule, Logger* log) {
    const bool is_finite = step_is_finite(r), ends_at_spike = rule->bad_steps > 0;
    const bool has_overflowed = isfinite(r->loss) && !is_finite && loss_scale_can_shrink(&n->loss_scale);
    n->nonfinite_steps = is_finite || has_overflowed ? 0 : n->nonfinite_steps + 1;
    if (!ends_at_spike && n->nonfinite_steps > (numerics_may_skip(rule) ? MAX_NONFINITE_STEPS : 0)) {
        n->bad_steps++;
        return STEP_ENDS_RUN;
    }
    if (is_finite || has_overflowed) { loss_scale_update(&n->loss_scale, has_overflowed); }
    if (has_overflowed) { logger_overflow(log, r->step, r->loss_scale, n->loss_scale.scale); }
    else if (!is_finite) { logger_skip(log, r->step, isfinite(r->loss) ? "grad" : "loss", INFINITY); }
    if (is_finite) {
        r->loss_z = outlier_update(&n->loss_window, r->loss);
        r->norm_z = outlier_update(&n->norm_window, r->norm);
    }
    const bool skips = !is_finite || is_spike(r, rule, log);
    n->bad_steps = skips && !has_overflowed ? n->bad_steps + 1 : 0;
    if (ends_at_spike && n->bad_steps >= rule->bad_steps) { return STEP_ENDS_RUN; }
    return skips ? STEP_SKIPS : STEP_UPDATES;
}
