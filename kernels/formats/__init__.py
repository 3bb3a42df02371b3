"""GGML's tensor types: one pair a type, TYPE.py (repacking, NumPy dequantisation) and TYPE.wgsl (`load_block`).

`format.py` is the frame that all of them fill in; `block_int8.wgsl` and `block_float.wgsl` define the block that every
TYPE.wgsl loads, and its dot product. A new type is one new pair and one new line in the list below.
"""

from __future__ import annotations

from cera_py.errors import UnsupportedModelError
from cera_py.kernels.formats import bf16, f16, f32, q4_0, q4_1, q4_k, q5_0, q5_1, q5_k, q6_k, q8_0
from cera_py.kernels.formats.format import Format, Plane

__all__ = ["FORMATS", "Format", "Plane", "format_of"]

FORMATS: dict[str, Format] = {
    module.FORMAT.name: module.FORMAT for module in (f32, f16, bf16, q4_0, q4_1, q5_0, q5_1, q8_0, q4_k, q5_k, q6_k)
}


def format_of(type_name: str) -> Format:
    """Return the format of a GGML type by its name ("Q4_0").

    Raises UnsupportedModelError, which lists the types that we have, for any other name.
    """
    try:
        return FORMATS[type_name]
    except KeyError:
        raise UnsupportedModelError(
            f"tensor type {type_name} is not supported: use a model whose tensors are {', '.join(FORMATS)}"
        ) from None
