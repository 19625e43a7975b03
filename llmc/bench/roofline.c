#include "roofline.h"
#include "../log/html.h"
#include "picture.h"
#include "record.h"

static const char ROOFLINE_STYLE[] =
    ".bench .roof { stroke: var(--ink); stroke-width: 2; fill: none; stroke-linejoin: round }\n"
    ".bench .paper { stroke: var(--soft); stroke-dasharray: 5 4; fill: none }\n"
    ".bench .by-arithmetic { fill: var(--speed) }\n"
    ".bench .by-memory { fill: var(--wrong) }\n"
    ".bench { --mark: #fff }\n"
    "@media (prefers-color-scheme: dark) { .bench { --mark: #14171c } }\n" // the dots are light then
    ".bench circle { stroke: var(--mark); stroke-width: .7 }\n"
    ".bench .mark { text-anchor: middle; fill: var(--mark); font-size: 10px }\n"
    ".bench .op { fill: var(--ink) }\n";

// Edges of the plot, and of the list below it: there, text keeps three quarters of its size on a screen of 400 pixels.
enum { WIDTH = 530, LEFT = 66, RIGHT = 512, TOP = 66, BOTTOM = 430, LIST = 24, LIST_TOP = BOTTOM + 108, LIST_ROW = 21 };

// The ends of the axes, as log10.
typedef struct {
    double left, right, bottom, top;
} RoofScale;

static double roof_x(const RoofScale* s, double intensity) {
    return fmax(LEFT + (RIGHT - LEFT) * (log10(intensity) - s->left) / (s->right - s->left), LEFT);
}

static double roof_y(const RoofScale* s, double flops) {
    return fmin(BOTTOM - (BOTTOM - TOP) * (log10(flops) - s->bottom) / (s->top - s->bottom), BOTTOM);
}

