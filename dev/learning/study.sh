#!/bin/sh
# Trains small models with AdamW and Muon on two corpora and compares the tokens that they need for equal losses.
# README.md has the method and the findings; page.py draws study.md from what this script measures.
#
# usage: sh dev/learning/study.sh [PART...]      all parts in order, or some: data adamw muon final ablation clock page
#                                                and, if named, `lengths` before page: from 1/8 to twice the full length
#   SIZE=small   0.2M parameters, 800 steps of 1,024 tokens at full length: 20 minutes of processor time (the default)
#   SIZE=medium  1M parameters, 1,000 steps of 2,048 tokens: 75 minutes
#   SIZE=large_batch   the same, 250 steps of 8,192 tokens, on the built-in corpus alone: 30 minutes
#   SIZE=large   5M parameters, 2,400 steps of 8,192 tokens: days
#   SIZE=smoke   a few steps of a tiny model on two files: tests that the script works
#   JOBS=2       runs at a time, of one thread each
#   WORK=build/learning            data and runs, in a folder for each size
#   RESULTS=dev/learning/results   what page.py reads, beside study.md; for other sizes dev/learning/SIZE/results
#   TRAIN=./train_gpt2, PREPARE=./prepare   the programs
#
# It can be stopped at any time: the same command goes on, and finished runs are not repeated. A run whose options have
# changed is repeated. Losses do not depend on the machine's load, nor on JOBS.
set -euf
CDPATH='' cd "$(dirname "$0")/../.."
script=dev/learning/study.sh
size=${SIZE:-small} jobs=${JOBS:-2}
work=${WORK:-build/learning}/$size results=dev/learning/results
[ "$size" = small ] || results=dev/learning/$size/results
results=${RESULTS:-$results}
train=${TRAIN:-./train_gpt2} prepare=${PREPARE:-./prepare}
. dev/small_runs.sh
runs=$work/runs

case $size in
small) shape=L=3,H=2,C=64,T=128 sequences=8 micro_batch=8 full_steps=800 val_tokens=65536 ;;
medium) shape=L=4,H=4,C=128,T=128 sequences=16 micro_batch=16 full_steps=1000 val_tokens=65536 ;;
large_batch) shape=L=4,H=4,C=128,T=128 sequences=64 micro_batch=16 full_steps=250 val_tokens=65536 ;;
large) shape=L=6,H=8,C=256,T=256 sequences=32 micro_batch=16 full_steps=2400 val_tokens=262144 ;;
smoke) shape=L=1,H=2,C=32,T=32 sequences=4 micro_batch=4 full_steps=8 val_tokens=256 ;;
*) echo "error: SIZE=$size is not one of small, medium, large_batch, large, smoke" >&2; exit 2 ;;
esac
seq_len=${shape##*T=}
batch=$((sequences * seq_len)) # tokens
corpora="text stories"
[ "$size" != large_batch ] || corpora=stories
text_vocab=1024 stories_vocab=1024 # two million bytes of the built-in corpus have pairs for 1,654 tokens
[ "$size" = small ] || [ "$size" = smoke ] || text_vocab=2048

tuning_seed=100 tuning_part=2   # trials are runs of 1/tuning_part of the full length
final_seeds="1 2 3"
parts="1 1.4 2"                 # final recipes are also trained on 1/part of the tokens, their schedules fitted to it
other_parts="0.5 2.8 4 8"
ablation_part=2

rates_adamw="7.5e-4 1.5e-3 3e-3 6e-3" rates_muon="0.01 0.02 0.04 0.08" most_extensions=3
first_decay=0.1 other_decays="0 0.4"
first_schedule=wsd other_schedules="linear cosine" other_factors="2 4"
clock_rounds=4
[ "$size" != smoke ] || {
    final_seeds="1 2" parts="1 2" rates_adamw="3e-3 6e-3" rates_muon="0.01 0.02" most_extensions=0
    other_decays=0 other_schedules=linear other_factors=2 clock_rounds=1
}

# ----------------------------------------------------------------------------------------------------------------------
# data

separator='<<<< next document >>>>'

# Writes the files whose names are on standard input, one after another with separators between them, to $1.
join() {
    LC_ALL=C sort | tr '\n' '\0' | xargs -0 -r awk -v s="$separator" 'FNR == 1 && NR > 1 { print s } { print }' >"$1"
}

# Gathers text from this machine: documentation, programs and manuals up to 64 KiB each, in the order of their names.
# Of manual pages whose names begin with the same word, 200: some packages have thousands.
gather() {
    if [ "$size" = smoke ]; then
        printf '%s\n' README.md CONTRIBUTING.md dev/*.md dev/bench/*.py | (set +f; xargs -n 1 sh -c 'ls $0') |
            join "$work/text/doc.txt"
        return
    fi
    find /usr/share/doc -type f -size -64k ! -name '*.gz' \( -name '*.txt' -o -name '*.md' -o -name '*.rst' \
        -o -name copyright -o -name 'README*' \) | join "$work/text/doc.txt"
    set +f
    find /usr/lib/python3* -type f -size -64k -name '*.py' | join "$work/text/python.txt"
    find /usr/share/perl* -type f -size -64k \( -name '*.pm' -o -name '*.pod' \) | join "$work/text/perl.txt"
    find /usr/include -maxdepth 2 -type f -size -64k -name '*.h' | join "$work/text/headers.txt"
    find /usr/share/man/man[1578] -type f -size +1k -size -16k -name '*.gz' | LC_ALL=C sort |
        awk -F/ '{ name = $NF; sub(/[-_.].*/, "", name) } count[name]++ < 200' | tr '\n' '\0' | xargs -0 -r zcat |
        awk -v s="$separator" '/^\.TH / && NR > 1 { print s } { print }' >"$work/text/man.txt"
    find "$work/text" -size 0 -exec rm {} +
    set -f
}

