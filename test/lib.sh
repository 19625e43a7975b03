# What the test scripts share. The script sets `chosen` to the words that names of tests must contain (none: all), sources
# this, defines its tests and runs each by run_test; end_tests prints the counts and gives the exit code.
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
passed=0 failed=0 skipped=0
export OMP_WAIT_POLICY=passive # several programs share the machine here

# a test is a function that leaves a message in $problem, or a reason in $skip

run_test() {
    case " $chosen " in "  ") ;; *)
        found=
        for word in $chosen; do case $1 in *"$word"*) found=1 ;; esac; done
        [ -n "$found" ] || return 0 ;;
    esac
    problem='' skip='' dir="$root/$1"
    mkdir -p "$dir"
    "$1"
    if [ -n "$problem" ]; then failed=$((failed + 1)); echo "FAILED  $1: $problem"
    elif [ -n "$skip" ]; then skipped=$((skipped + 1)); echo "skipped $1: $skip"
    else passed=$((passed + 1)); fi
    rm -rf "$dir"
}

note() { problem="${problem:+$problem; }$*"; }

# expect CODE 'words' command...: the exit code, and words on standard error (or output, if it says none there)
expect() {
    code=$1 words=$2
    shift 2
    "$@" >"$dir/out" 2>"$dir/err"
    got=$?
    [ "$got" = "$code" ] || note "exit code $got, not $code, of: $* ($(tail -n 1 "$dir/err"))"
    grep -qF -- "$words" "$dir/err" "$dir/out" || note "no '$words' from: $* (but: $(tail -n 1 "$dir/err"))"
}

must() { "$@" >"$dir/out" 2>"$dir/err" || note "failed: $* ($(tail -n 1 "$dir/err"))"; }

# the losses and norms of the steps in a log, one step a line
losses() { sed -n 's/^step *\([0-9]*\)\/.* loss \([^ ]*\) .*norm \([^ ]*\) .*/\1 \2 \3/p' "$1"; }

# a small model on bytes; more options follow
small="--model L=2,H=2,C=32,T=48,V=257 --tokenizer bytes --batch_size 4 --seq_len 32 --lr 3e-3 --sample_every 0 --threads 2"
corpus() { # the built-in corpus in bytes, made once
    [ -f "$root/corpus_val.json" ] || "$prepare" --stories 120000 --tokenizer bytes --val_size 6000 --out "$root/corpus" >/dev/null 2>&1
    data="--train_data $root/corpus_train_*.bin --val_data $root/corpus_val_*.bin"
}
set -f # globs are for the programs

# every function of a script whose first line is `name() {` and nothing else is a test
run_tests() {
    for t in $(sed -n 's/^\([a-z_0-9]*\)() {$/\1/p' "$1"); do run_test "$t"; done
}
end_tests() {
    echo "$1: $passed passed, $failed failed, $skipped skipped"
    [ "$failed" = 0 ]
}
