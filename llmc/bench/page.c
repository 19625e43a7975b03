#include "page.h"
#include "../log/report.h"

static const char PICTURE_STYLE[] =
    ".bench { font: 12px system-ui, sans-serif; --ink: #1b1f27; --soft: #667085; --edge: #dfe3e9;\n"
    "    --speed: #2563c9; --memory: #8fb0e3; --wrong: #d9601a }\n"
    "@media (prefers-color-scheme: dark) { .bench { --ink: #e6e9ee; --soft: #98a2b3; --edge: #2a303a;\n"
    "    --speed: #6aa5ff; --memory: #3c5f96; --wrong: #ff9a5c } }\n"
    ".bench text { font-size: 12px; fill: var(--soft) }\n"
    ".bench .name, .bench .title { fill: var(--ink) }\n"
    ".bench .name { text-anchor: end }\n"
    ".bench .title { font-weight: 600 }\n";

void page_begin(Page* page, const char* title) {
    page_add(page, "<!DOCTYPE html>\n<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\">\n<head>\n"
             "<meta charset=\"utf-8\"/>\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
             "<title>%s</title>\n<style>\n%s</style>\n</head>\n<body>\n<main>\n", title,
             REPORT_STYLE);
}

void page_end(Page* page) { page_add(page, "</main>\n</body>\n</html>\n"); }

void picture_begin(Page* page, const char* size, int width, int height, const char* what, const char* style) {
    page_add(page, "<svg class=\"bench %s\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\" "
             "aria-label=\"%s\">\n<style>\n%s%s</style>\n", size, width, height, what, PICTURE_STYLE, style);
}
