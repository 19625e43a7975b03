// report.html: one run, or several overlaid, as one page that needs nothing beside itself. Charts are inline SVG, the
// few lines of script only add values under the pointer, light or dark is the reader's setting.
// The page is also well-formed XML, which makes it easy to check. It is made from metrics.jsonl (see logger.h) alone,
// as far as a run has come: records may be missing, values null, the last line torn.
#pragma once
#include "logger.h"

// ---------------------------------------------------------------------------------------------------------------------
// the page: a text that grows

typedef struct {
    char* text;
    size_t size, room;
} Page;

static inline void ATTR_PRINTF(2, 3) page_add(Page* page, const char* fmt, ...) {
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    size_t n = (size_t)vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (page->size + n + 1 > page->room) {
        page->room = 2 * (page->size + n + 1);
        page->text = (char*)realloc_or_die(page->text, page->room, "report.html");
    }
    vsnprintf(page->text + page->size, n + 1, fmt, again);
    va_end(again);
    page->size += n;
}

// UTF-8 text as content or attribute value; what neither HTML nor XML can hold becomes U+FFFD.
static inline void page_escape(Page* page, const char* text) {
    size_t left = strlen(text);
    for (size_t n; left > 0; text += n, left -= n) {
        n = utf8_size(text, left);
        bool control = n == 1 && ((unsigned char)*text < 32 || *text == 127) && !strchr("\n\t", *text);
        bool noncharacter = n == 3 && memcmp(text, "\xef\xbf", 2) == 0 && (unsigned char)text[2] >= 0xbe;
        if (n == 0 || control || noncharacter) { page_add(page, "\xef\xbf\xbd"); n = n ? n : 1; }
        else if (strchr("<>&\"'", *text)) { page_add(page, "&#%d;", *text); }
        else { page_add(page, "%.*s", (int)n, text); }
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// runs

typedef struct {
    double x, y;
} Point;

typedef struct {
    Point* at;
    size_t count, room;
} Series;

static inline void series_add(Series* s, double x, double y) {
    if (s->count == s->room) {
        s->room = s->room ? 2 * s->room : 256;
        s->at = (Point*)realloc_or_die(s->at, s->room * sizeof s->at[0], "the points of a chart");
    }
    s->at[s->count].x = x;
    s->at[s->count].y = y;
    s->count++;
}

enum { RUN_LOSS, RUN_SMOOTH, RUN_VAL, RUN_NORM, RUN_LR, RUN_SPEED, RUN_TOKENS, RUN_SERIES };

typedef struct {
    char* name;
    Series series[RUN_SERIES];            // by step
    json_t* config;                       // the last one; NULL if there is none
    json_t *first_sample, *last_sample;
    json_t *events, *evals;               // array of records; name -> last record
    double steps, ms, mfu, mfu_count, best_val, best_step, floor;
} Run;

// Not-a-number for what is missing or null. Nothing drawn here lies beyond 1e30, where ranges could overflow.
static inline double record_number(json_t* record, const char* key) {
    json_t* v = json_object_get(record, key);
    return json_is_number(v) ? fmax(-1e30, fmin(1e30, json_number_value(v))) : NAN;
}

static inline const char* record_text(json_t* record, const char* key) {
    const char* text = json_string_value(json_object_get(record, key));
    return text ? text : "";
}

static inline void replace_json(json_t** place, json_t* with) {
    json_incref(with);
    json_decref(*place);
    *place = with;
}

static inline void run_add_train(Run* run, double step, json_t* record) {
    static const struct { int series; const char* key; } fields[] = {
        {RUN_LOSS, "loss"}, {RUN_NORM, "norm"}, {RUN_LR, "lr"}, {RUN_SPEED, "tok_s"}, {RUN_TOKENS, "tokens"}};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        double v = record_number(record, fields[i].key);
        if (isfinite(v)) { series_add(&run->series[fields[i].series], step, v); }
    }
    double ms = record_number(record, "ms"), mfu = record_number(record, "mfu");
    run->steps = fmax(run->steps, step);
    if (isfinite(ms)) { run->ms += ms; }
    if (isfinite(mfu)) { run->mfu += mfu; run->mfu_count++; }
}

static inline void run_add_record(Run* run, json_t* record) {
    const char* kind = record_text(record, "kind");
    double step = record_number(record, "step"), loss = record_number(record, "loss");
    if (!isfinite(step)) { return; }
    bool event = strcmp(kind, "save") == 0 || strcmp(kind, "skip") == 0;
    if (strcmp(kind, "train") == 0) {
        run_add_train(run, step, record);
        event = !isfinite(loss);
    } else if (strcmp(kind, "val") == 0) {
        if (isfinite(loss)) { series_add(&run->series[RUN_VAL], step, loss); }
        if (isfinite(loss) && !(loss >= run->best_val)) { run->best_val = loss; run->best_step = step; }
    } else if (strcmp(kind, "config") == 0) {
        double floor_loss = record_number(record, "floor");
        if (isfinite(floor_loss)) { run->floor = floor_loss; }
        event = run->config != NULL || step > 0.0;
        replace_json(&run->config, record);
    } else if (strcmp(kind, "sample") == 0) {
        if (!run->first_sample) { replace_json(&run->first_sample, record); }
        replace_json(&run->last_sample, record);
    } else if (strcmp(kind, "eval") == 0) {
        json_object_set(run->evals, record_text(record, "name"), record);
    }
    if (event) { json_array_append(run->events, record); }
}

// The mean of the losses around each, over a twenty-fifth of the run but less at its start, where the loss falls fast.
static inline void run_smooth(Run* run) {
    const Series* loss = &run->series[RUN_LOSS];
    double* sum = (double*)alloc_or_die(loss->count + 1, sizeof *sum, "the smoothed loss"); // of the losses before i
    for (size_t i = 0; i < loss->count; i++) { sum[i + 1] = sum[i] + loss->at[i].y; }
    for (size_t i = 0; i < loss->count; i++) {
        size_t reach = min_size(loss->count / 50, i / 4), begin = i - reach, end = min_size(i + reach + 1, loss->count);
        series_add(&run->series[RUN_SMOOTH], loss->at[i].x, (sum[end] - sum[begin]) / (double)(end - begin));
    }
    free(sum);
}

static inline bool run_read(Run* run, const char* folder, Error* err) {
    memset(run, 0, sizeof *run);
    run->best_val = run->floor = NAN;
    run->events = json_array();
    run->evals = json_object();
    run->name = format("%s", folder);
    for (size_t n = strlen(run->name); n > 1 && run->name[n - 1] == '/';) { run->name[--n] = 0; }
    size_t size, n;
    char* path = format("%s/metrics.jsonl", folder);
    char* text = read_file(path, &size, err);
    free(path);
    if (!text) { return false; }
    const char *at = text, *line;
    while ((line = next_line(&at, text + size, &n)) != NULL) {
        json_t* record = json_loadb(line, n, 0, NULL);
        if (json_is_object(record)) { run_add_record(run, record); }
        json_decref(record);
    }
    free(text);
    run_smooth(run);
    return true;
}

static inline void run_free(Run* run) {
    for (int i = 0; i < RUN_SERIES; i++) { free(run->series[i].at); }
    json_decref(run->config);
    json_decref(run->first_sample);
    json_decref(run->last_sample);
    json_decref(run->events);
    json_decref(run->evals);
    free(run->name);
}

static inline double series_last(const Series* s) { return s->count ? s->at[s->count - 1].y : NAN; }

// Tokens seen after `step` updates: 0 at 0, linear between records and from the last one on.
static inline double run_tokens(const Run* run, double step) {
    const Series* s = &run->series[RUN_TOKENS];
    size_t low = 0, high = s->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (s->at[middle].x < step) { low = middle + 1; } else { high = middle; }
    }
    if (s->count == 0 || low == s->count) { return series_last(s); }
    double x0 = low ? s->at[low - 1].x : 0.0, y0 = low ? s->at[low - 1].y : 0.0, x1 = s->at[low].x, y1 = s->at[low].y;
    return x1 > x0 ? y0 + (y1 - y0) * (step - x0) / (x1 - x0) : y1;
}

