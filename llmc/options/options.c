#include "options.h"
#include "../base/file.h"
#include "../base/json.h"

// ---------------------------------------------------------------------------------------------------------------------
// names

int edit_distance(const char* a, const char* b) {
    enum { MAX_LETTERS = 32 };
    int d[MAX_LETTERS + 1][MAX_LETTERS + 1];
    const int n = (int)min_size(strlen(a), MAX_LETTERS), m = (int)min_size(strlen(b), MAX_LETTERS);
    for (int i = 0; i <= n; i++) {
        for (int j = 0; j <= m; j++) {
            if (i == 0 || j == 0) {
                d[i][j] = i + j;
                continue;
            }
            int best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            if (d[i - 1][j] + 1 < best) { best = d[i - 1][j] + 1; }
            if (d[i][j - 1] + 1 < best) { best = d[i][j - 1] + 1; }
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && d[i - 2][j - 2] + 1 < best) {
                best = d[i - 2][j - 2] + 1;
            }
            d[i][j] = best;
        }
    }
    return d[n][m];
}

bool is_near_name(const char* name, const char* other, int* distance) {
    const int length = (int)strlen(name);
    const bool is_abbreviation = length > 2 && !strncmp(other, name, (size_t)length);
    *distance = is_abbreviation ? 0 : edit_distance(name, other);
    return *distance <= max_int(1, min_int(length, 32) / 3);
}

const Option* option_find(const OptionTable* table, const char* name) {
    for (int i = 0; i < table->num_rows; i++) {
        const Option* o = &table->rows[i];
        if (o->name && !strcmp(o->name, name)) { return o; }
    }
    return NULL;
}

const Option* option_nearest(const OptionTable* table, int commands, const char* name) {
    const Option* best = NULL;
    int least = INT32_MAX, distance;
    for (int i = 0; i < table->num_rows; i++) {
        const Option* o = &table->rows[i];
        if (!o->name || !(o->commands & commands)) { continue; }
        if (!is_near_name(name, o->name, &distance) || distance >= least) { continue; }
        least = distance;
        best = o;
    }
    return best;
}

// Returns true if the first n characters of two names are the same. Hugging Face's programs take - for _ too.
static bool is_same_name(const char* a, const char* b, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if ((a[i] == '-' ? '_' : a[i]) != (b[i] == '-' ? '_' : b[i])) { return false; }
    }
    return true;
}

// Finds `name` in Option.also. Returns its note, "" if it has none; NULL if `name` is not there.
static char* note_of_name(const Option* o, const char* name) {
    const size_t n = strlen(name);
    for (const char* at = o->also; at; at = strchr(at, '|')) {
        at += *at == '|';
        const size_t length = strcspn(at, " |");
        if (length != n || !is_same_name(at, name, n)) { continue; }
        return format("%.*s", (int)strcspn(at + n, "|"), at + n);
    }
    return NULL;
}

char* option_unknown(const OptionTable* table, int commands, const char* name, const char* before, const char* after) {
    const char* bare = name + strspn(name, "-"); // a file of options has no dashes
    for (int i = 0; i < table->num_advice; i++) {
        const OptionAdvice* a = &table->advice[i];
        if (is_same_name(a->name, bare, strlen(bare) + 1)) {
            return format("no option %s%s%s: %s", before, name, after, a->instead);
        }
    }
    for (int i = 0; i < table->num_rows; i++) {
        const Option* o = &table->rows[i];
        char* note = note_of_name(o, bare);
        if (!note) { continue; }
        char* text = format("no option %s%s%s; here it is called %s%s%s%s", before, name, after, before, o->name,
                            after, note);
        free(note);
        return text;
    }
    const Option* near = option_nearest(table, commands, bare);
    if (!near) { return format("no option %s%s%s; --help lists the options", before, name, after); }
    return format("no option %s%s%s; did you mean %s%s%s?", before, name, after, before, near->name, after);
}

// ---------------------------------------------------------------------------------------------------------------------
// values

bool is_one_of(const char* value, const char* choices) {
    const size_t n = strcspn(value, "|");
    for (const char* c = value[n] ? NULL : choices; c; c = strchr(c, '|') ? strchr(c, '|') + 1 : NULL) {
        if (n > 0 && !strncmp(c, value, n) && (c[n] == 0 || c[n] == '|')) { return true; }
    }
    return false;
}

// Returns the choices as "choice|choice|..."; the caller frees the text.
static char* option_choices(const Option* o) {
    char* text = format("%s", o->choices[0]);
    for (int i = 1; o->choices[i]; i++) { append_format(&text, "|%s", o->choices[i]); }
    return text;
}

int choice_find(const char* const* names, const char* word) {
    for (int i = 0; word && names[i]; i++) {
        if (!strcmp(names[i], word)) { return i; }
    }
    return -1;
}

