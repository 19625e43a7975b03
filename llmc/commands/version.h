// --version: describes the build, for bug reports.
#pragma once

// Prints version, commit, compiler, backends and libraries of this build.
void print_version(void);
