#include "llmc/log/html.h"
#include "llmc/log/metrics.h"
#include "llmc/log/report.h"
#include "llmc/base/json.h"
#include "llmc/base/text_stream.h"
#include "llmc/base/rng.h"
#include "test/test.h"

// Makes a run's folder with this metrics.jsonl; returns its path.
static char* make_run(const char* name, const char* metrics) {
    Error err;
    char* folder = test_path(name);
    char* path = format("%s/metrics.jsonl", folder);
    if (!make_directories(folder, &err) || !write_file_atomically(path, metrics, strlen(metrics), &err)) {
        fatal("%s", err.text);
    }
    free(path);
    return folder;
}

// Makes a run: a config with this batch_size, then `steps` updates of 1000 tokens whose loss falls from 11 to `end`,
// with one spike, a validation every tenth of the run, a save, two skips, samples and an eval.
static char* make_curve(const char* name, int steps, double end, int batch_size) {
    char* metrics;
    size_t size;
    FILE* f = open_text_stream(&metrics, &size, "metrics.jsonl");
    fprintf(f, "{\"kind\":\"config\",\"step\":0,"
            "\"options\":{\"beta1\":0.9,\"lr\":0.0006,\"batch_size\":%d,\"dtype\":\"bf16\"},"
            "\"model\":{\"name\":\"d12\",\"parameters\":124439808,\"L\":12},"
            "\"device\":\"H100 <8>\",\"program\":\"train_gpt2cu\","
            "\"date\":\"2026-03-01T12:30:00+0000\",\"floor\":1.4375}\n", batch_size);
    for (int s = 0; s <= steps; s++) {
        double loss = end + (11.0 - end) * exp(-20.0 * s / steps) + 0.01 * rng_normal(3, RNG_TEST, (uint64_t)s);
        if (s == steps / 2) { loss = 5.55; }
        if (s % (steps / 10) == 0) {
            double val = s == steps / 10 * 9 ? end : loss + 1.0; // the best is not the last
            fprintf(f, "{\"kind\":\"val\",\"step\":%d,\"loss\":%.6f}\n", s, val);
        }
        if (s == 0) { continue; }
        fprintf(f, "{\"kind\":\"train\",\"step\":%d,\"tokens\":%d,\"loss\":%.6f,\"norm\":%.4f,\"lr\":%.4g,"
                "\"ms\":250.0,\"tok_s\":4000,\"mfu\":%.1f,\"loss_z\":null,\"norm_z\":null}\n", s, 1000 * s, loss,
                15.0 * exp(-0.1 * s) + 0.2, 6e-4 * s / steps, s % 2 ? 0.4 : 0.6);
    }
    fprintf(f, "{\"kind\":\"save\",\"step\":%d,\"path\":\"run/step_1\"}\n"
            "{\"kind\":\"skip\",\"step\":2,\"what\":\"loss\",\"z\":6.5}\n"
            "{\"kind\":\"skip\",\"step\":3,\"what\":\"grad\",\"z\":null}\n"
            "{\"kind\":\"skip\",\"step\":3,\"what\":\"overflow\",\"loss_scale\":65536.0}\n", steps);
    fprintf(f, "{\"kind\":\"sample\",\"step\":0,\"text\":\"first <b> & \\\"x\\\" \\u0001 \xe2\x82\xac\"}\n"
            "{\"kind\":\"sample\",\"step\":1,\"text\":\"in between\"}\n"
            "{\"kind\":\"sample\",\"step\":%d,\"text\":\"the last\"}\n", steps);
    fprintf(f, "{\"kind\":\"eval\",\"step\":1,\"name\":\"HellaSwag\",\"correct\":1,\"total\":4,"
            "\"accuracy\":0.2955}\n");
    close_text_stream(f, "metrics.jsonl");
    char* folder = make_run(name, metrics);
    free(metrics);
    return folder;
}

// Returns the report on these runs; NULL and an error on failure.
static char* report_on(char** folders, int n, Error* err) {
    char* out = test_path("report.html");
    char* text = report_write(out, (const char* const*)folders, n, err) ? read_file(out, NULL, err) : NULL;
    return text;
}

