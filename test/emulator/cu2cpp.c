// Turns CUDA into C++: reads a translation unit from `g++ -E` and writes one that g++ compiles. Preprocessed text has
// no macros and no comments. Every line stays where it is, so that line markers lead debuggers, sanitizers, warnings
// and gcov to the original files. System headers are copied unchanged.
//
//   usage: cu2cpp < in.ii > out.ii
//
//   k<T><<<g, b, s, st>>>(x, n)    emu::Launch("k<T>", g, b, s, st)([=](auto... emu_a) { k<T>(emu_a...); }, x, n)
//   __global__ void k(...) {       void k(...) { static emu::Kernel emu_kernel = {...}; if (emu::probe(emu_kernel)) ...
//   __shared__ T a[N], c[N][2];    static T a[N], c[N][2]; emu::shared(a); emu::shared(c);
//   extern __shared__ T s[];       T* s = (T*)emu::dyn();
//   __noinline__ void f();         __attribute__((noinline)) void f();
//   asm volatile("t" : "=f"(d) : "r"(a));
//                                  do { static emu::Ptx emu_p("t"); emu::Op emu_o[] = {emu::out("=f", d),
//                                  emu::in("r", a), {}}; emu_p.run(emu_o); } while (0);
#include <ctype.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char* in;          // the whole input, terminated by 0
static size_t in_size;
static char* out;
static size_t out_size, out_room;

// ---------------------------------------------------------------------------------------------------------------------
// errors, output

// Ends the program with the original file and line of input position `at`.
static void __attribute__((noreturn, format(printf, 2, 3))) die(size_t at, const char* fmt, ...) {
    char file[4096] = "<stdin>";
    long line = 1;
    for (size_t i = 0; i < at && i < in_size; i++) {
        if ((i == 0 || in[i - 1] == '\n') && sscanf(in + i, "# %ld \"%4095[^\"]\"", &line, file) == 2) { line--; }
        line += in[i] == '\n';
    }
    va_list args;
    va_start(args, fmt);
    fprintf(stderr, "%s:%ld: cu2cpp: ", file, line);
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    exit(1);
}

static void* grow(void* p, size_t bytes) {
    p = realloc(p, bytes);
    if (!p) {
        fprintf(stderr, "cu2cpp: out of memory: %zu bytes\n", bytes);
        exit(1);
    }
    return p;
}

static void put(const char* text, size_t n) {
    if (out_size + n + 1 > out_room) {
        out_room = 2 * (out_size + n + 1);
        out = (char*)grow(out, out_room);
    }
    memcpy(out + out_size, text, n);
    out_size += n;
    out[out_size] = 0;
}

static void __attribute__((format(printf, 1, 2))) print(const char* fmt, ...) {
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    char* text = (char*)grow(NULL, (size_t)n + 1);
    vsnprintf(text, (size_t)n + 1, fmt, again);
    va_end(again);
    put(text, (size_t)n);
    free(text);
}

// Copies input [begin, end) unchanged.
static void copy(size_t begin, size_t end) { put(in + begin, end - begin); }

static size_t count_lines(const char* text, size_t n) {
    size_t lines = 0;
    for (size_t i = 0; i < n; i++) { lines += text[i] == '\n'; }
    return lines;
}

// Appends newlines until the output from `written` on, which replaces input [begin, end), has as many lines.
static void keep_lines(size_t begin, size_t end, size_t written) {
    size_t due = count_lines(in + begin, end - begin), done = count_lines(out + written, out_size - written);
    for (; done < due; done++) { put("\n", 1); }
}

// ---------------------------------------------------------------------------------------------------------------------
// scanning

static bool is_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

static bool starts_word(size_t i) { return is_word(in[i]) && (i == 0 || !is_word(in[i - 1])); }

static size_t word_end(size_t i) {
    while (is_word(in[i])) { i++; }
    return i;
}

static bool word_is(size_t begin, const char* word) {
    size_t n = strlen(word);
    return word_end(begin) - begin == n && strncmp(in + begin, word, n) == 0;
}

static size_t skip_space(size_t i) {
    while (isspace((unsigned char)in[i])) { i++; }
    return i;
}

// A quote begins a literal, unless it separates digits (1'000).
static bool is_literal(size_t i) {
    return in[i] == '"' || (in[i] == '\'' && (i == 0 || !isxdigit((unsigned char)in[i - 1])));
}

