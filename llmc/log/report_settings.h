// The settings of runs on report.html. Those that compare runs or differ from the defaults come first.
#pragma once
#include "metrics.h"

// Adds the section: of one run a list, of several a table with a column for each.
void page_settings(FILE* page, const Run* runs, int count);