// Checks that the text is well-formed XML as far as the page uses it: tags nest, attributes are quoted, "<" and "&"
// stand only where markup or a reference begins, control characters nowhere, and all is UTF-8.
static bool well_formed(const char* text) {
    enum { DEPTH = 32 };
    const char *open_tag[DEPTH], *p = text;
    int depth = 0, roots = 0;
    for (const char* c = text; *c;) {
        uint32_t code_point;
        size_t n = utf8_decode(c, c + strlen(c), &code_point);
        if (n == 0 || ((unsigned char)*c < 32 && *c != '\n' && *c != '\t')) { return false; }
        c += n;
    }
    if (strncmp(p, "<!DOCTYPE html>\n", 16) != 0) { return false; }
    for (p += 16; *p;) {
        if (*p == '&') {
            size_t digits = strncmp(p, "&#", 2) == 0 ? strspn(p + 2, "0123456789") : 0;
            if (digits == 0 || p[2 + digits] != ';') { return false; }
            p += 3 + digits;
            continue;
        }
        if (*p != '<') {
            if (depth == 0 && *p != '\n') { return false; }
            p++;
            continue;
        }
        if (strncmp(p, "<![CDATA[", 9) == 0) {
            p = strstr(p, "]]>");
            if (!p || depth == 0) { return false; }
            p += 3;
            continue;
        }
        bool closing = *++p == '/';
        p += closing;
        const char* name = p;
        size_t size = strspn(p, "abcdefghijklmnopqrstuvwxyz123");
        if (size == 0) { return false; }
        p += size;
        if (closing) {
            if (*p++ != '>' || depth == 0) { return false; }
            const char* opened = open_tag[--depth];
            if (strncmp(opened, name, size) != 0 || !strchr(" >", opened[size])) { return false; }
            continue;
        }
        while (*p == ' ') {
            p += 1 + strspn(p + 1, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-");
            if (p[0] != '=' || p[1] != '"') { return false; }
            for (p += 2; *p && *p != '"'; p++) {
                if (*p == '<') { return false; }
            }
            if (*p++ != '"') { return false; }
        }
        bool empty = *p == '/';
        p += empty;
        if (*p++ != '>' || (depth == 0 && roots++ > 0) || depth == DEPTH) { return false; }
        if (!empty) { open_tag[depth++] = name; }
    }
    return depth == 0 && roots == 1;
}

static size_t count_of(const char* text, const char* words) {
    size_t n = 0;
    for (const char* p = text; (p = strstr(p, words)) != NULL; p += strlen(words)) { n++; }
    return n;
}

static void expect_all(const char* text, const char* const* words, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (!strstr(text, words[i])) { TEST_FAIL("the report lacks %s", words[i]); }
    }
}

#define EXPECT_ALL(text, ...)                                              \
    do {                                                                   \
        static const char* const words_[] = {__VA_ARGS__};                 \
        expect_all(text, words_, sizeof words_ / sizeof words_[0]);        \
    } while (0)

static void expect_in_order(const char* text, const char* const* words, size_t n) {
    for (size_t i = 0; i < n; i++) {
        text = text ? strstr(text, words[i]) : NULL;
        if (!text) { TEST_FAIL("%s does not stand after %s", words[i], i ? words[i - 1] : "the beginning"); }
    }
}

#define EXPECT_IN_ORDER(text, ...)                                         \
    do {                                                                   \
        static const char* const words_[] = {__VA_ARGS__};                 \
        expect_in_order(text, words_, sizeof words_ / sizeof words_[0]);   \
    } while (0)

TEST(checker) {
    EXPECT(well_formed("<!DOCTYPE html>\n<a b=\"&#60;\"><p/>x > y<![CDATA[1 < 2]]></a>\n"));
    static const char* const bad[] = {"<a>", "</a>", "<a></b>", "<a></ab>", "<ab></a>", "<a><b></a></b>", "<a b></a>",
                                      "<a>&</a>", "<a b=\"<\"/>", "<a>1 < 2</a>", "<a/><b/>", "<a>\001</a>",
                                      "<a>\xff</a>", "<a>&#;</a>", "<a><![CDATA[</a>"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char* text = format("<!DOCTYPE html>\n%s", bad[i]);
        if (well_formed(text)) { TEST_FAIL("not well-formed, but accepted: %s", bad[i]); }
        free(text);
    }
}

