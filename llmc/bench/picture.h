// Begins the SVG pictures of `bench`. A picture has all of its style inside, light or dark by the browser's setting.
#pragma once
#include "../base/base.h"

// The first bytes of a picture: by them it is known again.
extern const char PICTURE_HEAD[];

// Begins a picture; the caller ends it with </svg>. what: describes it to screen readers. style: CSS of this picture
// alone, whose rules begin with `.bench`.
void picture_begin(FILE* svg, int width, int height, const char* what, const char* style);
