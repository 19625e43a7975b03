#!/bin/sh
# Runs the two commands of README.md on a bare machine: a fresh minimal root folder from this host's mirror, with
# nothing but its package manager. Reports how each ended, its seconds and its last line; keeps logs in build/bare/.
# Needs root; installs debootstrap if it is missing.
# usage: sh dev/bare.sh [-w] [-k] [-r RELEASE] [FOLDER [SCRIPT...]]
#   -w        the working tree, with what is not committed (git's HEAD otherwise)
#   -k        keep the root folder
#   -r        another release of that mirror, such as trixie (this host's own)
#   FOLDER    the root folder to make, which must not exist yet (a new folder under /tmp)
#   SCRIPT    what to run (scripts/quickstart.sh scripts/test.sh)
set -eu
case ${1:-} in -h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit ;; esac
here=$PWD
CDPATH='' cd "$(dirname "$0")/.."
working_tree='' keep='' release=''
while getopts wkr: option; do
    case $option in
    w) working_tree=1 ;;
    k) keep=1 ;;
    r) release=$OPTARG ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
root=${1:-$(mktemp -u /tmp/gpt2c-bare-XXXXXX)}
case $root in /*) ;; *) root=$here/$root ;; esac
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- scripts/quickstart.sh scripts/test.sh
[ "$(id -u)" = 0 ] || { echo "error: run it as root: it makes a root folder and chroots into it" >&2; exit 1; }
[ ! -e "$root" ] || { echo "error: $root is there already: name a new folder" >&2; exit 1; }
sh scripts/setup.sh debootstrap:debootstrap unshare:util-linux

. /etc/os-release
# The first address that apt's sources give for this release: lines of sources.list, or paragraphs of *.sources.
mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null | sed 's/\[[^]]*\]//' |
    awk -v release="$VERSION_CODENAME" '$1 == "deb" && $3 == release { print $2; exit }')
[ -n "$mirror" ] || mirror=$(cat /etc/apt/sources.list.d/*.sources 2>/dev/null | awk -v release="$VERSION_CODENAME" '
    $1 == "URIs:" { uri = $2 }
    $1 == "Suites:" { for (i = 2; i <= NF; i++) if ($i == release) { print uri; exit } }')
[ -n "$mirror" ] || { echo "error: apt's sources name no mirror for $VERSION_CODENAME" >&2; exit 1; }

logs="$PWD/build/bare"
mkdir -p "$logs"
[ -n "$keep" ] || trap 'rm -rf --one-file-system "$root"' EXIT
trap 'exit 130' INT TERM HUP
echo "making a minimal ${release:-$VERSION_CODENAME} in $root"
debootstrap --variant=minbase "${release:-$VERSION_CODENAME}" "$root" "$mirror" >"$logs/debootstrap.log" 2>&1 ||
    { tail -n 5 "$logs/debootstrap.log"; echo "error: debootstrap failed: $logs/debootstrap.log" >&2; exit 1; }

# Copies what apt needs to reach the same mirror: sources, keys, proxies, certificates.
for file in sources.list sources.list.d trusted.gpg trusted.gpg.d keyrings auth.conf auth.conf.d apt.conf; do
    [ ! -e "/etc/apt/$file" ] || cp -rL "/etc/apt/$file" "$root/etc/apt/"
done
if [ -n "$release" ]; then
    rm -rf "$root"/etc/apt/sources.list.d
    echo "deb $mirror $release main" >"$root/etc/apt/sources.list"
fi
for file in $(grep -ls Acquire /etc/apt/apt.conf.d/*); do cp "$file" "$root/etc/apt/apt.conf.d/"; done
mkdir -p "$root/etc/ssl/certs" "$root/usr/share/keyrings" "$root/root/gpt2.c"
[ ! -e /etc/ssl/certs/ca-certificates.crt ] || cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
cp -L /usr/share/keyrings/* "$root/usr/share/keyrings/" 2>/dev/null || true
for file in resolv.conf hosts; do cp -L "/etc/$file" "$root/etc/"; done

if [ -n "$working_tree" ]; then git ls-files -co --exclude-standard -z | xargs -0 ls -d 2>/dev/null | tar -cf - -T -
else git archive HEAD; fi | tar -xf - -C "$root/root/gpt2.c"
[ ! -f data/tinyshakespeare.txt ] || cp data/tinyshakespeare.txt "$root/root/gpt2.c/data/"

# Runs a script in the root, in namespaces of its own: mounts and processes end with it.
inside() { # SCRIPT
    env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM="${TERM:-dumb}" \
        http_proxy="${http_proxy:-}" https_proxy="${https_proxy:-}" no_proxy="${no_proxy:-}" \
        unshare --mount --pid --fork sh -c '
            mount -t proc proc "$0/proc" && mount -t sysfs -o ro sysfs "$0/sys" && mount --rbind /dev "$0/dev" &&
                mount -t tmpfs tmpfs "$0/dev/shm" && cd / && exec chroot "$0" sh -c "cd /root/gpt2.c && sh $1"' \
        "$root" "$1" </dev/null
}
status=0
for script in "$@"; do
    log="$logs/$(basename "$script" .sh).log"
    start=$(date +%s)
    code=0
    inside "$script" >"$log" 2>&1 || code=$?
    echo "sh $script: exit code $code after $(($(date +%s) - start)) s: $(tail -n 1 "$log") ($log)"
    [ $code = 0 ] || status=1
done
exit $status
