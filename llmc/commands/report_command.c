#include "../base/file.h"
#include "commands.h"
#include "../base/json.h"
#include "../log/report.h"

char* page_path(const Config* c, const char* name) {
    static const char suffix[] = ".html";
    Error err;
    const size_t length = strlen(c->out), end = strlen(suffix);
    if (length > end && !strcmp(c->out + length - end, suffix)) {
        if (!make_parent(c->out, &err)) { fatal("--out %s", err.text); }
        return format("%s", c->out);
    }
    if (!make_directories(c->out, &err)) { fatal("--out %s; give a folder, or a file that ends in .html", err.text); }
    return format("%s/%s", c->out, name);
}

// Returns true if --out names the page: the runs are then given as words.
static bool out_is_page(const Config* c) { return c->num_args && config_source(c, "out") > FROM_DEFAULT; }

// Returns the file of a page about `n` runs, which the caller frees.
static char* report_path(const Config* c, const char* const* runs, int n) {
    if (!out_is_page(c)) { return n > 1 ? format("report.html") : format("%s/report.html", runs[0]); }
    return page_path(c, "report.html");
}

int report_command(const Config* c) {
    Error err;
    const char* folders[1] = {c->out};
    const int n = c->num_args ? c->num_args : 1;
    const char* const* runs = c->num_args ? (const char* const*)c->args : folders;
    char* path = report_path(c, runs, n);
    const bool is_of_run = n == 1 && !out_is_page(c); // the run itself replaces it
    if (!is_of_run && !report_may_replace(path, &err)) { usage_error("%s", err.text); }
    if (!report_write(path, runs, n, &err)) { fatal("%s", err.text); }
    print_result("%s\n", path);
    free(path);
    return EXIT_DONE;
}
