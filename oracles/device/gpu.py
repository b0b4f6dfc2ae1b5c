"""A GPU of the oracle's own: memory, copies, kernels and events, by NVIDIA's bindings of the driver and of NVRTC."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kernel_assay.corpus.errors import InternalError, UsageError
from kernel_assay.corpus.formats import Array

Argument = ctypes.c_void_p | ctypes.c_int | ctypes.c_uint64 | ctypes.c_double
"""Of a kernel: an address of the device (None: null), or a number."""


class Gpu:
    """One device, in its primary context, with the kernels of one file, which is compiled when the first is launched.

    index: as the driver counts; source: CUDA C++; defines: macros for it. Everything is in order of its being asked
    for, launches return at once, copies wait. Raises UsageError if there is no such device, InternalError if the driver
    or the compiler refuses.
    """

    def __init__(self, index: int, source: str, defines: Mapping[str, int] | None = None) -> None:
        try:
            from cuda.bindings import driver, nvrtc  # noqa: PLC0415  missing where there is no GPU
        except ImportError:
            raise UsageError("package cuda-bindings is not installed; pip install 'kernel-assay[gpu]'") from None
        self._cuda: Any = driver
        self._nvrtc: Any = nvrtc
        self._source, self._defines, self._kernels = source, dict(defines or {}), dict[str, Any]()
        self._module: Any = None
        try:
            self._call("cuInit", 0)
        except RuntimeError as error:
            raise UsageError(f"there is no CUDA driver here ({error})") from None
        if not 0 <= index < self._call("cuDeviceGetCount"):
            raise UsageError(f"there is no CUDA device {index} here")
        self._device = self._call("cuDeviceGet", index)
        self._call("cuCtxSetCurrent", self._call("cuDevicePrimaryCtxRetain", self._device))
        self.multiprocessors = self._attribute("MULTIPROCESSOR_COUNT")

    def take(self, size: int) -> int:
        """The address of so many bytes, aligned to 256, with anything in them."""
        return int(self._call("cuMemAlloc", max(size, 1)))

    def free(self, address: int) -> None:
        """Give back what was taken."""
        self._call("cuMemFree", address)

    def sent(self, data: Array) -> int:
        """The address of a copy of an array that is not empty."""
        dense = np.ascontiguousarray(data)
        address = self.take(dense.nbytes)
        self.send(address, dense)
        return address

    def opened(self, handle: bytes) -> int:
        """The address of memory that another process exports. Raises InternalError if it cannot be had."""
        given = self._cuda.CUipcMemHandle()
        ctypes.memmove(given.getPtr(), handle, len(handle))  # the bindings show its bytes in some versions only
        flag = self._cuda.CUipcMem_flags.CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
        return int(self._call("cuIpcOpenMemHandle", given, int(flag)))

    def closed(self, address: int) -> None:
        """Let go of what was opened, when all that was asked for is done."""
        self._call("cuCtxSynchronize")
        self._call("cuIpcCloseMemHandle", address)

    def copy(self, address: int, source: int, size: int) -> None:
        """Copy bytes within the device."""
        self._call("cuMemcpyDtoD", address, source, size)

    def pin(self, data: Array) -> bool:
        """Lock a contiguous array of the host that is not empty, so that it is copied faster; whether that is done."""
        try:
            self._call("cuMemHostRegister", data.ctypes.data, data.nbytes, 0)
        except InternalError:
            return False  # as where little memory may be locked
        return True

    def unpin(self, data: Array) -> None:
        """Undo the lock of pages."""
        self._call("cuMemHostUnregister", data.ctypes.data)

    def zero(self, address: int, size: int) -> None:
        """Make bytes 0."""
        self._call("cuMemsetD8Async", address, 0, size, 0)

    def send(self, address: int, data: Array) -> None:
        """Copy a contiguous array that is not empty to the device."""
        self._call("cuMemcpyHtoD", address, data.ctypes.data, data.nbytes)

    def fetch(self, address: int, data: Array) -> None:
        """Fill a contiguous array that is not empty from the device."""
        self._call("cuMemcpyDtoH", data.ctypes.data, address, data.nbytes)

    def launch(self, kernel: str, blocks: int, threads: int, arguments: Sequence[Argument]) -> None:
        """Run a kernel of the file, in so many blocks of so many threads."""
        if kernel not in self._kernels:
            self._module = self._module or self._call("cuModuleLoadData", self._compiled())
            self._kernels[kernel] = self._call("cuModuleGetFunction", self._module, kernel.encode())
        packed = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(a) for a in arguments))
        shape = (blocks, 1, 1, threads, 1, 1)
        self._call("cuLaunchKernel", self._kernels[kernel], *shape, 0, 0, ctypes.addressof(packed), 0)

    def mark(self) -> Any:
        """An event that happens when all that was asked for before it is done."""
        event = self._call("cuEventCreate", 0)
        self._call("cuEventRecord", event, 0)
        return event

    def seconds(self, start: Any, end: Any) -> float:
        """Seconds between two events; waits for the later one and ends both."""
        self._call("cuEventSynchronize", end)
        milliseconds = float(self._call("cuEventElapsedTime", start, end))
        self._call("cuEventDestroy", start)
        self._call("cuEventDestroy", end)
        return milliseconds / 1e3

    def close(self) -> None:
        """Leave the context; what was taken and not given back stays until the process ends."""
        self._call("cuDevicePrimaryCtxRelease", self._device)

    def _call(self, function: str, *arguments: Any) -> Any:
        error, *rest = getattr(self._cuda, function)(*arguments)
        if int(error):
            raise InternalError(f"the oracle's GPU: {function}: {self._cuda.cuGetErrorName(error)[1].decode()}")
        return rest[0] if len(rest) == 1 else tuple(rest)

    def _attribute(self, name: str) -> int:
        kinds = self._cuda.CUdevice_attribute
        return int(self._call("cuDeviceGetAttribute", getattr(kinds, f"CU_DEVICE_ATTRIBUTE_{name}"), self._device))

    def _compiled(self) -> bytes:
        """The file for this device. Products and sums stay apart, for numbers are compared with the host's."""
        major, minor = (self._attribute(f"COMPUTE_CAPABILITY_{part}") for part in ("MAJOR", "MINOR"))
        defines = (f"--define-macro={name}={value}" for name, value in self._defines.items())
        options = [f"--gpu-architecture=sm_{major}{minor}", "--std=c++17", "--fmad=false", *defines]
        program = self._compiler("nvrtcCreateProgram", self._source.encode(), b"judge.cu", 0, [], [])
        error = self._nvrtc.nvrtcCompileProgram(program, len(options), [o.encode() for o in options])[0]
        if int(error):
            log = b" " * int(self._compiler("nvrtcGetProgramLogSize", program))
            self._compiler("nvrtcGetProgramLog", program, log)
            raise InternalError(f"the oracle's kernels do not compile: {log.decode(errors='replace').strip()[:2000]}")
        binary = bytes(int(self._compiler("nvrtcGetCUBINSize", program)))
        self._compiler("nvrtcGetCUBIN", program, binary)
        self._compiler("nvrtcDestroyProgram", program)
        return binary

    def _compiler(self, function: str, *arguments: Any) -> Any:
        error, *rest = getattr(self._nvrtc, function)(*arguments)
        if int(error):
            raise InternalError(f"the oracle's compiler: {function}: error {int(error)}")
        return rest[0] if rest else None
