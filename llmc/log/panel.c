#include "panel.h"
#include "../base/json.h"

// ---------------------------------------------------------------------------------------------------------------------
// curves

void history_add(History* h, double value) {
    if (!isfinite(value)) { return; }
    if (h->stride == 0) { h->stride = 1; }
    if (h->count == HISTORY_POINTS) {
        for (int i = 0; i < HISTORY_POINTS / 2; i++) { h->point[i] = (h->point[2 * i] + h->point[2 * i + 1]) / 2; }
        h->count /= 2;
        h->stride *= 2;
    }
    h->sum += value;
    if (++h->summed < h->stride) { return; }
    h->point[h->count++] = h->sum / h->summed;
    h->sum = 0;
    h->summed = 0;
}

char* sparkline(const History* h, int width) {
    const int cells = min_int(h->count, width), first = h->count / 10;
    double low = INFINITY, high = -INFINITY;
    char* text = alloc_or_die((size_t)max_int(cells, 0) * 3 + 1, 1, "a curve");
    for (int i = first; i < h->count; i++) { low = fmin(low, h->point[i]); high = fmax(high, h->point[i]); }
    for (int i = 0; i < cells; i++) {
        const int begin = (int)((long long)h->count * i / cells), end = (int)((long long)h->count * (i + 1) / cells);
        double mean = 0;
        for (int k = begin; k < end; k++) { mean += h->point[k] / (end - begin); }
        const double level = high > low ? 8 * (mean - low) / (high - low) : 0;
        const int height = max_int(0, min_int(7, (int)level));
        memcpy(text + 3 * i, (const char[]){(char)0xe2, (char)0x96, (char)(0x81 + height)}, 3);
    }
    return text;
}

// ---------------------------------------------------------------------------------------------------------------------
// rows

void bar_text(double done, const char* tail, int width, char* out, size_t size) {
    int room = width - 1 - (int)strlen(tail) - 2, cells = room > 40 ? 40 : room;
    if (cells < 8) { snprintf(out, size, "%.*s", width > 2 ? width - 1 : 1, tail + 1); return; }
    char cell[41];
    for (int i = 0; i < cells; i++) { cell[i] = i < (int)(done * cells) ? '=' : i == (int)(done * cells) ? '>' : ' '; }
    snprintf(out, size, "[%.*s]%s", cells, cell, tail);
}

// Appends a fact to a row of at most width - 1 characters, behind " | ", if it still fits.
static void ATTR_PRINTF(4, 5) add_fact(char* row, size_t size, int width, const char* fmt, ...) {
    char fact[128];
    va_list args;
    va_start(args, fmt);
    vsnprintf(fact, sizeof fact, fmt, args);
    va_end(args);
    const size_t used = strlen(row);
    if (used + strlen(fact) + 3 > (size_t)max_int(width - 1, 0)) { return; }
    snprintf(row + used, size - used, "%s%s", used ? " | " : "", fact);
}

// Returns a row with a curve, which takes what the numbers leave of the width; the caller frees it.
static char* curve_row(const char* name, double value, const History* curve, int width) {
    char number[32];
    snprintf(number, sizeof number, "%s %8.4f", name, plain_nan(value));
    if (width < (int)strlen(number) + 4) { return format("%.*s", max_int(width - 1, 0), number); }
    char* cells = sparkline(curve, min_int(width - 3 - (int)strlen(number), 64));
    char* row = format("%s  %s", number, cells);
    free(cells);
    return row;
}

static void speed_row(const Panel* p, int width, char* row, size_t size) {
    char text[32];
    add_fact(row, size, width, "%s tok/s", si_text(text, p->tok_s));
    if (isfinite(p->mfu)) { add_fact(row, size, width, "%.1f%% MFU", 100 * p->mfu); }
    add_fact(row, size, width, "%.2f ms", p->ms);
    if (isfinite(p->val)) { add_fact(row, size, width, "val loss %.4f", p->val); }
    const double total = p->spent + p->price * p->left;
    if (p->price > 0 && p->left >= 0) { add_fact(row, size, width, "$%.2f of $%.2f", p->spent, total); }
    else if (p->price > 0) { add_fact(row, size, width, "$%.2f", p->spent); }
    if (p->memory) { add_fact(row, size, width, "%.1f GiB planned", in_mib(p->memory) / 1024); }
    if (isfinite(p->slowest)) { add_fact(row, size, width, "slowest rank %.2fx", p->slowest); }
}

static void gpu_row(const GpuState* g, int width, char* row, size_t size) {
    const double gib = 1024.0 * 1024 * 1024, used = g->bytes_used / gib;
    if (isfinite(g->celsius)) { add_fact(row, size, width, "%.0f C", g->celsius); }
    if (g->throttled) { add_fact(row, size, width, "throttled: %s", g->throttled); }
    if (isfinite(g->watts)) { add_fact(row, size, width, "%.0f W", g->watts); }
    if (isfinite(g->mhz)) { add_fact(row, size, width, "%.0f MHz", g->mhz); }
    if (isfinite(g->bytes)) { add_fact(row, size, width, "%.1f of %.1f GiB used", used, g->bytes / gib); }
}

char* panel_text(const Panel* p, int width) {
    char bar[512], tail[128], eta[32], speed[256] = "", gpu[256] = "";
    const double done = p->max_steps > 0 ? fmin(1.0, (double)p->step / p->max_steps) : 0.0;
    snprintf(tail, sizeof tail, " %3.0f%% | step %d/%d | ETA %s", floor(100 * done), p->step, p->max_steps,
             duration_text(eta, p->left));
    bar_text(done, tail, width, bar, sizeof bar);
    char* loss = curve_row("loss", p->loss, p->loss_curve, width);
    char* norm = curve_row("norm", p->norm, p->norm_curve, width);
    speed_row(p, width, speed, sizeof speed);
    gpu_row(&p->gpu, width, gpu, sizeof gpu);
    char* text = format("%s\n%s\n%s\n%s%s%s", bar, loss, norm, speed, *gpu ? "\n" : "", gpu);
    free(loss);
    free(norm);
    return text;
}
