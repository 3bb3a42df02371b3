"""The architectures: one file a family, saying which hyperparameters it reads and what its forward pass is."""

from __future__ import annotations

from collections.abc import Callable

from cera_py.errors import UnsupportedModelError
from cera_py.gguf_file import GgufFile
from cera_py.models import llama
from cera_py.operations import Program

# GGUF's `general.architecture` -> the function that writes its forward pass
ARCHITECTURES: dict[str, Callable[[GgufFile], Program]] = {"llama": llama.program}


def build_program(file: GgufFile) -> Program:
    """The forward pass of a file. Raises UnsupportedModelError, listing those we have, for other architectures."""
    architecture = file.architecture
    if architecture not in ARCHITECTURES:
        raise UnsupportedModelError(
            f"{file.path}: architecture {architecture!r} is not one we have: {', '.join(sorted(ARCHITECTURES))}"
        )
    return ARCHITECTURES[architecture](file)
