#include "llmc/log/panel.h"
#include "test/test.h"

// Returns the characters of a text of UTF-8.
static int characters(const char* text) {
    int n = 0;
    for (; *text; text++) { n += (*text & 0xc0) != 0x80; }
    return n;
}

static void fill(History* h, int n, double begin, double end) {
    memset(h, 0, sizeof *h);
    for (int i = 0; i < n; i++) { history_add(h, begin + (end - begin) * i / (n - 1)); }
}

TEST(a_history_keeps_the_whole_curve) {
    History h;
    memset(&h, 0, sizeof h);
    history_add(&h, NAN);
    history_add(&h, INFINITY);
    EXPECT(h.count == 0);
    for (int n = 1; n <= 5000; n++) {
        history_add(&h, n);
        EXPECT(h.count > 0 && h.count <= HISTORY_POINTS && h.count * h.stride + h.summed == n);
    }
    EXPECT(h.stride == 64 && h.count == 5000 / 64);
    for (int i = 0; i < h.count; i++) { EXPECT_NEAR(h.point[i], 64 * i + 32.5, 1e-9); }
}

TEST(a_sparkline_shows_the_last_nine_tenths) {
    History h;
    fill(&h, 20, 19, 0);
    h.point[0] = h.point[1] = 1e6; // the first steps: cut at the top
    char* text = sparkline(&h, 80);
    EXPECT(characters(text) == 20 && !strncmp(text, "\xe2\x96\x88\xe2\x96\x88\xe2\x96\x88", 9)); // full blocks
    EXPECT(!strcmp(text + strlen(text) - 3, "\xe2\x96\x81"));                                 // the lowest
    free(text);
    text = sparkline(&h, 7);
    EXPECT(characters(text) == 7);
    free(text);
    fill(&h, 5, 3, 3);
    text = sparkline(&h, 80);
    EXPECT(!strcmp(text, "\xe2\x96\x81\xe2\x96\x81\xe2\x96\x81\xe2\x96\x81\xe2\x96\x81"));
    free(text);
    memset(&h, 0, sizeof h);
    text = sparkline(&h, 80);
    EXPECT(!*text);
    free(text);
}

static Panel panel_of(const History* loss, const History* norm) {
    Panel p = {.step = 421, .max_steps = 1000, .left = 1158, .loss = 10.98, .norm = 15.4, .val = NAN, .tok_s = 1747000,
               .ms = 262.144, .mfu = 0.5612, .slowest = NAN, .spent = 1.5663, .price = 6.0 / 3600, .memory = 3u << 30,
               .loss_curve = loss, .norm_curve = norm, .gpu = {false, NAN, NAN, NAN, NAN, NAN, NULL}};
    return p;
}

TEST(a_panel_has_the_runs_numbers) {
    History loss, norm;
    fill(&loss, 4, 4, 1);
    fill(&norm, 4, 1, 1);
    Panel p = panel_of(&loss, &norm);
    char* text = panel_text(&p, 80);
    const char* want = "[================>                       ]  42% | step 421/1000 | ETA 19:18\n"
                       "loss  10.9800  \xe2\x96\x88\xe2\x96\x86\xe2\x96\x83\xe2\x96\x81\n"
                       "norm  15.4000  \xe2\x96\x81\xe2\x96\x81\xe2\x96\x81\xe2\x96\x81\n"
                       "1.75M tok/s | 56.1% MFU | 262.14 ms | $1.57 of $3.50 | 3.0 GiB planned";
    if (strcmp(text, want)) { TEST_FAIL("got:\n%s\nwanted:\n%s", text, want); }
    free(text);
    p.gpu = (GpuState){true, 61, 687.4, 1980, 98.0 * (1 << 30), 150.0 * (1 << 30), "heat"};
    p.val = 5.25;
    p.slowest = 1.2;
    p.mfu = p.price = NAN;
    text = panel_text(&p, 200);
    EXPECT(strstr(text, "\n1.75M tok/s | 262.14 ms | val loss 5.2500 | 3.0 GiB planned | slowest rank 1.20x\n"));
    EXPECT(strstr(text, "\n61 C | throttled: heat | 687 W | 1980 MHz | 98.0 of 150.0 GiB used"));
    free(text);
}

TEST(every_row_fits_every_width) {
    History loss, norm;
    fill(&loss, 500, 4, 1);
    fill(&norm, 500, 1, 3);
    Panel p = panel_of(&loss, &norm);
    p.gpu = (GpuState){true, 61, 687.4, 1980, 98.0 * (1 << 30), 150.0 * (1 << 30), "power supply"};
    for (int width = 1; width < 200; width++) {
        char* text = panel_text(&p, width);
        int rows = 0;
        for (char *row = text, *next; row; row = next, rows++) {
            next = strchr(row, '\n');
            if (next) { *next++ = 0; }
            const int most = width > 2 ? width - 1 : 1;
            if (characters(row) > most) { TEST_FAIL("width %d: '%s'", width, row); }
        }
        EXPECT(rows <= PANEL_ROWS && rows >= 4);
        free(text);
    }
}

// Functions of the library may be missing or fail, here that of the clock: the rest is still shown.
TEST(a_gpu_is_read_by_nvml) {
    static const char uuid[] = "00112233445566778899aabbccddeeff";
    char path[1024];
    const ssize_t n = readlink("/proc/self/exe", path, sizeof path - 32);
    if (n <= 0) { SKIP("no /proc/self/exe"); }
    path[n] = 0;
    strcpy(strrchr(path, '/'), "/fake_nvml.so");
    GpuMonitor m;
    gpu_monitor_open(&m, path, uuid);
    EXPECT(m.library && m.device);
    GpuState s = gpu_state(&m);
    EXPECT(s.is_known && s.celsius == 61 && fabs(s.watts - 687.4) < 1e-9 && isnan(s.mhz));
    EXPECT(s.bytes == 150.0 * (1 << 30) && s.bytes_used == 98.0 * (1 << 30));
    EXPECT(s.throttled && !strcmp(s.throttled, "heat"));
    gpu_monitor_close(&m);
    EXPECT(!m.library && !gpu_state(&m).is_known);
    static const struct { const char *library, *uuid; } without[] = {
        {NULL, "ffffffffffffffffffffffffffffffff"}, {"/nowhere/libnvidia-ml.so.1", uuid}, {NULL, ""}};
    for (size_t i = 0; i < sizeof without / sizeof *without; i++) {
        gpu_monitor_open(&m, without[i].library ? without[i].library : path, without[i].uuid);
        EXPECT(!m.library && !m.device && !gpu_state(&m).is_known);
        gpu_monitor_close(&m);
    }
}

TEST_MAIN()
