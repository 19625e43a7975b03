// Shows a ladder: as lines on standard output while rungs are measured, then as ladder.json and as ladder.svg, a
// picture of speed and memory.
#pragma once
#include "rungs.h"

// Prints the heading of the table. updates: the number of updates after which losses are compared.
void print_ladder_heading(const Ladder* l, int updates);

// Prints the line of a rung.
void print_rung(const Ladder* l, int index);

// Writes ladder.json and ladder.svg into --out, unless that is empty.
void ladder_write(const Ladder* l);
