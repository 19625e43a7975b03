// Which program this is, for --version and bug reports.
#pragma once

// Prints the version, the commit and the compiler of this build, on two lines.
void print_release(void);
