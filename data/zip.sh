# Unpacks the parts of a set's .zip, for data/fetch.sh, which sources this.
# shellcheck shell=sh
# shellcheck disable=SC2034,SC2154  # variables of fetch.sh

unpack() { # ARCHIVE MEMBER: prints it
    if have unzip; then unzip -p "$1" "$2"
    elif have bsdtar; then bsdtar -xOf "$1" "$2"
    else python3 -c 'import sys, zipfile
sys.stdout.buffer.write(zipfile.ZipFile(sys.argv[1]).read(sys.argv[2]))' "$1" "$2"; fi
}

# Prints JSON lines, each with its line of LABELS as its last member.
join_labels() { # LINES LABELS
    awk 'NR == FNR { label[++labels] = $1 + 0; bad += $1 !~ /^[0-9]+\r?$/; next }
        !sub(/} *\r?$/, ", \"label\": " label[FNR] "}") { bad++ }
        { print; lines = FNR }
        END { exit bad || !lines || lines != labels }' "$2" "$1"
}

get_part() { # BYTES SHA256 PATH ARCHIVE MEMBERS
    bytes=$1 sum=$2 path=$3
    [ "$sum" != - ] || { sum=$(recorded_sum "$path"); sum=${sum:--}; }
    result=0
    is_there "$path" || result=$?
    [ $result = 1 ] || { [ $result = 3 ] || echo "$shown/$path is complete"; return $result; }
    why="cannot be unpacked from $shown/$4"
    result=0
    case $5 in
        *+*) unpack "$4" "${5%+*}" >"$work/lines" && unpack "$4" "${5#*+}" >"$work/labels" &&
            join_labels "$work/lines" "$work/labels" >"$path.part" || result=3 ;;
        *) unpack "$4" "$5" >"$path.part" || result=3 ;;
    esac
    [ $result = 3 ] || is_right "$path.part" "$path" || result=3
    [ $result = 0 ] || { rm -f "$path.part"; complain "$shown/$path: $why"; return 3; }
    mv "$path.part" "$path" || return 1
    record_sum "$found" "$path"
    echo "$shown/$path from $4"
}