// ---------------------------------------------------------------------------------------------------------------------
// numbers as text: to `out` of 32 bytes, which is returned

// 6.00e-05 -> 6e-5
static inline const char* tidy_exponent(char* out) {
    char* e = strchr(out, 'e');
    if (!e) { return out; }
    int exponent = atoi(e + 1);
    while (e > out && e[-1] == '0' && memchr(out, '.', (size_t)(e - out))) { e--; }
    if (e > out && e[-1] == '.') { e--; }
    snprintf(e, (size_t)(out + 32 - e), "e%d", exponent);
    return out;
}

static inline const char* value_text(char* out, double v) {
    if (!isfinite(v)) { snprintf(out, 32, "\xe2\x80\x93"); return out; }
    if (fabs(v) >= 1e15 || (fabs(v) < 1e-3 && v != 0.0)) { snprintf(out, 32, "%.2e", v); return tidy_exponent(out); }
    if (fabs(v) >= 1e3) { return si_text(out, v); }
    snprintf(out, 32, fabs(v) < 0.1 || v == floor(v) ? "%.3g" : fabs(v) < 10.0 ? "%.4f" : "%.5g", v);
    return out;
}

// As many digits as tell ticks `step` apart from each other.
static inline const char* tick_text(char* out, double v, double step) {
    static const char* const suffix[] = {"", "k", "M", "B", "T"};
    int thousands = 0;
    if (fabs(v) < 1e-9 * step) { snprintf(out, 32, "0"); return out; }
    if (fabs(v) >= 1e15 || (fabs(v) < 1e-2 && step < 1e-3)) { snprintf(out, 32, "%.1e", v); return tidy_exponent(out); }
    for (; fabs(v) >= 999.9999 && thousands < 4; thousands++) { v /= 1000.0; step /= 1000.0; }
    if (thousands) { snprintf(out, 32, "%.6g%s", v, suffix[thousands]); return out; }
    int digits = step < 0.99 ? (int)ceil(-log10(step) - 1e-9) : 0;
    snprintf(out, 32, "%.*f", digits > 6 ? 6 : digits, v);
    return out;
}

// ---------------------------------------------------------------------------------------------------------------------
// charts

enum { CHART_LOG = 1, CHART_ZERO = 2, CHART_FALL = 4, CHART_DOTS = 8 };

// A chart of each run's `series`, over its `faint` one if that is not -1.
// CHART_LOG: logarithmic where values span more than a factor of 50. CHART_ZERO: 0 is always shown. CHART_FALL: the
// first fall may lie above the frame, which then says so, if it would squeeze the other points, at least 20, into less
// than half of it.
typedef struct {
    const char* title;
    int series, faint, flags, width, height;
} Chart;

static const Chart REPORT_CHARTS[] = {
    {"Training loss", RUN_SMOOTH, RUN_LOSS, CHART_FALL, 1120, 340},
    {"Validation loss", RUN_VAL, -1, CHART_FALL | CHART_DOTS, 548, 250},
    {"Gradient norm", RUN_NORM, -1, CHART_LOG, 548, 250},
    {"Learning rate", RUN_LR, -1, CHART_ZERO, 548, 250},
    {"Tokens per second", RUN_SPEED, -1, CHART_ZERO, 548, 250},
};
enum { CHART_LEFT = 52, CHART_RIGHT = 10, CHART_TOP = 8, CHART_BOTTOM = 24, CHART_COLORS = 8 };
enum { CHART_COUNT = sizeof REPORT_CHARTS / sizeof REPORT_CHARTS[0] };
enum { CHART_MAX_POINTS = 2000 }; // of a line

// What all charts of a page share.
typedef struct {
    Run* runs;
    int count;
    bool by_tokens; // x is tokens, which compares runs with different batches; one run counts in steps, as its log does
    double x_end;
} Report;

