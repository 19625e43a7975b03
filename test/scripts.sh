#!/bin/sh
# Tests how a user begins: what setup.sh installs, what quickstart.sh says and suggests, make install, a release.
. "$(dirname "$0")/lib.sh"

# ----------------------------------------------------------------------------------------------------------------------
# a machine without packages: its cc finds only the headers named in $dir/headers, and apt-get only writes down what it
# is asked for

bare_machine() { # UID: puts the programs of such a machine into $dir/bin, run by the user of this number
    mkdir -p "$dir/bin"
    : >"$dir/headers" >"$dir/asked"
    echo "echo $1" >"$dir/bin/id"
    echo "grep -qxF \"\$(sed 's/.*<//; s/>//')\" '$dir/headers'" >"$dir/bin/cc"
    echo "echo \"\$*\" >>'$dir/asked'; ! grep -qs \"^\$1\" '$dir/apt_fails'" >"$dir/bin/apt-get"
    set +f
    chmod +x "$dir"/bin/*
    for tool in "$dir"/bin/*; do sed -i '1i #!/bin/sh' "$tool"; done
    set -f
}
setup() { TMPDIR="$dir" PATH="$dir/bin:$PATH" sh scripts/setup.sh "$@" </dev/null; }

setup_installs_what_the_machine_lacks() {
    bare_machine 0
    expect 0 'installing: libc6-dev libjansson-dev' setup sh:dash no-such-command:some-package
    for package in zlib1g-dev libzstd-dev libsnappy-dev some-package; do
        grep -q "^install .* $package\( \|$\)" "$dir/asked" || note "$package: $(cat "$dir/asked")"
    done
    ! grep -q dash "$dir/asked" || note "dash was there"
    printf '%s\n' stdlib.h jansson.h zlib.h zstd.h >"$dir/headers"
    : >"$dir/asked"
    must setup
    grep -q 'install .*-recommends libsnappy-dev$' "$dir/asked" || note "more than snappy: $(cat "$dir/asked")"
    echo snappy-c.h >>"$dir/headers"
    : >"$dir/asked"
    must setup
    [ ! -s "$dir/asked" ] || note "nothing was missing: $(cat "$dir/asked")"
}

setup_fails_only_for_what_is_needed() {
    bare_machine 1000
    expect 1 'libsnappy-dev; run: sudo sh -c' setup
    printf '%s\n' stdlib.h jansson.h >"$dir/headers"
    expect 0 'not needed: zlib1g-dev libzstd-dev libsnappy-dev; run: sudo' setup
    [ ! -s "$dir/asked" ] || note "a user installed: $(cat "$dir/asked")"
    echo 'echo 0' >"$dir/bin/id"
    echo update >"$dir/apt_fails" # without a network
    expect 0 "libsnappy-dev' failed; its whole output" setup
    : >"$dir/headers"
    expect 1 "error: missing: libc6-dev" setup
}

# On a terminal setup.sh asks before it calls sudo. Here Ctrl-D is the answer.
setup_without_an_answer_installs_nothing() {
    command -v script >/dev/null || { skip='no script (bsdutils)'; return; }
    bare_machine 1000
    printf '#!/bin/sh\necho sudo >>"%s"\n' "$dir/asked" >"$dir/bin/sudo"
    chmod +x "$dir/bin/sudo"
    printf '%s\n' stdlib.h jansson.h >"$dir/headers"
    at_terminal() { SHELL=/bin/sh PATH="$dir/bin:$PATH" script -qec 'sh scripts/setup.sh' /dev/null </dev/null; }
    expect 0 'not needed: zlib1g-dev libzstd-dev libsnappy-dev; run: sudo' at_terminal
    : >"$dir/headers"
    expect 1 'error: missing: libc6-dev' at_terminal
    grep -qF '[y/N]' "$dir/out" || note "it did not ask: $(cat "$dir/out")"
    [ ! -s "$dir/asked" ] || note "it installed: $(cat "$dir/asked")"
}

scripts_say_how_they_are_called() {
    for script in quickstart setup test; do
        expect 0 'usage:' sh scripts/$script.sh --help
        ! grep -q '^set\|^#' "$dir/out" || note "$script: more than its head"
    done
    expect 2 'usage: sh scripts/quickstart.sh' sh scripts/quickstart.sh --foo
    expect 2 'usage: sh scripts/quickstart.sh' sh scripts/quickstart.sh a b
    [ ! -e ./--help ] || note "quickstart.sh made a folder --help"
}

# ----------------------------------------------------------------------------------------------------------------------
# progress

# The command ends only when its progress has been printed; here sleep returns at once.
a_long_command_says_how_far_it_is() {
    mkdir "$dir/bin"
    printf '#!/bin/sh\nexec %s .05\n' "$(command -v sleep)" >"$dir/bin/sleep"
    chmod +x "$dir/bin/sleep"
    cat >"$dir/script" <<'END'
. scripts/progress.sh
state() { echo "half way"; }
seen() { for i in $(seq 1200); do ! grep -q 's: half way' "$1/out" || return "$2"; sleep .05; done; return 9; }
with_progress state "$1/log" seen "$1" "$2" || exit $?
END
    expect 0 'half way' env PATH="$dir/bin:$PATH" sh "$dir/script" "$dir" 0
    expect 3 'half way' env PATH="$dir/bin:$PATH" sh "$dir/script" "$dir" 3
}

# ----------------------------------------------------------------------------------------------------------------------
# quickstart.sh

# The run of quickstart.sh is continued as it suggests, both with a smaller model: the rate stays, and the loss falls.
quickstart_suggests_a_continuation_that_learns() {
    rate=$(sed -n 's/.* --lr \([^ ]*\) --warmup_steps.*/\1/p' scripts/quickstart.sh)
    more=$(sed -n 's/^ *\.\/train_gpt2 --out $out --resume auto --max_steps [0-9]* *//p' scripts/quickstart.sh)
    [ -n "$rate" ] && [ -n "$more" ] || { note "quickstart.sh has other words"; return; }
    corpus
    must "$train" $small $data --lr "$rate" --warmup_steps 10 --max_steps 100 --out "$dir/run"
    before=$(sed -n 's/^val loss //p' "$dir/out" | tail -n 1)
    must "$train" --out "$dir/run" --resume auto --max_steps 200 $more
    after=$(sed -n 's/^val loss //p' "$dir/out" | tail -n 1)
    awk "BEGIN { exit !($after < $before) }" || note "val loss $before, then $after"
    sed -n 's/.*"kind":"train".*"lr":\([^,}]*\).*/\1/p' "$dir/run/metrics.jsonl" >"$dir/rates"
    awk 'NR == 100 { end = $1 } NR == 101 { exit !($1 <= 1.05 * end) }' "$dir/rates" ||
        note "rates $(sed -n '100,101p' "$dir/rates" | tr '\n' ' ')"
}

