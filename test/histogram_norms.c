// Prints the norm of all tensors in TensorBoard's histograms, a line `STEP NORM` for each step: of gradients it is the
// norm that the step line shows.
// usage: histogram_norms FILE PREFIX             PREFIX of the tags: gradients/ or weights/
#include "llmc/base.h"

typedef struct {
    const unsigned char *at, *end;
} Span;

static uint64_t varint(Span* s) {
    uint64_t x = 0;
    for (int shift = 0; s->at < s->end; shift += 7) {
        const unsigned char byte = *s->at++;
        x |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) { break; }
    }
    return x;
}

// Finds the first field of this number in a message: sets `inner` to its bytes, and `number` to its value if it is a
// varint. Ends the program if the message is cut short.
static bool field(Span message, uint64_t wanted, Span* inner, uint64_t* number) {
    while (message.at < message.end) {
        const uint64_t key = varint(&message), type = key & 7;
        if (type == 0) { *number = varint(&message); }
        const uint64_t size = type == 2 ? varint(&message) : type == 1 ? 8 : type == 5 ? 4 : 0;
        if (size > (uint64_t)(message.end - message.at)) { fatal("a message is cut short"); }
        *inner = (Span){message.at, message.at + size};
        message.at += size;
        if (key >> 3 == wanted) { return true; }
    }
    return false;
}

int main(int argc, char** argv) {
    Error err;
    size_t size;
    if (argc != 3) { usage_error("histogram_norms FILE PREFIX"); }
    const unsigned char* text = (unsigned char*)read_file(argv[1], &size, &err);
    if (!text) { fatal("%s", err.text); }
    double sum = 0;
    uint64_t last = 0;
    for (const unsigned char* record = text; record < text + size;) {
        uint64_t length, step = 0, ignored;
        Span summary, value, tag, histogram, squares;
        memcpy(&length, record, sizeof length);
        const Span event = {record + 12, record + 12 + length};
        record = event.end + 4;
        if (!field(event, 5, &summary, &ignored) || !field(summary, 1, &value, &ignored) ||
            !field(value, 1, &tag, &ignored) || strncmp((const char*)tag.at, argv[2], strlen(argv[2])) ||
            !field(value, 5, &histogram, &ignored)) {
            continue;
        }
        field(event, 2, &squares, &step);
        if (step != last && sum > 0) { printf("%llu %.9g\n", (unsigned long long)last, sqrt(sum)); sum = 0; }
        double x = 0;
        if (field(histogram, 5, &squares, &ignored)) { memcpy(&x, squares.at, sizeof x); }
        sum += x;
        last = step;
    }
    printf("%llu %.9g\n", (unsigned long long)last, sqrt(sum));
    return EXIT_DONE;
}
