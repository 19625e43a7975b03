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
