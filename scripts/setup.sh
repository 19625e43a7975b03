#!/bin/sh
# Installs what the project needs and this machine lacks: a C compiler, make, the JSON library and libcrypto, from the
# system's own package manager. (zlib1g-dev, libzstd-dev and libsnappy-dev are optional: ./prepare reads compressed
# files with them.) As root it installs at once, with sudo after asking; otherwise it prints the one line to run.
#   setup.sh [COMMAND:PACKAGE...]   these too, each package unless its command exists
#   setup.sh cudnn                  only the headers of cuDNN's frontend, from PyPI, into build/cudnn_frontend. With
#                                   them and cuDNN, `make train_gpt2cu` builds cuDNN's attention in. Optional.
#   setup.sh sass                   only NVIDIA's disassemblers, from PyPI, into build/cuda_tools, for test/sass.sh.
#                                   Optional.
set -eu

# fetch FOLDER PACKAGE VERSION: downloads a package of PyPI and unpacks it into build/FOLDER. Fails if that fails.
fetch() {
    folder="$(dirname "$0")/../build/$1"
    mkdir -p "$folder"
    # the contents are the same for every Python
    python3 -m pip download --quiet --no-deps --only-binary=:all: --python-version 3.11 --dest "$folder" "$2==$3" &&
        python3 -m zipfile -e "$folder/$(echo "$2" | tr - _)-$3"-*.whl "$folder" && rm -f "$folder"/*.whl
}

if [ "${1:-}" = cudnn ]; then
    version=1.15.0 # later ones need NVRTC
    if ! fetch cudnn_frontend nvidia-cudnn-frontend $version; then
        echo "error: cannot fetch nvidia-cudnn-frontend $version: does python3 -m pip work, and is there a network?" \
            "If cudnn_frontend.h is on this machine, give make CUDNN_FRONTEND=FOLDER" >&2
        exit 1
    fi
    echo "cuDNN's frontend $version is in build/cudnn_frontend: now run: make train_gpt2cu"
    exit 0
fi

if [ "${1:-}" = sass ]; then
    version=13.5.37
    for tool in cuobjdump nvdisasm; do
        if ! fetch cuda_tools nvidia-cuda-$tool $version; then
            echo "error: cannot fetch nvidia-cuda-$tool $version: does python3 -m pip work, and is there a network?" \
                "The CUDA toolkit has $tool too" >&2
            exit 1
        fi
        chmod +x "$(dirname "$0")/../build/cuda_tools/nvidia/cu13/bin/$tool"
    done
    echo "NVIDIA's disassemblers $version are in build/cuda_tools: now run: sh scripts/test.sh sass"
    exit 0
fi

missing=
have() { command -v "$1" >/dev/null 2>&1; }
have make || missing="$missing make"
if have cc; then
    echo '#include <stdlib.h>' | cc -E -x c - >/dev/null 2>&1 || missing="$missing libc6-dev"
    echo '#include <jansson.h>' | cc -E -x c - >/dev/null 2>&1 || missing="$missing libjansson-dev"
    echo '#include <openssl/hmac.h>' | cc -E -x c - >/dev/null 2>&1 || missing="$missing libssl-dev"
else
    missing="$missing gcc libc6-dev libjansson-dev libssl-dev"
fi
for package in "$@"; do # COMMAND:PACKAGE
    have "${package%%:*}" || missing="$missing ${package##*:}"
done
[ -n "$missing" ] || exit 0

command="apt-get install -y --no-install-recommends$missing"
if ! have apt-get; then
    echo "error: missing:$missing (Debian's names): install them with your package manager" >&2
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
    echo "error: '$command' failed; its whole output is in $log" >&2
    exit 1
fi
rm -f "$log"
