// Writes the beginning and the end of the HTML pages and SVG pictures of `bench`, with their styles. A picture has all
// of its style inside, since it is also written as an .svg file of its own.
#pragma once
#include "../log/chart.h"

// Begins and ends an HTML page; between the calls the body is added.
void page_begin(Page* page, const char* title);
void page_end(Page* page);

// Begins a picture; the caller ends it with </svg>. size: a class, `broad` or `slim`: a page has each picture in two
// sizes, for wide and narrow screens. what: describes it to screen readers. style: CSS of this picture alone.
void picture_begin(Page* page, const char* size, int width, int height, const char* what, const char* style);