typedef struct {
    double low, high, step; // step of a linear axis
    bool log;
    double above;           // the highest value beyond the frame, or NaN
} Axis;

static inline double report_x(const Report* r, const Run* run, double step) {
    return r->by_tokens ? run_tokens(run, step) : step;
}

// The smallest of 1, 2, 5 times a power of ten that is at least `x`.
static inline double nice_step(double x) {
    double power = pow(10.0, floor(log10(x)));
    return power * (x <= 1.0001 * power ? 1.0 : x <= 2.0001 * power ? 2.0 : x <= 5.0001 * power ? 5.0 : 10.0);
}

static inline double axis_at(const Axis* a, double v) {
    return a->log ? log(fmax(v, a->low) / a->low) / log(a->high / a->low) : (v - a->low) / (a->high - a->low);
}

// Lowest and highest of the chart's values from x = `from` on, and their number; the faint series counts, being drawn.
static inline size_t chart_range(const Report* r, const Chart* c, double from, bool positive, double* low,
                                 double* high) {
    size_t points = 0;
    *low = INFINITY;
    *high = -INFINITY;
    for (int i = 0; i < r->count; i++) {
        const Series* s = &r->runs[i].series[c->faint >= 0 ? c->faint : c->series];
        for (size_t k = 0; k < s->count; k++) {
            if (report_x(r, &r->runs[i], s->at[k].x) < from || (positive && s->at[k].y <= 0.0)) { continue; }
            *low = fmin(*low, s->at[k].y);
            *high = fmax(*high, s->at[k].y);
            points++;
        }
    }
    return points;
}

static inline Axis chart_axis(const Report* r, const Chart* c) {
    Axis a = {0.0, 1.0, 0.2, false, NAN};
    double low, high, late_low, late_high;
    chart_range(r, c, -1.0, false, &low, &high);
    if (!(low <= high)) { return a; }
    for (int i = 0; c->series == RUN_VAL && i < r->count; i++) {
        if (isfinite(r->runs[i].floor)) { low = fmin(low, r->runs[i].floor); high = fmax(high, r->runs[i].floor); }
    }
    if (c->flags & CHART_LOG) {
        chart_range(r, c, -1.0, true, &late_low, &late_high);
        a.log = late_low <= late_high && late_high > 50.0 * late_low;
        if (a.log) {
            a.low = pow(10.0, floor(log10(late_low)));
            a.high = 2.0 * late_high < pow(10.0, ceil(log10(late_high))) ? nice_step(late_high)
                                                                        : pow(10.0, ceil(log10(late_high)));
            while (5.0 * a.low <= late_low) { a.low *= 5.0; }
            while (2.0 * a.low <= late_low) { a.low *= 2.0; }
            return a;
        }
    }
    size_t late = chart_range(r, c, 0.05 * r->x_end, false, &late_low, &late_high);
    if (c->flags & CHART_FALL && late >= 20 && late_low < late_high && high - low > 2.5 * (late_high - low)) {
        a.above = high;
        high = late_high;
    }
    if (c->flags & CHART_ZERO) { low = fmin(low, 0.0); high = fmax(high, 0.0); }
    double least = fmax(1e-6 * fmax(fabs(low), fabs(high)), 1e-12);
    if (high - low < least) { low -= 0.1 * fabs(low) + least; high += 0.1 * fabs(high) + least; }
    a.step = nice_step((high - low) / (c->height > 300 ? 7.0 : 5.0));
    a.low = floor(low / a.step + 1e-9) * a.step;
    a.high = ceil(high / a.step - 1e-9) * a.step;
    return a;
}

static inline void chart_y_tick(Page* page, const Chart* c, const Axis* a, double v) {
    char text[32];
    double y = CHART_TOP + (c->height - CHART_TOP - CHART_BOTTOM) * (1.0 - axis_at(a, v));
    page_add(page, "<path d=\"M%d %.1fH%d\"/><text x=\"%d\" y=\"%.1f\">%s</text>\n", CHART_LEFT, y,
             c->width - CHART_RIGHT, CHART_LEFT - 8, y + 4.0, tick_text(text, v, a->log ? v : a->step));
}

static inline void chart_grid(Page* page, const Report* r, const Chart* c, const Axis* a) {
    char text[32];
    page_add(page, "<g class=\"y\">\n");
    if (a->log) {
        int first = (int)floor(log10(a->low) + 1e-9), last = (int)ceil(log10(a->high) - 1e-9);
        int decades = last - first, stride = (decades + 7) / 8;
        for (int k = first; k <= last; k += stride) {
            for (int m = 1; m < (decades > 3 ? 2 : 10); m = m == 1 ? 2 : m == 2 ? 5 : 10) {
                double v = m * pow(10.0, k);
                if (v > 0.999 * a->low && v < 1.001 * a->high) { chart_y_tick(page, c, a, v); }
            }
        }
    } else {
        int ticks = (int)lround((a->high - a->low) / a->step);
        for (int k = 0; k <= ticks; k++) { chart_y_tick(page, c, a, a->low + k * a->step); }
    }
    page_add(page, "</g>\n<g class=\"x\">\n");
    double width = c->width - CHART_LEFT - CHART_RIGHT, step = nice_step(r->x_end / (c->width > 800 ? 11.0 : 6.0));
    for (int k = 0; k * step <= 1.0001 * r->x_end; k++) {
        double x = CHART_LEFT + width * k * step / r->x_end;
        page_add(page, "<path d=\"M%.1f %dv4\"/>", x, c->height - CHART_BOTTOM);
        if (x > c->width - CHART_RIGHT - 60) { continue; }
        page_add(page, "<text x=\"%.1f\" y=\"%d\">%s</text>\n", x, c->height - 6, tick_text(text, k * step, step));
    }
    page_add(page, "<text class=\"unit\" x=\"%d\" y=\"%d\">%s</text>\n</g>\n", c->width - CHART_RIGHT, c->height - 6,
             r->by_tokens ? "tokens" : "steps");
}

