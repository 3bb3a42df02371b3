"""Greedy choice on the GPU, in two dispatches: argmax (a best per slice), advance (the best of all, into `step`).

argmax: bindings step, logits float32 [n_outputs, vocab] (its last row is taken), best [N_GROUPS, 2] words.
advance: bindings best, step, results [N_RESULTS] token ids, a ring indexed by the count of steps done.
The lowest id wins a tie, as in NumPy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cera_py.kernels.kernel import Shader

if TYPE_CHECKING:
    from cera_py.gpu import Gpu, Grid

N_GROUPS = 64
N_RESULTS = 64
NO_TOKEN = 0xFFFFFFFF  # the result where logits are NaN


def shader(gpu: Gpu, vocab_size: int) -> Shader:
    """The first dispatch: the best of each of N_GROUPS slices."""
    return gpu.shader("argmax", {"N_VOCAB": vocab_size, "N_GROUPS": N_GROUPS, "WORKGROUP": 256}, ("better",))


def grid() -> Grid:
    """One workgroup a slice."""
    return (N_GROUPS, 1, 1)


def advance_shader(gpu: Gpu) -> Shader:
    """The second: the best of all becomes the next step's token."""
    return gpu.shader("advance", {"N_GROUPS": N_GROUPS, "N_RESULTS": N_RESULTS}, ("better",))


def reference(logits: NDArray[np.float32]) -> int:
    """logits [n_outputs, vocab] -> the id of the last row's largest."""
    return int(np.argmax(logits[-1]))
