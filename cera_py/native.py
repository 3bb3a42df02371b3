"""wgpu-native's C interface, for what wgpu-py has no call for, or one too slow for every token.

Handles are only as alive as the Python objects that own them: whoever passes one keeps the object.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray
from wgpu.backends.wgpu_native import _api

from cera_py.errors import DeviceError

_ffi: Any = _api.ffi  # type: ignore[attr-defined]
_lib: Any = _api.lib  # type: ignore[attr-defined]
_checked: Any = _api.libf  # the same functions, raising wgpu's errors  # type: ignore[attr-defined]

_SPIN_SECONDS = 0.002  # poll without a pause for so long, then in naps
_NAP_SECONDS = 0.0002


def shader_module(device: Any, label: str, code: str) -> Any:
    """Compile WGSL without bounds checks and loop guards, which cost 2..8 % of a step. Only for our own kernels."""
    text, name = _ffi.new("char[]", code.encode()), _ffi.new("char[]", label.encode())
    source = _ffi.new("WGPUShaderSourceWGSL *")
    source.chain.sType = _lib.WGPUSType_ShaderSourceWGSL
    source.code.data, source.code.length = text, len(text) - 1
    descriptor = _ffi.new("WGPUShaderModuleDescriptor *")
    descriptor.nextInChain = _ffi.cast("WGPUChainedStruct *", source)
    descriptor.label.data, descriptor.label.length = name, len(name) - 1
    module = _checked.wgpuDeviceCreateShaderModuleTrusted(device._internal, descriptor, 0)
    wrapper: Any = _api.GPUShaderModule
    return wrapper(label, module, device)


class Readback:
    """A buffer that results are copied to, for the CPU to map. One use at a time: submit with it, then collect."""

    def __init__(self, buffer: Any):
        self.buffer = buffer
        self.nbytes: int = buffer.size
        self.submitted: Future[None] | None = None
        self._status: int | None = None  # of the mapping, None while it is awaited

        @_ffi.callback("void(WGPUMapAsyncStatus, WGPUStringView, void *, void *)")  # type: ignore[untyped-decorator]
        def mapped(status: int, message: Any, userdata1: Any, userdata2: Any) -> None:
            self._status = status

        self._callback = _ffi.new("WGPUBufferMapCallbackInfo *")
        self._callback.mode = _lib.WGPUCallbackMode_AllowProcessEvents
        self._callback.callback = mapped
        self._keep = mapped

    def request(self) -> None:
        """Ask for the mapping; it comes once the GPU has done all that was submitted."""
        self._status = None
        _checked.wgpuBufferMapAsync(self.buffer._internal, _lib.WGPUMapMode_Read, 0, self.nbytes, self._callback[0])

    @property
    def is_mapped(self) -> bool:
        """Whether the result is there. Raises DeviceError when it will never be."""
        if self._status is None:
            return False
        if self._status != _lib.WGPUMapAsyncStatus_Success:
            raise DeviceError("the GPU device was lost before it gave a result: run again, or use --device cpu")
        return True

    def take(self, nbytes: int) -> NDArray[np.uint8]:
        """The first nbytes, once mapped; unmaps."""
        view = _checked.wgpuBufferGetConstMappedRange(self.buffer._internal, 0, self.nbytes)
        data = np.frombuffer(_ffi.buffer(view, nbytes), np.uint8).copy()
        _checked.wgpuBufferUnmap(self.buffer._internal)
        self.submitted = None
        return data


class Submitter:
    """Records dispatches on the calling thread; finishes and submits them, in order, on one of its own.

    `wgpuCommandEncoderFinish` takes as long as the recording and releases the GIL, so the two overlap.
    """

    def __init__(self, device: Any):
        self._device = device
        self._queue = device.queue
        self._thread = ThreadPoolExecutor(1, "cera_py submit")
        self._last: Future[None] | None = None

    def submit(
        self,
        work: Sequence[tuple[Any, Any, int, int, int]],
        copies: Sequence[tuple[Any, int, Any, int, int]],
        readback: Readback | None,
    ) -> None:
        """Run (pipeline, bind group, x, y, z) in one pass, then copies (source, offset, target, offset, bytes)."""
        encoder = _lib.wgpuDeviceCreateCommandEncoder(self._device._internal, _ffi.NULL)
        compute = _lib.wgpuCommandEncoderBeginComputePass(encoder, _ffi.NULL)
        set_pipeline = _lib.wgpuComputePassEncoderSetPipeline
        set_bind_group = _lib.wgpuComputePassEncoderSetBindGroup
        dispatch = _lib.wgpuComputePassEncoderDispatchWorkgroups
        null, bound = _ffi.NULL, None
        for pipeline, group, x, y, z in work:
            if pipeline is not bound:
                set_pipeline(compute, pipeline)
                bound = pipeline
            set_bind_group(compute, 0, group, 0, null)
            dispatch(compute, x, y, z)
        _lib.wgpuComputePassEncoderEnd(compute)
        _lib.wgpuComputePassEncoderRelease(compute)
        for source, source_at, target, target_at, nbytes in copies:
            _lib.wgpuCommandEncoderCopyBufferToBuffer(
                encoder, source._internal, source_at, target._internal, target_at, nbytes
            )
        self._last = self._thread.submit(self._finish, encoder, readback)
        if readback:
            readback.submitted = self._last

    def _finish(self, encoder: Any, readback: Readback | None) -> None:
        commands = _checked.wgpuCommandEncoderFinish(encoder, _ffi.NULL)
        _lib.wgpuCommandEncoderRelease(encoder)
        _checked.wgpuQueueSubmit(self._queue._internal, 1, _ffi.new("WGPUCommandBuffer[]", [commands]))
        _lib.wgpuCommandBufferRelease(commands)
        if readback:
            readback.request()

    def flush(self) -> None:
        """Wait until all that was recorded is submitted (not until it has run)."""
        if self._last:
            self._last.result()

    def wait(self, readback: Readback) -> None:
        """Wait until a readback is mapped, in polls that Ctrl-C can end (a blocking one stalls `submit`)."""
        assert readback.submitted is not None
        readback.submitted.result()
        until = time.perf_counter() + _SPIN_SECONDS
        while not readback.is_mapped:
            _lib.wgpuDevicePoll(self._device._internal, False, _ffi.NULL)
            if time.perf_counter() > until:
                time.sleep(_NAP_SECONDS)

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown()
