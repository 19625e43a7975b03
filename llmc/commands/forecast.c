// Fits a law of loss to finished runs, checks it on those that it was not fitted to, and forecasts by it.
#include "forecast.h"
#include "../base/file.h"
#include "../base/json.h"
#include "../base/text_stream.h"
#include "../bench/picture.h"
#include "commands.h"

double forecast_size(const GPT2Config* m) { return (double)model_parameters(m) - (double)m->max_seq_len * m->channels; }

// ---------------------------------------------------------------------------------------------------------------------
// the law, and how well it forecasts what it has not seen

static double law_number(const Law* law, const void* index) {
    const int i = *(const int*)index;
    return i == LAW_ALPHA || i == LAW_BETA ? law->x[i] : i == LAW_LN_E ? law_floor(law) : exp(law->x[i]);
}

static void print_law(const LawFit* fit, const Runs* runs) {
    static const char* const names[LAW_NUM] = {"E", "A", "alpha", "B", "beta"};
    print_result("loss(N, D) = E + A / N^alpha + B / D^beta, from %d runs\n\n", runs->count);
    print_result("%-8s%12s  95%% interval\n", "", "fitted");
    for (int i = 0; i < LAW_NUM; i++) {
        const Interval v = law_interval(fit, law_number, &i);
        print_result("%-8s%12.6g  %.4g to %.4g\n", names[i], v.value, v.low, v.high);
    }
    if (isfinite(runs->floor)) { print_result("%-8s%12.6g  the text's entropy\n", "floor", runs->floor); }
    print_result("%-8s%11.2f%%  of runs around the law; %.2f%% where their size or length is left out\n", "scatter",
                 100 * fit->scatter, 100 * fit->left_out);
}

// Leaves the largest size and the longest runs out, fits the rest and forecasts them.
static void check_law(const Runs* runs, uint64_t seed) {
    Error err;
    char size[32], length[32];
    LawFit* fit = alloc_or_die(1, sizeof *fit, "the fit of a part of the runs");
    LawRun* kept = alloc_or_die((size_t)runs->count, sizeof *kept, "a part of the runs");
    int count = 0, inside = 0;
    for (int i = 0; i < runs->count; i++) {
        const LawRun* r = &runs->run[i];
        if (r->parameters < runs->most_parameters && r->tokens < runs->most_tokens) { kept[count++] = *r; }
    }
    if (!law_fit(fit, kept, count, seed, &err)) {
        print_result("\nno check on held-out runs: without the largest size and length there are %s\n", err.text);
    } else {
        print_result("\nheld out: the largest size and the longest runs, forecast from the other %d\n", count);
        print_result("%12s%10s%9s%11s  95%% interval\n", "parameters", "tokens", "loss", "forecast");
        for (int i = 0; i < runs->count; i++) {
            const LawRun* r = &runs->run[i];
            if (r->parameters < runs->most_parameters && r->tokens < runs->most_tokens) { continue; }
            const Interval loss = law_forecast(fit, r->parameters, r->tokens);
            const bool is_inside = r->loss >= loss.low && r->loss <= loss.high;
            inside += is_inside;
            print_result("%12s%10s%9.4f%11.4f  %.4f to %.4f%s\n", si_text(size, r->parameters),
                         si_text(length, r->tokens), r->loss, loss.value, loss.low, loss.high,
                         is_inside ? "" : "  outside");
        }
        print_result("%d of %d are inside\n", inside, runs->count - count);
    }
    free(kept);
    free(fit);
}

// ---------------------------------------------------------------------------------------------------------------------
// forecasts

static double best_size(const Law* law, const void* flops) { return law_best_size(law, *(const double*)flops); }

// Prints the loss to expect of a model, and says how far that is from the runs.
static ForecastPoint print_forecast(const LawFit* fit, const Runs* runs, double parameters, double tokens) {
    char size[32], length[32];
    const ForecastPoint at = {parameters, tokens, law_forecast(fit, parameters, tokens)};
    const double beyond = fmax(parameters / runs->most_parameters, tokens / runs->most_tokens);
    print_result("%s parameters, %s tokens (%.3g for each): loss %.4f, %.4f to %.4f\n", si_text(size, parameters),
                 si_text(length, tokens), tokens / parameters, at.loss.value, at.loss.low, at.loss.high);
    if (beyond > 10) {
        notice("warning: %.3g times as far as the runs reach: the interval holds only if the law does, which nothing "
               "here has tested", beyond);
    }
    return at;
}

