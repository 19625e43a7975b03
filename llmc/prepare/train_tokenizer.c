#include "train_tokenizer.h"
#include "../base/file.h"
#include "../tokenizer/bpe_trainer.h"
#include "../base/json.h"
#include "../base/threads.h"
#include "../tokenizer/byte_level.h"
#include "documents.h"
#include "../tokenizer/tokenizer_json.h"
#include "../tokenizer/tokenizer_save.h"
#include <inttypes.h>

// Memory of the tables of counts, and of the pieces that are learnt from. Chosen.
static const size_t COUNTS_MEMORY = (size_t)512 << 20, PIECES_BYTES = (size_t)64 << 20;

typedef struct {
    uint64_t documents, bytes;
    Progress shown;
} Read;

static bool add_chunk(void* context, Chunk* c) {
    Read* r = context;
    r->documents += c->skip == NOT_SKIPPED && !c->at.inside_document;
    r->bytes += c->bytes;
    progress(&r->shown, "%.1f MB of text", 1e-6 * (double)r->bytes);
    return true;
}

static Pieces count_pieces(const PrepareOptions* asked, Read* r) {
    PrepareOptions o = *asked;
    o.counts = piece_counts_open(max_threads(), COUNTS_MEMORY, o.out);
    InputState start = input_begin(&o);
    encode_input(&o, NULL, &start, add_chunk, r);
    return piece_counts_finish(o.counts, PIECES_BYTES);
}

// Makes the tokenizer of these merges: bytes, merges, end of text.
static Tokenizer tokenizer_of_merges(const BpeMerge* merges, int count) {
    const ByteLevel b = byte_level();
    const int vocab_size = 256 + count + 1;
    TokenBytes* tokens = alloc_or_die((size_t)vocab_size, sizeof *tokens, "the tokenizer");
    unsigned char *memory = alloc_or_die((size_t)count + 1, TOKENIZER_MAX_BYTES, "the tokenizer"), *to = memory;
    for (int i = 0; i < 256; i++) { tokens[i] = (TokenBytes){&b.order[i], 1, false}; }
    for (int i = 0; i < count; i++) {
        const TokenBytes *left = &tokens[merges[i].left], *right = &tokens[merges[i].right];
        tokens[256 + i] = (TokenBytes){to, left->count + right->count, false};
        memcpy(to, left->bytes, left->count);
        memcpy(to + left->count, right->bytes, right->count);
        to += TOKENIZER_MAX_BYTES;
    }
    tokens[vocab_size - 1] = (TokenBytes){EOT_NAME, strlen(EOT_NAME), true};
    Tokenizer t;
    Error err;
    if (!tokenizer_from_tokens(&t, tokens, vocab_size, vocab_size - 1, "the tokenizer learnt", &err)) {
        fatal("%s", err.text);
    }
    free(memory);
    free(tokens);
    return t;
}

static void write_tokenizer(const Tokenizer* t, const char* folder) {
    TokenizerFiles files;
    Error err;
    char* path = format("%s/tokenizer.bin", folder);
    memset(&files, 0, sizeof files);
    if (!tokenizer_files_make(&files, t, 0, "the tokenizer learnt", &err) ||
        !write_file_atomically(path, (const char*)t->file, tokenizer_file_size(t), &err) ||
        !tokenizer_files_write(&files, folder, &err)) {
        fatal("%s", err.text);
    }
    tokenizer_files_free(&files);
    free(path);
}

void train_tokenizer(const PrepareOptions* o) {
    Error err;
    Read r = {.bytes = 0};
    const double start = seconds_now();
    const int num_merges = (int)o->train_tokenizer - 257;
    reader_check_files(o);
    if (!make_directories(o->out, &err)) { fatal("--out %s", err.text); }
    if (!o->force && folder_has_tokenizer(o->out)) {
        fatal("--out %s: there is a tokenizer already: give another folder, or --force 1 to replace it", o->out);
    }
    Pieces pieces = count_pieces(o, &r);
    const double read = seconds_now();
    if (r.documents == 0) { fatal("%s: the input is empty", o->inputs[0]); }
    if (pieces.least > 1) {
        notice("pieces of text that come less than %" PRIu64 " times are left out, but for %.0f%% of those that come %"
               PRIu64 " times: all would not fit into memory", pieces.least, 100 * pieces.share, pieces.least - 1);
    }
    BpeMerge* merges = alloc_or_die((size_t)num_merges + 1, sizeof *merges, "merges");
    const int learnt = bpe_train(merges, num_merges, &pieces);
    if (learnt < num_merges) {
        fatal("--train_tokenizer %lld: the input has no pairs for more than %d tokens: give fewer%s",
              o->train_tokenizer, 257 + learnt, pieces.least > 1 ? "" : ", or more text");
    }
    Tokenizer t = tokenizer_of_merges(merges, learnt);
    write_tokenizer(&t, o->out);
    print_result("%s: %d tokens, from %" PRIu64 " document%s of %" PRIu64 " bytes\n", o->out, t.vocab_size, r.documents,
                 plural(r.documents), r.bytes);
    notice("%zu distinct pieces counted in %.1f s, merges learnt in %.1f s", pieces.count, read - start,
           seconds_now() - read);
    tokenizer_free(&t);
    pieces_free(&pieces);
    free(merges);
}
