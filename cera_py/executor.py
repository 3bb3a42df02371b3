"""What runs a program: the interface that the NumPy executor (cpu.py) and the GPU's (decode.py) share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence

import numpy as np
from numpy.typing import NDArray

from cera_py.errors import ModelFileError

NOT_NUMBERS = "the model's logits are not numbers: its weights are damaged, or overflow"

Progress = Callable[[str, float], None]  # what is being done, and the fraction that is


class Executor(ABC):
    """Holds weights and cache, and runs steps. Positions 0 .. position - 1 must be in the cache when a step starts."""

    name: str  # "NumPy", or the adapter and its backend
    weight_bytes: int  # what a decode step reads of the weights, as they lie in memory
    max_tokens: int  # of one step
    max_outputs: int  # tokens of one step whose logits can be asked for

    @abstractmethod
    def step(self, ids: Sequence[int], position: int, n_outputs: int) -> NDArray[np.float32]:
        """Run len(ids) tokens, the first at `position`; float32 logits [n_outputs, vocab] of the last n_outputs."""

    def greedy(self, ids: Sequence[int], position: int) -> Generator[int, None, None]:
        """Run a step, then one a token, each fed with the likeliest token so far; yields those, without end."""
        while True:
            logits = self.step(ids, position, 1)[0]
            token = int(np.argmax(logits))
            if np.isnan(logits[token]):
                raise ModelFileError(NOT_NUMBERS)
            yield token
            position += len(ids)
            ids = [token]

    @abstractmethod
    def close(self) -> None:
        """Give the memory back."""
