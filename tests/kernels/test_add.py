"""The addition kernel against NumPy."""

import numpy as np
import pytest

from cera_py.kernels import add


@pytest.mark.parametrize(("tokens", "width"), [(1, 1), (1, 256), (3, 257), (17, 515)])
def test_add(gpu, run_kernel, tokens, width):
    rng = np.random.default_rng(width)
    x, y = rng.standard_normal((2, tokens, width)).astype(np.float32)
    buffers = {"x": x, "y": y, "out": np.full((tokens + 1, width), 7, np.float32)}
    found = run_kernel(add.shader(gpu, width), add.grid(width, tokens), buffers, "out")
    assert np.array_equal(found[:tokens], add.reference(x, y))
    assert np.all(found[tokens] == 7)
