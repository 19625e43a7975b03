#include "ladder_page.h"
#include "../base/json.h"
#include "../log/report.h"
#include "page.h"

// ---------------------------------------------------------------------------------------------------------------------
// the table

static const char* rung_verdict(const RungResult* r) { return rung_is_ok(r) ? "ok" : "FAILED"; }

void print_ladder_heading(const Ladder* l, int updates) {
    const Plan* p = &l->plan;
    const GPT2Config* m = &p->shape;
    printf("ladder: %s, %s: L=%d H=%d C=%d T=%d V=%d, %d x %d tokens, median of %d steps after %d\n", l->device,
           p->model, m->num_layers, m->num_heads, m->channels, m->max_seq_len, m->vocab_size, p->B, p->T, l->steps,
           l->kind->warm_up);
    printf("memory moves %.1f GB/s when it is copied; peak: of the arithmetic of the rung's type%s\n",
           l->copy_bandwidth / 1e9, l->on_gpu ? "" : " and threads, measured");
    printf("loss: after %d updates on one batch; error: against the rung before\n", updates);
    printf("%-22s %-11s %7s %10s %9s %9s %6s %9s %9s %7s %7s %10s %9s %9s %-6s", "rung", l->on_gpu ? "" : "built for",
           "threads", "ms/step", "tok/s", "GFLOP/s", "peak", "plan MiB", "used MiB", "gain", "total", "loss", "error",
           "bound", "");
    for (int i = 0; l->on_gpu && i < NUM_PUBLISHED; i++) { printf(" %13s", PUBLISHED[i]); }
    putchar('\n');
    fflush(stdout);
}

void print_rung(const Ladder* l, int index) {
    char percent[32];
    const Rung* rung = &l->rung[index];
    const RungResult* r = &l->result[index];
    printf("%-22s", rung->name);
    if (r->ran) {
        printf(" %-11s %7.0d %10.2f %9.1f %9.1f %6s %9.1f %9.1f %6.2fx %6.2fx %10.6f %9.2e %9.2e %-6s", r->level,
               r->threads, r->ms, r->tokens_per_second, r->flops / 1e9, percent_text(percent, r->flops / r->peak_flops),
               in_mib(r->plan_bytes), in_mib(r->peak_bytes), r->gain, r->total_gain, r->loss, r->loss_error,
               r->tolerance, rung_verdict(r));
    } else {
        printf(" %56s %9.1f %9s %-55s", "", in_mib(r->plan_bytes), "", r->why_not);
    }
    for (int i = 0; l->on_gpu && i < NUM_PUBLISHED; i++) { printf(" %13s", rung->published[i]); }
    putchar('\n');
    fflush(stdout);
}

// ---------------------------------------------------------------------------------------------------------------------
// JSON

static json_t* rung_json(const Rung* rung, const RungResult* r) {
    const struct {
        const char* name;
        double value;
    } measured[] = {{"ms", r->ms},
                    {"tok_s", r->tokens_per_second},
                    {"gflop_s", r->flops / 1e9},
                    {"peak_gflop_s", r->peak_flops / 1e9},
                    {"mfu", r->flops / r->peak_flops},
                    {"gain", r->gain},
                    {"total_gain", r->total_gain},
                    {"loss", r->loss},
                    {"loss_error", r->loss_error},
                    {"tolerance", r->tolerance}};
    json_t *record = json_pack("{s:s, s:s, s:s, s:s, s:b, s:s, s:b, s:i, s:I, s:b}", "name", rung->name, "dtype",
                               dtype_names[rung->dtype], "residual", residual_names[rung->residual], "kernels",
                               kernels_names[rung->kernels], "fused", rung->fused,
                               "attention",
                               attention_names[rung->attention], "pad_vocab", rung->pad_vocab, "threads", r->threads,
                               "plan_bytes",
                               (json_int_t)r->plan_bytes, "ran", (int)r->ran);
    for (size_t i = 0; r->ran && i < sizeof measured / sizeof *measured; i++) {
        json_object_set_new(record, measured[i].name, json_float(measured[i].value));
    }
    if (r->ran) {
        json_object_set_new(record, "level", json_string(r->level));
        json_object_set_new(record, "device_kernels", json_string(r->kernels));
        json_object_set_new(record, "used_bytes", json_integer((json_int_t)r->peak_bytes));
        json_object_set_new(record, "ok", json_boolean(rung_is_ok(r)));
    } else {
        json_object_set_new(record, "why_not", json_string(r->why_not));
    }
    json_t* published = json_object();
    for (int i = 0; i < NUM_PUBLISHED; i++) {
        if (*rung->published[i]) {
            json_object_set_new(published, PUBLISHED[i], json_real(atof(rung->published[i])));
        }
    }
    json_object_set_new(record, "published", published);
    return record;
}

