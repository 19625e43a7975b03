// Draws the picture of `bench scale`: tokens per second and efficiency over the number of GPUs.
#pragma once
#include "../log/chart.h"
#include "scale.h"

// Appends the picture to the page, as one <svg> element.
void scale_picture(Page* page, const BenchScale* b);
