// Bytes as visible characters, which is how Hugging Face's files and OpenAI's write the bytes of a token: the 188
// visible bytes of Latin-1 stand for themselves, the other 68, in order, for U+0100 and on. A space is U+0120.
#pragma once
#include "../base/base.h"

enum { BYTE_CHARACTERS = 256 + 68 }; // all of them are below

typedef struct {
    uint16_t character[256];       // of each byte
    int16_t byte[BYTE_CHARACTERS]; // of each character; -1: it stands for none
    unsigned char order[256];      // the bytes, in the order of their characters: GPT-2's tokens 0 to 255
} ByteLevel;

// Returns the tables.
ByteLevel byte_level(void);

// Writes the bytes that `name`, UTF-8, stands for to `out` of `room` bytes and sets their number. Fails if there are
// more, or if a character stands for none.
bool byte_level_decode(const ByteLevel* b, const char* name, unsigned char* out, size_t room, size_t* count);