static json_t* ladder_json(const Ladder* l) {
    json_t* rungs = json_array();
    for (int i = 0; i < l->count; i++) { json_array_append_new(rungs, rung_json(&l->rung[i], &l->result[i])); }
    json_t* record = bench_record("ladder", &l->given, &l->plan, l->device, l->copy_bandwidth, "rungs", rungs);
    json_t* options = json_object_get(record, "options");
    for (int i = 0; i < NUM_DECIDED; i++) { json_object_del(options, DECIDED[i]); }
    json_object_set_new(options, "max_steps", json_integer(l->steps));
    return record;
}

// ---------------------------------------------------------------------------------------------------------------------
// the picture

static const char LADDER_STYLE[] =
    ".bench .speed { fill: var(--speed) }\n"
    ".bench .memory { fill: var(--memory) }\n"
    ".bench .wrong { fill: var(--wrong) }\n";

enum { PICTURE_TOP = 50, PICTURE_BAR = 18 };

// Places in a row of the picture, from its upper left corner.
typedef struct {
    const char* size; // class: the page shows one of two sizes
    int width, row;   // of the picture; height of a row
    const char* name; // class of the name: `name` ends at its place, `title` begins there
    int name_left, name_top;
    int speed_left, speed_top, speed_width, memory_left, memory_top, memory_width;
} LadderLayout;

// Side by side, and one below another for narrow screens.
static const LadderLayout
    LADDER_BROAD = {"broad", 1120, 30, "name", 150, 0, 160, 0, 420, 860, 0, 170},
    LADDER_SLIM = {"slim", 366, 72, "title", 0, 0, 0, 22, 150, 0, 44, 150};

// Draws a row: the name, a bar of tokens per second and one of memory, each with its number.
static void picture_row(Page* page, const Ladder* l, const LadderLayout* at, int index, double most_speed,
                        double most_memory) {
    const RungResult* r = &l->result[index];
    const int top = PICTURE_TOP + at->row * index, y = top + at->speed_top, text = y + 13;
    page_add(page, "<text class=\"%s\" x=\"%d\" y=\"%d\">", at->name, at->name_left, top + at->name_top + 13);
    page_escape(page, l->rung[index].name);
    page_add(page, "</text>");
    if (!r->ran) {
        page_add(page, "<text x=\"%d\" y=\"%d\">%s</text>\n", at->speed_left + 8, text, r->why_not);
        return;
    }
    const double speed = at->speed_width * r->tokens_per_second / most_speed;
    const double memory = at->memory_width * (double)r->peak_bytes / most_memory;
    page_add(page, "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\" rx=\"2\"/>",
             rung_is_ok(r) ? "speed" : "wrong", at->speed_left, y, fmax(speed, 1), PICTURE_BAR);
    page_add(page, "<text x=\"%.1f\" y=\"%d\">%.*f tok/s", at->speed_left + speed + 8, text,
             r->tokens_per_second < 100 ? 1 : 0, r->tokens_per_second);
    if (index > 0) { page_add(page, ", %.2fx; in all %.1fx", r->gain, r->total_gain); }
    page_add(page, "%s</text>", rung_is_ok(r) ? "" : "; wrong loss");
    page_add(page, "<rect class=\"memory\" x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\" rx=\"2\"/>", at->memory_left,
             top + at->memory_top, fmax(memory, 1), PICTURE_BAR);
    page_add(page, "<text x=\"%.1f\" y=\"%d\">%.*f MiB</text>\n", at->memory_left + memory + 8,
             top + at->memory_top + 13, r->peak_bytes < (size_t)100 << 20 ? 1 : 0, in_mib(r->peak_bytes));
}