TEST(one_run) {
    Error err;
    char* folder = make_curve("one <&\"run\"> \xc3\xa9", 400, 3.272251, 64);
    char* text = report_on(&folder, 1, &err);
    EXPECT(text && well_formed(text));
    if (!text) { printf("%s\n", err.text); return; }
    EXPECT_ALL(text, "<h1>one &#60;&#38;&#34;run&#34;&#62; \xc3\xa9</h1>", "H100 &#60;8&#62;", "2026-03-01 12:30",
               "train_gpt2cu", "124M parameters", "<span>Best val loss</span><b>3.2723</b>",
               "<span>Smoothed train loss</span>",
               "<span>Steps</span><b>400</b>", "<span>Tokens</span><b>400k</b>",
               "<span>Training time</span><b>1:40</b>", "<span>Tokens/s</span><b>4.00k</b>",
               "<span>Mean MFU</span><b>50.0%</b>", "<span>HellaSwag, 4 questions</span><b>29.55%</b>");
    EXPECT_ALL(text, "first &#60;b&#62; &#38; &#34;x&#34; \xef\xbf\xbd \xe2\x82\xac</pre>", "the last</pre>",
               "floor: 1.4375", "<dt>batch_size</dt><dd>64</dd>", "<dt>model.L</dt><dd>12</dd>", "run/step_1",
               "loss z-score 6.50", "grad is not finite", "overflow with a loss scale of 65536", "\nloss: [[1,1",
               "\nval: [[0,1", ",[360,3.272251],", "\ntokens: [[1,1000],[2,2000],");
    EXPECT(!strstr(text, "class=\"differs\""));
    EXPECT_IN_ORDER(text, "<h3>Other than the defaults</h3>", "<dt>lr</dt><dd>0.0006</dd>", "<dt>batch_size</dt>",
                    "<h3>Defaults, model and machine</h3>", "<dt>beta1</dt>", "<dt>model.L</dt>");
    const char* between = strstr(text, "<details><summary>1 between</summary>\n"
                                       "<div><h3>step 1</h3><pre>in between</pre>");
    EXPECT(between && strstr(text, "first &#60;b&#62;") < between && strstr(between, "the last</pre>"));
    EXPECT(count_of(text, "http") == 2 && !strstr(text, "src=") && !strstr(text, "url(")); // names of XML; no loads
    free(text);
}

TEST(several_runs) {
    Error err;
    char* folders[3] = {make_curve("a", 400, 3.25, 64), make_curve("b", 300, 3.5, 32), make_run("empty", "")};
    char* text = report_on(folders, 3, &err);
    EXPECT(text && well_formed(text));
    if (!text) { return; }
    EXPECT_ALL(text, "<h1>3 runs compared</h1>", "<th>Best val loss</th>", "</i>a</th>", "<td>3.2500</td>",
               "<td>3.5000</td>", "<tr class=\"differs\"><th>batch_size</th><td>64</td><td>32</td><td></td>",
               "Events of a (4)", "<h2>Samples of b</h2>", "<h2>Samples of a</h2>", "\nloss: [],\n");
    free(text);
    text = report_on(folders, 2, &err);
    EXPECT_IN_ORDER(text, "<tr class=\"differs\"><th>batch_size</th>", "<tr><th>lr</th>", "<tr><th>beta1</th>");
    free(text);
}

// Each row has its own run's results, in the columns of all. Folders of one name are told apart by their paths.
TEST(runs_of_one_name_have_their_own_rows) {
    Error err;
    static const char eval[] = "{\"kind\":\"eval\",\"step\":1,\"name\":\"%s\",\"accuracy\":%g}\n";
    char *one = format(eval, "X", 0.25), *y = format(eval, "Y", 0.5), *x = format(eval, "X", 0.75);
    char* two = format("%s%s", y, x);
    char* folders[] = {make_run("1/run", one), make_run("2", two), make_run("3/run", "")};
    char* text = report_on(folders, 3, &err);
    EXPECT(text && well_formed(text));
    EXPECT_IN_ORDER(text, "<th>X</th><th>Y</th></tr>", "<i class=\"c0\"></i>/", "/1/run</th>", "<td>25.00%</td>",
                    "<i class=\"c1\"></i>/", "/2</th>", "<td>75.00%</td><td>50.00%</td></tr>",
                    "<i class=\"c2\"></i>/", "/3/run</th>", "</table>");
    EXPECT(text && count_of(text, "<td>25.00%</td>") == 1 && count_of(text, "<td>75.00%</td>") == 1);
    free(text);
    free(one);
    free(y);
    free(x);
    free(two);
}

