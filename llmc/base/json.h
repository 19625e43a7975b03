// Formats numbers in few characters, splits text into lines, cleans text that need not be UTF-8, and writes JSON.
#pragma once
#include "base.h"
#include <jansson.h>

// ---------------------------------------------------------------------------------------------------------------------
// numbers: all of these write to `out` of 32 bytes and return it

// The shortest text, of at least six digits, that strtod reads back as the same number. `v` must be finite.
const char* double_text(char* out, double v);

// Three digits and a suffix: 950, 1.75M, 10.3B.
const char* si_text(char* out, double v);

// Three to five significant digits, or a dash if it is not finite.
const char* value_text(char* out, double v);

// 4:05, 1:23:45 or 2d 03:00:00.
const char* duration_text(char* out, double seconds);

// Returns v, a NaN without its sign: printf would show "-nan", and scripts expect "nan" or "+nan".
double plain_nan(double v);

// ---------------------------------------------------------------------------------------------------------------------
// lines and characters

// Returns the next whole line from `*at`, its newline left out; NULL at `end` and at a torn last line, which has no
// newline.
const char* next_line(const char** at, const char* end, size_t* size);

// Returns a copy of the text, terminated, in which U+FFFD replaces each byte that is not UTF-8 (a sample may end inside
// a character) and each character for which `keep` returns false. Sets `clean_size`, which may be NULL, to its bytes.
// The caller frees it.
char* clean_text(const char* text, size_t size, bool (*keep)(uint32_t), size_t* clean_size);

// Writes text that may be any bytes, such as a sample. If `to` is a terminal, U+FFFD replaces invalid UTF-8 and
// control characters, which could change the terminal's settings. The caller checks `to` for errors when it flushes.
void put_text(FILE* to, const char* text, size_t size);

// Prints a result that contains names, such as those of files, on standard output: printf() and put_text().
void ATTR_PRINTF(1, 2) print_result(const char* fmt, ...);

// ---------------------------------------------------------------------------------------------------------------------
// JSON values

// Prepares the JSON library, before its first use and before there are threads. An allocation of it that fails then
// ends the program: the library itself would return a value without some of its members, which looks whole.
void json_begin(void);

// Bytes of a JSON file that another program may have written. The largest, the index of a model, has some MB. Chosen.
enum { JSON_MOST = 64 << 20 };

// Reads a JSON file of at most `most` bytes; a new reference, NULL on failure. `flags` are those of json_loadb().
json_t* json_read(const char* path, size_t most, size_t flags, Error* err);

// Read an object none of whose members is there twice, also from FOLDER/FILE of at most JSON_MOST bytes.
json_t* json_read_object(const char* path, size_t most, Error* err);
json_t* json_read_in(const char* folder, const char* file, Error* err);

// Returns a JSON string, a new reference; U+FFFD replaces bytes that are not UTF-8, and 0.
json_t* json_text(const char* text, size_t size);

// Returns the value as text, a number with as few digits as tell it from its neighbours; NULL for NULL. The
// caller frees it.
char* json_value_text(const json_t* value);

// A hash is a string of 16 hexadecimal digits: many readers of JSON keep 53 bits of a number. json_hex returns a new
// reference; json_get_hex returns false, and leaves *hash, if the object has no such string.
json_t* json_hex(uint64_t hash);
bool json_get_hex(const json_t* object, const char* key, uint64_t* hash);

// Returns a JSON number with as few digits as tell a float from its neighbours; null if it is not finite.
json_t* json_float(double v);

// Write an indented file atomically, also FOLDER/FILE: a reader sees the old file or the new one. Fail if the value is
// NULL, because it got text that is not UTF-8, or the file cannot be written.
bool json_save(const json_t* value, const char* path, Error* err);
bool json_save_in(const json_t* value, const char* folder, const char* file, Error* err);
