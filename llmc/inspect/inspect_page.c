#include "inspect_page.h"
#include "../base/file.h"
#include "../base/json.h"
#include "../base/text_stream.h"
#include "../log/html.h"

typedef struct {
    FILE* out;
    const Facts* f;
    const Tokenizer* tokenizer;
} Page;

// The first bytes of a page: by them it is known again.
static const char HEAD[] = "<!DOCTYPE html>\n<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\">\n<head>\n"
                           "<meta charset=\"utf-8\"/>\n<meta name=\"generator\" content=\"gpt2.c inspect\"/>\n";

// ---------------------------------------------------------------------------------------------------------------------
// tokens and numbers

// Returns true for characters that would change how others look: controls, line ends and directions of writing.
static bool is_invisible(uint32_t c) {
    return !is_printable(c) || c == 0xad || c == 0x61c || c == 0x180e || (c >= 0x200b && c <= 0x200f) ||
           (c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f) || c == 0xfeff ||
           (c >= 0xfff0 && c <= 0xffff) || c >= 0xe0000;
}

// Returns true for letters that are written from right to left.
static bool is_from_right(uint32_t c) {
    return (c >= 0x590 && c < 0x900) || (c >= 0xfb1d && c < 0xff00) || (c >= 0x10800 && c < 0x11000) ||
           (c >= 0x1e800 && c < 0x1f000);
}

// Writes a token so that all of it is seen: a space as U+2423, bytes that are no character as <0xNN>. Cuts a long one.
// A mark of direction, U+200E, ends one that is written from right to left: else the number behind would go before it.
static void page_token(const Page* p, int id) {
    enum { MOST_CHARACTERS = 20 };
    size_t size = 0, n, count = 0;
    bool has_right = false;
    const char* bytes = tokenizer_token(p->tokenizer, id, &size);
    char* text = format("%s", "");
    if (!bytes) { append_format(&text, "#%d", id); } // the model's vocabulary is larger
    for (const char* at = bytes; bytes && at < bytes + size; at += n) {
        uint32_t c;
        n = utf8_decode(at, bytes + size, &c);
        if (count++ == MOST_CHARACTERS) { append_format(&text, "\xe2\x80\xa6"); break; }
        if (n == 0) { append_format(&text, "<0x%02X>", (unsigned char)*at); n = 1; }
        else if (c == ' ') { append_format(&text, "\xe2\x90\xa3"); }
        else if (c == '\n') { append_format(&text, "\xe2\x86\xb5"); }
        else if (c == '\t') { append_format(&text, "\xe2\x87\xa5"); }
        else if (is_invisible(c)) { append_format(&text, c < 256 ? "<0x%02X>" : "<U+%04X>", c); }
        else { append_format(&text, "%.*s", (int)n, at); }
        has_right = has_right || (n > 1 && is_from_right(c));
    }
    if (has_right) { append_format(&text, "\xe2\x80\x8e"); }
    page_fact(p->out, "", text, "");
}

// Writes a probability in percent, with two digits or all before the point.
static void page_percent(const Page* p, double share) {
    const double v = 100 * share;
    fprintf(p->out, v >= 9.95 ? "%.0f%%" : v >= 0.01 ? "%.2g%%" : "&lt;0.01%%", v);
}

// Writes a cell of a token and its probability; `attributes` begin with a space.
static void page_cell(const Page* p, Candidate c, const char* attributes) {
    fprintf(p->out, "<td%s>", attributes);
    page_token(p, c.id);
    fputs(" <small>", p->out);
    page_percent(p, exp((double)c.logit));
    fputs("</small></td>", p->out);
}

// ---------------------------------------------------------------------------------------------------------------------
// tables: a row for each token

static void table_begin(const Page* p, const char* id, const char* caption, const char* first) {
    fprintf(p->out, "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"%s\">\n<table class=\"%s\">\n"
            "<caption>%s</caption>\n<thead><tr><th scope=\"col\">%s</th>", caption, id, caption, first);
}

static void table_column(const Page* p, const char* what, int number) {
    fprintf(p->out, number ? "<th scope=\"col\">%s %d</th>" : "<th scope=\"col\">%s</th>", what, number);
}

static void table_body(const Page* p) { fputs("</tr></thead>\n<tbody>\n", p->out); }
static void table_end(const Page* p) { fputs("</tbody></table></div>\n", p->out); }

// Begins the row of token t; t == T: of the one that would come next.
static void row_begin(const Page* p, int t) {
    fprintf(p->out, "<tr data-t=\"%d\"><th scope=\"row\"><small>%d</small> ", t, t + 1);
    if (t < p->f->T) { page_token(p, p->f->tokens[t]); }
    else { fputs("next?", p->out); }
    fputs("</th>", p->out);
}

static void row_end(const Page* p) { fputs("</tr>\n", p->out); }