// Scores by other rules, with other examples or of other questions are no rivals: each has a column of its own.
TEST(scores_that_cannot_be_compared_have_their_own_columns) {
    Error err;
    static const char eval[] =
        "{\"kind\":\"eval\",\"step\":1,\"name\":\"X\",\"rules\":\"%s\",\"total\":%d,\"accuracy\":%g}\n";
    char *llmc = format(eval, "llm.c's rules: a, b; 0 examples in front", 10042, 0.25),
         *fewer = format(eval, "llm.c's rules: a, b; 0 examples in front", 100, 0.5),
         *harness = format(eval, "lm-eval's rules: c; 0 examples in front", 10042, 0.75),
         *shots = format(eval, "lm-eval's rules: c; 5 examples in front", 10042, 0.125);
    char *both = format("%s%s", harness, shots), *changed = format("%s%s", llmc, fewer);
    char* folders[] = {make_run("one", changed), make_run("two", both)};
    char* text = report_on(folders, 2, &err);
    EXPECT(text && well_formed(text));
    if (!text) { return; }
    EXPECT_IN_ORDER(text, "<th>X, llm.c&#39;s rules, 10042 questions</th>",
                    "<th>X, llm.c&#39;s rules, 100 questions</th>", "<th>X, lm-eval&#39;s rules, 10042 questions</th>",
                    "<th>X, lm-eval&#39;s rules, 5 examples in front, 10042 questions</th>", "</i>one</th>",
                    "<td>25.00%</td>", "<td>50.00%</td>", "</i>two</th>", "<td>75.00%</td>", "<td>12.50%</td>");
    free(text);
    free(both);
    free(changed);
    free(llmc);
    free(fewer);
    free(harness);
    free(shots);
}

// Of many events the first and the last are shown: these say how the run ended.
TEST(many_events_end_with_the_last) {
    Error err;
    char *records, *folder, *text;
    size_t size;
    FILE* f = open_text_stream(&records, &size, "metrics.jsonl");
    fprintf(f, "{\"kind\":\"config\",\"step\":0}\n{\"kind\":\"train\",\"step\":1,\"tokens\":8,\"loss\":5.0}\n");
    for (int i = 1; i <= 250; i++) { fprintf(f, "{\"kind\":\"save\",\"step\":%d,\"path\":\"p%d.\"}\n", i, i); }
    fprintf(f, "{\"kind\":\"end\",\"step\":250,\"reason\":\"spike\",\"words\":\"too high\"}\n");
    close_text_stream(f, "metrics.jsonl");
    folder = make_run("many", records);
    text = report_on(&folder, 1, &err);
    EXPECT(text && well_formed(text));
    EXPECT_IN_ORDER(text, ">p100.<", "<td>51 more</td>", ">p152.<", ">p250.<", "<td>spike</td><td>too high<");
    EXPECT(text && !strstr(text, ">p101.<") && !strstr(text, ">p151.<") && count_of(text, "<td>saved</td>") == 199);
    free(text);
    free(records);
}

// A long run stays a small page, and thinning keeps its spike and its last point.
TEST(long_run_is_thinned) {
    Error err;
    char* folder = make_curve("long", 20000, 3.25, 64);
    char* text = report_on(&folder, 1, &err);
    EXPECT(text && well_formed(text) && strlen(text) < 150000);
    if (!text) { return; }
    const char *at = strstr(text, "\nloss: ["), *end = strchr(at + 1, '\n');
    double step = 0, loss = 0, highest = 0, points = 0;
    while (at < end && (at = strpbrk(at, "[")) != NULL && at < end) {
        if (sscanf(at++, "[%lf,%lf]", &step, &loss) != 2) { continue; }
        if (step == 10000) { highest = loss; }
        points++;
    }
    EXPECT(highest == 5.55 && step == 20000 && points > 900 && points <= 1001);
    free(text);
}

TEST(long_run_may_begin_with_a_point_that_is_left_out) {
    Error err;
    char* metrics = NULL;
    for (int s = 1; s <= 2000; s++) {
        append_format(&metrics, "{\"kind\":\"train\",\"step\":%d,\"loss\":%d}\n", s, s % 4 == 1 ? 2 : s % 4);
    }
    char* folder = make_run("waves", metrics);
    char* text = report_on(&folder, 1, &err);
    EXPECT(text && strstr(text, "\nloss: [[3,3],[4,0],[7,3],"));
    free(text);
    free(metrics);
}

