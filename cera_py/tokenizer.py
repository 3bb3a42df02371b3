"""Text to token ids and back, from the vocabulary that a GGUF file carries.

Two kinds of vocabulary cover the models we run, named by `tokenizer.ggml.model`:

- `gpt2`: byte-level BPE. Text is cut into words by the regexes that `tokenizer.ggml.pre` names (word_patterns.py), each
  word's bytes are written as printable characters, and pairs merge in the order of `tokenizer.ggml.merges`. The
  `tokenizers` library does the work.
- `llama`: SentencePiece BPE. A space is written "▁", neighbours merge wherever they spell a token, the best score
  first, and a character that no token spells becomes its UTF-8 bytes, "<0xE2>". These vocabularies carry scores, no
  merges, and the `tokenizers` library cannot express their tie rule (equal scores: the leftmost pair), so that one
  small loop is here.

Around either, as llama.cpp does it: control tokens (`<|im_end|>`) are found in text only where the caller asks for it,
user-defined ones always, the longest first.
"""

# ruff: noqa: RUF001  (DeepSeek's tokens have a "｜" that looks like "|")

from __future__ import annotations

import codecs
import enum
import functools
import heapq
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from .errors import InvalidArgumentError, ModelFileError, UnsupportedModelError
from .word_patterns import BOS_BY_DEFAULT, WHOLE_WORDS_FIRST, WORD_PATTERNS, names

if TYPE_CHECKING:
    import tokenizers

# ------------------------------------------------------------------------------------------------- special tokens

# Tokens that end generation in whatever vocabulary has them: files often name only one of theirs.
_END_TEXTS: Final = names(
    "<|eot_id|> <|im_end|> <|end|> <|return|> <|call|> <|flush|> <|calls|> <end_of_turn> <|endoftext|> </s> <|eom_id|> "
    "<EOT> _<EOT> [EOT] [EOS] <|end_of_text|> <end_of_utterance> <eos> <turn|> <|tool_response> "
    "<｜end▁of▁sentence｜> [e~[ "
    # fill-in-the-middle padding, and the borders of a file or a repository
    "<|fim_pad|> <fim-pad> <fim_pad> <PAD> [PAD] <|fim_repo|> <|repo_name|> <fim-repo> <REPO> <reponame> "
    "<|file_sep|>"
)
# Control tokens too, whatever type a converter gave them.
_CONTROL_TEXTS: Final = _END_TEXTS | names(
    "<|fim_prefix|> <fim-prefix> <fim_prefix> <｜fim▁begin｜> <PRE> ▁<PRE> <|code_prefix|> <|prefix|> "
    "<|fim_suffix|> <fim-suffix> <fim_suffix> <｜fim▁hole｜> <SUF> ▁<SUF> <|code_suffix|> <|suffix|> "
    "<|fim_middle|> <fim-middle> <fim_middle> <｜fim▁end｜> <MID> ▁<MID> <|code_middle|> <|middle|>"
)
# gpt-oss: part of the answer's form, so shown, and found in plain text.
_VISIBLE_TEXTS: Final = names("<|channel|> <|message|> <|start|> <|constrain|>")

_SPACE_MARK = "▁"  # U+2581, how SentencePiece writes a space
_ASCII_SPACES = " \t\n\v\f\r"
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_BYTE_TOKEN = re.compile("<0x([0-9A-F]{2})>")
_NO_TOKEN: Final = (-1, 0xFFFFFFFF)  # how converters write "none" as a token id