// Draws the picture, for the page and for a file of its own.
static void page_picture(Page* page, const Ladder* l, const LadderLayout* at) {
    double most_speed = 0, most_memory = 1;
    for (int i = 0; i < l->count; i++) {
        most_speed = fmax(most_speed, l->result[i].tokens_per_second);
        most_memory = fmax(most_memory, (double)l->result[i].peak_bytes);
    }
    picture_begin(page, at->size, at->width, PICTURE_TOP + at->row * l->count, "Tokens per second and memory by rung",
                  LADDER_STYLE);
    const bool is_side_by_side = at->memory_left > at->speed_left;
    page_add(page, "<text class=\"title\" x=\"%d\" y=\"14\">Tokens per second%s</text>", at->speed_left,
             is_side_by_side ? "" : " and memory used");
    if (is_side_by_side) {
        page_add(page, "<text x=\"%d\" y=\"32\">", at->speed_left);
        page_fact(page, "", format("%s, %d x %d tokens a step; %s", l->plan.model, l->plan.B, l->plan.T, l->device),
                  "</text>\n");
        page_add(page, "<text class=\"title\" x=\"%d\" y=\"14\">Memory used</text>\n", at->memory_left);
    }
    for (int i = 0; i < l->count; i++) { picture_row(page, l, at, i, most_speed, most_memory); }
    page_add(page, "</svg>\n");
}

static void page_rungs(Page* page, const Ladder* l) {
    static const char* const titles[] = {"Threads", "ms/step", "tok/s", "GFLOP/s", "of peak", "MiB planned",
                                         "MiB used", "Gain", "In all", "Loss", "Error"};
    enum { NUM_TITLES = sizeof titles / sizeof *titles };
    char percent[32];
    page_add(page, "<section><h2>Rungs</h2>\n<table class=\"runs\"><thead><tr><th>Rung</th>");
    for (int i = 0; i < NUM_TITLES; i++) { page_add(page, "<th>%s</th>", titles[i]); }
    for (int i = 0; l->on_gpu && i < NUM_PUBLISHED; i++) { page_add(page, "<th>%s</th>", PUBLISHED[i]); }
    page_add(page, "</tr></thead>\n<tbody>\n");
    for (int i = 0; i < l->count; i++) {
        const RungResult* r = &l->result[i];
        page_fact(page, "<tr><th>", format("%s", l->rung[i].name), "</th>");
        if (r->ran) {
            page_add(page, "<td>%.0d</td><td>%.2f</td><td>%.1f</td><td>%.1f</td><td>%s</td>", r->threads, r->ms,
                     r->tokens_per_second, r->flops / 1e9, percent_text(percent, r->flops / r->peak_flops));
            page_add(page, "<td>%.1f</td><td>%.1f</td><td>%.2fx</td><td>%.2fx</td><td>%.6f</td><td>%.1e</td>",
                     in_mib(r->plan_bytes), in_mib(r->peak_bytes), r->gain, r->total_gain, r->loss, r->loss_error);
        } else {
            page_add(page, "<td colspan=\"%d\">%s</td>", NUM_TITLES, r->why_not);
        }
        for (int k = 0; l->on_gpu && k < NUM_PUBLISHED; k++) { page_add(page, "<td>%s</td>", l->rung[i].published[k]); }
        page_add(page, "</tr>\n");
    }
    page_add(page, "</tbody></table>\n%s%s%s</section>\n", l->on_gpu ? "<p>" : "", l->on_gpu ? PUBLISHED_NOTE : "",
             l->on_gpu ? "</p>\n" : "");
}

static void page_ladder(Page* page, const Ladder* l) {
    page_begin(page, "ladder");
    page_fact(page, "<header><h1>The ladder on ", format("%s", l->device), "</h1>\n");
    page_fact(page, "<p>", format("%s, %d x %d tokens, median of %d steps", l->plan.model, l->plan.B, l->plan.T,
                                  l->steps), "</p>\n");
    page_fact(page, "<p>", format("%s", l->given.command), "</p></header>\n<figure class=\"wide one\">\n");
    page_picture(page, l, &LADDER_BROAD);
    page_picture(page, l, &LADDER_SLIM);
    page_add(page, "</figure>\n");
    page_rungs(page, l);
    page_end(page);
}

void ladder_write(const Ladder* l) {
    const char* out = l->given.out;
    if (!*out) { return; }
    Page page = {NULL, 0, 0}, picture = {NULL, 0, 0};
    page_ladder(&page, l);
    page_picture(&picture, l, &LADDER_BROAD);
    bench_write_json(out, "ladder.json", ladder_json(l));
    bench_write(out, "ladder.html", page.text);
    bench_write(out, "ladder.svg", picture.text);
    free(page.text);
    free(picture.text);
}