# The sources are mixed in proportion to their sizes, so that the validation split has all of them, and about all of
# their text is used.
prepare_text() {
    mkdir -p "$work/text"
    gather 2>/dev/null
    files=$(find "$work/text" -name '*.txt' | LC_ALL=C sort)
    mix=$(wc -c $files | awk '$2 != "total" { printf "%s%s:%d", comma, $2, $1; comma = "," }')
    "$prepare" --train_tokenizer $text_vocab --split "$separator" --out "$work/text_tokenizer" $files
    "$prepare" --mix "$mix" --shuffle 1 --seed 1 --split "$separator" \
        --tokenizer "$work/text_tokenizer" --val_size $((val_tokens + 1)) --out "$work/text"
    { for f in $files; do echo "$(wc -c <"$f") $(sha256sum <"$f" | cut -d ' ' -f 1) $(basename "$f" .txt)"; done
    } >"$work/text.sources"
}

# The tokenizer of the built-in corpus learns from two million bytes of it.
prepare_stories() {
    bytes=2000000 tokens=4000000
    [ "$size" != smoke ] || bytes=100000 tokens=40000
    learn_stories $bytes $stories_vocab
    "$prepare" --stories $tokens --tokenizer "$work/stories_tokenizer" --val_size $((val_tokens + 1)) \
        --out "$work/stories"
}

prepare_data() {
    mkdir -p "$work"
    for corpus in $corpora; do
        [ ! -f "$work/$corpus.ready" ] || continue
        sh "$script" --prepare $corpus >"$work/$corpus.log" 2>&1 || { cat "$work/$corpus.log" >&2; exit 1; }
        touch "$work/$corpus.ready"
    done
}

# ----------------------------------------------------------------------------------------------------------------------
# runs

# queue NAME CORPUS PART SEED OPTION...: adds a run of 1/PART of the full length
queue() { echo $* >>"$work/queue"; } # without a blank at the end, by which xargs would join two lines

# Trains what is queued, $jobs runs at a time.
train_queued() {
    [ -f "$work/queue" ] || return 0
    mv "$work/queue" "$work/queued"
    xargs -P "$jobs" -L 1 sh "$script" --run <"$work/queued" || { echo "error: a run failed" >&2; exit 1; }
}

vocab() { [ "$1" = text ] && echo $text_vocab || echo $stories_vocab; } # CORPUS