static void layer_columns(const Page* p) {
    table_column(p, "embedding", 0);
    for (int l = 1; l <= p->f->L; l++) { table_column(p, "layer", l); }
    table_body(p);
}

// ---------------------------------------------------------------------------------------------------------------------
// panels

// Begins a panel; `words` are its two sentences.
static void panel_begin(const Page* p, const char* id, const char* title, const char* words) {
    fprintf(p->out, "<section id=\"%s\"><h2>%s</h2>\n<p>%s</p>\n", id, title, words);
}

static void panel_end(const Page* p) { fputs("</section>\n", p->out); }

static void details_begin(const Page* p, const char* what) {
    fprintf(p->out, "<details><summary>%s</summary>\n", what);
}

static void details_end(const Page* p) { fputs("</details>\n", p->out); }

static void page_chips(const Page* p) {
    const Facts* f = p->f;
    float most = 1e-9f;
    for (int t = 1; t < f->T; t++) { most = fmaxf(most, f->losses[t - 1]); }
    fputs("<div id=\"chips\" role=\"group\" aria-label=\"Tokens of the text\">\n", p->out);
    for (int t = 0; t <= f->T; t++) {
        const double loss = t && t < f->T ? f->losses[t - 1] : 0;
        fprintf(p->out, "<button data-t=\"%d\" style=\"--x:%.2f\">", t, loss / most);
        if (t < f->T) { page_token(p, f->tokens[t]); }
        else { fputs("next?", p->out); }
        fputs("</button>", p->out);
    }
    fputs("</div>\n<div id=\"chosen\" aria-live=\"polite\"></div>\n", p->out);
}

static void page_tokens(const Page* p) {
    const Facts* f = p->f;
    panel_begin(p, "tokens", "The text, token by token",
                "The model reads tokens and predicts each one from those before it. A redder token has a higher loss, "
                "the negative logarithm of the probability that the model gave it: choose one to follow it through "
                "this page.");
    page_chips(p);
    details_begin(p, "Table of tokens, losses and likeliest tokens");
    table_begin(p, "likeliest", "Each token, its loss in nats, its probability, and the tokens that the model found "
                "likeliest in its place", "token");
    table_column(p, "loss", 0);
    table_column(p, "probability", 0);
    for (int k = 1; k <= FACTS_BEST; k++) { table_column(p, "likeliest", k); }
    table_body(p);
    for (int t = 0; t <= f->T; t++) {
        row_begin(p, t);
        if (t == 0 || t == f->T) { fputs("<td>\xe2\x80\x93</td><td>\xe2\x80\x93</td>", p->out); }
        else {
            fprintf(p->out, "<td>%.3f</td><td>", (double)f->losses[t - 1]);
            page_percent(p, exp(-(double)f->losses[t - 1]));
            fputs("</td>", p->out);
        }
        for (int k = 0; k < FACTS_BEST; k++) {
            const Candidate* c = t ? &f->next[(t - 1) * FACTS_BEST + k] : NULL;
            if (c) { page_cell(p, *c, t < f->T && c->id == f->tokens[t] ? " class=\"right\"" : ""); }
            else { fputs("<td></td>", p->out); }
        }
        row_end(p);
    }
    table_end(p);
    details_end(p);
    panel_end(p);
}

// Writes the attention of a head: row after row, each up to its own token.
static void page_map(const Page* p, int l, int h) {
    static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_";
    const int T = p->f->T;
    const float* row = p->f->attention + (size_t)(l * p->f->NH + h) * (size_t)T * (size_t)T;
    fprintf(p->out, "<button class=\"map\" tabindex=\"%d\" aria-label=\"Layer %d, head %d\" data-map=\"",
            l + h ? -1 : 0, l + 1, h + 1);
    for (int t = 0; t < T; t++, row += T) {
        for (int k = 0; k <= t; k++) {
            const int level = (int)lrintf(4095 * row[k]);
            fputc(digits[level / 64], p->out);
            fputc(digits[level % 64], p->out);
        }
    }
    fputs("\"><canvas></canvas></button>\n", p->out);
}

static void page_attention_table(const Page* p, int l) {
    const int T = p->f->T, NH = p->f->NH;
    char* caption = format("Layer %d: the token to which each token attends most, by head", l + 1);
    table_begin(p, "most", caption, "token");
    free(caption);
    for (int h = 1; h <= NH; h++) { table_column(p, "head", h); }
    table_body(p);
    for (int t = 0; t < T; t++) {
        row_begin(p, t);
        for (int h = 0; h < NH; h++) {
            const float* row = p->f->attention + ((size_t)(l * NH + h) * (size_t)T + (size_t)t) * (size_t)T;
            int most = 0;
            for (int k = 1; k <= t; k++) { most = row[k] > row[most] ? k : most; }
            fprintf(p->out, "<td><small>%d</small> ", most + 1);
            page_token(p, p->f->tokens[most]);
            fputc(' ', p->out);
            page_percent(p, row[most]);
            fputs("</td>", p->out);
        }
        row_end(p);
    }
    table_end(p);
}

