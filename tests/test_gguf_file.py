"""The GGUF reader: against gguf.GGUFReader on good files, and what damaged, hostile and wrong files get."""

from __future__ import annotations

import gc
import os
import random
import struct
import time
import tracemalloc
import weakref
from pathlib import Path

import gguf
import numpy as np
import pytest

from cera_py import gguf_file
from cera_py.errors import CeraError, ModelFileError, UnsupportedModelError
from cera_py.gguf_file import GgufFile

STRING, ARRAY, BOOL, U8, U32, I32, F32, U64 = 8, 9, 7, 0, 4, 5, 6, 10  # GGUF's numbers of value types
TYPE_F32, TYPE_Q4_0 = 0, 2  # GGML's numbers of tensor types


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


def u64(value: int) -> bytes:
    return struct.pack("<Q", value)


def string(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return u64(len(raw)) + raw


def key(name: str | bytes, type_id: int, value: bytes) -> bytes:
    return string(name) + u32(type_id) + value


def array(type_id: int, count: int, items: bytes) -> bytes:
    return u32(type_id) + u64(count) + items


def info(name: str | bytes, dims: list[int], type_id: int = TYPE_F32, offset: int = 0) -> bytes:
    """A tensor's entry; `dims` in the file's order, columns first."""
    return string(name) + u32(len(dims)) + b"".join(map(u64, dims)) + u32(type_id) + u64(offset)


def raw_file(keys: list[bytes] = (), infos: list[bytes] = (), data: bytes = bytes(4096), **header: int) -> bytes:
    """The bytes of a GGUF file, right or wrong; `header` overrides version, n_tensors, n_keys, alignment."""
    version, alignment = header.get("version", 3), header.get("alignment", 32)
    counts = u64(header.get("n_tensors", len(infos))) + u64(header.get("n_keys", len(keys)))
    start = b"GGUF" + u32(version) + counts + b"".join(keys) + b"".join(infos)
    return start + bytes(-len(start) % alignment) + data


ARCHITECTURE = key("general.architecture", STRING, string("llama"))


@pytest.fixture
def write(tmp_path):
    """Write bytes to a file of their own and return its path."""
    made = []

    def to_file(content: bytes) -> Path:
        made.append(tmp_path / f"file{len(made)}.gguf")
        made[-1].write_bytes(content)
        return made[-1]

    return to_file


@pytest.fixture(scope="module")
def sample(tmp_path_factory) -> Path:
    """A small valid file, made by the gguf package: every value type, several tensor types and ranks."""
    path = tmp_path_factory.mktemp("gguf") / "sample.gguf"
    rng = np.random.default_rng(7)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint8("a.uint8", 255)
    writer.add_int8("a.int8", -128)
    writer.add_uint16("a.uint16", 65535)
    writer.add_int16("a.int16", -32768)
    writer.add_uint32("a.uint32", 2**32 - 1)
    writer.add_int32("a.int32", -(2**31))
    writer.add_uint64("a.uint64", 2**64 - 1)
    writer.add_int64("a.int64", -(2**63))
    writer.add_float32("a.float32", 1e-5)
    writer.add_float64("a.float64", 1e-300)
    writer.add_bool("a.true", True)
    writer.add_bool("a.false", False)
    writer.add_string("a.string", "Ġnaïve 🦙\n")
    writer.add_string("a.string.empty", "")
    writer.add_array("a.array.strings", ["<s>", "", "é", "🦙", " " * 300])
    writer.add_array("a.array.ints", [1, -2, 3])
    writer.add_array("a.array.floats", [0.5, -1.25])
    writer.add_array("a.array.bools", [True, False, True])
    writer.add_key_value("a.array.uint64", [1, 2**63], gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.UINT64)
    for type_name, shape in [("F32", (5,)), ("F16", (3, 8)), ("BF16", (2, 4)), ("Q8_0", (2, 3, 64)), ("Q4_0", (7, 32))]:
        kind = gguf.GGMLQuantizationType[type_name]
        data = gguf.quants.quantize(rng.standard_normal(shape).astype(np.float32), kind)
        writer.add_tensor(f"{type_name.lower()}.weight", data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def assert_same_as_gguf(path: Path) -> None:
    """Our reader and gguf.GGUFReader agree on everything that is in a file."""
    theirs = gguf.GGUFReader(path)
    with GgufFile(path) as ours:
        fields = {name: field for name, field in theirs.fields.items() if not name.startswith("GGUF.")}
        assert ours.version == theirs.fields["GGUF.version"].contents()
        assert list(ours.metadata) == list(fields)
        for name, value in ours.metadata.items():
            expected = fields[name].contents()
            if isinstance(value, np.ndarray):
                assert value.dtype == fields[name].parts[-1].dtype
                assert value.tolist() == expected
            else:
                assert type(value) is type(expected)
                assert value == expected
        assert list(ours.tensors) == [tensor.name for tensor in theirs.tensors]
        for tensor in theirs.tensors:
            mine = ours.tensor(tensor.name)
            assert mine.type == tensor.tensor_type.name
            assert mine.shape == tuple(int(n) for n in reversed(tensor.shape))
            assert mine.data.shape == (int(np.prod(mine.shape[:-1])), tensor.n_bytes // int(np.prod(mine.shape[:-1])))
            assert np.array_equal(mine.data.reshape(-1), tensor.data.reshape(-1).view(np.uint8))


# ---- good files ------------------------------------------------------------------------------------------------------


def test_sample_equals_gguf_reader(sample):
    assert_same_as_gguf(sample)


@pytest.mark.parametrize("folder", ["arch", "quant"])
def test_conformance_files_equal_gguf_reader(conformance, folder):
    paths = sorted((conformance / folder).glob("*.gguf"))
    assert paths
    for path in paths:
        assert_same_as_gguf(path)


@pytest.mark.parametrize("name", ["falcon", "gpt-2", "llama-bpe", "llama-spm", "phi-3"])
def test_conformance_vocabularies_equal_gguf_reader(conformance, name):
    assert_same_as_gguf(conformance / "tokenizer" / f"{name}.gguf")


@pytest.mark.parametrize(
    ("name", "n_tokens", "n_merges"),
    [("falcon", 65024, 64784), ("gpt-2", 50257, 50000), ("llama-bpe", 128256, 280147), ("phi-3", 32064, None)],
)
def test_conformance_vocabularies_open_fast(conformance, name, n_tokens, n_merges):
    seconds, file = timed(GgufFile, conformance / "tokenizer" / f"{name}.gguf")
    with file:
        assert seconds < 2  # 0.02 to 0.2 on an idle machine
        tokens = file.get("tokenizer.ggml.tokens", list[str])
        assert len(tokens) == len(file.get("tokenizer.ggml.token_type", np.ndarray)) == n_tokens
        assert all(isinstance(token, str) for token in tokens)
        if n_merges:
            assert len(file.get("tokenizer.ggml.merges", list[str])) == n_merges


def timed(function, *arguments):
    """(seconds of CPU, which other processes hardly disturb, and the result)."""
    start = time.process_time()
    result = function(*arguments)
    return time.process_time() - start, result


def test_metadata_of_a_large_vocabulary_opens_in_a_second(write):
    n_tokens, n_merges = 262_144, 514_906
    keys = [
        ARCHITECTURE,
        key("t.tokens", ARRAY, array(STRING, n_tokens, b"".join(string(f"Ġtoken{i}é") for i in range(n_tokens)))),
        key("t.scores", ARRAY, array(F32, n_tokens, np.arange(n_tokens, dtype="<f4").tobytes())),
        key("t.types", ARRAY, array(I32, n_tokens, np.ones(n_tokens, "<i4").tobytes())),
        key("t.merges", ARRAY, array(STRING, n_merges, b"".join(string(f"Ġmerg {i}") for i in range(n_merges)))),
    ]
    path = write(raw_file(keys))
    del keys
    seconds = min(timed(GgufFile, path)[0] for _ in range(3))
    with GgufFile(path) as file:
        assert file.get("t.tokens", list[str]) == [f"Ġtoken{i}é" for i in range(n_tokens)]
        assert file.get("t.merges", list[str])[-1] == f"Ġmerg {n_merges - 1}"
        assert file.get("t.scores", np.ndarray)[-1] == n_tokens - 1
    assert seconds < 1


def test_strings_across_and_beyond_the_window_of_the_fast_loop(write, monkeypatch):
    monkeypatch.setattr(gguf_file, "_STRING_WINDOW", 64)
    texts = ["x" * length for length in (0, 55, 56, 57, 1, 200, 0, 0, 48, 7, 1000, 3)]
    path = write(raw_file([key("k", ARRAY, array(STRING, len(texts), b"".join(map(string, texts))))], data=b""))
    with GgufFile(path) as file:
        assert file.metadata["k"] == texts


def test_version_2(write):
    with GgufFile(write(raw_file([ARCHITECTURE], [info("w", [4, 2])], version=2))) as file:
        assert (file.version, file.architecture, file.tensor("w").shape) == (2, "llama", (2, 4))


def test_no_keys_and_no_tensors(write):
    with GgufFile(write(raw_file(data=b""))) as file:
        assert file.metadata == {}
        assert file.tensors == {}


def test_bytes_that_are_not_utf8_survive(write):
    odd = [b"\xff", b"ok", b"\xe2\x82", b"\xed\xa0\x80"]
    keys = [key("tokens", ARRAY, array(STRING, 4, b"".join(map(string, odd)))), key("one", STRING, string(b"a\xfe"))]
    with GgufFile(write(raw_file(keys))) as file:
        tokens = file.get("tokens", list[str])
        assert [token.encode("utf-8", "surrogateescape") for token in tokens] == odd
        assert file.get("one", str).encode("utf-8", "surrogateescape") == b"a\xfe"


@pytest.mark.parametrize("alignment", [8, 64, 4096])
def test_alignment_is_honoured(write, alignment):
    data = bytes(range(32)) + bytes(alignment * 4 - 32) + bytes(range(100, 132))
    keys = [key("general.alignment", U32, u32(alignment))]
    infos = [info("a", [8]), info("b", [8], offset=alignment * 4)]
    with GgufFile(write(raw_file(keys, infos, data, alignment=alignment))) as file:
        assert file.tensor("a").data.tobytes() == bytes(range(32))
        assert file.tensor("b").data.tobytes() == bytes(range(100, 132))


def test_views_are_read_only_and_copy_nothing(sample):
    with GgufFile(sample) as file:
        tensor = file.tensor("q8_0.weight")
        assert tensor.shape == (2, 3, 64)
        assert tensor.data.shape == (6, 68)
        assert tensor.data.dtype == np.uint8
        assert np.shares_memory(tensor.data, file.tensor("q8_0.weight").data)
        with pytest.raises(ValueError, match="read-only"):
            tensor.data[0, 0] = 1


def test_opening_takes_no_memory_for_tensors(write):
    path = write(raw_file([ARCHITECTURE], [info("w", [1024, 1024, 16])], bytes(64 << 20)))
    tracemalloc.start()
    with GgufFile(path) as file:
        assert file.tensor("w").data.nbytes == 64 << 20
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_views_outlive_the_file(sample):
    with GgufFile(sample) as file:
        tensor = file.tensor("f32.weight")
        view = tensor.data
        values = view.copy()
    file.close()  # a second time does nothing
    with pytest.raises(ModelFileError, match=r"f32\.weight.*closed"):
        _ = tensor.data
    assert file.metadata["a.array.ints"].tolist() == [1, -2, 3]
    del file, tensor
    gc.collect()
    assert np.array_equal(view, values)


def test_a_file_that_is_dropped_is_unmapped_at_once(sample):
    gc.disable()  # no cycle keeps it: reference counts alone free it
    try:
        file = GgufFile(sample)
        mapped = weakref.ref(file._mapping.buffer())
        view = file.tensor("f16.weight").data
        del file
        assert mapped() is not None
        del view
        assert mapped() is None
    finally:
        gc.enable()


# ---- typed access ----------------------------------------------------------------------------------------------------


def test_get(sample):
    with GgufFile(sample) as file:
        assert file.architecture == "llama"
        assert file.get("a.uint64", int) == 2**64 - 1
        assert file.get("a.true", bool) is True
        assert file.get("a.string", str) == "Ġnaïve 🦙\n"
        assert file.get("a.float32", float) == np.float32(1e-5)
        as_float = file.get("a.int8", float)
        assert (as_float, type(as_float)) == (-128.0, float)
        assert file.get("a.array.bools", list[bool]) == [True, False, True]
        assert file.get("a.array.bools", list) == [True, False, True]
        assert file.get("a.array.ints", np.ndarray).dtype == np.int32
        assert file.get("a.uint8", int, 3) == 255
        assert file.get("absent", int, 3) == 3
        assert file.get("absent", str, None) is None


@pytest.mark.parametrize(
    ("name", "kind", "found"),
    [
        ("a.true", int, "the bool True"),
        ("a.true", float, "the bool True"),
        ("a.uint8", bool, "the int 255"),
        ("a.float64", int, "the float 1e-300"),
        ("a.string", int, "the str 'Ġnaïve"),
        ("a.uint8", str, "the int 255"),
        ("a.array.ints", int, "an array of 3 int32"),
        ("a.array.bools", list[str], "an array of 3 bool"),
        ("a.array.strings", np.ndarray, "an array of 5 str"),
        ("absent", int, "missing"),
    ],
)
def test_get_of_another_type_or_missing(sample, name, kind, found):
    with GgufFile(sample) as file, pytest.raises(ModelFileError) as caught:
        file.get(name, kind)
    assert_clear(caught.value, sample, f"'{name}'", found)


def test_a_default_does_not_hide_a_wrong_type(sample):
    with GgufFile(sample) as file, pytest.raises(ModelFileError, match=r"a\.string"):
        file.get("a.string", int, 3)


def test_missing_tensor_and_architecture(write):
    path = write(raw_file(infos=[info("w", [4])]))
    with GgufFile(path) as file:
        with pytest.raises(ModelFileError) as caught:
            file.tensor("output.weight")
        assert_clear(caught.value, path, "'output.weight'", "missing", "1 tensors")
        with pytest.raises(ModelFileError, match=r"general\.architecture"):
            _ = file.architecture


def test_missing_tensor_of_a_file_in_parts(write):
    with (
        GgufFile(write(raw_file([key("split.count", U32, u32(3))]))) as file,
        pytest.raises(ModelFileError, match=r"output\.weight.*one of 3 parts"),
    ):
        file.tensor("output.weight")


# ---- damaged and hostile files ---------------------------------------------------------------------------------------


def assert_clear(error: CeraError, path: Path, *parts: str) -> None:
    """The message is one line that names the file and says each of `parts`."""
    message = str(error)
    assert "\n" not in message
    assert len(message) < 400 + len(str(path))
    for part in (str(path), *parts):
        assert part in message


def test_truncated_at_every_byte(sample, tmp_path):
    content = sample.read_bytes()
    with GgufFile(sample) as file:
        last = file.tensor(list(file.tensors)[-1])
        needed = content.rindex(last.data.tobytes()) + last.data.nbytes  # padding behind the last tensor may be absent
    path = tmp_path / "truncated.gguf"
    path.write_bytes(content)
    start = time.perf_counter()
    for length in range(needed - 1, -1, -1):
        os.truncate(path, length)
        with pytest.raises(ModelFileError) as caught:
            GgufFile(path)
        assert_clear(caught.value, path)
    assert time.perf_counter() - start < 15
    path.write_bytes(content[:needed])
    GgufFile(path).close()


def test_truncation_names_the_key_or_tensor(sample, write):
    content = sample.read_bytes()
    for name, parts in [(b"a.array.ints", ["'a.array.ints'"]), (b"q4_0.weight", ["'q4_0.weight'"])]:
        path = write(content[: content.index(name) + len(name) + 14])
        with pytest.raises(ModelFileError) as caught:
            GgufFile(path)
        assert_clear(caught.value, path, *parts, "fetch it again")
    path = write(content[:-40])
    with pytest.raises(ModelFileError) as caught:
        GgufFile(path)
    assert_clear(caught.value, path, "'q4_0.weight'", "incomplete")


HUGE = 2**63
W = info("w", [4])
BAD_FILES = {
    "keys_2_60": (raw_file(n_keys=2**60), "list of keys"),
    "keys_one_more": (raw_file([ARCHITECTURE], n_keys=2), "key 2 of 2 is empty"),
    "keys_one_more_at_the_end": (raw_file([ARCHITECTURE], n_keys=2, data=b"", alignment=1), "name of key 2 of 2"),
    "key_empty": (raw_file([key("", U8, b"\0")]), "name of key 1 of 1 is empty"),
    "tensors_2_60": (raw_file(n_tensors=2**60), "list of tensors"),
    "counts_2_64": (raw_file(n_tensors=2**64 - 1, n_keys=2**64 - 1), "list of keys"),
    "key_length": (raw_file([u64(HUGE) + b"abc"]), "name of key 1 of 1"),
    "key_length_above_the_limit": (raw_file([string("k" * 70000) + u32(U8) + b"\0"]), "70000 bytes"),
    "key_not_utf8": (raw_file([key(b"\xff\xfe", U8, b"\0")]), "UTF-8"),
    "string_length": (raw_file([key("k", STRING, u64(HUGE) + b"abc")]), "'k'"),
    "string_length_one_too_many": (raw_file([key("k", STRING, u64(4) + b"abc")], data=b"", alignment=1), "'k'"),
    "array_count_2_40": (raw_file([key("k", ARRAY, array(U8, 2**40, b""))]), "'k'"),
    "array_of_strings_2_40": (raw_file([key("k", ARRAY, array(STRING, 2**40, b""))]), "'k'"),
    "array_of_numbers_2_64": (raw_file([key("k", ARRAY, array(U64, 2**64 - 1, b""))]), "'k'"),
    "array_of_bools_2_62": (raw_file([key("k", ARRAY, array(BOOL, 2**62, b""))]), "'k'"),
    "array_item_length": (raw_file([key("k", ARRAY, array(STRING, 2, string("a") + u64(HUGE)))]), "item 1 of the key"),
    "array_of_arrays": (raw_file([key("k", ARRAY, array(ARRAY, 1, array(U8, 1, b"\0")))]), "array of arrays"),
    "array_bomb": (raw_file([key("k", ARRAY, array(ARRAY, 1, b"") * 100_000)]), "'k' is an array of arrays"),
    "array_of_unknown": (raw_file([key("k", ARRAY, array(77, 1, b"\0"))]), "'k' has a value of type 77"),
    "array_of_unknown_empty": (raw_file([key("k", ARRAY, array(13, 0, b""))]), "type 13"),
    "value_of_unknown": (raw_file([key("k", 13, b"\0")]), "'k' has a value of type 13"),
    "bool_2": (raw_file([key("k", BOOL, b"\2")]), "'k' has a bool"),
    "bools_2": (raw_file([key("k", ARRAY, array(BOOL, 3, b"\1\2\0"))]), "'k' has a bool"),
    "key_twice": (raw_file([ARCHITECTURE, ARCHITECTURE]), "'general.architecture' is there twice"),
    "alignment_0": (raw_file([key("general.alignment", U32, u32(0))], [W]), "'general.alignment'"),
    "alignment_33": (raw_file([key("general.alignment", U32, u32(33))], [W]), "'general.alignment'"),
    "alignment_2_31": (raw_file([key("general.alignment", U32, u32(2**31))], [W]), "'general.alignment'"),
    "alignment_negative": (raw_file([key("general.alignment", I32, u32(2**32 - 32))], [W]), "'general.alignment'"),
    "alignment_string": (raw_file([key("general.alignment", STRING, string("32"))], [W]), "'general.alignment'"),
    "tensor_name_length": (raw_file(infos=[u64(HUGE) + b"abc"]), "name of tensor 1 of 1"),
    "tensor_name_not_utf8": (raw_file(infos=[info(b"\xff", [4])]), "UTF-8"),
    "tensor_name_empty": (raw_file(infos=[info("", [4])]), "name of tensor 1 of 1 is empty"),
    "tensor_twice": (raw_file(infos=[W, info("w", [4], offset=32)]), "'w' is there twice"),
    "dimensions_0": (raw_file(infos=[info("w", [])]), "'w' has 0 dimensions"),
    "dimensions_5": (raw_file(infos=[info("w", [1] * 5)]), "'w' has 5 dimensions"),
    "dimensions_2_31": (raw_file(infos=[string("w") + u32(2**31)]), "'w' has 2147483648 dimensions"),
    "dimension_zero": (raw_file(infos=[info("w", [4, 0])]), "'w' has a dimension of 0"),
    "dimension_2_62": (raw_file(infos=[info("w", [2**62])]), "'w' ends at byte"),
    "dimensions_overflow_to_0": (raw_file(infos=[info("w", [2**32, 2**32])]), "'w' ends at byte"),
    "dimensions_overflow_to_4": (raw_file(infos=[info("w", [2**62 + 1, 4])]), "'w' ends at byte"),
    "dimensions_2_256": (raw_file(infos=[info("w", [2**64 - 1] * 4)]), "'w' ends at byte"),
    "rows_not_whole_blocks": (raw_file(infos=[info("w", [33, 2], TYPE_Q4_0)]), "'w' has rows of 33 values"),
    "offset_outside": (raw_file(infos=[info("w", [4], offset=1 << 20)]), "'w' ends at byte"),
    "offset_2_64": (raw_file(infos=[info("w", [4], offset=2**64 - 32)]), "'w' ends at byte"),
    "offset_at_the_end": (raw_file(infos=[info("w", [4], offset=4096)]), "'w' ends at byte"),
    "misaligned": (raw_file(infos=[info("w", [4], offset=4)]), "'w' is misaligned"),
    "overlap": (raw_file(infos=[info("v", [16], offset=32), info("w", [16])]), "'w' and 'v' overlap"),
    "overlap_same": (raw_file(infos=[info("v", [4]), info("w", [4])]), "'v' and 'w' overlap"),
    "no_data": (raw_file(infos=[W], data=b""), "'w' ends at byte"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_FILES)
def test_damaged(write, case):
    content, said = BAD_FILES[case]
    path = write(content)
    tracemalloc.start()
    try:
        start = time.perf_counter()
        with pytest.raises(ModelFileError) as caught:
            GgufFile(path)
        seconds, peak = time.perf_counter() - start, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert_clear(caught.value, path, said)
    assert seconds < 2
    assert peak < 8 << 20


def test_long_and_odd_names_stay_one_line(write):
    path = write(raw_file([key("evil\n" * 1000, 13, b"")]))
    with pytest.raises(ModelFileError) as caught:
        GgufFile(path)
    assert_clear(caught.value, path, r"evil\nevil")


@pytest.mark.parametrize("type_id", [4, 5, 31, 32, 33, 36, 37, 38, 1000, 2**32 - 1])
def test_unknown_tensor_types(write, type_id):
    path = write(raw_file(infos=[info("blk.0.w", [256], type_id)]))
    with pytest.raises(UnsupportedModelError) as caught:
        GgufFile(path)
    assert_clear(caught.value, path, "'blk.0.w'", f"type {type_id} ", "unknown" if type_id > 40 else "GGML removed")


def test_every_type_of_ggml_has_its_size(write):
    for kind, (block, block_bytes) in gguf.GGML_QUANT_SIZES.items():
        with GgufFile(write(raw_file(infos=[info("w", [block * 2, 3], int(kind))]))) as file:
            assert file.tensor("w").type == kind.name
            assert file.tensor("w").data.shape == (3, 2 * block_bytes)


@pytest.mark.parametrize(
    ("version", "said"),
    [(1, "version 1"), (4, "version 4"), (0, "version 0"), (3 << 24, "big-endian"), (2 << 24, "big-endian")],
)
def test_versions_we_do_not_read(write, version, said):
    path = write(raw_file(version=version))
    with pytest.raises(UnsupportedModelError) as caught:
        GgufFile(path)
    assert_clear(caught.value, path, said)


def test_a_big_endian_file_of_the_gguf_package(tmp_path):
    path = tmp_path / "big.gguf"
    writer = gguf.GGUFWriter(path, "llama", endianess=gguf.GGUFEndian.BIG)
    writer.add_tensor("w", np.ones((2, 4), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(UnsupportedModelError, match="big-endian"):
        GgufFile(path)


def test_random_damage_never_escapes(sample, tmp_path):
    """Flipped bytes, inserted numbers, cut ends: the file parses or a CeraError says why not, quickly."""
    rng = random.Random(20)
    content = sample.read_bytes()
    header = content.rindex(b"q4_0.weight") + 50
    path = tmp_path / "damaged.gguf"
    n_refused = 0
    start = time.perf_counter()
    for trial in range(600):
        damaged = bytearray(content)
        for _ in range(rng.choice([1, 1, 1, 2, 8])):
            at = rng.randrange(header)
            if trial % 3:
                damaged[at] = rng.randrange(256)
            else:  # a number that looks like a count or a length
                damaged[at : at + 8] = u64(rng.choice([0, 1, 2, 3, 9, 255, 2**16, 2**31, 2**32, 2**63, 2**64 - 1]))
        if trial % 4 == 0:
            del damaged[rng.randrange(len(damaged)) :]
        path.write_bytes(damaged)
        try:
            with GgufFile(path) as file:
                for tensor in file.tensors.values():
                    tensor.data.sum()
        except CeraError as error:
            assert_clear(error, path)
            n_refused += 1
    assert 200 < n_refused < 600
    assert time.perf_counter() - start < 15


# ---- what is no GGUF file at all -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"GG", "not a GGUF file"),
        (b"Once upon a time\nthere was a llama", "text file ('Once upon a time"),
        ('{"architectures": ["Llämä"]}'.encode(), "text file"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 98362432\n", "git lfs pull"),
        (b"\n<!DOCTYPE html>\n<html><body>404</body></html>", "web page"),
        (b"<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>", "web page"),
        (u64(100) + b'{"model.weight":{"dtype":"F16"}}' + bytes(100), "safetensors"),
        (b"PK\x03\x04" + bytes(100), "zip archive"),
        (b"\x1f\x8b\x08" + bytes(100), "compressed"),
        (b"lmgg" + bytes(100), "older than GGUF"),
        (bytes(4096), "begins with zeros"),
        (b"\x7fELF\x02\x01\x01\x00" + bytes(100), r"b'\x7fELF'"),
    ],
)
def test_other_files_are_recognised(write, content, said):
    path = write(content)
    with pytest.raises(ModelFileError) as caught:
        GgufFile(path)
    assert_clear(caught.value, path, said)


def test_paths_that_are_no_files(tmp_path):
    for path, said in [
        (tmp_path, "is a directory"),
        (tmp_path / "absent.gguf", "does not exist"),
        (tmp_path / "a\0b", "cannot be read"),
        (tmp_path / ("long" * 100), "cannot be read"),
    ]:
        with pytest.raises(ModelFileError) as caught:
            GgufFile(path)
        assert_clear(caught.value, path, said)
    with pytest.raises(ModelFileError, match="is a directory"):
        GgufFile("")


def test_a_path_given_as_a_string(sample):
    with GgufFile(str(sample)) as file:
        assert file.path == sample


def test_no_permission(sample, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(gguf_file, "open", refuse, raising=False)  # root may read anything, so pretend
    with pytest.raises(ModelFileError) as caught:
        GgufFile(sample)
    assert_clear(caught.value, sample, "Permission denied")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_named_pipe_does_not_hang(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ModelFileError, match="not a regular file"):
        GgufFile(tmp_path / "pipe")


@pytest.mark.skipif(os.name == "nt", reason="Windows does not let a mapped file shrink")
@pytest.mark.parametrize("bytes_left", [0, 100, -1])
def test_a_file_that_shrinks_while_mapped(sample, write, bytes_left):
    content = sample.read_bytes()
    path = write(content)
    with GgufFile(path) as file:
        before = file.tensor("f16.weight").data.tobytes()
        os.truncate(path, bytes_left % len(content))
        for tensor in file.tensors.values():
            with pytest.raises(ModelFileError) as caught:
                _ = tensor.data
            assert_clear(caught.value, path, f"'{tensor.name}'", "shrank")
        path.write_bytes(content)  # whole again
        assert file.tensor("f16.weight").data.tobytes() == before


def test_a_file_deleted_while_mapped_still_reads(sample, write):
    path = write(sample.read_bytes())
    with GgufFile(path) as file:
        if os.name != "nt":
            path.unlink()
        assert file.tensor("f16.weight").data.any()


def test_a_failed_open_leaves_no_handle(write):
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("counts open files through /proc")
    path = write(raw_file(n_keys=2**60))
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        with pytest.raises(ModelFileError):
            GgufFile(path)
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before
