// Reads the options of a program: `--name value`, `--name=value`, and for a flag also `--name` alone.
//
// A program lists its options once, as a macro, with a row for each:
//
//     #define MY_OPTIONS(GROUP, INT, REAL, FLAG, TEXT, CHOICE)
//         GROUP("title of a group in --help")
//         INT(name, default, least, greatest, word, commands, help)
//         REAL(name, default, least, greatest, word, commands, help)
//         FLAG(name, default, commands, help)
//         TEXT(name, default, commands, help)
//         CHOICE(name, default, (choice, choice), commands, help)
//
// From this list follow the fields of a struct (OPTION_FIELDS), the rows of a table (OPTION_ROWS), the parser, --help
// and the texts of all errors. `word` may be given in place of a number. It is stored as 0 or, in a REAL, whose 0 is a
// value, as -1. A CHOICE(size, small, (small, large), ...) makes an `enum size { size_small, size_large }` and a field
// of this type. `commands` is a bit mask of the program's commands that know the option. config.h has the trainer's
// list, prepare/prepare_options.h the list of ./prepare.
//
// Behind `help` a row may name what else is known of its option, as fields of Option:
//
//         INT(top_k, 50, 0, 1e9, NULL, GENERATE, "help", .also = "k", .needs = "temperature", .scope = SCOPE_START)
#pragma once
#include "../base/base.h"

typedef enum { TYPE_INT, TYPE_REAL, TYPE_FLAG, TYPE_TEXT, TYPE_CHOICE } OptionType;

// What an option belongs to, which decides what a resumed run does with it.
typedef enum {
    SCOPE_RUN,      // the run: a resume takes the checkpoint's value, and says when the command line changes it
    SCOPE_DATA,     // the training data: as SCOPE_RUN, but what it names is compared, not its value
    SCOPE_IDENTITY, // the run, which with another value would be another run: a resume refuses a change
    SCOPE_START,    // one start of the program, such as --threads: a resume never takes it from the checkpoint
} OptionScope;

typedef const char* Text;

typedef struct {
    const char *group, *name; // a row with a group is a heading and nothing else
    OptionType type;          // the field: long long, double, int (0 or 1), Text, an enum
    size_t offset;            // of the field in the struct of options
    double least, greatest;   // limits of a number
    const char* word;
    const char* const* choices; // the words of a TYPE_CHOICE, and NULL
    const char* fallback;     // the default, as it would be given
    int commands;
    const char* help;
    OptionScope scope;
    const char* needs;        // what gives the option an effect: conditions, as option_unmet_need() reads them
    int needs_in;             // the commands in which it needs that; 0: in all
    const char* also;         // names that other programs have for it: "name|name (how its value differs)|name"
} Option;

// A name that programs of before had, or a misunderstanding, and a sentence that says what to do instead.
typedef struct {
    const char *name, *instead;
} OptionAdvice;

typedef struct {
    const Option* rows;
    int num_rows;
    const OptionAdvice* advice;
    int num_advice;
} OptionTable;

// ---------------------------------------------------------------------------------------------------------------------
// from a list to a struct and a table

#define OPTION_NONE(...)
#define OPTION_INT_FIELD(name, ...) long long name;
#define OPTION_REAL_FIELD(name, ...) double name;
#define OPTION_FLAG_FIELD(name, ...) int name;
#define OPTION_TEXT_FIELD(name, ...) Text name;
#define OPTION_CHOICE_FIELD(name, ...) enum name name;
#define OPTION_FIELDS(LIST) \
    LIST(OPTION_NONE, OPTION_INT_FIELD, OPTION_REAL_FIELD, OPTION_FLAG_FIELD, OPTION_TEXT_FIELD, OPTION_CHOICE_FIELD)

