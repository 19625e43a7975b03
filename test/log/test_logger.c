#include "llmc/base/json.h"
#include "llmc/log/logger.h"
#include "llmc/base/outlier.h"
#include "llmc/base/rng.h"
#include "test/base/synced.h"
#include "test/test.h"
#include <glob.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>

static LoggerOptions options_for(const char* folder, int resume_step) {
    LoggerOptions o;
    memset(&o, 0, sizeof o);
    o.folder = folder;
    o.precision = "bf16";
    o.max_steps = 10;
    o.resume_step = resume_step;
    return o;
}

static StepRecord step_record(int step) {
    StepRecord r;
    memset(&r, 0, sizeof r);
    r.step = step;
    r.tokens = (size_t)step * 524288;
    r.step_tokens = 524288;
    r.loss = 10.98f;
    r.norm = 15.4f;
    r.lr = 8.4e-7f;
    r.loss_z = r.norm_z = -NAN;
    r.embedding_lr = r.matrix_lr = r.momentum = NAN;
    r.ms = step == 1 ? 5000.0 : 262.144;
    r.mfu = 0.5612;
    return r;
}

// Runs the statements with standard output redirected to a file, and sets `text` to what they wrote.
#define CAPTURE(text, ...)                                                        \
    do {                                                                          \
        fflush(stdout);                                                           \
        int kept_ = dup(STDOUT_FILENO), to_ = open(test_path("stdout"), O_RDWR | O_CREAT | O_TRUNC, 0600); \
        dup2(to_, STDOUT_FILENO);                                                 \
        __VA_ARGS__;                                                              \
        fflush(stdout);                                                           \
        dup2(kept_, STDOUT_FILENO);                                               \
        close(kept_);                                                             \
        close(to_);                                                               \
        Error err_;                                                               \
        text = read_file(test_path("stdout"), NULL, &err_);                       \
    } while (0)

static json_t* record_of(const char* text, int line) {
    for (; line > 0 && text; line--) { text = strchr(text, '\n') ? strchr(text, '\n') + 1 : NULL; }
    return text ? json_loads(text, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
}

TEST(outlier_z_scores) {
    OutlierDetector d, e;
    double values[600];
    memset(&d, 0, sizeof d);
    for (int i = 0; i < 600; i++) { values[i] = 1000.0 + rng_normal(1, RNG_TEST, (uint64_t)i); }
    for (int i = 0; i < 600; i++) {
        if (i == 300) {
            EXPECT(isnan(outlier_update(&d, NAN)) && isnan(outlier_update(&d, INFINITY)));
            EXPECT(d.count == OUTLIER_WINDOW);
            e = d;
        }
        double z = outlier_update(&d, values[i]);
        EXPECT(isnan(z) == (i < OUTLIER_WINDOW));
        if (i >= 300) { EXPECT(outlier_update(&e, values[i]) == z); }
        if (i < OUTLIER_WINDOW) { continue; }
        double mean = 0.0, squares = 0.0;
        for (int k = 0; k < OUTLIER_WINDOW; k++) { mean += values[i - k] / OUTLIER_WINDOW; }
        for (int k = 0; k < OUTLIER_WINDOW; k++) { squares += pow(values[i - k] - mean, 2.0) / OUTLIER_WINDOW; }
        EXPECT_NEAR(z, (values[i] - mean) / sqrt(squares), 1e-9);
    }
}

TEST(outlier_z_score_of_equal_values) {
    OutlierDetector d;
    memset(&d, 0, sizeof d);
    double z = 1.0;
    for (int i = 0; i < 5 + OUTLIER_WINDOW; i++) { z = outlier_update(&d, 0.1); }
    EXPECT(z == 0.0); // exactly, though 0.1 is not a sum of powers of two
}

TEST(texts) {
    char t[32];
    EXPECT(strcmp(si_text(t, 0), "0") == 0);
    EXPECT(strcmp(si_text(t, 950), "950") == 0);
    EXPECT(strcmp(si_text(t, 1747000), "1.75M") == 0);
    EXPECT(strcmp(si_text(t, 999999), "1.00M") == 0);
    EXPECT(strcmp(si_text(t, 10.25e9), "10.2B") == 0);
    EXPECT(strcmp(si_text(t, 1e30), "1e+18T") == 0);
    EXPECT(strcmp(duration_text(t, 245), "4:05") == 0);
    EXPECT(strcmp(duration_text(t, 5025), "1:23:45") == 0);
    EXPECT(strcmp(duration_text(t, 2 * 86400 + 3 * 3600), "2d 03:00:00") == 0);
    EXPECT(strcmp(duration_text(t, NAN), "--:--") == 0);
    snprintf(t, sizeof t, "%+.2f %+.2f %+.2f", plain_nan(NAN), plain_nan(-NAN), plain_nan(-1.005));
    EXPECT(strcmp(t, "+nan +nan -1.00") == 0);
}

// Every code point comes back, surrogates aside, and no other bytes than its own give it.
TEST(utf8) {
    uint32_t c;
    for (uint32_t want = 0; want < 0x110000; want++) {
        char text[4] = {(char)want};
        size_t n = want < 0x80 ? 1 : want < 0x800 ? 2 : want < 0x10000 ? 3 : 4, got = 0;
        for (size_t i = n; n > 1 && i-- > 0;) {
            text[i] = (char)(i > 0 ? 0x80 | (want >> 6 * (n - 1 - i) & 0x3f) : 0xf00 >> n | want >> 6 * (n - 1));
        }
        bool surrogate = want >= 0xd800 && want <= 0xdfff;
        got = utf8_decode(text, text + n, &c);
        if (surrogate ? got != 0 : got != n || c != want) { TEST_FAIL("U+%04X gives %zu bytes", want, got); return; }
        if (utf8_decode(text, text + n - (n > 1), &c) != (n == 1)) { TEST_FAIL("U+%04X cut short", want); return; }
    }
    static const char* const malformed[] = {
        "\x80", "\xbf\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80",
        "\xf5\x80\x80\x80", "\xff", "\xe2\x82(", "\xc3\xc3"};
    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++) {
        if (utf8_decode(malformed[i], malformed[i] + strlen(malformed[i]), &c) != 0) { TEST_FAIL("malformed %zu", i); }
    }
}