// The path of a series in the plot's coordinates. A long one is thinned to the lowest and the highest point of each of
// as many parts as the plot has pixels: the line looks as if all points were drawn.
static inline void chart_path(Page* page, const Report* r, int run, int series, const Chart* c, const Axis* a) {
    const Series* s = &r->runs[run].series[series];
    double width = c->width - CHART_LEFT - CHART_RIGHT, height = c->height - CHART_TOP - CHART_BOTTOM;
    size_t parts = min_size(min_size((size_t)width, CHART_MAX_POINTS / 2), s->count);
    for (size_t part = 0; part < parts; part++) {
        size_t begin = s->count * part / parts, end = s->count * (part + 1) / parts, pick[2] = {begin, begin};
        for (size_t i = begin; i < end; i++) {
            if (s->at[i].y < s->at[pick[0]].y) { pick[0] = i; }
            if (s->at[i].y >= s->at[pick[1]].y) { pick[1] = i; }
        }
        for (int k = 0; k < (pick[0] == pick[1] ? 1 : 2); k++) {
            const Point* p = &s->at[(k == 0) == (pick[0] < pick[1]) ? pick[0] : pick[1]];
            double x = width * report_x(r, &r->runs[run], p->x) / r->x_end;
            double y = fmax(-1e4, fmin(1e4, height * (1.0 - axis_at(a, p->y))));
            page_add(page, "%s%.1f %.2f", part + k > 0 ? " " : "M", x, y);
        }
    }
}

static inline void chart_lines(Page* page, const Report* r, int run, const Chart* c, const Axis* a) {
    const Series* s = &r->runs[run].series[c->series];
    double width = c->width - CHART_LEFT - CHART_RIGHT, height = c->height - CHART_TOP - CHART_BOTTOM;
    int color = run % CHART_COLORS;
    if (s->count == 0) { return; }
    if (c->faint >= 0) {
        page_add(page, "<path class=\"faint c%d\" d=\"", color);
        chart_path(page, r, run, c->faint, c, a);
        page_add(page, "\"/>\n");
    }
    page_add(page, "<path class=\"line c%d%s\" data-name=\"", color, run < CHART_COLORS ? "" : " dashed");
    page_escape(page, r->count > 1 ? r->runs[run].name : c->faint >= 0 ? "smoothed" : "");
    page_add(page, "\" d=\"");
    chart_path(page, r, run, c->series, c, a);
    page_add(page, "\"/>\n");
    if (s->count > 1 && !(c->flags & CHART_DOTS && s->count <= 120)) { return; }
    page_add(page, "<path class=\"dots c%d\" d=\"", color);
    for (size_t i = 0; i < s->count; i++) {
        page_add(page, "M%.1f %.2fh0", width * report_x(r, &r->runs[run], s->at[i].x) / r->x_end,
                 fmax(-1e4, fmin(1e4, height * (1.0 - axis_at(a, s->at[i].y)))));
    }
    page_add(page, "\"/>\n");
}

static inline void chart_floor(Page* page, const Run* run, const Chart* c, const Axis* a, int color) {
    char text[32];
    double y = (c->height - CHART_TOP - CHART_BOTTOM) * (1.0 - axis_at(a, run->floor));
    page_add(page, "<path class=\"floor c%d\" d=\"M0 %.1fH%d\"/>", color, y, c->width - CHART_LEFT - CHART_RIGHT);
    page_add(page, "<text x=\"6\" y=\"%.1f\">floor %s</text>\n", y - 5.0, value_text(text, run->floor));
}

static inline void chart_caption(Page* page, const Report* r, const Chart* c) {
    char text[32];
    page_add(page, "<figcaption><h2>%s</h2><ul>", c->title);
    for (int i = 0; i < r->count; i++) {
        page_add(page, "<li><i class=\"c%d\"></i>", i % CHART_COLORS);
        page_escape(page, r->count > 1 ? r->runs[i].name : c->faint >= 0 ? "smoothed" : "last");
        page_add(page, " <b>%s</b></li>", value_text(text, series_last(&r->runs[i].series[c->series])));
    }
    page_add(page, "</ul></figcaption>\n");
}

static inline void page_chart(Page* page, const Report* r, const Chart* c) {
    char text[32];
    Axis a = chart_axis(r, c);
    bool empty = true;
    int width = c->width - CHART_LEFT - CHART_RIGHT, height = c->height - CHART_TOP - CHART_BOTTOM;
    bool thin = c->faint < 0 && !(c->flags & CHART_DOTS);
    page_add(page, "<figure class=\"%s%s%s\">\n", c->width > 800 ? "wide " : "", thin ? "thin " : "",
             r->count > 1 ? "many" : "one");
    chart_caption(page, r, c);
    page_add(page, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">\n", c->width, c->height, c->title);
    chart_grid(page, r, c, &a);
    page_add(page, "<svg class=\"plot\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" viewBox=\"-4 -4 %d %d\" ",
             CHART_LEFT - 4, CHART_TOP - 4, width + 8, height + 8, width + 8, height + 8);
    page_add(page, "data-x=\"%.9g\" data-low=\"%.9g\" data-high=\"%.9g\" data-log=\"%d\" data-unit=\"%s\">\n", r->x_end,
             a.low, a.high, a.log, r->by_tokens ? "tokens" : "step");
    page_add(page, "<rect width=\"%d\" height=\"%d\"/>\n", width, height);
    for (int i = 0; i < r->count; i++) {
        chart_lines(page, r, i, c, &a);
        empty = empty && r->runs[i].series[c->series].count == 0;
        bool repeated = i > 0 && r->runs[i].floor == r->runs[i - 1].floor;
        if (c->series == RUN_VAL && isfinite(r->runs[i].floor) && !repeated) {
            chart_floor(page, &r->runs[i], c, &a, i % CHART_COLORS);
        }
    }
    if (empty) {
        page_add(page, "<text class=\"empty\" x=\"%d\" y=\"%d\">no data yet</text>\n", width / 2, height / 2);
    }
    if (isfinite(a.above) && a.above > a.high) {
        page_add(page, "<text class=\"above\" x=\"%d\" y=\"14\">\xe2\x86\x91 up to %s at the start</text>\n",
                 width - 6, value_text(text, a.above));
    }
    page_add(page, "<path class=\"cursor\" d=\"\"/>\n</svg>\n</svg>\n</figure>\n");
}

