// Makes a tokenizer file from the two files in which OpenAI published GPT-2's vocabulary:
//
//     make && cc -D_GNU_SOURCE data/make_tokenizer.c build/release/libllmc.a -ljansson -lm -o make_tokenizer
//     ./make_tokenizer vocab.bpe encoder.json data/gpt2_tokenizer.bin
//
// The repository contains the result, data/gpt2_tokenizer.bin, so this program need not be run.
#include "../llmc/base/file.h"
#include "../llmc/tokenizer/tokenizer_json.h"

int main(int argc, char** argv) {
    Tokenizer t;
    Error err;
    if (argc != 4) { usage_error("usage: make_tokenizer vocab.bpe encoder.json OUT"); }
    if (!tokenizer_read_vocab(&t, argv[2], argv[1], &err) ||
        !write_file_atomically(argv[3], (const char*)t.file, tokenizer_file_size(&t), &err)) {
        fatal("%s", err.text);
    }
    tokenizer_free(&t);
    return EXIT_DONE;
}
