#!/bin/sh
# data/fetch.sh against a server on the loopback that is slow, truncates, resets, redirects, ignores ranges, sends wrong
# bytes and errors (fetch_server.py): each download ends with the right bytes, or with an error and no file.
# Needs python3 and curl; the tests of wget need wget, that of https openssl.
. "$(dirname "$0")/../lib.sh"

serves() { # starts the server once; sets $skip where it cannot be
    [ -z "${port:-}" ] || return 0
    command -v curl >/dev/null || { skip='no curl'; return 1; }
    python3 -c 'import http.server' 2>/dev/null || { skip='no python3'; return 1; }
    mkdir -p "$root/served"
    awk 'BEGIN { for (i = 0; i < 15000; i++) { printf "%d\n", i * 7919 } }' >"$root/served/data.txt"
    sum=$(sha256sum <"$root/served/data.txt" | cut -d ' ' -f 1)
    bytes=$(wc -c <"$root/served/data.txt" | tr -d ' ')
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost \
        -addext subjectAltName=DNS:localhost -keyout "$root/served/key.pem" -out "$root/served/cert.pem" 2>/dev/null ||
        rm -f "$root/served/key.pem"
    mkfifo "$root/stop"
    python3 test/data/fetch_server.py "$root/served" <"$root/stop" &
    server=$!
    exec 9>"$root/stop" # the server ends when this script does
    await . "$root/served/port" $server || return 1
    port=$(cat "$root/served/port")
}

# Writes a table of one set `a`: a file WAY.txt for each way, by its size and sum or, for WAY?, without them.
offer() { # WAY...
    echo 'set a none | a test' >"$root/sets"
    for way; do
        facts="$bytes $sum"
        case $way in *\?) facts='- -' way=${way%\?} ;; esac
        printf 'from hf:%s@r/\nfile data.txt %s %s.txt\n' "$way" "$facts" "$way"
    done >>"$root/sets"
    echo 'then done with DIR' >>"$root/sets"
}
# Each test asks for a revision of its own, so that the server counts its requests apart.
fetch() { # ARGUMENT...
    env HF_ENDPOINT="${endpoint:-http://127.0.0.1:$port}" sh data/fetch.sh --sets "$root/sets" --out "$dir/got" \
        --wait 0 --revision "${revision:-$(basename "$dir")}" a "$@"
}
are_whole() { # WAY...
    for way; do cmp -s "$dir/got/$way.txt" "$root/served/data.txt" || note "$way: not the bytes served"; done
}
are_absent() { # WAY...
    for way; do [ ! -e "$dir/got/$way.txt" ] || note "$way: a wrong file got its name"; done
}
without_curl() { # $dir/bin: what fetch.sh needs with wget
    mkdir "$dir/bin"
    for program in awk b2sum cat cp cut df dirname env flock grep head ln mkdir mktemp mv od rm sed sh sha256sum sleep \
        tail tr uname wc wget; do
        ln -s "$(command -v $program)" "$dir/bin/$program"
    done
}
requests() { grep -c "$1" "$root/served/requests"; } # PATTERN
again() { rm -rf "$dir/got"; }

