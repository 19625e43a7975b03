#include "report.h"
#include "../base/file.h"
#include "html.h"
#include "reference.h"
#include "report_settings.h"
#include "../base/json.h"
#include "../base/text_stream.h"

// The runs of a page.
typedef struct {
    Run* runs;
    int count;
} Report;

// The facts that head the page of one run and are the columns of several, as text that the caller frees.
typedef struct {
    const char* title;
    char* (*text)(const Run* run);
} Fact;

static char* copy_number(double v) {
    char text[32];
    return format("%s", value_text(text, v));
}

static char* copy_amount(double v) {
    char text[32];
    return isfinite(v) ? format("%s", si_text(text, v)) : copy_number(v);
}

static char* fact_model(const Run* run) {
    const char* name = record_text(json_object_get(run->config, "model"), "name");
    return *name ? format("%s", name) : copy_number(NAN);
}

static char* fact_parameters(const Run* run) {
    return copy_amount(record_number(json_object_get(run->config, "model"), "parameters"));
}

static char* fact_steps(const Run* run) { return format("%.0f", run->steps); }

static char* fact_tokens(const Run* run) { return copy_amount(series_last(&run->series[RUN_TOKENS])); }

static char* fact_time(const Run* run) {
    char text[32];
    return format("%s", duration_text(text, run_total_seconds(run)));
}

static char* fact_speed(const Run* run) { return copy_amount(series_last(&run->series[RUN_SPEED])); }

static char* fact_mfu(const Run* run) {
    const Series* mfu = &run->series[RUN_MFU];
    double sum = 0;
    for (size_t i = 0; i < mfu->count; i++) { sum += mfu->at[i].y; }
    return mfu->count ? format("%.1f%%", 100.0 * sum / (double)mfu->count) : copy_number(NAN);
}

static char* fact_loss(const Run* run) { return copy_number(series_last(&run->series[RUN_SMOOTH])); }

static char* fact_val(const Run* run) { return copy_number(run->best_val); }

static const Fact REPORT_FACTS[] = {
    {"Model", fact_model}, {"Parameters", fact_parameters}, {"Best val loss", fact_val},
    {"Smoothed train loss", fact_loss},
    {"Steps", fact_steps}, {"Tokens", fact_tokens}, {"Training time", fact_time}, {"Tokens/s", fact_speed},
    {"Mean MFU", fact_mfu},
};

enum { FACT_COUNT = sizeof REPORT_FACTS / sizeof REPORT_FACTS[0], FACT_FIRST_TILE = 2 }; // the header has the others

static char* eval_text(json_t* eval) {
    double accuracy = record_number(eval, "accuracy");
    return isfinite(accuracy) ? format("%.2f%%", 100.0 * accuracy) : copy_number(NAN);
}

enum { COLORS = 8 }; // of runs, c0 to c7 in the style

static void page_facts(FILE* page, const Report* r) {
    const char* name;
    json_t *eval, *names = json_object();
    for (int i = 0; i < r->count; i++) { json_object_update(names, r->runs[i].evals); }
    if (r->count == 1) {
        fprintf(page, "<div class=\"tiles\">\n");
        for (int k = FACT_FIRST_TILE; k < FACT_COUNT; k++) {
            fprintf(page, "<div><span>%s</span>", REPORT_FACTS[k].title);
            page_fact(page, "<b>", REPORT_FACTS[k].text(&r->runs[0]), "</b></div>\n");
        }
        json_object_foreach(names, name, eval) {
            page_text(page, "<div><span>", name, "</span>");
            page_fact(page, "<b>", eval_text(eval), "</b></div>\n");
        }
        fprintf(page, "</div>\n");
    } else {
        fprintf(page, "<section><h2>Runs</h2>\n<table class=\"runs\"><thead><tr><th>Run</th>");
        for (int k = 0; k < FACT_COUNT; k++) { fprintf(page, "<th>%s</th>", REPORT_FACTS[k].title); }
        json_object_foreach(names, name, eval) { page_text(page, "<th>", name, "</th>"); }
        fprintf(page, "</tr></thead>\n<tbody>\n");
        for (int i = 0; i < r->count; i++) {
            fprintf(page, "<tr><th><i class=\"c%d\"></i>", i % COLORS);
            page_text(page, "", r->runs[i].name, "</th>");
            for (int k = 0; k < FACT_COUNT; k++) {
                page_fact(page, "<td>", REPORT_FACTS[k].text(&r->runs[i]), "</td>");
            }
            json_object_foreach(names, name, eval) {
                page_fact(page, "<td>", eval_text(json_object_get(r->runs[i].evals, name)), "</td>");
            }
            fprintf(page, "</tr>\n");
        }
        fprintf(page, "</tbody></table></section>\n");
    }
    json_decref(names);
}

