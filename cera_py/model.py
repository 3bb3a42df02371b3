"""A loaded model: the public API. Files, tokenizer, executor and sampler meet here."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from cera_py.errors import (
    ContextFullError,
    InvalidArgumentError,
    ModelClosedError,
    ModelFileError,
    SupersededError,
    UnsupportedModelError,
)
from cera_py.executor import Executor, Progress
from cera_py.gguf_file import GgufFile
from cera_py.models import build_program
from cera_py.operations import Program
from cera_py.sampling import Sampler, SamplingOptions
from cera_py.tokenizer import Tokenizer

DEFAULT_CONTEXT = 4096  # or the model's own context length, if that is shorter


@dataclass(frozen=True)
class Piece:
    """One generated token. `text` is what it completes: empty for a control token, or until a character is whole."""

    id: int
    text: str


@dataclass
class Statistics:
    """Tokens and seconds of one generation: of the prompt up to the first token, and of the tokens after it."""

    prompt_tokens: int = 0
    prompt_seconds: float = 0.0
    decode_tokens: int = 0
    decode_seconds: float = 0.0

    @property
    def prompt_tokens_per_second(self) -> float:
        """Prompt tokens a second, 0 before there are any."""
        return self.prompt_tokens / self.prompt_seconds if self.prompt_seconds else 0.0

    @property
    def decode_tokens_per_second(self) -> float:
        """Tokens a second after the first, 0 before there are any."""
        return self.decode_tokens / self.decode_seconds if self.decode_seconds else 0.0


class Generation(Iterator[Piece]):
    """Iterates over the pieces of a generation; `close` it to stop early (a `for` loop that ends early may just leave).

    finish_reason: "stop" at an end-of-generation token, "length" at max_tokens or a full context, None until then.
    """

    def __init__(self, model: Model, ids: list[int], max_tokens: int, options: SamplingOptions, ignore_eos: bool):
        self.finish_reason: Literal["stop", "length"] | None = None
        self.statistics = Statistics(prompt_tokens=len(ids))
        self._pieces = self._run(model, ids, max_tokens, options, ignore_eos)

    def __next__(self) -> Piece:
        piece: Piece = next(self._pieces)
        return piece

    def close(self) -> None:
        """Stop here; what the GPU has run ahead is discarded."""
        self._pieces.close()

    def _run(
        self, model: Model, ids: list[int], max_tokens: int, options: SamplingOptions, ignore_eos: bool
    ) -> Generator[Piece, None, None]:
        started = time.perf_counter()
        statistics, stream = self.statistics, model.tokenizer.stream()
        end_ids = frozenset() if ignore_eos else model.tokenizer.end_ids
        with contextlib.closing(model._tokens(ids, options)) as tokens:
            for n in range(max_tokens):
                token = next(tokens)
                now = time.perf_counter()
                if n == 0:
                    statistics.prompt_seconds, started = now - started, now
                else:
                    statistics.decode_tokens, statistics.decode_seconds = n, now - started
                if token in end_ids:
                    self.finish_reason = "stop"  # a character that it leaves unfinished is dropped
                    return
                is_last = n == max_tokens - 1
                yield Piece(token, stream.push(token) + (stream.finish() if is_last else ""))
        self.finish_reason = "length"


class Model:
    """A model on a device. Close it, or use it in a `with` block, to give the memory back.

    architecture: GGUF's name. context: tokens that prompt and answer share. device: what runs it. weight_bytes: what a
    decoded token reads of the weights.
    """

    def __init__(self, file: GgufFile, executor: Executor, tokenizer: Tokenizer, context: int, vocab_size: int):
        self.architecture = file.architecture
        self.context = context
        self.device = executor.name
        self.tokenizer = tokenizer
        self.vocab_size = vocab_size
        self.weight_bytes = executor.weight_bytes
        self._file = file
        self._executor = executor
        self._closed = False
        self._owner = 0  # which call has the cache: they are numbered

    def __enter__(self) -> Model:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Free the weights and the cache, and unmap the file. Closing twice does nothing."""
        if not self._closed:
            self._closed = True
            self._executor.close()
            self._file.close()

    def _claim(self) -> int:
        """Take the cache over, whoever had it. Raises ModelClosedError."""
        if self._closed:
            raise ModelClosedError("the model is closed: load it again")
        self._owner += 1
        return self._owner

    def _check(self, claim: int) -> None:
        """Raise SupersededError if the cache has been taken over since `claim`, ModelClosedError if it is gone."""
        if self._closed:
            raise ModelClosedError("the model was closed while it generated")
        if claim != self._owner:
            raise SupersededError(
                "another generate() or logits() call has taken this model's cache: finish one at a time"
            )

    def logits(self, ids: Sequence[int]) -> NDArray[np.float32]:
        """What the model says after each of the ids: float32 [len(ids), vocab], row i being for the token after ids[i].

        Raises InvalidArgumentError for ids outside the vocabulary, ContextFullError for more than the context.
        """
        ids = self._checked(ids)
        self._claim()
        size = min(self._executor.max_tokens, self._executor.max_outputs)
        rows = [
            self._executor.step(ids[first : first + size], first, len(ids[first : first + size]))
            for first in range(0, len(ids), size)
        ]
        return np.concatenate(rows)

    def generate(
        self,
        prompt: str | Sequence[int],
        *,
        max_tokens: int | None = None,
        temperature: float = 0.8,
        top_k: int = 40,
        top_p: float = 0.95,
        min_p: float = 0.05,
        repeat_penalty: float = 1.0,
        seed: int | None = None,
        ignore_eos: bool = False,
        special: bool = True,
    ) -> Generation:
        """Continue a prompt (text, or token ids as they are), token by token.

        max_tokens: None goes on to an end-of-generation token or a full context. temperature 0 is greedy; the sampling
        arguments are SamplingOptions'. special: parse special tokens in the text, and begin with BOS where the model
        wants it. Raises InvalidArgumentError, and ContextFullError for a prompt that leaves no room for an answer.
        """
        options = SamplingOptions(
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            repeat_penalty=repeat_penalty,
            seed=seed,
        )
        if max_tokens is not None and max_tokens < 0:
            raise InvalidArgumentError(f"max_tokens is {max_tokens}; it must be 0 or more")
        if isinstance(prompt, str) and not prompt:
            raise InvalidArgumentError("the prompt is empty: give at least one character, or token ids")
        ids = self._checked(self.tokenizer.encode(prompt, special) if isinstance(prompt, str) else prompt)
        room = self.context - len(ids) + 1  # the last token needs no place in the cache
        if len(ids) >= self.context:
            raise ContextFullError(
                f"the prompt has {len(ids):,} tokens, the context {self.context:,}: shorten it or raise the context"
            )
        return Generation(self, ids, room if max_tokens is None else min(max_tokens, room), options, ignore_eos)

    def chat_prompt(self, messages: list[dict[str, str]]) -> str:
        """A conversation as the model's own template writes it, ending where the assistant is to answer."""
        from cera_py.chat import render

        return render(self.tokenizer.chat_template, messages, tokenizer=self.tokenizer)

    def _checked(self, ids: Sequence[int]) -> list[int]:
        checked = [int(token) for token in ids]
        if not checked:
            raise InvalidArgumentError("no tokens: give at least one")
        wrong = next((token for token in checked if not 0 <= token < self.vocab_size), None)
        if wrong is not None:
            raise InvalidArgumentError(f"token id {wrong} is outside the vocabulary, 0 .. {self.vocab_size - 1}")
        if len(checked) > self.context:
            raise ContextFullError(f"{len(checked):,} tokens do not fit the context of {self.context:,}")
        return checked

    def _tokens(self, ids: list[int], options: SamplingOptions) -> Generator[int, None, None]:
        """The tokens that follow ids, without end as far as the context reaches."""
        claim = self._claim()
        size = self._executor.max_tokens
        first = (len(ids) - 1) // size * size  # where the last chunk of the prompt begins
        for at in range(0, first, size):
            self._executor.step(ids[at : at + size], at, 0)
        last = ids[first:]
        if options.temperature == 0 and options.repeat_penalty == 1:
            with contextlib.closing(self._executor.greedy(last, first)) as tokens:
                for token in tokens:
                    yield token
                    self._check(claim)
            return
        sampler = Sampler(options, self.vocab_size)
        for token in ids:
            sampler.accept(token)
        position = first
        while True:
            token = sampler.sample(self._executor.step(last, position, 1)[0])
            sampler.accept(token)
            yield token
            self._check(claim)
            position += len(last)
            last = [token]


