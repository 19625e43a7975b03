#include "answers.h"
#include "../base/json.h"
#include "../train/requests.h"

// ---------------------------------------------------------------------------------------------------------------------
// printing in order

static void append_string(Answer* answer, char* text) {
    buffer_append(&answer->text, text, strlen(text));
    free(text);
}

// Returns how many of the bytes are whole UTF-8 characters, or can no longer become one.
static size_t whole_characters(const char* text, size_t bytes) {
    for (size_t back = 1; back <= min_size(bytes, 3); back++) {
        const unsigned char c = (unsigned char)text[bytes - back];
        if ((c & 0xc0) == 0x80) { continue; } // continues a character
        const size_t length = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;
        return length > back ? bytes - back : bytes;
    }
    return bytes;
}

static void print(Answer* answer, size_t end) {
    put_text(stdout, answer->text.data + answer->printed, end - answer->printed);
    answer->printed = end;
    if (fflush(stdout) != 0) { fatal("standard output: cannot write: %s", strerror(errno)); }
}

static const Prompt* prompt_of(const Answers* a, size_t text) {
    return &a->options.prompts->prompt[text / (size_t)a->options.samples];
}

static void print_json(Answers* a, size_t text) {
    static const char* const ends[] = {[ENDED_BY_EOT] = "eot", [ENDED_BY_LENGTH] = "length",
                                       [ENDED_BY_SINK] = "interrupt"};
    const Prompt* prompt = prompt_of(a, text);
    Answer* answer = &a->answer[text];
    json_t* record = json_object();
    json_object_set_new(record, "prompt", json_text(prompt->text, prompt->bytes));
    json_object_set_new(record, "sample", json_integer((json_int_t)(text % (size_t)a->options.samples + 1)));
    json_object_set_new(record, "text", json_text(answer->text.data, answer->text.bytes));
    json_object_set(record, "ids", answer->ids);
    json_object_set_new(record, "end", json_string(ends[answer->reason]));
    if (a->options.alternatives) {
        json_object_set_new(record, "logprob", json_float(answer->logprob));
        json_object_set(record, "tokens", answer->tokens);
    }
    answer->text.bytes = answer->printed = 0;
    append_string(answer, json_dumps(record, JSON_COMPACT | JSON_REAL_PRECISION(9)));
    buffer_append(&answer->text, "\n", 1);
    print(answer, answer->text.bytes);
    json_decref(record);
}

// Appends what stands in front of a text.
static void append_heading(Answers* a, size_t text) {
    const AnswerOptions* o = &a->options;
    Answer* answer = &a->answer[text];
    const size_t samples = (size_t)o->samples, sample = text % samples + 1, prompt = text / samples + 1;
    if (o->is_json) { return; }
    if (samples > 1 && a->total > samples) {
        append_string(answer, format("=== prompt %zu, sample %zu ===\n", prompt, sample));
    } else if (a->total > 1) {
        append_string(answer, format("=== %s %zu ===\n", samples > 1 ? "sample" : "prompt", text + 1));
    }
    if (o->repeats_prompt) { buffer_append(&answer->text, prompt_of(a, text)->text, prompt_of(a, text)->bytes); }
    if (o->alternatives) {
        const char* newline = o->repeats_prompt ? "\n" : "";
        append_string(answer, format("%s%-20s %9s  the likeliest\n", newline, "token", "logprob"));
    }
}

// Prints what can be printed by now.
static void answers_print(Answers* a) {
    for (; a->current < a->total; a->current++) {
        Answer* answer = &a->answer[a->current];
        if (!a->options.is_json) {
            const size_t whole = whole_characters(answer->text.data, answer->text.bytes);
            print(answer, answer->has_ended ? answer->text.bytes : max_size(whole, answer->printed));
        } else if (answer->has_ended) {
            print_json(a, a->current);
        }
        if (!answer->has_ended) { return; }
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// tokens

static json_t* token_json(const Answers* a, int id) {
    size_t bytes = 0;
    const char* text = tokenizer_token(a->options.tokenizer, id, &bytes);
    return json_text(text ? text : "", bytes);
}

// Appends a token, in quotation marks and with escapes, as in JSON, and its log-probability; the token is padded to
// `width` characters.
static void append_scored(const Answers* a, Answer* answer, int id, double logprob, int width) {
    json_t* token = token_json(a, id);
    char* text = json_dumps(token, JSON_ENCODE_ANY);
    append_string(answer, format("%s%*s %9.4f", text, max_int(width - utf8_characters(text), 0), "", logprob));
    free(text);
    json_decref(token);
}

static json_t* scored_json(const Answers* a, int id, double logprob) {
    json_t* token = json_object();
    json_object_set_new(token, "id", json_integer(id));
    json_object_set_new(token, "text", token_json(a, id));
    json_object_set_new(token, "logprob", json_float(logprob));
    return token;
}

static void take_json(Answers* a, Answer* answer, const NextToken* token) {
    json_array_append_new(answer->ids, json_integer(token->id));
    buffer_append(&answer->text, token->bytes, token->size);
    if (!a->options.alternatives) { return; }
    json_t *scored = scored_json(a, token->id, token->logprob), *best = json_array();
    for (int i = 0; i < a->options.alternatives; i++) {
        json_array_append_new(best, scored_json(a, token->best[i].id, token->best[i].logit));
    }
    json_object_set_new(scored, "best", best);
    json_array_append_new(answer->tokens, scored);
}

static void take_table(Answers* a, Answer* answer, const NextToken* token) {
    append_scored(a, answer, token->id, token->logprob, 20);
    for (int i = 0; i < a->options.alternatives; i++) {
        buffer_append(&answer->text, "  ", 2);
        append_scored(a, answer, token->best[i].id, token->best[i].logit, 12);
    }
    buffer_append(&answer->text, "\n", 1);
}

static bool take_token(void* answers, const NextToken* token) {
    Answers* a = answers;
    Answer* answer = &a->answer[token->text];
    answer->logprob += token->logprob;
    if (a->options.is_json) { take_json(a, answer, token); }
    else if (a->options.alternatives) { take_table(a, answer, token); }
    else { buffer_append(&answer->text, token->bytes, token->size); }
    answers_print(a);
    return !request_to_interrupt();
}

static void take_end(void* answers, size_t text, TextEnd reason) {
    Answers* a = answers;
    Answer* answer = &a->answer[text];
    answer->has_ended = true;
    answer->reason = reason;
    if (a->options.alternatives && !a->options.is_json) {
        append_string(answer, format("%-20s %9.4f\n", "sum", answer->logprob));
    } else if (!a->options.is_json) {
        buffer_append(&answer->text, "\n", 1);
    }
    answers_print(a);
}

TextSink answers_sink(Answers* a) { return (TextSink){.token = take_token, .end = take_end, .context = a}; }

Answers answers_open(const AnswerOptions* options) {
    Answers a = {.options = *options, .total = options->prompts->count * (size_t)options->samples};
    a.answer = alloc_or_die(a.total, sizeof *a.answer, "texts");
    for (size_t i = 0; i < a.total; i++) {
        if (options->is_json) { a.answer[i].ids = json_array(), a.answer[i].tokens = json_array(); }
        append_heading(&a, i);
    }
    answers_print(&a);
    return a;
}

void answers_close(Answers* a) {
    for (size_t i = 0; i < a->total; i++) {
        free(a->answer[i].text.data);
        json_decref(a->answer[i].ids);
        json_decref(a->answer[i].tokens);
    }
    free(a->answer);
}
