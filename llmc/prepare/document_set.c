#include "document_set.h"

DocumentHash document_hash(const void* text, size_t bytes) {
    const unsigned char* p = text;
    uint64_t a = mix64(bytes + 1), b = mix64(~(uint64_t)bytes), word;
    for (size_t n; bytes > 0; bytes -= n, p += n) {
        n = min_size(bytes, sizeof word);
        word = 0;
        memcpy(&word, p, n);
        a = mix64(a ^ word);
        b = mix64(b + word) ^ a;
    }
    return (DocumentHash){{mix64(a + b) | 1, mix64(b)}};
}

// Returns the slot of the hash, or the free one where it would go.
static DocumentHash* find_slot(const DocumentSet* s, DocumentHash hash) {
    for (size_t i = (size_t)hash.half[1] & (s->room - 1);; i = (i + 1) & (s->room - 1)) {
        DocumentHash* slot = &s->slots[i];
        const bool is_free = slot->half[0] == 0;
        if (is_free || (slot->half[0] == hash.half[0] && slot->half[1] == hash.half[1])) { return slot; }
    }
}

static void grow(DocumentSet* s) {
    const DocumentSet old = *s;
    s->room = max_size(2 * old.room, 1024);
    s->slots = alloc_or_die(s->room, sizeof *s->slots, "the hashes of --dedup");
    for (size_t i = 0; i < old.room; i++) {
        if (old.slots[i].half[0] != 0) { *find_slot(s, old.slots[i]) = old.slots[i]; }
    }
    free(old.slots);
}

bool document_set_add(DocumentSet* s, DocumentHash hash) {
    if (4 * (s->count + 1) > 3 * s->room) { grow(s); }
    DocumentHash* slot = find_slot(s, hash);
    if (slot->half[0] != 0) { return false; }
    *slot = hash;
    s->count++;
    return true;
}

void document_set_free(DocumentSet* s) {
    free(s->slots);
    memset(s, 0, sizeof *s);
}
