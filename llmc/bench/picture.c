#include "picture.h"

const char PICTURE_HEAD[] = "<svg class=\"bench\" ";

static const char PICTURE_STYLE[] =
    ".bench { color-scheme: light dark; font: 12px system-ui, sans-serif;\n"
    "    --ink: #1b1f27; --soft: #667085; --edge: #dfe3e9;\n"
    "    --speed: #2563c9; --memory: #8fb0e3; --wrong: #d9601a }\n"
    "@media (prefers-color-scheme: dark) { .bench { --ink: #e6e9ee; --soft: #98a2b3; --edge: #2a303a;\n"
    "    --speed: #6aa5ff; --memory: #3c5f96; --wrong: #ff9a5c } }\n"
    ".bench text { font-size: 12px; fill: var(--soft) }\n"
    ".bench .name, .bench .title { fill: var(--ink) }\n"
    ".bench .grid { stroke: var(--edge); fill: none }\n"
    ".bench .name, .bench .end { text-anchor: end }\n"
    ".bench .middle { text-anchor: middle }\n"
    ".bench .title { font-weight: 600 }\n";

void picture_begin(FILE* svg, int width, int height, const char* what, const char* style) {
    fprintf(svg, "%sxmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">\n"
            "<style>\n%s%s</style>\n", PICTURE_HEAD, width, height, what, PICTURE_STYLE, style);
}
