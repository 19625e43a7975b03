# HTTP by curl or wget, for data/fetch.sh, which sources this. $head is the file that receives the headers of the last
# answer; $token is not empty while HF_TOKEN may be sent. Failures set $why.
# shellcheck shell=sh
# shellcheck disable=SC2034,SC2154  # variables of fetch.sh

# Reads the last answer: $status, 0 if there was none, and some of its headers, - where it has none.
read_answer() {
    read -r status location length its_etag linked linked_bytes retry_after <<ANSWER
$(awk '/^ *HTTP\// { for (name in value) { delete value[name] } status = $2 + 0 }
        { name = tolower($1); sub(/\r$/, "", $2); gsub(/"/, "", $2); value[name] = $2 }
        function of(name) { return value[name] == "" ? "-" : value[name] }
        END { print status + 0, of("location:"), of("content-length:"), of("etag:"), of("x-linked-etag:"),
            of("x-linked-size:"), of("retry-after:") }' "$head")
ANSWER
}
origin() { # URL: its scheme and host
    rest=${1#*://}
    echo "${1%%://*}://${rest%%/*}"
}

# Waits for the last background process and returns its exit code. Nothing that takes long runs in the foreground, where
# a signal would have to wait for it.
await_child() {
    child=$! code=0
    wait "$child" || code=$?
    child=''
    return $code
}

# ask_curl, ask_wget OPTION... URL: run it, with HF_TOKEN if $token is set. curl gets the token through a pipe, wget
# from a file: `ps` shows arguments.
ask_curl() {
    line=''
    [ -z "$token" ] || line="header = \"Authorization: Bearer $HF_TOKEN\""
    curl --config - --silent --show-error --connect-timeout 30 "$@" 2>"$head.err" <<END &
$line
END
    await_child
}
ask_wget() {
    rc=${WGETRC-}
    [ -z "$token" ] || rc="$work/wgetrc"
    ${rc:+env "WGETRC=$rc"} wget --server-response --tries=1 --timeout=60 "$@" 2>"$head" </dev/null &
    await_child
}

ask_head() { # URL: one request for the headers, without following a redirection
    : >"$head"
    if have curl; then ask_curl --head --dump-header "$head" --output /dev/null "$1"
    else ask_wget --spider --max-redirect=0 "$1"; fi
}
ask_rest() { # URL FILE: appends to it what it lacks. Follows no redirection with a token, none from https to http
    hops=5
    case $1 in https://*) schemes='=https' ;; *) schemes='=https,http' ;; esac
    [ -z "$token" ] || hops=0
    : >"$head"
    if have curl; then
        ask_curl --fail --location --max-redirs $hops --proto-redir $schemes --continue-at - \
            --speed-limit 1 --speed-time 60 --dump-header "$head" --output "$2" "$1"
    else ask_wget --max-redirect=$hops --continue --output-document "$2" "$1"; fi
}

# Asks the server of an address where the file is. Sets $address, and what the server says of the file: $its_bytes,
# $its_sum, $etag. While the address is on the first host and the set is Hugging Face's, the token goes along.
# Returns 0, or a code as transfer does.
locate() { # URL HUB
    address=$1 its_bytes='' its_sum='' etag=- token='' left=5
    [ "$2" != hub ] || token=${HF_TOKEN:-}
    while [ "$left" -gt 0 ]; do
        left=$((left - 1))
        code=0
        ask_head "$address" || code=$?
        read_answer
        [ "$status" != 0 ] || { why=$(reason "$code"); return 1; }
        # Hugging Face's, of large files: their SHA-256
        if [ ${#linked} = 64 ]; then its_sum=$linked its_bytes=$linked_bytes; fi
        case $status in
            30?) to=$location ;;
            2??) its_bytes=${its_bytes:-$length} etag=$its_etag; return 0 ;;
            405 | 501) return 0 ;; # it answers no such question
            *) refused; return $? ;;
        esac
        case $to in
            http://* | https://*) ;;
            /*) to=$(origin "$address")$to ;; # on this host
            *) why="its server redirects to '$to'"; return 2 ;;
        esac
        case "$address $to" in "https://"*" http://"*) why="its server redirects to plain http: $to"; return 2 ;; esac
        first=$(origin "$address") address=$to
        if [ "$(origin "$to")" != "$first" ]; then token=''; return 0; fi
    done
    why='its server redirects in a circle'
    return 2
}

# True if an answer to an https address redirected to http.
left_https() { # URL
    case $1 in https://*) grep -qi '^ *location: *http:' "$head" ;; *) return 1 ;; esac
}

refused() { # by $status: sets $why; returns 1 if trying again may help, 2 if not
    seconds=$retry_after
    number "$seconds" || seconds=''
    why="HTTP error $status"
    case $status in
        401 | 403) why="$why: it needs a token (HF_TOKEN), or the licence must be accepted on its page"; return 2 ;;
        404 | 410) why="$why: the file is not there. Has the set moved? --revision REV, --mirror URL"; return 2 ;;
        408 | 429 | 5??) return 1 ;;
        *) return 2 ;;
    esac
}
reason() { # EXIT_CODE of curl or wget
    if have curl; then tail -n 1 "$head.err" | grep . || echo "curl failed with code $1"
    else echo "wget failed with code $1"; fi
}

# Asks for the rest of a file. Returns 0 when it is all there; otherwise sets $why and returns 1 if trying again may
# help, 2 if not, 3 if the server has other bytes than $bytes or $sum.
transfer() { # URL HUB FILE
    locate "$1" "$2" || return $?
    why='its server has another file of that name: has the set changed?'
    if [ -n "$its_sum" ] && [ "$sum" != - ] && [ "$its_sum" != "$sum" ]; then return 3; fi
    if is_exact "$bytes" && is_exact "$its_bytes" && [ "$its_bytes" != "$bytes" ]; then return 3; fi
    if [ "$sum" = - ] && [ -z "$its_sum" ]; then # only the ETag tells that a part is of this file
        if [ "$etag" = - ] || [ "$(cat "$3.etag" 2>/dev/null)" != "$etag" ]; then rm -f "$3"; fi
        echo "$etag" >"$3.etag"
    fi
    if is_exact "$its_bytes" && [ -s "$3" ]; then
        [ "$(size_of "$3")" -le "$its_bytes" ] || rm -f "$3"
        [ "$(size_of "$3")" != "$its_bytes" ] || return 0
    fi
    started=0
    ask_rest "$address" "$3" || started=$?
    if left_https "$address"; then # wget followed it: it has no option against that
        rm -f "$3"
        why='its server redirects to plain http'
        return 3
    fi
    [ "$started" != 0 ] || return 0
    read_answer
    case $status in
        416) # nothing is behind what we have: all, or another file
            rm -f "$3"
            why='its server has a shorter file'
            return 1 ;;
        4?? | 5??) refused; return $? ;;
        30?) why='its server redirects in a circle'; return 2 ;;
    esac
    why=$(reason "$started")
    if have curl; then
        case $started in
            33) rm -f "$3"; why='its server cannot continue a download: from the beginning' ;;
            23 | 26) why="cannot write $shown/$3: is the disk full?"; return 2 ;;
            1 | 3 | 51 | 58 | 60 | 77) return 2 ;;
        esac
    else
        case $started in
            3) why="cannot write $shown/$3: is the disk full?"; return 2 ;;
            5) return 2 ;;
        esac
    fi
    return 1
}
