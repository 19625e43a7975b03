#!/bin/sh
# Tests `make portable` and how a program finds the libraries that it opens when a run needs them (llmc/base/library.h).
# The parts with train_gpt2cu need a build of it; no GPU.
. "$(dirname "$0")/lib.sh"
# In a build folder of its own, whose settings may differ.
quiet_make() { env -u MAKEFLAGS -u MAKELEVEL make -s BUILD="$dir/build" "$@"; }
gpu="$build/train_gpt2cu"
[ -x "$gpu" ] || gpu=

programs_need_few_libraries() {
    shared=$(quiet_make libraries CUDA_HOME=/none | grep -oE -- '-l(jansson|z|zstd|snappy)( |$)')
    [ -z "$shared" ] || { skip="no archive to link here for $shared"; return; }
    for program in "$train" "$prepare" $gpu; do
        readelf -d "$program" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' >"$dir/needed"
        rest=$(grep -vE '^(libc|libm|libdl|librt|libpthread|libgomp|libgcc_s|ld-linux.*)\.so' "$dir/needed")
        [ -s "$dir/needed" ] && [ -z "$rest" ] || note "$program needs" $rest
        readelf -W --dyn-syms "$program" >"$dir/symbols"
        ! grep -q 'UND arc4random' "$dir/symbols" || note "$program needs glibc 2.36"
    done
}

other_machine() { # a root folder with the programs, the libraries that they name, and a corpus
    corpus
    mkdir -p "$dir/root/tmp"
    must install -s "$train" $gpu "$dir/root"
    cp "$root/corpus_train_000001.bin" "$root/corpus_val_000000.bin" "$root/corpus_val.json" "$dir/root"
    for library in $(ldd "$train" $gpu | grep -o '/[^ ]*\.so[^ ]*'); do
        mkdir -p "$dir/root${library%/*}"
        cp -L "$library" "$dir/root$library"
    done
    chroot "$dir/root" /train_gpt2 --version >"$dir/out" 2>&1 || skip="cannot chroot here: $(tail -n 1 "$dir/out")"
}
there() { env -i ${two:-} "$(command -v chroot)" "$dir/root" "$@"; }

they_run_where_nothing_else_is() {
    other_machine
    [ -z "$skip" ] || return
    data="--train_data /corpus_train_*.bin --val_data /corpus_val_*.bin"
    must there /train_gpt2 $small $data --max_steps 3 --out /tmp/run
    grep -q '^step *3/3' "$dir/out" || note "no third step: $(tail -n 1 "$dir/out")"
    two="RANK=0 WORLD_SIZE=2 LOCAL_RANK=0"
    expect 2 'several CPU processes need MPI: run `apt-get install libopenmpi-dev`' \
        there /train_gpt2 $small $data --out /tmp/two
    [ -n "$gpu" ] || { skip='no nvcc built the GPU trainer here'; return; }
    set -- there /train_gpt2cu $small $data --out /tmp/gpus
    expect 1 'several GPUs need NCCL: run `pip install nvidia-nccl-cu' "$@"
    echo 'int ncclReduce;' | cc -shared -fPIC -x c - -o "$dir/root/lib/libnccl.so.2"
    expect 1 'libnccl.so.2 is too old, it has no ncclAllGather: several GPUs need' "$@"
    two=
    expect 0 'usage: /train_gpt2cu' there /train_gpt2cu --help
    expect 0 'there is no GPU here' there /train_gpt2cu info --model d12
    expect 1 'no NVIDIA driver' there /train_gpt2cu $small $data --out /tmp/gpu
}

# ----------------------------------------------------------------------------------------------------------------------
# finding a library: libfake.so.3, whose function says in which folder it lies

fake_program() { # $dir/program
    printf 'REACH fake_%s\n' place argument >"$dir/reached.list"
    cat >"$dir/program.c" <<'END'
#include "llmc/base/library.h"
const char* fake_place(void);
double fake_argument(int a, double b, int c, int d, int e, int f, int g, double h);
int main(void) {
    Error err;
    if (!library_reach("libfake.so.3", "get one", &err)) { return puts(err.text), 1; }
    return printf("%s %g\n", fake_place(), fake_argument(1, 2, 3, 4, 5, 6, 7, 8)), 0;
}
END
    must cc -I. -I"$dir" -Wl,-rpath,'$ORIGIN' "$dir/program.c" llmc/base/reached.S "$build/libllmc.a" \
        $(quiet_make libraries) -o "$dir/program"
}
fake_library() { # FOLDER
    mkdir -p "$1"
    cc -shared -fPIC -x c - -o "$1/libfake.so.3" <<END
const char* fake_place(void) { return "$1"; }
double fake_argument(int a, double b, int c, int d, int e, int f, int g, double h) { return b * g + h; }
END
}

libraries_are_found_in_order() {
    fake_program
    packages=lib/python3.12/site-packages/nvidia/fake/lib
    set -- env CUDA_HOME="$dir/toolkit" VIRTUAL_ENV="$dir/venv" LD_LIBRARY_PATH="$dir/loader" \
        PATH="$PATH:$dir/other toolkit/bin:relative:$dir/python/bin" "$dir/program"
    expect 1 'libfake.so.3: cannot open shared object file: No such file or directory: get one' "$@"
    mkdir -p "$dir/toolkit/bin" "$dir/other toolkit/bin" "$dir/venv/bin" "$dir/python/bin" "$dir/bin"
    for place in "python/$packages" "venv/$packages" "other toolkit/lib64" toolkit/lib64 . loader; do
        fake_library "$dir/$place"
        expect 0 "$dir/$place 22" "$@"
    done
}

a_library_that_is_too_old_is_refused() {
    fake_program
    echo 'int fake_place;' | cc -shared -fPIC -x c - -o "$dir/libfake.so.3"
    expect 1 'libfake.so.3 is too old, it has no fake_argument: get one' "$dir/program"
}

# ----------------------------------------------------------------------------------------------------------------------
# make

portable_programs_are_stripped() {
    expect 0 'install -s ' quiet_make -n portable CUDA_HOME=/none
    expect 2 'there is no archive lib*.a of -ljansson' quiet_make -n portable STATIC_LIBS=-ljansson
}

make_says_what_it_left_out() {
    expect 0 'without nvcc: no train_gpt2cu: there is no nvcc in the path or in /none' quiet_make help CUDA_HOME=/none
    expect 0 'built without MPI: no runs of several CPU processes' quiet_make help MPICC=no-such-command
    must quiet_make help MPICC=no-such-command MPI=0
    ! grep -q 'without MPI' "$dir/out" || note "MPI=0: $(tail -n 2 "$dir/out")"
}

all_gpus_are_those_that_nvcc_knows() {
    mkdir -p "$dir/bin"
    printf '#!/bin/sh\nprintf "compute_%%s\\n" 50 75 80 87 90\n' >"$dir/bin/nvcc"
    chmod +x "$dir/bin/nvcc"
    must quiet_make -n GPU=all CUDA_HOME="$dir" "$dir/build/cuda_fp32.o"
    found=$(grep -o 'code=sm_[0-9]*' "$dir/out" | tr '\n' ' ')
    [ "$found" = "code=sm_75 code=sm_80 code=sm_90 " ] || note "GPU=all builds $found"
}

run_tests