# Trains one run, unless it is there: its folder gets command, metrics.jsonl, loss (of validation, after the last step)
# and seconds (of processor time).
run() { # NAME CORPUS PART SEED OPTION...
    name=$1 corpus=$2 seed=$4
    steps=$(awk "BEGIN { printf \"%d\", $full_steps / $3 + 0.5 }")
    shift 4
    folder=$runs/$name
    command="--model $shape,V=$(vocab "$corpus") --tokenizer $work/${corpus}_tokenizer \
--train_data $work/${corpus}_train_*.bin --val_data $work/${corpus}_val_*.bin --batch_size $micro_batch \
--total_batch_size $batch --max_steps $steps --seed $seed --dtype bf16 --threads 1 --val_every $steps \
--val_tokens $val_tokens --sample_every 0 --save_every 0 $(echo "$*" |
        awk -v n="$steps" '{ gsub(/TENTH/, int(n / 10)); gsub(/TWENTY_SEVENTH/, int(n / 27))
            gsub(/QUARTER/, int(n / 4)); print }')"
    if [ -s "$folder/loss" ] && [ "$(cat "$folder/command")" = "$command" ]; then return 0; fi
    rm -rf "$folder"
    mkdir -p "$folder"
    echo "$command" >"$folder/command"
    train_small "$folder" "$steps" $command || return 1
    echo "$seconds" >"$folder/seconds"
    echo "$loss" >"$folder/loss"
    echo "$(date +%T) $loss $seconds s $name"
}

# ----------------------------------------------------------------------------------------------------------------------
# recipes: a rate, a decay and a schedule for each optimizer

schedule_options() { # NAME
    case $1 in
    wsd) echo "--schedule wsd_linear --decay_frac 0.4 --min_lr_frac 0" ;;
    linear) echo "--schedule linear --min_lr_frac 0" ;;
    cosine) echo "--schedule cosine --min_lr_frac 0.1" ;;
    esac
}
# Kaplan et al. 2020, equation D.1: the rate for a number of parameters. For GPT-3's 125M it gives 6.4e-4.
published_rate() {
    case $size in
    small) echo 1.52e-3 ;;
    medium | large_batch) echo 1.30e-3 ;;
    large) echo 1.08e-3 ;;
    smoke) echo 1.9e-3 ;;
    esac
}
# The rate of what is no matrix of a block, over the rate of the matrices (AdamW) or over 3e-3 (Muon), is FACTOR.
recipe() { # OPTIMIZER RATE DECAY SCHEDULE FACTOR
    case $1 in
    published) echo "--warmup_steps TWENTY_SEVENTH --lr $2 --weight_decay $3 $(schedule_options "$4")" ;;
    adamw) echo "--warmup_steps TENTH --lr $2 --weight_decay $3 $(schedule_options "$4")" \
        "$([ "$5" = 1 ] || echo "--embedding_lr $(product "$2" "$5")")" ;;
    muon) echo "--warmup_steps TENTH --optimizer muon --lr $(product 3e-3 "$5") --matrix_lr $2 --matrix_decay $3" \
        "--grad_clip 0 --momentum 0.95,warmup:QUARTER:0.85 --cautious_decay 1 --init_out zero" \
        "$(schedule_options "$4")" ;;
    esac
}
product() { [ "$2" = 1 ] && echo "$1" || awk "BEGIN { printf \"%g\", $1 * $2 }"; } # NUMBER FACTOR
rates() { [ "$1" = adamw ] && echo $rates_adamw || echo $rates_muon; } # OPTIMIZER

# Queues a trial and adds it to the list of the search.
trial() { # CORPUS OPTIMIZER RATE DECAY SCHEDULE FACTOR
    name=$1-$2-trial-$3-$4-$5-$6
    queue "$name" "$1" "$tuning_part" "$tuning_seed" "$(recipe "$2" "$3" "$4" "$5" "$6")"
    echo "$name $3 $4 $5 $6" >>"$work/trials-$1-$2"
}
# Prints rate, decay, schedule and factor of the best trial so far.
best() { # CORPUS OPTIMIZER
    while read -r name settings; do echo "$(cat "$runs/$name/loss") $settings"; done <"$work/trials-$1-$2" |
        LC_ALL=C sort -g | sed -n '1s/^[^ ]* //p'
}
# Prints the rate beyond the best one if the best is the least or the largest that was tried, else nothing.
rate_beyond() { # CORPUS OPTIMIZER
    best "$1" "$2" | awk 'NR == FNR { best = $1 + 0; next } { rate = $2 + 0 }
        !low || rate < low { low = rate } rate > high { high = rate }
        END { if (best == high) printf "%g", 2 * high; else if (best == low) printf "%g", low / 2 }' \
        - "$work/trials-$1-$2"
}