def load(
    path: str | Path, *, device: str = "auto", context: int | None = None, progress: Progress | None = None
) -> Model:
    """Load a GGUF model onto a device.

    device: auto, gpu, cpu, an adapter's index, or a part of its name. context: tokens that prompt and answer share;
    None takes the model's context length, at most 4096. progress: called with what is done and the fraction, 0 .. 1.
    Raises ModelFileError, UnsupportedModelError, DeviceError, OutOfMemoryError or InvalidArgumentError.
    """
    if context is not None and context < 1:
        raise InvalidArgumentError(f"context is {context}; it must be 1 or more")
    file = GgufFile(path)
    try:
        program = build_program(file)
        if context is not None and context > program.context_length:
            raise InvalidArgumentError(
                f"context is {context:,}; {file.path.name} was made for {program.context_length:,} at most"
            )
        context = context or min(DEFAULT_CONTEXT, program.context_length)
        tokenizer = _tokenizer_of(file)
        return Model(file, _executor(device, program, file, context, progress), tokenizer, context, program.vocab_size)
    except BaseException:
        file.close()
        raise


def _executor(device: str, program: Program, file: GgufFile, context: int, progress: Progress | None) -> Executor:
    gpu = None
    if device != "cpu":
        from cera_py.gpu import open_device

        gpu = open_device(device)
    if gpu is None:
        from cera_py.cpu import CpuExecutor

        return CpuExecutor(program, file, context, progress)
    from cera_py.decode import GpuExecutor

    return GpuExecutor(gpu, program, file, context, progress)


def load_tokenizer(path: str | Path) -> Tokenizer:
    """Only the tokenizer of a GGUF file: needs no GPU, and reads no weights."""
    with GgufFile(path) as file:
        return _tokenizer_of(file)


def _tokenizer_of(file: GgufFile) -> Tokenizer:
    try:
        return Tokenizer.from_metadata(file.metadata)
    except (ModelFileError, UnsupportedModelError) as error:
        raise type(error)(f"{file.path}: {error}") from None
