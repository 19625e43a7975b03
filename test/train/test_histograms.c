#include "llmc/train/histograms.h"
#include "llmc/model/stored.h"
#include "test/files/small_model.h"
#include "test/log/event_file.h"

static void expect_histogram(const EventHistogram* h, const char* tag, const float* x, size_t n) {
    double sum = 0, squares = 0, min = x[0], max = x[0];
    for (size_t i = 0; i < n; i++) {
        sum += x[i], squares += (double)x[i] * x[i];
        min = fmin(min, x[i]), max = fmax(max, x[i]);
    }
    test_case = tag;
    EXPECT(tag_begins_with(h, tag) && (size_t)(h->tag.end - h->tag.at) == strlen(tag));
    EXPECT(h->step == 7 && h->count == (double)n && h->min == min && h->max == max);
    EXPECT_NEAR(h->sum, sum, 1e-9 * n);
    EXPECT_NEAR(h->squares, squares, 1e-9 * squares);
    test_case = NULL;
}

// The activations that a forward pass leaves, read back from the event file.
TEST(activations_are_those_of_the_last_batch) {
    enum { T = MAX_T - 1 }; // a batch that is not the largest
    Error err;
    Model* m = open_model(C);
    fill_weights(m);
    GPT2* g = &m->g;
    const Backend* b = g->backend;
    for (size_t i = 0; i < g->params_table.size; i++) { stored_put(b, g->params, i, m->o.masters[i] / 8); }
    b->params_changed();
    const int batch[3 * T] = {1, 10, 3, 3, 0};
    gpt2_upload(g, batch, T);
    char *folder = new_folder(), tag[64];
    Logger log;
    const LoggerOptions options = {.folder = folder, .precision = "fp32", .max_steps = 10, .resume_step = -1,
                                   .has_tensorboard = true};
    if (!logger_open(&log, &options, &err)) { fatal("%s", err.text); }
    log_activations(&log, g, 7, 1, T);
    char* path = format("%s", log.events.path);
    EXPECT(logger_close(&log, &err));
    size_t size;
    unsigned char* text = (unsigned char*)read_file(path, &size, &err);
    if (!text) { fatal("%s", err.text); }
    gpt2_forward(g, 1, T, NULL);
    Span file = {text, text + size};
    EventHistogram h;
    for (int l = 0; l < L; l++) {
        const Acts a = acts_at(g, l), next = acts_at(g, l + 1 < L ? l + 1 : 0);
        const float* streams[L] = {(float*)next.residual1, (float*)a.residualf};
        const float* x[] = {(float*)a.atty, (float*)a.fch, streams[l]};
        static const char* const names[] = {"attn", "mlp.c_fc", "residual"};
        for (int i = 0; i < 3; i++) {
            snprintf(tag, sizeof tag, "activations/h.%d.%s", l, names[i]);
            if (!next_histogram(&file, &h)) { TEST_FAIL("no histogram %s", tag); continue; }
            expect_histogram(&h, tag, x[i], (size_t)T * C * (i == 1 ? 4 : 1));
        }
    }
    EXPECT(!next_histogram(&file, &h));
    free(text);
    free(path);
    free(folder);
    close_model(m);
}

TEST_MAIN()