TEST(floors_and_published_losses) {
    Error err;
    static const char* const shards[] = {"data/fineweb_val_000000.bin", "data/finewebedu_val_000000.bin", "mine.bin"};
    static const char* const expected[] = {
        "published: { name: \"OpenAI's GPT-2 124M\", value: 3.425, curveName: \"llm.c 124M\", curve: [[0,11.009],",
        "published: { name: \"OpenAI's GPT-2 124M\", value: 3.2924, curveName: \"\", curve: []", "floor: 3.1"};
    for (int i = 0; i < 3; i++) {
        char* metrics = format("{\"kind\":\"config\",\"step\":0,\"model\":{\"parameters\":124439808},\"floor\":3.1,"
                               "\"options\":{\"val_data\":\"%s\",\"tokenizer\":\"gpt2\"}}\n", shards[i]);
        char *folder = make_run("published", metrics), *text = report_on(&folder, 1, &err);
        EXPECT(text && well_formed(text) && strstr(text, expected[i]));
        EXPECT((strstr(text, "published: {") != NULL) == (i < 2));
        free(text);
        free(metrics);
    }
}

// Losses on other files, on fewer of their windows or on longer ones are of no use to find the best.
TEST(the_best_is_of_what_the_last_start_validated_on) {
    static const char metrics[] =
        "{\"kind\":\"config\",\"step\":0,\"options\":{\"val_data\":\"easy\",\"val_tokens\":64}}\n"
        "{\"kind\":\"val\",\"step\":2,\"loss\":1.5}\n"
        "{\"kind\":\"config\",\"step\":2,\"options\":{\"val_data\":\"hard\",\"val_tokens\":64}}\n"
        "{\"kind\":\"val\",\"step\":4,\"loss\":4.5}\n{\"kind\":\"val\",\"step\":6,\"loss\":5.5}\n"
        "{\"kind\":\"config\",\"step\":6,\"options\":{\"val_data\":\"\"}}\n"
        "{\"kind\":\"config\",\"step\":3,\"options\":{\"val_data\":\"hard\",\"val_tokens\":64}}\n"
        "{\"kind\":\"val\",\"step\":4,\"loss\":3.5}\n{\"kind\":\"val\",\"step\":6,\"loss\":3.75}\n";
    Error err;
    Run run;
    char* folder = make_run("harder", metrics);
    EXPECT(run_read(&run, folder, &err));
    EXPECT(run.series[RUN_VAL].count == 3 && run.best_val == 3.5 && run.best_step == 4);
    run_free(&run);
    char* back = format("%s{\"kind\":\"config\",\"step\":3,\"options\":{\"val_data\":\"easy\",\"val_tokens\":64}}\n",
                        metrics); // and the first validation is the last
    EXPECT(run_read(&run, make_run("easier", back), &err));
    EXPECT(run.series[RUN_VAL].count == 1 && run.best_val == 1.5 && run.best_step == 2);
    run_free(&run);
    free(back);
}

