// Any bytes as metrics.jsonl and log.txt of a run: report and `info` read what they can, and a resumed run appends to
// them on a line of its own.
#include "llmc/base/file.h"
#include "llmc/log/logger.h"
#include "llmc/log/metrics.h"
#include "llmc/log/report.h"
#include "test/fuzz/input.h"

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
    }
    run_free(&run);
}

// Returns the bytes of a log, which must begin with what it had.
static size_t check_log(const char* path, const uint8_t* data, size_t size) {
    Error err;
    size_t now;
    char* text = read_file(path, &now, &err);
    if (!text || now < size || (size && memcmp(text, data, size)) || (now && text[now - 1] != '\n')) { abort(); }
    free(text);
    return now;
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static char *metrics, *text, *page;
    const char* folder = input_folder();
    Error err;
    Logger l;
    if (!metrics) {
        metrics = format("%s/metrics.jsonl", folder);
        text = format("%s/log.txt", folder);
        page = format("%s/report.html", folder);
    }
    write_input(folder, "metrics.jsonl", data, size);
    write_input(folder, "log.txt", data, size);
    read_run(folder);
    report_write(page, &folder, 1, &err);
    const LoggerOptions options = {.folder = folder, .precision = "fp32", .resume_step = 3};
    if (!logger_open(&l, &options, &err) || !logger_close(&l, &err)) { abort(); }
    if (check_log(metrics, data, size) > size + 1 || check_log(text, data, size) > size + 1) { abort(); }
    read_run(folder);
    return 0;
}