// The step line is llm.c's to the column: with one precision named, 1-based steps, and z-scores that print +nan.
TEST(step_line) {
    Logger l;
    Error err;
    char* text;
    LoggerOptions o = options_for(NULL, -1);
    CAPTURE(text, {
        logger_open(&l, &o, &err);
        for (int i = 1; i <= 3; i++) {
            StepRecord r = step_record(i);
            if (i == 3) { r.mfu = NAN; r.loss_z = 1.234; r.norm_z = -0.5; r.step_tokens *= 2; }
            logger_step(&l, &r);
        }
        logger_val(&l, 3, 5.25);
        logger_eval(&l, 3, "HellaSwag", "some", 1, 4);
        logger_sample(&l, 3, "a\xff", 2);
        logger_close(&l, &err);
    });
    double weight = 0.05 / (1.0 - 0.95 * 0.95); // the bias-corrected average of v and 2 v, newest last
    char* want = format(
        "step    1/10 | loss 10.980000 (+nanz)| norm 15.4000 (+nanz)| lr 8.40e-07 | 5000.00 ms | "
        "56.1%% bf16 MFU | 104858 tok/s\n"
        "step    2/10 | loss 10.980000 (+nanz)| norm 15.4000 (+nanz)| lr 8.40e-07 | 262.14 ms | "
        "56.1%% bf16 MFU | 2000000 tok/s\n"
        "step    3/10 | loss 10.980000 (+1.23z)| norm 15.4000 (-0.50z)| lr 8.40e-07 | 262.14 ms | "
        "-100.0%% bf16 MFU | %.0f tok/s\n"
        "val loss 5.250000\nHellaSwag: 1/4 = 0.250000\ngenerating:\n---\na\xff\n---\n"
        "total average iteration time: 262.144000 ms\n", 2e6 * weight * (0.95 + 2.0));
    EXPECT(strcmp(text, want) == 0);
    if (strcmp(text, want) != 0) { printf("got:\n%swanted:\n%s", text, want); }
    free(text);
    free(want);
}

static void write_run(const char* folder, int resume_step, int from, int to) {
    Logger l;
    Error err;
    char* text;
    LoggerOptions o = options_for(folder, resume_step);
    CAPTURE(text, {
        bool ok = logger_open(&l, &o, &err);
        EXPECT(ok);
        if (ok) {
            logger_config(&l, from - 1, json_pack("{s:{s:i}, s:s}", "options", "batch_size", 4, "device", "a \"CPU\""));
            for (int i = from; i <= to; i++) {
                StepRecord r = step_record(i);
                logger_step(&l, &r);
                if (i % 2 == 0) { logger_val(&l, i, 5.0 + i); }
                if (i % 3 == 0) { logger_sample(&l, i, "step 9/10 \xe2\x82", 12); }
            }
            EXPECT(logger_close(&l, &err));
        }
    });
    free(text);
}

