#!/bin/sh
# Runs every test program of a build folder from the root of the repository, and adds up what they report.
# usage: run.sh build/CONFIG [NAME...]     exits 1 if anything failed
build=${1:?usage: run.sh build/CONFIG [NAME...]}
shift
passed=0 failed=0 skipped=0
[ $# -gt 0 ] || set -- $(cd test && ls test_*.c | sed 's/\.c$//')
output=$(mktemp)
export OMP_WAIT_POLICY=passive # threads of several programs may share the cores
for name in "$@"; do
    start=$(date +%s)
    "$build/$name" >"$output" 2>&1
    status=$?
    line=$(grep -E "^$name: [0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$" "$output" | tail -n 1)
    if [ -z "$line" ]; then # it ended before its time
        cat "$output"
        echo "$name: ended with status $status before it had finished"
        failed=$((failed + 1))
        continue
    fi
    grep -vxF "$line" "$output"
    echo "$line ($(($(date +%s) - start)) s)"
    set_counts() { passed=$((passed + $2)) failed=$((failed + $4)) skipped=$((skipped + $6)); }
    set_counts $(echo "$line" | tr -d ,)
done
rm -f "$output"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
