#include "chart.h"
#include "reference.h"

const ChartSize CHART_SMALL = {"small", 366, 230}, CHART_WIDE = {"broad", 1120, 380}, CHART_NARROW = {"slim", 366, 300};

// A chart in one size.
typedef struct {
    const Report* report;
    const Chart* chart;
    int width, height;     // of the SVG
    int frame_width, frame_height;
} Plot;

// ---------------------------------------------------------------------------------------------------------------------
// axes

typedef struct {
    double low, high, step; // step of a linear axis
    bool log;
    double above;           // the highest value beyond the frame, or NaN
} Axis;

double report_x(const Report* r, const Run* run, double step) {
    return r->by_tokens ? run_tokens(run, step) : step;
}

double nice_step(double x) {
    double power = pow(10.0, floor(log10(x)));
    return power * (x <= 1.0001 * power ? 1.0 : x <= 2.0001 * power ? 2.0 : x <= 5.0001 * power ? 5.0 : 10.0);
}

static double axis_at(const Axis* a, double v) {
    return a->log ? log(fmax(v, a->low) / a->low) / log(a->high / a->low) : (v - a->low) / (a->high - a->low);
}

typedef struct {
    double low, high; // of the values; low > high: there are none
    size_t count;
} Extent;

// Returns the range of the chart's values from x = `from` on; with `positive`, of those alone. The faint series counts
// instead of the one that is drawn over it.
static Extent chart_range(const Report* r, const Chart* c, double from, bool positive) {
    Extent range = {INFINITY, -INFINITY, 0};
    for (int i = 0; i < 2 * r->count; i++) {
        const Run* run = &r->runs[i / 2];
        const int number = i % 2 ? c->dotted : c->faint >= 0 ? c->faint : c->series;
        const Series* s = number >= 0 ? &run->series[number] : NULL;
        for (size_t k = 0; s && k < s->count; k++) {
            if (report_x(r, run, s->at[k].x) < from || (positive && s->at[k].y <= 0.0)) { continue; }
            range.low = fmin(range.low, s->at[k].y);
            range.high = fmax(range.high, s->at[k].y);
            range.count++;
        }
    }
    return range;
}

// Sets a logarithmic axis for such values; false if they span too little for one.
static bool log_axis(Axis* a, Extent positive) {
    if (!(positive.low <= positive.high && positive.high > 50.0 * positive.low)) { return false; }
    const double above = pow(10.0, ceil(log10(positive.high)));
    a->log = true;
    a->low = pow(10.0, floor(log10(positive.low)));
    a->high = 2.0 * positive.high < above ? nice_step(positive.high) : above;
    while (5.0 * a->low <= positive.low) { a->low *= 5.0; }
    while (2.0 * a->low <= positive.low) { a->low *= 2.0; }
    return true;
}

// Widens a range to a level that lies beside it, if that leaves the values at least half of the frame.
static void include_level(Extent* range, double level) {
    const double span = range->high - range->low;
    if (level < range->low && range->low - level < span) { range->low = level; }
    if (level > range->high && level - range->high < span) { range->high = level; }
}

static Axis chart_axis(const Plot* p) {
    const Report* r = p->report;
    const Chart* c = p->chart;
    Axis a = {0.0, 1.0, 0.2, false, NAN};
    Extent all = chart_range(r, c, -1.0, false), late = chart_range(r, c, 0.1 * r->x_end, false);
    if (!(all.low <= all.high)) { return a; }
    if (c->flags & CHART_LOG && log_axis(&a, chart_range(r, c, -1.0, true))) { return a; }
    if (c->flags & CHART_FALL && late.count >= 8 && late.low < late.high &&
        all.high - all.low > 2.0 * (late.high - all.low)) {
        a.above = all.high;
        all.high = late.high;
    }
    for (int i = 0; c->flags & CHART_LEVELS && i < r->count; i++) {
        include_level(&all, r->runs[i].floor);
        include_level(&all, run_reference(&r->runs[i]).level);
    }
    if (c->flags & CHART_ZERO) { all.low = fmin(all.low, 0.0); all.high = fmax(all.high, 0.0); }
    double least = fmax(1e-6 * fmax(fabs(all.low), fabs(all.high)), 1e-12);
    if (all.high - all.low < least) {
        all.low -= 0.1 * fabs(all.low) + least;
        all.high += 0.1 * fabs(all.high) + least;
    }
    a.step = nice_step((all.high - all.low) / (p->height > 250 ? 7.0 : 5.0));
    a.low = floor(all.low / a.step + 1e-9) * a.step;
    a.high = ceil(all.high / a.step - 1e-9) * a.step;
    return a;
}

