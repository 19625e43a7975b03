#!/bin/sh
# Downloads real data sets into data/, with curl, and checks each file.
#
#   data/fetch.sh shakespeare          Tiny Shakespeare, 1.1 MB of text, made into shards if ./prepare is built
#   data/fetch.sh fineweb [N]          FineWeb, 10B sample: the validation shard and N of 103 training shards
#   data/fetch.sh fineweb-edu [N]      FineWeb-Edu, 10B sample: the same, N of 99
#   data/fetch.sh fineweb100b [N]      FineWeb, 100B sample: the same, N of 1030
#   data/fetch.sh fineweb-edu100b [N]  FineWeb-Edu, 100B sample: the same, N of 1001
#
# N is 1 by default. The FineWeb sets are shards of GPT-2's tokens, 200 MB each, ready for --train_data and --val_data.
# A complete file is not fetched again; an interrupted download continues where it stopped.
# Exit codes: 0 done, 1 a download failed or is damaged, 2 usage.
# Tested: arguments, checks and errors. Not tested: the downloads themselves (written without a network). So the FineWeb
# sets are those of today's revision `main`: their own revisions and checksums could not be verified and are not pinned.
set -eu

cd "$(dirname "$0")"

die() { echo "error: $2" >&2; exit "$1"; }
usage() { sed -n '2,10s/^# \{0,1\}//p' "$(basename "$0")"; }

# int32 number $2 of the header of file $1
header_int() { od -An -v -td4 -j $((4 * $2)) -N 4 "$1" | tr -d ' '; }

size_of() { wc -c <"$1" | tr -d ' '; }

# True if file $1 is a whole token shard (data/README.md): magic, version, and a size that fits the number of tokens.
is_shard() {
    [ -f "$1" ] && [ "$(size_of "$1")" -ge 1024 ] && [ "$(header_int "$1" 0)" = 20240520 ] &&
        [ "$(header_int "$1" 1)" = 1 ] && [ "$(size_of "$1")" = $((1024 + 2 * $(header_int "$1" 2))) ]
}

# True if file $1 is Tiny Shakespeare, by its size and SHA-256.
is_shakespeare() {
    [ -f "$1" ] && [ "$(size_of "$1")" = 1115394 ] || return 1
    ! command -v sha256sum >/dev/null || [ "$(sha256sum <"$1" | cut -d ' ' -f 1)" = \
        86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed ]
}

# download URL FILE CHECK: the file gets its name only after the check.
download() {
    if "$3" "$2"; then echo "data/$2 is complete"; return; fi
    echo "data/$2 from $1"
    code=0
    "$3" "$2.part" || curl --fail --location --retry 3 --continue-at - --output "$2.part" "$1" || code=$?
    # 33: the server has no more than we have, or cannot resume: the check decides
    case $code in
        0 | 33) ;;
        6 | 7 | 28) die 1 "cannot reach $1: is there a network? Run this again: what was downloaded is kept" ;;
        22) die 1 "$1: the server refused (HTTP error): has the data set moved?" ;;
        *) die 1 "$1: curl failed with code $code. Run this again: what was downloaded is kept" ;;
    esac
    if ! "$3" "$2.part"; then
        rm -f "$2.part"
        die 1 "data/$2: the download is not the file expected and was removed: run this again"
    fi
    mv "$2.part" "$2"
    case $2 in *_[0-9]*.bin) remember "$2" ;; esac
}

# remember SHARD: adds its checksum to PREFIX.b2sums, by which `info` and --verify_data notice a later change.
remember() {
    command -v b2sum >/dev/null || return 0
    sums="${1%_*_*.bin}.b2sums"
    { [ ! -f "$sums" ] || grep -v "  $1\$" "$sums" || true; b2sum "$1"; } >"$sums.part"
    mv "$sums.part" "$sums"
}

# fetch_shards URL THEIRS OURS COUNT: validation shard 0 and training shards 1..COUNT. Names begin with THEIRS on the
# server and with OURS here.
fetch_shards() {
    download "$1/$2_val_000000.bin" "$3_val_000000.bin" is_shard
    i=1
    while [ "$i" -le "$4" ]; do
        tail=$(printf '_train_%06d.bin' "$i")
        download "$1/$2$tail" "$3$tail" is_shard
        i=$((i + 1))
    done
    echo "train with --train_data 'data/$3_train_*.bin' --val_data data/$3_val_000000.bin"
}

# shards_wanted WORD MAX: checks and prints a number of shards.
shards_wanted() {
    case $1 in
        '' | *[!0-9]* | ?????*) die 2 "'$1': give the number of training shards, 1 to $2" ;;
    esac
    number=$(printf '%s' "$1" | sed 's/^0*//')
    if [ "${number:-0}" -lt 1 ] || [ "$number" -gt "$2" ]; then die 2 "'$1': give 1 to $2 training shards"; fi
    echo "$number"
}

[ $# -ge 1 ] || { usage >&2; exit 2; }
case $1 in -h | --help) usage; exit 0 ;; esac
[ $# -le 2 ] || die 2 "too many arguments: see data/fetch.sh --help"

case $1 in
    shakespeare)
        [ $# -eq 1 ] || die 2 "shakespeare takes no number"
        ;;
    fineweb) count=$(shards_wanted "${2:-1}" 103) ;;
    fineweb-edu) count=$(shards_wanted "${2:-1}" 99) ;;
    fineweb100b) count=$(shards_wanted "${2:-1}" 1030) ;;
    fineweb-edu100b) count=$(shards_wanted "${2:-1}" 1001) ;;
    *) die 2 "no data set '$1': shakespeare, fineweb, fineweb-edu, fineweb100b or fineweb-edu100b" ;;
esac
command -v curl >/dev/null || die 1 "curl is missing: apt install curl"

hub=https://huggingface.co/datasets
case $1 in
    shakespeare)
        raw=https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt
        download $raw tinyshakespeare.txt is_shakespeare
        [ -x ../prepare ] || { echo "for the shards run: make prepare, then this again"; exit 0; }
        cd .. && ./prepare --out data/tiny_shakespeare --split blank --val_size 32768 data/tinyshakespeare.txt
        ;;
    fineweb) fetch_shards $hub/kjj0/fineweb10B-gpt2/resolve/main fineweb fineweb "$count" ;;
    fineweb-edu) fetch_shards $hub/kjj0/finewebedu10B-gpt2/resolve/main finewebedu finewebedu "$count" ;;
    fineweb100b) fetch_shards $hub/kjj0/fineweb100B-gpt2/resolve/main fineweb fineweb100b "$count" ;;
    fineweb-edu100b)
        fetch_shards $hub/karpathy/fineweb-edu-100B-gpt2-token-shards/resolve/main edu_fineweb finewebedu100b \
            "$count" ;;
esac