TEST(records) {
    Logger l;
    Error err;
    char *text, *ignored;
    LoggerOptions o = options_for(test_path("records"), -1);
    CAPTURE(ignored, {
        EXPECT(logger_open(&l, &o, &err));
        logger_config(&l, 0, json_pack("{s:{s:i}, s:f}", "options", "batch_size", 4, "floor", 1.5));
        StepRecord r = step_record(1);
        r.loss = (double)0.1f;
        r.norm = 1.00000012f;
        r.ms = 300.1;
        logger_step(&l, &r);
        logger_val(&l, 0, NAN);
        logger_sample(&l, 1, "\"<\n\xe2\x82\xac\xe2\x82\0\xff", 10);
        int errors = dup(STDERR_FILENO), null = open("/dev/null", O_WRONLY);
        dup2(null, STDERR_FILENO);
        logger_save(&l, 1, "run/step_00000001");
        logger_skip(&l, 2, "grad", 6.5);
        logger_skip(&l, 2, "loss", INFINITY);
        logger_overflow(&l, 3, 65536, 32768);
        r = step_record(3);
        r.norm = INFINITY;
        r.loss_scale = 65536;
        r.embedding_lr = 0.25;
        r.matrix_lr = 0.5;
        r.momentum = 0.75;
        logger_step(&l, &r);
        dup2(errors, STDERR_FILENO);
        close(errors);
        close(null);
        logger_eval(&l, 1, "HellaSwag", "some", 1, 4);
        // Flushed line by line: all is there before the logger is closed.
        text = read_file(test_path("records/metrics.jsonl"), NULL, &err);
        EXPECT(logger_close(&l, &err));
    });
    free(ignored);
    EXPECT(text != NULL);
    if (!text) { return; }
    const char* train = strchr(text, '\n') + 1;
    const char* config = "{\"kind\":\"config\",\"step\":0,\"options\":{\"batch_size\":4},\"floor\":1.5,\"date\":\"20";
    EXPECT(strncmp(text, config, strlen(config)) == 0);
    const char* want = "{\"kind\":\"train\",\"step\":1,\"tokens\":524288,\"loss\":0.1,\"norm\":1.0000001,"
                       "\"lr\":8.4e-7,\"ms\":300.1,\"tok_s\":1747044,\"mfu\":0.5612,\"loss_z\":null,\"norm_z\":null}\n"
                       "{\"kind\":\"val\",\"step\":0,\"loss\":null}\n";
    EXPECT(strncmp(train, want, strlen(want)) == 0);
    json_t* sample = record_of(text, 3);
    const char* got = json_string_value(json_object_get(sample, "text"));
    EXPECT(got && strcmp(got, "\"<\n\xe2\x82\xac\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd") == 0);
    json_decref(sample);
    EXPECT(strstr(text, "{\"kind\":\"save\",\"step\":1,\"path\":\"run/step_00000001\"}\n"));
    EXPECT(strstr(text, "{\"kind\":\"skip\",\"step\":2,\"what\":\"grad\",\"z\":6.5}\n"));
    EXPECT(strstr(text, "{\"kind\":\"skip\",\"step\":3,\"what\":\"overflow\",\"loss_scale\":65536.0}\n"));
    EXPECT(strstr(text, "\"norm\":null,") && strstr(text, "\"norm_z\":null,\"loss_scale\":65536.0,"
                                                      "\"embedding_lr\":0.25,\"matrix_lr\":0.5,\"momentum\":0.75}\n"));
    EXPECT(strstr(text, "{\"kind\":\"eval\",\"step\":1,\"name\":\"HellaSwag\",\"rules\":\"some\",\"correct\":1,"
                        "\"total\":4,\"accuracy\":0.25}\n"));
    free(text);
    text = read_file(test_path("records/log.txt"), NULL, &err);
    EXPECT(text && strstr(text, "step    1/10 | loss 0.100000") && strstr(text, "\nval loss nan\n"));
    EXPECT(text && strstr(text, "\nskipping update due to grad z-score of 6.500000\n"));
    EXPECT(text && strstr(text, "\nskipping update: loss is not finite\n"));
    EXPECT(text && strstr(text, "\nstep 3: the gradient overflowed with a loss scale of 65536: skipping its update; "
                                "the scale is now 32768\n"));
    free(text);
}

// A terminal's line is whole where it fits; else z-scores, MFU and ms are left out, in this order. What is unknown is
// left out too.
TEST(a_line_fits_its_terminal) {
    Logger l;
    memset(&l, 0, sizeof l);
    l.options = options_for(NULL, -1);
    l.tok_s = 2e6;
    StepRecord r = step_record(2);
    r.loss_z = 1.234;
    r.norm_z = -0.5;
    static const struct { int width; const char* want; } lines[] = {
        {0, "step    2/10 | loss 10.980000 (+1.23z)| norm 15.4000 (-0.50z)| lr 8.40e-07 | 262.14 ms | "
         "56.1% bf16 MFU | 2000000 tok/s"},
        {200, "step    2/10 | loss 10.980000 (+1.23z)| norm 15.4000 (-0.50z)| lr 8.40e-07 | 262.14 ms | "
         "56.1% bf16 MFU | 2000000 tok/s"},
        {110, "step    2/10 | loss 10.980000 | norm 15.4000 | lr 8.40e-07 | 262.14 ms | "
         "56.1% bf16 MFU | 2000000 tok/s"},
        {90, "step    2/10 | loss 10.980000 | norm 15.4000 | lr 8.40e-07 | 262.14 ms | 2000000 tok/s"},
        {80, "step    2/10 | loss 10.980000 | norm 15.4000 | lr 8.40e-07 | 2000000 tok/s"},
        {20, "step    2/10 | loss"}};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        char* line = logger_step_line(&l, &r, lines[i].width);
        if (strcmp(line, lines[i].want)) { TEST_FAIL("width %d: '%s'", lines[i].width, line); }
        free(line);
    }
    for (int width = 1; width < 200; width++) {
        char* line = logger_step_line(&l, &r, width);
        EXPECT((int)strlen(line) <= (width > 1 ? width - 1 : 1));
        free(line);
    }
    r.loss_z = NAN;
    r.mfu = INFINITY; // the FLOP/s of a step by an unknown peak of 0
    char *piped = logger_step_line(&l, &r, 0), *shown = logger_step_line(&l, &r, 200);
    EXPECT(strstr(piped, "loss 10.980000 (+nanz)| norm") && strstr(piped, "| -100.0% bf16 MFU |"));
    EXPECT(strstr(shown, "loss 10.980000 | norm 15.4000 (-0.50z)|") && !strstr(shown, "MFU"));
    free(piped);
    free(shown);
}

