"""cera_py: a minimal LLM decode engine in Python on WebGPU.

    with cera_py.load("model.gguf") as model:
        for piece in model.generate("Once upon a time", max_tokens=64):
            print(piece.text, end="", flush=True)

Importing it loads none of the libraries it stands on; each comes in when it is first needed.
"""

from __future__ import annotations

import os.path
from typing import TYPE_CHECKING, Any

from cera_py.errors import (
    CeraError,
    ContextFullError,
    DeviceError,
    DownloadError,
    InvalidArgumentError,
    ModelClosedError,
    ModelFileError,
    OutOfMemoryError,
    SupersededError,
    UnsupportedModelError,
)

if TYPE_CHECKING:
    from cera_py.gpu import list_devices as devices
    from cera_py.model import Generation, Model, Piece, Statistics, load, load_tokenizer

# In a checkout kernels/ and models/ lie beside this folder, not in it; `python -m cera_py` there must find them too.
if not os.path.isdir(os.path.join(__path__[0], "kernels")):
    __path__.append(os.path.dirname(__path__[0]))

__version__ = "0.1.0"

__all__ = [
    "CeraError",
    "ContextFullError",
    "DeviceError",
    "DownloadError",
    "Generation",
    "InvalidArgumentError",
    "Model",
    "ModelClosedError",
    "ModelFileError",
    "OutOfMemoryError",
    "Piece",
    "Statistics",
    "SupersededError",
    "UnsupportedModelError",
    "devices",
    "load",
    "load_tokenizer",
]

_LATER = {
    **dict.fromkeys(("Generation", "Model", "Piece", "Statistics", "load", "load_tokenizer"), "cera_py.model"),
    "devices": "cera_py.gpu",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'cera_py' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LATER[name]), "list_devices" if name == "devices" else name)