// Chooses axes that show the roof and the points, of at most 6 decades each: points beyond lie at the edge.
static RoofScale roof_scale(const Roofline* r) {
    enum { MOST_DECADES = 6 };
    const double peak = fmax(r->peak_flops, r->published_flops);
    const double ridge = r->peak_flops / r->copy_bandwidth;
    const double paper_ridge = r->published_flops > 0 ? r->published_flops / r->published_bandwidth : ridge;
    double low_x = ridge, high_x = 3 * fmax(ridge, paper_ridge), low_y = peak;
    for (int i = 0; i < r->count; i++) {
        low_x = fmin(low_x, r->point[i].intensity);
        high_x = fmax(high_x, r->point[i].intensity);
        low_y = fmin(low_y, r->point[i].flops);
    }
    RoofScale s = {floor(log10(low_x)), ceil(log10(high_x)), floor(log10(low_y)), log10(peak * 2)};
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

static void roof_axes(FILE* svg, const RoofScale* s) {
    char text[32];
    for (int d = (int)s->left; d <= (int)s->right; d++) {
        const double x = roof_x(s, pow(10, d));
        fprintf(svg, "<path class=\"grid\" d=\"M%.1f %dV%d\"/>", x, TOP, BOTTOM);
        fprintf(svg, "<text class=\"middle\" x=\"%.1f\" y=\"%d\">%g</text>\n", x, BOTTOM + 18, pow(10, d));
    }
    for (int d = (int)s->bottom; d <= (int)floor(s->top); d++) {
        const double y = roof_y(s, pow(10, d));
        fprintf(svg, "<path class=\"grid\" d=\"M%d %.1fH%d\"/>", LEFT, y, RIGHT);
        fprintf(svg, "<text class=\"end\" x=\"%d\" y=\"%.1f\">%s</text>\n", LEFT - 8, y + 4,
                flops_text(text, pow(10, d)));
    }
    fprintf(svg, "<text class=\"middle\" x=\"%d\" y=\"%d\">FLOP for each byte to or from memory</text>\n",
            (LEFT + RIGHT) / 2, BOTTOM + 40);
    fprintf(svg, "<text class=\"middle\" transform=\"translate(16 %d) rotate(-90)\">FLOP/s</text>\n",
            (TOP + BOTTOM) / 2);
}

// Draws a roof from the left edge, or where the slope enters the picture, to the ridge, and on to the right.
static void roof_line(FILE* svg, const RoofScale* s, const char* style, double bandwidth, double flops) {
    const double first = fmax(s->left, s->bottom - log10(bandwidth)), ridge = flops / bandwidth;
    fprintf(svg, "<path class=\"%s\" d=\"M%.1f %.1fL%.1f %.1fH%d\"/>\n", style, roof_x(s, pow(10, first)),
            roof_y(s, bandwidth * pow(10, first)), roof_x(s, ridge), roof_y(s, flops), RIGHT);
}

static void roof_heading(FILE* svg, const Roofline* r) {
    char flops[32];
    fprintf(svg, "<text class=\"title\" x=\"%d\" y=\"16\">Roofline of ", LIST - 12);
    page_escape(svg, r->device);
    fprintf(svg, "</text><text x=\"%d\" y=\"34\">measured: %.4g GB/s copying, %sFLOP/s %s</text>\n", LIST - 12,
            r->copy_bandwidth / 1e9, flops_text(flops, r->peak_flops), r->peak_name);
    if (r->published_flops > 0) {
        fprintf(svg, "<text x=\"%d\" y=\"50\">dashed, by data sheet: %.4g GB/s, %sFLOP/s</text>\n", LIST - 12,
                r->published_bandwidth / 1e9, flops_text(flops, r->published_flops));
    }
}

static const char* limit_class(const RooflinePoint* p) { return p->by_memory ? "by-memory" : "by-arithmetic"; }

static void roof_points(FILE* svg, const Roofline* r, const RoofScale* s) {
    for (int i = 0; i < r->count; i++) {
        const RooflinePoint* p = &r->point[i];
        const double x = roof_x(s, p->intensity), y = roof_y(s, p->flops);
        fprintf(svg, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"8\"><title>%s %s</title></circle>"
                "<text class=\"mark\" x=\"%.1f\" y=\"%.1f\">%d</text>\n",
                limit_class(p), x, y, p->name, p->layer, x, y + 4, i + 1);
    }
}

// The list's columns: number, name, milliseconds and the part of the roof that was reached.
static void roof_list(FILE* svg, const Roofline* r) {
    enum { NAME = LIST + 24, MS = WIDTH - 74, REACHED = WIDTH - 4 };
    char percent[32];
    fprintf(svg, "<text class=\"title\" x=\"%d\" y=\"%d\">Operation</text>", NAME, LIST_TOP);
    fprintf(svg, "<text class=\"title end\" x=\"%d\" y=\"%d\">ms</text>", MS, LIST_TOP);
    fprintf(svg, "<text class=\"title end\" x=\"%d\" y=\"%d\">of roof</text>\n", REACHED, LIST_TOP);
    for (int i = 0; i < r->count; i++) {
        const RooflinePoint* p = &r->point[i];
        const int y = LIST_TOP + 22 + LIST_ROW * i;
        fprintf(svg, "<circle class=\"%s\" cx=\"%d\" cy=\"%d\" r=\"4\"/>", limit_class(p), LIST - 12, y - 4);
        fprintf(svg, "<text class=\"end\" x=\"%d\" y=\"%d\">%d</text>", LIST + 14, y, i + 1);
        fprintf(svg, "<text class=\"op\" x=\"%d\" y=\"%d\">%s %s</text>", NAME, y, p->name, p->layer);
        fprintf(svg, "<text class=\"end\" x=\"%d\" y=\"%d\">%.3f</text>", MS, y, p->ms);
        percent_text(percent, p->reached);
        fprintf(svg, "<text class=\"end\" x=\"%d\" y=\"%d\">%s</text>\n", REACHED, y, percent);
    }
}

static void roof_legend(FILE* svg, int y) {
    fprintf(svg, "<circle class=\"by-memory\" cx=\"%d\" cy=\"%d\" r=\"4\"/>", LIST - 12, y - 4);
    fprintf(svg, "<text x=\"%d\" y=\"%d\">bound by memory</text>", LIST + 2, y);
    fprintf(svg, "<circle class=\"by-arithmetic\" cx=\"%d\" cy=\"%d\" r=\"4\"/>", LIST + 130, y - 4);
    fprintf(svg, "<text x=\"%d\" y=\"%d\">by arithmetic</text>\n", LIST + 144, y);
}

void draw_roofline(FILE* svg, const Roofline* r) {
    const RoofScale s = roof_scale(r);
    const int height = LIST_TOP + 22 + LIST_ROW * r->count;
    picture_begin(svg, WIDTH, height, "Roofline: operations per second over operations for each byte", ROOFLINE_STYLE);
    roof_heading(svg, r);
    roof_axes(svg, &s);
    if (r->published_flops > 0) { roof_line(svg, &s, "paper", r->published_bandwidth, r->published_flops); }
    roof_line(svg, &s, "roof", r->copy_bandwidth, r->peak_flops);
    roof_points(svg, r, &s);
    roof_list(svg, r);
    roof_legend(svg, BOTTOM + 72);
    fprintf(svg, "</svg>\n");
}