// Returns the position behind the literal whose quote is at `begin`; R"delimiter( ... )delimiter" has no escapes.
static size_t literal_end(size_t begin) {
    if (in[begin] == '"' && begin > 0 && in[begin - 1] == 'R') {
        size_t open = begin + 1 + strcspn(in + begin + 1, "(");
        char close[64];
        snprintf(close, sizeof close, ")%.*s\"", (int)(open - begin - 1), in + begin + 1);
        char* end = strstr(in + open, close);
        if (!end) { die(begin, "a raw string has no end"); }
        return (size_t)(end - in) + strlen(close);
    }
    size_t i = begin + 1;
    while (i < in_size && in[i] != in[begin]) { i += in[i] == '\\' ? 2 : 1; }
    if (i >= in_size) { die(begin, "a string has no end"); }
    return i + 1;
}

// Returns the first position from `begin` on of a character in `stops`, outside of literals and of (), [], {}.
static size_t find(size_t begin, const char* stops) {
    int depth = 0;
    for (size_t i = begin; i < in_size; i++) {
        if (is_literal(i)) {
            i = literal_end(i) - 1;
            continue;
        }
        if (depth == 0 && strchr(stops, in[i])) { return i; }
        if (strchr("([{", in[i])) { depth++; }
        if (strchr(")]}", in[i]) && --depth < 0) { break; }
    }
    die(begin, "expected one of '%s'", stops);
}

// Returns the position of the bracket that closes the one at `open`.
static size_t closing(size_t open) {
    const char close[2] = {in[open] == '(' ? ')' : in[open] == '[' ? ']' : '}', 0};
    return find(open + 1, close);
}

// ---------------------------------------------------------------------------------------------------------------------
// launches

// Returns the position in the output of the bracket that opens the one before `end`. Inside of (), > and < are
// operators.
static size_t opening(size_t end, size_t at) {
    const bool angle = out[end - 1] == '>';
    int angles = 0, brackets = 0;
    for (size_t b = end; b-- > 0;) {
        brackets += (out[b] == ')') - (out[b] == '(');
        angles += angle && brackets == 0 ? (out[b] == '>') - (out[b] == '<') : 0;
        if (angles == 0 && brackets == 0) { return b; }
    }
    die(at, "cannot find the name of the kernel before <<<");
}

static size_t back_over_space(size_t end) {
    while (end > 0 && isspace((unsigned char)out[end - 1])) { end--; }
    return end;
}

// Returns the position in the output of the kernel with which it ends: words, ::, and template arguments in <>; or
// anything in ().
static size_t kernel_begin(size_t at) {
    size_t b = back_over_space(out_size);
    if (b > 0 && out[b - 1] == ')') { return opening(b, at); }
    if (b > 0 && out[b - 1] == '>') { b = back_over_space(opening(b, at)); }
    size_t end = b;
    while (b > 0 && (is_word(out[b - 1]) || out[b - 1] == ':')) { b--; }
    if (b == end) { die(at, "cannot find the name of the kernel before <<<"); }
    return b;
}

static void put_string_literal(const char* text) {
    put("\"", 1);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') { put("\\", 1); }
        put(*text == '\n' ? " " : text, 1);
    }
    put("\"", 1);
}

// Rewrites the launch whose <<< is at `at`. Returns the position behind it, as the further functions do.
static size_t rewrite_launch(size_t at) {
    size_t begin = kernel_begin(at);
    char* kernel = strdup(out + begin);
    if (!kernel) { die(at, "out of memory"); }
    out_size = begin;
    size_t end = find(at + 3, ">");
    while (strncmp(in + end, ">>>", 3) != 0) { end = find(end + 1, ">"); }
    size_t open = skip_space(end + 3);
    if (in[open] != '(') { die(at, "the arguments of the launch are missing"); }
    size_t close = closing(open);
    print("emu::Launch(");
    put_string_literal(kernel);
    print(", ");
    copy(at + 3, end);
    print(")([=](auto... emu_a) { %s(emu_a...); }%s", kernel, skip_space(open + 1) < close ? ", " : "");
    copy(open + 1, close + 1);
    keep_lines(at, close + 1, begin + strlen(kernel));
    free(kernel);
    return close + 1;
}

// ---------------------------------------------------------------------------------------------------------------------
// kernels

