#!/bin/sh
# Makes the figures that README.md quotes: runs quickstart.sh and README's commands for a laptop, and writes what they
# print, without most step lines, to dev/bench/results/cpu/readme.txt, and the report of the quickstart to
# dev/report.png. The group `scripts` of the tests holds README against that file. Takes minutes on two cores, which
# nothing else should use meanwhile. Needs chromium for the picture, and data/tinyshakespeare.txt.
# usage: sh dev/figures.sh
set -eu
case ${1:-} in -h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit ;; esac
CDPATH='' cd "$(dirname "$0")/.."
root=$PWD
record=dev/bench/results/cpu/readme.txt
[ -f data/tinyshakespeare.txt ] || sh data/fetch.sh shakespeare
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) ||
    { echo "error: no chromium: apt-get install chromium" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP # dash that dies of a signal runs no EXIT trap
mkdir "$work/laptop" "$work/laptop/data"

# The first indented block of the section: README's commands, without `make`.
awk '/^### You have a laptop/ { on = 1 } on && /^    / { print; seen = 1; next } seen { exit }' README.md |
    grep -v '^ *make$' >"$work/commands"
# Keeps, of the step lines, the first, each hundredth and the last.
thinned() { awk -F '[ /]+' '/^step/ && $2 != 1 && $2 % 100 && $2 != $3 { next } 1'; }
# Runs a command; if it fails, what it printed last is shown.
shown() { "$@" >"$work/out" 2>&1 || { tail -n 20 "$work/out" >&2; exit 1; }; }

{
    echo "command: sh dev/figures.sh"
    echo "machine: $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores"
    echo "load before: $(cut -d ' ' -f 1 /proc/loadavg)"
    echo "date: $(date -u +%Y-%m-%d)"
    shown sh scripts/quickstart.sh "$work/quickstart"
    ./train_gpt2 --version | head -n 1 # which quickstart.sh has built
    echo
    echo "== sh scripts/quickstart.sh"
    thinned <"$work/out"
    echo
    echo "== You have a laptop and a text, with Tiny Shakespeare as book.txt"
    cd "$work/laptop"
    ln -s "$root/train_gpt2" "$root/prepare" .
    ln -s "$root/data/tinyshakespeare.txt" book.txt
    shown sh -eu ../commands
    thinned <../out
    cd "$root"
} >"$work/record"
sed -i "s:$work/::g" "$work/record"
# An untrained model writes bytes that are no text.
iconv -c -f utf-8 -t utf-8 "$work/record" | LC_ALL=C tr -d '\000-\010\013-\037\177' >"$work/printable"

# Chromium as root has no sandbox. The window ends below the charts.
"$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --force-device-scale-factor=1 \
    --window-size=1200,930 --virtual-time-budget=2000 --screenshot="$work/report.png" \
    "file://$work/quickstart/report.html" >/dev/null 2>&1
[ -s "$work/report.png" ] || { echo "error: $browser made no picture of report.html" >&2; exit 1; }
{
    cat "$work/printable"
    echo
    echo "dev/report.png: cksum $(cksum <"$work/report.png")"
} >$record
cp "$work/report.png" dev/report.png
echo "wrote $record and dev/report.png"
