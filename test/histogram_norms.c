// Prints the norm of all tensors in TensorBoard's histograms, a line `STEP NORM` for each step: of gradients it is the
// norm that the step line shows.
// usage: histogram_norms FILE PREFIX             PREFIX of the tags: gradients/, weights/, activations/h.0.attn, ...
#include "test/log/event_file.h"

int main(int argc, char** argv) {
    Error err;
    size_t size;
    if (argc != 3) { usage_error("histogram_norms FILE PREFIX"); }
    const unsigned char* text = (unsigned char*)read_file(argv[1], &size, &err);
    if (!text) { fatal("%s", err.text); }
    Span file = {text, text + size};
    EventHistogram h;
    double sum = 0;
    uint64_t last = 0;
    while (next_histogram(&file, &h)) {
        if (!tag_begins_with(&h, argv[2])) { continue; }
        if (h.step != last && sum > 0) { printf("%llu %.9g\n", (unsigned long long)last, sqrt(sum)); sum = 0; }
        sum += h.squares;
        last = h.step;
    }
    printf("%llu %.9g\n", (unsigned long long)last, sqrt(sum));
    return EXIT_DONE;
}
