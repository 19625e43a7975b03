#include "chart.h"
#include "../files/json.h"

// ---------------------------------------------------------------------------------------------------------------------
// a page: a text that grows

void page_add(Page* page, const char* fmt, ...) {
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    size_t n = (size_t)vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (page->size + n + 1 > page->room) {
        page->room = 2 * (page->size + n + 1);
        page->text = realloc_or_die(page->text, page->room, "report.html");
    }
    vsnprintf(page->text + page->size, n + 1, fmt, again);
    va_end(again);
    page->size += n;
}

// Returns true for characters that both HTML and XML can hold.
static bool page_can_hold(uint32_t c) {
    return c == '\n' || c == '\t' || (c >= 32 && c != 127 && c != 0xfffe && c != 0xffff);
}

void page_escape(Page* page, const char* text) {
    char* clean = clean_text(text, strlen(text), page_can_hold, NULL);
    for (const char* p = clean; *p;) {
        size_t plain = strcspn(p, "<>&\"'");
        page_add(page, "%.*s", (int)plain, p);
        p += plain;
        if (*p) { page_add(page, "&#%d;", *p++); }
    }
    free(clean);
}

// ---------------------------------------------------------------------------------------------------------------------
// numbers as text: to `out` of 32 bytes, which is returned

// Shortens the exponent: 6.00e-05 -> 6e-5.
static const char* tidy_exponent(char* out) {
    char* e = strchr(out, 'e');
    if (!e) { return out; }
    int exponent = atoi(e + 1);
    while (e > out && e[-1] == '0' && memchr(out, '.', (size_t)(e - out))) { e--; }
    if (e > out && e[-1] == '.') { e--; }
    snprintf(e, (size_t)(out + 32 - e), "e%d", exponent);
    return out;
}

const char* value_text(char* out, double v) {
    if (!isfinite(v)) { snprintf(out, 32, "\xe2\x80\x93"); return out; }
    if (fabs(v) >= 1e15 || (fabs(v) < 1e-3 && v != 0.0)) { snprintf(out, 32, "%.2e", v); return tidy_exponent(out); }
    if (fabs(v) >= 1e3) { return si_text(out, v); }
    snprintf(out, 32, fabs(v) < 0.1 || v == floor(v) ? "%.3g" : fabs(v) < 10.0 ? "%.4f" : "%.5g", v);
    return out;
}

const char* tick_text(char* out, double v, double step) {
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

// Finds the lowest and highest of the chart's values from x = `from` on, and returns how many there are. The faint
// series counts where it is drawn.
static size_t chart_range(const Report* r, const Chart* c, double from, bool positive, double* low, double* high) {
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

static Axis chart_axis(const Report* r, const Chart* c) {
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

static void chart_y_tick(Page* page, const Chart* c, const Axis* a, double v) {
    char text[32];
    double y = CHART_TOP + (c->height - CHART_TOP - CHART_BOTTOM) * (1.0 - axis_at(a, v));
    page_add(page, "<path d=\"M%d %.1fH%d\"/><text x=\"%d\" y=\"%.1f\">%s</text>\n", CHART_LEFT, y,
             c->width - CHART_RIGHT, CHART_LEFT - 8, y + 4.0, tick_text(text, v, a->log ? v : a->step));
}

static void chart_grid(Page* page, const Report* r, const Chart* c, const Axis* a) {
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

// Draws the path of a series in the plot's coordinates. A long one is thinned to the lowest and the highest point of
// each of as many parts as the plot has pixels: the line looks as if all points were drawn.
static void chart_path(Page* page, const Report* r, int run, int series, const Chart* c, const Axis* a) {
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

static void chart_lines(Page* page, const Report* r, int run, const Chart* c, const Axis* a) {
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

static void chart_floor(Page* page, const Run* run, const Chart* c, const Axis* a, int color) {
    char text[32];
    double y = (c->height - CHART_TOP - CHART_BOTTOM) * (1.0 - axis_at(a, run->floor));
    page_add(page, "<path class=\"floor c%d\" d=\"M0 %.1fH%d\"/>", color, y, c->width - CHART_LEFT - CHART_RIGHT);
    page_add(page, "<text x=\"6\" y=\"%.1f\">floor %s</text>\n", y - 5.0, value_text(text, run->floor));
}

static void chart_caption(Page* page, const Report* r, const Chart* c) {
    char text[32];
    page_add(page, "<figcaption><h2>%s</h2><ul>", c->title);
    for (int i = 0; i < r->count; i++) {
        page_add(page, "<li><i class=\"c%d\"></i>", i % CHART_COLORS);
        page_escape(page, r->count > 1 ? r->runs[i].name : c->faint >= 0 ? "smoothed" : "last");
        page_add(page, " <b>%s</b></li>", value_text(text, series_last(&r->runs[i].series[c->series])));
    }
    page_add(page, "</ul></figcaption>\n");
}

void page_chart(Page* page, const Report* r, const Chart* c) {
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
