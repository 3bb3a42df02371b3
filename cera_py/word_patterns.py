"""How byte-level BPE vocabularies cut text into words: the regexes behind each value of `tokenizer.ggml.pre`.

The regexes of a value are applied one after another: what matches is a piece, what lies between matches is one too, and
the next regex cuts the pieces further; merges never cross pieces. These are facts about the models, as their
tokenizer.json files and llama.cpp's src/llama-vocab.cpp state them, in the dialect of Oniguruma (the regex engine of
the `tokenizers` library).
"""

# ruff: noqa: RUF001  (the patterns name characters that look like others)

from __future__ import annotations

from typing import Final

_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"  # up to the last line break; all but the last space before a word; the rest
_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

# Llama 3 and its kin take the one character before a word along; they differ in how many digits make a piece.
_LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_MARKS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_LLAMA3 = rf"{_CONTRACTION}|{_LETTERS}|\p{{N}}{{1,3}}|{_MARKS}|{_SPACES}"
_QWEN2 = rf"{_CONTRACTION}|{_LETTERS}|\p{{N}}|{_MARKS}|{_SPACES}"
_QWEN2_PLAIN = rf"{_LETTERS}|\p{{N}}|{_MARKS}|{_SPACES}"
_QWEN35 = (
    rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}"
)
_MINICPM5 = rf"{_CONTRACTION}|{_LETTERS}|\p{{N}}+|{_MARKS}|{_SPACES}"
_SEED_CODER = rf"{_CONTRACTION}|{_LETTERS}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_SPACES}"
_BAILING = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
_EXAONE_MOE = (
    rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
)
_SPACES_IN_POWERS_OF_TWO = "|".join(rf"\s{{{n}}}(?!\S)" for n in (512, 256, 128, 64, 32, 16, 8, 4))
_JAIS2 = rf"{_CONTRACTION}|{_LETTERS}|\p{{N}}{{1,3}}|{_MARKS}|\s*[\r\n]+|{_SPACES_IN_POWERS_OF_TWO}|\s{{1,2}}(?!\S)|\s"

# GPT-4o and its kin also cut before a capital: "camelCase" is "camel", "Case".
_BEFORE, _UPPER, _LOWER = r"[^\r\n\p{L}\p{N}]?", r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
_CASED = rf"{_BEFORE}[{_UPPER}]*[{_LOWER}]+|{_BEFORE}[{_UPPER}]+[{_LOWER}]*"
_CASED_CONTRACTED = rf"{_BEFORE}[{_UPPER}]*[{_LOWER}]+{_CONTRACTION}?|{_BEFORE}[{_UPPER}]+[{_LOWER}]*{_CONTRACTION}?"
_MARKS_AND_SLASHES = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
_TEKKEN = rf"{_CASED}|\p{{N}}|{_MARKS_AND_SLASHES}|{_SPACES}"
_GPT4O = rf"{_CASED_CONTRACTED}|\p{{N}}{{1,3}}|{_MARKS_AND_SLASHES}|{_SPACES}"
_YOUTU = rf"{_CASED_CONTRACTED}|\p{{N}}|{_MARKS_AND_SLASHES}|{_SPACES}"
_NO_HAN = r"&&[^\p{Han}]"
_CASED_NO_HAN = _CASED_CONTRACTED.replace(_UPPER, _UPPER + _NO_HAN).replace(_LOWER + "]", _LOWER + _NO_HAN + "]")
_KIMI_K2 = rf"\p{{Han}}+|{_CASED_NO_HAN}|\p{{N}}{{1,3}}|{_MARKS}|{_SPACES}"

_DEEPSEEK_WORD = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+"
)
_DEEPSEEK3 = rf"{_DEEPSEEK_WORD}[\r\n]*|{_SPACES}"
_SPARK = rf"{_DEEPSEEK_WORD}|[\r\n]|\s+(?!\S)|\s+"

_HAN_OR_KANA = "[一-龥\u3040-ゟ゠-ヿ]+"
_HAN_OR_HANGUL = "[一-龥ࠀ-一가-\ud7ff]+"
_HANGUL_OR_MARKS_OR_BOPOMOFO = "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-\u303f︰-﹏]+|[ㄅ-ㄯ]+"
_UNSPACED_SCRIPTS = (
    "[一-\u9fff㐀-\u4dbf\uf900-\ufaff\u3040-ゟ゠-ヿ･-ﾟ⼀-\u2fdf\u0e40-\u0e7f\u0e80-\u0eff"
    "ក-\u17ffက-႟ꩠ-ꩿꧠ-\ua9ff가-\ud7afᄀ-ᇿ]+"
)
_SENTENCE_WITHOUT_MARKS = r" ?[^(\s|.,!?…。，、।۔،)]+"
_THREES_FROM_THE_RIGHT = r"\d{1,3}(?=(?:\d{3})*\b)"
_ASCII_MARKS_OR_SYMBOLS = r"[\p{P}\$\+<=>\^~\|]+"

