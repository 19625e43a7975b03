#include "schedule.h"

double schedule_lr(const Config* c, double step, double steps) {
    const double warmup = (double)c->warmup_steps, least = c->lr * c->min_lr_frac;
    if (step < warmup) { return c->lr * (step + 1 < warmup ? step + 1 : warmup) / warmup; }
    const double part = steps > warmup ? fmin((step - warmup) / (steps - warmup), 1.0) : 1.0;
    if (!strcmp(c->schedule, "constant")) { return c->lr; }
    if (!strcmp(c->schedule, "linear")) { return least + (c->lr - least) * (1 - part); }
    if (!strcmp(c->schedule, "wsd")) {
        const double decay_from = (1 - c->decay_frac) * steps;
        if (step < decay_from || c->decay_frac == 0) { return c->lr; }
        const double decayed = fmin((step - decay_from) / (steps - decay_from), 1.0);
        return least + (c->lr - least) * (1 - (strcmp(c->decay_shape, "linear") ? sqrt(decayed) : decayed));
    }
    return least + 0.5 * (c->lr - least) * (1 + cos(3.141592653589793 * part));
}

bool ramp_parse(const char* text, long long full, int T, BatchRamp* ramp, Error* err) {
    char* end = NULL;
    ramp->start = 0;
    ramp->tokens = 0;
    ramp->full = full;
    if (!*text) { return true; }
    errno = 0;
    ramp->start = strtoll(text, &end, 10);
    if (end == text || *end != ':') {
        return fail(err, "--batch_ramp '%s': give START:TOKENS, such as 32768:4000000000", text);
    }
    const char* second = end + 1;
    ramp->tokens = strtoll(second, &end, 10);
    if (end == second || *end || ramp->start < 1 || ramp->tokens < 1) {
        return fail(err, "--batch_ramp '%s': give START:TOKENS, such as 32768:4000000000", text);
    }
    if (errno || ramp->tokens > MAX_RAMP_TOKENS) {
        return fail(err, "--batch_ramp '%s': TOKENS is at most %lld", text, MAX_RAMP_TOKENS);
    }
    long long size = ramp->start;
    while (size < full) { size *= 2; }
    if (ramp->start % T || size != full) {
        return fail(err,
                    "--batch_ramp %s: START must be whole sequences (a multiple of %d) and double up to "
                    "--total_batch_size %lld, as %lld does",
                    text, T, full, full % (2LL * T) ? full : full / 2);
    }
    return true;
}

long long ramp_batch(const BatchRamp* ramp, long long seen) {
    if (!ramp->start || seen >= ramp->tokens) { return ramp->full; }
    int doublings = 0;
    for (long long size = ramp->start; size < ramp->full; size *= 2) { doublings++; }
    return ramp->start << (int)((double)doublings * (double)seen / (double)ramp->tokens);
}

double ramp_lr_factor(const BatchRamp* ramp, long long seen) {
    return sqrt((double)ramp_batch(ramp, seen) / (double)ramp->full);
}

// Returns how many steps after `seen` tokens have the same size, at most until `end` tokens.
static long long steps_alike(const BatchRamp* ramp, long long seen, long long end) {
    const long long size = ramp_batch(ramp, seen);
    long long few = 1, many = (end - seen + size - 1) / size; // bisection: `few` steps have the size
    while (few < many) {
        const long long middle = few + (many - few + 1) / 2;
        if (ramp_batch(ramp, seen + (middle - 1) * size) == size) { few = middle; }
        else { many = middle - 1; }
    }
    return few;
}

long long ramp_steps(const BatchRamp* ramp, long long tokens) {
    long long seen = 0, steps = 0;
    while (ramp->start && seen < ramp->tokens && seen < tokens) {
        const long long n = steps_alike(ramp, seen, tokens < ramp->tokens ? tokens : ramp->tokens);
        steps += n;
        seen += n * ramp_batch(ramp, seen);
    }
    return seen < tokens ? steps + (tokens - seen + ramp->full - 1) / ramp->full : steps;
}