every_row_of_the_table_is_well_formed() {
    awk '
        function bad(why) { print FILENAME ":" FNR ": " why ": " $0; status = 1 }
        function facts(bytes, sum) {
            if (bytes !~ /^(-|~?[0-9]+)$/) { bad("no size") }
            if (sum != "-" && (length(sum) != 64 || sum ~ /[^0-9a-f]/)) { bad("no sum") }
        }
        /^#/ || /^$/ { next }
        $1 != "set" && !set { bad("no set yet") }
        $1 == "set" {
            if (seen[$2]++ || $2 !~ /^[a-z0-9-]+$/ || !/ [^ ].* \| ./) { bad("not NAME LICENCE | text") }
            set = $2; from = archive = ""
            next
        }
        $1 == "from" {
            from = $2
            if ($2 !~ /^(hf:[^@ ]+@[^\/]+|https:\/\/[^\/]+)\/(.*\/)?$/) { bad("no address") }
            next
        }
        $1 == "into" { if (NF != 2 || $2 !~ /^[a-z0-9-]+$/) { bad("no folder") } next }
        $1 == "file" { if (NF < 4 || NF > 5 || !from) { bad("no file") } facts($3, $4); archive = $2; next }
        $1 == "shard" {
            if (NF < 5 || NF > 6 || !from || $2 !~ /^[0-9]+(-[0-9]+)?$/) { bad("no shards") }
            if ($3 !~ /^[^%]*%0?[0-9]?d[^%]*$/) { bad("no number in the name") }
            facts($4, $5)
            next
        }
        $1 == "part" { if (NF != 5 || archive !~ /\.zip$/) { bad("no part") } facts($3, $4); next }
        $1 == "then" { if (NF < 2) { bad("no command") } next }
        { bad("unknown row") }
        END { exit status }' data/sets.list >"$dir/bad" || note "$(cat "$dir/bad")"
    for set in $(sed -n 's/^set \([^ ]*\).*/\1/p' data/sets.list); do
        grep -q "^| \`$set\`" data/README.md || note "data/README.md has no line of $set"
    done
}
the_list_and_the_page_have_the_same_sizes() {
    must sh data/fetch.sh --list
    # columns of the list: name, files, size, unit; of the page: "| `name` | [FILES x] size unit |"
    sed -n 's/^| `\([a-z0-9-]*\)` | \([0-9.,x GMB]*\) |.*/\1 \2/p' data/README.md | tr -d , | awk '
        function bytes(number, unit) { return number * (unit == "GB" ? 1e9 : 1e6) }
        NR == FNR { files[$1] = $2; size[$1] = bytes($3, $4); next }
        NF == 5 { # many files
            if ($2 != files[$1]) { print $1 ": not " files[$1] " files" }
            ratio = $2 * bytes($4, $5) / size[$1]
            if (ratio < 0.9 || ratio > 1.1) { print $1 ": " ratio " times the size" }
            next
        }
        { digits = index($2, ".") ? 1 : 0 }
        sprintf("%.*f", digits, size[$1] / bytes(1, $3)) != $2 { print $1 ": not " $2 " " $3 }
        END { if (NR != 2 * length(files)) { print "other sets" } }' "$dir/out" - >"$dir/wrong"
    [ ! -s "$dir/wrong" ] || note "$(cat "$dir/wrong")"
    printf 'set a none | a test\nfile x - -\n' >"$dir/sets"
    expect 0 'a                       1   unknown  none' sh data/fetch.sh --sets "$dir/sets" --list
}
arguments_are_checked() {
    expect 0 'data/fetch.sh [--OPTION ...] SET [N]' sh data/fetch.sh --help
    expect 2 'data/fetch.sh [--OPTION ...] SET [N]' sh data/fetch.sh
    expect 0 'fineweb-edu-10bt       14   28.5 GB' sh data/fetch.sh --list
    expect 2 "no set 'fineweb2'; there are: shakespeare, fineweb" sh data/fetch.sh fineweb2
    expect 2 "'100': give 1 to 99 files of fineweb-edu, or all" sh data/fetch.sh fineweb-edu 100
    expect 2 "'0': give 1 to" sh data/fetch.sh fineweb-edu --limit 0
    expect 2 'takes no number' sh data/fetch.sh hellaswag 2
    expect 2 'no option --outt' sh data/fetch.sh --outt x hellaswag
    expect 2 '--out: a value is missing' sh data/fetch.sh hellaswag --out
    expect 2 "--jobs '0'" sh data/fetch.sh hellaswag --jobs 0
    expect 2 'begins with https://' sh data/fetch.sh hellaswag --mirror ftp://x
    expect 2 'HF_TOKEN is not a token' env HF_TOKEN='a"b' sh data/fetch.sh gpt2
    expect 2 'not sent without encryption' env HF_TOKEN=hf_x HF_ENDPOINT=http://localhost.org sh data/fetch.sh gpt2
    must sh data/fetch.sh --dry-run --limit all --out there --mirror https://m.org/x/ fineweb-edu-10bt
    [ "$(wc -l <"$dir/out")" = 14 ] || note 'not 14 files'
    grep -q '^https://m.org/x/datasets/HuggingFaceFW/fineweb-edu/resolve/87f.*/013_00000.parquet 540632672 bytes' \
        "$dir/out" || note "not the plan: $(tail -n 1 "$dir/out")"
    [ ! -e there ] || note '--dry-run wrote'
    must sh data/fetch.sh --dry-run piqa
    grep -q 'physicaliqa-train-dev.zip -> data/piqa_val.jsonl$' "$dir/out" || note "not piqa's plan"
}
without_curl_and_wget_it_says_so() {
    mkdir "$dir/bin"
    for program in sh awk sed dirname cat printf tr wc; do ln -s "$(command -v $program)" "$dir/bin/$program"; done
    expect 1 'curl and wget are both missing' env PATH="$dir/bin" sh data/fetch.sh hellaswag
}
downloads_end_with_the_right_bytes() {
    serves || return
    good='plain slow cut reset no_ranges no_ranges_cut failing late_error no_head other_host busy linked'
    offer $good
    must fetch
    are_whole $good
    [ -z "$(find "$dir/got" -name '*.part*' -o -name '*.lock')" ] || note 'left a .part, or its lock'
    grep -q "^next: done with $dir/got" "$dir/out" || note 'it does not say what is next'
    grep -q 'busy.txt: HTTP error 429; trying again in 1 s' "$dir/err" || note 'Retry-After was not obeyed'
    [ "$(requests "GET /cut/.*/$(basename "$dir")/.* bytes=")" -ge 2 ] || note 'it was not continued'
    (cd "$dir/got" && sha256sum -c fetch.sha256 >/dev/null 2>&1) || note 'fetch.sha256 is wrong'
    served=$(requests .)
    must fetch # all are there: nothing is asked
    [ "$(requests .)" = "$served" ] || note 'asked for files that are there'
}
any_folder_is_named_as_it_is() {
    serves || return
    offer plain
    revision=named
    for folder in 'q|b' 'R&D' 'a\tb' "$(printf 'two\nlines')" "DIR's \"*\""; do
        must fetch --out "$dir/$folder"
        cmp -s "$dir/$folder/plain.txt" "$root/served/data.txt" || note "nothing in $folder"
        case $(cat "$dir/out") in *"next: done with $dir/$folder") ;; *) note "not $folder: $(cat "$dir/out")" ;; esac
        must fetch --out "$folder" --dry-run
        case $(cat "$dir/out") in *" $folder/plain.txt") ;; *) note "--dry-run: not $folder: $(cat "$dir/out")" ;; esac
    done
    unset revision
}
errors_leave_no_file() {
    serves || return
    bad='missing failing private circle stuck wrong short linked_wrong linked_other busy_long'
    offer missing failing private circle stuck wrong short linked_wrong? linked_other busy_long
    cp "$root/served/data.txt" "$root/served/page.jsonl"
    printf 'from hf:page@r/\nfile page.jsonl - -\n' >>"$root/sets"
    revision=always expect 3 'HTTP error 404: the file is not there' fetch --retries 2
    are_absent $bad
    [ ! -e "$dir/got/page.jsonl" ] || note "a page got the name of JSON lines"
    ! grep -q '^next:' "$dir/out" || note 'it goes on after errors'
    while read -r way words; do
        grep -q "^error: $dir/got/${way}[.].*$words" "$dir/err" || note "$way: no '$words'"
    done <<END
failing HTTP error 500
private HTTP error 401: it needs a token
circle redirects in a circle
stuck What arrived is kept
wrong its SHA-256 is
short another file of that name
linked_wrong its SHA-256 is
linked_other another file of that name
busy_long asks to come back in 100000 s
page not of the format
END
    grep -q "linked_wrong.txt: .* (http://127.0.0.1:$port/linked_wrong/" "$dir/err" || note 'another address is named'
    offer missing
    expect 1 'HTTP error 404' fetch
}
an_interrupted_download_continues() {
    serves || return
    offer plain slow reset no_head? cut? busy?
    mkdir "$dir/got"
    head -c 30000 "$root/served/data.txt" >"$dir/got/plain.txt.part"
    head -c 30000 /dev/zero >"$dir/got/slow.txt.part" # of another file: once more from the beginning
    { cat "$root/served/data.txt"; echo more; } >"$dir/got/reset.txt.part"
    cp "$root/served/data.txt" "$dir/got/no_head.txt.part" # complete, but it has not got its name
    head -c 30000 /dev/zero >"$dir/got/busy.txt.part" # of another file, and no sum would tell
    must fetch
    are_whole plain slow reset no_head cut busy
    [ "$(requests "GET /cut/.*/$(basename "$dir")/.* bytes=")" -ge 2 ] || note 'it was not continued'
    grep -q "GET /plain/.*/$(basename "$dir")/.* bytes=30000- " "$root/served/requests" || note 'it began anew'
}
tries_in_which_nothing_arrived_are_counted() {
    serves || return
    offer cut # each try brings some
    must fetch --retries 1
    are_whole cut
    offer stuck # only the first one does
    expect 1 'What arrived is kept' fetch --retries 2
    [ "$(requests "GET /stuck/.*/$(basename "$dir")/")" = 3 ] || note "$(requests /stuck/) requests of stuck.txt"
}
# Of curl; so does a server, or what is before it, that resets connections under load.
a_tls_handshake_that_fails_is_tried_again() {
    serves || return
    offer plain
    cat >"$dir/curl" <<END
#!/bin/sh
case "\$* " in
    *' --head '*) ;;
    *) [ -e '$dir/failed' ] || { : >'$dir/failed'; echo 'curl: (35) Connection reset by peer' >&2; exit 35; } ;;
