#!/bin/sh
# Downloads data sets, test sets and models by name, and checks every byte that it can check.
#
#   data/fetch.sh [--OPTION ...] SET [N]
#
#   --list          print the sets: name, files, bytes, licence
#   --limit N       the first N numbered files of a set (1 by default), or all; the same as N behind SET
#   --out DIR       put the files there (default: the folder of this script)
#   --jobs N        N downloads at a time (4)
#   --dry-run       print the address, size and path of each file, and fetch nothing
#   --verify        compare the checksums of files that are there already, too
#   --mirror URL    take this in place of the scheme and host of each address; HF_TOKEN is not sent there
#   --revision REV  another revision of a set from Hugging Face
#   --retries N     give up after N tries in which nothing arrived (5)
#   --wait SECONDS  before the second try (1); twice as long before each further one
#   --sets FILE     another table of sets, in the form of data/sets.list
#
# The sets are those of data/sets.list.
#
# A file gets its name only when it is complete and right; until then it is FILE.part, from which an interrupted
# download continues. Files that are there are not fetched again and never replaced. Their SHA-256 sums are compared
# with that table or else with what Hugging Face states. fetch.sha256 records them: another sum in a later fetch is
# an error. HF_ENDPOINT names another Hugging Face; HF_TOKEN is sent to it alone. Proxies are curl's: https_proxy.
# Exit codes: 0 done, 1 a download failed (the same command continues it), 2 wrong usage, 3 wrong bytes, 130 stopped.
set -eu

# ----------------------------------------------------------------------------------------------------------------------
# messages, small things

work='' shown='' child='' worst=0

die() { code=$1 && shift && echo "error: $*" >&2 && exit "$code"; } # EXIT_CODE MESSAGE
complain() { echo "error: $*" >&2; }
usage() { sed -n '2,/^# Exit codes/s/^# \{0,1\}//p' "$0"; }
have() { command -v "$1" >/dev/null 2>&1; }
number() { case $1 in '' | *[!0-9]* | ??????????*) return 1 ;; esac; }
size_of() { if [ -f "$1" ]; then echo $(($(wc -c <"$1"))); else echo 0; fi; } # FILE
is_exact() { case $1 in '' | *[!0-9]*) return 1 ;; esac; } # BYTES

sum_of() { # FILE: sets $found, its SHA-256
    summed=$1
    if have sha256sum; then set -- sha256sum
    elif have shasum; then set -- shasum -a 256
    else set -- openssl dgst -sha256 -r; fi
    "$@" <"$summed" >"$head.sum" &
    await_child || true
    read -r found _ <"$head.sum" || found=''
}

# A list of sums, in the format of sha256sum -c.
recorded_sum() { [ ! -f fetch.sha256 ] || awk -v path="$1" '$2 == path { print $1; exit }' fetch.sha256; } # PATH
record_sum() { [ -n "$(recorded_sum "$2")" ] || echo "$1  $2" >>fetch.sha256; } # SUM PATH

bytes_at() { od -An -v -tx1 -j "$2" -N "$3" "$1" 2>/dev/null | tr -d ' \n'; } # FILE OFFSET COUNT: in hexadecimal
int_at() { od -An -v -td4 -j $((4 * $2)) -N 4 "$1" | tr -d ' '; } # FILE N: the Nth int32

# True if the file begins as files of its name do, and ends so if the format says how.
looks_right() { # FILE NAME
    size=$(size_of "$1")
    case $2 in
        *.bin) # a shard of tokens (data/README.md)
            [ "$size" -ge 1024 ] && [ "$(int_at "$1" 0)" = 20240520 ] && [ "$(int_at "$1" 1)" = 1 ] &&
                [ "$size" = $((1024 + 2 * $(int_at "$1" 2))) ] ;;
        *.parquet)
            [ "$size" -ge 12 ] && [ "$(bytes_at "$1" 0 4)" = 50415231 ] &&
                [ "$(bytes_at "$1" $((size - 4)) 4)" = 50415231 ] ;;
        *.json | *.jsonl) [ "$(bytes_at "$1" 0 1)" = 7b ] ;;
        *.zip) [ "$(bytes_at "$1" 0 4)" = 504b0304 ] ;;
        *.zst) [ "$(bytes_at "$1" 0 4)" = 28b52ffd ] ;;
        *.safetensors) [ "$(bytes_at "$1" 8 1)" = 7b ] ;;
        *) [ "$size" -gt 0 ] ;;
    esac
}

# ----------------------------------------------------------------------------------------------------------------------
# one file

pause() { # SECONDS
    [ "$1" -gt 0 ] || return 0
    sleep "$1" &
    await_child || true
}