// A start goes on at step 2 of 4: what it does again is superseded, and counts as lost.
TEST(the_last_record_of_a_step_counts) {
    static const char metrics[] =
        "{\"kind\":\"config\",\"step\":0,\"floor\":0.25}\n"
        "{\"kind\":\"eval\",\"step\":2,\"name\":\"both\",\"accuracy\":0.5}\n"
        "{\"kind\":\"eval\",\"step\":4,\"name\":\"both\",\"accuracy\":1.0}\n"
        "{\"kind\":\"train\",\"step\":1,\"loss\":9.0,\"ms\":1000.0,\"mfu\":0.5,\"tokens\":10}\n"
        "{\"kind\":\"train\",\"step\":2,\"loss\":8.0,\"ms\":1000.0,\"mfu\":0.5,\"tokens\":20}\n"
        "{\"kind\":\"save\",\"step\":2,\"path\":\"two\"}\n"
        "{\"kind\":\"val\",\"step\":2,\"loss\":8.5}\n{\"kind\":\"sample\",\"step\":2,\"text\":\"old\"}\n"
        "{\"kind\":\"train\",\"step\":3,\"loss\":null,\"ms\":5000.0,\"mfu\":0.1,\"tokens\":30}\n"
        "{\"kind\":\"skip\",\"step\":3,\"what\":\"loss\",\"z\":9.0}\n"
        "{\"kind\":\"train\",\"step\":4,\"loss\":1.0,\"ms\":5000.0,\"mfu\":0.1,\"tokens\":40}\n"
        "{\"kind\":\"val\",\"step\":4,\"loss\":0.5}\n{\"kind\":\"sample\",\"step\":4,\"text\":\"lost\"}\n"
        "{\"kind\":\"eval\",\"step\":4,\"name\":\"set\",\"accuracy\":1.0}\n"
        "{\"kind\":\"save\",\"step\":4,\"path\":\"four\"}\n"
        "{\"kind\":\"end\",\"step\":4,\"reason\":\"spike\"}\n{\"kind\":\"train\",\"st\n"
        "{\"kind\":\"config\",\"step\":2}\n"
        "{\"kind\":\"val\",\"step\":2,\"loss\":8.25}\n{\"kind\":\"sample\",\"step\":2,\"text\":\"new\"}\n"
        "{\"kind\":\"train\",\"step\":3,\"loss\":7.0,\"ms\":2000.0,\"mfu\":0.8,\"tokens\":35}\n";
    Error err;
    Run run;
    char* folder = make_run("again", metrics);
    EXPECT(run_read(&run, folder, &err));
    EXPECT(run.steps == 3 && run.series[RUN_LOSS].count == 3 && series_last(&run.series[RUN_LOSS]) == 7);
    EXPECT(series_last(&run.series[RUN_TOKENS]) == 35 && run_total_seconds(&run) == 4);
    EXPECT(run.series[RUN_VAL].count == 1 && run.best_val == 8.25 && run.best_step == 2);
    EXPECT(run.series[RUN_MFU].count == 3 && json_array_size(run.starts) == 2 && !run.end);
    EXPECT(json_array_size(run.samples) == 1 && !strcmp(record_text(json_array_get(run.samples, 0), "text"), "new"));
    EXPECT(json_object_size(run.evals) == 1 && record_number(json_object_get(run.evals, "both"), "accuracy") == 0.5);
    EXPECT(isnan(run.floor)); // the last start validated on other data
    const json_t* start = json_array_get(run.starts, 1);
    EXPECT(record_number((json_t*)start, "lost_steps") == 2 && record_number((json_t*)start, "lost_ms") == 10000);
    EXPECT(json_array_size(run.events) == 3); // the first save, the end, and the second start
    run_free(&run);
}

// Squares, whose mean over r steps in both directions is r (r + 1) / 3 more than the middle one: of 200 steps r is
// 4, but at most a fourth of the steps before; at the end the steps that are missing are left out.
TEST(losses_are_smoothed_over_a_part_of_the_run) {
    enum { STEPS = 200 };
    Error err;
    Run run;
    char* metrics = NULL;
    for (int s = 1; s <= STEPS; s++) {
        append_format(&metrics, "{\"kind\":\"train\",\"step\":%d,\"loss\":%d}\n", s, s * s);
    }
    EXPECT(run_read(&run, make_run("squares", metrics), &err) && run.series[RUN_SMOOTH].count == STEPS);
    const Point* smooth = run.series[RUN_SMOOTH].at;
    EXPECT(smooth[1].x == 2 && smooth[1].y == 4);
    EXPECT_NEAR(smooth[8].y, 81 + 2, 1e-9);
    EXPECT_NEAR(smooth[100].y, 10201 + 20.0 / 3, 1e-9);
    EXPECT_NEAR(smooth[STEPS - 1].y, 39206, 1e-9); // of the last five
    run_free(&run);
    free(metrics);
}

