"""GGUF files, memory-mapped: typed metadata, and tensors as views that copy nothing.

A file is little-endian throughout (versions 2 and 3 have the same layout):

    "GGUF", version u32, tensor count u64, key count u64
    each key:     name, type u32, value                       a string is its length in bytes, u64, then UTF-8
    each tensor:  name, dimension count u32, dimensions u64 (fastest first), type u32, offset u64
    padding to `general.alignment` (32 by default), then the tensors' data, at their offsets from here

(https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.) Nothing in a file is believed: every count and length is
held against the bytes that remain before anything is allocated, and every tensor must lie inside the file, alone.
"""

from __future__ import annotations

import enum
import math
import mmap
import os
import stat
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TypeVar, get_args, get_origin

import numpy as np
from numpy.typing import NDArray

from .errors import ModelFileError, UnsupportedModelError

MetadataValue = bool | int | float | str | list[str] | list[bool] | NDArray[Any]
T = TypeVar("T")

# The types of metadata values, by GGUF's number: how NumPy calls the numeric ones, and the three that are not numbers.
_NUMBERS: Final = {0: "u1", 1: "i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 10: "<u8", 11: "<i8", 12: "<f8"}
_BOOL, _STRING, _ARRAY = 7, 8, 9

# Types that old files carry and GGML has since removed: known by name, so that the message can say so.
_REMOVED_TYPES: Final = {
    4: "Q4_2",
    5: "Q4_3",
    31: "Q4_0_4_4",
    32: "Q4_0_4_8",
    33: "Q4_0_8_8",
    36: "IQ4_NL_4_4",
    37: "IQ4_NL_4_8",
    38: "IQ4_NL_8_8",
}

_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")
_LEAST_KEY_BYTES = 8 + 1 + 4 + 1  # a name of one byte, a type, a value of one byte
_LEAST_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8  # a name of one byte, one dimension, a type, an offset
_MAX_NAME_BYTES = 65535
_MAX_DIMENSIONS = 4
_MAX_ALIGNMENT = 1 << 24
_STRING_WINDOW = 1 << 20  # bytes of a string array copied at a time: `bytes` slice faster than a mapping does


class _Missing(enum.Enum):
    """The default of `get` that no caller passes: says that the key must be there."""

    MISSING = enum.auto()


@dataclass(frozen=True)
class Tensor:
    """One tensor of a file: what it is, and its bytes where they lie."""

    name: str
    type: str  # GGML's name: "Q4_0", "F16", ...
    shape: tuple[int, ...]  # NumPy's order: [rows, columns], where GGUF writes the columns first
    _view: Callable[[], NDArray[np.uint8]] = field(repr=False, compare=False)

    @property
    def data(self) -> NDArray[np.uint8]:
        """The tensor's bytes, [rows, bytes per row], a read-only view of the mapping; leading dimensions count as rows.

        A tensor of one dimension is one row. The view stays valid after the file is closed. Raises ModelFileError when
        the file is closed already, or has shrunk since it was mapped (touching the missing pages would kill the
        process).
        """
        return self._view()


class GgufFile:
    """A GGUF file, mapped and checked; a context manager. Metadata is decoded at once, tensors are views.

    Raises ModelFileError when the file cannot be read, is damaged or is no GGUF file, and UnsupportedModelError when
    its GGUF version, its byte order or a tensor's type is one we cannot read.

    Strings that are not UTF-8 (single bytes, as tokens) keep their bytes as lone surrogates, Python's way with file
    names: `text.encode("utf-8", "surrogateescape")` gives them back exactly.
    """

    path: Path
    version: int
    metadata: dict[str, MetadataValue]
    tensors: dict[str, Tensor]

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._mapping = _Mapping(self.path)
        header = _Header(self._mapping.buffer(), self.path)
        self.version, n_tensors, n_keys = header.start()
        self.metadata = header.metadata(n_keys)
        self.tensors = self._read_tensors(header, n_tensors)

    def __enter__(self) -> GgufFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file. Views taken before stay valid; the memory is unmapped when the last of them goes."""
        self._mapping.close()

    @property
    def architecture(self) -> str:
        """The value of `general.architecture`, as "llama"; ModelFileError when the file does not say."""
        return self.get("general.architecture", str)

    def get(self, key: str, kind: type[T], default: T | _Missing = _Missing.MISSING) -> T:
        """The metadata value of `key`, which must be of type `kind`: int, float, str, bool, list[str], np.ndarray, ...

        An integer also serves as a float, but a bool never as a number. Raises ModelFileError naming the key when it
        is missing and there is no default, or when it has another type.
        """
        if key not in self.metadata:
            if default is _Missing.MISSING:
                raise ModelFileError(f"{self.path}: the key {_quote(key)} is missing; convert the model again")
            return default
        value: Any = self.metadata[key]
        if kind is float and type(value) is int:
            value = float(value)
        fits = isinstance(value, get_origin(kind) or kind) and not (kind is int and isinstance(value, bool))
        if fits and isinstance(value, list) and value and get_args(kind):
            fits = isinstance(value[0], get_args(kind)[0])  # all the items of an array have one type
        if not fits:
            wanted = kind.__name__ if get_origin(kind) is None else str(kind)
            raise ModelFileError(f"{self.path}: the key {_quote(key)} is {_describe(value)}, not of type {wanted}")
        return value  # type: ignore[no-any-return]

    def tensor(self, name: str) -> Tensor:
        """The tensor called `name`; ModelFileError naming it when the file has none."""
        if name in self.tensors:
            return self.tensors[name]
        n_parts = self.metadata.get("split.count")
        if isinstance(n_parts, int) and n_parts > 1:
            remedy = f"this file is one of {n_parts} parts: merge them first (llama-gguf-split --merge)"
        else:
            remedy = f"it has {len(self.tensors)} tensors; convert the model again"
        raise ModelFileError(f"{self.path}: the tensor {_quote(name)} is missing; {remedy}")

    def _read_tensors(self, header: _Header, n_tensors: int) -> dict[str, Tensor]:
        """Read the list of tensors and check that each is whole, aligned, inside the file, and overlaps no other."""
        alignment = self.get("general.alignment", int, 32)
        if not (0 < alignment <= _MAX_ALIGNMENT and alignment.bit_count() == 1):
            raise header.error(f"the key 'general.alignment' is {alignment}, which is no sane power of two")
        infos = header.tensor_infos(n_tensors)
        data_start = -(-header.position // alignment) * alignment
        tensors: dict[str, Tensor] = {}
        spans: list[tuple[int, int, str]] = []  # (start, end, name) of each tensor's bytes in the file
        for name, type_id, shape, offset in infos:
            what = f"the tensor {_quote(name)}"
            if name in tensors:
                raise header.error(f"{what} is there twice")
            if type_id not in _ggml_types():
                known = f"{_REMOVED_TYPES[type_id]}, which GGML removed" if type_id in _REMOVED_TYPES else "unknown"
                raise UnsupportedModelError(
                    f"{self.path}: {what} is of GGML type {type_id} ({known}); get the model in another quantisation"
                )
            type_name, block_size, block_bytes = _ggml_types()[type_id]
            if shape[-1] % block_size:
                raise header.error(f"{what} has rows of {shape[-1]} values, but {type_name} packs {block_size} a block")
            n_rows, row_bytes = math.prod(shape[:-1]), shape[-1] // block_size * block_bytes
            if offset % alignment:
                raise header.error(f"{what} is misaligned: its offset {offset} is no multiple of {alignment}")
            start = data_start + offset
            end = start + n_rows * row_bytes
            if end > header.end:
                raise header.error(
                    f"{what} ends at byte {end} of {header.end}; the download is incomplete: fetch it again"
                )
            spans.append((start, end, name))
            tensors[name] = Tensor(name, type_name, shape, partial(self._mapping.view, what, start, n_rows, row_bytes))
        spans.sort()
        for (_, end, name), (start, _, next_name) in pairwise(spans):
            if start < end:
                raise header.error(f"the tensors {_quote(name)} and {_quote(next_name)} overlap")
        return tensors


class _Mapping:
    """A file in memory, read-only, until it is closed. Tensors hold this, not the GgufFile, so that no cycle forms."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._mapped: mmap.mmap | None = None
        try:
            status = os.stat(path)  # before opening: opening a named pipe would wait for a writer
            if stat.S_ISDIR(status.st_mode):
                raise ModelFileError(f"{path} is a directory; give the path of a .gguf file")
            if not stat.S_ISREG(status.st_mode):
                raise ModelFileError(f"{path} is not a regular file; give the path of a .gguf file")
            if status.st_size == 0:
                raise ModelFileError(f"{path} is empty; fetch it again")
            with open(path, "rb") as file:
                self._mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except FileNotFoundError:
            raise ModelFileError(f"{path} does not exist; give the path of a .gguf file") from None
        except (OSError, ValueError, OverflowError) as error:  # no permission, a path with a zero byte, too large, ...
            raise ModelFileError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None

    def buffer(self) -> mmap.mmap:
        """The whole file."""
        assert self._mapped is not None
        return self._mapped

    def view(self, what: str, start: int, n_rows: int, row_bytes: int) -> NDArray[np.uint8]:
        """The bytes of the tensor that messages call `what`, [n_rows, row_bytes]; errors as in `Tensor.data`."""
        mapped = self._mapped
        if mapped is None:
            raise ModelFileError(f"{self._path}: {what} cannot be read: the file has been closed")
        try:
            size_now = mapped.size()  # of the file (fstat), not of the mapping
        except OSError as error:
            raise ModelFileError(f"{self._path}: {what} cannot be read: {error.strerror}") from None
        if size_now < len(mapped):
            raise ModelFileError(
                f"{self._path}: {what} cannot be read: the file shrank from {len(mapped)} to {size_now} bytes while it "
                "was in use; fetch it again"
            )
        return np.frombuffer(mapped, np.uint8, n_rows * row_bytes, start).reshape(n_rows, row_bytes)

    def close(self) -> None:
        """Drop the mapping rather than close it: `mmap.close` refuses while views exist, and the last one frees it."""
        self._mapped = None


class _Header:
    """A position in the header. Every read first checks that the bytes are there, and says whose they are if not."""

    def __init__(self, buffer: mmap.mmap, path: Path) -> None:
        self._buffer = buffer
        self._path = path
        self.position = 0
        self.end = len(buffer)

    def error(self, message: str) -> ModelFileError:
        """A ModelFileError with the file's path in front."""
        return ModelFileError(f"{self._path}: {message}")

    def start(self) -> tuple[int, int, int]:
        """Read the first 24 bytes: version, number of tensors, number of keys."""
        if self._buffer[:4] != b"GGUF":
            raise self.error(f"not a GGUF file: {_what_it_looks_like(self._buffer[:512])}")
        self.position = 4
        version = self._integer(_U32, "the version")
        if version not in (2, 3):
            if int.from_bytes(version.to_bytes(4, "little"), "big") in (1, 2, 3):
                message = "big-endian GGUF files are not supported; get the little-endian one"
            elif version == 1:
                message = "GGUF version 1 is not supported; convert the model again, to version 3"
            else:
                message = f"GGUF version {version} is not supported; we read versions 2 and 3"
            raise UnsupportedModelError(f"{self._path}: {message}")
        n_tensors = self._integer(_U64, "the number of tensors")
        n_keys = self._integer(_U64, "the number of keys")
        self._check_room(n_keys, _LEAST_KEY_BYTES, "the list of keys")
        self._check_room(n_tensors, _LEAST_TENSOR_BYTES, "the list of tensors")
        return version, n_tensors, n_keys

    def metadata(self, n_keys: int) -> dict[str, MetadataValue]:
        """Read the keys and their values."""
        metadata: dict[str, MetadataValue] = {}
        for i in range(n_keys):
            key = self._name(f"the name of key {i + 1} of {n_keys}")
            what = f"the key {_quote(key)}"
            if key in metadata:
                raise self.error(f"{what} is there twice")
            metadata[key] = self._value(what)
        return metadata

    def tensor_infos(self, n_tensors: int) -> list[tuple[str, int, tuple[int, ...], int]]:
        """Read the list of tensors: (name, type number, shape in NumPy's order, offset) of each."""
        infos = []
        for i in range(n_tensors):
            name = self._name(f"the name of tensor {i + 1} of {n_tensors}")
            what = f"the tensor {_quote(name)}"
            n_dimensions = self._integer(_U32, what)
            if not 1 <= n_dimensions <= _MAX_DIMENSIONS:
                raise self.error(f"{what} has {n_dimensions} dimensions, where 1 to {_MAX_DIMENSIONS} are possible")
            shape = tuple(reversed([self._integer(_U64, what) for _ in range(n_dimensions)]))
            if 0 in shape:
                raise self.error(f"{what} has a dimension of 0: {list(shape)}")
            infos.append((name, self._integer(_U32, what), shape, self._integer(_U64, what)))
        return infos

    def _value(self, what: str) -> MetadataValue:
        """Read one metadata value: its type, then itself."""
        type_id = self._integer(_U32, what)
        if type_id == _STRING:
            return self._string(what)
        if type_id == _BOOL:
            return self._bools(1, what)[0]
        if type_id != _ARRAY:
            return self._numbers(type_id, 1, what)[0].item()  # type: ignore[no-any-return]
        item_type_id = self._integer(_U32, what)
        count = self._integer(_U64, what)
        if item_type_id == _STRING:
            return self._strings(count, what)
        if item_type_id == _BOOL:
            return self._bools(count, what)
        if item_type_id == _ARRAY:
            raise self.error(f"{what} is an array of arrays, which no model needs")
        return self._numbers(item_type_id, count, what)

    def _numbers(self, type_id: int, count: int, what: str) -> NDArray[Any]:
        """Read `count` numbers of a type, [count]; a copy, so that metadata outlives the file."""
        if type_id not in _NUMBERS:
            raise self.error(f"{what} has a value of type {type_id}, which GGUF does not define")
        dtype = np.dtype(_NUMBERS[type_id])
        return np.frombuffer(self._take(count * dtype.itemsize, what), dtype)

    def _bools(self, count: int, what: str) -> list[bool]:
        """Read `count` bools, a byte each."""
        values = self._take(count, what)
        if values.strip(b"\0\1"):
            raise self.error(f"{what} has a bool that is neither 0 nor 1")
        return [value == 1 for value in values]

    def _strings(self, count: int, what: str) -> list[str]:
        """Read an array of strings. Opening a file spends its time here: a vocabulary has up to 800,000 of them."""
        self._check_room(count, 8, what)
        strings: list[str] = []
        length_at = _U64.unpack_from
        while len(strings) < count:
            window = self._buffer[self.position : self.position + _STRING_WINDOW]
            start = 0  # of the next string, in the window
            for _ in range(count - len(strings)):
                if start + 8 > len(window):
                    break
                stop = start + 8 + length_at(window, start)[0]
                if stop > len(window):
                    break
                strings.append(window[start + 8 : stop].decode("utf-8", "surrogateescape"))
                start = stop
            self.position += start
            if start == 0:  # longer than the window, or past the end of the file
                strings.append(self._string(f"item {len(strings)} of {what}"))
        return strings

    def _string(self, what: str) -> str:
        """Read a string; see GgufFile on bytes that are not UTF-8."""
        return self._take(self._integer(_U64, what), what).decode("utf-8", "surrogateescape")

    def _name(self, what: str) -> str:
        """Read the name of a key or tensor, which must be valid UTF-8, not empty, and no longer than GGUF allows."""
        length = self._integer(_U64, what)
        if length == 0:
            raise self.error(f"{what} is empty; the file is damaged: fetch it again")
        if length > _MAX_NAME_BYTES:
            raise self.error(f"{what} says it is {length} bytes long, where at most {_MAX_NAME_BYTES} are possible")
        try:
            return self._take(length, what).decode("utf-8")
        except UnicodeDecodeError:
            raise self.error(f"{what} is not valid UTF-8") from None

    def _integer(self, layout: struct.Struct, what: str) -> int:
        """Read one unsigned integer."""
        return int(layout.unpack(self._take(layout.size, what))[0])

    def _take(self, n_bytes: int, what: str) -> bytes:
        """Read `n_bytes` bytes."""
        self._check_room(n_bytes, 1, what)
        start = self.position
        self.position += n_bytes
        return self._buffer[start : self.position]

    def _check_room(self, count: int, item_bytes: int, what: str) -> None:
        """Raise ModelFileError unless `count` items of at least `item_bytes` bytes can still follow in the file."""
        if count * item_bytes > self.end - self.position:
            raise self.error(
                f"{what} needs at least {count * item_bytes} bytes at byte {self.position}, but the file has "
                f"{self.end}; it is damaged or its download incomplete: fetch it again"
            )


@cache
def _ggml_types() -> dict[int, tuple[str, int, int]]:
    """GGML's tensor types by number: (name, values in a block, bytes of a block)."""
    from gguf import GGML_QUANT_SIZES  # here, because importing gguf takes 50 ms

    return {int(kind): (kind.name, *sizes) for kind, sizes in GGML_QUANT_SIZES.items()}


def _what_it_looks_like(head: bytes) -> str:
    """Guess from its first bytes what a file is that is no GGUF file, and say what to do about it."""
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if head.startswith(b"version https://git-lfs.github.com/spec/"):
        return "it is a Git LFS pointer; run `git lfs pull` to fetch the file itself"
    if text.startswith((b"<!doctype html", b"<html", b"<head", b"<?xml", b"<error")):
        return "it is a web page (HTML or XML), perhaps an error message; fetch the model from its download address"
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") < 1 << 32:
        return "it is a safetensors file; convert it, and give the .gguf file"
    if head.startswith(b"PK\x03\x04"):
        return "it is a zip archive (or a PyTorch checkpoint); unpack it, or get the model as .gguf"
    if head.startswith((b"\x1f\x8b", b"\xfd7zXZ\0", b"BZh", b"7z\xbc\xaf\x27\x1c", b"\x28\xb5\x2f\xfd")):
        return "it is compressed; unpack it first"
    if head.startswith((b"lmgg", b"fmgg", b"tjgg", b"algg")):
        return "it is in a GGML format older than GGUF; convert the model again"
    if not head.strip(b"\0"):
        return "it begins with zeros, as an unfinished download does; fetch it again"
    if all(byte >= 32 or byte in b"\t\r\n\f" for byte in head):
        return f"it is a text file ({_quote(head.decode('utf-8', 'replace').strip(), 40)}); give a .gguf file"
    return f"it begins with {head[:4]!r} instead of 'GGUF'; fetch it again"


def _quote(name: str, limit: int = 80) -> str:
    """A name from a file as a message can carry it: quoted, on one line, not too long."""
    return repr(name if len(name) <= limit else name[: limit - 3] + "...")


def _describe(value: MetadataValue) -> str:
    """A metadata value as a message can carry it: its type, and itself when it is short."""
    if isinstance(value, np.ndarray):
        return f"an array of {len(value)} {value.dtype.name}"
    if isinstance(value, list):
        return f"an array of {len(value)} {type(value[0]).__name__ if value else 'items'}"
    return f"the {type(value).__name__} {_quote(value) if isinstance(value, str) else value}"