// Returns the place of a value in the frame, from its top; far outside of it values are cut.
static double frame_y(const Plot* p, const Axis* a, double v) {
    return fmax(-1e4, fmin(1e4, p->frame_height * (1.0 - axis_at(a, v))));
}

static double frame_x(const Plot* p, const Run* run, double step) {
    return p->frame_width * report_x(p->report, run, step) / p->report->x_end;
}

static void chart_y_tick(FILE* page, const Plot* p, const Axis* a, double v) {
    char text[32];
    double y = CHART_TOP + frame_y(p, a, v);
    fprintf(page, "<path d=\"M%d %.1fH%d\"/><text x=\"%d\" y=\"%.1f\">%s</text>\n", CHART_LEFT, y,
            p->width - CHART_RIGHT, CHART_LEFT - 8, y + 4.0, tick_text(text, v, a->log ? v : a->step));
}

static void chart_grid(FILE* page, const Plot* p, const Axis* a) {
    char text[32];
    const double x_end = p->report->x_end;
    fprintf(page, "<g class=\"y\">\n");
    if (a->log) {
        int first = (int)floor(log10(a->low) + 1e-9), last = (int)ceil(log10(a->high) - 1e-9);
        int decades = last - first, stride = (decades + 7) / 8;
        for (int k = first; k <= last; k += stride) {
            for (int m = 1; m < (decades > 3 ? 2 : 10); m = m == 1 ? 2 : m == 2 ? 5 : 10) {
                double v = m * pow(10.0, k);
                if (v > 0.999 * a->low && v < 1.001 * a->high) { chart_y_tick(page, p, a, v); }
            }
        }
    } else {
        int ticks = (int)lround((a->high - a->low) / a->step);
        for (int k = 0; k <= ticks; k++) { chart_y_tick(page, p, a, a->low + k * a->step); }
    }
    fprintf(page, "</g>\n<g class=\"x\">\n");
    const double step = nice_step(x_end / (p->width > 800 ? 11.0 : 6.0));
    for (int k = 0; k * step <= 1.0001 * x_end; k++) {
        double x = CHART_LEFT + p->frame_width * k * step / x_end;
        fprintf(page, "<path d=\"M%.1f %dv4\"/>", x, p->height - CHART_BOTTOM);
        if (x > p->width - CHART_RIGHT - 60) { continue; }
        fprintf(page, "<text x=\"%.1f\" y=\"%d\">%s</text>\n", x, p->height - 6, tick_text(text, k * step, step));
    }
    fprintf(page, "<text class=\"unit\" x=\"%d\" y=\"%d\">%s</text>\n</g>\n", p->width - CHART_RIGHT, p->height - 6,
            p->report->by_tokens ? "tokens" : "steps");
}

// ---------------------------------------------------------------------------------------------------------------------
// lines

// Adds the points of a series, "x y x y ...". A long one is thinned to the lowest and the highest point of each of as
// many parts as the plot has pixels: the line looks as if all points were drawn.
static void chart_points(FILE* page, const Plot* p, const Axis* a, const Run* run, const Series* s) {
    size_t parts = min_size(min_size((size_t)p->frame_width, CHART_MAX_POINTS / 2), s->count);
    for (size_t part = 0; part < parts; part++) {
        size_t begin = s->count * part / parts, end = s->count * (part + 1) / parts, pick[2] = {begin, begin};
        for (size_t i = begin; i < end; i++) {
            if (s->at[i].y < s->at[pick[0]].y) { pick[0] = i; }
            if (s->at[i].y >= s->at[pick[1]].y) { pick[1] = i; }
        }
        for (int k = 0; k < (pick[0] == pick[1] ? 1 : 2); k++) {
            const Point* point = &s->at[(k == 0) == (pick[0] < pick[1]) ? pick[0] : pick[1]];
            fprintf(page, "%s%.1f %.2f", part + k > 0 ? " " : "M", frame_x(p, run, point->x), frame_y(p, a, point->y));
        }
    }
}

// Adds the line of a series, if it has points. `name`: shown beside its values.
static void chart_line(FILE* page, const Plot* p, const Axis* a, int run, int series, const char* style,
                       const char* name) {
    const Run* of = &p->report->runs[run];
    if (!of->series[series].count) { return; }
    fprintf(page, "<path class=\"%s%s\" data-run=\"%d\" data-name=\"", style, run < CHART_COLORS ? "" : " dashed",
            run);
    page_escape(page, name);
    fprintf(page, "\" d=\"");
    chart_points(page, p, a, of, &of->series[series]);
    fprintf(page, "\"/>\n");
}