// ---------------------------------------------------------------------------------------------------------------------
// the rest of the page

static const char REPORT_STYLE[] =
    ":root { color-scheme: light dark; --page: #f6f7f9; --card: #fff; --ink: #1b1f27; --soft: #667085;\n"
    "    --edge: #e3e6eb; --grid: #eceef2; --mark: #fff3d1; --c0: #2563c9; --c1: #d9601a; --c2: #12876a;\n"
    "    --c3: #9a3fb5; --c4: #a87908; --c5: #0b7c9e; --c6: #c8326b; --c7: #59636f }\n"
    "@media (prefers-color-scheme: dark) { :root { --page: #0f1217; --card: #171b22; --ink: #e6e9ee; --soft: #98a2b3;\n"
    "    --edge: #2a303a; --grid: #242a33; --mark: #3b3214; --c0: #6aa5ff; --c1: #ff9a5c; --c2: #3fcf9f;\n"
    "    --c3: #d08bea; --c4: #e2bd4e; --c5: #52c4e4; --c6: #ff7fa9; --c7: #aab3bf } }\n"
    ".c0 { color: var(--c0) } .c1 { color: var(--c1) } .c2 { color: var(--c2) } .c3 { color: var(--c3) }\n"
    ".c4 { color: var(--c4) } .c5 { color: var(--c5) } .c6 { color: var(--c6) } .c7 { color: var(--c7) }\n"
    "* { box-sizing: border-box; overflow-wrap: anywhere }\n"
    "body { margin: 0; background: var(--page); color: var(--ink); font-variant-numeric: tabular-nums;\n"
    "    font: 14px/1.45 system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif }\n"
    "main { max-width: 1200px; margin: 0 auto; padding: 28px 24px 48px; display: grid; gap: 16px;\n"
    "    grid-template-columns: 1fr 1fr }\n"
    "main > * { grid-column: 1 / -1; min-width: 0 }\n"
    "h1 { margin: 0; font-size: 22px; font-weight: 650; letter-spacing: -.01em }\n"
    "h2 { margin: 0; font-size: 14px; font-weight: 600 }\n"
    "h3 { margin: 0 0 6px; font-size: 12px; font-weight: 500; color: var(--soft) }\n"
    "header p { margin: 4px 0 0; color: var(--soft) }\n"
    "b { color: var(--ink); font-weight: 600 }\n"
    "i { display: inline-block; width: 10px; height: 3px; margin-right: 6px; border-radius: 2px;\n"
    "    vertical-align: middle; background: currentColor }\n"
    "figure, section, .tiles div { margin: 0; background: var(--card); border: 1px solid var(--edge);\n"
    "    border-radius: 8px }\n"
    "figure, section { padding: 14px 16px }\n"
    "section { overflow-x: auto }\n"
    "section h2 { margin-bottom: 8px }\n"
    ".tiles { display: flex; flex-wrap: wrap; gap: 12px }\n"
    ".tiles div { flex: 1 1 120px; padding: 10px 14px }\n"
    ".tiles span { display: block; color: var(--soft); font-size: 12px }\n"
    ".tiles b { font-size: 18px }\n"
    "main > figure { grid-column: span 1; padding-bottom: 8px; display: flex; flex-direction: column }\n"
    "figure > svg { margin-top: auto }\n"
    "main > figure.wide { grid-column: 1 / -1 }\n"
    "figcaption { display: flex; flex-wrap: wrap; gap: 4px 20px; justify-content: space-between; margin-bottom: 8px }\n"
    "figcaption ul { display: flex; flex-wrap: wrap; gap: 2px 16px; margin: 0; padding: 0; list-style: none;\n"
    "    color: var(--soft); font-size: 12px }\n"
    "svg { display: block; width: 100%; height: auto }\n"
    "svg path, svg rect { fill: none }\n"
    ".plot { overflow: hidden; pointer-events: all }\n"
    ".plot rect { pointer-events: all }\n"
    "svg text { font-size: 11px; fill: var(--soft) }\n"
    ".y text, .x .unit, .above { text-anchor: end }\n"
    ".x text:not(.unit), .empty { text-anchor: middle }\n"
    ".y path { stroke: var(--grid) }\n"
    ".x path { stroke: var(--soft); opacity: .6 }\n"
    ".line { stroke: currentColor; stroke-width: 1.7; stroke-linejoin: round }\n"
    ".thin .line { stroke-width: 1.2 }\n"
    ".dashed { stroke-dasharray: 6 3 }\n"
    ".faint { stroke: currentColor; opacity: .25 }\n"
    ".many .faint { opacity: .13 }\n"
    ".dots { stroke: currentColor; stroke-width: 5; stroke-linecap: round }\n"
    "path.floor { stroke: currentColor; stroke-dasharray: 5 4; opacity: .8 }\n"
    ".cursor { stroke: var(--soft); stroke-dasharray: 2 3 }\n"
    "table { border-collapse: collapse; width: 100% }\n"
    "th, td { padding: 4px 16px 4px 6px; text-align: left; vertical-align: top; border-top: 1px solid var(--edge) }\n"
    "thead th { border-top: 0; color: var(--soft); font-weight: 500; font-size: 12px }\n"
    "tbody th { font-weight: 500 }\n"
    ".runs th:not(:first-child), .runs td { padding: 4px 6px; text-align: right; white-space: nowrap }\n"
    ".options tbody th { color: var(--soft); white-space: nowrap }\n"
    ".options .differs { background: var(--mark) }\n"
    ".options .differs th { color: var(--ink) }\n"
    ".events th:first-child { width: 90px }\n"
    ".events th:nth-child(2) { width: 150px }\n"
    "summary { cursor: pointer; font-weight: 600 }\n"
    "dl { columns: 3 280px; column-gap: 28px; margin: 0 }\n"
    "dl div { display: flex; justify-content: space-between; gap: 12px; break-inside: avoid; padding: 3px 0;\n"
    "    border-bottom: 1px solid var(--grid) }\n"
    "dt { color: var(--soft) }\n"
    "dd { margin: 0; text-align: right }\n"
    ".pair { display: grid; grid-template-columns: 1fr 1fr; gap: 20px }\n"
    ".pair + .pair { margin-top: 16px }\n"
    ".pair > div { display: flex; flex-direction: column; min-width: 0 }\n"
    "pre { flex: 1; margin: 0; padding: 10px 12px; background: var(--page); border-radius: 6px;\n"
    "    white-space: pre-wrap; font: 12px/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace }\n"
    "#tip { position: fixed; pointer-events: none; padding: 6px 10px; background: var(--card); font-size: 12px;\n"
    "    border: 1px solid var(--edge); border-radius: 6px; box-shadow: 0 4px 14px #0003 }\n"
    "#tip:empty { display: none }\n"
    "@media (max-width: 760px) { main { padding: 16px 12px; gap: 12px } main > figure { grid-column: 1 / -1 }\n"
    "    .pair { grid-template-columns: 1fr } .wide { overflow-x: auto } .wide > svg { min-width: 760px } }\n"
    "@media print { figure, section { break-inside: avoid } }\n";