// Every float comes back from its text, and short ones stay short.
TEST(numbers_restore_floats) {
    for (int i = 0; i < 20000; i++) {
        uint32_t bits = (uint32_t)rng_u64(2, RNG_TEST, (uint64_t)i);
        float v, back;
        memcpy(&v, &bits, sizeof v);
        json_t* number = json_float(v);
        char* text = json_dumps(number, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
        if (!isfinite(v)) { EXPECT(json_is_null(number)); }
        else { back = strtof(text, NULL); EXPECT(memcmp(&v, &back, sizeof v) == 0); }
        free(text);
        json_decref(number);
    }
}

static void append(const char* path, const char* text) {
    FILE* f = fopen(path, "a");
    EXPECT(f && fputs(text, f) >= 0);
    if (f) { fclose(f); }
}

// The logs of a run that was killed only grow: what they had stays, and a torn last line is ended.
TEST(a_resumed_run_appends_to_its_logs) {
    static const char* const names[] = {"long/metrics.jsonl", "long/log.txt"};
    Error err;
    char *before[2], *after[2];
    write_run(test_path("long"), -1, 1, 9);
    append(test_path("long/metrics.jsonl"), "{\"kind\":\"train\",\"step\":10");
    append(test_path("long/log.txt"), "step   10/10 | lo");
    for (int i = 0; i < 2; i++) { before[i] = read_file(test_path(names[i]), NULL, &err); }
    write_run(test_path("long"), 4, 5, 6);
    for (int i = 0; i < 2; i++) {
        after[i] = read_file(test_path(names[i]), NULL, &err);
        const size_t n = strlen(before[i]);
        EXPECT(!strncmp(before[i], after[i], n) && after[i][n] == '\n' && after[i][n + 1] != '\n');
    }
    EXPECT(strstr(after[0], "10\n{\"kind\":\"config\",\"step\":4,") && strstr(after[1], "lo\nstep    5/10 | "));
    write_run(test_path("long"), 6, 7, 7);
    char* text = read_file(test_path("long/metrics.jsonl"), NULL, &err);
    EXPECT(!strstr(text, "\n\n")); // a whole last line needs no end
    free(text);
    write_run(test_path("long"), -1, 1, 1); // a fresh run replaces the logs
    text = read_file(test_path("long/metrics.jsonl"), NULL, &err);
    EXPECT(text && !strstr(text, "\"step\":2"));
    free(text);
    for (int i = 0; i < 2; i++) { free(before[i]); free(after[i]); }
}

// Returns how often a text has the words.
static int count_of(const char* path, const char* words) {
    Error err;
    int count = 0;
    char* text = read_file(path, NULL, &err);
    for (const char* at = text; at && (at = strstr(at, words)); at++) { count++; }
    free(text);
    return count;
}

TEST(the_reason_of_the_end_is_the_last_record) {
    Logger l;
    Error err;
    LoggerOptions o = options_for(test_path("end"), -1);
    EXPECT(logger_open(&l, &o, &err));
    logger_config(&l, 0, json_object());
    EXPECT(logger_sync(&l, &err));
    EXPECT(is_synced(test_path("end/metrics.jsonl")) && is_synced(test_path("end/log.txt")));
    logger_end(&l, 7, "non-finite", "loss \"nan\"\xff");
    logger_end(&l, 7, "error", "a second reason"); // the first one counts
    EXPECT(logger_close(&l, &err));
    EXPECT(is_synced(test_path("end/metrics.jsonl")) && is_synced(test_path("end/log.txt")));
    char *metrics = read_file(test_path("end/metrics.jsonl"), NULL, &err), *last = strstr(metrics, "{\"kind\":\"end\"");
    EXPECT(last && !strcmp(last, "{\"kind\":\"end\",\"step\":7,\"reason\":\"non-finite\","
                                 "\"words\":\"loss \\\"nan\\\"\xef\xbf\xbd\"}\n"));
    EXPECT(count_of(test_path("end/log.txt"), "ended after step 7: non-finite: loss \"nan\"") == 1);
    EXPECT(count_of(test_path("end/log.txt"), "a second reason") == 0);
    free(metrics);
}

// An error is the last thing that is said.
TEST(a_run_that_ends_with_an_error_tells_no_mean_time) {
    static const char* const reasons[] = {"finished", "error", "finished"}; // the last one after a step that warms up
    for (int i = 0; i < 3; i++) {
        Logger l;
        Error err;
        char* text;
        LoggerOptions o = options_for(test_path("mean_time"), -1);
        CAPTURE(text, {
            EXPECT(logger_open(&l, &o, &err));
            for (int step = 1; step <= (i < 2 ? 2 : 1); step++) {
                const StepRecord r = step_record(step);
                logger_step(&l, &r);
            }
            logger_end(&l, 2, reasons[i], "");
            EXPECT(logger_close(&l, &err));
        });
        EXPECT(text && (strstr(text, "total average iteration time: 262.144000 ms\n") != NULL) == (i == 0));
        EXPECT(text && (i < 2 || !strstr(text, "average")));
        free(text);
    }
}

TEST(logs_that_were_removed_or_replaced_are_missed) {
    static const char* const names[] = {"gone/metrics.jsonl", "gone/log.txt"};
    Logger l;
    Error err;
    for (int i = 0; i < 4; i++) {
        const char* path = test_path(names[i % 2]);
        LoggerOptions o = options_for(test_path("gone"), -1);
        EXPECT(logger_open(&l, &o, &err) && remove(path) == 0);
        EXPECT(i < 2 || write_file_atomically(path, "another\n", 8, &err));
        EXPECT(!logger_close(&l, &err) && strstr(err.text, path) && strstr(err.text, "removed or replaced"));
    }
}

TEST(other_ranks_are_silent) {
    Logger l;
    Error err;
    char* text;
    LoggerOptions o = options_for(test_path("rank1"), -1);
    o.rank = 1;
    CAPTURE(text, {
        EXPECT(logger_open(&l, &o, &err));
        StepRecord r = step_record(1);
        logger_config(&l, 0, json_object());
        logger_step(&l, &r);
        r.step = 2;
        logger_step(&l, &r);
        logger_val(&l, 1, 2.0);
        logger_save(&l, 1, "x");
        logger_sample(&l, 1, "x", 1);
        EXPECT(logger_close(&l, &err));
    });
    EXPECT(text && !*text && !path_exists(test_path("rank1")));
    free(text);
}

TEST(errors_name_the_file) {
    Logger l;
    Error err;
    if (access("/dev/full", W_OK) != 0) { SKIP("no /dev/full"); }
    append(test_path("file"), "x");
    LoggerOptions o = options_for(test_path("file/run"), -1);
    EXPECT(!logger_open(&l, &o, &err) && strstr(err.text, "/file: a file, not a folder"));
    EXPECT(make_directories(test_path("taken/metrics.jsonl"), &err));
    o = options_for(test_path("taken"), -1);
    EXPECT(!logger_open(&l, &o, &err) && strstr(err.text, "taken/metrics.jsonl"));
    EXPECT(!write_file_atomically(test_path("none/x"), "x", 1, &err) && strstr(err.text, "none/.tmp-x"));
    o = options_for(test_path("full"), -1);
    EXPECT_DEATH(EXIT_RUNTIME, "full/metrics.jsonl: cannot write: No space", {
        if (logger_open(&l, &o, &err) && freopen("/dev/full", "w", l.metrics)) { logger_config(&l, 0, json_object()); }
    });
}

// A full disk stands for a reader that has ended. What is printed later is lost silently, and not an error at the end.
TEST(standard_output_that_cannot_be_written_ends_no_run) {
    Logger l;
    Error err;
    if (access("/dev/full", W_OK) != 0) { SKIP("no /dev/full"); }
    const LoggerOptions o = options_for(test_path("unread"), -1);
    EXPECT_DEATH(EXIT_DONE, "standard output: cannot write: No space left on device; the run goes on without it, and", {
        if (!logger_open(&l, &o, &err) || !freopen("/dev/full", "w", stdout)) { _exit(9); }
        for (int i = 1; i <= 3; i++) { logger_val(&l, i, i); }
        logger_sample(&l, 3, "x", 1);
        if (!logger_close(&l, &err)) { _exit(9); }
        exit(close_standard_output(EXIT_DONE));
    });
    char* text = read_file(test_path("unread/log.txt"), NULL, &err);
    const char* first = text ? strstr(text, "standard output: cannot write") : NULL;
    EXPECT(first && !strstr(first + 1, "standard output: cannot write")); // it is said once
    EXPECT(text && strstr(text, "val loss 1.0") && strstr(text, "val loss 2.0") && strstr(text, "val loss 3.0"));
    free(text);
}

// Returns true if the logger refuses such a folder, names `name`, and has changed no other log there.
static bool is_refused(const LoggerOptions* o, const char* name) {
    Logger l;
    Error err;
    const bool ok = !logger_open(&l, o, &err) && strstr(err.text, name);
    char *path = format("%s/metrics.jsonl", o->folder), *text = read_file(path, NULL, &err);
    free(path);
    const bool is_unchanged = text && !strcmp(text, "old\n");
    free(text);
    return ok && is_unchanged;
}

// A new run neither overwrites the targets of symbolic links nor waits at a named pipe.
TEST(links_and_pipes_in_the_place_of_logs_are_refused) {
    Error err;
    char* folder = format("%s", test_path("place"));
    LoggerOptions o = options_for(folder, -1);
    o.has_tensorboard = true;
    EXPECT(make_directories(test_path("place"), &err) && make_directories(test_path("elsewhere"), &err));
    append(test_path("target"), "old\n");
    EXPECT(symlink(test_path("target"), test_path("place/metrics.jsonl")) == 0);
    EXPECT(is_refused(&o, "place/metrics.jsonl: not a regular file but a symbolic link: remove it"));
    EXPECT(unlink(test_path("place/metrics.jsonl")) == 0);
    append(test_path("place/metrics.jsonl"), "old\n");
    EXPECT(symlink(test_path("target"), test_path("place/log.txt")) == 0);
    EXPECT(is_refused(&o, "place/log.txt: not a regular file but a symbolic link: remove it"));
    EXPECT(unlink(test_path("place/log.txt")) == 0 && mkfifo(test_path("place/log.txt"), 0600) == 0);
    alarm(60); // a logger that waits for a reader fails
    EXPECT(is_refused(&o, "place/log.txt: not a regular file: remove it"));
    alarm(0);
    EXPECT(unlink(test_path("place/log.txt")) == 0);
    EXPECT(symlink(test_path("elsewhere"), test_path("place/tensorboard")) == 0);
    EXPECT(is_refused(&o, "place/tensorboard: not a folder but a symbolic link: remove it"));
    char* text = read_file(test_path("target"), NULL, &err);
    EXPECT(text && !strcmp(text, "old\n"));
    free(text);
    free(folder);
}

// An earlier run's logs are emptied only when all files of the new one are open.
TEST(a_log_that_cannot_be_opened_empties_no_other) {
    Error err;
    char* folder = format("%s", test_path("half"));
    LoggerOptions o = options_for(folder, -1);
    o.has_tensorboard = true;
    EXPECT(make_directories(test_path("half/tensorboard"), &err));
    append(test_path("half/metrics.jsonl"), "old\n");
    append(test_path("half/log.txt"), "old too\n");
    struct rlimit files = {0, 0};
    EXPECT(getrlimit(RLIMIT_NOFILE, &files) == 0);
    const int first = dup(0), second = dup(0);
    EXPECT(first >= 0 && second >= 0 && close(first) == 0 && close(second) == 0);
    const struct rlimit two_more = {(rlim_t)second + 1, files.rlim_max};
    EXPECT(setrlimit(RLIMIT_NOFILE, &two_more) == 0); // the event file is the third
    EXPECT(is_refused(&o, "half/tensorboard"));
    EXPECT(setrlimit(RLIMIT_NOFILE, &files) == 0);
    char *metrics = read_file(test_path("half/metrics.jsonl"), NULL, &err),
         *text = read_file(test_path("half/log.txt"), NULL, &err);
    EXPECT(metrics && !strcmp(metrics, "old\n") && text && !strcmp(text, "old too\n"));
    free(metrics);
    free(text);
    free(folder);
}

// Returns the step lines that a run of so many steps prints, as "1 2 3 "; print_every: in place of the logger's choice,
// or 0. The caller frees the text.
static char* printed_steps(int max_steps, int print_every) {
    Logger l;
    Error err;
    char *text, *steps = format("%s", "");
    LoggerOptions o = options_for(NULL, -1);
    o.max_steps = max_steps;
    CAPTURE(text, {
        EXPECT(logger_open(&l, &o, &err));
        if (print_every > 0) { l.print_every = print_every; }
        for (int i = 1; i <= max_steps; i++) { StepRecord r = step_record(i); logger_step(&l, &r); }
        EXPECT(logger_close(&l, &err));
    });
    for (char* at = text; (at = strstr(at, "step ")) != NULL; at++) {
        char* longer = format("%s%d ", steps, atoi(at + 5));
        free(steps);
        steps = longer;
    }
    free(text);
    return steps;
}

// The first and the last step are printed too. Scripts read every line of a file, however many.
TEST(step_lines_are_printed_every_so_many_steps) {
    char *three = printed_steps(10, 3), *each = printed_steps(2000, 0);
    EXPECT(!strcmp(three, "1 3 6 9 10 "));
    EXPECT(strlen(each) == 9 * 2 + 90 * 3 + 900 * 4 + 1001 * 5);
    free(three);
    free(each);
    Logger l;
    memset(&l, 0, sizeof l);
    l.bar = true;
    const int want[][2] = {{1, 1}, {500, 1}, {501, 2}, {1600, 5}, {19560, 50}, {572204, 2000}, {2000000000, 5000000}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        l.options.max_steps = want[i][0];
        EXPECT(logger_print_every(&l) == want[i][1]);
    }
}

TEST(bar_text) {
    Logger l;
    char text[512];
    memset(&l, 0, sizeof l);
    l.options.max_steps = 1000;
    l.options.max_tokens = (size_t)1000 * 524288;
    l.last = step_record(421);
    l.first_tokens = 524288;
    l.steps = 421;
    l.tok_s = 1747000.0;
    l.after_first = 100.0; // 420 updates in 840 s: 579 more take 1158 s
    logger_bar_text(&l, 940.0, 150, text, sizeof text);
    EXPECT(strcmp(text, "[================>                       ]  42% | step 421/1000 | loss 10.9800 | 1.75M tok/s"
                        " | ETA 19:18") == 0);
    for (int width = 1; width < 200; width++) {
        logger_bar_text(&l, 940.0, width, text, sizeof text);
        EXPECT((int)strlen(text) <= (width > 2 ? width - 1 : 1));
    }
    l.options.max_tokens *= 2; // the steps to come have more tokens
    logger_bar_text(&l, 940.0, 150, text, sizeof text);
    EXPECT(strstr(text, " 21% | step 421/1000 ") && strstr(text, "ETA 52:38")); // 1579 as many as before: 3158 s
    l.steps = 1;
    logger_bar_text(&l, 940.0, 120, text, sizeof text);
    EXPECT(strstr(text, "ETA --:--"));
    l.options.max_tokens = 0;
    logger_bar_text(&l, 940.0, 120, text, sizeof text);
    EXPECT(strstr(text, "  0% "));
}

// True if the terminal's line was erased just before `line` was written.
static bool bar_is_erased_before(const char* text, const char* line) {
    const char* at = strstr(text, line);
    return at && at - text >= 4 && memcmp(at - 4, "\r\033[J", 4) == 0;
}

// Returns what `child` writes to a terminal of 24 x 100 characters; NULL if there are no pseudo-terminals. The caller
// frees it.
static char* on_terminal(void (*child)(void)) {
    size_t size = 0;
    const int master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0) { return NULL; }
    char* text = alloc_or_die(1 << 16, 1, "a terminal's text");
    struct winsize window = {24, 100, 0, 0};
    const int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    EXPECT(slave >= 0 && ioctl(slave, TIOCSWINSZ, &window) == 0);
    fflush(stdout);
    const pid_t pid = fork();
    if (pid == 0) {
        dup2(slave, STDOUT_FILENO);
        dup2(slave, STDERR_FILENO);
        child();
        _exit(0);
    }
    close(slave);
    for (ssize_t n; size < (1 << 16) - 1 && (n = read(master, text + size, (1 << 16) - 1 - size)) > 0;) {
        size += (size_t)n;
    }
    close(master);
    int status = 1;
    waitpid(pid, &status, 0);
    EXPECT(status == 0);
    return text;
}

