#include "loss_scale.h"
#include "../options/options.h"

enum { INTERVAL = 2000 };               // growth_interval of PyTorch's GradScaler
static const double START = 65536;      // its init_scale
static const double GREATEST = 0x1p127; // the greatest power of two that a float holds

static bool is_valid_scale(double x) {
    int exponent;
    return x >= 1 && x <= GREATEST && frexp(x, &exponent) == 0.5; // a power of two
}

bool loss_scale_parse(LossScale* s, const char* option, bool is_fp16, Error* err) {
    static const char dynamic[] = "dynamic:";
    const bool has_start = !strncmp(option, dynamic, strlen(dynamic));
    const char* number = has_start ? option + strlen(dynamic) : option;
    char* end;
    memset(s, 0, sizeof *s);
    s->is_dynamic = has_start || !strcmp(option, "dynamic") || (is_fp16 && !strcmp(option, "auto"));
    s->scale = s->is_dynamic ? START : 1;
    if (is_one_of(option, "auto|off|dynamic")) { return true; }
    s->scale = strtod(number, &end);
    if (end == number || *end) {
        return fail(err, "--loss_scale '%s': give auto, off, dynamic, dynamic:START or a number, such as 65536",
                    option);
    }
    if (is_valid_scale(s->scale)) { return true; }
    return fail(err, "--loss_scale %s: give a power of two from 1 to 2^127, such as 65536", option);
}

bool loss_scale_is_on(const LossScale* s) { return s->is_dynamic || s->scale != 1; }

bool loss_scale_can_shrink(const LossScale* s) { return s->is_dynamic && s->scale > 1; }

void loss_scale_update(LossScale* s, bool has_overflowed) {
    if (!s->is_dynamic) { return; }
    s->good_steps++;
    if (!has_overflowed && s->good_steps < INTERVAL) { return; }
    s->good_steps = 0;
    if (has_overflowed) { s->scale = fmax(1, s->scale / 2); }
    else if (s->scale < GREATEST) { s->scale *= 2; }
}

json_t* loss_scale_to_json(const LossScale* s) {
    return json_pack("{s:f, s:I}", "scale", s->scale, "good_steps", (json_int_t)s->good_steps);
}

bool loss_scale_from_json(LossScale* s, const json_t* saved, Error* err) {
    const double scale = json_number_value(json_object_get(saved, "scale"));
    const long long good_steps = json_integer_value(json_object_get(saved, "good_steps"));
    if (!is_valid_scale(scale) || good_steps < 0) {
        return fail(err, "state.json: the loss scale %g after %lld good steps is impossible", scale, good_steps);
    }
    if (!s->is_dynamic) { return true; }
    s->scale = scale;
    s->good_steps = good_steps;
    return true;
}