# Downloads to PATH.part, until $retries tries in a row bring no new bytes. Returns as transfer does.
download() { # URL HUB PATH
    idle=0 most=$(size_of "$3.part") seconds='' delay=$first_wait
    while :; do
        result=0
        transfer "$1" "$2" "$3.part" || result=$?
        [ $result = 1 ] || return $result
        now=$(size_of "$3.part")
        if [ "$now" -gt "$most" ]; then most=$now idle=0 delay=$first_wait; else idle=$((idle + 1)); fi
        [ "$idle" -lt "$retries" ] || return 1
        [ "${seconds:-0}" -le 3600 ] || { why="$why; it asks to come back in $seconds s"; return 1; }
        echo "$shown/$3: $why; trying again in ${seconds:-$delay} s" >&2
        pause "${seconds:-$delay}"
        seconds='' delay=$((delay * 2))
        [ "$delay" -le 60 ] || delay=60
    done
}

# Compares what came with what is known of it. Sets $found, its sum. Returns 3 with $why if it is wrong.
is_right() { # FILE PATH
    if is_exact "$bytes" && [ "$(size_of "$1")" != "$bytes" ]; then
        why="it has $(size_of "$1") bytes, not $bytes"
        return 3
    fi
    sum_of "$1"
    [ -n "$found" ] || { why='its checksum cannot be computed'; return 3; }
    if [ "$sum" != - ] && [ "$found" != "$sum" ]; then
        why="its SHA-256 is $found, not $sum"
        return 3
    fi
    looks_right "$1" "$2" || { why='it is not of the format that its name says'; return 3; }
}

# Says whether a file must be fetched. Returns 0 if it is there and right, 1 if it is not there, 3 if it is wrong.
is_there() { # PATH
    for file in "$1" "$1.part" "$1.part.etag"; do # to read or write a FIFO would take for ever
        [ -e "$file" ] && [ ! -f "$file" ] || continue
        complain "$shown/$file is no plain file: move it away to fetch $1"
        return 3
    done
    [ -e "$1" ] || return 1
    why=''
    if [ -n "$verify" ]; then is_right "$1" "$1" || true
    elif is_exact "$bytes" && [ "$(size_of "$1")" != "$bytes" ]; then why="it has $(size_of "$1") bytes, not $bytes"
    else looks_right "$1" "$1" || why='it is not of the format that its name says'; fi
    [ -n "$why" ] || return 0
    complain "$shown/$1: $why. It is left as it is: move it away to fetch it"
    return 3
}

# A checksum beside the shards, by which `info` notices a later change (llmc/files/sums.h).
remember_shard() { # PATH
    case $1 in *_[0-9]*.bin) have b2sum || return 0 ;; *) return 0 ;; esac
    sums="${1%_*_*.bin}.b2sums"
    grep -qs "  $1\$" "$sums" || b2sum "$1" >>"$sums"
}

# Fetches a row of the plan, unless the file is there. Returns 0, 1 (failed) or 3 (wrong bytes).
get_file() { # BYTES SHA256 PATH HUB URL
    bytes=$1 sum=$2 path=$3 hub=$4 url=$5
    [ "$sum" != - ] || { sum=$(recorded_sum "$path"); sum=${sum:--}; }
    result=0
    is_there "$path" || result=$?
    case $result in
        0)
            if [ -n "$verify" ] && [ "$sum" != - ]; then remember_shard "$path"; fi # its bytes were compared
            echo "$shown/$path is complete"
            return 0 ;;
        3) return 3 ;;
    esac
    echo "$shown/$path from $url"
    mkdir -p "$(dirname "$path")" || return 1
    resumed=$(size_of "$path.part")
    for _ in 1 2; do # a part of an older file may make the first wrong
        result=0
        download "$url" "$hub" "$path" || result=$?
        [ $result = 0 ] || break
        [ "$sum" != - ] || sum=${its_sum:--}
        is_right "$path.part" "$path" || result=$?
        [ $result = 3 ] || break
        rm -f "$path.part"
        [ "$resumed" != 0 ] || break
    done
    case $result in
        0) ;;
        3) complain "$shown/$path: $why. Nothing was kept of it ($url)"; return 3 ;;
        *) complain "$shown/$path: $why ($url). What arrived is kept: the same command continues it"; return 1 ;;
    esac
    sync "$path.part" 2>/dev/null || true # to the disk, where sync knows files
    mv "$path.part" "$path" || return 1
    rm -f "$path.part.etag"
    record_sum "$found" "$path"
    remember_shard "$path"
}

# ----------------------------------------------------------------------------------------------------------------------
# a set

check_disk() {
    needed=$(bytes_to_come)
    free=$(df -Pk . 2>/dev/null | awk 'NR == 2 { printf "%.0f", $4 * 1024 }')
    [ -n "$free" ] && [ "$needed" -gt "$free" ] || return 0
    die 1 "$shown: $((needed / 1000000)) MB are to come, and $((free / 1000000)) MB are free: --out a folder on" \
        "another disk, or fewer files (--limit)"
}