static void log_to_terminal(void) {
    Logger l;
    Error err;
    const LoggerOptions o = options_for(NULL, -1);
    if (!logger_open(&l, &o, &err)) { _exit(1); }
    for (int i = 1; i <= 3; i++) { StepRecord r = step_record(i); logger_step(&l, &r); }
    logger_notice(&l, "a notice");
    notice("a notice of another module");
    logger_draw_bar(&l);
    logger_sample(&l, 3, "a\tb\n\033[2J\b\177\xc2\x9b\xff\0\r\xe2\x82\xac\xc2\xa0.\xe2\x82", 23);
    if (!logger_close(&l, &err)) { _exit(1); }
}

// On a terminal of 100 columns every line is printed whole after the bar was erased, whoever prints it, and the bar is
// gone at the end. A sample cannot send the terminal anything but characters to show.
TEST(terminal) {
    char* text = on_terminal(log_to_terminal);
    if (!text) { SKIP("no pseudo-terminal"); }
    EXPECT(strncmp(text, "\r\033[Jstep    1/10", 16) == 0);
    EXPECT(strstr(text, "\r\033[Jstep    2/10 | loss"));
    EXPECT(bar_is_erased_before(text, "a notice\r\n") && bar_is_erased_before(text, "a notice of another module\r\n"));
    EXPECT(bar_is_erased_before(text, "generating:\r\n---\r\n") && bar_is_erased_before(text, "total average"));
    EXPECT(strstr(text, "total average iteration time: 262.144000 ms\r\n"));
    #define BAD "\xef\xbf\xbd"
    EXPECT(strstr(text, "\r\n---\r\na\tb\r\n" BAD "[2J" BAD BAD BAD BAD BAD BAD "\xe2\x82\xac\xc2\xa0." BAD BAD
                        "\r\n---\r\n"));
    char* bar = strstr(text, "\r[");
    EXPECT(bar && strstr(bar, "| step 1/10 |") && strcspn(bar, "\033") <= 100);
    EXPECT(strcmp(text + strlen(text) - 5, " ms\r\n") == 0);
    free(text);
}

