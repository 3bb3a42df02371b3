"""The GPU through wgpu: which adapter, buffers, pipelines, recording and submitting dispatches, reading back."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cera_py.errors import DeviceError, OutOfMemoryError
from cera_py.kernels.kernel import Constant, Shader, assemble

if TYPE_CHECKING:
    from cera_py.native import Readback

Grid = tuple[int, int, int]
Binding = Any  # a wgpu.GPUBuffer, or (buffer, offset, size)

_HARDWARE = {"DiscreteGPU": 0, "IntegratedGPU": 1, "VirtualGPU": 2, "Unknown": 3}  # best first; "CPU" is software
_BACKENDS = {"Metal": 0, "D3D12": 0, "Vulkan": 0, "OpenGL": 1, "OpenGLES": 1}  # OpenGL reaches fewer features
_NVIDIA = 0x10DE  # PCI vendor
_LIMITS = (
    "max-buffer-size",
    "max-storage-buffer-binding-size",
    "max-storage-buffers-per-shader-stage",
    "max-compute-workgroup-storage-size",
    "max-compute-invocations-per-workgroup",
    "max-compute-workgroup-size-x",
    "max-compute-workgroups-per-dimension",
)


@dataclass(frozen=True)
class DeviceInfo:
    """What matters of one adapter. Sizes in bytes; `chosen`: the one that `auto` takes."""

    index: int
    name: str
    backend: str
    type: str
    max_binding_bytes: int
    max_buffer_bytes: int
    subgroups: str
    f16: bool
    int8_dot: bool
    chosen: bool = False

    @property
    def hardware(self) -> bool:
        """False for software rasterisers such as lavapipe, llvmpipe, SwiftShader and WARP."""
        return self.type in _HARDWARE


def _adapters() -> list[Any]:
    """All adapters, in wgpu's order. Raises DeviceError where wgpu itself cannot start."""
    os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())  # or Mesa's EGL complains on stderr
    try:
        import wgpu

        return list(wgpu.gpu.enumerate_adapters_sync())
    except Exception as error:
        raise DeviceError(
            f"wgpu could not start ({error}): reinstall it with `pip install wgpu`, or use the CPU"
        ) from None


def _describe(index: int, adapter: Any) -> DeviceInfo:
    info, features, limits = adapter.info, adapter.features, adapter.limits
    smallest, largest = _subgroup_sizes(adapter)
    sizes = str(smallest) if smallest == largest else f"{smallest}..{largest}"
    return DeviceInfo(
        index=index,
        name=info["device"] or info["description"],
        backend=info["backend_type"],
        type=info["adapter_type"],
        max_binding_bytes=limits["max-storage-buffer-binding-size"],
        max_buffer_bytes=limits["max-buffer-size"],
        subgroups=sizes if "subgroup" in features else "no",
        f16="shader-f16" in features,
        int8_dot=True,  # dot4I8Packed is part of WGSL: native where the driver has it, emulated elsewhere
    )


def _subgroup_sizes(adapter: Any) -> tuple[int, int]:
    """The fewest and the most threads of a subgroup. wgpu reports a range for NVIDIA, where it is always 32."""
    info = adapter.info
    nvidia = info["vendor_id"] == _NVIDIA
    return (32, 32) if nvidia else (info["stackgroup_min_size"], info["stackgroup_max_size"])


def _best(devices: Sequence[DeviceInfo]) -> DeviceInfo | None:
    hardware = [device for device in devices if device.hardware]
    return min(hardware, key=lambda d: (_BACKENDS.get(d.backend, 2), _HARDWARE[d.type], d.index), default=None)


def list_devices() -> list[DeviceInfo]:
    """Every adapter of this machine, the one that `auto` takes marked `chosen`; empty where there is none."""
    devices = [_describe(index, adapter) for index, adapter in enumerate(_adapters())]
    best = _best(devices)
    return [DeviceInfo(**{**vars(device), "chosen": device is best}) for device in devices]


def auto_choice(devices: Sequence[DeviceInfo]) -> tuple[DeviceInfo | None, str]:
    """The adapter that `auto` takes (None: the NumPy executor), and why, in one line."""
    best = _best(devices)
    if best:
        return best, f"auto takes [{best.index}] {best.name} ({best.backend}): the best hardware adapter"
    if devices:
        reason = "only software adapters here, and NumPy is faster than those; name one with --device to use it"
    else:
        reason = "no adapter found; a Vulkan driver and loader (Debian: libvulkan1), Metal or DX12 gives one"
    return None, f"auto takes the CPU through NumPy: {reason}"