class TokenKind(enum.IntEnum):
    """What a token is, by the numbers of `tokenizer.ggml.token_type`."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


_HIDDEN: Final = frozenset((TokenKind.CONTROL, TokenKind.UNKNOWN))  # shown, and found in text, only when asked for
_VISIBLE: Final = frozenset((TokenKind.NORMAL, TokenKind.USER_DEFINED, TokenKind.BYTE))


class Tokenizer:
    """A model's vocabulary: text to token ids, and back. Made by `Tokenizer.from_metadata`.

    `vocab_size` is the number of tokens; `bos_id` and `eos_id` are None where the vocabulary has none; `end_ids` are
    all tokens after which generation stops (end of text, of a turn, of a message); `adds_bos` says whether the model
    wants texts to begin with BOS; `chat_template` is the file's Jinja template, or None.
    """

    vocab_size: int
    bos_id: int | None
    eos_id: int | None
    end_ids: frozenset[int]
    adds_bos: bool
    chat_template: str | None

    def __init__(self, metadata: Mapping[str, Any], vocabulary: _Vocabulary, encoder: _Encoder) -> None:
        """Use `from_metadata`, which chooses the vocabulary and the encoder."""
        self._vocabulary = vocabulary
        self._encoder = encoder
        self.vocab_size = len(vocabulary.tokens)
        self.bos_id = vocabulary.bos_id
        self.eos_id = vocabulary.eos_id
        self.end_ids = vocabulary.end_ids
        self.adds_bos = vocabulary.adds_bos
        self.chat_template = _get(metadata, "tokenizer.chat_template", str, None)
        # Phi-3's tokens swallow the white space after them; the file says so only through the model's name.
        name = _get(metadata, "general.name", str, "").lower()
        self._strips_after_special = "phi-3" in name or "phi3" in name
        self._bytes: dict[tuple[int, bool], bytes] = {}

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> Tokenizer:
        """Make the tokenizer of a GGUF file from its metadata (a mapping from key to value, as GgufFile.metadata).

        A file without a vocabulary (`tokenizer.ggml.model` is "none", "no_vocab" or missing) gives a tokenizer that
        shows ids as "<12>" and encodes no text. Raises UnsupportedModelError for a kind of vocabulary that we lack, and
        ModelFileError naming the key for a damaged one.
        """
        model = _get(metadata, "tokenizer.ggml.model", str, None)
        if model is None and "tokenizer.ggml.tokens" in metadata:
            raise ModelFileError("the key 'tokenizer.ggml.model' is missing; convert the model again")
        if model in (None, "none", "no_vocab"):
            return _IdsOnly(metadata)
        if model == "gpt2":
            vocabulary = _Vocabulary(metadata)
            return cls(metadata, vocabulary, _MergeEncoder(metadata, vocabulary))
        if model == "llama":
            vocabulary = _Vocabulary(metadata, bos_id=1, eos_id=2, unknown_id=0, adds_bos=True)
            return cls(metadata, vocabulary, _ScoreEncoder(metadata, vocabulary))
        raise UnsupportedModelError(
            f"tokenizer.ggml.model {model!r} is not supported; we have gpt2 (byte-level BPE), llama (SentencePiece)"
        )

    def encode(self, text: str, special: bool = True, *, bos: bool | None = None) -> list[int]:
        """Turn text into token ids.

        With `special`, control tokens spelled in the text ("<|im_end|>") become those tokens, and BOS comes first where
        the model wants it; without, the text is plain text, and nothing is added. `bos` overrides the latter: True puts
        BOS first (if there is one), False never does. No EOS is added: a prompt is there to be continued. Raises
        UnsupportedModelError when the file has no vocabulary.
        """
        if bos is None:
            bos = special and self.adds_bos
        ids = [self.bos_id] if bos and self.bos_id is not None else []
        after_special = True  # the start of the text counts as such
        for part in self._split_at_special(_LONE_SURROGATE.sub("\ufffd", text), special):
            if isinstance(part, int):
                ids.append(part)
            else:
                ids += self._encoder.encode(part, after_special)
            after_special = isinstance(part, int)
        return ids

    def decode(self, ids: Sequence[int], special: bool = False) -> str:
        """Turn token ids into text; control tokens are left out unless `special`.

        The text is taken to start here: where the model puts a space before the first word, that space is dropped
        (`stream` is for text that continues another). Bytes that are no UTF-8 become U+FFFD. Raises
        InvalidArgumentError for an id outside the vocabulary.
        """
        stream = self.stream(special, continues=False)
        return "".join(map(stream.push, ids)) + stream.finish()

    def stream(self, special: bool = False, *, continues: bool = True) -> TextStream:
        """Decode token by token, for showing text while it is generated.

        By default the text continues another (a prompt), so the first word keeps its space; `continues=False` decodes
        exactly as `decode` does.
        """
        return TextStream(self, special, drop_space=self._encoder.adds_space and not continues)

    def token_bytes(self, id: int, special: bool = False) -> bytes:
        """Return the bytes a token stands for: often part of a UTF-8 character, with the spaces of its text.

        Control tokens stand for nothing, or with `special` for their name, b"<|im_end|>". Raises InvalidArgumentError
        for an id outside the vocabulary.
        """
        found = self._bytes.get((id, special))
        if found is None:
            kind = self._kind(id)
            shown = kind in _VISIBLE or (special and kind in _HIDDEN)
            found = self._bytes[id, special] = self._written_bytes(id, kind) if shown else b""
        return found

    def token_text(self, id: int) -> str:
        """Return a token as the vocabulary spells it ("Ġthe", "<0x0A>"). InvalidArgumentError as in `token_bytes`."""
        self._kind(id)
        return self._vocabulary.tokens[id]

    def token_id(self, text: str) -> int | None:
        """Return the id of the token that the vocabulary spells `text`, None if there is none."""
        return self._vocabulary.ids.get(text)

    def is_control(self, id: int) -> bool:
        """Say whether a token is a control token (or the unknown token), which has no text of its own."""
        return self._kind(id) in _HIDDEN

    def _kind(self, id: int) -> int:
        if not 0 <= id < self.vocab_size:
            raise InvalidArgumentError(f"the token id {id} is outside the vocabulary of {self.vocab_size} tokens")
        return self._vocabulary.kinds[id]

    def _written_bytes(self, id: int, kind: int) -> bytes:
        text = self._vocabulary.tokens[id]
        if kind == TokenKind.BYTE and (match := _BYTE_TOKEN.fullmatch(text)):
            return bytes.fromhex(match[1])
        if kind == TokenKind.NORMAL:
            return self._encoder.written_bytes(text)
        return _utf8(text)

    def _split_at_special(self, text: str, control: bool) -> list[str | int]:
        """Cut out the special tokens: ids, and the text between them; the longest token takes its places first."""
        parts: list[str | int] = [text] if text else []
        for token, id in self._vocabulary.special_tokens(control):
            if token in text:
                parts = [piece for part in parts for piece in self._cut(part, token, id)]
        return parts

    def _cut(self, part: str | int, token: str, id: int) -> Iterable[str | int]:
        if isinstance(part, int):
            yield part
            return
        first, *others = part.split(token)
        if first:
            yield first
        for piece in others:
            yield id
            if self._strips_after_special and self._vocabulary.strips_after(id):
                piece = piece.lstrip(_ASCII_SPACES)
            if piece:
                yield piece


class TextStream:
    """The text of tokens as they come: `push` each, then `finish`. Made by `Tokenizer.stream`.

    A character whose bytes come in several tokens is given out when it is complete; bytes that no further byte can
    complete become U+FFFD at once.
    """

    def __init__(self, tokenizer: Tokenizer, special: bool, drop_space: bool) -> None:
        self._tokenizer = tokenizer
        self._special = special
        self._drop_space = drop_space
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, id: int) -> str:
        """Take the next token; return the text that is complete with it, often a word, sometimes nothing."""
        data = self._tokenizer.token_bytes(id, self._special)
        if self._drop_space and data and not self._tokenizer.is_control(id):
            data = data.removeprefix(b" ")
            self._drop_space = False
        return self._decoder.decode(data)

    def finish(self) -> str:
        """End the text; return what is left: U+FFFD if it stopped inside a character, else ""."""
        text = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return text


# ----------------------------------------------------------------------------------------------------- vocabulary


class _Vocabulary:
    """The tokens and their roles, checked. The keyword arguments are the defaults of the kind of vocabulary."""

    def __init__(
        self,
        metadata: Mapping[str, Any],
        *,
        bos_id: int | None = None,
        eos_id: int | None = None,
        unknown_id: int | None = None,
        adds_bos: bool = False,
    ) -> None:
        self.tokens = _get_strings(metadata, "tokenizer.ggml.tokens")
        if not self.tokens:
            raise ModelFileError("the key 'tokenizer.ggml.tokens' is empty; convert the model again")
        if "" in self.tokens:
            self.tokens = [token or f"[EMPTY_{id}]" for id, token in enumerate(self.tokens)]
        self.ids = {token: id for id, token in enumerate(self.tokens)}
        if len(self.ids) != len(self.tokens):
            first = next(token for id, token in enumerate(self.tokens) if self.ids[token] != id)
            raise ModelFileError(f"the key 'tokenizer.ggml.tokens' has {first!r} twice; convert the model again")
        types = _get_numbers(metadata, "tokenizer.ggml.token_type", len(self.tokens), "iu")
        self.kinds: list[int] = [TokenKind.NORMAL] * len(self.tokens) if types is None else types.tolist()

        self.bos_id = self._special_id(metadata, "bos", bos_id)
        self.eos_id = self._special_id(metadata, "eos", eos_id)
        self.unknown_id = self._special_id(metadata, "unknown", unknown_id)
        self._special_id(metadata, "padding", None)  # unused here; a bad one still means a damaged file
        adds_bos |= _get(metadata, "tokenizer.ggml.pre", str, "") in BOS_BY_DEFAULT
        self.adds_bos = _get(metadata, "tokenizer.ggml.add_bos_token", bool, adds_bos)
        if self.bos_id is None:
            if self.adds_bos and "tokenizer.ggml.add_bos_token" in metadata:
                raise ModelFileError("tokenizer.ggml.add_bos_token is true, but tokenizer.ggml.bos_token_id is missing")
            self.adds_bos = False
        self.end_ids = self._find_end_ids(metadata)

    def special_tokens(self, control: bool) -> list[tuple[str, int]]:
        """Return the tokens to look for in text, longest first: user-defined, with `control` the hidden ones too."""
        return self._all_special if control else self._user_defined

    @functools.cached_property
    def _all_special(self) -> list[tuple[str, int]]:
        kinds = np.array(self.kinds)
        special = np.flatnonzero(np.isin(kinds, [*_HIDDEN, TokenKind.USER_DEFINED])).tolist()
        return sorted(((self.tokens[id], id) for id in special), key=lambda item: -len(_utf8(item[0])))

    @functools.cached_property
    def _user_defined(self) -> list[tuple[str, int]]:
        return [(token, id) for token, id in self._all_special if self.kinds[id] == TokenKind.USER_DEFINED]

    def strips_after(self, id: int) -> bool:
        """Say whether a Phi-3 token swallows the white space after it: all do but three."""
        return self.tokens[id] not in ("<unk>", "<s>", "<|endoftext|>")

    def _special_id(self, metadata: Mapping[str, Any], role: str, default: int | None) -> int | None:
        """Read `tokenizer.ggml.ROLE_token_id`; None if the vocabulary has no such token."""
        key = f"tokenizer.ggml.{role}_token_id"
        if key not in metadata:
            return default if default is not None and default < len(self.tokens) else None
        id = _get(metadata, key, int)
        if id in _NO_TOKEN:
            return None
        if not 0 <= id < len(self.tokens):
            raise ModelFileError(f"the key {key!r} is {id}, but there are {len(self.tokens)} tokens")
        return int(id)

    def _find_end_ids(self, metadata: Mapping[str, Any]) -> frozenset[int]:
        """Find the tokens that end generation, by key and by text, and correct the kinds of well-known tokens."""
        for text in _CONTROL_TEXTS & self.ids.keys():
            self.kinds[self.ids[text]] = TokenKind.CONTROL
        for text in _VISIBLE_TEXTS & self.ids.keys():
            self.kinds[self.ids[text]] = TokenKind.USER_DEFINED
        ends = {self.ids[text] for text in _END_TEXTS & self.ids.keys()}
        named = (self._special_id(metadata, role, None) for role in ("eot", "eom", "fim_pad", "fim_rep", "fim_sep"))
        ends |= {id for id in (self.eos_id, *named) if id is not None}
        texts = {self.tokens[id] for id in ends}
        # gpt-oss and Solar: <|end|> closes one message of an answer, which goes on.
        if "<|end|>" in texts and (texts >= {"<|return|>", "<|call|>"} or texts >= {"<|calls|>", "<|flush|>"}):
            ends.remove(self.ids["<|end|>"])
            self.kinds[self.ids["<|end|>"]] = TokenKind.USER_DEFINED
        if texts >= {"<|tool_response>", "</s>"}:  # Gemma 4: </s> is a HTML tag
            ends.remove(self.ids["</s>"])
            self.kinds[self.ids["</s>"]] = TokenKind.NORMAL
        return frozenset(ends)


# ------------------------------------------------------------------------------------------------------- encoders


class _Encoder(Protocol):
    """How text without special tokens becomes ids."""

    adds_space: bool  # whether a space is put before the first word

    def encode(self, text: str, after_special: bool) -> list[int]:
        """Encode text that starts the whole, or follows a special token, if `after_special`."""

    def written_bytes(self, text: str) -> bytes:
        """Return the bytes of a normal token from the way the vocabulary spells it."""


class _MergeEncoder:
    """`gpt2`: byte-level BPE, by the tokenizers library."""

    adds_space = False

    def __init__(self, metadata: Mapping[str, Any], vocabulary: _Vocabulary) -> None:
        self._library_tokenizer = _byte_level_bpe(metadata, vocabulary)

    def encode(self, text: str, after_special: bool) -> list[int]:
        """Encode text; what stands before it does not matter."""
        try:
            ids: list[int] = self._library_tokenizer.encode(text, add_special_tokens=False).ids
        except BaseException as error:  # the library's panics are no Exceptions
            if type(error).__name__ != "PanicException":
                raise
            raise InvalidArgumentError(f"the text has too long a run of white space to encode ({error})") from None
        return ids

    def written_bytes(self, text: str) -> bytes:
        """Translate each character of a token to the byte it stands for."""
        table = _byte_of_character()
        return b"".join(bytes((table[c],)) if c in table else _utf8(c) for c in text)


def _byte_level_bpe(metadata: Mapping[str, Any], vocabulary: _Vocabulary) -> tokenizers.Tokenizer:
    """Build the library's tokenizer: words by regex, bytes as characters, merges."""
    import tokenizers
    from tokenizers import models, pre_tokenizers

    pre = _get(metadata, "tokenizer.ggml.pre", str, "")
    if pre not in WORD_PATTERNS:
        _warn_of_unknown_pre(pre)
    lines = dict.fromkeys(_get_strings(metadata, "tokenizer.ggml.merges"))  # of equal lines the first counts
    merges = [(left, right) for left, _, right in (line.partition(" ") for line in lines)]
    if any(not right or " " in right for _, right in merges):
        wrong = next(line for line in lines if line.count(" ") != 1 or line.endswith(" "))
        raise ModelFileError(f"the key 'tokenizer.ggml.merges' has {wrong!r}, which is no pair of tokens")
    if _LONE_SURROGATE.search("".join(vocabulary.tokens)):
        raise ModelFileError(
            "the key 'tokenizer.ggml.tokens' has bytes that are no UTF-8, impossible in a gpt2 vocabulary"
        )
    unknown = next((f"{left} {right}" for left, right in merges if left + right not in vocabulary.ids), None)
    if unknown:  # the library would panic
        raise ModelFileError(f"the key 'tokenizer.ggml.merges' has {unknown!r}, whose result is no token")
    try:
        bpe = models.BPE(vocab=vocabulary.ids, merges=merges, ignore_merges=pre in WHOLE_WORDS_FIRST)
    except Exception as error:  # the library raises plain Exception: a merge of tokens that are not there, as a rule
        raise ModelFileError(
            f"the keys tokenizer.ggml.merges and .tokens do not fit together: {' '.join(str(error).split())}"
        ) from None
    split = [
        pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated")
        for pattern in WORD_PATTERNS.get(pre, WORD_PATTERNS["default"])
    ]
    tokenizer = tokenizers.Tokenizer(bpe)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [*split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    return tokenizer


@functools.cache
def _warn_of_unknown_pre(pre: str) -> None:
    """Warn, once per value: `functools.cache` remembers."""
    what = f"tokenizer.ggml.pre {pre!r} is not one we know" if pre else "the file has no key tokenizer.ggml.pre"
    warnings.warn(f"{what}; text is split by the default rules, and may give worse results", stacklevel=2)


@functools.cache
def _byte_of_character() -> dict[str, int]:
    """Return GPT-2's alphabet: printable Latin-1 characters are their own bytes, U+0100 and on stand for the others."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + i): byte for i, byte in enumerate(others)}


class _ScoreEncoder:
    """`llama`: SentencePiece BPE. Neighbours merge where they spell a token, best score first, leftmost of equals."""

    def __init__(self, metadata: Mapping[str, Any], vocabulary: _Vocabulary) -> None:
        self.adds_space = _get(metadata, "tokenizer.ggml.add_space_prefix", bool, True)
        n_tokens = len(vocabulary.tokens)
        scores = _get_numbers(metadata, "tokenizer.ggml.scores", n_tokens, "fiu")
        if scores is None:
            raise ModelFileError("the key 'tokenizer.ggml.scores' is missing; convert the model again")
        if not np.isfinite(scores).all():
            raise ModelFileError("the key 'tokenizer.ggml.scores' has values that are not finite")
        self._scores: list[float] = scores.tolist()
        self._ids = vocabulary.ids
        self._byte_ids = [self._byte_id(byte, vocabulary.unknown_id) for byte in range(256)]
        # Where no token spans the start of a word, words encode on their own, and frequent ones need no second look.
        spans_words = re.search("[^▁\0]▁", "\0".join(vocabulary.tokens))
        self._words = re.compile("(?s).+" if spans_words else "▁*[^▁]+|▁+")
        self._merge_cached = functools.lru_cache(maxsize=1 << 14)(self._merge)

    def encode(self, text: str, after_special: bool) -> list[int]:
        """Encode text, with a space before it where the model puts one at a start."""
        if self.adds_space and after_special:
            text = " " + text
        words = self._words.findall(text.replace(" ", _SPACE_MARK))
        return [id for word in words for id in (self._merge_cached(word) if len(word) < 64 else self._merge(word))]

    def written_bytes(self, text: str) -> bytes:
        """Give a token's text with its spaces."""
        return _utf8(text.replace(_SPACE_MARK, " "))

    def _merge(self, word: str) -> tuple[int, ...]:
        """Merge the characters of a word into tokens."""
        pieces = list(word)  # a piece that was merged into its left neighbour becomes ""
        before = list(range(-1, len(pieces) - 1))
        after = list(range(1, len(pieces) + 1))
        queue: list[tuple[float, int, int, str]] = []  # (-score, left, right, the token they spell)

        def offer(left: int, right: int) -> None:
            if left >= 0 and right < len(pieces):
                token = pieces[left] + pieces[right]
                id = self._ids.get(token)
                if id is not None:
                    heapq.heappush(queue, (-self._scores[id], left, right, token))

        for right in range(1, len(pieces)):
            offer(right - 1, right)
        while queue:
            _, left, right, token = heapq.heappop(queue)
            if not pieces[left] or not pieces[right] or pieces[left] + pieces[right] != token:
                continue  # one of them has been merged otherwise since
            pieces[left], pieces[right] = token, ""
            after[left] = after[right]
            if after[left] < len(pieces):
                before[after[left]] = left
            offer(before[left], left)
            offer(left, after[left])

        ids: list[int] = []
        for piece in filter(None, pieces):
            id = self._ids.get(piece)
            ids += [self._byte_ids[byte] for byte in piece.encode()] if id is None else [id]
        return tuple(ids)

    def _byte_id(self, byte: int, unknown_id: int | None) -> int:
        """Return the token of a byte: "<0x41>", or the character itself, or else the unknown token."""
        for id in (self._ids.get(f"<0x{byte:02X}>"), self._ids.get(chr(byte)) if byte < 0x80 else None, unknown_id):
            if id is not None:
                return id
        raise ModelFileError(f"the key 'tokenizer.ggml.tokens' has no token <0x{byte:02X}>, nor an unknown token")


class _NoEncoder:
    """A file without a vocabulary."""

    adds_space = False

    def encode(self, text: str, after_special: bool) -> list[int]:
        """Refuse."""
        raise UnsupportedModelError("this file has no vocabulary: give token ids instead of text")

    def written_bytes(self, text: str) -> bytes:
        """Give the text as it is."""
        return _utf8(text)


class _IdsOnly(Tokenizer):
    """The tokenizer of a file without a vocabulary (made to measure speed, as a rule): shows the id 12 as "<12>"."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        architecture = _get(metadata, "general.architecture", str, "")
        self.vocab_size = _get(metadata, f"{architecture}.vocab_size", int, 0)
        self.bos_id = self.eos_id = None
        self.end_ids = frozenset()
        self.adds_bos = False
        self.chat_template = None
        self._encoder = _NoEncoder()

    def encode(self, text: str, special: bool = True, *, bos: bool | None = None) -> list[int]:
        """Raise UnsupportedModelError."""
        return self._encoder.encode(text, True)

    def token_bytes(self, id: int, special: bool = False) -> bytes:
        """Show the id."""
        return b"<%d>" % id

    def token_text(self, id: int) -> str:
        """Show the id."""
        return f"<{id}>"

    def token_id(self, text: str) -> int | None:
        """Find nothing."""
        return None

    def is_control(self, id: int) -> bool:
        """Know of none."""
        return False


# ------------------------------------------------------------------------------------------------ reading metadata

_MISSING: Any = object()


def _get(metadata: Mapping[str, Any], key: str, kind: type, default: Any = _MISSING) -> Any:
    """Return the value of a key, which must be of type `kind`; ModelFileError if it is not, or missing and needed."""
    value = metadata.get(key, default)
    if value is _MISSING:
        raise ModelFileError(f"the key {key!r} is missing; convert the model again")
    wrong = not isinstance(value, kind) or (kind is int and isinstance(value, bool))
    if key in metadata and wrong:
        raise ModelFileError(f"the key {key!r} is {type(value).__name__}, not {kind.__name__}; convert the model again")
    return value


def _get_strings(metadata: Mapping[str, Any], key: str) -> list[str]:
    """Return the list of strings of a key; ModelFileError if it is missing or something else."""
    values: list[str] = _get(metadata, key, list)
    if not set(map(type, values)) <= {str}:
        raise ModelFileError(f"the key {key!r} must be a list of strings; convert the model again")
    return values


def _get_numbers(metadata: Mapping[str, Any], key: str, n_tokens: int, kinds: str) -> np.ndarray[Any, Any] | None:
    """Return the array of a key, one number a token of a dtype kind in `kinds`; None where the key is missing."""
    if key not in metadata:
        return None
    values = np.asarray(metadata[key])
    if values.ndim != 1 or values.dtype.kind not in kinds:
        raise ModelFileError(f"the key {key!r} must be an array of numbers; convert the model again")
    if len(values) != n_tokens:
        raise ModelFileError(f"the key {key!r} has {len(values)} values, but there are {n_tokens} tokens")
    return values


def _utf8(text: str) -> bytes:
    """Encode a token's text; bytes that were no UTF-8 in the file come back as they were."""
    return text.encode("utf-8", "surrogateescape")