// Ranks: the slowest one and its time over the median, of an even number the smaller one of the two in the middle.
TEST(ranks_are_compared) {
    Logger l;
    Error err;
    char *text, *ignored;
    LoggerOptions o = options_for(test_path("ranks"), -1);
    CAPTURE(ignored, {
        EXPECT(logger_open(&l, &o, &err));
        const int errors = dup(STDERR_FILENO), null = open("/dev/null", O_WRONLY);
        dup2(null, STDERR_FILENO);
        logger_ranks(&l, 100, (const double[]){0.25, 0.3, 0.2, 0.1}, 4);
        logger_ranks(&l, 200, (const double[]){0.25, 0.27, 0.2}, 3);
        logger_ranks(&l, 300, (const double[]){0.28, 0.25, 0.2}, 3);
        logger_ranks(&l, 400, (const double[]){0.001, 0.0015}, 2);
        dup2(errors, STDERR_FILENO);
        close(errors);
        close(null);
        EXPECT(logger_close(&l, &err));
    });
    free(ignored);
    text = read_file(test_path("ranks/metrics.jsonl"), NULL, &err);
    EXPECT(text && !strcmp(text, "{\"kind\":\"ranks\",\"step\":100,\"slowest\":1,\"ms\":300.0,\"slowdown\":1.5}\n"
                                 "{\"kind\":\"ranks\",\"step\":200,\"slowest\":1,\"ms\":270.0,\"slowdown\":1.08}\n"
                                 "{\"kind\":\"ranks\",\"step\":300,\"slowest\":0,\"ms\":280.0,\"slowdown\":1.12}\n"
                                 "{\"kind\":\"ranks\",\"step\":400,\"slowest\":1,\"ms\":1.5,\"slowdown\":1.5}\n"));
    free(text);
    text = read_file(test_path("ranks/log.txt"), NULL, &err); // the second and the last are not worth one
    EXPECT(text && !strcmp(text, "step 100: rank 1 is the slowest: it computed for 300.00 ms, "
                                 "1.50 times the median\n"
                                 "step 300: rank 0 is the slowest: it computed for 280.00 ms, "
                                 "1.12 times the median\n"));
    free(text);
}