// The enums of the choices, which must be declared before the fields. OPTION_EACH(f, x, (a, b)) is f(x, a) f(x, b).
#define OPTION_EACH_1(f, x, a) f(x, a)
#define OPTION_EACH_2(f, x, a, ...) f(x, a) OPTION_EACH_1(f, x, __VA_ARGS__)
#define OPTION_EACH_3(f, x, a, ...) f(x, a) OPTION_EACH_2(f, x, __VA_ARGS__)
#define OPTION_EACH_4(f, x, a, ...) f(x, a) OPTION_EACH_3(f, x, __VA_ARGS__)
#define OPTION_EACH_5(f, x, a, ...) f(x, a) OPTION_EACH_4(f, x, __VA_ARGS__)
#define OPTION_EACH_6(f, x, a, ...) f(x, a) OPTION_EACH_5(f, x, __VA_ARGS__)
#define OPTION_EACH_7(f, x, a, ...) f(x, a) OPTION_EACH_6(f, x, __VA_ARGS__)
#define OPTION_EACH_NTH(_1, _2, _3, _4, _5, _6, _7, name, ...) name
#define OPTION_EACH_OF(f, x, ...)                                                                                 \
    OPTION_EACH_NTH(__VA_ARGS__, OPTION_EACH_7, OPTION_EACH_6, OPTION_EACH_5, OPTION_EACH_4, OPTION_EACH_3,       \
                    OPTION_EACH_2, OPTION_EACH_1, )(f, x, __VA_ARGS__)
#define OPTION_UNWRAP(...) __VA_ARGS__
#define OPTION_EACH(f, x, list) OPTION_EACH_OF(f, x, OPTION_UNWRAP list)
#define OPTION_ENUMERATOR(id, value) id##_##value,
#define OPTION_CHOICE_ENUM(id, def, list, ...) enum id { OPTION_EACH(OPTION_ENUMERATOR, id, list) };
#define OPTION_ENUMS(LIST) \
    LIST(OPTION_NONE, OPTION_NONE, OPTION_NONE, OPTION_NONE, OPTION_NONE, OPTION_CHOICE_ENUM)

// The words of the choices, in the order of the enums: CHOICE(size, ...) has size_names[]. NULL ends each list.
#define OPTION_WORD(ignored, value) #value,
#define OPTION_CHOICE_NAMES(id, def, list, ...) \
    const char* const id##_names[] = {OPTION_EACH(OPTION_WORD, , list) NULL};
#define OPTION_NAMES(LIST) \
    LIST(OPTION_NONE, OPTION_NONE, OPTION_NONE, OPTION_NONE, OPTION_NONE, OPTION_CHOICE_NAMES)
#define OPTION_CHOICE_EXTERN(id, ...) extern const char* const id##_names[];
#define OPTION_EXTERN_NAMES(LIST) \
    LIST(OPTION_NONE, OPTION_NONE, OPTION_NONE, OPTION_NONE, OPTION_NONE, OPTION_CHOICE_EXTERN)

// The number of rows of a list: options and headings.
#define OPTION_COUNT_1(...) +1
#define OPTION_NUM_ROWS(LIST) \
    (0 LIST(OPTION_COUNT_1, OPTION_COUNT_1, OPTION_COUNT_1, OPTION_COUNT_1, OPTION_COUNT_1, OPTION_COUNT_1))

