#!/bin/sh
# Runs the test programs of a build folder from the root of the repository, one at a time on each processor, and adds up
# their counts. Exits with 1 if a test failed.
# usage: run.sh build/CONFIG [NAME[=WORD,...]...] [all]
# NAME=WORD,... runs only tests whose names contain a WORD, NAME=-WORD only those whose names do not. all: runs all
# other programs too, as without names. The variable `watch` is a command that runs each program, as watched.sh sets it.
build=${1:?usage: run.sh build/CONFIG [NAME[=WORD,...]...] [all]}
shift
[ $# -gt 0 ] || set -- all
case " $* " in *" all "*) # test_connect waits for time-outs, and test_backends computes longest: they begin first
    set -- test_connect "$@" test_backends $(cd test && ls */test_*.c | sed 's:.*/::; s/\.c$//') ;;
esac
workers=$(nproc 2>/dev/null || echo 1)
export GOMP_SPINCOUNT=100 # several programs share the cores: threads that wait spin but a moment
# gcc 14 does not align the stack frames of this check, which is on since gcc 13, for vectors of 64 bytes
export ASAN_OPTIONS="detect_stack_use_after_return=0:${ASAN_OPTIONS:-}"
# Large pages: to map and clear small ones takes a third of the time of test_backends.
export GLIBC_TUNABLES=glibc.malloc.hugetlb=1
work=$(mktemp -d) running=
export TMPDIR="$work" # has the programs' folders; by it the programs are found that a signal ends too
clean() {
    kill $running $(grep -lszxF "TMPDIR=$work" /proc/[0-9]*/environ | cut -d / -f 3) 2>/dev/null
    rm -rf "$work"
}
trap clean EXIT
trap 'exit 143' INT TERM HUP # dash that dies of a signal runs no EXIT trap

run_program() { # NAME WORD...
    output="$work/$1"
    start=$(date +%s)
    program="$build/$1"
    name=$1
    shift
    if [ "$name" = test_amx ] && ! grep -q avx512_bf16 /proc/cpuinfo; then
        echo "skipped $name: emulated AMX needs a processor with AVX512_BF16"
        echo "$name: 0 passed, 0 failed, 1 skipped" >"$work/$name.counts"
        return
    fi
    ${watch:-} "$program" "$@" >"$output" 2>&1
    status=$?
    line=$(grep -E "^$name: [0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$" "$output" | tail -n 1)
    case $status:$line in *: | [1-9]*", 0 failed,"*) # before it had finished, or with a report of what watches it
        cat "$output"
        echo "FAILED  $name: ended with status $status"
        echo "$name: 0 passed, 1 failed, 0 skipped" >"$work/$name.counts"
        return ;;
    esac
    echo "$line" >"$work/$name.counts"
    { grep -vxF "$line" "$output"; echo "$line ($(($(date +%s) - start)) s)"; } >"$output.said"
    cat "$output.said"
}
worker() {
    for spec in "$@"; do
        [ "$spec" != all ] || continue
        [ "$spec" != test_amx ] || [ -x "$build/test_amx" ] || continue # only built with that level
        mkdir "$work/${spec%%=*}.taken" 2>/dev/null || continue
        case $spec in
        *=*) run_program "${spec%%=*}" $(echo "${spec#*=}" | tr , ' ') ;;
        *) run_program "$spec" ;;
        esac
    done
}

i=0
while [ $i -lt "$workers" ]; do
    worker "$@" &
    running="$running $!"
    i=$((i + 1))
done
wait
cat "$work"/*.counts | tr -d , | awk '{ p += $2; f += $4; s += $6 }
    END { printf "%d passed, %d failed, %d skipped\n", p, f, s; exit f > 0 || !NR }'
