// Windows that a run leaves out: their ranges, and the order that is left, against a list of all windows.
#include "llmc/data/skip_windows.h"
#include "test/test.h"

static SkipWindows parsed(const char* text) {
    SkipWindows s;
    Error err;
    if (!skip_windows_parse(&s, text, &err)) { TEST_FAIL("%s", err.text); }
    return s;
}

static void expect_text(const char* text, const char* want) {
    SkipWindows s = parsed(text);
    char* got = skip_windows_text(&s);
    if (strcmp(got, want)) { TEST_FAIL("%s is %s, not %s", text, got, want); }
    free(got);
    skip_windows_free(&s);
}

TEST(ranges_come_back_in_order_and_joined) {
    expect_text("", "");
    expect_text("7", "7");
    expect_text("960-1119", "960-1119");
    expect_text("20-29,5,0-2", "0-2,5,20-29");
    expect_text("3-5,6", "3-6");
    expect_text("6,3-5", "3-6");
    expect_text("1-2,5-6,9,2-8", "1-9");
    expect_text("1-9,3", "1-9");
    expect_text("4,1-9", "1-9");
    expect_text("9223372036854775806", "9223372036854775806");
}

TEST(other_texts_are_refused) {
    static const char* const texts[] = {"x", "-", "5-", "-5", "5-4", "1,", ",1", "1,,2", "1 ", " 1", "+1", "1-2-3",
                                        "1;2", "9223372036854775807", "99999999999999999999"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        SkipWindows s;
        Error err;
        if (skip_windows_parse(&s, texts[i], &err)) { TEST_FAIL("'%s' was taken", texts[i]); }
        else { EXPECT(strstr(err.text, texts[i]) && !s.range); }
    }
}

TEST(the_windows_that_are_left_keep_their_order) {
    enum { ALL = 40 };
    static const char* const texts[] = {"", "0", "0-3", "5", "5-6,8,20-29", "1,3,5,7,9", "39-99"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        SkipWindows s = parsed(texts[i]);
        uint64_t left[ALL], count = 0;
        for (uint64_t w = 0; w < ALL; w++) {
            bool is_out = false;
            for (size_t k = 0; k < s.count; k++) { is_out = is_out || (w >= s.range[k].first && w < s.range[k].end); }
            if (!is_out) { left[count++] = w; }
        }
        for (uint64_t w = 0; w < ALL; w++) {
            uint64_t at = 0; // of the first that is left from w on
            while (at < count && left[at] < w) { at++; }
            for (uint64_t n = 0; at + n < count; n++) {
                if (skip_windows_next(&s, w, n) == left[at + n]) { continue; }
                TEST_FAIL("%s: %d after %d", texts[i], (int)n, (int)w);
            }
        }
        skip_windows_free(&s);
    }
    EXPECT(skip_windows_next(NULL, 7, 3) == 10);
}

TEST(a_run_knows_whether_it_has_seen_them) {
    SkipWindows s = parsed("10-19,30-39"), none = parsed(""), first = parsed("10-19"), more = parsed("5-25,30-34");
    EXPECT(!skip_windows_were_trained(&s, 0, &none) && !skip_windows_were_trained(&s, 10, &none));
    EXPECT(skip_windows_were_trained(&s, 11, &none) && skip_windows_were_trained(&s, 100, &none));
    EXPECT(!skip_windows_were_trained(&s, 30, &first) && skip_windows_were_trained(&s, 31, &first));
    EXPECT(!skip_windows_were_trained(&s, 35, &more) && skip_windows_were_trained(&s, 36, &more));
    EXPECT(!skip_windows_were_trained(&none, 100, &none) && !skip_windows_were_trained(&s, 100, &s));
    skip_windows_free(&s);
    skip_windows_free(&first);
    skip_windows_free(&more);
}

TEST_MAIN()
