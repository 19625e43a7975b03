#include "schedule.h"

double schedule_rate(const Schedule* s, double peak, double step, double steps) {
    const double warmup = (double)s->warmup_steps, least = peak * s->min_lr_frac;
    if (step < warmup) { return peak * (step + 1 < warmup ? step + 1 : warmup) / warmup; }
    const double part = steps > warmup ? fmin((step - warmup) / (steps - warmup), 1.0) : 1.0;
    const double decay_from = (1 - s->decay_frac) * steps;
    const bool decays = step >= decay_from && s->decay_frac > 0;
    const double decayed = decays ? fmin((step - decay_from) / (steps - decay_from), 1.0) : 0;
    switch (s->kind) {
    case schedule_constant: return peak;
    case schedule_linear: return least + (peak - least) * (1 - part);
    case schedule_wsd: return decays ? least + (peak - least) * (1 - sqrt(decayed)) : peak;
    case schedule_wsd_linear: return decays ? least + (peak - least) * (1 - decayed) : peak;
    case schedule_cosine: break;
    }
    return least + 0.5 * (peak - least) * (1 + cos(3.141592653589793 * part));
}

bool step_is_due(long long step, long long last_step, long long every) {
    return every > 0 && (step % every == 0 || step >= last_step);
}

bool ramp_parse(Ramp* ramp, const char* option, const char* text, Error* err) {
    const char* example = strcmp(option, "seq_ramp") ? "32768:4000000000" : "128:1000000000";
    *ramp = (Ramp){.text = text};
    if (!*text) { return true; }
    char *copy = format("%s", text), *rest = copy, *start, *tokens;
    const bool ok = part_next(&rest, &start, &tokens) && !rest && count_parse(start, 1, &ramp->start) &&
                    count_parse(tokens, 1, &ramp->tokens) && ramp->tokens <= MAX_RAMP_TOKENS;
    free(copy);
    return ok || fail(err, "--%s '%s': give START:TOKENS, such as %s; TOKENS is at most %lld", option, text, example,
                      MAX_RAMP_TOKENS);
}

// Returns true if the size doubles from `start` to exactly `full`.
static bool ramp_doubles(const Ramp* ramp) {
    long long size = ramp->start;
    while (size < ramp->full) { size *= 2; }
    return size == ramp->full;
}

bool batch_ramp_fit(Ramp* ramp, long long full, int T, Error* err) {
    ramp->full = full;
    if (!ramp->start || (ramp->start % T == 0 && ramp_doubles(ramp))) { return true; }
    return fail(err,
                "--batch_ramp %s: START must be whole sequences (a multiple of %d) and double up to "
                "--total_batch_size %lld, as %lld does",
                ramp->text, T, full, full % (2LL * T) ? full : full / 2);
}

bool seq_ramp_fit(Ramp* ramp, int T, Error* err) {
    ramp->full = T;
    if (!ramp->start || ramp_doubles(ramp)) { return true; }
    return fail(err, "--seq_ramp %s: START must double up to --seq_len %d, as %d does", ramp->text, T,
                T % 2 ? T : T / 2);
}

long long ramp_size(const Ramp* ramp, long long seen) {
    if (!ramp->start || seen >= ramp->tokens) { return ramp->full; }
    int doublings = 0;
    for (long long size = ramp->start; size < ramp->full; size *= 2) { doublings++; }
    return ramp->start << (int)((double)doublings * (double)seen / (double)ramp->tokens);
}

// Returns how many steps after `seen` tokens have the same size, at most until `end` tokens.
static long long steps_alike(const Ramp* batch, long long seen, long long end) {
    const long long size = ramp_size(batch, seen);
    long long few = 1, many = (end - seen + size - 1) / size; // bisection: `few` steps have the size
    while (few < many) {
        const long long middle = few + (many - few + 1) / 2;
        if (ramp_size(batch, seen + (middle - 1) * size) == size) { few = middle; }
        else { many = middle - 1; }
    }
    return few;
}

long long ramp_steps(const Ramp* batch, long long seen, long long tokens) {
    long long steps = 0;
    while (batch->start && seen < batch->tokens && seen < tokens) {
        const long long n = steps_alike(batch, seen, tokens < batch->tokens ? tokens : batch->tokens);
        steps += n;
        seen += n * ramp_size(batch, seen);
    }
    return seen < tokens ? steps + (tokens - seen + batch->full - 1) / batch->full : steps;
}
