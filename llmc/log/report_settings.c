#include "report_settings.h"
#include "html.h"
#include "../options/config.h"

// In the order of the page. Of a setting that is no option, such as the machine, no default is known: it comes last.
typedef enum { DIFFERS_BETWEEN_RUNS, IS_GIVEN, IS_DEFAULT, SETTING_RANKS } SettingRank;

// Adds the members of an object as texts, with a prefix before their names.
static void add_settings(json_t* all, const char* prefix, json_t* object, const char* left_out) {
    const char* key;
    json_t* value;
    json_object_foreach(object, key, value) {
        if (json_is_object(value) || is_one_of(key, left_out)) { continue; }
        char* name = format("%s%s", prefix, key);
        char* text = json_is_string(value) ? format("%s", json_string_value(value))
                                           : json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(7));
        json_object_set_new(all, name, json_string(text ? text : ""));
        free(name);
        free(text);
    }
}

// Returns every setting of a run as one flat object of texts.
static json_t* run_settings(const Run* run) {
    json_t* all = json_object();
    add_settings(all, "", json_object_get(run->config, "options"), "");
    add_settings(all, "model.", json_object_get(run->config, "model"), "");
    add_settings(all, "", run->config, "kind|step|lost_steps|lost_ms");
    return all;
}

static json_t* default_settings(void) {
    Config c;
    config_defaults(&c);
    json_t *all = json_object(), *options = config_to_json(&c);
    add_settings(all, "", options, "");
    json_decref(options);
    return all;
}

// The settings of all runs of a page.
typedef struct {
    json_t **run, *defaults;
    int runs;
    json_t* names; // of all of them, each with its value in the first run that has it
} Settings;

static SettingRank setting_rank(const Settings* s, const char* name, const json_t* value) {
    for (int i = 0; i < s->runs; i++) {
        if (!json_equal(json_object_get(s->run[i], name), value)) { return DIFFERS_BETWEEN_RUNS; }
    }
    const json_t* usual = json_object_get(s->defaults, name);
    return usual && !json_equal(usual, value) ? IS_GIVEN : IS_DEFAULT;
}

// The list of one run's settings of a rank, below a heading.
static void page_list(FILE* page, const Settings* s, SettingRank rank, const char* heading) {
    const char* name;
    json_t* value;
    int shown = 0;
    json_object_foreach(s->names, name, value) {
        if (setting_rank(s, name, value) != rank) { continue; }
        if (!shown++) { fprintf(page, "<h3>%s</h3>\n<dl>\n", heading); }
        page_text(page, "<div><dt>", name, "</dt>");
        page_text(page, "<dd>", json_string_value(value), "</dd></div>\n");
    }
    if (shown) { fprintf(page, "</dl>\n"); }
}

static void page_rows(FILE* page, const Settings* s, SettingRank rank) {
    const char* name;
    json_t* value;
    json_object_foreach(s->names, name, value) {
        if (setting_rank(s, name, value) != rank) { continue; }
        page_text(page, rank == DIFFERS_BETWEEN_RUNS ? "<tr class=\"differs\"><th>" : "<tr><th>", name, "</th>");
        for (int i = 0; i < s->runs; i++) { page_text(page, "<td>", record_text(s->run[i], name), "</td>"); }
        fprintf(page, "</tr>\n");
    }
}

static void page_table(FILE* page, const Settings* s, const Run* runs) {
    fprintf(page, "<table class=\"options\"><thead><tr><th></th>");
    for (int i = 0; i < s->runs; i++) { page_text(page, "<th>", runs[i].name, "</th>"); }
    fprintf(page, "</tr></thead>\n<tbody>\n");
    for (int rank = 0; rank < SETTING_RANKS; rank++) { page_rows(page, s, (SettingRank)rank); }
    fprintf(page, "</tbody></table>\n");
}

void page_settings(FILE* page, const Run* runs, int count) {
    Settings s = {.runs = count, .names = json_object(), .defaults = default_settings()};
    s.run = alloc_or_die((size_t)count, sizeof *s.run, "the settings of runs");
    for (int i = 0; i < count; i++) {
        s.run[i] = run_settings(&runs[i]);
        json_object_update_missing(s.names, s.run[i]);
    }
    fprintf(page, "<section><h2>Configuration</h2>\n");
    if (json_object_size(s.names) == 0) { fprintf(page, "<p>not recorded</p>\n"); }
    else if (count == 1) {
        page_list(page, &s, IS_GIVEN, "Other than the defaults");
        page_list(page, &s, IS_DEFAULT, "Defaults, model and machine");
    } else { page_table(page, &s, runs); }
    fprintf(page, "</section>\n");
    for (int i = 0; i < count; i++) { json_decref(s.run[i]); }
    free(s.run);
    json_decref(s.names);
    json_decref(s.defaults);
}