// Rewrites the kernel whose __global__ is at `at`: leaves out the launch bounds, and begins the body with its Kernel.
static size_t rewrite_kernel(size_t at) {
    size_t i = word_end(at), bounds = 0, bounds_end = 0;
    while (i < in_size && in[i] != '{' && in[i] != ';') {
        if (starts_word(i) && word_is(i, "__launch_bounds__")) {
            bounds = skip_space(word_end(i)) + 1;
            bounds_end = closing(bounds - 1);
            i = bounds_end + 1;
        } else if (in[i] == '(') {
            size_t end = closing(i) + 1;
            copy(i, end);
            i = end;
        } else {
            copy(i, i + 1);
            i++;
        }
    }
    if (i == in_size) { die(at, "__global__ without a function"); }
    if (in[i] == ';') { return i; }
    print("{ static emu::Kernel emu_kernel = {__PRETTY_FUNCTION__, emu::launch_bounds(");
    if (bounds) { copy(bounds, bounds_end); }
    print(")}; if (emu::probe(emu_kernel)) { return; }");
    return i + 1;
}

// ---------------------------------------------------------------------------------------------------------------------
// shared memory

typedef struct {
    size_t begin, end; // of the name
} Declarator;

// Finds the names that the declaration [begin, end) declares, whose semicolon is at `end`. Returns their number.
static int find_declarators(size_t begin, size_t end, Declarator* names, int room) {
    int count = 0, angles = 0;
    Declarator last = {0, 0}; // the last word outside of brackets
    bool named = false;       // the current declarator's name is behind us
    for (size_t i = begin; i <= end; i++) {
        bool ends_name = angles == 0 && (in[i] == '[' || in[i] == ',' || in[i] == ';');
        if (ends_name && !named) {
            if (last.end == 0) { die(begin, "a __shared__ declaration without a name"); }
            if (count == room) { die(begin, "more than %d names in one __shared__ declaration", room); }
            names[count++] = last;
            named = true;
        }
        if (angles == 0 && in[i] == '=') { die(begin, "a __shared__ variable cannot be initialized"); }
        if (angles == 0 && in[i] == ',') { named = false; }
        if (in[i] == '<') { angles++; }
        if (in[i] == '>') { angles--; }
        if (in[i] == '(' || in[i] == '[' || in[i] == '{') {
            i = closing(i);
        } else if (angles == 0 && starts_word(i)) {
            last = (Declarator){i, word_end(i)};
            i = last.end - 1;
        }
    }
    return count;
}

// Copies input [begin, end) without attributes of alignment: dynamic shared memory is aligned to 1024 bytes.
static void copy_type(size_t begin, size_t end) {
    for (size_t i = begin; i < end;) {
        if (starts_word(i) && (word_is(i, "__attribute__") || word_is(i, "alignas"))) {
            i = closing(skip_space(word_end(i))) + 1;
        } else {
            copy(i, i + 1);
            i++;
        }
    }
}

// Removes the word from the end of the output. Returns false if it is not there.
static bool take_back(const char* word) {
    size_t b = out_size, n = strlen(word);
    while (b > 0 && isspace((unsigned char)out[b - 1])) { b--; }
    if (b < n || strncmp(out + b - n, word, n) != 0 || (b > n && is_word(out[b - n - 1]))) { return false; }
    memmove(out + b - n, out + b, out_size - b);
    out_size -= n;
    return true;
}

// Rewrites the declaration whose __shared__ is at `at`.
static size_t rewrite_shared(size_t at) {
    size_t begin = word_end(at), end = find(begin, ";"), written = out_size;
    bool is_extern = take_back("extern");
    if (!is_extern) { take_back("static"); }
    Declarator names[64];
    int count = find_declarators(begin, end, names, 64);
    if (is_extern) {
        size_t open = skip_space(names[0].end);
        if (count != 1 || in[open] != '[') { die(at, "`extern __shared__` must declare one array"); }
        size_t rows = skip_space(closing(open) + 1); // the further dimensions: T s[][32] is a T (*s)[32]
        const char *left = in[rows] == '[' ? "(*" : "*", *right = in[rows] == '[' ? ")" : "";
        copy_type(begin, names[0].begin);
        print("%s ", left);
        copy(names[0].begin, names[0].end);
        print("%s", right);
        copy(rows, end);
        print(" = (");
        copy_type(begin, names[0].begin);
        print("%s%s", left, right);
        copy(rows, end);
        print(")emu::dyn();");
    } else {
        print("static");
        copy(begin, end + 1);
        for (int i = 0; i < count; i++) {
            print(" emu::shared(%.*s);", (int)(names[i].end - names[i].begin), in + names[i].begin);
        }
    }
    keep_lines(at, end + 1, written);
    return end + 1;
}