// Values under the pointer, read back from the paths. No "<" and "&" in it: the page stays XML.
static const char REPORT_SCRIPT[] =
    "const tip = document.getElementById('tip');\n"
    "const text = v => { const a = Math.abs(v), i = [1e12, 1e9, 1e6, 1e4].findIndex(s => a >= s);\n"
    "    if (i >= 0) { const k = [1e12, 1e9, 1e6, 1e3][i]; return (v / k).toPrecision(4) + 'TBMk'[i]; }\n"
    "    return a >= 1e-3 || a === 0 ? String(+v.toPrecision(4)) : v.toExponential(2); };\n"
    "document.querySelectorAll('svg.plot').forEach(plot => {\n"
    "    const data = plot.dataset, low = +data.low, high = +data.high;\n"
    "    const cursor = plot.querySelector('.cursor'), frame = plot.querySelector('rect');\n"
    "    const width = frame.width.baseVal.value, height = frame.height.baseVal.value;\n"
    "    const lines = Array.from(plot.querySelectorAll('.line'), path => {\n"
    "        const n = path.getAttribute('d').slice(1).split(' ').map(Number);\n"
    "        return { name: path.dataset.name, color: getComputedStyle(path).color,\n"
    "                 x: n.filter((_, i) => i % 2 === 0), y: n.filter((_, i) => i % 2 === 1) }; });\n"
    "    const value = y => { const t = 1 - y / height;\n"
    "        return data.log === '1' ? low * Math.pow(high / low, t) : low + (high - low) * t; };\n"
    "    plot.addEventListener('pointermove', event => {\n"
    "        const box = frame.getBoundingClientRect();\n"
    "        const at = (event.clientX - box.left) / box.width * width;\n"
    "        cursor.setAttribute('d', 'M' + at + ' 0V' + height);\n"
    "        tip.replaceChildren(Math.round(at / width * data.x).toLocaleString('en') + ' ' + data.unit);\n"
    "        lines.forEach(line => {\n"
    "            const far = i => Math.abs(line.x[i] - at);\n"
    "            const k = line.x.reduce((best, _, i) => far(best) > far(i) ? i : best, 0);\n"
    "            const row = document.createElement('div');\n"
    "            row.style.color = line.color;\n"
    "            row.textContent = line.name + ' ' + text(value(line.y[k]));\n"
    "            tip.append(row); });\n"
    "        const over = event.clientX + tip.offsetWidth + 24 > innerWidth;\n"
    "        tip.style.left = event.clientX + (over ? -tip.offsetWidth - 14 : 14) + 'px';\n"
    "        tip.style.top = event.clientY + 14 + 'px'; });\n"
    "    plot.addEventListener('pointerleave', () => { tip.replaceChildren(); cursor.setAttribute('d', ''); }); });\n";

// The facts that head the page of one run and are the columns of several, as text that the caller frees.
typedef struct {
    const char* title;
    char* (*text)(const Run* run);
} Fact;

static inline char* copy_number(double v) {
    char text[32];
    return format("%s", value_text(text, v));
}

static inline char* copy_amount(double v) {
    char text[32];
    return isfinite(v) ? format("%s", si_text(text, v)) : copy_number(v);
}

static inline char* fact_model(const Run* run) {
    const char* name = record_text(json_object_get(run->config, "model"), "name");
    return *name ? format("%s", name) : copy_number(NAN);
}

static inline char* fact_parameters(const Run* run) {
    return copy_amount(record_number(json_object_get(run->config, "model"), "parameters"));
}

static inline char* fact_steps(const Run* run) { return format("%.0f", run->steps); }
static inline char* fact_tokens(const Run* run) { return copy_amount(series_last(&run->series[RUN_TOKENS])); }

static inline char* fact_time(const Run* run) {
    char text[32];
    return format("%s", duration_text(text, run->ms / 1000.0));
}

static inline char* fact_speed(const Run* run) { return copy_amount(series_last(&run->series[RUN_SPEED])); }

static inline char* fact_mfu(const Run* run) {
    return run->mfu_count > 0.0 ? format("%.1f%%", 100.0 * run->mfu / run->mfu_count) : copy_number(NAN);
}

static inline char* fact_loss(const Run* run) { return copy_number(series_last(&run->series[RUN_SMOOTH])); }
static inline char* fact_val(const Run* run) { return copy_number(run->best_val); }

static const Fact REPORT_FACTS[] = {
    {"Model", fact_model}, {"Parameters", fact_parameters}, {"Best val loss", fact_val}, {"Training loss", fact_loss},
    {"Steps", fact_steps}, {"Tokens", fact_tokens}, {"Training time", fact_time}, {"Tokens/s", fact_speed},
    {"Mean MFU", fact_mfu},
};
enum { FACT_COUNT = sizeof REPORT_FACTS / sizeof REPORT_FACTS[0], FACT_FIRST_TILE = 2 }; // the header has the others

