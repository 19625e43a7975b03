// ./prepare: from text to token shards (data/README.md has their format; llmc/prepare/prepare.h does the work).
//
//     ./prepare --out data/shakespeare --split blank data/tinyshakespeare.txt
//     ./prepare --out data/web --val_size 1000000 web.jsonl.zst 'fineweb/*.parquet'
//     ./prepare --out data/stories --stories 2000000
//     ./prepare --out data/mytokenizer --train_tokenizer 4096 book.txt
#include "../llmc/prepare/prepare.h"
#include "../llmc/prepare/train_tokenizer.h"
#include "../llmc/base/json.h"
#include "../llmc/base/release.h"
#include "../llmc/base/threads.h"

static int run_program(int argc, char** argv) {
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
            prepare_options_help();
            return EXIT_DONE;
        }
        if (!strcmp(argv[i], "--version")) {
            print_release();
            return EXIT_DONE;
        }
    }
    PrepareOptions o = prepare_options_parse(argc - 1, argv + 1);
    if (o.threads > 0) { use_threads((int)o.threads); }
    if (o.train_tokenizer > 0) { train_tokenizer(&o); }
    else { prepare(&o); }
    prepare_options_free(&o);
    return EXIT_DONE;
}

int main(int argc, char** argv) {
    cap_threads();
    open_standard_streams();
    json_begin();
    return close_standard_output(run_program(argc, argv));
}
