#include "skip_windows.h"

static bool parse_window(const char** at, uint64_t* window) {
    char* end;
    if (**at < '0' || **at > '9') { return false; }
    errno = 0;
    *window = strtoull(*at, &end, 10);
    *at = end;
    return errno == 0 && *window < INT64_MAX; // a number of state.json
}

bool skip_windows_parse(SkipWindows* s, const char* text, Error* err) {
    *s = (SkipWindows){NULL, 0};
    for (const char* at = text; *at;) {
        uint64_t first = 0;
        bool ok = parse_window(&at, &first);
        uint64_t last = first;
        if (ok && *at == '-') { at++; ok = parse_window(&at, &last); }
        const bool goes_on = *at == ',' && at[1];
        if (!ok || first > last || (*at && !goes_on)) {
            skip_windows_free(s);
            return fail(err, "'%s': give windows as FIRST-LAST,..., such as 960-1119", text);
        }
        skip_windows_add(s, first, last + 1);
        at += goes_on;
    }
    return true;
}

void skip_windows_free(SkipWindows* s) {
    free(s->range);
    *s = (SkipWindows){NULL, 0};
}

void skip_windows_add(SkipWindows* s, uint64_t first, uint64_t end) {
    size_t before = 0, after; // ranges before the new one, and before those behind it
    while (before < s->count && s->range[before].end < first) { before++; }
    for (after = before; after < s->count && s->range[after].first <= end; after++) { // it takes these up
        first = min_size(first, s->range[after].first);
        end = max_size(end, s->range[after].end);
    }
    s->range = realloc_or_die(s->range, (s->count + 1) * sizeof *s->range, "windows that are left out");
    memmove(s->range + before + 1, s->range + after, (s->count - after) * sizeof *s->range);
    s->range[before] = (WindowRange){first, end};
    s->count += 1 + before - after;
}

char* skip_windows_text(const SkipWindows* s) {
    char* text = format("%s", "");
    for (size_t i = 0; i < s->count; i++) {
        const unsigned long long first = s->range[i].first, last = s->range[i].end - 1;
        append_format(&text, "%s%llu", i ? "," : "", first);
        if (last > first) { append_format(&text, "-%llu", last); }
    }
    return text;
}

uint64_t skip_windows_next(const SkipWindows* s, uint64_t window, uint64_t n) {
    uint64_t at = window + n; // each range from `window` to here moves it on by its length
    for (size_t i = 0; s && i < s->count && s->range[i].first <= at; i++) {
        const WindowRange* r = &s->range[i];
        if (r->end > window) { at += r->end - max_size(r->first, window); }
    }
    return at;
}

// Returns true if all windows first .. end-1 are left out. One range has them: no two touch.
static bool skips_all(const SkipWindows* s, uint64_t first, uint64_t end) {
    for (size_t i = 0; i < s->count; i++) {
        if (s->range[i].first <= first && end <= s->range[i].end) { return true; }
    }
    return false;
}

bool skip_windows_were_trained(const SkipWindows* s, uint64_t window, const SkipWindows* skipped) {
    for (size_t i = 0; i < s->count && s->range[i].first < window; i++) {
        if (!skips_all(skipped, s->range[i].first, min_size(s->range[i].end, window))) { return true; }
    }
    return false;
}