fail_with() { [ "$1" -le "$worst" ] || worst=$1; }

# One of several processes that take the rows of the plan in turn. Leaves its worst code.
lane() { # NUMBER
    # shellcheck disable=SC2034  # http.sh's
    head="$work/head.$1" worst=0 n=0
    trap 'kill $child 2>/dev/null; exit 130' TERM
    while read -r kind bytes sum path hub url; do
        n=$((n + 1))
        [ "$kind" = get ] || continue
        mkdir "$work/row.$n" 2>/dev/null || continue # another process has it
        get_file "$bytes" "$sum" "$path" "$hub" "$url" </dev/null || fail_with $?
    done <"$work/plan"
    exit "$worst"
}

fetch() {
    i=0 lanes=''
    while [ "$i" -lt "$jobs" ]; do
        i=$((i + 1))
        (lane "$i") &
        lanes="$lanes $!"
    done
    for pid in $lanes; do
        code=0
        wait "$pid" || code=$?
        fail_with "$code"
    done
    lanes='' unpacked=''
    [ "$worst" = 0 ] || exit "$worst"
    while read -r kind bytes sum path archive members; do
        [ "$kind" = part ] || continue
        get_part "$bytes" "$sum" "$path" "$archive" "$members" </dev/null || fail_with $?
        unpacked=$archive
    done <"$work/plan"
    [ "$worst" = 0 ] || exit "$worst"
    [ -z "$unpacked" ] || rm -f "$unpacked"
}

stop() {
    trap '' INT TERM HUP
    [ -z "$child" ] || kill "$child" 2>/dev/null || true
    for pid in ${lanes:-}; do kill "$pid" 2>/dev/null || true; done
    for pid in ${lanes:-}; do wait "$pid" 2>/dev/null || true; done
    echo "stopped: the same command continues" >&2
    exit 130
}
clean() {
    [ -z "$work" ] || rm -rf "$work"
    [ -z "${lock:-}" ] || rm -f "$lock"
}

# Two processes that append to one .part would mix their bytes. The lock is the kernel's (flock): it ends with the
# process and what that has started, however they end, and counts in every container. Its file says whose it is.
take_lock() { # SET
    wanted="$PWD/.fetch.$1.lock" me="process $$ on $(uname -n)"
    rm -f ".$1.lock" # a link, by which this script once locked
    have flock || { echo "note: flock is missing: nothing keeps a second fetch of $1 out of $shown" >&2; return 0; }
    while :; do
        [ ! -e "$wanted" ] || [ -f "$wanted" ] || die 1 "$wanted is no plain file: move it away"
        (: >>"$wanted") 2>/dev/null || die 1 "cannot write to $wanted"
        exec 8>>"$wanted"
        code=0
        flock -n 8 || code=$?
        [ $code != 1 ] ||
            die 1 "$shown: $(tail -n 1 "$wanted"), or what it started, is fetching $1 already: its lock is $wanted"
        [ $code = 0 ] || { echo "note: $shown has no locks: start no second fetch of $1 there" >&2; return 0; }
        echo "$me" >&8
        [ "$(tail -n 1 "$wanted" 2>/dev/null)" != "$me" ] || break # not so if its owner just removed the file
    done
    lock=$wanted
}

# ----------------------------------------------------------------------------------------------------------------------

unset CDPATH
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=data/http.sh
. "$here/http.sh"
# shellcheck source=data/sets.sh
. "$here/sets.sh"
# shellcheck source=data/zip.sh
. "$here/zip.sh"
name='' out='' limit='' jobs=4 dry='' verify='' mirror='' revision='' retries=5 first_wait=1 sets="$here/sets.list"
while [ $# -gt 0 ]; do
    option=$1
    case $option in
        --list) name=--list ;;
        --dry-run) dry=1 ;;
        --verify) verify=1 ;;
        -h | --help) usage; exit 0 ;;
        --out | --limit | --jobs | --mirror | --revision | --retries | --wait | --sets)
            [ $# -ge 2 ] || die 2 "$option: a value is missing"
            shift
            case $option in
                --out) out=$1 ;;
                --limit) limit=$1 ;;
                --jobs) jobs=$1 ;;
                --mirror) mirror=${1%/} ;;
                --revision) revision=$1 ;;
                --retries) retries=$1 ;;
                --wait) first_wait=$1 ;;
                --sets) sets=$1 ;;
            esac ;;
        -*) die 2 "no option $option: see data/fetch.sh --help" ;;
        *)
            if [ -z "$name" ]; then name=$option
            elif [ -z "$limit" ]; then limit=$option
            else die 2 "too many arguments: see data/fetch.sh --help"; fi ;;
    esac
    shift
