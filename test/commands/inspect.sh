#!/bin/sh
# Tests `inspect` as a program: the page as a file, its escapes and tables, formats of weights, what is refused. The
# facts themselves: test/inspect/test_inspect.c.
. "$(dirname "$0")/../lib.sh"

# Sets $model to a model of two layers of two heads, made once, whose tokenizer has tokens of markup and a line end of
# Unicode; and $wide to one of 256 heads.
model() { # both after twenty steps
    wide=$root/wide/step_00000020
    model=$root/run/step_00000020
    [ ! -d "$model" ] || return 0
    for i in $(seq 200); do printf '</script> &"%s"\342\200\250<!--\n\n\327\251' $i; done >"$root/text.txt"
    must "$prepare" --train_tokenizer 280 --out "$root/tokenizer" "$root/text.txt"
    must "$prepare" --tokenizer "$root/tokenizer" --val_size 0 --out "$root/markup" "$root/text.txt"
    for name in run:2,H=2 wide:16,H=16; do
        must "$train" $small --model L=${name#*:},C=32,T=96,V=280 --tokenizer "$root/tokenizer" --val_data '' \
            --max_steps 20 --train_data "$root/markup_train_*.bin" --out "$root/${name%:*}"
    done
}

count() { grep -o -- "$1" "$page" | wc -l; } # WORDS: prints how often the page has them
text=$(printf '</script> &"7"\342\200\250<!-- \303\251\327\251')

a_page_is_one_file_and_escapes_tokens() {
    model
    page=$dir/page.html
    expect 0 "$page" "$train" inspect --init "$model" --prompt "$text" --out "$page"
    [ "$(wc -c <"$page")" -lt 2000000 ] || note "a page of $(wc -c <"$page") bytes"
    [ -z "$(grep -oE 'https?://[^"]*' "$page" | grep -vx 'http://www.w3.org/1999/xhtml')" ] || note "a reference"
    ! grep -qE ' (src|href)=|@import|url\(' "$page" || note "the page loads something"
    [ "$(count '</script>')" = 1 ] && [ "$(count '<!--')" = 0 ] || note "markup of a token"
    grep -q '&#60;/' "$page" || note "no escaped </"
    grep -q '&#38;&#34;' "$page" || note "no escaped &\""
    grep -q '&#60;U+2028&#62;' "$page" && ! grep -q "$(printf '\342\200\250')" "$page" || note "a line end in a token"
    grep -q '&#60;0xC3&#62;' "$page" || note "no half character"
    grep -q "$(printf '\327\251\342\200\216')" "$page" || note "numbers would go before a token from right to left"
    ! command -v python3 >/dev/null || must python3 -c 'import sys, xml.dom.minidom as m; m.parse(sys.argv[1])' "$page"
}

# The table's likeliest token behind the text is that of generate; the mean of its losses is that of the heading.
tables_hold_the_facts() {
    model
    page=$dir/page.html
    must "$train" inspect --init "$model" --prompt "$text" --out "$page"
    tokens=$(grep -o '[0-9]* tokens' "$page" | head -n 1 | cut -d ' ' -f 1)
    [ "$(count '<tr data-t=')" = $((7 * tokens)) ] || note "$(count '<tr data-t=') rows about $tokens tokens"
    [ "$(count '<caption>')" = "$(count '<table ')" ] || note "a table without a caption"
    [ "$(count '<th>')" = 0 ] || note "a heading without a scope"
    [ "$(count 'data-map="[^"]')" = 4 ] || note "not 4 maps"
    mean=$(grep -o 'mean loss [0-9.]*' "$page" | cut -d ' ' -f 3)
    sed -n '/class="likeliest"/,/<\/table>/p' "$page" | awk -F '</t[hd]><td>' -v mean="$mean" '
        $2 ~ /^[0-9.]+$/ { sum += $2; n++ }
        END { exit !(n > 1 && sum / n - mean < 0.002 && mean - sum / n < 0.002) }' ||
        note "the mean of the losses is not the heading's"
    must "$train" generate --init "$model" --prompt "$text" --temperature 0 --sample_tokens 1 --logprobs 2
    share=$(sed -n '/^<tr data-t="'$tokens'">/{s/[^%]*<small>\([0-9.]*\)%.*/\1/p;q;}' "$page")
    grep -qE -- '-[0-9.]+' "$dir/out" || note "no log-probability from generate"
    awk -v share="$share" '{ for (i = 1; i <= NF; i++) if ($i ~ /^-[0-9.]+$/ && !n++) p = 100 * exp($i) }
        END { exit !(p / share > 0.9 && p / share < 1.1) }' "$dir/out" ||
        note "$share% is not generate's: $(cat "$dir/out")"
}

each_format_gives_the_same_page() {
    model
    must "$train" inspect --init "$model" --prompt '<!-- &' --out "$dir/model.html"
    for format in hf gguf llmc; do
        must "$train" export $format --init "$model" --out "$dir/$format"
        must "$train" inspect --init "$dir/$format" --tokenizer "$root/tokenizer" --prompt '<!-- &' --out "$dir/new"
        grep -v Inside "$dir/model.html" >"$dir/a"
        grep -v Inside "$dir/new/inspect.html" >"$dir/b"
        cmp -s "$dir/a" "$dir/b" || note "another page from $format"
    done
}

what_cannot_be_inspected_is_refused() {
    model
    inspect="$train inspect --init $model --out $dir/page.html"
    expect 2 'give --init FOLDER' "$train" inspect --prompt ab
    expect 1 'no such file or folder' "$train" inspect --init "$dir/nothing" --prompt ab --out "$dir/page.html"
    expect 2 '--prompt is empty' $inspect --prompt ''
    expect 2 'has one token' $inspect --prompt a
    expect 1 'has 100 tokens, the model only 96 positions' $inspect --prompt "$(printf %0100d 0 | tr 0 x)"
    printf 'ab\ncd\n' >"$dir/two"
    expect 2 'has 2 texts: give one' $inspect --prompt "@$dir/two"
    expect 1 'text.txt: a file, not a folder' "$train" inspect --init "$model" --prompt ab \
        --out "$root/text.txt/page.html"
    expect 1 'run: the folder of a run: give one of its checkpoints, such as' "$train" inspect --init "$root/run" \
        --prompt ab --out "$dir/page.html"
    expect 1 'give a folder, or a file that ends in .html' $train inspect --init "$model" --prompt ab --out "$dir/two"
    echo mine >"$dir/mine.html"
    expect 2 'is not a page of inspect' "$train" inspect --init "$model" --prompt ab --out "$dir/mine.html"
    grep -qx mine "$dir/mine.html" || note "a file of the user was replaced"
    expect 0 page.html $inspect --prompt ab
    expect 0 page.html $inspect --prompt ab # its own page is replaced
    expect 1 'a page of 16 layers of 16 heads has room for ' "$train" inspect --init "$wide" \
        --prompt "$(printf %090d 0 | tr 0 x)" --out "$dir/page.html"
}

run_tests