def find_device(wanted: str) -> tuple[Any, DeviceInfo] | None:
    """The adapter that `wanted` names: auto, gpu, cpu, an index, or a part of a name. None means the NumPy executor.

    Raises DeviceError where nothing fits.
    """
    if wanted == "cpu":
        return None
    adapters = _adapters() if wanted != "auto" else _adapters_or_none()
    devices = [_describe(index, adapter) for index, adapter in enumerate(adapters)]
    best = _best(devices)
    if wanted in ("auto", "gpu"):
        chosen = best
    elif wanted in [str(device.index) for device in devices]:
        chosen = devices[int(wanted)]
    else:  # "4090" is no index, but may be a part of a name
        matches = [d for d in devices if wanted.lower() in f"{d.name} {d.backend}".lower()] if wanted else []
        chosen = min(matches, key=lambda d: (_HARDWARE.get(d.type, 9), _BACKENDS.get(d.backend, 2)), default=None)
    if chosen:
        return adapters[chosen.index], chosen
    if wanted == "auto":
        return None
    listing = "; ".join(f"[{d.index}] {d.name} ({d.backend}, {d.type})" for d in devices) or "none"
    if wanted == "gpu":
        raise DeviceError(f"no hardware GPU here (adapters: {listing}): install its driver, or use --device cpu")
    raise DeviceError(f"no adapter matches --device {wanted!r}: there are {listing}; `cera_py devices` shows them")


def open_device(wanted: str) -> Gpu | None:
    """The GPU that `wanted` names (`find_device`), opened."""
    found = find_device(wanted)
    return Gpu(*found) if found else None


def _adapters_or_none() -> list[Any]:
    try:
        return _adapters()
    except DeviceError:
        return []  # auto falls back to the CPU


@contextlib.contextmanager
def gpu_errors(doing: str) -> Iterator[None]:
    """Turn wgpu's exceptions into ours, with a remedy. `doing`: what failed, "uploading blk.0.attn_q.weight"."""
    from wgpu import classes

    try:
        yield
    except classes.GPUError as error:
        reason = " ".join(str(error).split())[:300]
        if isinstance(error, classes.GPUOutOfMemoryError) or "memory" in reason.lower():
            raise OutOfMemoryError(
                f"the GPU ran out of memory while {doing}: use a shorter --context, a smaller model, or --device cpu"
            ) from error
        if "lost" in reason.lower():
            raise DeviceError(
                f"the GPU device was lost while {doing} (driver reset, sleep): run again, or use --device cpu"
            ) from error
        raise DeviceError(f"the GPU refused while {doing}: {reason}") from error


@dataclass(frozen=True)
class Dispatch:
    """A pipeline with its bind group: what one dispatch needs besides its grid."""

    label: str
    pipeline: Any
    bind_group: Any