// Escaped text between markup. Frees `text`.
static inline void page_fact(Page* page, const char* before, char* text, const char* after) {
    page_add(page, "%s", before);
    page_escape(page, text);
    page_add(page, "%s", after);
    free(text);
}

static inline char* eval_text(json_t* eval) {
    double accuracy = record_number(eval, "accuracy");
    return isfinite(accuracy) ? format("%.2f%%", 100.0 * accuracy) : copy_number(NAN);
}

static inline void page_facts(Page* page, const Report* r) {
    const char* name;
    json_t *eval, *names = json_object();
    for (int i = 0; i < r->count; i++) { json_object_update(names, r->runs[i].evals); }
    if (r->count == 1) {
        page_add(page, "<div class=\"tiles\">\n");
        for (int k = FACT_FIRST_TILE; k < FACT_COUNT; k++) {
            page_add(page, "<div><span>%s</span>", REPORT_FACTS[k].title);
            page_fact(page, "<b>", REPORT_FACTS[k].text(&r->runs[0]), "</b></div>\n");
        }
        json_object_foreach(names, name, eval) {
            page_fact(page, "<div><span>", format("%s", name), "</span>");
            page_fact(page, "<b>", eval_text(eval), "</b></div>\n");
        }
        page_add(page, "</div>\n");
    } else {
        page_add(page, "<section><h2>Runs</h2>\n<table class=\"runs\"><thead><tr><th>Run</th>");
        for (int k = 0; k < FACT_COUNT; k++) { page_add(page, "<th>%s</th>", REPORT_FACTS[k].title); }
        json_object_foreach(names, name, eval) { page_fact(page, "<th>", format("%s", name), "</th>"); }
        page_add(page, "</tr></thead>\n<tbody>\n");
        for (int i = 0; i < r->count; i++) {
            page_add(page, "<tr><th><i class=\"c%d\"></i>", i % CHART_COLORS);
            page_fact(page, "", format("%s", r->runs[i].name), "</th>");
            for (int k = 0; k < FACT_COUNT; k++) {
                page_fact(page, "<td>", REPORT_FACTS[k].text(&r->runs[i]), "</td>");
            }
            json_object_foreach(names, name, eval) {
                page_fact(page, "<td>", eval_text(json_object_get(r->runs[i].evals, name)), "</td>");
            }
            page_add(page, "</tr>\n");
        }
        page_add(page, "</tbody></table></section>\n");
    }
    json_decref(names);
}

static inline void page_header(Page* page, const Report* r) {
    json_t* config = r->runs[0].config;
    if (r->count > 1) {
        page_add(page, "<header><h1>%d runs compared</h1></header>\n", r->count);
        return;
    }
    char* date = format("%.16s", record_text(config, "date"));
    char* model = fact_model(&r->runs[0]);
    char* parameters = fact_parameters(&r->runs[0]);
    char* size = format("%s parameters", parameters);
    if (strlen(date) == 16 && date[10] == 'T') { date[10] = ' '; }
    const char* parts[] = {record_text(config, "program"), model, size, record_text(config, "device"),
                           record_text(json_object_get(config, "options"), "dtype"), date};
    page_fact(page, "<header><h1>", format("%s", r->runs[0].name), "</h1>\n<p>");
    for (int i = 0, shown = 0; config && i < 6; i++) {
        if (*parts[i]) { page_fact(page, shown++ ? " \xc2\xb7 " : "", format("%s", parts[i]), ""); }
    }
    page_add(page, "</p></header>\n");
    free(date);
    free(model);
    free(parameters);
    free(size);
}

// Every setting of a run as one flat object of texts.
static inline json_t* run_settings(const Run* run) {
    json_t *all = json_object(), *parts[3], *value;
    const char *key, *prefix[] = {"", "model.", ""};
    parts[0] = json_object_get(run->config, "options");
    parts[1] = json_object_get(run->config, "model");
    parts[2] = run->config;
    for (int i = 0; i < 3; i++) {
        json_object_foreach(parts[i], key, value) {
            bool heading = i == 2 && (strcmp(key, "kind") == 0 || strcmp(key, "step") == 0);
            if (heading || json_is_object(value)) { continue; }
            char* name = format("%s%s", prefix[i], key);
            char* text = json_is_string(value) ? format("%s", json_string_value(value))
                                               : json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(7));
            json_object_set_new(all, name, json_string(text ? text : ""));
            free(name);
            free(text);
        }
    }
    return all;
}

static inline void page_settings(Page* page, const Report* r) {
    const char* name;
    json_t *value, *names = json_object(), **settings;
    settings = (json_t**)alloc_or_die((size_t)r->count, sizeof *settings, "the settings of runs");
    for (int i = 0; i < r->count; i++) {
        settings[i] = run_settings(&r->runs[i]);
        json_object_update_missing(names, settings[i]);
    }
    page_add(page, "<section><h2>Configuration</h2>\n");
    if (json_object_size(names) == 0) { page_add(page, "<p>not recorded</p>\n"); }
    else if (r->count == 1) {
        page_add(page, "<dl>\n");
        json_object_foreach(names, name, value) {
            page_fact(page, "<div><dt>", format("%s", name), "</dt>");
            page_fact(page, "<dd>", format("%s", json_string_value(value)), "</dd></div>\n");
        }
        page_add(page, "</dl>\n");
    } else {
        page_add(page, "<table class=\"options\"><thead><tr><th></th>");
        for (int i = 0; i < r->count; i++) { page_fact(page, "<th>", format("%s", r->runs[i].name), "</th>"); }
        page_add(page, "</tr></thead>\n<tbody>\n");
        json_object_foreach(names, name, value) {
            bool differs = false;
            for (int i = 0; i < r->count; i++) { differs |= !json_equal(json_object_get(settings[i], name), value); }
            page_fact(page, differs ? "<tr class=\"differs\"><th>" : "<tr><th>", format("%s", name), "</th>");
            for (int i = 0; i < r->count; i++) {
                page_fact(page, "<td>", format("%s", record_text(settings[i], name)), "</td>");
            }
            page_add(page, "</tr>\n");
        }
        page_add(page, "</tbody></table>\n");
    }
    page_add(page, "</section>\n");
    for (int i = 0; i < r->count; i++) { json_decref(settings[i]); }
    free(settings);
    json_decref(names);
}