static void page_attention(const Page* p) {
    panel_begin(p, "attention", "Attention",
                "Each head of each layer lets a token collect information from itself and the tokens before it. In a "
                "map the row is the token that looks and the column the token it looks at, and the more colour, the "
                "more it looks: point at a map, tap it, or reach it by Tab and the arrow keys.");
    fprintf(p->out, "<div class=\"both\"><div id=\"maps\" style=\"--heads:%d\">\n", p->f->NH);
    for (int l = 0; l < p->f->L; l++) {
        fprintf(p->out, "<span>%d</span>\n", l + 1);
        for (int h = 0; h < p->f->NH; h++) { page_map(p, l, h); }
    }
    fputs("</div>\n<figure id=\"head\"><figcaption></figcaption><canvas></canvas><svg role=\"img\"></svg></figure>\n"
          "</div>\n"
          "<noscript><p>The maps need JavaScript; the tables do not.</p></noscript>\n", p->out);
    details_begin(p, "Tables of what each token attends to most");
    for (int l = 0; l < p->f->L; l++) { page_attention_table(p, l); }
    details_end(p);
    panel_end(p);
}

static void page_lens(const Page* p) {
    const Facts* f = p->f;
    panel_begin(p, "lens", "What each layer would say",
                "The logit lens stops the model after a layer and reads its answer there: the likeliest token in place "
                "of the one at the left, with its probability. Follow a row to see where a guess appears, and grows "
                "sure; frames mark guesses that are right.");
    table_begin(p, "shaded", "The likeliest token in place of each token, after the embedding and after each layer",
                "token");
    layer_columns(p);
    for (int t = 1; t <= f->T; t++) {
        row_begin(p, t);
        for (int l = 0; l <= f->L; l++) {
            const Candidate c = f->lens[l * f->T + t - 1];
            const bool is_right = t < f->T && c.id == f->tokens[t];
            char* shade = format("%s style=\"--x:%.2f\"", is_right ? " class=\"right\"" : "",
                                 exp((double)c.logit));
            page_cell(p, c, shade);
            free(shade);
        }
        row_end(p);
    }
    table_end(p);
    panel_end(p);
}

static void page_norms(const Page* p) {
    const Facts* f = p->f;
    float most = 1e-9f;
    for (int i = 0; i < (f->L + 1) * f->T; i++) { most = fmaxf(most, f->norms[i]); }
    panel_begin(p, "norms", "Length of the residual stream",
                "A token is a vector that every layer adds to: its length is the Euclidean norm. It usually grows from "
                "layer to layer, and a token with a far longer vector than others often serves heads as a place to "
                "look at when they have nothing to do.");
    table_begin(p, "shaded", "Norm of the residual stream of each token, after the embedding and after each layer",
                "token");
    layer_columns(p);
    for (int t = 0; t < f->T; t++) {
        row_begin(p, t);
        for (int l = 0; l <= f->L; l++) {
            const double v = f->norms[l * f->T + t];
            fprintf(p->out, "<td style=\"--x:%.2f\">%.*f</td>", sqrt(v / most), v < 10 ? 2 : v < 100 ? 1 : 0, v);
        }
        row_end(p);
    }
    table_end(p);
    panel_end(p);
}

// Writes the name of part number i of a layer as a column.
static void part_column(const Page* p, int i, const char* before) {
    const int NH = p->f->NH;
    char* what = format("%s%s", before, i < NH ? "head" : i == NH ? "attention" : "MLP");
    table_column(p, what, i < NH ? i + 1 : 0);
    free(what);
}

static double without_change(const Facts* f, int part, int t) {
    return (double)f->without[(size_t)part * (size_t)(f->T - 1) + (size_t)t] - f->losses[t];
}

static void page_parts_table(const Page* p) {
    const Facts* f = p->f;
    table_begin(p, "change", "Change of each token's loss when a part is switched off", "token");
    for (int l = 0; l < f->L; l++) {
        char* before = format("%d: ", l + 1);
        for (int i = 0; i < f->NH + 2; i++) { part_column(p, i, before); }
        free(before);
    }
    table_body(p);
    for (int t = 1; t < f->T; t++) {
        row_begin(p, t);
        for (int part = 0; part < f->L * (f->NH + 2); part++) {
            fprintf(p->out, "<td>%+.3f</td>", without_change(f, part, t - 1));
        }
        row_end(p);
    }
    table_end(p);
}

