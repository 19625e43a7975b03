#include "json.h"
#include "file.h"

// ---------------------------------------------------------------------------------------------------------------------
// numbers

const char* double_text(char* out, double v) {
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(out, 32, "%.*g", digits, v);
        if (strtod(out, NULL) == v) { break; }
    }
    return out;
}

// The same, for strtof.
static const char* float_text(char* out, float v) {
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(out, 32, "%.*g", digits, (double)v);
        if (strtof(out, NULL) == v) { break; }
    }
    return out;
}

const char* si_text(char* out, double v) {
    static const char* const suffix[] = {"", "k", "M", "B", "T"};
    int i = 0;
    for (; fabs(v) >= 999.5 && i < 4; i++) { v /= 1000.0; }
    double a = fabs(v);
    int digits = i == 0 && v == floor(v) ? 0 : a < 9.995 ? 2 : a < 99.95 ? 1 : 0;
    if (isfinite(v) && a < 1e6) { snprintf(out, 32, "%.*f%s", digits, v, suffix[i]); }
    else { snprintf(out, 32, "%.3g%s", v, isfinite(v) ? suffix[i] : ""); }
    return out;
}

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

const char* duration_text(char* out, double seconds) {
    if (!(seconds >= 0.0 && seconds < 1e10)) { snprintf(out, 32, "--:--"); return out; }
    long long s = llround(seconds);
    int hours = (int)(s / 3600 % 24), minutes = (int)(s / 60 % 60), rest = (int)(s % 60);
    if (s >= 86400) { snprintf(out, 32, "%lldd %02d:%02d:%02d", s / 86400, hours, minutes, rest); }
    else if (s >= 3600) { snprintf(out, 32, "%d:%02d:%02d", hours, minutes, rest); }
    else { snprintf(out, 32, "%d:%02d", minutes, rest); }
    return out;
}

double plain_nan(double v) { return isnan(v) ? fabs((double)NAN) : v; }

// ---------------------------------------------------------------------------------------------------------------------
// lines and characters

const char* next_line(const char** at, const char* end, size_t* size) {
    const char* line = *at;
    const char* newline = line < end ? memchr(line, '\n', (size_t)(end - line)) : NULL;
    if (!newline) { return NULL; }
    *size = (size_t)(newline - line);
    *at = newline + 1;
    return line;
}

char* clean_text(const char* text, size_t size, bool (*keep)(uint32_t), size_t* clean_size) {
    static const char replacement[] = "\xef\xbf\xbd";
    char* clean = alloc_or_die(3 * size + 1, 1, "a text");
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

void put_text(FILE* to, const char* text, size_t size) {
    if (!isatty(fileno(to))) { fwrite(text, 1, size, to); return; }
    char* clean = clean_text(text, size, is_printable, &size);
    fwrite(clean, 1, size, to);
    free(clean);
}

void print_result(const char* fmt, ...) {
    va_list args;
    va_start(args, fmt);
    char* text = format_list(fmt, args);
    va_end(args);
    put_text(stdout, text, strlen(text));
    free(text);
}

// ---------------------------------------------------------------------------------------------------------------------
// JSON values

static void* json_alloc(size_t bytes) { return realloc_or_die(NULL, bytes, "JSON"); }

void json_begin(void) {
    json_set_alloc_funcs(json_alloc, free);
    json_object_seed(1); // else the library seeds itself at its first use, which may be in any thread
}

json_t* json_read(const char* path, size_t most, size_t flags, Error* err) {
    size_t size;
    json_error_t e;
    char* text = read_file_up_to(path, most, &size, err);
    json_t* value = text ? json_loadb(text, size, flags, &e) : NULL;
    if (text && !value) { fail(err, "%s:%d: %s", path, e.line, e.text); }
    free(text);
    return value;
}

json_t* json_read_object(const char* path, size_t most, Error* err) {
    json_t* value = json_read(path, most, JSON_REJECT_DUPLICATES, err);
    if (!value || json_is_object(value)) { return value; }
    json_decref(value);
    fail(err, "%s: not a JSON object", path);
    return NULL;
}

json_t* json_read_in(const char* folder, const char* file, Error* err) {
    char* path = format("%s/%s", folder, file);
    json_t* object = json_read_object(path, JSON_MOST, err);
    free(path);
    return object;
}

static bool json_can_hold(uint32_t c) { return c != 0; }

json_t* json_text(const char* text, size_t size) {
    char* clean = clean_text(text, size, json_can_hold, &size);
    json_t* string = json_stringn(clean, size);
    free(clean);
    return string;
}

char* json_value_text(const json_t* value) {
    char number[32];
    if (json_is_real(value)) { return format("%s", double_text(number, json_real_value(value))); }
    return json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
}

json_t* json_hex(uint64_t hash) {
    char hex[17];
    snprintf(hex, sizeof hex, "%016llx", (unsigned long long)hash);
    return json_string(hex);
}

bool json_get_hex(const json_t* object, const char* key, uint64_t* hash) {
    const char* hex = json_string_value(json_object_get(object, key));
    if (hex) { *hash = strtoull(hex, NULL, 16); }
    return hex != NULL;
}

json_t* json_float(double v) {
    char text[32];
    return isfinite(v) ? json_real(strtod(float_text(text, (float)v), NULL)) : json_null();
}

bool json_save(const json_t* value, const char* path, Error* err) {
    char* text = json_dumps(value, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
    if (!text) { return fail(err, "%s: cannot make its JSON: text that is not UTF-8", path); }
    char* line = format("%s\n", text);
    const bool ok = write_file_atomically(path, line, strlen(line), err);
    free(line);
    free(text);
    return ok;
}

bool json_save_in(const json_t* value, const char* folder, const char* file, Error* err) {
    char* path = format("%s/%s", folder, file);
    const bool ok = json_save(value, path, err);
    free(path);
    return ok;
}
