// The story grammar: each text has one derivation, so its entropy is known exactly; the texts are as stories.h says.
#include "data/stories.h"
#include "llmc/base/rng.h"
#include "test/test.h"
#include <ctype.h>

// ---------------------------------------------------------------------------------------------------------------------
// the tables: premises of the proof in stories.h

typedef struct {
    const char* text;
    size_t bytes;
    size_t alternative;
} Beginning;

// Appends what the text at `text` can begin with: a literal, or whatever the reference there can begin with.
static size_t beginnings(const char* text, size_t alternative, Beginning* out, size_t n) {
    StorySymbol symbol;
    if (!story_next(&text, &symbol)) { TEST_FAIL("an alternative is empty"); return n; }
    if (symbol.literal) {
        Beginning b = {symbol.literal, symbol.length, alternative};
        out[n++] = b;
        return n;
    }
    for (int i = 0; symbol.pronoun[0] && i < 2; i++) {
        Beginning b = {symbol.pronoun[i], strlen(symbol.pronoun[i]), alternative};
        out[n++] = b;
    }
    for (size_t i = 0; !symbol.pronoun[0] && i < story_count(symbol.rule); i++) {
        n = beginnings(story_alternative(symbol.rule, i), alternative, out, n);
    }
    return n;
}

TEST(alternatives_differ_before_one_of_them_can_end) {
    static Beginning b[4096];
    for (int rule = 0; rule < STORY_NUM_RULES; rule++) {
        size_t n = 0;
        for (size_t i = 0; i < story_count(rule); i++) { n = beginnings(story_alternative(rule, i), i, b, n); }
        for (size_t i = 0; i < n; i++) {
            for (size_t j = 0; j < n; j++) {
                if (b[i].alternative == b[j].alternative || b[i].bytes > b[j].bytes) { continue; }
                if (memcmp(b[i].text, b[j].text, b[i].bytes) == 0) {
                    TEST_FAIL("rule %s: '%.*s' is a prefix of '%.*s'", STORY_RULES[rule].name, (int)b[i].bytes,
                              b[i].text, (int)b[j].bytes, b[j].text);
                }
            }
        }
    }
}

// No word spans two symbols: story_state_entropy() needs this for tokens that are parts of words.
TEST(references_are_not_joined_to_letters) {
    for (int rule = 0; rule < STORY_NUM_RULES; rule++) {
        const char* text = STORY_RULES[rule].text;
        for (const char* c = text; *c; c++) {
            if (*c == '<' && c > text) { EXPECT(!isalpha((unsigned char)c[-1]) && c[-1] != '>'); }
            if (*c == '>') { EXPECT(!isalpha((unsigned char)c[1])); }
        }
    }
}

static void visit(int rule, int depth, bool* visited) {
    EXPECT(depth < STORY_NUM_RULES); // deeper than there are rules: one leads back to itself
    if (depth >= STORY_NUM_RULES) { return; }
    visited[rule] = true;
    for (size_t i = 0; i < story_count(rule); i++) {
        const char* text = story_alternative(rule, i);
        for (StorySymbol symbol; story_next(&text, &symbol);) {
            if (!symbol.literal) { visit(symbol.rule, depth + 1, visited); }
        }
    }
}

