#!/bin/sh
# Builds the CPU programs for aarch64 by a cross compiler, into build/aarch64, and runs them by qemu: the test programs,
# and small runs beside those of this machine's build. Installs compiler and qemu, and downloads arm64's libraries by
# apt-get, without a change to the system's list of architectures. Exits with 77 and a reason if that fails.
. "$(dirname "$0")/lib.sh"
native=$build build=build/aarch64 libraries="$PWD/build/aarch64_libraries"

skip() { echo "skipped: $*"; exit 77; }
sh scripts/setup.sh aarch64-linux-gnu-gcc:gcc-aarch64-linux-gnu aarch64-linux-gnu-gcc:libc6-dev-arm64-cross \
    qemu-aarch64:qemu-user || skip "no cross compiler for aarch64, or no qemu"

# Unpacks development packages of arm64: headers, and static libraries, which the emulated programs need not find.
fetch_libraries() (
    command -v apt-get >/dev/null && work=$(mktemp -d) && cd "$work" || return 1
    trap 'rm -rf "$work"' EXIT
    trap 'exit 143' INT TERM HUP
    mkdir -p lists/partial archives/partial
    : >status
    set -- -qq -o Dir::State::lists="$work/lists" -o Dir::State::status="$work/status" -o Dir::Cache="$work" \
        -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User=root
    apt-get "$@" update # a source without arm64 is no error if another has it
    apt-get "$@" download libjansson-dev zlib1g-dev libzstd-dev || return 1
    for package in *.deb; do dpkg -x "$package" "$libraries" || return 1; done
)
[ -f "$libraries/usr/include/jansson.h" ] || fetch_libraries || skip "no packages for arm64 from this system's sources"

usr="$libraries/usr"
CC="aarch64-linux-gnu-gcc -isystem $usr/include -isystem $usr/include/aarch64-linux-gnu"
make -s -j "$(nproc)" BUILD=$build CC="$CC -L$usr/lib/aarch64-linux-gnu" CUDA_HOME=/none MPI=0 SNAPPY=0 LEVELS=generic \
    $build/train_gpt2 $build/prepare tests || exit 1

# build/aarch64/qemu has the name of each program, which runs it emulated: to other scripts it is a build folder.
mkdir -p $build/qemu
cat >$build/qemu/emulate <<END
#!/bin/sh
exec qemu-aarch64 -L /usr/aarch64-linux-gnu "$PWD/$build/\${0##*/}" "\$@"
END
chmod +x $build/qemu/emulate
for f in $build/train_gpt2 $build/prepare $build/test_*; do
    case $f in *.d) ;; *) ln -sf emulate "$build/qemu/${f##*/}" ;; esac
done
train="$build/qemu/train_gpt2" prepare="$native/prepare"
export OMP_NUM_THREADS=2

# But for test_local, whose processes start its file, which only the kernel could emulate. The test left out did not end
# within 20 minutes.
test_programs_pass() {
    others=$(ls $build/qemu | grep '^test_' | grep -vxE 'test_(local|backends)')
    sh test/run.sh $build/qemu test_backends=-fast_kernels $others || note "a test program failed"
}

every_operation_equals_its_plain_loop() {
    for dtype in fp32 bf16 fp16; do
        must "$train" check --dtype $dtype --model L=2,H=3,C=96,T=64,V=517 --max_steps 2
        grep -q "$dtype, generic kernels" "$dir/out" || note "other kernels: $(head -n 1 "$dir/out")"
    done
}

# Sums have another order than on x86-64, as tiles and vectors have another shape.
losses_are_those_of_this_machine() {
    corpus
    for dtype in fp32:1e-5 bf16:3e-4 fp16:1e-4; do
        set -- $small $data --dtype ${dtype%:*} --max_steps 10 --val_every 0
        must "$native/train_gpt2" "$@" --cpu generic --out "$dir/native"
        must "$train" "$@" --out "$dir/emulated"
        losses "$dir/native/log.txt" >"$dir/native.losses"
        losses "$dir/emulated/log.txt" | paste -d ' ' "$dir/native.losses" - |
            awk -v most="${dtype#*:}" '
                { d = ($2 - $5) / $2; if (d < 0) { d = -d } if (d > worst) { worst = d } equal += $1 == $4 }
                END { printf "worst difference %.1e\n", worst; exit equal != 10 || worst > most }' >"$dir/worst" ||
            note "$dtype: $(cat "$dir/worst")"
        echo "${dtype%:*}: $(cat "$dir/worst")"
        rm -r "$dir/native" "$dir/emulated"
    done
}

any_number_of_threads_gives_the_same_bits() {
    corpus
    for dtype in fp32 bf16 fp16; do
        for threads in 1 2 5; do
            must "$train" $small $data --dtype $dtype --max_steps 4 --val_every 0 --threads $threads \
                --out "$dir/$dtype$threads"
            same_checkpoint "$dir/${dtype}1/step_00000004" "$dir/$dtype$threads/step_00000004"
        done
    done
}

run_tests