// Event files have what the logs have; a resumed start says from which step on it replaces what the ones before have.
TEST(event_files_follow_the_logs) {
    Error err;
    glob_t found;
    for (int start = 0; start < 2; start++) {
        Logger l;
        char* ignored;
        LoggerOptions o = options_for(test_path("events"), start ? 4 : -1);
        o.has_tensorboard = true;
        CAPTURE(ignored, {
            EXPECT(logger_open(&l, &o, &err));
            logger_config(&l, 0, json_pack("{s:s}", "device", "some CPU"));
            StepRecord r = step_record(start ? 5 : 1);
            logger_step(&l, &r);
            logger_val(&l, 7, 2.5);
            logger_sample(&l, 6, "once\xff", 5);
            logger_eval(&l, 8, "HellaSwag a\xff", "some", 1, 4);
            EXPECT(logger_close(&l, &err));
        });
        free(ignored);
    }
    EXPECT(glob(test_path("events/tensorboard/events.out.tfevents.*"), 0, NULL, &found) == 0 && found.gl_pathc == 2);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        static const char* const words[] = {"brain.Event:2", "config/text_summary", "some CPU", "train/loss",
                                            "train/lr", "speed/tok_s", "val/loss", "once\xef\xbf\xbd",
                                            "eval/HellaSwag a\xef\xbf\xbd"};
        size_t size;
        char* text = read_file(found.gl_pathv[i], &size, &err);
        for (size_t k = 0; k < sizeof words / sizeof *words; k++) {
            if (!memmem(text, size, words[k], strlen(words[k]))) { TEST_FAIL("no %s in file %zu", words[k], i); }
        }
        const char speed[] = "speed/tok_s\x15\0\x24\xf4\x49"; // 2e6 behind its name
        EXPECT(i == 0 || memmem(text, size, speed, sizeof speed - 1));
        EXPECT(memmem(text, size, "\x15\0\0\x20\x40", 5)); // 2.5 and 1/4, as floats
        EXPECT(memmem(text, size, "\x15\0\0\x80\x3e", 5));
        EXPECT(memmem(text, size, "\x10\x07\x2a", 3)); // summaries of the steps 7, 6 and 8
        EXPECT(memmem(text, size, "\x10\x06\x2a", 3));
        EXPECT(memmem(text, size, "\x10\x08\x2a", 3));
        EXPECT((memmem(text, size, "\x3a\x02\x08\x01", 4) != NULL));       // SessionLog START
        EXPECT((memmem(text, size, "\x10\x05\x3a\x02\x08\x01", 6) != NULL) == (i == 1)); // of step 5
        free(text);
    }
    globfree(&found);
}

TEST_MAIN()