// ---------------------------------------------------------------------------------------------------------------------
// inline PTX

// Writes the operands between two colons: "r"(x), "r"(y) -> emu::in("r", x), emu::in("r", y),
static void put_operands(size_t begin, size_t end, const char* function) {
    size_t i = skip_space(begin);
    while (i < end) {
        if (in[i] == '[') { die(i, "named operands of asm are not supported: use %%0, %%1, ..."); }
        if (in[i] != '"') { die(i, "expected an operand of asm"); }
        size_t constraint_end = literal_end(i), open = skip_space(constraint_end);
        if (in[open] != '(') { die(i, "expected an operand of asm"); }
        size_t close = closing(open);
        print("emu::%s(", function);
        copy(i, constraint_end);
        print(", ");
        copy(open + 1, close);
        print("), ");
        i = skip_space(close + 1);
        if (i < end && in[i] == ',') { i = skip_space(i + 1); }
    }
}

// Rewrites the statement whose asm is at `at`.
static size_t rewrite_asm(size_t at) {
    size_t written = out_size, open = skip_space(word_end(at));
    while (is_word(in[open])) { // volatile
        if (word_is(open, "goto")) { die(at, "asm goto is no PTX"); }
        open = skip_space(word_end(open));
    }
    if (in[open] != '(') { die(at, "expected ( behind asm"); }
    size_t close = closing(open), section[5], sections = 1; // text : results : arguments : clobbers
    section[0] = open;
    for (size_t i = open; sections < 4;) {
        i = find(i + 1, ":)");
        section[sections++] = i;
        if (i == close) { break; }
    }
    print("do { static emu::Ptx emu_p(");
    copy(open + 1, section[1]);
    print("); emu::Op emu_o[] = {");
    if (sections > 2) { put_operands(section[1] + 1, section[2], "out"); }
    if (sections > 3) { put_operands(section[2] + 1, section[3], "in"); }
    print("{}}; emu_p.run(emu_o); } while (0)");
    keep_lines(at, close + 1, written);
    return close + 1;
}

// ---------------------------------------------------------------------------------------------------------------------

static void read_input(void) {
    size_t room = 1 << 20, n;
    in = (char*)grow(NULL, room);
    while ((n = fread(in + in_size, 1, room - in_size - 1, stdin)) > 0) {
        in_size += n;
        if (room - in_size < 2) { in = (char*)grow(in, room *= 2); }
    }
    in[in_size] = 0;
}

// Copies a line marker (# 12 "file.h" 1 3), in which flag 3 announces a system header. Leaves out `#pragma unroll`,
// which g++ does not know.
static size_t copy_directive(size_t at, bool* system_header) {
    size_t end = at + strcspn(in + at, "\n"), i = end;
    if (strncmp(in + at, "#pragma unroll", strlen("#pragma unroll")) == 0) { return end; }
    while (i > at && in[i] != '"') { i--; }
    if (i > at) { *system_header = memchr(in + i, '3', end - i) != NULL; }
    copy(at, end);
    return end;
}

static size_t rewrite_word(size_t at) {
    if (word_is(at, "__global__")) { return rewrite_kernel(at); }
    if (word_is(at, "__shared__")) { return rewrite_shared(at); }
    if (word_is(at, "asm") || word_is(at, "__asm__") || word_is(at, "__asm")) { return rewrite_asm(at); }
    size_t end = word_end(at);
    if (word_is(at, "__noinline__") && (at == 0 || in[at - 1] != '(')) { // not in __attribute__((__noinline__))
        print("__attribute__((noinline))");
    } else {
        copy(at, end);
    }
    return end;
}

int main(void) {
    read_input();
    bool system_header = false;
    for (size_t i = 0; i < in_size;) {
        if (in[i] == '#' && (i == 0 || in[i - 1] == '\n')) {
            i = copy_directive(i, &system_header);
        } else if (is_literal(i)) {
            size_t end = literal_end(i);
            copy(i, end);
            i = end;
        } else if (!system_header && strncmp(in + i, "<<<", 3) == 0) {
            i = rewrite_launch(i);
        } else if (!system_header && starts_word(i)) {
            i = rewrite_word(i);
        } else {
            copy(i, i + 1);
            i++;
        }
    }
    if (fwrite(out, 1, out_size, stdout) != out_size || fflush(stdout) != 0) {
        perror("cu2cpp: cannot write");
        return 1;
    }
    return 0;
}
