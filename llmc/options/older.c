#include "older.h"
#include "../base/json.h"

// Puts a text in place of an option's value.
static void replace_value(json_t* options, const char* name, const char* value) {
    if (json_object_set_new(options, name, json_string(value))) { fatal("out of memory: options"); }
}

static bool has_value(const json_t* options, const char* name, const char* value) {
    const char* text = json_string_value(json_object_get(options, name));
    return text && !strcmp(text, value);
}

// --vector_lr was the rate of biases and layernorms beside --lr. These have --lr now, and the others rates of their own.
static void translate_vector_lr(json_t* options) {
    json_t *vector = json_object_get(options, "vector_lr"), *lr = json_object_get(options, "lr");
    if (!json_is_number(vector) || !json_is_number(lr)) { return; }
    const bool is_muon = has_value(options, "optimizer", "muon"); // whose matrices do not follow --lr
    if (has_value(options, "embedding_lr", "auto")) { json_object_set(options, "embedding_lr", lr); }
    if (has_value(options, "matrix_lr", "auto") && !is_muon) { json_object_set(options, "matrix_lr", lr); }
    json_object_set(options, "lr", vector);
}

// --keep was a number, beside --keep_best and --keep_every.
static void translate_keep(json_t* options) {
    const json_t *keep = json_object_get(options, "keep"), *best = json_object_get(options, "keep_best");
    const long long every = json_integer_value(json_object_get(options, "keep_every"));
    if (!json_is_integer(keep)) { return; }
    char* text = format("%lld%s", (long long)json_integer_value(keep), json_is_false(best) ? "" : ",best");
    char* whole = every > 0 ? format("%s,every:%lld", text, every) : format("%s", text);
    replace_value(options, "keep", whole);
    free(whole);
    free(text);
}

// --momentum was a number, beside --momentum_warmup and --momentum_cooldown.
static void translate_momentum(json_t* options) {
    const json_t* peak = json_object_get(options, "momentum");
    const char *warmup = json_string_value(json_object_get(options, "momentum_warmup")),
               *cooldown = json_string_value(json_object_get(options, "momentum_cooldown"));
    const bool is_auto = !warmup || !strcmp(warmup, "auto"), is_flat = !cooldown || !strcmp(cooldown, "none");
    char number[32];
    if (!json_is_number(peak)) { return; }
    char* text = format("%s%s%s%s%s", double_text(number, json_number_value(peak)), is_auto ? "" : ",warmup:",
                        is_auto ? "" : warmup, is_flat ? "" : ",cooldown:", is_flat ? "" : cooldown);
    replace_value(options, "momentum", text);
    free(text);
}

json_t* options_of_today(const json_t* object) {
    json_t* options = object ? json_deep_copy(object) : json_object();
    if (!options) { fatal("out of memory: options"); }
    if (has_value(options, "schedule", "wsd") && has_value(options, "decay_shape", "linear")) {
        replace_value(options, "schedule", "wsd_linear");
    }
    const char* on_spike = json_string_value(json_object_get(options, "on_spike"));
    if (on_spike && !strncmp(on_spike, "rewind:", strlen("rewind:"))) { replace_value(options, "on_spike", "stop"); }
    if (json_is_false(json_object_get(options, "flash"))) { replace_value(options, "attention", "plain"); }
    translate_vector_lr(options);
    translate_keep(options);
    translate_momentum(options);
    return options;
}