static bool parse_choice(const Option* o, const char* value, int* field, Error* err) {
    const int index = choice_find(o->choices, value);
    if (index >= 0) { *field = index; return true; }
    char* choices = option_choices(o);
    fail(err, "takes %s, not '%s'", choices, value);
    free(choices);
    return false;
}

static bool parse_text(const char* value, Text* field, Error* err) {
    const size_t size = strlen(value), invalid = utf8_invalid(value, size); // options are written to JSON files
    if (invalid < size) { return fail(err, "takes UTF-8 text; byte %zu is not", invalid); }
    *field = value;
    return true;
}

static bool out_of_range(const Option* o, const char* value, Error* err) {
    return fail(err, "takes a number from %.15g to %.15g, not %s (%s)", o->least, o->greatest, value, o->help);
}

static bool parse_int(const Option* o, const char* value, long long* field, Error* err) {
    char* end;
    if (o->word && !strcmp(value, o->word)) { *field = 0; return true; }
    errno = 0;
    const long long number = strtoll(value, &end, 10);
    const bool is_word = o->word && number == 0; // the word is stored and printed as 0
    if (end == value || *end) {
        return fail(err, "takes a whole number%s%s, not '%s' (%s)", o->word ? " or " : "", o->word ? o->word : "",
                    value, o->help);
    }
    const bool is_outside = (double)number < o->least || (double)number > o->greatest;
    if (errno || (is_outside && !is_word)) { return out_of_range(o, value, err); }
    *field = number;
    return true;
}

static bool parse_real(const Option* o, const char* value, double* field, Error* err) {
    char* end;
    if (o->word && !strcmp(value, o->word)) { *field = -1; return true; }
    const double number = strtod(value, &end);
    if (end == value || *end) {
        return fail(err, "takes a number%s%s, not '%s' (%s)", o->word ? " or " : "", o->word ? o->word : "", value,
                    o->help);
    }
    if (!(number >= o->least && number <= o->greatest)) { return out_of_range(o, value, err); } // NaN is outside
    *field = number;
    return true;
}

static bool parse_flag(const char* value, int* field, Error* err) {
    if (!is_one_of(value, "0|1")) { return fail(err, "takes 0 or 1, not '%s'", value); }
    *field = value[0] == '1';
    return true;
}

bool option_parse(const Option* o, const char* value, void* field, Error* err) {
    switch (o->type) {
    case TYPE_INT: return parse_int(o, value, field, err);
    case TYPE_REAL: return parse_real(o, value, field, err);
    case TYPE_FLAG: return parse_flag(value, field, err);
    case TYPE_CHOICE: return parse_choice(o, value, field, err);
    default: return parse_text(value, field, err);
    }
}

bool option_is_word(const Option* o, const void* field) {
    return o->type == TYPE_REAL && o->word && *(const double*)field == -1;
}

char* option_value(const Option* o, const void* options) {
    const void* field = (const char*)options + o->offset;
    char text[32];
    switch (o->type) {
    case TYPE_INT: return format("%lld", *(const long long*)field);
    case TYPE_REAL:
        return format("%s", option_is_word(o, field) ? o->word : double_text(text, *(const double*)field));
    case TYPE_FLAG: return format("%d", *(const int*)field);
    case TYPE_CHOICE: return format("%s", o->choices[*(const int*)field]);
    default: return format("%s", *(const Text*)field);
    }
}