esac
exec $(command -v curl) "\$@"
END
    chmod +x "$dir/curl"
    PATH="$dir:$PATH" must fetch
    are_whole plain
    [ -e "$dir/failed" ] || note 'no handshake failed'
}
what_is_no_plain_file_is_named() {
    serves || return
    offer plain? cut? linked slow
    mkdir "$dir/got" "$dir/got/linked.txt"
    for name in plain.txt cut.txt.part slow.txt.part.etag; do mkfifo "$dir/got/$name"; done
    expect 3 "$dir/got/plain.txt is no plain file: move it away to fetch plain.txt" timeout 60 env \
        HF_ENDPOINT="http://127.0.0.1:$port" sh data/fetch.sh --sets "$root/sets" --out "$dir/got" a
    for name in cut.txt.part linked.txt slow.txt.part.etag; do
        grep -q "^error: .*/$name is no plain file" "$dir/err" || note "$name is not named: $(cat "$dir/err")"
        [ -e "$dir/got/$name" ] || note "$name is gone"
    done
}
a_stopped_download_keeps_its_part() {
    serves || return
    offer stuck
    revision=stopped fetch --retries 1000000 >"$dir/log" 2>&1 &
    pid=$!
    await 'trying again' "$dir/log" $pid
    lock="$dir/got/.fetch.a.lock"
    fetcher=$(sed 's/process \([0-9]*\) on .*/\1/' "$lock")
    [ -n "$fetcher" ] || { note 'it took no lock'; kill $(processes_of "$dir/got"); return; }
    expect 1 "process $fetcher on $(uname -n), or what it started, is fetching a already: its lock is $lock" fetch
    kill -TERM "$fetcher"
    finish $pid
    [ "$(wc -c <"$dir/got/stuck.txt.part")" -gt 0 ] || note 'its part is lost'
    [ ! -e "$lock" ] || note 'its lock is left'
    are_absent stuck
}
# A terminal that is closed sends SIGHUP. A shell starts with & what ignores SIGINT, and nohup what ignores SIGHUP.
a_stopped_download_leaves_no_token() {
    serves || return
    offer stuck
    mkdir "$dir/tmp"
    for signal in HUP INT TERM; do
        rm -f "$dir/log"
        TMPDIR="$dir/tmp" HF_TOKEN=hf_secret env --default-signal=INT,HUP sh data/fetch.sh --sets "$root/sets" \
            --wait 0 --mirror "http://127.0.0.1:$port" --revision "$signal" --out "$dir/got" --retries 1000000 a \
            >"$dir/log" 2>&1 &
        pid=$!
        await 'trying again' "$dir/log" $pid
        kill -s $signal $pid
        ends 130 $pid "$dir/log"
        [ -z "$(ls "$dir/tmp")" ] || note "SIG$signal left $(find "$dir/tmp" -type f)"
    done
}
locks_of_others_are_neither_obeyed_nor_removed() {
    serves || return
    offer plain
    mkdir "$dir/got" "$dir/start"
    echo "process 1 on another-host" >"$dir/got/.fetch.a.lock" # of a container that is gone; here process 1 lives
    ln -s 1 "$dir/got/.a.lock"
    : >"$dir/start/.fetch.a.lock" # of a fetch into the folder in which this one begins
    repository=$PWD
    (cd "$dir/start" && HF_ENDPOINT="http://127.0.0.1:$port" \
        must sh "$repository/data/fetch.sh" --sets "$root/sets" --out "$dir/got" a && [ -z "$problem" ]) ||
        note "$(cat "$dir/err")"
    are_whole plain
    [ -z "$(find "$dir/got" -name '*.lock')" ] || note 'a lock is left'
    [ -e "$dir/start/.fetch.a.lock" ] || note 'the lock of another fetch was removed'
}
the_token_goes_to_its_host_alone() {
    serves || return
    export HF_TOKEN=hf_secret
    offer private same_host late_redirect
    expect 1 'late_redirect.txt: its server redirects' fetch
    are_whole private same_host
    are_absent late_redirect
    ! grep -q hf_secret "$dir/out" "$dir/err" || note 'the token was printed'
    offer private
    again
    expect 1 'HTTP error 401' fetch --mirror "http://127.0.0.1:$port" --revision at_mirror
    sed 's|hf:|http://127.0.0.1:'"$port"'/|; s|@r/|/resolve/not_hub/|' "$root/sets" >"$root/sets.new"
    mv "$root/sets.new" "$root/sets"
    expect 1 'HTTP error 401' fetch # no set of Hugging Face
    unset HF_TOKEN
    [ "$(requests 'GET .* 127.0.0.1:.* Bearer hf_secret')" -ge 1 ] || note 'the token was not sent'
    ! grep -q ' localhost:.* Bearer' "$root/served/requests" || note 'the token went to another host'
    ! grep -qE '/(at_mirror|not_hub)/.*Bearer' "$root/served/requests" || note 'the token went to a mirror'
}
no_process_shows_the_token() {
    serves || return
    offer slow
    printf '#!/bin/sh\ncase "$*" in *hf_secret*) echo shown ;; esac >>%s/shown\nexec %s "$@"\n' "$dir" \
        "$(command -v curl)" >"$dir/curl"
    chmod +x "$dir/curl"
    HF_TOKEN=hf_secret PATH="$dir:$PATH" must fetch
    are_whole slow
    [ -e "$dir/shown" ] && [ ! -s "$dir/shown" ] || note 'the token was an argument'
}
plain_http_is_not_trusted_after_https() {
    serves || return
    [ -e "$root/served/https_port" ] || { skip='no openssl'; return; }
    endpoint="https://localhost:$(cat "$root/served/https_port")"
    export CURL_CA_BUNDLE="$root/served/cert.pem"
    offer plain
    must fetch
    are_whole plain
    offer other_host? late_redirect? # one tells HEAD, the other does not
    expect 3 'late_redirect.txt: its server redirects to plain http' fetch
    grep -q 'other_host.txt: its server redirects to plain http' "$dir/err" || note 'other_host: followed'
    are_absent other_host late_redirect
    [ "$(requests 'GET /plain/.*/plain_http.* localhost')" = 1 ] || note 'http was asked'
    if command -v wget >/dev/null; then
        echo "ca_certificate = $CURL_CA_BUNDLE" >"$dir/wgetrc"
        export WGETRC="$dir/wgetrc"
        without_curl
        again
        offer late_redirect?
        PATH="$dir/bin" expect 3 'late_redirect.txt: its server redirects to plain http' fetch
        are_absent late_redirect
        [ ! -e "$dir/got/late_redirect.txt.part" ] || note 'bytes of http were kept'
        offer plain
        PATH="$dir/bin" must fetch
        are_whole plain
    fi
    unset CURL_CA_BUNDLE WGETRC endpoint
}
a_shard_is_remembered_when_its_bytes_were_compared() {
    serves || return
    python3 -c 'import struct, sys
header = struct.pack("<3i", 20240520, 1, 50).ljust(1024, b"\0")
sys.stdout.buffer.write(header + bytes(range(100)))' >"$root/served/x.bin"
    echo "set a none | a test
from hf:plain@r/
file x.bin 1124 $(sha256sum <"$root/served/x.bin" | cut -d ' ' -f 1) x_train_000001.bin" >"$root/sets"
    mkdir "$dir/got"
    { head -c 1123 "$root/served/x.bin"; echo; } >"$dir/got/x_train_000001.bin" # damaged: its size is right
    expect 0 'x_train_000001.bin is complete' fetch
    [ ! -e "$dir/got/x.b2sums" ] || note 'a damaged shard got a checksum'
    expect 3 'its SHA-256 is' fetch --verify
    [ ! -e "$dir/got/x.b2sums" ] || note 'a damaged shard got a checksum by --verify'
    again
    for way in '' --verify; do
        must fetch $way
        (cd "$dir/got" && b2sum -c x.b2sums >/dev/null 2>&1) || note "no right checksum: fetch $way"
        rm -f "$dir/got/x.b2sums"
    done
}
a_sum_that_is_not_known_is_recorded() {
    serves || return
    offer plain? linked?
    expect 0 'the SHA-256 of 2 of these files is not known' fetch
    are_whole plain linked
    rm "$dir/got/plain.txt"
    sed 's|hf:plain|hf:wrong|' "$root/sets" >"$root/sets.new"
    mv "$root/sets.new" "$root/sets"
    expect 3 'its SHA-256 is' fetch
    are_absent plain
    sed 's/1$/2/' "$dir/got/linked.txt" >"$dir/changed"
    cp "$dir/changed" "$dir/got/linked.txt"
    expect 3 'linked.txt: its SHA-256 is' fetch --verify
    echo x >>"$dir/got/linked.txt"
    offer linked
    expect 3 'left as it is' fetch # by its size
    [ "$(tail -n 1 "$dir/got/linked.txt")" = x ] || note 'a file was replaced'
}
many_files_come_at_once() {
    serves || return
    for i in 0 1 2 3 4 5 6; do echo "$i" >"$root/served/f_0$i.txt"; done
    cat >"$root/sets" <<END
set a none | a test
from hf:slow@r/
into many
shard 0-4 f_%02d.txt ~2 -
shard 5-6 f_%02d.txt 2 - g%d
END
    must fetch --jobs 3 6
    [ "$(ls "$dir/got/many" | tr '\n' ' ')" = 'f_00.txt f_01.txt f_02.txt f_03.txt f_04.txt g5 ' ] || note 'other files'
    [ "$(cat "$dir/got/many/g5")" = 5 ] || note 'another file'
    must fetch all
    [ "$(requests 'GET /slow/.*/many_files')" = 7 ] || note 'fetched again'
    [ "$(sort "$dir/got/fetch.sha256" | uniq | wc -l)" = 7 ] || note 'not each sum was recorded once'
}
a_full_disk_is_predicted() {
    command -v curl >/dev/null || { skip='no curl'; return; }
    printf 'set a none | a test\nfrom https://none.invalid/\nfile x ~99000000000000000 -\n' >"$root/sets"
    port=${port:-} expect 1 'MB are free' fetch
}
parts_of_an_archive_are_unpacked() {
    serves || return
    python3 - "$root/served/pair.zip" <<'END'
import sys, zipfile
with zipfile.ZipFile(sys.argv[1], "w") as z:
    z.writestr("d/dev.jsonl", '{"goal": "a", "sol1": "b"}\r\n{"goal": "}", "sol1": "d"}\n')
    z.writestr("d/labels.lst", "1\n0\n")
    z.writestr("d/few.lst", "1\n")
END
    cat >"$root/sets" <<END
set a none | a test
from hf:plain@r/
file pair.zip - -
part d/dev.jsonl+d/labels.lst - - pair.jsonl
END
    must fetch
    printf '{"goal": "a", "sol1": "b", "label": 1}\n{"goal": "}", "sol1": "d", "label": 0}\n' >"$dir/expected"
    cmp -s "$dir/expected" "$dir/got/pair.jsonl" || note "not the lines: $(cat "$dir/got/pair.jsonl")"
    [ ! -e "$dir/got/pair.zip" ] || note 'the archive is left'
    must fetch
    [ "$(requests 'GET /plain/.*/parts_of')" = 1 ] || note 'the archive was fetched again'
    again
    sed -i 's/labels.lst/few.lst/' "$root/sets"
    expect 3 'cannot be unpacked' fetch
    [ ! -e "$dir/got/pair.jsonl" ] || note 'a wrong file got its name'
    sed -i 's/few.lst/labels.lst/' "$root/sets"
    mkdir "$dir/bin"
    printf '#!/bin/sh\ncase $* in *pair.jsonl) echo "mv: no" >&2; exit 1 ;; esac\nexec %s "$@"\n' "$(command -v mv)" \
        >"$dir/bin/mv"
    chmod +x "$dir/bin/mv"
    PATH="$dir/bin:$PATH" expect 1 'mv: no' fetch
    [ -e "$dir/got/pair.zip" ] || note 'the archive is gone, and its part is not there'
}
wget_does_it_too() {
    serves || return
    command -v wget >/dev/null || { skip='no wget'; return; }
    without_curl
    good='plain cut reset no_ranges_cut failing late_error other_host no_head private'
    bad='missing wrong short circle stuck'
    offer $good
    export HF_TOKEN=hf_secret
    PATH="$dir/bin" must fetch
    are_whole $good
    unset HF_TOKEN
    offer $bad
    revision=wget PATH="$dir/bin" expect 3 'HTTP error 404' fetch --retries 2
    are_absent $bad
    ! grep -q ' localhost:.* Bearer' "$root/served/requests" || note 'the token went to another host'
}

run_tests
