#include "answers.h"
#include "commands.h"
#include "open_model.h"
#include "prompts.h"
#include "../train/requests.h"
#include "../train/open_plan.h"

// An open model, and what was generated with it.
typedef struct {
    Plan plan;
    int samples, alternatives; // of each prompt, of each token
    bool is_json;
    GPT2 model;
    Tokenizer* tokenizer;
    const char* weights; // for errors
    GenerateTimes times; // of all calls of generate()
} Session;

static bool is_interactive(const Config* c) {
    return config_source(c, "prompt") == FROM_DEFAULT && isatty(STDIN_FILENO);
}

static void tokens_free(TokenList* tokens, size_t count) {
    for (size_t i = 0; i < count; i++) { token_list_free(&tokens[i]); }
    free(tokens);
}

// Returns the tokens of each prompt, NULL if one of them is too long; tokens_free() frees them.
static TokenList* tokens_of(const Prompts* p, const Tokenizer* t, int context, Error* err) {
    TokenList* tokens = alloc_or_die(p->count, sizeof *tokens, "tokens of prompts");
    for (size_t i = 0; i < p->count; i++) {
        tokens[i] = prompt_tokens(t, p->prompt[i].text, p->prompt[i].bytes);
        if (tokens[i].count > (size_t)context) {
            fail(err, "prompt %zu has %zu tokens, but a text of this model has at most %d: shorten it", i + 1,
                 tokens[i].count, context);
            tokens_free(tokens, i + 1);
            return NULL;
        }
    }
    return tokens;
}

// Continues the prompts and prints the texts. Returns false if the weights are damaged.
static bool answer(Session* s, const Prompts* prompts, const TokenList* tokens, bool repeats_prompt) {
    Error err;
    GenerateTimes times = {.tokens = 0};
    const GenerateOptions options = {.context = s->plan.sample_context, .sampling = s->plan.phases.sampling,
                                     .max_tokens = s->plan.phases.sample_tokens, .samples = s->samples,
                                     .stops_at_eot = true, .alternatives = s->alternatives};
    Answers answers = answers_open(&(AnswerOptions){.prompts = prompts, .tokenizer = s->tokenizer,
                                                    .samples = options.samples, .alternatives = options.alternatives,
                                                    .is_json = s->is_json, .repeats_prompt = repeats_prompt});
    const TextSink sink = answers_sink(&answers);
    const bool ok = generate(&s->model, s->tokenizer, tokens, prompts->count, &options, &sink, &times, &err);
    answers_close(&answers);
    if (!ok) { notice("error: %s: %s", s->weights, err.text); }
    if (s->times.tokens == 0) { s->times.first_seconds = times.first_seconds; }
    s->times.tokens += times.tokens;
    s->times.seconds += times.seconds;
    return ok;
}

enum { LINE_MOST = 1 << 20 }; // bytes of a line of standard input, which is one prompt; chosen

// Reads a line of standard input without its newline. Returns false at the end. Ends the program if it is too long.
static bool read_line(char line[LINE_MOST], size_t* bytes) {
    int c;
    *bytes = 0;
    while ((c = getchar()) != EOF && c != '\n') {
        if (*bytes == LINE_MOST) { fatal("standard input: a line of more than %d MiB", LINE_MOST >> 20); }
        line[(*bytes)++] = (char)c;
    }
    return c != EOF || *bytes > 0;
}

// Reads prompts from the terminal, line by line, and completes them. Ctrl-C ends a completion, Ctrl-D the loop.
static bool converse(Session* s) {
    Error err;
    char* line = alloc_or_die(LINE_MOST, 1, "a line of standard input");
    size_t bytes;
    bool ok = true;
    while (ok) {
        fputs("> ", stderr);
        if (!read_line(line, &bytes)) { break; }
        if (bytes == 0) { continue; }
        Prompt prompt = {.text = line, .bytes = bytes};
        const Prompts prompts = {.prompt = &prompt, .count = 1};
        TokenList* tokens = prompt_check(&prompt, "the line", &err)
                                ? tokens_of(&prompts, s->tokenizer, s->plan.sample_context, &err) : NULL;
        if (!tokens) {
            notice("error: %s", err.text);
            continue;
        }
        requests_take_interrupts();
        ok = answer(s, &prompts, tokens, false);
        requests_end_interrupts();
        tokens_free(tokens, 1);
    }
    fputc('\n', stderr);
    free(line);
    return ok;
}

// Opens the model and its tokenizer, with memory for `slots` texts of `capacity` positions at once.
static void session_open_model(Session* s, int slots, int capacity) {
    Comm alone = comm_alone();
    Plan* plan = &s->plan;
    plan->keep = FORWARD_ONLY;
    plan->samples = slots;
    plan->sample_capacity = capacity;
    plan->B = 1;
    plan->T = max_int(capacity, slots); // a prompt goes through the model at once
    open_model(&s->model, plan, &alone);
}

static void print_times(const GenerateTimes* t) {
    if (t->tokens == 0) { return; }
    notice("generated %zu token%s: %.1f tokens/s, first after %.2f s", t->tokens, plural(t->tokens),
           (double)t->tokens / t->seconds, t->first_seconds);
}

int generate_command(Config* c, const Backend* b, enum dtype dtype) {
    Error err;
    Prompts prompts = {.count = 0};
    TokenList* tokens = NULL;
    Comm alone = comm_alone();
    const bool interactive = is_interactive(c);
    if (!interactive && !prompts_read(&prompts, c, &err)) { fatal("%s", err.text); }
    char* folder = weights_folder(c);
    Session s = {.samples = (int)c->samples, .is_json = c->json, .weights = folder ? folder : "random weights"};
    take_data_options(c, folder);
    c->document_mask = 0; // a text is one document
    if (!plan_make(&s.plan, b, dtype, c, folder, &err)) { usage_error("%s", err.text); }
    s.alternatives = min_int((int)c->logprobs, s.plan.shape.vocab_size);
    const int context = s.plan.sample_context = trained_positions(&s.plan.shape, folder);
    open_device(b, &s.plan.device, &alone);
    s.tokenizer = open_text_tokenizer(c, &s.plan, folder, "generate");
    size_t longest = (size_t)context, count = (size_t)c->samples; // if interactive
    if (!interactive) {
        tokens = tokens_of(&prompts, s.tokenizer, context, &err);
        if (!tokens) { fatal("%s", err.text); }
        longest = 0;
        for (size_t i = 0; i < prompts.count; i++) { longest = max_size(longest, tokens[i].count); }
        count *= prompts.count;
    }
    session_open_model(&s, generate_slots(count), generate_capacity(context, longest, (size_t)c->sample_tokens));
    const bool ok = interactive ? converse(&s) : answer(&s, &prompts, tokens, true);
    print_times(&s.times);
    gpt2_free(&s.model);
    close_tokenizer(s.tokenizer);
    tokens_free(tokens, prompts.count);
    prompts_free(&prompts);
    free(folder);
    return ok ? EXIT_DONE : EXIT_NONFINITE;
}
