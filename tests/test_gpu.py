"""Choosing an adapter, and what the GPU's errors become."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from cera_py import gpu as gpu_module
from cera_py.errors import DeviceError, OutOfMemoryError
from cera_py.gpu import auto_choice, find_device, gpu_errors, list_devices


def adapter(name, kind, backend="Vulkan", vendor=0):
    info = {"device": name, "description": "", "backend_type": backend, "adapter_type": kind, "vendor_id": vendor}
    info |= {"stackgroup_min_size": 8, "stackgroup_max_size": 32}
    limits = {"max-storage-buffer-binding-size": 1 << 27, "max-buffer-size": 1 << 30}
    return SimpleNamespace(info=info, features={"subgroup"}, limits=limits)


SOFTWARE = adapter("llvmpipe", "CPU")
GL = adapter("Radeon GL", "IntegratedGPU", "OpenGL")
INTEGRATED = adapter("Radeon 780M", "IntegratedGPU")
DISCRETE = adapter("GeForce RTX 4090", "DiscreteGPU", vendor=0x10DE)


@pytest.fixture
def machine(monkeypatch):
    """machine(adapters): a machine that has these."""
    return lambda *adapters: monkeypatch.setattr(gpu_module, "_adapters", lambda: list(adapters))


@pytest.mark.parametrize(
    ("adapters", "chosen"),
    [
        ([SOFTWARE, INTEGRATED, DISCRETE], 2),
        ([DISCRETE, INTEGRATED], 0),
        ([GL, INTEGRATED], 1),
        ([SOFTWARE, GL], 1),
        ([SOFTWARE], None),
        ([], None),
    ],
)
def test_auto(machine, adapters, chosen):
    machine(*adapters)
    found = find_device("auto")
    assert (found[1].index if found else None) == chosen
    best, why = auto_choice(list_devices())
    assert (best.index if best else None) == chosen
    assert "\n" not in why
    assert [device.index for device in list_devices() if device.chosen] == ([] if chosen is None else [chosen])


def test_software_only_when_named(machine):
    machine(SOFTWARE)
    with pytest.raises(DeviceError, match=r"llvmpipe.*--device cpu"):
        find_device("gpu")
    assert find_device("llvm")[1].name == "llvmpipe"
    assert find_device("0")[1].name == "llvmpipe"
    assert find_device("cpu") is None


def test_a_part_of_a_name(machine):
    machine(SOFTWARE, GL, INTEGRATED, DISCRETE)
    assert find_device("4090")[1].index == 3
    assert find_device("RADEON")[1].index == 2
    assert find_device("opengl")[1].index == 1
    assert find_device("1")[1].index == 1


@pytest.mark.parametrize("wanted", ["7", "nonesuch", "", "-1"])
def test_no_such_device(machine, wanted):
    machine(SOFTWARE)
    with pytest.raises(DeviceError, match="llvmpipe"):
        find_device(wanted)


def test_no_adapter_at_all(machine):
    machine()
    with pytest.raises(DeviceError, match="none"):
        find_device("gpu")
    assert "driver" in auto_choice(list_devices())[1]


def test_subgroups_of_nvidia_are_32(machine):
    machine(INTEGRATED, DISCRETE)
    assert [device.subgroups for device in list_devices()] == ["8..32", "32"]


def test_wgpu_that_cannot_start(monkeypatch):
    def fail():
        raise DeviceError("wgpu could not start")

    monkeypatch.setattr(gpu_module, "_adapters", fail)
    assert find_device("auto") is None
    with pytest.raises(DeviceError):
        find_device("gpu")


@pytest.mark.parametrize(
    ("message", "error"),
    [
        ("Not enough memory left", OutOfMemoryError),
        ("Parent device is lost", DeviceError),
        ("Invalid\n\nbinding", DeviceError),
    ],
)
def test_errors_become_one_line(message, error):
    from wgpu import classes

    with pytest.raises(error, match="uploading weights") as raised, gpu_errors("uploading weights"):
        raise classes.GPUError(message)
    assert "\n" not in str(raised.value)


def test_a_buffer_larger_than_the_adapter_allows(gpu):
    with pytest.raises(OutOfMemoryError, match="the cache"):
        gpu.empty(1 << 62, "the cache")


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 1023])
def test_what_is_written_is_read(gpu, size):
    data = np.arange(size, dtype=np.uint8)
    buffer = gpu.upload(data, "bytes")
    assert np.array_equal(gpu.read(buffer, -(-size // 4) * 4)[:size], data)


def test_a_shader_must_get_all_its_buffers(gpu):
    shader = gpu.shader("add", {"COUNT": 4, "WORKGROUP": 32})
    with pytest.raises(ValueError, match="bindings"):
        gpu.dispatch(shader, {"x": gpu.empty(16, "x")})
