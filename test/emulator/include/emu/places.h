// Places in the code and in shared memory, for the race check and the count of traffic.
#pragma once
#include "fiber.h"
#include <dlfcn.h>
#include <string>

namespace emu {

// Returns true if [p, p + n) lies within the dynamic shared memory or one static array of this block.
EMU_UNSEEN inline bool in_shared(const void* p, size_t n) {
    const char* c = (const char*)p;
    if (c >= S->dyn && c + n <= S->dyn + S->dyn_n) { return true; }
    for (unsigned i = 0; i < S->shared_count; i++) {
        const SharedArray& a = S->shared[i];
        if (c >= a.begin && c + n <= a.begin + a.bytes) { return true; }
    }
    return false;
}

inline const uintptr_t program_base = [] {
    Dl_info info = {};
    dladdr((void*)&mem, &info);
    return (uintptr_t)info.dli_fbase;
}();

// Returns the place of the call that returns to `pc`, relative to the program's base.
EMU_UNSEEN inline unsigned pc_in_program(void* pc) { return (unsigned)((uintptr_t)pc - program_base - 1); }

// Returns file:line of a place, with the file's path from the working folder, if addr2line and debug information are
// there.
inline std::string place_of(unsigned pc) {
    char text[512], command[64], folder[512];
    snprintf(command, sizeof command, "addr2line -e /proc/%d/exe %#x 2>/dev/null", (int)getpid(), pc);
    FILE* f = popen(command, "r");
    bool found = f && fgets(text, sizeof text, f) && text[0] != '?';
    if (f) { pclose(f); }
    if (!found) { snprintf(text, sizeof text, "pc=%#x", pc); }
    const size_t prefix = getcwd(folder, sizeof folder) ? strlen(folder) : 0;
    const char* file = prefix && strncmp(text, folder, prefix) == 0 && text[prefix] == '/' ? text + prefix + 1 : text;
    return std::string(file, strcspn(file, " \n")); // without "(discriminator 1)"
}

} // namespace emu
