// The part of the logger that draws in a terminal.
#include "logger.h"
#include "../base/json.h"
#include <sys/ioctl.h>

int logger_width(int fd) {
    struct winsize window = {0, 0, 0, 0};
    if (!isatty(fd)) { return 0; }
    return ioctl(fd, TIOCGWINSZ, &window) == 0 && window.ws_col > 0 ? window.ws_col : 80;
}

long long logger_print_every(const Logger* l) {
    const long long most = 500; // lines; chosen
    if (!l->bar) { return 1; }
    for (long long ten = 1;; ten *= 10) {
        const long long round[] = {ten, 2 * ten, 5 * ten};
        for (int i = 0; i < 3; i++) {
            if (l->options.max_steps / round[i] <= most) { return round[i]; }
        }
    }
}

// Writes a bar of up to 40 cells, the part `done` of them filled, and `tail` behind it, in at most `width` - 1
// characters; a narrow terminal gets the tail alone, cut.
static void bar_text(double done, const char* tail, int width, char* out, size_t size) {
    int room = width - 1 - (int)strlen(tail) - 2, cells = room > 40 ? 40 : room;
    if (cells < 8) { snprintf(out, size, "%.*s", width > 2 ? width - 1 : 1, tail + 1); return; }
    char cell[41] = "";
    for (int i = 0; i < cells; i++) { cell[i] = i < (int)(done * cells) ? '=' : i == (int)(done * cells) ? '>' : ' '; }
    snprintf(out, size, "[%.*s]%s", cells, cell, tail);
}

void logger_bar_text(const Logger* l, double now, int width, char* out, size_t size) {
    char speed[32], eta[32], tail[256];
    const double all = (double)l->options.max_tokens, seen = (double)l->last.tokens;
    const double done = all > 0 ? fmin(1.0, seen / all) : 0.0; // steps may have more and more tokens (--batch_ramp)
    // until the end of the run, as fast as since the first update of this start; NaN before the second
    const double per_token = l->steps > 1 ? (now - l->after_first) / (seen - (double)l->first_tokens) : NAN;
    const double left = per_token * fmax(0.0, all - seen);
    snprintf(tail, sizeof tail, " %3.0f%% | step %d/%d | loss %.4f | %s tok/s | ETA %s", floor(100.0 * done),
             l->last.step, l->options.max_steps, l->last.loss, si_text(speed, l->tok_s), duration_text(eta, left));
    bar_text(done, tail, width, out, size);
}

void logger_draw_bar(const Logger* l) {
    char text[512];
    if (!l->bar || l->steps == 0) { return; }
    logger_bar_text(l, seconds_now(), logger_width(STDERR_FILENO), text, sizeof text);
    char* line = format("\r%s\033[K", text);
    write_stream(STDERR_FILENO, line, strlen(line));
    free(line);
}

void logger_erase_bar(const Logger* l) {
    if (l->bar) { write_stream(STDERR_FILENO, "\r\033[J", 4); }
}
