#!/usr/bin/env python3
"""Writes test/golden/tokenizer.json: what tiktoken makes of many strings, which
test/tokenizer/test_tokenizer.c repeats.

usage: tokenizer.py VOCAB.BPE ENCODER.JSON TINYSHAKESPEARE.TXT > test/golden/tokenizer.json

Needs a virtual environment with tiktoken, and OpenAI's two vocabulary files (see data/make_tokenizer.c). Short texts
are recorded with their ids. Long ones are recorded as a count and a hash64() of the ids, as little-endian int32.
"""
import json
import random
import struct
import sys

import tiktoken
from tiktoken.load import data_gym_to_mergeable_bpe_ranks
from tiktoken_ext.openai_public import r50k_pat_str

from unicode import NUM_CODE_POINTS, code_point_classes

MASK = (1 << 64) - 1
BLOCK = 4096  # code points whose text is encoded as one
EOT = "<|endoftext|>"


def mix64(x):
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & MASK
    return x ^ (x >> 31)


def hash64(data, seed=0):
    """The function of llmc/base/base.h."""
    h = seed ^ (len(data) * 0x9E3779B97F4A7C15 & MASK)
    lane = [mix64(seed + i + 1 & MASK) for i in range(4)]
    whole = len(data) // 32 * 32
    for words in struct.iter_unpack("<4Q", data[:whole]):
        for i, word in enumerate(words):
            x = (lane[i] ^ word) * 0x9FB21C651E98DF25 & MASK
            lane[i] = x ^ (x >> 29)
    for x in lane:
        h = mix64(h ^ x)
    for at in range(whole, len(data), 8):
        h = mix64(h ^ int.from_bytes(data[at:at + 8], "little")) + 0x9E3779B97F4A7C15 & MASK
    return h


def hash_ids(ids, seed=0):
    return hash64(struct.pack(f"<{len(ids)}i", *ids), seed)


def code_points(encoding):
    """Every code point among neighbours of each class, a block of code points at a time."""
    count, h = 0, 0
    for first in range(0, NUM_CODE_POINTS, BLOCK):
        characters = (chr(c) for c in range(first, first + BLOCK) if not 0xD800 <= c < 0xE000)
        ids = encoding.encode_ordinary("".join(f"  {c}'s1{c}a{c}\n" for c in characters))
        count, h = count + len(ids), hash_ids(ids, h)
    return {"tokens": count, "hash": f"{h:016x}"}


