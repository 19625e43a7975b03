#include "ladder_results.h"
#include "../base/json.h"
#include "../base/text_stream.h"
#include "../log/html.h"
#include "picture.h"

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
    printf("%-22s %-11s %7s %10s %9s %9s %6s %9s %9s %7s %7s %10s %9s %9s %-6s\n", "rung", l->on_gpu ? "" : "built for",
           "threads", "ms/step", "tok/s", "GFLOP/s", "peak", "plan MiB", "used MiB", "gain", "total", "loss", "error",
           "bound", "");
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
               in_mib(r->plan_bytes), in_mib(r->peak_bytes), r->gain, r->total_gain, plain_nan(r->loss),
               plain_nan(r->loss_error), r->tolerance, rung_verdict(r));
    } else {
        printf(" %56s %9.1f %9s %-55s", "", in_mib(r->plan_bytes), "", r->why_not);
    }
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
                               kernels_names[rung->kernels], "fused", rung->fused, "attention",
                               attention_names[rung->attention], "pad_vocab", rung->pad_vocab, "threads", r->threads,
                               "plan_bytes", (json_int_t)r->plan_bytes, "ran", (int)r->ran);
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
    return record;
}

static json_t* ladder_json(const Ladder* l) {
    json_t* rungs = json_array();
    for (int i = 0; i < l->count; i++) { json_array_append_new(rungs, rung_json(&l->rung[i], &l->result[i])); }
    json_t* record = bench_record("ladder", &l->given, &l->plan, l->device, l->copy_bandwidth, "rungs", rungs);
    json_t* options = json_object_get(record, "options");
    for (int i = 0; i < NUM_DECIDED; i++) { json_object_del(options, DECIDED[i]); }
    json_object_set_new(options, "max_steps", json_integer(l->steps));
    json_object_set_new(options, "lr", json_real(LADDER_LR));
    return record;
}

// ---------------------------------------------------------------------------------------------------------------------
// the picture

static const char LADDER_STYLE[] =
    ".bench .speed { fill: var(--speed) }\n"
    ".bench .memory { fill: var(--memory) }\n"
    ".bench .wrong { fill: var(--wrong) }\n";

// Places in the picture: a row for each rung, with its name, a bar of speed and one of memory.
enum { WIDTH = 1120, TOP = 50, ROW = 30, BAR = 18, SPEED = 160, SPEED_MOST = 420, MEMORY = 860, MEMORY_MOST = 170 };

static void picture_row(FILE* svg, const Ladder* l, int index, double most_speed, double most_memory) {
    const RungResult* r = &l->result[index];
    const int top = TOP + ROW * index, text = top + 13;
    fprintf(svg, "<text class=\"name\" x=\"%d\" y=\"%d\">%s</text>", SPEED - 10, text, l->rung[index].name);
    if (!r->ran) {
        fprintf(svg, "<text x=\"%d\" y=\"%d\">%s</text>\n", SPEED + 8, text, r->why_not);
        return;
    }
    const double speed = SPEED_MOST * r->tokens_per_second / most_speed;
    const double memory = MEMORY_MOST * (double)r->peak_bytes / most_memory;
    fprintf(svg, "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\" rx=\"2\"/>",
            rung_is_ok(r) ? "speed" : "wrong", SPEED, top, fmax(speed, 1), BAR);
    fprintf(svg, "<text x=\"%.1f\" y=\"%d\">%.*f tok/s", SPEED + speed + 8, text, r->tokens_per_second < 100 ? 1 : 0,
            r->tokens_per_second);
    if (index > 0) { fprintf(svg, ", %.2fx; in all %.1fx", r->gain, r->total_gain); }
    fprintf(svg, "%s</text>", rung_is_ok(r) ? "" : "; wrong loss");
    fprintf(svg, "<rect class=\"memory\" x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\" rx=\"2\"/>", MEMORY, top,
            fmax(memory, 1), BAR);
    fprintf(svg, "<text x=\"%.1f\" y=\"%d\">%.*f MiB</text>\n", MEMORY + memory + 8, text,
            r->peak_bytes < (size_t)100 << 20 ? 1 : 0, in_mib(r->peak_bytes));
}

static void draw_ladder(FILE* svg, const Ladder* l) {
    double most_speed = 0, most_memory = 1;
    for (int i = 0; i < l->count; i++) {
        most_speed = fmax(most_speed, l->result[i].tokens_per_second);
        most_memory = fmax(most_memory, (double)l->result[i].peak_bytes);
    }
    picture_begin(svg, WIDTH, TOP + ROW * l->count, "Tokens per second and memory by rung", LADDER_STYLE);
    fprintf(svg, "<text class=\"title\" x=\"%d\" y=\"14\">Tokens per second</text>", SPEED);
    fprintf(svg, "<text class=\"title\" x=\"%d\" y=\"14\">Memory used</text><text x=\"%d\" y=\"32\">", MEMORY, SPEED);
    page_fact(svg, "", format("%s, %d x %d tokens a step; %s", l->plan.model, l->plan.B, l->plan.T, l->device),
              "</text>\n");
    for (int i = 0; i < l->count; i++) { picture_row(svg, l, i, most_speed, most_memory); }
    fprintf(svg, "</svg>\n");
}

void ladder_write(const Ladder* l) {
    static const char name[] = "ladder.svg";
    const char* out = l->given.out;
    char* picture;
    size_t size;
    FILE* svg = open_text_stream(&picture, &size, name);
    draw_ladder(svg, l);
    close_text_stream(svg, name);
    bench_write_json(out, "ladder.json", ladder_json(l));
    bench_write(out, name, picture);
    free(picture);
}