// Prints what --model (NULL: not given) and --budget ask for. Returns the model's forecast, or else the best size's.
static ForecastPoint print_forecasts(const LawFit* fit, const Runs* runs, const Budget* budget, const GPT2Config* m) {
    char low[32], high[32];
    ForecastPoint point = {0};
    if (budget->flops > 0) {
        const Interval size = law_interval(fit, best_size, &budget->flops);
        print_result("\nbest for %.3g FLOP, by 6 FLOP for each parameter and token; size %s to %s:\n", budget->flops,
                     si_text(low, size.low), si_text(high, size.high));
        point = print_forecast(fit, runs, size.value, budget->flops / 6 / size.value);
    }
    if (!m) { return point; }
    if (m->vocab_size != runs->vocab) {
        notice("warning: --model has a vocabulary of %d tokens, the runs %g: its losses are others", m->vocab_size,
               runs->vocab);
    }
    const double size = forecast_size(m);
    const double flops = 6 * (size + (double)m->num_layers * m->channels * m->max_seq_len); // with causal attention
    print_result("\nthe model:\n");
    return print_forecast(fit, runs, size, budget->tokens > 0 ? budget->tokens : budget->flops / flops);
}

static void write_picture(const char* path, const LawFit* fit, const Runs* runs, const ForecastPoint* forecast) {
    Error err;
    char* text = NULL;
    size_t size;
    FILE* svg = open_text_stream(&text, &size, path);
    draw_law(svg, &fit->best, runs, forecast);
    close_text_stream(svg, path);
    if (!write_file_atomically(path, text, size, &err)) { fatal("--out %s", err.text); }
    free(text);
}

// Orders runs by size, length and loss, so that a forecast does not depend on the order of its arguments.
static int compare_runs(const void* a, const void* b) {
    const LawRun *x = a, *y = b;
    const double difference = x->parameters != y->parameters ? x->parameters - y->parameters
                              : x->tokens != y->tokens       ? x->tokens - y->tokens
                                                             : x->loss - y->loss;
    return (difference > 0) - (difference < 0);
}

// Orders the runs, and warns of two with the same loss.
static void sort_runs(Runs* runs) {
    char size[32], length[32];
    if (runs->count) { qsort(runs->run, (size_t)runs->count, sizeof *runs->run, compare_runs); }
    for (int i = 1; i < runs->count; i++) {
        if (compare_runs(&runs->run[i - 1], &runs->run[i])) { continue; }
        notice("warning: two runs of %s parameters and %s tokens have the same loss %g: was one given twice?",
               si_text(size, runs->run[i].parameters), si_text(length, runs->run[i].tokens), runs->run[i].loss);
    }
}

int forecast_command(const Config* c) {
    Error err;
    GPT2Config m;
    Runs runs = {.floor = NAN};
    Budget budget = {0};
    const bool has_model = config_source(c, "model") > FROM_DEFAULT;
    const bool has_picture = config_source(c, "out") > FROM_DEFAULT && *c->out;
    if (!c->num_args) { usage_error("forecast: give the folders of finished runs, or a table of them"); }
    if (*c->budget && !budget_parse(c->budget, &budget, &err)) { usage_error("%s", err.text); }
    if (has_model && !*c->budget) { usage_error("--model %s: give --budget tokens:N or flops:F too", c->model); }
    if (has_model && !model_parse(c->model, false, &m, &err)) { usage_error("%s", err.text); }
    if (!has_model && budget.tokens > 0) { usage_error("--budget %s: give --model too", c->budget); }
    if (has_picture && !may_replace(c->out, PICTURE_HEAD, "picture of forecast", &err)) {
        usage_error("%s", err.text);
    }
    for (int i = 0; i < c->num_args; i++) {
        if (!runs_add(&runs, c->args[i], &err)) { fatal("%s", err.text); }
    }
    sort_runs(&runs);
    LawFit* fit = alloc_or_die(1, sizeof *fit, "the fit");
    if (!law_fit(fit, runs.run, runs.count, (uint64_t)c->seed, &err)) { fatal("%s", err.text); }
    print_law(fit, &runs);
    check_law(&runs, (uint64_t)c->seed);
    const ForecastPoint point = print_forecasts(fit, &runs, &budget, has_model ? &m : NULL);
    if (has_picture) { write_picture(c->out, fit, &runs, &point); }
    free(runs.run);
    free(runs.text);
    free(fit);
    return EXIT_DONE;
}