# Ten trials: four rates, then at the best of what came before two more decays, two more schedules, two more factors.
# While the best rate is the last of the row, the row gets one more.
tune() { # OPTIMIZER
    for corpus in $corpora; do
        rm -f "$work/trials-$corpus-$1"
        for rate in $(rates "$1"); do trial "$corpus" "$1" "$rate" "$first_decay" "$first_schedule" 1; done
    done
    train_queued
    for extension in $(seq $most_extensions); do
        for corpus in $corpora; do
            rate=$(rate_beyond "$corpus" "$1")
            [ -z "$rate" ] || trial "$corpus" "$1" "$rate" "$first_decay" "$first_schedule" 1
        done
        train_queued
    done
    for corpus in $corpora; do
        rate=$(best "$corpus" "$1" | cut -d ' ' -f 1)
        for decay in $other_decays; do trial "$corpus" "$1" "$rate" "$decay" "$first_schedule" 1; done
    done
    train_queued
    for corpus in $corpora; do
        settings=$(best "$corpus" "$1" | cut -d ' ' -f 1,2)
        for schedule in $other_schedules; do trial "$corpus" "$1" $settings "$schedule" 1; done
    done
    train_queued
    for corpus in $corpora; do
        settings=$(best "$corpus" "$1" | cut -d ' ' -f 1-3)
        for factor in $other_factors; do trial "$corpus" "$1" $settings "$factor"; done
    done
    train_queued
    for corpus in $corpora; do
        best "$corpus" "$1" >"$work/best-$corpus-$1"
        echo "tuned on $corpus: $1 $(cat "$work/best-$corpus-$1")"
    done
}

# Prints the options of a final recipe.
final_recipe() { # NAME CORPUS
    case $1 in
    published) recipe published "$(published_rate)" 0.1 cosine 1 ;;
    *) recipe "$1" $(cat "$work/best-$2-$1") ;;
    esac
}

# Every recipe on every corpus with each seed. The published settings have the full length alone.
train_finals() { # PART...
    for part; do
        for seed in $final_seeds; do
            for corpus in $corpora; do
                for recipe in published adamw muon; do
                    [ "$part" = 1 ] || [ $recipe != published ] || continue
                    queue "$corpus-$recipe-$part-$seed" "$corpus" "$part" "$seed" "$(final_recipe $recipe "$corpus")"
                done
            done
        done
    done
    train_queued
}

# ----------------------------------------------------------------------------------------------------------------------
# ablation: Muon's recipe without one of its parts, or with one more

# Prints the options that take a part out of Muon's recipe, or add one; later options override earlier ones.
ablation_options() { # NAME
    case $1 in
    without_momentum_warmup) echo "--momentum 0.95,warmup:none" ;;
    without_cautious_decay) echo "--cautious_decay 0" ;;
    without_wsd) echo "$(schedule_options cosine) --decay_frac 0.2" ;; # defaults: wsd's alone
    without_zero_init) echo "--init_out normal" ;;
    with_document_mask) echo "--document_mask 1" ;;
    esac
}
[ "$size" = smoke ] && ablations=without_cautious_decay ||
    ablations="without_momentum_warmup without_cautious_decay without_wsd without_zero_init with_document_mask"

