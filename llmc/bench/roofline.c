#include "roofline.h"
#include "page.h"
#include "record.h"

static const char ROOFLINE_STYLE[] =
    ".bench .grid { stroke: var(--edge); fill: none }\n"
    ".bench .roof { stroke: var(--ink); stroke-width: 2; fill: none; stroke-linejoin: round }\n"
    ".bench .paper { stroke: var(--soft); stroke-dasharray: 5 4; fill: none }\n"
    ".bench .lead { stroke: var(--soft); stroke-width: .7; fill: none }\n"
    ".bench .by-arithmetic { fill: var(--speed) }\n"
    ".bench .by-memory { fill: var(--wrong) }\n"
    ".bench .mark { text-anchor: middle; fill: var(--ink); font-size: 11px }\n"
    ".bench .end { text-anchor: end }\n"
    ".bench .middle { text-anchor: middle }\n";

const RoofLayout ROOF_BROAD = {"broad", 1120, 84, 84, 690, 66, 570, 730, 0};
const RoofLayout ROOF_SLIM = {"slim", 400, 8, 50, 388, 66, 366, 20, 430}; // of a narrow screen

enum { LIST_ROW = 21, BELOW_PLOT = 52 };

static double roof_x(const RoofScale* s, double intensity) {
    return s->at->left + (s->at->right - s->at->left) * (log10(intensity) - s->left) / (s->right - s->left);
}

static double roof_y(const RoofScale* s, double flops) {
    const RoofLayout* at = s->at;
    const double y = at->bottom - (at->bottom - at->top) * (log10(flops) - s->bottom) / (s->top - s->bottom);
    return fmin(y, at->bottom); // points far below lie on the edge
}

RoofScale roof_scale(const Roofline* r, const RoofLayout* layout) {
    enum { MOST_DECADES = 6 };
    const double peak = fmax(r->matmul_flops, r->published_flops);
    const double ridge = r->matmul_flops / r->copy_bandwidth;
    const double paper_ridge = r->published_flops > 0 ? r->published_flops / r->published_bandwidth : ridge;
    double low_x = ridge, high_x = 3 * fmax(ridge, paper_ridge), low_y = peak;
    for (int i = 0; i < r->count; i++) {
        low_x = fmin(low_x, r->point[i].intensity);
        high_x = fmax(high_x, r->point[i].intensity);
        low_y = fmin(low_y, r->point[i].flops);
    }
    RoofScale s = {layout, floor(log10(low_x)), ceil(log10(high_x)), floor(log10(low_y)), log10(peak * 2)};
    s.left = fmax(s.left, s.right - MOST_DECADES);
    s.bottom = fmax(s.bottom, floor(s.top) - MOST_DECADES);
    return s;
}

// ---------------------------------------------------------------------------------------------------------------------
// axes and roofs

static const char* flops_text(char out[32], double flops) {
    static const char* const units[] = {"", " k", " M", " G", " T", " P"};
    int thousands = 0;
    for (; flops >= 999.9999 && thousands < 5; thousands++) { flops /= 1000; }
    snprintf(out, 32, "%.4g%s", flops, units[thousands]);
    return out;
}

static void roof_axes(Page* page, const RoofScale* s) {
    const RoofLayout* at = s->at;
    char text[32];
    for (int d = (int)s->left; d <= (int)s->right; d++) {
        const double x = roof_x(s, pow(10, d));
        page_add(page, "<path class=\"grid\" d=\"M%.1f %dV%d\"/><text class=\"middle\" x=\"%.1f\" y=\"%d\">%g</text>\n",
                 x, at->top, at->bottom, x, at->bottom + 18, pow(10, d));
    }
    for (int d = (int)s->bottom; d <= (int)floor(s->top); d++) {
        const double y = roof_y(s, pow(10, d));
        page_add(page, "<path class=\"grid\" d=\"M%d %.1fH%d\"/><text class=\"end\" x=\"%d\" y=\"%.1f\">%s</text>\n",
                 at->left, y, at->right, at->left - 8, y + 4, flops_text(text, pow(10, d)));
    }
    page_add(page, "<text class=\"middle\" x=\"%d\" y=\"%d\">FLOP for each byte to or from memory</text>\n",
             (at->left + at->right) / 2, at->bottom + 40);
    page_add(page, "<text class=\"middle\" transform=\"translate(%d %d) rotate(-90)\">FLOP/s</text>\n",
             at->left > 60 ? 16 : 10, (at->top + at->bottom) / 2);
}