# ----------------------------------------------------------------------------------------------------------------------
# installing and packing

# Without git's and the outer make's variables.
quiet_make() { env -u MAKEFLAGS -u MAKELEVEL make -s "$@"; }

programs_are_installed_and_removed() {
    set -- PROGRAMS="train_gpt2 prepare" DESTDIR="$dir/a root" PREFIX=/opt/gpt2c BUILD="$build"
    must quiet_make install "$@"
    expect 0 'gpt2.c ' "$dir/a root/opt/gpt2c/bin/train_gpt2" --version
    expect 0 'gpt2.c ' "$dir/a root/opt/gpt2c/bin/prepare" --version
    : >"$dir/a root/opt/gpt2c/bin/other"
    must quiet_make uninstall "$@"
    [ "$(ls "$dir/a root/opt/gpt2c/bin")" = other ] || note "left: $(ls "$dir/a root/opt/gpt2c/bin")"
}

# The tarball is unpacked inside another repository, whose commit the program must not name.
a_release_knows_its_commit() {
    { [ -e .git ] && git rev-parse HEAD >/dev/null 2>&1; } || { skip="no git repository here"; return; }
    commit=$(git rev-parse --short HEAD)
    must quiet_make dist
    git init -q "$dir"
    version=$(sed -n 's/^version: "\(.*\)"/\1/p' CITATION.cff)
    must tar -xzf "build/gpt2.c-$version.tar.gz" -C "$dir"
    cp Makefile "$dir/gpt2.c-$version" # with what is not committed yet
    cp test/rules.mk "$dir/gpt2.c-$version/test"
    must quiet_make -C "$dir/gpt2.c-$version" build/release/llmc/base/release.o
    grep -q "$commit" "$dir/gpt2.c-$version/build/release/llmc/base/release.o" || note "release.o does not have $commit"
    [ -f "$dir/gpt2.c-$version/CITATION.cff" ] || note "no CITATION.cff in it"
}

# The dependency files of an earlier build name sources that are gone.
a_build_survives_sources_that_moved() {
    mkdir -p "$dir/build/llmc/base"
    for made in llmc/base/base.o test_base; do
        echo "$dir/build/$made: llmc/gone.c test/gone/test_base.c llmc/gone.h" >"$dir/build/${made%.o}.d"
    done
    must quiet_make -n BUILD="$dir/build" "$dir/build/test_base"
    grep -q ' -c llmc/base/base.c ' "$dir/out" || note "base.c is not compiled: $(cat "$dir/out")"
    ! grep gone "$dir/out" || note "compiled or linked from what is gone"
}

# ----------------------------------------------------------------------------------------------------------------------
# pictures and figures

pictures_have_colours_for_dark_pages() {
    for picture in $(find dev -name '*.svg'); do
        grep -q 'prefers-color-scheme: dark' "$picture" || note "$picture has none"
    done
}

# dev/architecture.svg names the backends that llmc/train/backends.c lists, and their number.
the_picture_names_every_backend() {
    for device in cpu cuda; do
        names=$(grep -o "_(${device}_[a-z0-9_]*)" llmc/train/backends.c | tr -d '()' | cut -c 2-)
        count=$(echo "$names" | wc -l)
        grep -q "compiled $count times" dev/architecture.svg || note "not 'compiled $count times' for $device"
        for name in $names; do grep -qw "$name" dev/architecture.svg || note "no $name"; done
    done
}