TEST(rules_are_all_used_and_do_not_recur) {
    bool visited[STORY_NUM_RULES] = {false};
    visit(0, 0, visited);
    for (int rule = 0; rule < STORY_NUM_RULES; rule++) {
        if (!visited[rule]) { TEST_FAIL("rule %s is not used", STORY_RULES[rule].name); }
        double sum = 0;
        for (size_t i = 0; i < story_count(rule); i++) { sum += story_probability(rule, i); }
        EXPECT_NEAR(sum, 1, 1e-12);
        for (int i = 0; i < rule; i++) { EXPECT(strcmp(STORY_RULES[rule].name, STORY_RULES[i].name) != 0); }
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// a recognizer that tries every derivation and does not rely on the proof

// The text that follows the end of an alternative.
typedef struct Rest {
    const char* text;
    const struct Rest* next;
} Rest;

typedef struct {
    const char* end;
    int remembered[STORY_NUM_RULES]; // as in Story
    int count;                       // derivations found
    double nll;                      // of the last one
} Recognizer;

static void recognize(Recognizer* r, const char* story, const char* text, const Rest* rest, double nll) {
    StorySymbol symbol;
    if (!story_next(&text, &symbol)) {
        if (rest) { recognize(r, story, rest->text, rest->next, nll); }
        else if (story == r->end) { r->count++; r->nll = nll; }
        return;
    }
    size_t left = (size_t)(r->end - story);
    if (symbol.literal) {
        bool same = symbol.length <= left && memcmp(story, symbol.literal, symbol.length) == 0;
        if (same) { recognize(r, story + symbol.length, text, rest, nll); }
        return;
    }
    int known = r->remembered[symbol.rule];
    for (size_t i = 0; i < story_count(symbol.rule); i++) {
        if (known && (size_t)known != i + 1) { continue; }
        double cost = known ? 0 : -log(story_probability(symbol.rule, i));
        if (story_is_remembered(symbol.rule)) { r->remembered[symbol.rule] = (int)i + 1; }
        if (symbol.pronoun[0]) {
            size_t n = strlen(symbol.pronoun[i % 2]);
            bool same = n <= left && memcmp(story, symbol.pronoun[i % 2], n) == 0;
            if (same) { recognize(r, story + n, text, rest, nll + cost); }
        } else {
            Rest after = {text, rest};
            recognize(r, story, story_alternative(symbol.rule, i), &after, nll + cost);
        }
        r->remembered[symbol.rule] = known;
    }
}

static Recognizer derivations(const char* story, size_t bytes) {
    Recognizer r;
    memset(&r, 0, sizeof r);
    r.end = story + bytes;
    recognize(&r, story, STORY_RULES[0].text, NULL, 0);
    return r;
}

TEST(each_story_has_one_derivation_with_its_probability) {
    for (uint64_t index = 0; index < 400; index++) {
        Buffer story = {NULL, 0, 0};
        double nll = 0;
        story_make(RNG_TEST, index, &story, &nll);
        Recognizer r = derivations(story.data, story.bytes);
        EXPECT(r.count == 1);
        EXPECT_NEAR(r.nll, nll, 1e-9);
        EXPECT(derivations(story.data, story.bytes - 1).count == 0);
        story.data[story.bytes / 2]++;
        EXPECT(derivations(story.data, story.bytes).count == 0);
        free(story.data);
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// the stories

TEST(a_story_depends_on_seed_and_number_alone) {
    Buffer a = {NULL, 0, 0}, b = {NULL, 0, 0};
    double nll_a = 0, nll_b = 0, nll_other = 0;
    story_make(1, 5, &a, &nll_a);
    size_t bytes = a.bytes;
    story_make(1, 4, &b, &nll_other);
    size_t before = b.bytes;
    story_make(1, 5, &b, &nll_b);
    EXPECT(b.bytes - before == bytes && memcmp(a.data, b.data + before, bytes) == 0 && nll_a == nll_b);
    story_make(2, 5, &a, &nll_a);
    story_make(1, 6, &a, &nll_a);
    EXPECT(memcmp(a.data, a.data + bytes, 200) != 0); // another seed
    EXPECT(memcmp(b.data, b.data + before, 200) != 0); // another number
    free(a.data);
    free(b.data);
}

TEST(names_come_as_often_as_they_should) {
    enum { STORIES = 5000, NAMES = 20 };
    int counts[NAMES] = {0}, hero = 0;
    while (strcmp(STORY_RULES[hero].name, "HERO") != 0) { hero++; }
    EXPECT(story_count(hero) == NAMES);
    for (uint64_t index = 0; index < STORIES; index++) {
        Buffer story = {NULL, 0, 0};
        double nll = 0;
        story_make(7, index, &story, &nll);
        buffer_append(&story, "", 1);
        const char* name = strstr(story.data, " called ") + 8;
        for (size_t i = 0; i < NAMES; i++) {
            const char* alternative = story_alternative(hero, i);
            size_t n = strcspn(alternative, "|");
            counts[i] += strncmp(alternative, name, n) == 0 && name[n] == ' ';
        }
        free(story.data);
    }
    double chi2 = 0, sum = 0;
    for (size_t i = 0; i < NAMES; i++) {
        double expected = STORIES * story_probability(hero, i);
        chi2 += (counts[i] - expected) * (counts[i] - expected) / expected;
        sum += counts[i];
    }
    EXPECT_NEAR(sum, STORIES, 0);
    EXPECT_NEAR(chi2, NAMES - 1, 25); // standard deviation 6
}

static bool is_vowel(char c) { return strchr("aeiou", tolower((unsigned char)c)) != NULL; }

TEST(stories_read_well) {
    size_t bytes = 0;
    double nll = 0;
    for (uint64_t index = 0; index < 2000; index++) {
        Buffer story = {NULL, 0, 0};
        story_make(3, index, &story, &nll);
        bytes += story.bytes + 1; // and end-of-text
        EXPECT(story.bytes >= 400 && story.bytes <= 2000);
        EXPECT(story.data[story.bytes - 1] == '.');
        for (size_t i = 0; i < story.bytes; i++) {
            const char* c = story.data + i;
            EXPECT((*c >= ' ' && *c < 127 && !strchr("<>|", *c)) || *c == '\n');
            if (i + 4 >= story.bytes || c[0] != ' ') { continue; }
            EXPECT(c[1] != ' ');
            if (c[1] == 'a' && c[2] == ' ') { EXPECT(!is_vowel(c[3])); }
            if (c[1] == 'a' && c[2] == 'n' && c[3] == ' ') { EXPECT(is_vowel(c[4]) || strncmp(c, " an hour", 8) == 0); }
        }
        free(story.data);
    }
    double floor = nll / (double)bytes;
    EXPECT(floor > 0.1 && floor < 0.5); // nats per byte: not trivial, and low enough that a small model comes near it
}

TEST(state_entropy) {
    // At least: the number of combinations of what is remembered, and the places of the longest story.
    double combinations = 20.0 * 16 * 12 * 12 * 10 * 8 * 16 * 6 * 8;
    EXPECT(story_state_entropy() > log(combinations * 1000));
    EXPECT(story_state_entropy() < 40);
}

TEST_MAIN()