static void page_header(FILE* page, const Report* r) {
    json_t* config = r->runs[0].config;
    if (r->count > 1) {
        fprintf(page, "<header><h1>%d runs compared</h1></header>\n", r->count);
        return;
    }
    char* date = format("%.16s", record_text(config, "date"));
    char* model = fact_model(&r->runs[0]);
    char* parameters = fact_parameters(&r->runs[0]);
    char* size = format("%s parameters", parameters);
    if (strlen(date) == 16 && date[10] == 'T') { date[10] = ' '; }
    const char* parts[] = {record_text(config, "program"), model, size, record_text(config, "device"),
                           record_text(json_object_get(config, "options"), "dtype"), date};
    page_text(page, "<header><h1>", r->runs[0].name, "</h1>\n<p>");
    for (int i = 0, shown = 0; config && i < 6; i++) {
        if (*parts[i]) { page_text(page, shown++ ? " \xc2\xb7 " : "", parts[i], ""); }
    }
    fprintf(page, "</p></header>\n");
    free(date);
    free(model);
    free(parameters);
    free(size);
}

static void page_sample(FILE* page, json_t* sample) {
    fprintf(page, "<div><h3>step %.0f</h3><pre>", record_number(sample, "step"));
    page_escape(page, record_text(sample, "text"));
    fprintf(page, "</pre></div>\n");
}

// Adds all samples of a run in order; those between the first and the last are folded.
static void page_samples(FILE* page, const Report* r) {
    for (int i = 0; i < r->count; i++) {
        const json_t* samples = r->runs[i].samples;
        const size_t n = json_array_size(samples);
        if (n == 0) { continue; }
        char* title = r->count > 1 ? format("Samples of %s", r->runs[i].name) : format("Samples");
        page_fact(page, "<section><h2>", title, "</h2>\n<div class=\"samples\">\n");
        page_sample(page, json_array_get(samples, 0));
        if (n > 2) { fprintf(page, "<details><summary>%zu between</summary>\n", n - 2); }
        for (size_t k = 1; k + 1 < n; k++) { page_sample(page, json_array_get(samples, k)); }
        if (n > 2) { fprintf(page, "</details>\n"); }
        if (n > 1) { page_sample(page, json_array_get(samples, n - 1)); }
        fprintf(page, "</div></section>\n");
    }
}

static void page_event(FILE* page, json_t* event) {
    const char* kind = record_text(event, "kind");
    const char *what = "loss not finite", *detail = "";
    char more[128] = "";
    if (strcmp(kind, "save") == 0) { what = "saved"; detail = record_text(event, "path"); }
    if (strcmp(kind, "config") == 0) {
        const double lost = record_number(event, "lost_steps");
        what = "resumed";
        detail = record_text(event, "date");
        if (lost > 0) { snprintf(more, sizeof more, ", %.0f steps done again", lost); }
    }
    if (strcmp(kind, "end") == 0) { what = record_text(event, "reason"); detail = record_text(event, "words"); }
    if (strcmp(kind, "skip") == 0) {
        what = "update skipped";
        detail = record_text(event, "what");
        const double z = record_number(event, "z"), scale = record_number(event, "loss_scale");
        if (isfinite(z)) { snprintf(more, sizeof more, " z-score %.2f", z); }
        else if (isnan(scale)) { snprintf(more, sizeof more, " is not finite"); }
        else { snprintf(more, sizeof more, " with a loss scale of %.9g", scale); }
    }
    fprintf(page, "<tr><td>%.0f</td>", record_number(event, "step"));
    page_text(page, "<td>", what, "</td><td>");
    page_fact(page, "", format("%s%s", detail, more), "</td></tr>\n");
}

static void page_events(FILE* page, const Report* r) {
    enum { SHOWN = 200 };
    for (int i = 0; i < r->count; i++) {
        size_t n = json_array_size(r->runs[i].events);
        if (n == 0) { continue; }
        fprintf(page, "<section><details%s>", n <= 8 && r->count == 1 ? " open=\"open\"" : "");
        page_fact(page, "<summary>Events", r->count > 1 ? format(" of %s", r->runs[i].name) : format("%s", ""), "");
        fprintf(page, " (%zu)</summary>\n", n);
        fprintf(page, "<table class=\"events\"><thead><tr><th>Step</th><th>Event</th><th></th></tr></thead><tbody>\n");
        for (size_t k = 0; k < n; k++) {
            if (n > SHOWN && k == SHOWN / 2) { // the last ones say how the run ended
                fprintf(page, "<tr><td></td><td>%zu more</td><td></td></tr>\n", n - SHOWN);
                k = n - SHOWN / 2;
            }
            page_event(page, json_array_get(r->runs[i].events, k));
        }
        fprintf(page, "</tbody></table></details></section>\n");
    }
}

// Names the runs: by the last parts of the folders' paths where these differ, otherwise by the paths.
static void report_name_runs(Report* r) {
    for (int i = 0; i < r->count; i++) {
        const char* slash = strrchr(r->runs[i].name, '/');
        if (!slash || !slash[1]) { return; }
        for (int k = 0; k < i; k++) {
            const char* other = strrchr(r->runs[k].name, '/');
            if (other && strcmp(slash, other) == 0) { return; }
        }
    }
    for (int i = 0; i < r->count; i++) {
        char* name = format("%s", strrchr(r->runs[i].name, '/') + 1);
        free(r->runs[i].name);
        r->runs[i].name = name;
    }
}

