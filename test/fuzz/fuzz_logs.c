// Any bytes as metrics.jsonl and log.txt of a run: the report and `info` read what they can, and the logs are cut back
// to a step, which leaves nothing behind that step.
#include "llmc/log/cut_log.h"
#include "llmc/log/report.h"
#include "test/fuzz/input.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

// Reads the run as the report and `info` do.
static void read_run(const char* folder) {
    Error err;
    Run run;
    if (run_read(&run, folder, &err)) {
        for (int i = 0; i < RUN_SERIES; i++) {
            for (size_t k = 0; k < run.series[i].count; k++) {
                if (isnan(run.series[i].at[k].x)) { abort(); }
            }
        }
        series_last(&run.series[RUN_LOSS]);
        run_tokens(&run, 3);
        run_seconds(&run, 3);
        if (run.series[RUN_TOKENS].count) { run_step(&run, 1000); }
    }
    run_free(&run);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    enum { STEP = 3 };
    static char *metrics, *text, *page;
    const char* folder = input_folder();
    Error err;
    LostSteps lost;
    const Phases again = {.val = true, .sample = true};
    size_t left;
    if (!metrics) {
        metrics = format("%s/metrics.jsonl", folder);
        text = format("%s/log.txt", folder);
        page = format("%s/report.html", folder);
    }
    write_input(folder, "metrics.jsonl", data, size);
    write_input(folder, "log.txt", data, size);
    read_run(folder);
    report_write(page, &folder, 1, &err);
    if (!cut_logs(metrics, text, STEP, again, &lost, &err)) { abort(); }
    char* cut = read_file(metrics, &left, &err);
    if (!cut || left > size || (left && cut[left - 1] != '\n')) { abort(); }
    free(cut);
    // cut again, nothing more goes
    if (!cut_logs(metrics, text, STEP, again, &lost, &err) || lost.steps != 0) { abort(); }
    read_run(folder);
    return 0;
}
