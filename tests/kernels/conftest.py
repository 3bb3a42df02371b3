"""The GPU that the kernel tests run on: a hardware adapter, else software Vulkan."""

import pytest

from cera_py.gpu import list_devices, open_device


@pytest.fixture(scope="session")
def gpu():
    devices = list_devices()
    if not devices:
        pytest.skip("no WebGPU adapter here (Debian: mesa-vulkan-drivers gives a software one)")
    best = min(devices, key=lambda device: (not device.hardware, device.backend.startswith("OpenGL")))
    device = open_device(str(best.index))
    yield device
    device.close()
