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

// Adds ",name:value" to a text that was allocated; NULL: nothing.
static void add_part(char** text, const char* name, const char* value) {
    if (value) { append_format(text, ",%s:%s", name, value); }
}

// Adds ",name:number" unless the number is `usual`, which needs no words.
static void add_number(char** text, const char* name, const json_t* number, long long usual) {
    char value[32];
    if (!json_is_integer(number) || json_integer_value(number) == usual) { return; }
    snprintf(value, sizeof value, "%lld", (long long)json_integer_value(number));
    add_part(text, name, value);
}

// --vector_lr was the rate of biases and layernorms beside --lr. These have --lr now, and the others have their own
// rates.
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
    if (!json_is_integer(keep)) { return; }
    char* text = format("%lld%s", (long long)json_integer_value(keep), json_is_false(best) ? "" : ",best");
    add_number(&text, "every", json_object_get(options, "keep_every"), 0);
    replace_value(options, "keep", text);
    free(text);
}

// --eval_rules was the rules alone, beside --eval_every, --eval_limit, --eval_shots and --eval_examples.
static void translate_eval(json_t* options) {
    const json_t *rules = json_object_get(options, "eval_rules"), *shots = json_object_get(options, "eval_shots");
    const char* examples = json_string_value(json_object_get(options, "eval_examples"));
    if (!json_is_string(rules) || !json_object_get(options, "eval_every")) { return; }
    char* text = format("%s", json_string_value(rules));
    add_number(&text, "shots", shots, 0);
    add_part(&text, "examples", json_integer_value(shots) > 0 && examples && *examples ? examples : NULL);
    add_number(&text, "limit", json_object_get(options, "eval_limit"), 0);
    add_number(&text, "every", json_object_get(options, "eval_every"),
               json_integer_value(json_object_get(options, "val_every")));
    replace_value(options, "eval_rules", text);
    free(text);
}

// --skip_z and --on_spike were --skip_loss_z, --skip_norm_z, --on_spike without a number, and --bad_steps.
static void translate_spikes(json_t* options) {
    const json_t *loss = json_object_get(options, "skip_loss_z"), *norm = json_object_get(options, "skip_norm_z"),
                 *bad_steps = json_object_get(options, "bad_steps");
    const char* on_spike = json_string_value(json_object_get(options, "on_spike"));
    char first[32], second[32];
    if (json_is_number(loss) && json_is_number(norm)) {
        const bool has_norm = json_number_value(norm) > 0;
        char* text = format("%s%s%s", double_text(first, json_number_value(loss)), has_norm ? ":" : "",
                            has_norm ? double_text(second, json_number_value(norm)) : "");
        replace_value(options, "skip_z", text);
        free(text);
    }
    if (on_spike && !strncmp(on_spike, "rewind:", strlen("rewind:"))) { replace_value(options, "on_spike", "stop"); }
    if (json_integer_value(bad_steps) > 1 && has_value(options, "on_spike", "stop")) {
        char* text = format("stop:%lld", (long long)json_integer_value(bad_steps));
        replace_value(options, "on_spike", text);
        free(text);
    }
}

// --momentum was a number, beside --momentum_warmup and --momentum_cooldown.
static void translate_momentum(json_t* options) {
    const json_t* peak = json_object_get(options, "momentum");
    const char *warmup = json_string_value(json_object_get(options, "momentum_warmup")),
               *cooldown = json_string_value(json_object_get(options, "momentum_cooldown"));
    char number[32];
    if (!json_is_number(peak)) { return; }
    char* text = format("%s", double_text(number, json_number_value(peak)));
    add_part(&text, "warmup", has_value(options, "momentum_warmup", "auto") ? NULL : warmup);
    add_part(&text, "cooldown", has_value(options, "momentum_cooldown", "none") ? NULL : cooldown);
    replace_value(options, "momentum", text);
    free(text);
}

// --decay_embeddings 0 switched off --weight_decay for the embeddings, which alone have it beside a --matrix_decay.
// --eps was AdamW's.
static void translate_decay(json_t* options) {
    json_t* decay = json_object_get(options, "weight_decay");
    const double eps = json_number_value(json_object_get(options, "eps"));
    if (json_is_false(json_object_get(options, "decay_embeddings")) && json_is_number(decay)) {
        const bool is_own = !has_value(options, "matrix_decay", "auto") || has_value(options, "optimizer", "muon");
        if (!is_own) { json_object_set(options, "matrix_decay", decay); }
        json_object_set_new(options, "weight_decay", json_real(0));
    }
    if (eps > 0 && eps != 1e-8) { notice("the run had --eps %g; from here on AdamW's eps is 1e-8", eps); }
}

json_t* options_of_today(const json_t* object) {
    json_t* options = object ? json_deep_copy(object) : json_object();
    if (!options) { fatal("out of memory: options"); }
    if (has_value(options, "schedule", "wsd") && has_value(options, "decay_shape", "linear")) {
        replace_value(options, "schedule", "wsd_linear");
    }
    if (json_is_false(json_object_get(options, "flash"))) { replace_value(options, "attention", "plain"); }
    translate_vector_lr(options);
    translate_keep(options);
    translate_momentum(options);
    translate_eval(options);
    translate_spikes(options);
    translate_decay(options);
    return options;
}
