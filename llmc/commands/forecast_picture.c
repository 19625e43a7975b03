#include "../base/json.h"
#include "../bench/picture.h"
#include "forecast.h"

static const char LAW_STYLE[] =
    ".bench .law { fill: none; stroke-width: 1.5 }\n"
    ".bench .floor { stroke: var(--soft); stroke-dasharray: 5 4; fill: none }\n"
    ".bench .forecast { stroke: var(--wrong); stroke-width: 2; fill: none }\n"
    ".bench .size { fill: var(--ink) }\n";

enum { WIDTH = 530, HEIGHT = 420, LEFT = 52, RIGHT = 440, TOP = 44, BOTTOM = 370 };

// The ends of the axes, as logarithms.
typedef struct {
    double left, right, bottom, top;
} LawScale;

static double law_x(const LawScale* s, double tokens) {
    return LEFT + (RIGHT - LEFT) * (log(tokens) - s->left) / (s->right - s->left);
}

static double law_y(const LawScale* s, double loss) {
    return BOTTOM - (BOTTOM - TOP) * (log(loss) - s->bottom) / (s->top - s->bottom);
}

static LawScale law_scale(const Law* law, const Runs* runs, const ForecastPoint* forecast) {
    LawScale s = {INFINITY, -INFINITY, INFINITY, -INFINITY};
    for (int i = 0; i < runs->count; i++) {
        s.left = fmin(s.left, log(runs->run[i].tokens));
        s.right = fmax(s.right, log(runs->run[i].tokens));
        s.bottom = fmin(s.bottom, log(runs->run[i].loss));
        s.top = fmax(s.top, log(runs->run[i].loss));
    }
    if (forecast->tokens > 0) { // an interval far beyond the losses of the runs is cut
        s.left = fmin(s.left, log(forecast->tokens));
        s.right = fmax(s.right, log(forecast->tokens));
        s.bottom = fmin(s.bottom, fmax(log(forecast->loss.low), s.bottom - 1));
        s.top = fmax(s.top, fmin(log(forecast->loss.high), s.top + 1));
    }
    const double level = log(fmin(law_floor(law), runs->floor));
    s.bottom = fmin(s.bottom, fmax(level, s.bottom - 0.5)) - 0.05; // a floor near 0 would leave no room for the runs
    s.left -= 0.1, s.right += 0.1, s.top += 0.05;
    return s;
}

// Draws lines at 1, 2 and 5 times powers of ten.
static void law_axes(FILE* svg, const LawScale* s) {
    char text[32];
    double last_x = -INFINITY;
    for (int i = 3 * (int)floor(s->left / log(10)); i <= s->right * 3 / log(10); i++) {
        const double tokens = pow(10, floor(i / 3.0)) * (i % 3 == 0 ? 1 : i % 3 == 1 ? 2 : 5), x = law_x(s, tokens);
        const bool is_named = i % 3 == 0 || s->right - s->left < 4;
        if (x < LEFT || x > RIGHT || !is_named || x - last_x < 36) { continue; }
        last_x = x;
        fprintf(svg, "<path class=\"grid\" d=\"M%.1f %dV%d\"/>", x, TOP, BOTTOM);
        fprintf(svg, "<text class=\"middle\" x=\"%.1f\" y=\"%d\">%s</text>\n", x, BOTTOM + 18, si_text(text, tokens));
    }
    const double parts = s->top - s->bottom < 1 ? 0.1 : s->top - s->bottom < 2 ? 0.2 : 0.5;
    double last = INFINITY;
    for (double loss = parts * ceil(exp(s->bottom) / parts); log(loss) < s->top; loss += parts) {
        const double y = law_y(s, loss);
        if (last - y < 18) { continue; }
        last = y;
        fprintf(svg, "<path class=\"grid\" d=\"M%d %.1fH%d\"/>", LEFT, y, RIGHT);
        fprintf(svg, "<text class=\"end\" x=\"%d\" y=\"%.1f\">%.1f</text>\n", LEFT - 8, y + 4, loss);
    }
    fprintf(svg, "<text class=\"middle\" x=\"%d\" y=\"%d\">tokens</text>\n", (LEFT + RIGHT) / 2, BOTTOM + 40);
}

// A size, and the height of its name behind the end of its curve.
typedef struct {
    double parameters, y;
} SizeLabel;

