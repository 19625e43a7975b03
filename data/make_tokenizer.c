// Makes a tokenizer file from the two files in which OpenAI published GPT-2's vocabulary:
//
//     cd llmc/tokenizer && cc -std=c11 -D_GNU_SOURCE -O2 ../../data/make_tokenizer.c ../base/base.c byte_level.c
//         merges.c tokenizer.c tokenizer_json.c unicode.c -ljansson -lm -o make_tokenizer
//     ./make_tokenizer vocab.bpe encoder.json ../../data/gpt2_tokenizer.bin
//
// The repository contains the result, data/gpt2_tokenizer.bin, so this program need not be run. What it would embed is
// what it makes: the file that the library embeds is left out.
#include "../llmc/tokenizer/tokenizer_json.h"

const unsigned char gpt2_tokenizer_file[1], gpt2_tokenizer_file_end[1];

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
