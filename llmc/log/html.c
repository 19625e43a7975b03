#include "html.h"
#include "../base/json.h"

void page_text(FILE* page, const char* before, const char* text, const char* after) {
    fputs(before, page);
    page_escape(page, text);
    fputs(after, page);
}

void page_fact(FILE* page, const char* before, char* text, const char* after) {
    page_text(page, before, text, after);
    free(text);
}

// Returns true for characters that both HTML and XML can hold.
static bool page_can_hold(uint32_t c) {
    return c == '\n' || c == '\t' || (c >= 32 && c != 127 && c != 0xfffe && c != 0xffff);
}

void page_escape(FILE* page, const char* text) {
    char* clean = clean_text(text, strlen(text), page_can_hold, NULL);
    for (const char* p = clean; *p;) {
        size_t plain = strcspn(p, "<>&\"'");
        fprintf(page, "%.*s", (int)plain, p);
        p += plain;
        if (*p) { fprintf(page, "&#%d;", *p++); }
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