static void page_parts(const Page* p) {
    const Facts* f = p->f;
    panel_begin(p, "off", "Switching parts off",
                "Each number says how the loss changes when one head, all attention of a layer, or its MLP adds "
                "nothing. Red parts help to predict the chosen token (without a chosen one: the mean over the text), "
                "blue parts stand in its way.");
    table_begin(p, "parts", "Change of the loss when a part is switched off", "layer");
    for (int i = 0; i < f->NH + 2; i++) { part_column(p, i, ""); }
    table_body(p);
    for (int l = 0; l < f->L; l++) {
        fprintf(p->out, "<tr><th scope=\"row\">%d</th>", l + 1);
        for (int i = 0; i < f->NH + 2; i++) {
            double sum = 0;
            for (int t = 0; t < f->T - 1; t++) { sum += without_change(f, l * (f->NH + 2) + i, t); }
            fprintf(p->out, "<td>%+.3f</td>", sum / (f->T - 1));
        }
        row_end(p);
    }
    table_end(p);
    details_begin(p, "Table of every token");
    page_parts_table(p);
    details_end(p);
    panel_end(p);
}

static void page_nearest(const Page* p) {
    const Facts* f = p->f;
    panel_begin(p, "near", "Neighbours in the embedding",
                "Before any layer a token is only its row of the embedding. Tokens that the model uses alike have "
                "rows in the same direction, whose cosine is near 1; of unrelated ones it is near 0.");
    table_begin(p, "nearest", "The tokens whose embeddings are nearest to that of each token, with the cosine",
                "token");
    for (int k = 1; k <= FACTS_BEST; k++) { table_column(p, "nearest", k); }
    table_body(p);
    for (int t = 0; t < f->T; t++) {
        row_begin(p, t);
        for (int k = 0; k < FACTS_BEST; k++) {
            const Candidate* c = &f->nearest[t * FACTS_BEST + k];
            fputs("<td>", p->out);
            page_token(p, c->id);
            fprintf(p->out, " <small>%.2f</small></td>", (double)c->logit);
        }
        row_end(p);
    }
    table_end(p);
    panel_end(p);
}

// ---------------------------------------------------------------------------------------------------------------------
// the page

static void page_write(const Page* p, const char* name) {
    const Facts* f = p->f;
    char perplexity[32];
    double sum = 0;
    for (int t = 0; t < f->T - 1; t++) { sum += f->losses[t]; }
    const double mean = sum / (f->T - 1);
    fputs(HEAD, p->out);
    fputs("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n", p->out);
    page_text(p->out, "<title>Inside ", name, "</title>\n");
    fprintf(p->out, "<style>\n%s</style>\n</head>\n<body>\n<main>\n", INSPECT_STYLE);
    page_text(p->out, "<header><h1>Inside ", name, "</h1>\n");
    fprintf(p->out, "<p>%d layer%s of %d head%s \xc2\xb7 %d tokens \xc2\xb7 mean loss %.3f \xc2\xb7 perplexity %s"
            "</p></header>\n", f->L, plural((uint64_t)f->L), f->NH, plural((uint64_t)f->NH), f->T, mean,
            value_text(perplexity, exp(mean)));
    page_tokens(p);
    page_attention(p);
    page_lens(p);
    page_parts(p);
    page_norms(p);
    page_nearest(p);
    fprintf(p->out, "</main>\n<script>//<![CDATA[\n%s//]]></script>\n</body>\n</html>\n", INSPECT_SCRIPT);
}

// Bytes of a page of T tokens: of those that it had with GPT-2's tokenizer, an upper bound.
static double page_bytes(const GPT2Config* m, double T) {
    const double L = m->num_layers, heads = L * m->num_heads;
    return heads * T * (T + 1) + 45 * heads * T + 15 * (heads + 2 * L) * T + 120 * (L + 1) * T + 900 * T + 30000;
}

int inspect_most_tokens(const GPT2Config* m) {
    int T = 0;
    while (T < m->max_seq_len && page_bytes(m, T + 1) <= INSPECT_MOST_BYTES) { T++; }
    return T;
}

bool inspect_may_replace(const char* path, Error* err) {
    return may_replace(path, HEAD, "page of inspect", err);
}

bool inspect_write(const char* path, const char* name, const Facts* f, const Tokenizer* tokenizer, Error* err) {
    char* text;
    size_t size;
    Page page = {.out = open_text_stream(&text, &size, path), .f = f, .tokenizer = tokenizer};
    page_write(&page, name);
    close_text_stream(page.out, path);
    const bool ok = size <= INSPECT_MOST_BYTES
                        ? inspect_may_replace(path, err) && write_file_atomically(path, text, size, err)
                        : fail(err, "%s: the page would have %.2f MB, more than %.2f: shorten --prompt", path,
                               1e-6 * (double)size, 1e-6 * INSPECT_MOST_BYTES);
    free(text);
    return ok;
}
