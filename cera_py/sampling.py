"""From logits to a token: repeat penalty, top-k, top-p, min-p, temperature, one draw.

The filters and their order are llama.cpp's. The draw takes one random number per token, and that number is a function
of (seed, step) alone, made of 32-bit integer operations that a shader can repeat bit for bit.
"""

from __future__ import annotations

import math
import secrets
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cera_py.errors import InvalidArgumentError

# field: (its kind, what to say when a value is outside the range, the range)
_RANGES: dict[str, tuple[Any, str, Callable[[float], bool]]] = {
    "temperature": (Real, "a number, 0 or more", lambda value: value >= 0),
    "top_k": (Integral, "a whole number, 0 or more", lambda value: value >= 0),
    "top_p": (Real, "a number above 0 and at most 1", lambda value: 0 < value <= 1),
    "min_p": (Real, "a number from 0 to 1", lambda value: 0 <= value <= 1),
    "repeat_penalty": (Real, "a number above 0", lambda value: value > 0),
    "repeat_last_n": (Integral, "a whole number, 0 or more", lambda value: value >= 0),
    "seed": (Integral, "a whole number from 0 to 2^64 - 1", lambda value: 0 <= value < 1 << 64),
}


@dataclass(frozen=True)
class SamplingOptions:
    """How the next token is chosen; the defaults are llama.cpp's.

    Raises InvalidArgumentError, naming the field and its range, for a value outside it.
    """

    temperature: float = 0.8  # 0: always the most likely token
    top_k: int = 40  # keep the k most likely tokens; 0: all
    top_p: float = 0.95  # keep the most likely tokens that together reach this probability; 1: all
    min_p: float = 0.05  # drop tokens less likely than this times the most likely one; 0: none
    repeat_penalty: float = 1.0  # makes recent tokens less likely: above 1; 1: off
    repeat_last_n: int = 64  # how many recent tokens the penalty looks back at; 0: none
    seed: int | None = None  # None: a new one each time

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "seed" and value is None:
                continue
            kind, span, inside = _RANGES[field.name]
            if isinstance(value, bool) or not isinstance(value, kind) or not (math.isfinite(value) and inside(value)):
                raise InvalidArgumentError(f"{field.name} is {value!r}: it must be {span}")


class Sampler:
    """Draws the tokens of one sequence: `accept` every token of the prompt, then `sample` and `accept` in turn.

    The same options and the same logits give the same tokens, on every machine. `seed` is the one in use.
    """

    def __init__(self, options: SamplingOptions, vocab_size: int) -> None:
        self.options = options
        self.vocab_size = vocab_size
        self.seed = secrets.randbits(32) if options.seed is None else int(options.seed)
        self.step = 0  # how many random numbers were drawn
        penalised = options.repeat_penalty != 1
        self._recent: deque[int] = deque(maxlen=options.repeat_last_n if penalised else 0)

    def accept(self, token_id: int) -> None:
        """Count `token_id` among the recent tokens that the repeat penalty looks at."""
        self._recent.append(token_id)

    def sample(self, logits: NDArray[np.float32]) -> int:
        """Choose a token id from `logits` [vocab_size]; -inf rules a token out. Ties go to the lowest id.

        Raises InvalidArgumentError for logits of another shape, or where none is finite or one is NaN.
        """
        if logits.shape != (self.vocab_size,):
            raise InvalidArgumentError(f"logits have the shape {logits.shape}: expected ({self.vocab_size},)")
        logits = self._penalised(logits)
        best = int(np.argmax(logits))  # a NaN counts as the largest, so this finds one
        peak = float(logits[best])
        if not math.isfinite(peak):
            raise InvalidArgumentError(f"the largest logit is {peak}: there is no token to choose")
        if self.options.temperature == 0:
            return best
        token_ids = self._candidates(logits, peak)
        # Drawing in the order of ids, not of likelihood, keeps the choice when two near-equal logits swap ranks.
        token_ids.sort()
        with np.errstate(over="ignore", under="ignore"):
            weights = np.exp((logits[token_ids].astype(np.float64) - peak) / self.options.temperature)
        cumulative = np.cumsum(weights)
        target = random_uniform(self.seed, self.step) * cumulative[-1]
        self.step += 1
        return int(token_ids[np.searchsorted(cumulative, target, side="right")])

    def _penalised(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        if not self._recent:
            return logits
        logits = logits.copy()
        recent = list(set(self._recent))  # a token seen twice is penalised once
        values = logits[recent]
        penalty = np.float32(self.options.repeat_penalty)
        logits[recent] = np.where(values > 0, values / penalty, values * penalty)
        return logits

    def _candidates(self, logits: NDArray[np.float32], peak: float) -> NDArray[np.intp]:
        """The ids that top-k, top-p and min-p leave, in any order.

        Each filter keeps the first so many of the same descending order, so min-p, which needs no sorting, may go
        before top-p as long as top-p's total is taken over what top-k left.
        """
        options = self.options
        token_ids = largest(logits, options.top_k) if options.top_k else np.arange(logits.size)
        if options.top_p == 1 and options.min_p == 0:
            return token_ids
        weights = np.exp(logits[token_ids].astype(np.float64) - peak)  # probability relative to the best token's
        total = weights.sum()
        likely = weights >= options.min_p
        token_ids, weights = token_ids[likely], weights[likely]
        if options.top_p == 1:
            return token_ids
        order = np.lexsort((token_ids, -weights))
        reached = np.searchsorted(np.cumsum(weights[order]), options.top_p * total)
        return token_ids[order[: reached + 1]]


def largest(logits: NDArray[np.float32], count: int) -> NDArray[np.intp]:
    """The indices of the `count` largest of `logits`, in any order; of equal ones, the first."""
    if count >= logits.size:
        return np.arange(logits.size)
    # Only values matter to a partition, so find the smallest value kept, then give its ties out by index.
    threshold = np.partition(logits, logits.size - count)[logits.size - count]
    above = np.flatnonzero(logits > threshold)
    ties = np.flatnonzero(logits == threshold)
    return np.concatenate([above, ties[: count - above.size]])


def random_uniform(seed: int, step: int) -> float:
    """A number in [0, 1), a multiple of 2^-24: the first word of `pcg4d(seed low, seed high, step, 0)`, top 24 bits."""
    words = pcg4d(seed & 0xFFFFFFFF, seed >> 32, step & 0xFFFFFFFF, 0)
    return (words[0] >> 8) * 2.0**-24


def pcg4d(x: int, y: int, z: int, w: int) -> tuple[int, int, int, int]:
    """Hash four 32-bit words to four, by wrapping 32-bit arithmetic alone.

    The function is from Jarzynski and Olano, "Hash Functions for GPU Rendering", JCGT 9(3), 2020.
    """
    mask = 0xFFFFFFFF
    x, y, z, w = ((word * 1664525 + 1013904223) & mask for word in (x, y, z, w))
    for shift in (16, 0):
        x = (x + y * w) & mask
        y = (y + z * x) & mask
        z = (z + x * y) & mask
        w = (w + y * z) & mask
        if shift:
            x, y, z, w = (word ^ (word >> shift) for word in (x, y, z, w))
    return x, y, z, w
