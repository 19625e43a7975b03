#include "byte_level.h"

ByteLevel byte_level(void) {
    ByteLevel b;
    int hidden = 256, place = 0;
    for (int c = 0; c < BYTE_CHARACTERS; c++) { b.byte[c] = -1; }
    for (int byte = 0; byte < 256; byte++) {
        const bool visible = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
        b.character[byte] = (uint16_t)(visible ? byte : hidden++);
        b.byte[b.character[byte]] = (int16_t)byte;
    }
    for (int c = 0; c < BYTE_CHARACTERS; c++) {
        if (b.byte[c] >= 0) { b.order[place++] = (unsigned char)b.byte[c]; }
    }
    return b;
}

bool byte_level_decode(const ByteLevel* b, const char* name, unsigned char* out, size_t room, size_t* count) {
    const char* end = name + strlen(name);
    uint32_t c;
    *count = 0;
    for (size_t bytes; name < end; name += bytes) {
        bytes = utf8_decode(name, end, &c);
        if (bytes == 0 || c >= BYTE_CHARACTERS || b->byte[c] < 0 || *count == room) { return false; }
        out[(*count)++] = (unsigned char)b->byte[c];
    }
    return true;
}
