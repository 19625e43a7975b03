// Any bytes as CORE's list of tasks and as its table of baselines: they are refused, or each task is whole.
#include "llmc/eval/core.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    Error err;
    CoreList list;
    double baseline = -1;
    char* text = alloc_or_die(size + 1, 1, "a list");
    if (size) { memcpy(text, data, size); }
    if (core_read_yaml(&list, "folder", "core.yaml", text, &err)) {
        if (list.count < 1) { abort(); }
        for (int i = 0; i < list.count; i++) {
            const TestTask* t = &list.tasks[i];
            if (!t->name || !t->path || !t->delimiter || !t->form || t->shots < 0) { abort(); }
        }
        core_list_free(&list);
    }
    if (core_read_baseline(&baseline, "choices", "m.csv", text, &err) && !(baseline >= 0 && baseline < 1)) { abort(); }
    free(text);
    return 0;
}
