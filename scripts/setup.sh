#!/bin/sh
# Installs what the project needs and this machine lacks: a C compiler, make and the JSON library, from the system's own
# package manager. As root it installs at once, with sudo after asking; otherwise it prints the one line to run.
#   setup.sh [COMMAND:PACKAGE...]   these commands too
#   setup.sh cudnn                  only the headers of cuDNN's frontend, from PyPI, into build/cudnn_frontend: with them
#                                   and cuDNN itself, `make train_gpt2cu` has cuDNN's attention. Nothing needs them.
set -eu

if [ "${1:-}" = cudnn ]; then
    version=1.15.0 # later ones need NVRTC
    folder="$(dirname "$0")/../build/cudnn_frontend"
    mkdir -p "$folder"
    # the headers are the same for every Python and processor
    if ! python3 -m pip download --quiet --no-deps --only-binary=:all: --python-version 3.11 --dest "$folder" \
        "nvidia-cudnn-frontend==$version" || ! python3 -m zipfile -e "$folder"/nvidia_cudnn_frontend-$version-*.whl "$folder"; then
        echo "error: could not fetch nvidia-cudnn-frontend $version with pip (python3 -m pip must work); or give make CUDNN_FRONTEND=FOLDER, where cudnn_frontend.h is" >&2
        exit 1
    fi
    rm -f "$folder"/*.whl
    echo "cuDNN's frontend $version is in build/cudnn_frontend: now run make train_gpt2cu"
    exit 0
fi

missing=
have() { command -v "$1" >/dev/null 2>&1; }
have make || missing="$missing make"
if have cc; then
    echo '#include <stdlib.h>' | cc -E -x c - >/dev/null 2>&1 || missing="$missing libc6-dev"
    echo '#include <jansson.h>' | cc -E -x c - >/dev/null 2>&1 || missing="$missing libjansson-dev"
else
    missing="$missing gcc libc6-dev libjansson-dev"
fi
for package in "$@"; do # more, for tests: command:package
    have "${package%%:*}" || missing="$missing ${package##*:}"
done
[ -n "$missing" ] || exit 0

command="apt-get install -y --no-install-recommends$missing"
if ! have apt-get; then
    echo "error: missing:$missing (these are Debian's names); install them with your package manager" >&2
    exit 1
fi
if [ "$(id -u)" = 0 ]; then
    echo "installing:$missing" >&2
elif have sudo && [ -t 0 ]; then
    printf 'Run "sudo %s"? [y/N] ' "$command" >&2
    read -r answer
    case $answer in y* | Y*) command="sudo $command" ;; *) exit 1 ;; esac
else
    echo "error: missing:$missing; run: sudo sh -c 'apt-get update && $command'" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
case $command in sudo*) update="sudo apt-get update" ;; *) update="apt-get update" ;; esac
log=$(mktemp)
if ! { $update && $command; } >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    echo "error: '$command' failed (all it said: $log)" >&2
    exit 1
fi
rm -f "$log"