# Letters with case, with the gaps that DeepSeek's list has (no small Armenian or Georgian letters, for one).
_CASED_LETTERS = (
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝ\u1f5f-\u1f7d"
    "ᾀ-ᾴᾶ-ᾼ\u1fbeῂ-ῄῆ-ῌῐ-\u1fd3ῖ-\u1fdbῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212a-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎ"
    "ꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
)
_DEEPSEEK_LLM = (
    r"[\r\n]",
    rf"\s?[{_CASED_LETTERS}]+",
    "\\s?[!-/:-~！-／：-～‘-‟\u3000-。]+",
    r"\s+$",
    _HAN_OR_HANGUL,
    r"\p{N}+",
)
_CHAMELEON = (
    r"<sentinel:[0-9]+>",
    r"(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
    r"([\t\n]|    |  )",
    r"\p{N}",
    r"[\p{P}!-/:-@\[-`{-~]",
    _GPT2,
)

_TABLE: Final = {
    "default": (_ASCII_MARKS_OR_SYMBOLS, _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"),
    "falcon": (r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, r"[0-9][0-9][0-9]"),
    "gpt-2 phi-2 mpt olmo jais trillion granite-docling exaone4 gigachat a.x-4.0 mellum modern-bert": (_GPT2,),
    "roberta-bpe jina-es jina-de jina-v1-en jina-v2-es jina-v2-de jina-v2-code": (_GPT2,),
    "smollm starcoder refact command-r codeshell exaone minerva-7b mellum2": (r"\p{N}", _GPT2),
    "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano": (_LLAMA3,),
    "dbrx smaug-bpe glm4 chatglm-bpe": (_LLAMA3,),
    "qwen2 deepseek-r1-qwen megrez stablelm2 hunyuan solar-open grok-2 kormo f2llmv2": (_QWEN2,),
    "qwen35": (_QWEN35,),
    "ufakzeka": (_QWEN2_PLAIN,),
    "laguna": (r"[^\n]+|[\n]+", _QWEN2),
    "minicpm5": (r"\p{N}{1,3}", _MINICPM5),
    "seed-coder": (_SEED_CODER,),
    "bailingmoe bailingmoe2 llada-moe": (_BAILING,),
    "exaone-moe": (_EXAONE_MOE,),
    "jais-2": (_JAIS2,),
    "tekken": (_TEKKEN,),
    "gpt-4o llama4 kanana2 talkie minimax-m2 granite-embed-multi-97m": (_GPT4O,),
    "tiny_aya cohere2moe": (_THREES_FROM_THE_RIGHT, _GPT4O),
    "kimi-k2": (_KIMI_K2,),
    "youtu": (f"{_HANGUL_OR_MARKS_OR_BOPOMOFO}|{_HAN_OR_KANA}", _YOUTU),
    "deepseek-llm": _DEEPSEEK_LLM,
    "deepseek-coder": (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _HAN_OR_HANGUL, r"\p{N}"),
    "deepseek-v3 hunyuan-dense joyai-llm hy_v4": (r"\p{N}{1,3}", _HAN_OR_KANA, _DEEPSEEK3),
    "spark2_5": (r"\p{N}{1,3}", _HAN_OR_KANA, _SPARK, r"\p{N}"),
    "afmoe": (_THREES_FROM_THE_RIGHT, _UNSPACED_SCRIPTS, _DEEPSEEK3),
    "superbpe": (r"\p{N}+", r"(?=(\d{3})+(?!\d))"),
    "bloom poro-chat gpt3-finnish": (_SENTENCE_WITHOUT_MARKS,),
    "viking": (_SENTENCE_WITHOUT_MARKS, r"\p{N}"),
    "chameleon": _CHAMELEON,
}
WORD_PATTERNS: Final = {name: patterns for row, patterns in _TABLE.items() for name in row.split()}


def names(text: str) -> frozenset[str]:
    """Return the set of the words in `text`: how this package writes long sets of names."""
    return frozenset(text.split())


# A word that is a token as a whole is that token, whatever the merges would make of it.
WHOLE_WORDS_FIRST: Final = names(
    "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano tekken youtu minicpm5 "
    "granite-embed-multi-97m"
)

# Models that want a BOS token where the file does not say (`tokenizer.ggml.add_bos_token`).
BOS_BY_DEFAULT: Final = names(
    "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano tekken chameleon"
)