// Adds a series for the script, [[step, value], ...]. A long one is thinned to the lowest and the highest point of each
// of 500 parts, and the last point: the line looks as if all points were drawn. Values have the digits of
// metrics.jsonl, since the script rounds them: rounded twice, one could differ from that of a tile.
static void page_series(FILE* page, const char* name, const Series* s) {
    enum { MOST_PARTS = 500 };
    const size_t parts = min_size(MOST_PARTS, s->count);
    const char* comma = "";
    fprintf(page, "%s: [", name);
    for (size_t part = 0; part < parts; part++) {
        size_t begin = s->count * part / parts, end = s->count * (part + 1) / parts, low = begin, high = begin;
        for (size_t i = begin; i < end; i++) {
            if (s->at[i].y < s->at[low].y) { low = i; }
            if (s->at[i].y >= s->at[high].y) { high = i; }
        }
        for (size_t i = begin; i < end; i++) {
            if (i != low && i != high && i + 1 != s->count) { continue; }
            fprintf(page, "%s[%.9g,%.9g]", comma, s->at[i].x, s->at[i].y);
            comma = ",";
        }
    }
    fprintf(page, "],\n");
}

// Adds the published losses for a run.
static void page_reference(FILE* page, const Reference* r) {
    fprintf(page, "published: { name: \"%s\", value: %g, curveName: \"%s\", curve: [", r->level_name, r->level,
            r->curve_name ? r->curve_name : "");
    for (size_t i = 0; i < r->count; i++) { fprintf(page, "[%.9g,%g],", r->curve[i].x, r->curve[i].y); }
    fprintf(page, "] },\n");
}

static void page_script(FILE* page, const Report* r) {
    static const char* const names[] = {"loss", "smooth", "val", "norm", "lr", "speed", "tokens", "seconds"};
    enum { NUM_NAMES = sizeof names / sizeof *names }; // RUN_LOSS to RUN_SECONDS; no chart has RUN_MFU
    fprintf(page, "<script>//<![CDATA[\nconst runs = ["); // in CDATA, "<" and "&" are no markup of XML either
    for (int i = 0; i < r->count; i++) {
        const Run* run = &r->runs[i];
        const Reference reference = run_reference(run);
        fprintf(page, "{\n");
        for (int k = 0; k < NUM_NAMES; k++) { page_series(page, names[k], &run->series[k]); }
        if (reference.level_name) { page_reference(page, &reference); }
        if (isfinite(run->floor)) { fprintf(page, "floor: %.9g },", run->floor); }
        else { fprintf(page, "floor: null },"); }
    }
    fprintf(page, "];\n%s//]]></script>\n", REPORT_SCRIPT);
}

static const char HEAD[] = "<!DOCTYPE html>\n<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\">\n<head>\n"
                           "<meta charset=\"utf-8\"/>\n"
                           "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>";

bool report_may_replace(const char* path, Error* err) { return may_replace(path, HEAD, "report", err); }

static void page_report(FILE* page, const Report* r) {
    fputs(HEAD, page);
    if (r->count == 1) { page_escape(page, r->runs[0].name); }
    else { fprintf(page, "%d runs", r->count); }
    fprintf(page, "</title>\n<style>\n%s</style>\n</head>\n<body>\n<main>\n", REPORT_STYLE);
    page_header(page, r);
    page_facts(page, r);
    fprintf(page, "<p id=\"switches\"></p>\n"); // filled by the script
    fprintf(page, "<div id=\"charts\"></div>\n<noscript><p>The charts need JavaScript.</p></noscript>\n");
    page_samples(page, r);
    page_settings(page, r->runs, r->count);
    page_events(page, r);
    fprintf(page, "</main>\n<div id=\"tip\"></div>\n");
    page_script(page, r);
    fprintf(page, "</body>\n</html>\n");
}

bool report_write(const char* out_path, const char* const* run_folders, int n, Error* err) {
    if (n < 1) { return fail(err, "%s: no run to report on; name at least one folder with metrics.jsonl", out_path); }
    Report r;
    memset(&r, 0, sizeof r);
    r.runs = alloc_or_die((size_t)n, sizeof *r.runs, "the runs of a report");
    bool ok = true;
    for (; ok && r.count < n; r.count += ok) { ok = run_read(&r.runs[r.count], run_folders[r.count], err); }
    if (ok) {
        char* text;
        size_t size;
        FILE* page = open_text_stream(&text, &size, out_path);
        report_name_runs(&r);
        page_report(page, &r);
        close_text_stream(page, out_path);
        ok = write_file_atomically(out_path, text, size, err);
        free(text);
    }
    for (int i = 0; i < n; i++) { run_free(&r.runs[i]); }
    free(r.runs);
    return ok;
}
