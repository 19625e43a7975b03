#include "merges.h"

bool tokenizer_halves(const Tokenizer* t, int id, int half[2]) {
    size_t begin[256], count; // part i is [begin[i], begin[i + 1])
    int part[255], pair[255]; // the part as a token; the token of it and the next one, or NO_TOKEN
    const unsigned char* p = (const unsigned char*)tokenizer_token(t, id, &count);
    if (count < 2 || t->is_special[id]) { return false; }
    for (size_t i = 0; i < count; i++) {
        begin[i] = i;
        part[i] = t->byte_id[p[i]];
        pair[i] = i + 1 < count ? tokenizer_find(t, p + i, 2) : NO_TOKEN;
    }
    begin[count] = count;
    while (count > 2) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < count; i++) { if ((unsigned)pair[i] < (unsigned)pair[best]) { best = i; } }
        if ((unsigned)pair[best] >= (unsigned)id) { return false; } // NO_TOKEN is the greatest
        part[best] = pair[best];
        count--;
        for (size_t i = best + 1; i < count; i++) {
            begin[i] = begin[i + 1];
            part[i] = part[i + 1];
            pair[i] = pair[i + 1];
        }
        begin[count] = begin[count + 1];
        for (size_t i = best > 0 ? best - 1 : 0; i <= best; i++) { // the merged part has two new pairs
            pair[i] = i + 1 < count ? tokenizer_find(t, p + begin[i], begin[i + 2] - begin[i]) : NO_TOKEN;
        }
    }
    half[0] = part[0];
    half[1] = part[1];
    return true;
}