train_ablation() {
    for corpus in $corpora; do
        for seed in $final_seeds; do
            for a in $ablations; do
                [ $a != with_document_mask ] || has_option document_mask || continue
                queue "$corpus-$a-$ablation_part-$seed" "$corpus" "$ablation_part" "$seed" \
                    "$(final_recipe muon "$corpus") $(ablation_options "$a")"
            done
            # AdamW at its own tuned rate and decay, with every other part of Muon's recipe
            queue "$corpus-without_muon-$ablation_part-$seed" "$corpus" "$ablation_part" "$seed" \
                "$(final_recipe adamw "$corpus") --cautious_decay 1 --init_out zero --grad_clip 0"
        done
    done
    train_queued
}

# ----------------------------------------------------------------------------------------------------------------------
# the time of a step

# Processor time of a step of each optimizer on one thread: runs of 28 and 4 steps in turn, four times; the least
# difference / 24. Other work on the machine lengthens the time on the clock, and hardly the processor's. A difference
# that is not positive, as steps of a tiny model can give, counts for nothing.
measure_steps() {
    : >"$work/clock"
    for round in $(seq $clock_rounds); do
        for optimizer in adamw muon; do
            [ $optimizer = adamw ] || has_option optimizer || continue
            for steps in 28 4; do
                name=clock-$optimizer-$steps
                rm -rf "$runs/$name"
                run "$name" "${corpora%% *}" "$(awk "BEGIN { print $full_steps / $steps }")" 1 \
                    "$(recipe $optimizer $(rates $optimizer | cut -d ' ' -f 1) 0.1 wsd 1)" >/dev/null
            done
            echo "$optimizer $(cat "$runs/clock-$optimizer-28/seconds") $(cat "$runs/clock-$optimizer-4/seconds")" |
                awk '$2 > $3 { print $1, 1000 * ($2 - $3) / 24 }' >>"$work/clock"
        done
    done
}

# ----------------------------------------------------------------------------------------------------------------------

has_option() { "$train" --help | grep -q -- "--$1 "; }

# Writes results and page; study.tsv says where and when the runs were made.
write_page() {
    mkdir -p "$results"
    {
        echo "command	SIZE=$size sh $script"
        echo "program	$("$train" --version | head -n 1)"
        echo "processor	$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores"
        echo "date	$(date +%F)"
        echo "model	$shape,$(for corpus in $corpora; do echo "V=$(vocab $corpus) ($corpus)"; done | paste -s -d , |
            sed 's/,/, /g')"
        echo "batch	$batch"
        echo "steps	$full_steps"
        echo "floor	$(sed -n 's/^ *"floor": \([^,]*\),*/\1/p' "$work/stories_val.json")"
        [ ! -f "$work/text.sources" ] || awk '{ print "source\t" $3 ": " $1 " bytes, sha256 " $2 }' "$work/text.sources"
        for corpus in $corpora; do
            for optimizer in adamw muon; do
                [ ! -s "$work/best-$corpus-$optimizer" ] ||
                    echo "best	$corpus $optimizer $(cat "$work/best-$corpus-$optimizer")"
            done
        done
        [ ! -s "$work/clock" ] || LC_ALL=C sort -g -k 2 "$work/clock" |
            awk '!seen[$1]++ { print "step_ms\t" $1 " " $2 }'
    } >"$results/study.tsv"
    python3 dev/learning/page.py collect "$runs" "$results"
    python3 dev/learning/page.py draw "$results" "$(dirname "$results")/study.md"
}

main() {
    for program in "$train" "$prepare"; do
        [ -x "$program" ] || { echo "error: no $program: run make first" >&2; exit 1; }
    done
    mkdir -p "$work" "$runs"
    rm -f "$work/queue"
    export OMP_WAIT_POLICY=passive
    [ $# -gt 0 ] || set -- data adamw muon final ablation clock page
    for part; do
        case $part in
        data) prepare_data ;;
        adamw | muon) tune "$part" ;;
        final) train_finals $parts ;;
        lengths) (corpora=stories; train_finals $other_parts) ;;
        ablation) train_ablation ;;
        clock) measure_steps ;;
        page) write_page ;;
        *) echo "error: no part '$part': data adamw muon final lengths ablation clock page" >&2; exit 2 ;;
        esac
    done
}

case ${1:-} in
--run) shift; run "$@" ;;
--prepare) "prepare_$2" ;;
*) main "$@" ;;
esac
exit