// Draws a roof from the left edge, or where the slope enters the picture, to the ridge, and on to the right.
static void roof_line(Page* page, const RoofScale* s, const char* style, double bandwidth, double flops) {
    const double first = fmax(s->left, s->bottom - log10(bandwidth)), ridge = flops / bandwidth;
    page_add(page, "<path class=\"%s\" d=\"M%.1f %.1fL%.1f %.1fH%d\"/>\n", style, roof_x(s, pow(10, first)),
             roof_y(s, bandwidth * pow(10, first)), roof_x(s, ridge), roof_y(s, flops), s->at->right);
}

static void roof_heading(Page* page, const Roofline* r, int x) {
    char flops[32], paper[32];
    page_add(page, "<text class=\"title\" x=\"%d\" y=\"16\">Roofline of ", x);
    page_escape(page, r->device);
    page_add(page, "</text><text x=\"%d\" y=\"34\">measured: %.4g GB/s copying, %sFLOP/s in a large matmul", x,
             r->copy_bandwidth / 1e9, flops_text(flops, r->matmul_flops));
    if (r->published_flops > 0) {
        page_add(page, "</text><text x=\"%d\" y=\"50\">dashed, by data sheet: %.4g GB/s, %sFLOP/s", x,
                 r->published_bandwidth / 1e9, flops_text(paper, r->published_flops));
    }
    page_add(page, "</text>\n");
}

// ---------------------------------------------------------------------------------------------------------------------
// points: a dot, its number beside it where there is room, and a list of what the numbers are

double roof_above(const RoofMarks* m, double x) {
    const RoofScale* s = &m->scale;
    const double at = s->left + (s->right - s->left) * (x - s->at->left) / (s->at->right - s->at->left);
    return roof_y(s, fmin(m->roof->matmul_flops, m->roof->copy_bandwidth * pow(10, at)));
}

// Returns true if a number has room here: in the plot, off the roof, away from dots and from other numbers.
static bool is_free(const RoofMarks* m, double x, double y) {
    enum { HALF_WIDTH = 8, HALF_HEIGHT = 7 };
    const RoofLayout* at = m->scale.at;
    if (x < at->left + 8 || x > at->right - 8 || y < at->top + 6 || y > at->bottom - 6) { return false; }
    const double left = roof_above(m, x - HALF_WIDTH), right = roof_above(m, x + HALF_WIDTH);
    if (y > right - HALF_HEIGHT && y < left + HALF_HEIGHT) { return false; }
    for (int i = 0; i < m->dots; i++) {
        if (fabs(m->dot[i].x - x) < 12 && fabs(m->dot[i].y - y) < 10) { return false; }
    }
    for (int i = 0; i < m->marks; i++) {
        if (fabs(m->mark[i].x - x) < 18 && fabs(m->mark[i].y - y) < 12) { return false; }
    }
    return true;
}

// Finds the nearest free place around a dot, ring by ring.
static Spot place_mark(const RoofMarks* m, Spot dot) {
    enum { RINGS = 12, DIRECTIONS = 16 };
    for (int ring = 0; ring < RINGS; ring++) {
        for (int k = 0; k < DIRECTIONS; k++) {
            const double angle = 2 * 3.14159265358979 * k / DIRECTIONS, far = 13 + 8 * ring;
            const Spot s = {dot.x + far * cos(angle), dot.y + far * sin(angle)};
            if (is_free(m, s.x, s.y)) { return s; }
        }
    }
    const Spot above = {dot.x, dot.y - 13};
    return above;
}

RoofMarks roof_marks(const Roofline* r, const RoofScale* s) {
    RoofMarks m;
    memset(&m, 0, sizeof m);
    m.roof = r;
    m.scale = *s;
    m.dots = r->count < MAX_MARKS ? r->count : MAX_MARKS;
    for (int i = 0; i < m.dots; i++) {
        m.dot[i].x = fmax(roof_x(s, r->point[i].intensity), s->at->left);
        m.dot[i].y = roof_y(s, r->point[i].flops);
    }
    for (; m.marks < m.dots; m.marks++) { m.mark[m.marks] = place_mark(&m, m.dot[m.marks]); }
    return m;
}

