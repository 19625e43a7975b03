#include "rates.h"

static const double MOST_MOMENTUM = 0.999999;

static double given_or(double given, double otherwise) { return given < 0 ? otherwise : given; } // "auto" is below 0

// Reads "STEPS:MOMENTUM", which it cuts up.
static bool momentum_ramp_parse(MomentumRamp* ramp, char* text) {
    char* colon = text ? strchr(text, ':') : NULL;
    if (!colon) { return false; }
    *colon = 0;
    return count_parse(text, 1, &ramp->steps) && number_parse(colon + 1, 0, MOST_MOMENTUM, &ramp->momentum);
}

static bool momentum_parse(Rates* r, const char* text, Error* err) {
    char *copy = format("%s", text), *rest = copy, *name, *value;
    double peak = 0;
    bool ok = part_next(&rest, &name, &value) && !value && number_parse(name, 0, MOST_MOMENTUM, &peak);
    r->peak.muon.momentum = (float)peak;
    r->warmup = (MomentumRamp){300, fmin(0.85, peak)};
    while (ok && part_next(&rest, &name, &value)) {
        const bool is_none = value && !strcmp(value, "none"), is_cooldown = !strcmp(name, "cooldown");
        MomentumRamp* ramp = is_cooldown ? &r->cooldown : &r->warmup;
        *ramp = (MomentumRamp){0, 0};
        ok = (is_cooldown || !strcmp(name, "warmup")) && (is_none || momentum_ramp_parse(ramp, value));
    }
    free(copy);
    return ok || fail(err, "--momentum '%s': give M[,warmup:STEPS:START][,cooldown:STEPS:END], such as "
                      "0.95,warmup:300:0.85, or warmup:none; a momentum is at least 0, and below 1", text);
}

bool rates_parse(Rates* r, const Config* c, Error* err) {
    const bool is_muon = c->optimizer == optimizer_muon;
    const double matrix_decay = given_or(c->matrix_decay, is_muon ? 0.01 : c->weight_decay);
    memset(r, 0, sizeof *r);
    r->kind = is_muon ? OPTIMIZER_MUON : OPTIMIZER_ADAMW;
    r->lr[GROUP_EMBEDDING] = given_or(c->embedding_lr, c->lr);
    r->lr[GROUP_MATRIX] = given_or(c->matrix_lr, is_muon ? 0.02 : c->lr);
    r->lr[GROUP_VECTOR] = c->lr;
    r->peak.adamw = (AdamW){.weight_decay[GROUP_EMBEDDING] = (float)c->weight_decay,
                            .weight_decay[GROUP_MATRIX] = (float)matrix_decay,
                            .cautious = c->cautious_decay != 0,
                            .beta1 = (float)c->beta1,
                            .beta2 = (float)c->beta2,
                            .eps = 1e-8f,
                            .grad_clip = (float)given_or(c->grad_clip, is_muon ? 0 : 1),
                            .grad_scale = 1,
                            .step = 1};
    r->peak.muon = (Muon){.lr = (float)r->lr[GROUP_MATRIX],
                          .weight_decay = (float)matrix_decay,
                          .cautious = c->cautious_decay != 0,
                          .grad_scale = 1,
                          .step = 1};
    for (int g = 0; g < NUM_GROUPS; g++) { r->peak.adamw.lr[g] = (float)r->lr[g]; }
    return !is_muon || momentum_parse(r, c->momentum, err);
}

double rates_momentum(const Rates* r, double step, double steps) {
    const double up = (double)r->warmup.steps, down = (double)r->cooldown.steps, left = steps - 1 - step;
    double momentum = (double)r->peak.muon.momentum;
    if (step < up) { momentum = r->warmup.momentum + (momentum - r->warmup.momentum) * step / up; }
    if (left < down) { momentum = r->cooldown.momentum + (momentum - r->cooldown.momentum) * fmax(left, 0) / down; }
    return momentum;
}
