# Reads the table of sets, data/sets.list, for data/fetch.sh, which sources this: lists it, and plans a fetch.
# shellcheck shell=sh
# shellcheck disable=SC2034,SC2154  # variables of fetch.sh

rows() { cat "$sets"; }

# Prints the files of a set: `get BYTES SHA256 PATH hub|- URL`, and `part BYTES SHA256 PATH ARCHIVE MEMBERS`.
plan() { # SET LIMIT
    rows | awk -v set="$1" -v limit="$2" -v hub="${HF_ENDPOINT:-https://huggingface.co}" -v mirror="$mirror" \
        -v revision="$revision" '
        function row(name, bytes, sum, path) {
            path = into (path == "" ? name : path)
            if (name ~ /\.zip$/) { archive = path }
            print "get", bytes, sum, path, is_hub ? "hub" : "-", from name
        }
        $1 == "set" { on = $2 == set; from = into = "" }
        !on { next }
        $1 == "into" { into = $2 "/" }
        $1 == "from" {
            from = $2
            is_hub = sub(/^hf:/, "", from)
            if (is_hub) {
                at = index(from, "@")
                rest = substr(from, at + 1)
                slash = index(rest, "/")
                from = hub "/" substr(from, 1, at - 1) "/resolve/" \
                    (revision == "" ? substr(rest, 1, slash - 1) : revision) substr(rest, slash)
            }
            if (mirror != "") {
                is_hub = 0
                sub(/^[a-z]*:\/\/[^\/]*/, "", from)
                from = mirror from
            }
        }
        $1 == "file" { row($2, $3, $4, $5) }
        $1 == "shard" {
            ends = split($2, range, "-")
            for (i = range[1] + 0; i <= range[ends] + 0 && count < limit; i++) {
                count++
                row(sprintf($3, i), $4, $5, sprintf($6, i))
            }
        }
        $1 == "part" { print "part", $3, $4, into $5, archive, $2 }'
}

list() {
    rows | awk '
        function bytes_of(text) { sub(/^~/, "", text); return text + 0 }
        function show() { if (name != "") { printf "%-18s %6d %9s  %s\n", name, files, gb(), about } }
        function gb() {
            if (!bytes) { return "unknown" }
            return bytes < 1e9 ? sprintf("%.1f MB", bytes / 1e6) : sprintf("%.1f GB", bytes / 1e9)
        }
        $1 == "set" { show(); name = $2; files = bytes = 0; about = $0; sub(/^set [^ ]+ /, "", about) }
        $1 == "file" { files++; bytes += bytes_of($3) }
        $1 == "shard" { n = split($2, r, "-"); k = r[n] - r[1] + 1; files += k; bytes += k * bytes_of($4) }
        END { show() }'
}

# Prints how many bytes of the plan are still to come, where sizes are known.
bytes_to_come() {
    total=0
    while read -r kind bytes sum path rest; do
        if [ "$kind" != get ] || [ -e "$path" ]; then continue; fi
        bytes=${bytes#\~}
        is_exact "$bytes" || continue
        total=$((total + bytes - $(size_of "$path.part")))
    done <"$work/plan"
    echo "$total"
}

# Leaves archives out of the plan if all their parts are there.
drop_archives() { # PLAN OUTPUT
    cp "$1" "$2"
    grep -q ^part "$1" || return 0
    while read -r kind bytes sum path rest; do
        [ "$kind" != part ] || [ -e "$path" ] || return 0
    done <"$1"
    grep ^part "$1" >"$2"
}
