"""What every kernel is made of: a WGSL file, the parts it includes, and the constants it expects.

A shader's text is a header of constants, then the parts, then the kernel's own file. So a .wgsl file uses UPPER_CASE
names that it does not declare, and numbers its bindings `@binding(auto)`: 0, 1, 2, ... in the order of the text. Two
interchangeable parts (with subgroups or without, one weight format or another) define the same functions in two ways.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

Constant = bool | int | float

_FOLDER = Path(__file__).parent
_AUTO = "@binding(auto)"
_BINDING = re.compile(r"@group\(0\)\s*@binding\((\d+)\)\s*var<storage,\s*(read|read_write)>\s*(\w+)")


@dataclass(frozen=True)
class Shader:
    """The text of one compute shader (entry point `main`) and its bindings.

    `bindings` has, per index, the variable's name and whether the shader writes it: read off the text itself,
    so that the layout a pipeline gets cannot differ from what the shader says.
    """

    label: str
    text: str
    bindings: tuple[tuple[str, bool], ...]


@cache
def wgsl_file(name: str) -> str:
    """The text of kernels/NAME.wgsl; "parts/bias" and "formats/q4_0" reach into the folders."""
    return (_FOLDER / f"{name}.wgsl").read_text(encoding="utf-8")


def declare(name: str, value: Constant) -> str:
    """One line of WGSL that declares a constant: bool, u32 (from int) or f32 (from float)."""
    if isinstance(value, bool):
        return f"const {name}: bool = {str(value).lower()};"
    if isinstance(value, int):
        return f"const {name}: u32 = {value}u;"
    return f"const {name}: f32 = {value!r};"


def assemble(
    name: str, constants: Mapping[str, Constant], parts: tuple[str, ...] = (), declarations: str = ""
) -> Shader:
    """Put the shader of kernels/NAME.wgsl together.

    constants: declared at its top. parts: files of kernels/parts (or "formats/..."), in order, before the kernel's own.
    declarations: further WGSL (the planes of a weight format, a workgroup array).
    """
    header = "\n".join(declare(key, value) for key, value in constants.items())
    paths = [part if "/" in part else f"parts/{part}" for part in parts]
    text = "\n".join([header, declarations, *map(wgsl_file, paths), wgsl_file(name)])
    for index in range(text.count(_AUTO)):
        text = text.replace(_AUTO, f"@binding({index})", 1)
    found = {int(index): (variable, access == "read_write") for index, access, variable in _BINDING.findall(text)}
    if sorted(found) != list(range(len(found))):
        raise ValueError(f"{name}.wgsl: its bindings are numbered {sorted(found)}, not 0, 1, 2, ...")
    return Shader(name, text, tuple(found[index] for index in range(len(found))))