LANGUAGES = """
The quick brown fox jumps over the lazy dog, doesn't it?|Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich
Portez ce vieux whisky au juge blond qui fume|El pingüino Wenceslao hizo kilómetros bajo exhaustiva lluvia
Příliš žluťoučký kůň
Pchnąć w tę łódź jeża lub ośm skrzyń fig|Árvíztűrő tükörfúrógép|Pijamalı hasta yağız şoföre çabucak güvendi|İıĞğŞş
Kæmi ný öxi hér ykist þjófum nú bæði víl og ádrepa|Ξεσκεπάζω την ψυχοφθόρα βδελυγμία
Съешь ещё этих мягких французских булок
Жебракують філософи при ґанку|Њежни|Շատ լավ է|ქართული ენა|דג סקרן שט בים מאוכזב|שָׁלוֹם עֲלֵיכֶם|نص حكيم له سر قاطع
السَّلَامُ عَلَيْكُم
یہ اردو ہے۔|فارسی می‌خواهم|ܫܠܡܐ|ދިވެހި|ߒߞߏ|हिन्दी में क्षत्रिय|ऋषियों को सताने|বাংলা ভাষা|ਪੰਜਾਬੀ|ગુજરાતી|ଓଡ଼ିଆ
தமிழ் மொழி|తెలుగు భాష
ಕನ್ನಡ|മലയാളം ഭാഷ|සිංහල|ภาษาไทยไม่มีช่องว่าง|ພາສາລາວ|བོད་སྐད།|မြန်မာဘာသာ|ភាសាខ្មែរ|አማርኛ ቋንቋ|ᏣᎳᎩ|ᐃᓄᒃᑎᑐᑦ|ᚠᚢᚦᚨᚱᚲ|᚛ᚁᚂ᚜|ᠮᠣᠩᠭᠣᠯ
中文分词没有空格|繁體中文測試|日本語のテキスト、カタカナ|ﾊﾝｶｸ ｶﾅ|いろはにほへと ちりぬるを|한국어 문장입니다|한글|ꀀꀁꀂ ꆈꌠ|𠀀𠀁𠀂|㐀㐁|〇〡〢〣
𐌰𐌱𐌲|𐍈𐌰𐌹|𓀀𓀁𓂀|𒀀𒀁𒀂|𐤀𐤁|𝔘𝔫𝔦𝔠𝔬𝔡𝔢|𝒜𝓈𝓉|Ⓐⓑⓒ|ＦＵＬＬ　ｗｉｄｔｈ|ﬁ ﬂ ﬀ ſt|ǅ ǈ ǋ ᾳ|ʰʲʷ ˈaɪ pʰiː eɪ|ªº|ℵ ℶ ℝ ℕ ⅅ|ᎠᎡ ꭰ|ⴰⵎⴰⵣⵉⵖ|ⲁⲃⲅ
"""
NUMBERS = """
0|7|42|2024|3.14159|1,000,000|1e-10|0x1F|1st 2nd 3rd|12345678901234567890| 1| 12|  123|½ ¼ ¾|x²+y³|₀₁₂|①②③|⑴ ⒈|Ⅳ ⅷ ↀ
٠١٢٣٤|۰۱۲|०१२३|০১২|๐๑๒|༠༡|၀၁|០១
１２３|𝟎𝟏𝟐 𝟘𝟙|𐄇𐄈|㆒㆓|㊀㊁|一二三|〇|²²²abc|a1b2c3|1a|١a|a١| ٣|৴|௰௱|፩፪|፻|᭐᭑|꘠꘡|𞤀𞥐|🄀🄁|٪|۞|1️⃣|10:30|$5.00 €6 ¥7 £8|50%|#1|-1|+1|±1
"""
EMOJI = """
😀|😀😀|a😀b| 😀|👍🏽|👨‍👩‍👧‍👦|🏳️‍🌈|🇩🇪🇫🇷|❤️|☺|♥️!|👩🏿‍🚀 ok|🧑‍💻's|😀's 😀'll|🫠🫡|🀄|🂡|⚡️ 1️⃣|✂ ✈︎|©®™|→←↑|∑∫√∞|≠≤≥|♪♫|█▓▒░|─│┌
…—–‘’“”|«»‹›|¿¡|§¶†‡|·•|°C|№ 5
"""
CONTRACTIONS = """
'|''|'''|'s|'S|'t|'T|'re|'RE|'Re|'ve|'VE|'m|'M|'ll|'LL|'Ll|'d|'D|'l|'v|'r|'x|'sd|'ss|'tt|'llama|'vet|'ree|'red|'day
'mum|it's|IT'S|It'S|don't|DON'T|we're|WE'RE|I've|I'm|you'll
he'd|'tis|'twas|rock 'n' roll|y'all'd've|''s|'''t|"'s"|'s's's|a 's| 's|  's|'s |\t's|\n's|1's|1'll|é's|中's|中'll|'é
'中|'1|' s|' '|'s1|'ſ|'ll1|!'s|!'ll|.'re|'-'s|’s|it’s|don’t|it`s|it´s|'s\n|x''s|x'
"""
SPACES = [" ", "  ", "   ", "    ", " " * 7, " " * 16, " " * 33, " " * 100, "\t", "\t\t", "\n", "\n\n", "\n\n\n",
          "\r\n", "\r\n\r\n",
          "\v", "\f", "\x1c", "\x1d", "\x1e", "\x1f", "\x85", "\xa0", "\u1680", "\u180e", "\u2000", "\u2003", "\u2007",
          "\u2009", "\u200a", "\u200b", "\u200c", "\u200d", "\u2028", "\u2029", "\u202f", "\u205f", "\u2060", "\u3000",
          "\ufeff", " \n", "\n ", " \n ", "\t ", " \t", "  \n", "\n  ", " \xa0", "\xa0 ", "\xa0\xa0", "\u3000 ",
          " \u3000",
          " \u200b", "\u2028 ", " \r", "\r ", "\x85 ", "\x1c "]