// A page is written, whatever is missing or strange.
TEST(strange_runs) {
    static const char* const metrics[] = {
        "",
        "\n\n{}\n[1]\n\"x\"\n12\nnot json\n"
        "{\"kind\":7,\"step\":1}\n{\"kind\":\"train\"}\n",
        "{\"kind\":\"train\",\"step\":1,\"tokens\":10,\"loss\":5.0,\"norm\":1.0,\"lr\":0.0,\"ms\":1.0,\"tok_s\":10}\n",
        "{\"kind\":\"train\",\"step\":1,\"loss\":null,\"norm\":null}\n{\"kind\":\"train\",\"step\":2,\"loss\":null}\n",
        "{\"kind\":\"train\",\"step\":1,\"tokens\":10,\"loss\":1e300,\"norm\":1e-300}\n"
        "{\"kind\":\"train\",\"step\":2,\"tokens\":5,\"loss\":-1e300,\"norm\":1e300}\n"
        "{\"kind\":\"val\",\"step\":1,\"loss\":1e300}\n",
        "{\"kind\":\"train\",\"step\":1,\"loss\":5.0,\"norm\":0.0,\"lr\":-1.0}\n"
        "{\"kind\":\"train\",\"step\":2,\"norm\":0.0}\n",
        "{\"kind\":\"val\",\"step\":0,\"loss\":3.0}\n{\"kind\":\"val\",\"step\":1,\"loss\":3.0}\n",
        "{\"kind\":\"train\",\"step\":9223372036854775807,\"tokens\":9223372036854775807,\"loss\":5.0}\n",
        "{\"kind\":\"train\",\"step\":-5,\"tokens\":-7,\"loss\":5.0}\n{\"kind\":\"val\",\"step\":-9,\"loss\":5.0}\n",
        "{\"kind\":\"config\",\"step\":0,\"options\":[1],\"model\":\"x\",\"device\":null,\"date\":1,\"floor\":-1e300}\n"
        "{\"kind\":\"config\",\"step\":5,\"lost_steps\":7,\"options\":{\"<\":{\"a\":[1,2]},\"&\":\"\\\"\"}}\n",
        "{\"kind\":\"sample\",\"step\":0}\n{\"kind\":\"eval\",\"step\":0}\n"
        "{\"kind\":\"skip\",\"step\":0}\n{\"kind\":\"save\",\"step\":1}\n",
        "{\"kind\":\"train\",\"step\":1,\"loss\":5.0}\n{\"kind\":\"train\",\"step\":2,\"lo",
    };
    enum { COUNT = sizeof metrics / sizeof metrics[0] };
    Error err;
    char *folders[COUNT], *text;
    for (int i = 0; i < COUNT; i++) {
        char* name = format("strange%d", i);
        folders[i] = make_run(name, metrics[i]);
        free(name);
        text = report_on(&folders[i], 1, &err);
        EXPECT(text && well_formed(text));
        if (!text) { continue; }
        if (!well_formed(text) || strstr(text, "nan,") || strstr(text, "nan]") || strstr(text, "inf]")) {
            TEST_FAIL("in run %d", i);
        }
        if (i == 0) { EXPECT(strstr(text, "not recorded") && strstr(text, "floor: null")); }
        if (i == 3) { EXPECT(count_of(text, "<td>loss not finite</td>") == 2); }
        if (i == 9) { EXPECT(strstr(text, "<dt>&#38;</dt><dd>&#34;</dd>") && strstr(text, "<td>resumed</td>")); }
        if (i == 9) { EXPECT(strstr(text, ", 7 steps done again</td>") && !strstr(text, "<dt>lost_steps")); }
        if (i == 11) { EXPECT(strstr(text, "<span>Steps</span><b>1</b>")); }
        free(text);
    }
    text = report_on(folders, COUNT, &err); // more runs than colors
    EXPECT(text && well_formed(text));
    free(text);
}

TEST(numbers) {
    char t[32];
    static const struct { double v; const char* text; } values[] = {
        {3.27218, "3.2722"}, {10.9801, "10.98"}, {6e-5, "6e-5"}, {0.001, "0.001"}, {0.0, "0"}, {2449.7, "2.45k"},
        {1e30, "1e30"}};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        if (strcmp(value_text(t, values[i].v), values[i].text) != 0) { TEST_FAIL("%s for %s", t, values[i].text); }
    }
}

TEST(errors_name_the_file) {
    Error err;
    char* folders[2] = {make_curve("good", 20, 3.0, 64), test_path("missing")};
    EXPECT(report_on(folders, 2, &err) == NULL && strstr(err.text, "missing/metrics.jsonl"));
    EXPECT(report_on(folders, 0, &err) == NULL && strstr(err.text, "no run"));
    const char *page = test_path("page.html"), *other = test_path("other.html");
    EXPECT(report_write(page, (const char* const*)folders, 1, &err) && report_may_replace(page, &err));
    EXPECT(write_file_atomically(other, "<!DOCTYPE html>\n", 16, &err) && !report_may_replace(other, &err));
    EXPECT(!report_write("/nowhere/report.html", (const char* const*)folders, 1, &err));
    EXPECT(strstr(err.text, "/nowhere/") != NULL);
}

TEST_MAIN()