void options_set_defaults(const OptionTable* table, void* options) {
    Error err;
    for (int i = 0; i < table->num_rows; i++) {
        const Option* o = &table->rows[i];
        if (o->name && !option_parse(o, o->fallback, (char*)options + o->offset, &err)) {
            fatal("default of --%s %s", o->name, err.text);
        }
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// texts of several parts

bool part_next(char** rest, char** name, char** value) {
    if (!*rest) { return false; }
    *name = *rest;
    *rest = strchr(*name, ',');
    if (*rest) { *(*rest)++ = 0; }
    *value = strchr(*name, ':');
    if (*value) { *(*value)++ = 0; }
    return true;
}

bool count_parse(const char* text, long long least, long long* number) {
    char* end;
    if (!text) { return false; }
    errno = 0;
    *number = strtoll(text, &end, 10);
    return end != text && !*end && !errno && *number >= least;
}

bool number_parse(const char* text, double least, double greatest, double* number) {
    char* end;
    if (!text) { return false; }
    *number = strtod(text, &end);
    return end != text && !*end && *number >= least && *number <= greatest; // NaN is outside
}

// ---------------------------------------------------------------------------------------------------------------------
// options that need others

// Returns true if an option's value is 0, none or empty.
static bool is_off(const char* value) { return is_one_of(value, "0|none") || !*value; }

// Returns the end of a sentence about a condition that is not met; NULL if it is met. `need` is cut in pieces. The
// caller frees it.
static char* unmet(const OptionTable* table, char* need, const void* options) {
    const bool negated = *need == '!';
    char *name = need + negated, *equals = strchr(name, '=');
    const bool differs = equals && equals[-1] == '!';
    if (equals) { equals[differs ? -1 : 0] = 0; }
    const Option* other = option_find(table, name);
    if (!other) { fatal("an option needs --%s, which does not exist", name); }
    char* value = option_value(other, options);
    const bool met = equals ? is_one_of(value, equals + 1) != differs : is_off(value) == negated;
    char* text = met ? NULL
                 : equals && !differs ? format("without --%s %s", name, equals + 1)
                 : equals || negated  ? format("with --%s %s", name, value)
                                      : format("without --%s", name);
    free(value);
    return text;
}

char* option_unmet_need(const OptionTable* table, const Option* o, const void* options, int command) {
    if (!o->needs || (o->needs_in && !(o->needs_in & command))) { return NULL; }
    char *needs = format("%s", o->needs), *text = NULL, *rest = needs;
    while (!text && rest) {
        char* need = rest;
        rest = strchr(need, ' ');
        if (rest) { *rest++ = 0; }
        text = unmet(table, need, options);
    }
    free(needs);
    return text;
}

bool option_check_need(const OptionTable* table, const Option* o, const void* options, const void* defaults,
                       int command, Error* err) {
    char *value = option_value(o, options), *usual = option_value(o, defaults);
    const bool is_asked_for = !is_off(value) && strcmp(value, usual) != 0;
    char* lacks = is_asked_for ? option_unmet_need(table, o, options, command) : NULL;
    const bool ok = !lacks || fail(err, "--%s %s has no effect %s: leave it out", o->name, value, lacks);
    free(lacks);
    free(value);
    free(usual);
    return ok;
}

// ---------------------------------------------------------------------------------------------------------------------
// the command line

// Ends the program because of a word in the place of an option. If it names a file, the shell has most likely expanded
// a pattern to several files.
static void ATTR_NORETURN refuse_word(const OptionReader* r, const char* word) {
    if (r->last && r->last->type == TYPE_TEXT && path_exists(word)) {
        usage_error("'%s' is not an option; if the shell expanded a pattern to several files, quote it: --%s 'PATTERN'",
                    word, r->last->name);
    }
    usage_error("'%s' is not an option; a command goes first, and options are --name value (see --help)", word);
}

// Returns true if option `o`, which was just read, is a flag without a value.
static bool is_flag_alone(const OptionReader* r, const Option* o) {
    if (o->type != TYPE_FLAG) { return false; }
    if (r->at == r->argc || !strncmp(r->argv[r->at], "--", 2)) { return true; }
    return r->words == WORDS_TAKEN && !is_one_of(r->argv[r->at], "0|1");
}

bool options_next(OptionReader* r, const Option** option, const char** value) {
    if (r->at == r->argc) { return false; }
    const char* word = r->argv[r->at++];
    *option = NULL;
    *value = word;
    if (strncmp(word, "--", 2)) {
        if (r->words == WORDS_REFUSED) { refuse_word(r, word); }
        return true;
    }
    const char* equals = strchr(word, '=');
    char* name = equals ? format("%.*s", (int)(equals - word - 2), word + 2) : format("%s", word + 2);
    const Option* o = option_find(r->table, name);
    if (!o) { usage_error("%s", option_unknown(r->table, r->command, name, "--", "")); }
    free(name);
    if (!(o->commands & r->command)) {
        usage_error("--%s is not an option of %s (see %s --help)", o->name, r->command_name, r->command_name);
    }
    *option = r->last = o;
    if (equals) { *value = equals + 1; return true; }
    if (is_flag_alone(r, o)) { *value = "1"; return true; }
    if (r->at == r->argc) { usage_error("--%s needs a value: %s", o->name, o->help); }
    *value = r->argv[r->at++];
    return true;
}

void print_wrapped(int column, const char* text) {
    enum { COLUMNS = 100 }; // chosen
    int at = column;
    for (const char* word = text; *word; word += strspn(word, " ")) {
        const int length = (int)strcspn(word, " ");
        if (at > column && at + 1 + length > COLUMNS) { printf("\n%*s", column, ""); at = column; }
        at += printf("%s%.*s", at > column ? " " : "", length, word);
        word += length;
    }
    printf("\n");
}

void options_print_help(const OptionTable* table, int command) {
    const Option* heading = NULL;
    for (int i = 0; i < table->num_rows; i++) {
        const Option* o = &table->rows[i];
        if (o->group) { heading = o; continue; }
        if (!(o->commands & command)) { continue; }
        if (heading) { printf("\n%s:\n", heading->group); heading = NULL; }
        const char* fallback = o->word && !strcmp(o->fallback, "0") ? o->word : o->fallback;
        char* choices = o->choices ? option_choices(o) : NULL;
        char* text = format("%s%s%s (%s)", choices ? choices : "", choices ? ": " : "", o->help,
                            *fallback ? fallback : "none");
        const int column = printf("  --%-18s ", o->name);
        print_wrapped(column, text);
        free(text);
        free(choices);
    }
}