ODD = ["", "\0", "\0\0a", "a\0b", "\x01\x02\x03", "\x7f", "\x80\x9f", "\x1b[31mred\x1b[0m", "\ud7ff", "\ue000",
       "\ud7ff\ue000",
       "a\ue000b", "\uf8ff", "\ufdd0", "\ufffd", "\ufffe", "\uffff", "\U00010000", "\U0001fffe", "\U000e0001",
       "\U000e0041",
       "\U000f0000", "\U00100000", "\U0010fffd", "\U0010ffff", "\u0378", "\u0558", "\u202eabc\u202c", "\u200eabc\u200f",
       "e\u0301", "e\u0301\u0301\u0301", "\u0301", " \u0301", "a\u0301b", "Z\u0351\u036b\u0343\u036a", "1\u0301",
       "\u20dd", "क\u094dष",
       "\u1100\u1161\u11a8", "\ufe0f", "\U000e0100", "\u115f", "\u3164", "\u00ad", "so\u00adft", "\u2800\u2801",
       "\u2e80\u2f00",
       EOT, EOT + EOT, "a" + EOT, " " + EOT + "\n", "<|endoftext", "endoftext|>", "<|im_start|>", "Hello, world!",
       "def f(x):\n    return x  # comment\n", "#include <stdio.h>\nint main(void) {\n\treturn 0;\n}\n",
       "if(a&&b||!c){x+=1;}",
       "{\"a\": [1, 2, {\"b\": null}]}", "<a href=\"http://x.y/z?q=1&r=%20\">t</a>", "user@example.com",
       "C:\\Users\\x", "/usr/bin",
       "https://en.wikipedia.org/wiki/%C3%89", "=" * 64, "=" * 65, "-" * 200, "*" * 31, "." * 10, "!?!?!?", "_____",
       "~~~", "```",
       " SolidGoldMagikarp", "cloneembedreportprint", "ÃÂÃÂÃÂÃÂ", "Ã©", "\xc0\x80 as text", "a" * 31, "a" * 32,
       "a" * 33, "a" * 500,
       "ab" * 200, "A" * 129, "supercalifragilisticexpialidocious",
       "Donaudampfschifffahrtselektrizitätenhauptbetriebswerk",
       "antidisestablishmentarianism" * 8, "The" * 40, "的" * 100, "𠀀" * 30, "中文" * 40, "ア" * 60, "١" * 50, "1" * 100,
       "1234567890" * 10, "🙂" * 30, "e\u0301" * 40, "́" * 40, "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "acgt" * 30,
       "ACGTTGCA" * 12]


def texts():
    for group in (LANGUAGES, NUMBERS, EMOJI):
        yield from (text for line in group.strip().split("\n") for text in line.split("|"))
    for line in CONTRACTIONS.strip("\n").split("\n"):
        yield from line.split("|")
    for space in SPACES:
        yield from (space, f"a{space}b", f"{space}1", f"!{space}", f"{space}'s {space}中")
    yield from ODD
    rng = random.Random(1337)
    pool = [c for group in (LANGUAGES, NUMBERS, EMOJI) for c in group if c not in "|\n"]
    pieces = SPACES + ["'s", "'ll", "'", "'ve", " ", " ", " ", "\n", "1", "23", "!", "..", "the", " and", "X", "\xff"]
    for _ in range(60):
        yield "".join(rng.choice(pool) if rng.random() < 0.5 else rng.choice(pieces) for _ in range(rng.randint(2, 24)))
    for _ in range(60):
        yield "".join(chr(c) for c in (rng.randrange(1 << rng.randint(6, 17)) for _ in range(rng.randint(1, 16)))
                      if not 0xD800 <= c < 0xE000)


def main():
    vocab_bpe, encoder_json, shakespeare = sys.argv[1:]
    ranks = data_gym_to_mergeable_bpe_ranks(vocab_bpe_file=vocab_bpe, encoder_json_file=encoder_json)
    encoding = tiktoken.Encoding("gpt2", explicit_n_vocab=50257, pat_str=r50k_pat_str, mergeable_ranks=ranks,
                                 special_tokens={EOT: 50256})
    tokens = [encoding.decode_single_token_bytes(i) for i in range(encoding.n_vocab)]
    with open(shakespeare, encoding="utf-8", newline="") as f:
        play = encoding.encode_ordinary(f.read())
    golden = {
        "tiktoken": tiktoken.__version__,
        "vocabulary": f"{hash64(b''.join(bytes([len(t)]) + t for t in tokens)):016x}",
        "classes": f"{hash64(bytes(code_point_classes())):016x}",
        "code_points": code_points(encoding),
        "tinyshakespeare": {"tokens": len(play), "hash": f"{hash_ids(play):016x}"},
    }
    strings = [json.dumps([text, encoding.encode_ordinary(text)], separators=(",", ":"))
               for text in dict.fromkeys(texts())]
    head = json.dumps(golden, indent=0)[:-2]
    print(head + ',\n"strings": [\n' + ",\n".join(strings) + "\n]}")


if __name__ == "__main__":
    main()