// Draws the law of one size. Returns its label.
static SizeLabel law_curve(FILE* svg, const LawScale* s, const Law* law, double parameters, const char* color) {
    enum { POINTS = 60 };
    double y = 0;
    bool is_drawn = false;
    fprintf(svg, "<path class=\"law\" style=\"stroke: %s\" d=\"", color);
    for (int i = 0; i <= POINTS; i++) {
        const double tokens = exp(s->left + (s->right - s->left) * i / POINTS);
        y = law_y(s, law_loss(law, parameters, tokens));
        if (y < TOP) { continue; } // losses above those of the runs
        fprintf(svg, "%c%.1f %.1f", is_drawn ? 'L' : 'M', law_x(s, tokens), y);
        is_drawn = true;
    }
    fprintf(svg, "\"/>\n");
    return (SizeLabel){parameters, y};
}

static int compare_labels(const void* a, const void* b) {
    const SizeLabel *x = a, *y = b;
    return (x->y > y->y) - (x->y < y->y);
}

// Writes the labels, moved apart where they would overlap: down, but not below the axis.
static void law_labels(FILE* svg, SizeLabel* label, int count) {
    enum { TEXT_HEIGHT = 13 };
    char text[32];
    qsort(label, (size_t)count, sizeof *label, compare_labels);
    for (int i = 1; i < count; i++) { label[i].y = fmax(label[i].y, label[i - 1].y + TEXT_HEIGHT); }
    double most = BOTTOM;
    for (int i = count - 1; i >= 0; i--) {
        label[i].y = fmin(label[i].y, most);
        most = label[i].y - TEXT_HEIGHT;
        fprintf(svg, "<text class=\"size\" x=\"%d\" y=\"%.1f\">N = %s</text>\n", RIGHT + 6, label[i].y + 4,
                si_text(text, label[i].parameters));
    }
}

static void law_level(FILE* svg, const LawScale* s, double loss, const char* name, double shift) {
    if (!(log(loss) > s->bottom)) { return; }
    fprintf(svg, "<path class=\"floor\" d=\"M%d %.1fH%d\"/>", LEFT, law_y(s, loss), RIGHT);
    fprintf(svg, "<text x=\"%d\" y=\"%.1f\">%s %.4g</text>\n", LEFT + 6, law_y(s, loss) + shift, name, loss);
}

static void law_forecast_mark(FILE* svg, const LawScale* s, const ForecastPoint* f) {
    const double x = law_x(s, f->tokens), loss[3] = {f->loss.low, f->loss.high, f->loss.value};
    double y[3];
    for (int i = 0; i < 3; i++) { y[i] = fmin(BOTTOM, fmax(TOP, law_y(s, loss[i]))); }
    fprintf(svg, "<path class=\"forecast\" d=\"M%.1f %.1fV%.1fM%.1f %.1fh12M%.1f %.1fh12M%.1f %.1fh12\"/>\n", x, y[0],
            y[1], x - 6, y[0], x - 6, y[1], x - 6, y[2]);
}

void draw_law(FILE* svg, const Law* law, const Runs* runs, const ForecastPoint* forecast) {
    const LawScale s = law_scale(law, runs, forecast);
    char color[64];
    SizeLabel* label = alloc_or_die((size_t)runs->count + 1, sizeof *label, "labels");
    int labels = 0;
    picture_begin(svg, WIDTH, HEIGHT, "Loss over tokens: runs as dots, a curve of the law for each size", LAW_STYLE);
    fprintf(svg, "<text class=\"title\" x=\"12\" y=\"20\">Loss = E + A / N^%.3g + B / D^%.3g, E = %.4g</text>\n",
            law->x[LAW_ALPHA], law->x[LAW_BETA], law_floor(law));
    law_axes(svg, &s);
    law_level(svg, &s, law_floor(law), "E", 14);
    law_level(svg, &s, runs->floor, "entropy", -5);
    const double span = log(runs->run[runs->count - 1].parameters / runs->run[0].parameters);
    for (int i = 0; i < runs->count; i++) {
        const LawRun* r = &runs->run[i];
        const double hue = 200 + 130 * log(r->parameters / runs->run[0].parameters) / span;
        snprintf(color, sizeof color, "hsl(%.0f 65%% 50%%)", hue);
        if (!i || r->parameters != r[-1].parameters) {
            label[labels++] = law_curve(svg, &s, law, r->parameters, color);
        }
        fprintf(svg, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" style=\"fill: %s\"/>\n", law_x(&s, r->tokens),
                law_y(&s, r->loss), color);
    }
    if (forecast->tokens > 0) {
        label[labels++] = law_curve(svg, &s, law, forecast->parameters, "var(--wrong)");
        law_forecast_mark(svg, &s, forecast);
    }
    law_labels(svg, label, labels);
    free(label);
    fprintf(svg, "</svg>\n");
}