done
[ -n "$name" ] || { usage >&2; exit 2; }
[ -r "$sets" ] || die 2 "--sets $sets: cannot read it"
case $sets in /*) ;; *) sets=$PWD/$sets ;; esac
[ "$name" != --list ] || { list; exit 0; }
for option in jobs retries; do
    case $option in jobs) value=$jobs ;; *) value=$retries ;; esac
    if ! number "$value" || [ "$value" -lt 1 ]; then die 2 "--$option '$value': give a number from 1"; fi
done
number "$first_wait" || die 2 "--wait '$first_wait': give a number of seconds"
for url in "$mirror" "${HF_ENDPOINT:-}"; do
    case $url in '' | http://?* | https://?*) ;; *) die 2 "'$url': an address begins with https://" ;; esac
done
HF_ENDPOINT=${HF_ENDPOINT:-https://huggingface.co}
HF_ENDPOINT=${HF_ENDPOINT%/}
case ${HF_TOKEN:-} in
    *[!A-Za-z0-9_.-]*) die 2 "HF_TOKEN is not a token: it has other characters than A-Z a-z 0-9 _ - ." ;;
esac
case ${HF_TOKEN:+$HF_ENDPOINT} in
    '' | https://* | http://localhost | http://localhost:* | http://127.0.0.1 | http://127.0.0.1:*) ;;
    *) die 2 "HF_ENDPOINT $HF_ENDPOINT: HF_TOKEN is not sent without encryption: https://" ;;
esac

rows | awk -v set="$name" '$1 == "set" && $2 == set { found = 1 } END { exit !found }' ||
    die 2 "no set '$name'; there are: $(rows | awk '$1 == "set" { printf "%s%s", comma, $2; comma = ", " }')"
most=$(plan "$name" 999999 | wc -l)
shards=$((most - $(plan "$name" 0 | wc -l)))
case $limit in
    '') limit=1 ;;
    all) limit=$shards ;;
    *)
        [ "$shards" -gt 0 ] || die 2 "$name has no numbered files: it takes no number"
        if ! number "$limit" || [ "$limit" -lt 1 ] || [ "$limit" -gt "$shards" ]; then
            die 2 "'$limit': give 1 to $shards files of $name, or all"
        fi ;;
esac

if [ -n "$dry" ]; then
    plan "$name" "$limit" | shown="${out:-data}" awk '
        BEGIN { out = ENVIRON["shown"] } # awk changes backslashes of -v
        $1 == "get" { print $6, $2 == "-" ? "unknown size" : $2 " bytes", out "/" $4 }
        $1 == "part" { print $6, "in", out "/" $5, "->", out "/" $4 }'
    exit 0
fi
have curl || have wget || die 1 "curl and wget are both missing: apt install curl"
have sha256sum || have shasum || have openssl || die 1 "sha256sum is missing: apt install coreutils"

start=$PWD
if [ -z "$out" ]; then out=$here shown=data; else shown=${out%/}; fi
mkdir -p "$out" || die 1 "cannot write to $out"
cd "$out"
work=$(mktemp -d) head="$work/head"
trap clean EXIT
trap stop INT TERM HUP
take_lock "$name"
if [ -n "${HF_TOKEN:-}" ]; then (umask 077 && echo "header = Authorization: Bearer $HF_TOKEN" >"$work/wgetrc"); fi
plan "$name" "$limit" >"$work/all"
drop_archives "$work/all" "$work/plan"
if grep -q ^part "$work/plan"; then
    have unzip || have bsdtar || have python3 || die 1 "$name is a .zip, and unzip is missing: apt install unzip"
fi
check_disk
unknown=$(awk '$1 == "get" && $3 == "-"' "$work/plan" | wc -l)
[ "$unknown" = 0 ] || echo "note: the SHA-256 of $((unknown)) of these files is not known here: they are compared" \
    "with what the server states, if it does, and $shown/fetch.sha256 records them" >&2
fetch

if [ "$name" = shakespeare ] && [ "$PWD" = "$here" ]; then
    [ -x "$here/../prepare" ] || { echo "for the shards run: make prepare, then this again"; exit 0; }
    cd "$here/.." && ./prepare --out data/tiny_shakespeare --split blank --val_size 32768 data/tinyshakespeare.txt
    exit
fi
cd "$start"
rows | shown="$shown" awk -v set="$name" '
    $1 == "set" { on = $2 == set }
    on && $1 == "then" {
        printf "next:"
        rest = substr($0, 5)
        while (at = index(rest, "DIR")) {
            printf "%s%s", substr(rest, 1, at - 1), ENVIRON["shown"]
            rest = substr(rest, at + 3)
        }
        print rest
    }'
