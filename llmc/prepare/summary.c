#include "summary.h"
#include <inttypes.h>

static const char* const SKIP_NAMES[NUM_SKIPS] = {[SKIPPED_EMPTY] = "empty", [SKIPPED_NULL] = "null",
                                                  [SKIPPED_INVALID] = "invalid", [SKIPPED_LONG] = "too long"};

void summary_add(Summary* s, const Chunk* c) {
    if (c->skip != NOT_SKIPPED) { s->skipped[c->skip]++; return; }
    if (!c->at.inside_document) { s->documents++; s->current = 0; }
    s->bytes += c->bytes;
    s->current += c->bytes;
    if (s->current > s->longest) { s->longest = s->current; }
}

json_t* summary_to_json(const Summary* s) {
    json_t* o = json_pack("{s:I, s:I, s:I, s:I}", "documents", (json_int_t)s->documents, "bytes", (json_int_t)s->bytes,
                          "longest", (json_int_t)s->longest, "current", (json_int_t)s->current);
    for (int i = NOT_SKIPPED + 1; i < NUM_SKIPS; i++) {
        json_object_set_new(o, SKIP_NAMES[i], json_integer((json_int_t)s->skipped[i]));
    }
    return o;
}

static uint64_t get_count(const json_t* object, const char* name) {
    return (uint64_t)json_integer_value(json_object_get(object, name));
}

Summary summary_from_json(const json_t* o) {
    Summary s = {.documents = get_count(o, "documents"), .bytes = get_count(o, "bytes"),
                 .longest = get_count(o, "longest"), .current = get_count(o, "current")};
    for (int i = NOT_SKIPPED + 1; i < NUM_SKIPS; i++) { s.skipped[i] = get_count(o, SKIP_NAMES[i]); }
    return s;
}

void summary_print(const Summary* s, uint64_t tokens) {
    const char* separator = "skipped documents: ";
    if (s->documents > 0 && tokens > 0) {
        printf("%" PRIu64 " document%s of %" PRIu64 " bytes, %.2f bytes per token; the longest has %" PRIu64 " bytes\n",
               s->documents, plural(s->documents), s->bytes, (double)s->bytes / (double)tokens, s->longest);
    }
    for (int i = NOT_SKIPPED + 1; i < NUM_SKIPS; i++) {
        if (s->skipped[i] == 0) { continue; }
        printf("%s%" PRIu64 " %s", separator, s->skipped[i], SKIP_NAMES[i]);
        separator = ", ";
    }
    if (*separator == ',') { putchar('\n'); }
}
