// The page of `inspect` shows each fact in its place, with made-up facts that are all different.
#include "llmc/inspect/inspect_page.h"
#include "test/test.h"

enum { T = 3, L = 2, NH = 2, PARTS = NH + 2 };

// Two heads of each layer; token t attends to token k <= t. The last row of a head has two equal shares.
static const float ATTENTION[L][NH][T][T] = {{{{1}, {0.125f, 0.875f}, {0.5f, 0.25f, 0.25f}},
                                              {{1}, {0.625f, 0.375f}, {0.25f, 0.375f, 0.375f}}},
                                             {{{1}, {0.25f, 0.75f}, {0.125f, 0.75f, 0.125f}},
                                              {{1}, {0, 1}, {0.0625f, 0, 0.9375f}}}};

// Returns the text of the page of a model that read "ab" and half of a character.
static char* page_of_facts(void) {
    Error err;
    int tokens[T] = {'a', 'b', 0xc3};
    float losses[T - 1] = {1, 2}, without[L * PARTS * (T - 1)], norms[(L + 1) * T];
    Candidate next[T * FACTS_BEST], lens[(L + 1) * T], nearest[T * FACTS_BEST];
    for (int i = 0; i < L * PARTS * (T - 1); i++) { without[i] = losses[i % (T - 1)] + 0.125f * (float)(i - 3); }
    for (int i = 0; i < (L + 1) * T; i++) {
        norms[i] = 1.5f * powf(2, (float)i);
        lens[i] = (Candidate){.id = 'k' + i, .logit = logf(0.03f * (float)(i + 1))};
    }
    lens[L * T].id = 'b';
    for (int i = 0; i < T * FACTS_BEST; i++) {
        next[i] = (Candidate){.id = 'A' + i, .logit = logf(0.06f * (float)(i + 1))};
        nearest[i] = (Candidate){.id = 'a' + i, .logit = 0.0625f * (float)i - 0.5f};
    }
    const Facts f = {.T = T, .L = L, .NH = NH, .tokens = tokens, .losses = losses, .without = without, .next = next,
                     .lens = lens, .norms = norms, .attention = (float*)ATTENTION, .nearest = nearest};
    Tokenizer tokenizer = tokenizer_bytes();
    char* path = test_path("page.html");
    EXPECT(inspect_write(path, "a <model>", &f, &tokenizer, &err));
    tokenizer_free(&tokenizer);
    return read_file(path, NULL, &err);
}

// Returns what stands in the cells of row t of the table with this caption; a string in a static place.
static const char* cells(const char* page, const char* caption, int t) {
    static char text[4096];
    char* head = format("<caption>%s</caption>", caption);
    char* begin = format("<tr data-t=\"%d\">", t);
    const char *table = strstr(page, head), *row = table ? strstr(table, begin) : NULL;
    const char *at = row ? strstr(row, "</th>") : NULL, *end = row ? strstr(row, "</tr>") : NULL;
    free(head);
    free(begin);
    if (!at || !end) { return "no such row"; }
    at += strlen("</th>");
    snprintf(text, sizeof text, "%.*s", (int)(end - at), at);
    return text;
}

// Fails unless the cells are these.
#define EXPECT_CELLS(page, caption, t, want)                                                                  \
    do {                                                                                                      \
        const char* cells_ = cells(page, caption, t);                                                         \
        if (strcmp(cells_, want)) { TEST_FAIL("%s, row %d: %s", caption, t, cells_); }                        \
    } while (0)

TEST(each_map_is_its_heads) {
    char* page = page_of_facts();
    // two digits of base 64 for each share of 4095, row after row: 1/8 is 512, 7/8 3583, 1/2 2048, 1/4 1024
    static const char* const maps[] = {
        "Layer 1, head 1\" data-map=\"__80t_W0G0G0\"", "Layer 1, head 2\" data-map=\"__d_O0G0O0O0\"",
        "Layer 2, head 1\" data-map=\"__G0l_80l_80\"", "Layer 2, head 2\" data-map=\"__00__4000x_\""};
    for (int i = 0; i < L * NH; i++) {
        if (!strstr(page, maps[i])) { TEST_FAIL("no %s in %s", maps[i], strstr(page, "data-map")); }
    }
    EXPECT_CELLS(page, "Layer 1: the token to which each token attends most, by head", 1,
                 "<td><small>2</small> b 88%</td><td><small>1</small> a 62%</td>");
    EXPECT_CELLS(page, "Layer 1: the token to which each token attends most, by head", 2, // of equal ones the first
                 "<td><small>1</small> a 50%</td><td><small>2</small> b 38%</td>");
    EXPECT_CELLS(page, "Layer 2: the token to which each token attends most, by head", 2,
                 "<td><small>2</small> b 75%</td><td><small>3</small> &#60;0xC3&#62; 94%</td>");
    free(page);
}

TEST(tables_have_each_fact_in_its_place) {
    static const char lens[] = "The likeliest token in place of each token, after the embedding and after each layer";
    static const char norms[] = "Norm of the residual stream of each token, after the embedding and after each layer";
    static const char parts[] = "Change of each token's loss when a part is switched off";
    static const char near[] = "The tokens whose embeddings are nearest to that of each token, with the cosine";
    static const char likeliest[] = "Each token, its loss in nats, its probability, and the tokens that the model "
                                    "found likeliest in its place";
    char* page = page_of_facts();
    EXPECT(strstr(page, "<title>Inside a &#60;model&#62;</title>"));
    EXPECT(strstr(page, "2 layers of 2 heads \xc2\xb7 3 tokens \xc2\xb7 mean loss 1.500 \xc2\xb7 perplexity 4.4817"));
    EXPECT_CELLS(page, likeliest, 2, "<td>2.000</td><td>14%</td><td>F <small>36%</small></td><td>G <small>42%</small>"
                 "</td><td>H <small>48%</small></td><td>I <small>54%</small></td><td>J <small>60%</small></td>");
    EXPECT_CELLS(page, lens, 1, "<td style=\"--x:0.03\">k <small>3%</small></td>"
                 "<td style=\"--x:0.12\">n <small>12%</small></td>"
                 "<td class=\"right\" style=\"--x:0.21\">b <small>21%</small></td>");
    EXPECT_CELLS(page, lens, 3, "<td style=\"--x:0.09\">m <small>9%</small></td>"
                 "<td style=\"--x:0.18\">p <small>18%</small></td><td style=\"--x:0.27\">s <small>27%</small></td>");
    EXPECT_CELLS(page, norms, 1, "<td style=\"--x:0.09\">3.00</td><td style=\"--x:0.25\">24.0</td>"
                 "<td style=\"--x:0.71\">192</td>");
    EXPECT_CELLS(page, parts, 1, "<td>-0.375</td><td>-0.125</td><td>+0.125</td><td>+0.375</td>"
                 "<td>+0.625</td><td>+0.875</td><td>+1.125</td><td>+1.375</td>");
    EXPECT_CELLS(page, near, 1, "<td>f <small>-0.19</small></td><td>g <small>-0.12</small></td>"
                 "<td>h <small>-0.06</small></td><td>i <small>0.00</small></td><td>j <small>0.06</small></td>");
    // means over the text: of the two tokens' changes, which are 0.125 apart
    EXPECT(strstr(page, "<tr><th scope=\"row\">1</th><td>-0.312</td><td>-0.062</td><td>+0.188</td><td>+0.438</td>"));
    free(page);
}

TEST_MAIN()