class Gpu:
    """One device: makes buffers and dispatches, submits them, reads results back."""

    def __init__(self, adapter: Any, info: DeviceInfo):
        from cera_py import native  # loads wgpu

        self.info = info
        self.subgroups = "subgroup" in adapter.features
        smallest, largest = _subgroup_sizes(adapter)
        self.is_nvidia = adapter.info["vendor_id"] == _NVIDIA
        self.subgroup_size = smallest if self.subgroups and smallest == largest else 0  # 0: the shader must ask
        # Software runs 4 or 8 threads at a time, and pays for every one more that a barrier has to wait for.
        self.max_lanes = 256 if info.hardware else 8  # threads that share a row of weights
        # threads that share a head or a token's row
        self.max_workgroup = 256 if info.hardware else 32
        self.max_binding_bytes = info.max_binding_bytes
        self.max_shared_bytes = adapter.limits["max-compute-workgroup-storage-size"]
        with gpu_errors(f"opening {info.name}"):
            self.device = adapter.request_device_sync(
                required_features=["subgroup"] if self.subgroups else [],
                required_limits={name: adapter.limits[name] for name in _LIMITS},
            )
        self.queue = self.device.queue
        self._native = native
        self._submitter = native.Submitter(self.device)
        self.allocated_bytes = 0
        self._buffers: list[Any] = []
        self._pipelines: dict[str, Any] = {}

    @property
    def name(self) -> str:
        """The adapter and its backend, "NVIDIA H200 (Vulkan)"."""
        return f"{self.info.name} ({self.info.backend})"

    def close(self) -> None:
        """Give all buffers back; nothing of this device may be used after."""
        self._submitter.close()
        for buffer in self._buffers:
            buffer.destroy()
        self._buffers.clear()
        self._pipelines.clear()

    def empty(self, nbytes: int, label: str) -> Any:
        """A zeroed storage buffer of at least nbytes."""
        import wgpu

        size = max(16, -(-nbytes // 16) * 16)
        if size > self.info.max_buffer_bytes:
            raise OutOfMemoryError(
                f"{label} needs a buffer of {size:,} bytes, more than {self.info.name} allows "
                f"({self.info.max_buffer_bytes:,}): use a shorter --context, or --device cpu"
            )
        usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_DST | wgpu.BufferUsage.COPY_SRC
        with gpu_errors(f"allocating {size:,} bytes for {label}"):
            buffer = self.device.create_buffer(label=label, size=size, usage=usage)
        self.allocated_bytes += size
        self._buffers.append(buffer)
        return buffer

    def upload(self, data: NDArray[Any], label: str) -> Any:
        """A storage buffer holding the bytes of `data`."""
        buffer = self.empty(data.nbytes, label)
        self.write(buffer, data)
        return buffer

    def write(self, buffer: Any, data: NDArray[Any], offset: int = 0) -> None:
        """Copy `data` into the buffer at `offset` bytes (a multiple of 4), ahead of whatever is submitted next."""
        flat = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        whole = flat.nbytes & ~3  # WebGPU copies whole words
        with gpu_errors(f"uploading {buffer.label}"):
            self._submitter.flush()
            if whole:
                self.queue.write_buffer(buffer, offset, flat[:whole])
            if whole != flat.nbytes:
                tail = np.zeros(4, np.uint8)
                tail[: flat.nbytes - whole] = flat[whole:]
                self.queue.write_buffer(buffer, offset + whole, tail)

    def read(self, buffer: Any, nbytes: int, offset: int = 0) -> NDArray[np.uint8]:
        """Wait for all that was submitted, then copy nbytes (a multiple of 4) back."""
        readback = self.readback(nbytes)
        self.submit([], [(buffer, offset, readback.buffer, 0, nbytes)], readback)
        return self.collect(readback)[:nbytes]

    def shader(
        self, name: str, constants: Mapping[str, Constant], parts: tuple[str, ...] = (), declarations: str = ""
    ) -> Shader:
        """Assemble a kernel for this device; one with LANES gets the reductions over threads that the device can do."""
        if "LANES" in constants:
            parts = ("reduce_subgroup" if self.subgroups else "reduce_shared", "reduce", *parts)
            constants = {**constants, "SUBGROUP_SIZE": self.subgroup_size}
        return assemble(name, constants, parts, declarations)

    def dispatch(self, shader: Shader, bindings: Mapping[str, Binding]) -> Dispatch:
        """Bind buffers, by the names of the shader's variables, to its pipeline, which is compiled once."""
        names = [name for name, _ in shader.bindings]
        if set(names) != set(bindings):
            raise ValueError(f"{shader.label} has bindings {names}, given {list(bindings)}")
        with gpu_errors(f"compiling {shader.label}"):
            pipeline, layout = self._pipeline(shader)
        entries = []
        for index, name in enumerate(names):
            binding = bindings[name]
            buffer, offset, size = binding if isinstance(binding, tuple) else (binding, 0, binding.size)
            entries.append({"binding": index, "resource": {"buffer": buffer, "offset": offset, "size": size}})
        with gpu_errors(f"binding the buffers of {shader.label}"):
            group = self.device.create_bind_group(layout=layout, entries=entries)
        return Dispatch(shader.label, pipeline, group)

    def _pipeline(self, shader: Shader) -> tuple[Any, Any]:
        import wgpu

        if shader.text not in self._pipelines:
            if os.environ.get("CERA_CHECKED"):  # keep the bounds checks, to find a kernel that reads past a buffer
                module = self.device.create_shader_module(label=shader.label, code=shader.text)
            else:
                module = self._native.shader_module(self.device, shader.label, shader.text)
            kinds = [wgpu.BufferBindingType.storage if w else "read-only-storage" for _, w in shader.bindings]
            layout = self.device.create_bind_group_layout(
                entries=[
                    {"binding": i, "visibility": wgpu.ShaderStage.COMPUTE, "buffer": {"type": kind}}
                    for i, kind in enumerate(kinds)
                ]
            )
            pipeline = self.device.create_compute_pipeline(
                layout=self.device.create_pipeline_layout(bind_group_layouts=[layout]),
                compute={"module": module, "entry_point": "main"},
            )
            self._pipelines[shader.text] = (pipeline, layout)
        return self._pipelines[shader.text]  # type: ignore[no-any-return]

    def submit(
        self,
        work: Sequence[tuple[Dispatch, Grid]],
        copies: Sequence[tuple[Any, int, Any, int, int]] = (),
        readback: Readback | None = None,
    ) -> None:
        """Run dispatches in order, in one pass, then copies (source, offset, target, offset, bytes).

        Returns before they have run. readback: a target of the copies, to `collect` later.
        """
        if readback and readback.submitted:  # its last result was never collected: an interrupt came in between
            self.collect(readback)
        with gpu_errors("submitting a step"):
            self._submitter.submit(
                [(d.pipeline._internal, d.bind_group._internal, *grid) for d, grid in work], copies, readback
            )

    def readback(self, nbytes: int) -> Readback:
        """A buffer that results can be copied to."""
        import wgpu

        with gpu_errors("allocating a readback buffer"):
            usage = wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST
            return self._native.Readback(self.device.create_buffer(size=-(-nbytes // 16) * 16, usage=usage))

    def collect(self, readback: Readback, nbytes: int | None = None) -> NDArray[np.uint8]:
        """Wait until the submission that the readback went with has run; its (first) bytes."""
        with gpu_errors("running a step"):
            self._submitter.wait(readback)
            return readback.take(nbytes or readback.nbytes)