// Adds a dot for each point of a series of at most 120 (chosen): they belong to the line before.
static void chart_dots(FILE* page, const Plot* p, const Axis* a, int run, int series, int color) {
    const Run* of = &p->report->runs[run];
    const Series* s = &of->series[series];
    if (!s->count || s->count > 120) { return; }
    fprintf(page, "<path class=\"dots c%d\" d=\"", color);
    for (size_t i = 0; i < s->count; i++) {
        fprintf(page, "M%.1f %.2fh0", frame_x(p, of, s->at[i].x), frame_y(p, a, s->at[i].y));
    }
    fprintf(page, "\"/>\n");
}

// One run has a color for each line, several have one each.
static void chart_lines(FILE* page, const Plot* p, const Axis* a, int run) {
    const Chart* c = p->chart;
    const bool is_alone = p->report->count == 1;
    const int color = run % CHART_COLORS, dotted_color = is_alone ? 1 : color;
    char style[32], *of_run = is_alone ? format("%s", "") : format("%s, ", p->report->runs[run].name);
    char *name = c->dotted >= 0 ? format("%straining", of_run) : is_alone ? format("%s", "") :
                 format("%s", p->report->runs[run].name), *dotted_name = format("%svalidation", of_run);
    snprintf(style, sizeof style, "faint c%d", color);
    if (c->faint >= 0) { chart_line(page, p, a, run, c->faint, style, name); }
    snprintf(style, sizeof style, "line c%d%s", color, c->faint >= 0 ? " smooth" : "");
    chart_line(page, p, a, run, c->series, style, name);
    if (p->report->runs[run].series[c->series].count == 1) { chart_dots(page, p, a, run, c->series, color); }
    if (c->dotted >= 0) {
        snprintf(style, sizeof style, "line c%d", dotted_color);
        chart_line(page, p, a, run, c->dotted, style, dotted_name);
        chart_dots(page, p, a, run, c->dotted, dotted_color);
    }
    free(of_run);
    free(name);
    free(dotted_name);
}

// ---------------------------------------------------------------------------------------------------------------------
// floors and published losses

// Adds a level with its name if it lies inside the frame.
static void chart_level(FILE* page, const Plot* p, const Axis* a, const char* name, double level, const char* style) {
    char text[32];
    if (!(level >= a->low && level <= a->high)) { return; }
    const double y = frame_y(p, a, level);
    fprintf(page, "<g class=\"level %s\" data-value=\"%.9g\"><path d=\"M0 %.1fH%d\"/>", style, level, y,
            p->frame_width);
    fprintf(page, "<text x=\"6\" y=\"%.1f\">", y - 5.0);
    page_escape(page, name);
    fprintf(page, " %s</text></g>\n", value_text(text, level));
}

// Adds a published curve over tokens, where the run has seen as many, and its name.
static void chart_reference(FILE* page, const Plot* p, const Axis* a, int run, const Reference* found) {
    const Run* of = &p->report->runs[run];
    chart_level(page, p, a, found->level_name, found->level, "published");
    if (!found->count || !of->series[RUN_TOKENS].count) { return; }
    fprintf(page, "<path class=\"line published\" data-run=\"%d\" data-name=\"%s\" d=\"", run, found->curve_name);
    for (size_t i = 0; i < found->count; i++) {
        const double step = run_step(of, found->curve[i].x);
        fprintf(page, "%s%.1f %.2f", i ? " " : "M", fmin(1e4, frame_x(p, of, step)),
                frame_y(p, a, found->curve[i].y));
    }
    fprintf(page, "\"/>\n");
}

// Returns what is published for the first run that has such a thing, and sets its number.
static Reference first_reference(const Report* r, int* number) {
    Reference found = {NULL, NAN, NULL, NULL, 0};
    for (int i = 0; i < r->count && !found.level_name; i++) {
        found = run_reference(&r->runs[i]);
        if (number) { *number = i; }
    }
    return found;
}

