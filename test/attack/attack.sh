# Functions of faults.sh that attack a training run and look for what was lost. Each attack is a try: the program
# is killed, or a call of it fails, and then the same command with --resume auto goes on. Something is lost if
#   - the program crashed, hung, or failed without a reason on standard error;
#   - it ended with 0, or a later start did, and a checkpoint, a record or a log line of the undisturbed run is missing;
#   - a checkpoint was taken for damaged.
# A checkpoint too many, after a warning that it cannot be removed, is none; nor is the last line of log.txt, if an
# error names that file.
# Sets $tried and $lost. What was lost is printed, and a test with a loss fails.

attack_options="--model L=1,H=1,C=8,T=16,V=257 --tokenizer bytes --batch_size 2 --seq_len 16 --max_steps 6 \
    --save_every 2 --keep 2 --val_every 3 --val_tokens 64 --sample_every 4 --sample_tokens 4 --threads 1 --tune 0"

# Makes the tools, the run that nothing disturbs, and one that was stopped after step 4, in $dir.
attack_begin() { # (a helper)
    tools=$dir
    ${CC:-cc} -O1 -D_GNU_SOURCE test/attack/fault.c -o "$tools/fault" &&
        ${CC:-cc} -O1 -fPIC -shared test/attack/alloc.c -o "$tools/alloc.so" || note "the tools do not compile"
    corpus
    here=$(pwd)
    attacked="$here/$train $attack_options $data"
    mkdir "$dir/whole" "$dir/half" "$dir/try"
    (cd "$dir/whole" && $attacked --out run >/dev/null 2>&1) || note "the undisturbed run failed"
    (cd "$dir/half" && $tools/fault count ../calls $attacked --out run >/dev/null 2>&1) || {
        skip='ptrace is forbidden here, or this is not x86-64'; return 1; }
    rm -rf "$dir/half/run/step_00000006"
    (cd "$dir/half" && $attacked --out run --resume auto --max_steps 4 >/dev/null 2>&1)
    tried=0 lost=0 last=step_00000006 ended=
    attack_until=$(($(date +%s) + ${within:-1000000}))
}

# what a run has that does not depend on times or starts; a kill may come between a save and its record
attack_records() { # FOLDER
    records "$1" | grep -av '"kind":"config"\|"kind":"end"\|"kind":"save"' | sed 's/"ms".*"loss_z"/"loss_z"/' | sort
    ls "$1" | grep -v 'report.html'
    losses "$1/log.txt"
    grep -a '^val' "$1/log.txt" | sort -u
    tail -n 1 "$1/log.txt"
}

attack_lose() { # WORDS
    lost=$((lost + 1))
    echo "lost: $what: $*" | head -n 3
}

# Compares $dir/try/run with the undisturbed run.
attack_compare() { # (a helper)
    attack_records "$dir/whole/run" >"$dir/want"
    attack_records "$dir/try/run" >"$dir/got" 2>&1
    # it was saved after another step, or an old checkpoint is still there
    if grep -aq 'Trying again\|no old checkpoint is removed' "$dir/first" "$dir/try/run/log.txt"; then
        sed -i '/^step_/d' "$dir/want" "$dir/got"
    fi
    for old in $(sed -n 's/^warning: .*\(step_[0-9]*\): cannot remove the old checkpoint.*/\1/p' "$dir/first"); do
        sed -i "/^$old\$/d" "$dir/got"
    done
    ! grep -aq 'error: .*log.txt' "$dir/first" || sed -i '/^ended after\|^total average/d' "$dir/want" "$dir/got"
    cmp -s "$dir/want" "$dir/got" || { attack_lose "$(diff "$dir/want" "$dir/got" | head -n 3)"; return 1; }
    for file in model.safetensors optimizer.safetensors config.json vocab.json merges.txt tokenizer.json; do
        cmp -s "$dir/whole/run/$last/$file" "$dir/try/run/$last/$file" ||
            { attack_lose "$file differs"; return 1; }
    done
}

# Judges an attack that ended with exit code $code, its standard error in $dir/err, and goes on with the run.
attack_judge() { # (a helper)
    [ $code != 125 ] || return 0 # the run ended before: no attack
    tried=$((tried + 1))
    mv "$dir/err" "$dir/first"
    case $code in
    0) attack_compare; return ;;
    1) grep -aqi 'error: .\|out of memory' "$dir/first" ||
        { attack_lose "no reason: $(tail -n 1 "$dir/first")"; return 0; } ;;
    137) [ "$kills" = 1 ] || { attack_lose "it was killed"; return 0; } ;;
    124) attack_lose "it hung"; return 0 ;;
    *) attack_lose "exit code $code: $(tail -n 1 "$dir/first")"; return 0 ;;
    esac
    if grep -aq 'damaged or edited\|is now' "$dir/first"; then
        attack_lose "taken for damaged: $(grep -a damaged "$dir/first")"
        return 0
    fi
    (cd "$dir/try" && timeout 60 $attacked --out run --resume auto >/dev/null 2>"$dir/err") ||
        { attack_lose "cannot go on: $(tail -n 1 "$dir/err")"; return 0; }
    attack_compare
}

# Attacks a run: a fresh one, or (half) one that goes on from step 4.
attack() { # fresh|half KIND N
    rm -rf "$dir/try"
    mkdir "$dir/try"
    [ "$1" = fresh ] || cp -a "$dir/half/run" "$dir/try/run"
    what="$1, $2, call $3" kills=0
    case $2 in
    alloc) (cd "$dir/try" && FAULT_ALLOC=$3 LD_PRELOAD="$tools/alloc.so" timeout 60 $attacked --out run --resume auto \
        >/dev/null 2>"$dir/err") ;;
    *) (cd "$dir/try" && timeout 60 "$tools/fault" $2 $3 $attacked --out run --resume auto >/dev/null 2>"$dir/err") ;;
    esac
    code=$?
    [ $2 != kill ] || kills=1
    attack_judge
}

# Attacks each call from FIRST on, every STEP-th, until the run ends before the call comes. $within: seconds after which
# attacks end, if not empty.
attack_each() { # fresh|half KIND FIRST STEP LAST
    n=$3
    while [ $n -le $5 ]; do
        [ "$(date +%s)" -lt "$attack_until" ] || { ended="; ended early, at $1, $2, call $n"; break; }
        attack $1 $2 $n
        [ $code != 125 ] || break
        n=$((n + $4))
    done
}

attack_end() { # NAME: prints the counts
    echo "$1: $tried tried, $lost lost$ended"
    [ $tried -gt 0 ] || note "nothing was tried"
    [ $lost = 0 ] || note "$lost of $tried lost"
}
