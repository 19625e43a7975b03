#include "rates.h"

static double given_or(double given, double otherwise) { return given < 0 ? otherwise : given; } // "auto" is below 0

// Reads STEPS:MOMENTUM, or "none". `option` and `end` name option and momentum in errors.
static bool ramp_of_momentum(MomentumRamp* ramp, const char* option, const char* end, const char* text, Error* err) {
    char *colon = NULL, *rest = NULL;
    *ramp = (MomentumRamp){0, 0};
    if (!strcmp(text, "none")) { return true; }
    errno = 0;
    ramp->steps = strtoll(text, &colon, 10);
    if (colon == text || *colon != ':' || errno || ramp->steps < 1) {
        return fail(err, "--%s '%s': give STEPS:%s, such as 300:0.85, or none", option, text, end);
    }
    ramp->momentum = strtod(colon + 1, &rest);
    if (rest == colon + 1 || *rest || !(ramp->momentum >= 0 && ramp->momentum < 1)) {
        return fail(err, "--%s '%s': %s is a momentum: at least 0, and below 1", option, text, end);
    }
    return true;
}

bool rates_parse(Rates* r, const Config* c, Error* err) {
    const bool is_muon = c->optimizer == optimizer_muon, is_auto = !strcmp(c->momentum_warmup, "auto");
    const double matrix_decay = given_or(c->matrix_decay, is_muon ? 0.01 : c->weight_decay);
    memset(r, 0, sizeof *r);
    r->kind = is_muon ? OPTIMIZER_MUON : OPTIMIZER_ADAMW;
    r->lr[GROUP_EMBEDDING] = given_or(c->embedding_lr, c->lr);
    r->lr[GROUP_MATRIX] = given_or(c->matrix_lr, is_muon ? 0.02 : c->lr);
    r->lr[GROUP_VECTOR] = c->lr;
    r->peak.adamw = (AdamW){.weight_decay[GROUP_EMBEDDING] = c->decay_embeddings ? (float)c->weight_decay : 0,
                            .weight_decay[GROUP_MATRIX] = (float)matrix_decay,
                            .cautious = c->cautious_decay != 0,
                            .beta1 = (float)c->beta1,
                            .beta2 = (float)c->beta2,
                            .eps = (float)c->eps,
                            .grad_clip = (float)given_or(c->grad_clip, is_muon ? 0 : 1),
                            .grad_scale = 1,
                            .step = 1};
    r->peak.muon = (Muon){.lr = (float)r->lr[GROUP_MATRIX],
                          .momentum = (float)c->momentum,
                          .weight_decay = (float)matrix_decay,
                          .cautious = c->cautious_decay != 0,
                          .grad_scale = 1,
                          .step = 1};
    for (int g = 0; g < NUM_GROUPS; g++) { r->peak.adamw.lr[g] = (float)r->lr[g]; }
    if (!is_muon) { return true; }
    if (is_auto) { r->warmup = (MomentumRamp){300, fmin(0.85, c->momentum)}; }
    return (is_auto || ramp_of_momentum(&r->warmup, "momentum_warmup", "START", c->momentum_warmup, err)) &&
           ramp_of_momentum(&r->cooldown, "momentum_cooldown", "END", c->momentum_cooldown, err);
}

double rates_momentum(const Rates* r, double step, double steps) {
    const double up = (double)r->warmup.steps, down = (double)r->cooldown.steps, left = steps - 1 - step;
    double momentum = (double)r->peak.muon.momentum;
    if (step < up) { momentum = r->warmup.momentum + (momentum - r->warmup.momentum) * step / up; }
    if (left < down) { momentum = r->cooldown.momentum + (momentum - r->cooldown.momentum) * fmax(left, 0) / down; }
    return momentum;
}