# What README quotes was printed: each line of a block that has a `val loss`, but for its end if that is "...".
readme_quotes_the_record_of_its_commands() {
    record=dev/bench/results/cpu/readme.txt
    awk -v RS= '/    val loss/' README.md | sed -n 's/ \.\.\.$//; /^    \.\.\.$/d; s/^    //p' >"$dir/quoted"
    [ "$(grep -c 'val loss' "$dir/quoted")" -ge 4 ] || note "README quotes too little"
    while IFS= read -r line; do
        grep -qF -- "$line" $record || note "$record does not have: $line"
    done <"$dir/quoted"
    grep -qF "dev/report.png: cksum $(cksum <dev/report.png)" $record || note "dev/report.png is of another run"
    for loss in $(sed -n 's/^| quickstart: .*\[\([0-9.]*\) to \([0-9.]*\)\].*/\1 \2/p' README.md) missing; do
        [ "$loss" != missing ] || break
        awk '/^val loss/ { printf "%.2f\n", $3 }' $record | grep -qxF "$loss" || note "no val loss of $loss"
    done
}

# Rows of README and of dev/numbers.md that name a record of `peers`: tokens/s and the ratio are those of the record.
figures_beside_pytorch_are_those_recorded() {
    cat README.md dev/numbers.md | sed -n 's/^\[\([a-z0-9]*\)\]: .*results\/\(.*peers_.*\.json\)$/\1 \2/p' \
        >"$dir/records"
    rows=0
    while read -r name file; do
        sed -nE "s/^\| (both limited to AVX2: )?(fp32|bf16), .*\]\[$name\] .*/\2&/p" README.md dev/numbers.md \
            >"$dir/rows"
        while IFS= read -r row; do
            rows=$((rows + 1))
            awk -v dtype="$(echo "$row" | cut -c 1-4)" -v RS=, '
                function value() { sub(/.*: */, ""); sub(/[ \n}].*/, ""); return $0 + 0 }
                /"dtype":/ { on = index($0, "\"" dtype "\"") }
                on && /"ratio":/ { ratio = value() }
                on && /"better":/ { better = $0; gsub(/.*: *"|"$/, "", better) }
                on && /"tok_s":/ { ours = value(); in_speed = 1; next }
                on && in_speed && index($0, "\"" better "\":") { printf "%.2f %.0f %.0f\n", ratio, ours, value(); exit }
                ' "dev/bench/results/$file" >"$dir/recorded"
            read -r ratio ours other <"$dir/recorded" || note "$file has no figures of: $row"
            plain=$(echo "$row" | sed 's/\([0-9]\),\([0-9][0-9][0-9]\)/\1\2/g')
            for figure in "$ratio" "$ours" "$other"; do
                echo "$plain" | grep -qwF -- "$figure" || note "$file has $figure, not: $row"
            done
        done <"$dir/rows"
    done <"$dir/records"
    [ "$rows" -ge 16 ] || note "only $rows rows found"
}

# The table of recipes has the steps of the presets, and run_preset.sh asks for shards that hold their tokens. Muon
# gains at most what was published: 1.4 times fewer tokens than the tuned AdamW of fast:, 1.1 times for the largest.
recipes_are_the_presets_and_promise_no_more_than_published() {
    steps_of() { sed -n "/{\"$1\"/,/},/s/.*--max_steps \([0-9]*\).*/\1/p" llmc/options/models.c; }
    for size in 124m 350m 774m 1558m; do
        for kind in gpt2 fast muon; do
            steps=$(steps_of $kind:$size)
            grep "^| .$kind:$size" dev/learning.md | tr -d , | grep -q "| $steps |" ||
                note "$kind:$size: not $steps steps"
        done
        tokens=$((steps * 524288))
        [ $size != 1558m ] || tokens=$((steps * 1048576))
        shards=$(sed -n "s/^muon:$size) set -- [^ ]* \([0-9]*\) .*/\1/p" scripts/run_preset.sh)
        [ "$shards" = $(((tokens + 99999999) / 100000000)) ] || note "muon:$size: $shards shards for $tokens tokens"
        most=1.4
        [ $size != 1558m ] || most=1.1
        awk "BEGIN { exit !($(steps_of fast:$size) <= $most * $steps) }" || note "muon:$size gains more than $most"
    done
}

# An option that left the programs has an advice instead, and no page or script may still give it, unless the advice
# says that a script of dev/bench has it now.
no_page_names_an_option_that_is_gone() {
    sed -n '/ ADVICE\[\] = {/,/^};/{ /dev\/bench/d; s/^ *{"\([a-z_]*\)", .*/\1/p }' llmc/options/config.c >"$dir/gone"
    [ "$(wc -l <"$dir/gone")" -ge 15 ] || note "the table of advice was not found"
    set +f
    grep -rnwE -e "--($(tr '\n' '|' <"$dir/gone")dropout)" README.md CONTRIBUTING.md SECURITY.md Makefile dev/*.md \
        scripts >"$dir/named"
    set -f
    [ ! -s "$dir/named" ] || note "$(cat "$dir/named")"
}

run_tests
