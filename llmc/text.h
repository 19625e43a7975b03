// Text for people and for JSON: numbers in few characters, lines, and bytes that need not be UTF-8.
#pragma once
#include "base.h"
#include <jansson.h>

// ---------------------------------------------------------------------------------------------------------------------
// numbers: all of these write to `out` of 32 bytes and return it

// Three digits and a suffix: 950, 1.75M, 10.3B.
static inline const char* si_text(char* out, double v) {
    static const char* const suffix[] = {"", "k", "M", "B", "T"};
    int i = 0;
    for (; fabs(v) >= 999.5 && i < 4; i++) { v /= 1000.0; }
    double a = fabs(v);
    int digits = i == 0 && v == floor(v) ? 0 : a < 9.995 ? 2 : a < 99.95 ? 1 : 0;
    if (isfinite(v) && a < 1e6) { snprintf(out, 32, "%.*f%s", digits, v, suffix[i]); }
    else { snprintf(out, 32, "%.3g%s", v, isfinite(v) ? suffix[i] : ""); }
    return out;
}

// 4:05, 1:23:45 or 2d 03:00:00.
static inline const char* duration_text(char* out, double seconds) {
    if (!(seconds >= 0.0 && seconds < 1e10)) { snprintf(out, 32, "--:--"); return out; }
    long long s = llround(seconds);
    int hours = (int)(s / 3600 % 24), minutes = (int)(s / 60 % 60), rest = (int)(s % 60);
    if (s >= 86400) { snprintf(out, 32, "%lldd %02d:%02d:%02d", s / 86400, hours, minutes, rest); }
    else if (s >= 3600) { snprintf(out, 32, "%d:%02d:%02d", hours, minutes, rest); }
    else { snprintf(out, 32, "%d:%02d", minutes, rest); }
    return out;
}

// A z-score. C libraries disagree on the sign that "%+.2f" gives NaN; scripts expect +nan.
static inline const char* z_text(char* out, double z) {
    if (isnan(z)) { snprintf(out, 32, "+nan"); }
    else { snprintf(out, 32, "%+.2f", z); }
    return out;
}

// NaN without a sign, which printf would show.
static inline double plain_nan(double v) { return isnan(v) ? fabs(NAN) : v; }

// ---------------------------------------------------------------------------------------------------------------------
// lines and characters

// The next whole line from `*at`, its newline left out; NULL at `end` and at a torn last line, which has no newline.
static inline const char* next_line(const char** at, const char* end, size_t* size) {
    const char* line = *at;
    const char* newline = line < end ? (const char*)memchr(line, '\n', (size_t)(end - line)) : NULL;
    if (!newline) { return NULL; }
    *size = (size_t)(newline - line);
    *at = newline + 1;
    return line;
}

// Fresh text, terminated, in which U+FFFD stands for each byte that is not UTF-8 (a sample may end inside a character)
// and for each character that `keep` refuses. `clean_size` may be NULL.
static inline char* clean_text(const char* text, size_t size, bool (*keep)(uint32_t), size_t* clean_size) {
    static const char replacement[] = "\xef\xbf\xbd";
    char* clean = (char*)alloc_or_die(3 * size + 1, 1, "a text");
    size_t used = 0;
    uint32_t c;
    for (size_t i = 0, n; i < size; i += max_size(n, 1)) {
        n = utf8_decode(text + i, text + size, &c);
        bool kept = n > 0 && keep(c);
        memcpy(clean + used, kept ? text + i : replacement, kept ? n : 3);
        used += kept ? n : 3;
    }
    if (clean_size) { *clean_size = used; }
    return clean;
}

// Line ends, tabs, and all that is no control character.
static inline bool is_harmless(uint32_t c) { return c == '\n' || c == '\t' || (c >= 32 && (c < 127 || c >= 160)); }

// Writes what a model made, which may be any bytes: to a terminal, which control characters could set to anything, in
// harmless characters, and to everything else as it is. The caller checks `to` for errors when it flushes.
static inline void put_text(FILE* to, const char* text, size_t size) {
    if (!isatty(fileno(to))) { fwrite(text, 1, size, to); return; }
    char* clean = clean_text(text, size, is_harmless, &size);
    fwrite(clean, 1, size, to);
    free(clean);
}

// ---------------------------------------------------------------------------------------------------------------------
// JSON values

static inline bool json_can_hold(uint32_t c) { return c != 0; }

// A JSON string of any bytes.
static inline json_t* json_text(const char* text, size_t size) {
    char* clean = clean_text(text, size, json_can_hold, &size);
    json_t* string = json_stringn(clean, size);
    free(clean);
    return string;
}

// A JSON number with as few digits as tell a float from its neighbours; null if it is not finite.
static inline json_t* json_float(double v) {
    char text[32];
    if (!isfinite(v)) { return json_null(); }
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtof(text, NULL) == (float)v) { break; }
    }
    return json_real(strtod(text, NULL));
}