static inline void page_sample(Page* page, const Run* run, json_t* sample, const char* which, bool named) {
    page_add(page, "<div><h3>");
    if (named) { page_escape(page, run->name); page_add(page, ", "); }
    page_add(page, "%s, step %.0f</h3><pre>", which, record_number(sample, "step"));
    page_escape(page, record_text(sample, "text"));
    page_add(page, "</pre></div>\n");
}

static inline void page_samples(Page* page, const Report* r) {
    bool any = false;
    for (int i = 0; i < r->count; i++) { any |= r->runs[i].first_sample != NULL; }
    if (!any) { return; }
    page_add(page, "<section><h2>Samples</h2>\n");
    for (int i = 0; i < r->count; i++) {
        const Run* run = &r->runs[i];
        if (!run->first_sample) { continue; }
        page_add(page, "<div class=\"pair\">\n");
        page_sample(page, run, run->first_sample, "first", r->count > 1);
        if (run->last_sample != run->first_sample) { page_sample(page, run, run->last_sample, "last", r->count > 1); }
        page_add(page, "</div>\n");
    }
    page_add(page, "</section>\n");
}

static inline void page_event(Page* page, json_t* event) {
    const char* kind = record_text(event, "kind");
    const char *what = "loss not finite", *detail = "";
    char z[32] = "";
    if (strcmp(kind, "save") == 0) { what = "saved"; detail = record_text(event, "path"); }
    if (strcmp(kind, "config") == 0) { what = "resumed"; detail = record_text(event, "date"); }
    if (strcmp(kind, "skip") == 0) {
        what = "update skipped";
        detail = record_text(event, "what");
        snprintf(z, sizeof z, " z-score %.2f", record_number(event, "z"));
    }
    page_add(page, "<tr><td>%.0f</td><td>%s</td><td>", record_number(event, "step"), what);
    page_fact(page, "", format("%s%s", detail, z), "</td></tr>\n");
}

static inline void page_events(Page* page, const Report* r) {
    enum { SHOWN = 200 };
    for (int i = 0; i < r->count; i++) {
        size_t n = json_array_size(r->runs[i].events);
        if (n == 0) { continue; }
        page_add(page, "<section><details%s>", n <= 8 && r->count == 1 ? " open=\"open\"" : "");
        page_fact(page, "<summary>Events", r->count > 1 ? format(" of %s", r->runs[i].name) : format("%s", ""), "");
        page_add(page, " (%zu)</summary>\n", n);
        page_add(page, "<table class=\"events\"><thead><tr><th>Step</th><th>Event</th><th></th></tr></thead><tbody>\n");
        for (size_t k = 0; k < min_size(n, SHOWN); k++) { page_event(page, json_array_get(r->runs[i].events, k)); }
        if (n > SHOWN) { page_add(page, "<tr><td></td><td>and %zu more</td><td></td></tr>\n", n - SHOWN); }
        page_add(page, "</tbody></table></details></section>\n");
    }
}

// Names are the last parts of the folders' paths where these differ, otherwise the paths.
static inline void report_name_runs(Report* r) {
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

static inline void report_x_axis(Report* r) {
    r->by_tokens = r->count > 1;
    for (int i = 0; i < r->count; i++) { r->by_tokens &= r->runs[i].series[RUN_TOKENS].count > 0; }
    r->x_end = 1.0;
    for (int i = 0; i < r->count; i++) {
        for (int k = 0; k < RUN_SERIES; k++) {
            const Series* s = &r->runs[i].series[k];
            if (s->count) { r->x_end = fmax(r->x_end, report_x(r, &r->runs[i], s->at[s->count - 1].x)); }
        }
    }
}

static inline void page_report(Page* page, const Report* r) {
    page_add(page, "<!DOCTYPE html>\n<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\">\n<head>\n"
             "<meta charset=\"utf-8\"/>\n"
             "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>");
    if (r->count == 1) { page_escape(page, r->runs[0].name); }
    else { page_add(page, "%d runs", r->count); }
    page_add(page, "</title>\n<style>\n%s</style>\n</head>\n<body>\n<main>\n", REPORT_STYLE);
    page_header(page, r);
    page_facts(page, r);
    for (int i = 0; i < CHART_COUNT; i++) { page_chart(page, r, &REPORT_CHARTS[i]); }
    page_samples(page, r);
    page_settings(page, r);
    page_events(page, r);
    page_add(page, "</main>\n<div id=\"tip\"></div>\n<script>\n%s</script>\n</body>\n</html>\n", REPORT_SCRIPT);
}

// Writes the page of `n` runs, each a folder with metrics.jsonl, to `out_path`, replacing it in one step.
static inline bool report_write(const char* out_path, const char* const* run_folders, int n, Error* err) {
    if (n < 1) { return fail(err, "%s: no run to report on; name at least one folder with metrics.jsonl", out_path); }
    Report r;
    memset(&r, 0, sizeof r);
    r.runs = (Run*)alloc_or_die((size_t)n, sizeof *r.runs, "the runs of a report");
    bool ok = true;
    for (; ok && r.count < n; r.count += ok) { ok = run_read(&r.runs[r.count], run_folders[r.count], err); }
    if (ok) {
        Page page = {NULL, 0, 0};
        report_name_runs(&r);
        report_x_axis(&r);
        page_report(&page, &r);
        ok = write_file_atomically(out_path, page.text, page.size, err);
        free(page.text);
    }
    for (int i = 0; i < n; i++) { run_free(&r.runs[i]); }
    free(r.runs);
    return ok;
}