static void roof_points(Page* page, const Roofline* r, const RoofScale* s) {
    const RoofMarks m = roof_marks(r, s);
    for (int i = 0; i < m.dots; i++) {
        const double dx = m.mark[i].x - m.dot[i].x, dy = m.mark[i].y - m.dot[i].y, far = sqrt(dx * dx + dy * dy);
        if (far > 16) {
            page_add(page, "<path class=\"lead\" d=\"M%.1f %.1fL%.1f %.1f\"/>", m.dot[i].x, m.dot[i].y,
                     m.mark[i].x - 7 * dx / far, m.mark[i].y - 7 * dy / far);
        }
    }
    for (int i = 0; i < m.dots; i++) {
        const RooflinePoint* p = &r->point[i];
        page_add(page, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"><title>%s %s</title></circle>"
                 "<text class=\"mark\" x=\"%.1f\" y=\"%.1f\">%d</text>\n",
                 p->by_memory ? "by-memory" : "by-arithmetic", m.dot[i].x, m.dot[i].y, p->name, p->layer,
                 m.mark[i].x, m.mark[i].y + 4, i + 1);
    }
}

// The list's columns: number, name, milliseconds and the part of the roof that was reached.
static void roof_list(Page* page, const Roofline* r, const RoofLayout* at) {
    const int ms = at->width - 74, reached = at->width - 4;
    char percent[32];
    page_add(page,
             "<text class=\"title\" x=\"%d\" y=\"%d\">Operation</text><text class=\"title end\" x=\"%d\" y=\"%d\">"
             "ms</text><text class=\"title end\" x=\"%d\" y=\"%d\">of roof</text>\n",
             at->list + 24, at->list_top + 16, ms, at->list_top + 16, reached, at->list_top + 16);
    for (int i = 0; i < r->count; i++) {
        const RooflinePoint* p = &r->point[i];
        const int y = at->list_top + 38 + LIST_ROW * i;
        page_add(page, "<circle class=\"%s\" cx=\"%d\" cy=\"%d\" r=\"4\"/>",
                 p->by_memory ? "by-memory" : "by-arithmetic", at->list - 12, y - 4);
        page_add(
            page,
            "<text class=\"end\" x=\"%d\" y=\"%d\">%d</text><text x=\"%d\" y=\"%d\" style=\"fill: var(--ink)\">%s "
            "%s</text><text class=\"end\" x=\"%d\" y=\"%d\">%.3f</text><text class=\"end\" x=\"%d\" y=\"%d\">%s"
            "</text>\n",
            at->list + 14, y, i + 1, at->list + 24, y, p->name, p->layer, ms, y, p->ms, reached, y,
            percent_text(percent, p->reached));
    }
}

static void roof_legend(Page* page, int x, int y) {
    page_add(
        page,
        "<circle class=\"by-memory\" cx=\"%d\" cy=\"%d\" r=\"4\"/><text x=\"%d\" y=\"%d\">bound by memory</text>"
        "<circle class=\"by-arithmetic\" cx=\"%d\" cy=\"%d\" r=\"4\"/><text x=\"%d\" y=\"%d\">by arithmetic</text>\n",
        x - 12, y - 4, x + 2, y, x + 130, y - 4, x + 144, y);
}

void page_roofline(Page* page, const Roofline* r, const RoofLayout* layout) {
    const RoofScale s = roof_scale(r, layout);
    const int list_end = layout->list_top + 38 + LIST_ROW * r->count + 34, plot_end = layout->bottom + BELOW_PLOT;
    const int height = list_end > plot_end ? list_end : plot_end;
    picture_begin(page, layout->size, layout->width, height,
                  "Roofline: operations per second over operations for each byte", ROOFLINE_STYLE);
    roof_heading(page, r, layout->heading);
    roof_axes(page, &s);
    if (r->published_flops > 0) { roof_line(page, &s, "paper", r->published_bandwidth, r->published_flops); }
    roof_line(page, &s, "roof", r->copy_bandwidth, r->matmul_flops);
    roof_points(page, r, &s);
    roof_list(page, r, layout);
    roof_legend(page, layout->list, height - 12);
    page_add(page, "</svg>\n");
}