static void chart_levels(FILE* page, const Plot* p, const Axis* a) {
    const Report* r = p->report;
    int compared = 0;
    for (int i = 0; i < r->count; i++) {
        char style[32];
        const bool is_repeated = i > 0 && r->runs[i].floor == r->runs[i - 1].floor;
        snprintf(style, sizeof style, "c%d", r->count > 1 ? i % CHART_COLORS : 1);
        if (!is_repeated) { chart_level(page, p, a, "floor", r->runs[i].floor, style); }
    }
    const Reference found = first_reference(r, &compared);
    if (found.level_name) { chart_reference(page, p, a, compared, &found); }
}

// ---------------------------------------------------------------------------------------------------------------------
// figures

// Adds an entry of a legend.
static void caption_entry(FILE* page, int color, const char* name, double value) {
    char text[32];
    fprintf(page, "<li><i class=\"c%d\"></i>", color);
    page_escape(page, name);
    fprintf(page, " <b>%s</b></li>", value_text(text, value));
}

static void chart_caption(FILE* page, const Report* r, const Chart* c) {
    char text[32];
    fprintf(page, "<figcaption><h2>%s</h2><ul>", c->title);
    for (int i = 0; i < r->count; i++) {
        const Run* run = &r->runs[i];
        const double last = series_last(&run->series[c->series]);
        const int color = i % CHART_COLORS;
        if (r->count > 1) { caption_entry(page, color, run->name, last); continue; }
        caption_entry(page, color, c->dotted >= 0 ? "training" : "last", last);
        if (c->dotted >= 0) { caption_entry(page, 1, "validation", series_last(&run->series[c->dotted])); }
        if (c->flags & CHART_LEVELS && isfinite(run->floor)) {
            fprintf(page, "<li>floor <b>%s</b></li>", value_text(text, run->floor));
        }
    }
    const char* published = c->flags & CHART_LEVELS ? first_reference(r, NULL).curve_name : NULL;
    if (published) { fprintf(page, "<li><i class=\"published\"></i>%s</li>", published); }
    fprintf(page, "</ul></figcaption>\n");
}

static void chart_svg(FILE* page, const Report* r, const Chart* c, const ChartSize* size) {
    char text[32];
    bool is_empty = true;
    const Plot p = {r, c, size->width, size->height, size->width - CHART_LEFT - CHART_RIGHT,
                    size->height - CHART_TOP - CHART_BOTTOM};
    const Axis a = chart_axis(&p);
    fprintf(page, "<svg class=\"%s\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">\n", size->name, p.width,
            p.height, c->title);
    chart_grid(page, &p, &a);
    fprintf(page, "<svg class=\"plot\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" viewBox=\"-4 -4 %d %d\" ",
            CHART_LEFT - 4, CHART_TOP - 4, p.frame_width + 8, p.frame_height + 8, p.frame_width + 8,
            p.frame_height + 8);
    fprintf(page, "data-low=\"%.9g\" data-high=\"%.9g\" data-log=\"%d\" data-can=\"%d\">\n", a.low, a.high, a.log,
            (c->flags & CHART_LEVELS) != 0);
    fprintf(page, "<rect width=\"%d\" height=\"%d\"/>\n", p.frame_width, p.frame_height);
    for (int i = 0; i < r->count; i++) {
        chart_lines(page, &p, &a, i);
        is_empty = is_empty && !r->runs[i].series[c->series].count &&
                   (c->dotted < 0 || !r->runs[i].series[c->dotted].count);
    }
    if (c->flags & CHART_LEVELS) { chart_levels(page, &p, &a); }
    if (is_empty) {
        fprintf(page, "<text class=\"empty\" x=\"%d\" y=\"%d\">no data yet</text>\n", p.frame_width / 2,
                p.frame_height / 2);
    }
    if (isfinite(a.above) && a.above > a.high) {
        fprintf(page, "<text class=\"above\" x=\"%d\" y=\"14\">\xe2\x86\x91 up to %s at the start</text>\n",
                p.frame_width - 6, value_text(text, a.above));
    }
    fprintf(page, "<path class=\"cursor\" d=\"\"/>\n</svg>\n</svg>\n");
}

void page_chart(FILE* page, const Report* r, const Chart* c, bool is_wide) {
    fprintf(page, "<figure class=\"%s%s%s\">\n", is_wide ? "wide " : "", c->faint < 0 ? "thin " : "",
            r->count > 1 ? "many" : "one");
    chart_caption(page, r, c);
    chart_svg(page, r, c, is_wide ? &CHART_WIDE : &CHART_SMALL);
    if (is_wide) { chart_svg(page, r, c, &CHART_NARROW); }
    fprintf(page, "</figure>\n");
}
