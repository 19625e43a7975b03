// Tests what `generate` prints: texts in order and in whole characters, the table of log-probabilities, JSON.
#include "llmc/commands/answers.h"
#include "llmc/tokenizer/tokenizer_open.h"
#include "test/test.h"

typedef struct {
    size_t text;
    const char* bytes; // of its next token, whose id is the first of them; NULL: the text ends
    TextEnd end;
} Step;

// Takes the steps of texts. Expects this to be printed, with '|' in front of what a step adds.
static void expect_printed(const char* expected, AnswerOptions o, const Step* steps, size_t count) {
    char *all = NULL, added[1024];
    Tokenizer t = tokenizer_bytes();
    const Candidate best[2] = {{-0.25f, 'b'}, {-0.5f, 'a'}};
    o.tokenizer = &t;
    fflush(stdout);
    const int terminal = dup(1);
    FILE* file = tmpfile();
    if (!file || terminal < 0 || dup2(fileno(file), 1) < 0) { fatal("a temporary file: %s", strerror(errno)); }
    Answers a = answers_open(&o);
    const TextSink sink = answers_sink(&a);
    off_t at = 0;
    for (const Step* s = steps; s <= steps + count; s++) {
        const ssize_t n = pread(fileno(file), added, sizeof added, at); // of the steps before
        append_format(&all, "%s%.*s", s > steps ? "|" : "", (int)n, added);
        at += n;
        if (s == steps + count) { break; }
        if (!s->bytes) { sink.end(&a, s->text, s->end); continue; }
        sink.token(&a, &(NextToken){.text = s->text, .id = (unsigned char)*s->bytes, .bytes = s->bytes,
                                    .size = strlen(s->bytes), .logprob = -0.5, .best = best});
    }
    dup2(terminal, 1);
    close(terminal);
    fclose(file);
    if (strcmp(all, expected)) { TEST_FAIL("printed:\n%s", all); }
    answers_close(&a);
    tokenizer_free(&t);
    free(all);
}

TEST(texts_come_in_order_in_whole_characters_and_with_their_tokens) {
    const Prompts two = {.prompt = (Prompt[]){{"P", 1}, {"Q", 1}}, .count = 2}, one = {two.prompt, 1, NULL};
    static const Step text[] = {{2, "late", 0}, {0, "\xf0\x9f", 0}, {0, "\x98", 0}, {0, "\x80!", 0}, {0, "\xc3", 0},
                                {2, NULL, ENDED_BY_EOT}, {0, NULL, ENDED_BY_LENGTH}, {1, NULL, ENDED_BY_EOT}};
    expect_printed("=== prompt 1, sample 1 ===\nP||||\xf0\x9f\x98\x80!|||\xc3\n=== prompt 1, sample 2 ===\nP|"
                   "\n=== prompt 2, sample 1 ===\nQlate\n=== prompt 2, sample 2 ===\nQ",
                   (AnswerOptions){.prompts = &two, .samples = 2, .repeats_prompt = true}, text, 8);
    static const Step table[] = {{0, "a", 0}, {0, "\xc3", 0}, {0, NULL, ENDED_BY_EOT}};
    expect_printed("token                  logprob  the likeliest\n"
                   "|\"a\"                    -0.5000  \"b\"            -0.2500  \"a\"            -0.5000\n"
                   "|\"\xef\xbf\xbd\"                    -0.5000  \"b\"            -0.2500  \"a\"            -0.5000\n"
                   "|sum                    -1.0000\n",
                   (AnswerOptions){.prompts = &one, .samples = 1, .alternatives = 2}, table, 3);
    static const Step json[] = {{1, "a", 0}, {1, NULL, ENDED_BY_EOT}, {0, NULL, ENDED_BY_LENGTH},
                                {2, NULL, ENDED_BY_SINK}};
    expect_printed("|||{\"prompt\":\"P\",\"sample\":1,\"text\":\"\",\"ids\":[],\"end\":\"length\",\"logprob\":0.0,"
                   "\"tokens\":[]}\n{\"prompt\":\"P\",\"sample\":2,\"text\":\"a\",\"ids\":[97],\"end\":\"eot\","
                   "\"logprob\":-0.5,\"tokens\":[{\"id\":97,\"text\":\"a\",\"logprob\":-0.5,\"best\":[{\"id\":98,"
                   "\"text\":\"b\",\"logprob\":-0.25}]}]}\n|{\"prompt\":\"P\",\"sample\":3,\"text\":\"\",\"ids\":[],"
                   "\"end\":\"interrupt\",\"logprob\":0.0,\"tokens\":[]}\n",
                   (AnswerOptions){.prompts = &one, .samples = 3, .alternatives = 1, .is_json = true}, json, 4);
}

TEST_MAIN()
