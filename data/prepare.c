// ./prepare: from text to token shards (data/README.md has their format; llmc/data/prepare.h does the work).
//
//     ./prepare --out data/shakespeare --split blank data/tinyshakespeare.txt
//     zstdcat web.jsonl.zst | ./prepare --out data/web --format jsonl --val_size 1000000 -
//     ./prepare --out data/stories --stories 2000000
#include "../llmc/data/prepare.h"
#include <jansson.h>
#ifdef _OPENMP
#include <omp.h>
#endif

int main(int argc, char** argv) {
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
            prepare_options_help();
            return EXIT_DONE;
        }
    }
    const PrepareOptions o = prepare_options_parse(argc - 1, argv + 1);
#ifdef _OPENMP
    if (o.threads > 0) { omp_set_num_threads((int)o.threads); }
#endif
    json_object_seed(1); // before there are threads: else jansson seeds itself at its first use, in any of them
    prepare(&o);
    free(o.inputs);
    return EXIT_DONE;
}
