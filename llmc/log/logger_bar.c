// The part of the logger that draws in a terminal.
#include "logger.h"
#include "../base/json.h"
#include <sys/ioctl.h>

// Returns the size of a terminal; no columns if `fd` is none.
static struct winsize terminal_size(int fd) {
    struct winsize window = {0, 0, 0, 0};
    const bool is_known = isatty(fd) && ioctl(fd, TIOCGWINSZ, &window) == 0 && window.ws_col > 0;
    if (isatty(fd) && !is_known) { window.ws_row = 24, window.ws_col = 80; }
    return window;
}

int logger_width(int fd) { return terminal_size(fd).ws_col; }

// Returns the seconds until the end of the run, as fast as since the first update of this start; NaN before the second.
static double seconds_left(const Logger* l, double now) {
    return l->steps > 1 ? (now - l->after_first) / (l->steps - 1) * (l->options.max_steps - l->last.step) : NAN;
}

void logger_bar_text(const Logger* l, double now, int width, char* out, size_t size) {
    char speed[32], eta[32], tail[256];
    int steps = l->options.max_steps;
    double done = steps > 0 ? fmin(1.0, (double)l->last.step / steps) : 0.0, elapsed = now - l->start;
    const double left = seconds_left(l, now);
    int n = snprintf(tail, sizeof tail, " %3.0f%% | step %d/%d | loss %.4f | %s tok/s | ETA %s", floor(100.0 * done),
                     l->last.step, steps, l->last.loss, si_text(speed, l->tok_s), duration_text(eta, left));
    double hourly = l->options.price;
    if (hourly > 0.0) {
        double spent = hourly * elapsed / 3600.0, total = spent + hourly * left / 3600.0;
        n += snprintf(tail + n, sizeof tail - (size_t)n, " | $%.2f", spent);
        if (left >= 0.0) { snprintf(tail + n, sizeof tail - (size_t)n, " of $%.2f", total); }
    }
    bar_text(done, tail, width, out, size);
}

bool logger_has_panel(const Logger* l) {
    return l->bar && l->options.has_panel && terminal_size(STDERR_FILENO).ws_row >= PANEL_ROWS + 2;
}

// Draws the panel from the cursor's row on, and puts the cursor back there.
static void draw_panel(const Logger* l) {
    const double now = seconds_now(), price = l->options.price / 3600.0;
    const Panel panel = {.step = l->last.step, .max_steps = l->options.max_steps, .left = seconds_left(l, now),
                         .loss = l->last.loss, .norm = l->last.norm, .val = l->val, .tok_s = l->tok_s,
                         .ms = l->last.ms, .mfu = l->last.mfu, .slowest = l->slowdown,
                         .spent = price * (now - l->start), .price = price, .memory = l->options.memory,
                         .loss_curve = &l->loss_curve, .norm_curve = &l->norm_curve, .gpu = l->gpu_state};
    char* text = panel_text(&panel, logger_width(STDERR_FILENO));
    int rows = 1;
    fputs("\r", stderr);
    for (char *row = text, *next; row; row = next, rows += row != NULL) {
        next = strchr(row, '\n');
        if (next) { *next++ = 0; }
        fprintf(stderr, "%s\033[K%s", row, next ? "\n" : "");
    }
    fprintf(stderr, "\033[J\r\033[%dA", rows - 1);
    free(text);
}

void logger_draw_bar(const Logger* l) {
    char text[512];
    if (!l->bar || l->steps == 0) { return; }
    if (logger_has_panel(l)) { draw_panel(l); }
    else {
        logger_bar_text(l, seconds_now(), logger_width(STDERR_FILENO), text, sizeof text);
        fprintf(stderr, "\r%s\033[K", text);
    }
    fflush(stderr);
}

void logger_erase_bar(const Logger* l) {
    if (l->bar) { fputs("\r\033[J", stderr); fflush(stderr); }
}