// The initializer of the table. OPTION_STRUCT must be defined as the struct that has the fields.
#define OPTION_GROUP_ROW(title) {.group = title},
#define OPTION_INT_ROW(id, def, low, high, instead, who, ...)                                                      \
    {.name = #id, .type = TYPE_INT, .offset = offsetof(OPTION_STRUCT, id), .least = low, .greatest = high,         \
     .word = instead, .fallback = #def, .commands = who, .help = __VA_ARGS__},
#define OPTION_REAL_ROW(id, def, low, high, instead, who, ...)                                                     \
    {.name = #id, .type = TYPE_REAL, .offset = offsetof(OPTION_STRUCT, id), .least = low, .greatest = high,        \
     .word = instead, .fallback = #def, .commands = who, .help = __VA_ARGS__},
#define OPTION_FLAG_ROW(id, def, who, ...)                                                                         \
    {.name = #id, .type = TYPE_FLAG, .offset = offsetof(OPTION_STRUCT, id), .greatest = 1, .fallback = #def,       \
     .commands = who, .help = __VA_ARGS__},
#define OPTION_TEXT_ROW(id, def, who, ...)                                                                         \
    {.name = #id, .type = TYPE_TEXT, .offset = offsetof(OPTION_STRUCT, id), .fallback = def, .commands = who,      \
     .help = __VA_ARGS__},
#define OPTION_CHOICE_ROW(id, def, list, who, ...)                                                                 \
    {.name = #id, .type = TYPE_CHOICE, .offset = offsetof(OPTION_STRUCT, id), .choices = id##_names,               \
     .fallback = #def, .commands = who, .help = __VA_ARGS__},
#define OPTION_ROWS(LIST) \
    LIST(OPTION_GROUP_ROW, OPTION_INT_ROW, OPTION_REAL_ROW, OPTION_FLAG_ROW, OPTION_TEXT_ROW, OPTION_CHOICE_ROW)

// ---------------------------------------------------------------------------------------------------------------------
// names

// Returns the number of edits (insert, delete, replace, swap of neighbours: Damerau 1964) from a to b, within their
// first 32 letters.
int edit_distance(const char* a, const char* b);

// Returns true if a misspelt name may have meant `other`: it is the beginning of `other`, of three letters or more, or
// at most a third of its letters (one of a short name) are edited. Sets *distance, which is smallest for the nearest
// name.
bool is_near_name(const char* name, const char* other, int* distance);

// Returns the option of this name; NULL if there is none.
const Option* option_find(const OptionTable* table, const char* name);

// Returns the option of these commands whose name is nearest to one that does not exist; NULL if none is near.
const Option* option_nearest(const OptionTable* table, int commands, const char* name);

// Returns the text of the error about a name that no option has; the caller frees it. It says what the option is called
// here, or which one of these commands may have been meant, or else points to --help. Names stand between `before` and
// `after`: "--" and "", or quotation marks.
char* option_unknown(const OptionTable* table, int commands, const char* name, const char* before, const char* after);

// ---------------------------------------------------------------------------------------------------------------------
// values

// Returns true if `value` is one of "choice|choice|...".
bool is_one_of(const char* value, const char* choices);

// Returns the index of a word among `names`, a list that NULL ends; -1 if it is not there, or NULL itself.
int choice_find(const char* const* names, const char* word);

// Reads a value into `field`, which has the option's type. A TYPE_TEXT is stored as the pointer `value`. On failure the
// error does not name the option: the caller puts its name before it.
bool option_parse(const Option* o, const char* value, void* field, Error* err);

// Returns true for an option of TYPE_REAL whose field holds its word.
bool option_is_word(const Option* o, const void* field);

// Returns the value of an option in its struct, as text that option_parse reads back (of a number, the shortest such
// text). The caller frees it.
char* option_value(const Option* o, const void* options);

// Sets every option of the struct to its default.
void options_set_defaults(const OptionTable* table, void* options);

// ---------------------------------------------------------------------------------------------------------------------
// texts of several parts: "3,best,every:1000"

// Takes the next part of a text: its `name`, and the `value` behind a colon, NULL if there is none. Cuts the text up,
// and moves *rest behind the part. Returns false at the end.
bool part_next(char** rest, char** name, char** value);

// Reads a number that fills the text. Returns false, also for NULL, if it is none or lies outside of the limits.
bool count_parse(const char* text, long long least, long long* number);
bool number_parse(const char* text, double least, double greatest, double* number);

// ---------------------------------------------------------------------------------------------------------------------
// options that need others

// Returns the first condition of Option.needs that the other options do not meet, as it ends a sentence that begins
// with "--name has no effect": "without --schedule wsd"; NULL if there is none. The caller frees it. Conditions are
// separated by spaces:
//     name        the option is on: its value is not 0, none or empty
//     !name       it is off
//     name=a|b    it has one of these values
//     name!=a|b   it has another one
char* option_unmet_need(const OptionTable* table, const Option* o, const void* options, int command);

// Fails if an option has no effect beside the others, with such a sentence. One that is off or has its default asks for
// none.
bool option_check_need(const OptionTable* table, const Option* o, const void* options, const void* defaults,
                       int command, Error* err);

// ---------------------------------------------------------------------------------------------------------------------
// the command line

typedef enum { WORDS_REFUSED, WORDS_TAKEN } OptionWords;

// A command line (after the program and its command) that is being read.
typedef struct {
    const OptionTable* table;
    int command;              // the bit of the command in Option.commands
    const char* command_name; // for errors
    OptionWords words;        // WORDS_TAKEN: words may stand between the options, as names of files do
    int argc;
    char** argv;
    int at;                   // 0 at the beginning
    const Option* last;       // NULL at the beginning
} OptionReader;

// Takes the next option and its value, which lies in argv; for a word that is no option, `option` is NULL. Returns
// false at the end. A usage error (an unknown option, a missing value) ends the program.
bool options_next(OptionReader* r, const Option** option, const char** value);

// Prints `text` from column `column` on, where the cursor is, and breaks its lines between words. Ends with a newline.
void print_wrapped(int column, const char* text);

// Prints each option of a command with its help, under the headings of their groups.
void options_print_help(const OptionTable* table, int command);
