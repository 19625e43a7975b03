#!/bin/sh
# Installs what the project needs and this machine lacks, from the system's own package manager: a C compiler, make and
# the JSON library; g++ beside nvcc; and zlib, zstd and snappy, by which ./prepare reads compressed text and Parquet.
# Goes on without these three if they cannot be installed. As root it installs at once, with sudo after asking;
# otherwise it prints the one line to run.
# usage:
#   setup.sh [COMMAND:PACKAGE...]   these too, each package unless its command exists
#   setup.sh cudnn                  only the headers of cuDNN's frontend, from PyPI, into build/cudnn_frontend. With
#                                   them and cuDNN, `make train_gpt2cu` builds cuDNN's attention in. Optional.
#   setup.sh sass                   only NVIDIA's disassemblers, from PyPI, into build/cuda_tools, for
#                                   test/sass/sass.sh. Optional.
set -eu
case ${1:-} in -h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit ;; esac

case ${1:-} in cudnn | sass) [ $# = 1 ] || { echo "error: setup.sh $1 takes nothing else" >&2; exit 2; } ;; esac

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

for package in "$@"; do
    case $package in *:*) continue ;; esac
    echo "error: setup.sh takes cudnn, sass or COMMAND:PACKAGE, not $package" >&2
    exit 2
done
needed= wanted= # packages; the programs are built without what is wanted
have() { command -v "$1" >/dev/null 2>&1; }
have_header() { have cc && echo "#include <$1>" | cc -E -x c - >/dev/null 2>&1; }
have make || needed="$needed make"
have cc || needed="$needed gcc"
have_header stdlib.h || needed="$needed libc6-dev"
if have nvcc || [ -x "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" ]; then have g++ || needed="$needed g++"; fi
have_header jansson.h || needed="$needed libjansson-dev"
have_header zlib.h || wanted="$wanted zlib1g-dev"
have_header zstd.h || wanted="$wanted libzstd-dev"
have_header snappy-c.h || wanted="$wanted libsnappy-dev"
for package in "$@"; do # COMMAND:PACKAGE
    have "${package%%:*}" || needed="$needed ${package##*:}"
done
missing="$needed$wanted"
[ -n "$missing" ] || exit 0

# refuse MESSAGE: says that packages are missing. Without those that are needed, this is an error.
refuse() {
    [ -n "$needed" ] || { echo "not installed, and not needed:$wanted; $*" >&2; exit 0; }
    echo "error: missing:$missing; $*" >&2
    exit 1
}
command="apt-get install -y --no-install-recommends"
by_hand="run: sudo sh -c 'apt-get update && $command$missing'"
have apt-get || refuse "install them with your package manager (these are Debian's names)"
if [ "$(id -u)" = 0 ]; then sudo=
elif have sudo && [ -t 0 ]; then
    printf 'Run "sudo %s"? [y/N] ' "$command$missing" >&2
    read -r answer || { answer='' && echo >&2; } # Ctrl-D
    case $answer in y* | Y*) sudo=sudo ;; *) refuse "$by_hand" ;; esac
else refuse "$by_hand"; fi

. "$(dirname "$0")/progress.sh"
log=$(mktemp)
last_line() { tr '\r' '\n' <"$log" | grep . | tail -n 1 | cut -c 1-100; }
get() { [ -z "$1" ] || $sudo env DEBIAN_FRONTEND=noninteractive $command $1; } # PACKAGES
install() { $sudo apt-get update && get "$needed" && needed= && get "$wanted"; } # what is missing then is no error
echo "installing:$missing"
with_progress last_line "$log" install || refuse "'$command$needed$wanted' failed; its whole output is in $log"
rm -f "$log"
