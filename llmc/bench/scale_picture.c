#include "scale_picture.h"
#include "../log/report.h"

static const char SCALE_STYLE[] =
    ".scale { font: 12px system-ui, sans-serif; --ink: #1b1f27; --soft: #667085; --grid: #e4e7ec; --all: #2563c9;\n"
    "    --share: #c2560c }\n"
    "@media (prefers-color-scheme: dark) { .scale { --ink: #e6e9ee; --soft: #98a2b3; --grid: #2c323c; --all: #6aa5ff;\n"
    "    --share: #ff9a5c } }\n"
    ".scale text { font-size: 12px; fill: var(--soft) }\n"
    ".scale .title { fill: var(--ink); font-weight: 600 }\n"
    ".scale .x { text-anchor: middle }\n"
    ".scale .y { text-anchor: end }\n"
    ".scale path { fill: none; stroke-width: 1.5 }\n"
    ".scale .grid { stroke: var(--grid); stroke-width: 1 }\n"
    ".scale .ideal { stroke: var(--soft); stroke-width: 1 }\n"
    ".scale .all { stroke: var(--all) }\n"
    ".scale .share { stroke: var(--share) }\n"
    ".scale .serial { stroke-dasharray: 5 4 }\n";

enum { SCALE_WIDTH = 1120, SCALE_HEIGHT = 400, SCALE_TOP = 76, SCALE_PLOT_WIDTH = 430, SCALE_PLOT_HEIGHT = 280 };

// One of the two plots: tokens per second, both axes logarithmic; or efficiency, y from 0 to 1.
typedef struct {
    const BenchScale* bench;
    int left;
    bool is_speed;
    double low, high; // of y, of which log2 is taken for speed
} ScalePlot;

static double scale_x(const ScalePlot* p, int i) {
    const BenchScale* b = p->bench;
    return p->left + SCALE_PLOT_WIDTH * log2(b->n[i]) / fmax(1, log2(b->n[b->count - 1]));
}

static double scale_y(const ScalePlot* p, double value) {
    const double y = p->is_speed ? log2(value) : value;
    return SCALE_TOP + SCALE_PLOT_HEIGHT * (1 - (y - p->low) / (p->high - p->low));
}

// Draws a horizontal grid line, with its value.
static void scale_tick(Page* page, const ScalePlot* p, double value) {
    char text[32];
    const double y = scale_y(p, value);
    if (p->is_speed) { tick_text(text, value, value); }
    else { snprintf(text, sizeof text, "%.0f%%", 100 * value); }
    page_add(page, "<path class=\"grid\" d=\"M%d %.1fh%d\"/><text class=\"y\" x=\"%d\" y=\"%.1f\">%s</text>\n",
             p->left, y, SCALE_PLOT_WIDTH, p->left - 8, y + 4, text);
}

static void scale_grid(Page* page, const ScalePlot* p) {
    const BenchScale* b = p->bench;
    const int bottom = SCALE_TOP + SCALE_PLOT_HEIGHT;
    const bool is_wide = p->high - p->low > 12; // powers of ten alone, beside the first
    for (int k = 0; !p->is_speed && k <= 5; k++) { scale_tick(page, p, k / 5.0); }
    double value = exp2(p->low);
    for (; p->is_speed && log2(value) < p->high + 0.01; value = nice_step(1.5 * value)) {
        const double digit = value / pow(10, floor(log10(value) + 1e-9));
        if (!is_wide || digit < 1.5) { scale_tick(page, p, value); }
    }
    for (int i = 0; i < b->count; i++) {
        page_add(page, "<text class=\"x\" x=\"%.1f\" y=\"%d\">%d</text>\n", scale_x(p, i), bottom + 20, b->n[i]);
    }
    page_add(page, "<text class=\"x\" x=\"%d\" y=\"%d\">GPUs</text>\n", p->left + SCALE_PLOT_WIDTH / 2, bottom + 38);
}

static void scale_line(Page* page, const ScalePlot* p, int mode) {
    const BenchScale* b = p->bench;
    page_add(page, "<path class=\"%s%s\" d=\"", mode & SCALE_ZERO ? "share" : "all",
             mode & SCALE_OVERLAP ? "" : " serial");
    for (int i = 0; i < b->count; i++) {
        const double y = p->is_speed ? scale_tokens_per_second(b, i, mode) : scale_efficiency(b, i, mode);
        page_add(page, "%s%.1f %.1f", i ? "L" : "M", scale_x(p, i), scale_y(p, y));
    }
    page_add(page, "\"/>\n");
}

static void scale_plot(Page* page, const BenchScale* b, int left, bool is_speed) {
    ScalePlot p = {b, left, is_speed, 0, 1};
    const int last = b->count - 1;
    const double first = scale_tokens_per_second(b, 0, SCALE_OVERLAP);
    if (is_speed) {
        p.low = -log2(nice_step(1 / first)); // the numbers next to both, of 1, 2, 5 times a power of ten
        p.high = log2(nice_step(first * b->n[last]));
    }
    page_add(page, "<text class=\"title\" x=\"%d\" y=\"%d\">%s</text>\n", left, SCALE_TOP - 16,
             is_speed ? "Tokens per second" : "Efficiency: speed over that of one, by the number");
    scale_grid(page, &p);
    page_add(page, "<path class=\"ideal\" d=\"M%.1f %.1fL%.1f %.1f\"/>\n", scale_x(&p, 0),
             scale_y(&p, is_speed ? first : 1), scale_x(&p, last), scale_y(&p, is_speed ? first * b->n[last] : 1));
    for (int mode = 0; mode < SCALE_MODES; mode++) { scale_line(page, &p, mode); }
}

void scale_picture(Page* page, const BenchScale* b) {
    page_add(page, "<svg class=\"scale\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\" "
             "aria-label=\"Tokens per second and efficiency by the number of GPUs, predicted\">\n<style>\n%s</style>\n",
             SCALE_WIDTH, SCALE_HEIGHT, SCALE_STYLE);
    char* text = format("%s, %lld tokens a step; %s; predicted, not measured", b->config->model,
                        b->config->total_batch_size, b->device);
    page_add(page, "<text x=\"60\" y=\"18\">");
    page_escape(page, text);
    page_add(page, "</text>\n");
    free(text);
    for (int mode = 0; mode < SCALE_MODES; mode++) {
        const int x = 60 + 190 * mode;
        page_add(page, "<path class=\"%s%s\" d=\"M%d 36h28\"/><text x=\"%d\" y=\"40\">%s</text>\n",
                 mode & SCALE_ZERO ? "share" : "all", mode & SCALE_OVERLAP ? "" : " serial", x, x + 36,
                 SCALE_NAMES[mode]);
    }
    page_add(page, "<path class=\"ideal\" d=\"M820 36h28\"/><text x=\"856\" y=\"40\">nothing lost</text>\n");
    scale_plot(page, b, 60, true);
    scale_plot(page, b, 650, false);
    page_add(page, "</svg>\n");
}
