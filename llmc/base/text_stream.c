#include "text_stream.h"

// The `cookie` of a stream (fopencookie(3)).
typedef struct {
    char** text;
    size_t *size, room;
} TextMemory;

// Appends to the text. Returns 0 if there is no memory, which makes this and each later flush of the stream fail: to
// end the program here would flush it again.
static ssize_t text_write(void* cookie, const char* data, size_t bytes) {
    TextMemory* m = cookie;
    const size_t needed = *m->size + bytes + 1;
    if (needed > m->room) {
        char* text = realloc(*m->text, 2 * needed);
        if (!text) { return 0; }
        *m->text = text;
        m->room = 2 * needed;
    }
    memcpy(*m->text + *m->size, data, bytes);
    *m->size += bytes;
    (*m->text)[*m->size] = 0;
    return (ssize_t)bytes;
}

static int text_close(void* cookie) {
    free(cookie);
    return 0;
}

FILE* open_text_stream(char** text, size_t* size, const char* what) {
    TextMemory* m = alloc_or_die(1, sizeof *m, what);
    *size = 0;
    *text = alloc_or_die(1, 1, what); // an empty text
    *m = (TextMemory){.text = text, .size = size, .room = 1};
    FILE* f = fopencookie(m, "w", (cookie_io_functions_t){.write = text_write, .close = text_close});
    if (!f) { fatal("out of memory: %s", what); }
    return f;
}

void close_text_stream(FILE* f, const char* what) {
    const bool had_error = ferror(f) != 0;
    if (fclose(f) != 0 || had_error) { fatal("out of memory: %s", what); }
}
