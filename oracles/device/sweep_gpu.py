"""The kernels of sweep.cu on the first GPU, by the driver's own interface and NVRTC."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from corpus.errors import InternalError
from corpus.formats import Array
from corpus.records import Case, Numerics
from oracles.catalog import contract_of
from oracles.device.sweep import DIGITS, LISTED, Found, Judge, first_of, gate_tables

SOURCE = Path(__file__).with_name("sweep.cu")
WORDS = 3 + 2 * LISTED
"""Of 64 bits, in what the kernels find."""
_GRID, _BLOCK = 132 * 16, 256


class _Gpu:
    """The driver, in a context of this process."""

    def __init__(self) -> None:
        from cuda.bindings import driver  # noqa: PLC0415  in this process only

        self._cuda = driver
        self.call("cuInit", 0)
        self._device = self.call("cuDeviceGet", 0)
        self.call("cuCtxSetCurrent", self.call("cuDevicePrimaryCtxRetain", self._device))

    def call(self, function: str, *arguments: Any) -> Any:
        """A function of the driver: its result. Raises InternalError."""
        error, *rest = getattr(self._cuda, function)(*arguments)
        if int(error):
            raise InternalError(f"{function}: {self._cuda.cuGetErrorName(error)[1].decode()}")
        return rest[0] if len(rest) == 1 else tuple(rest)

    @cached_property
    def architecture(self) -> str:
        """As compilers call it, sm_90."""
        kinds = self._cuda.CUdevice_attribute
        names = [f"CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_{part}" for part in ("MAJOR", "MINOR")]
        return "sm_" + "".join(str(self.call("cuDeviceGetAttribute", getattr(kinds, n), self._device)) for n in names)

    def kernels(self, names: Sequence[str]) -> dict[str, Any]:
        """Those of sweep.cu."""
        module = self.call("cuModuleLoadData", _compiled(self.architecture))
        return {name: self.call("cuModuleGetFunction", module, name.encode()) for name in names}

    def opened(self, handle: bytes) -> int:
        """Memory of another process; 0 if it cannot be had."""
        given = self._cuda.CUipcMemHandle()
        ctypes.memmove(given.getPtr(), handle, len(handle))  # the bindings show its bytes in some versions only
        flag = self._cuda.CUipcMem_flags.CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
        try:
            return int(self.call("cuIpcOpenMemHandle", given, int(flag)))
        except InternalError:
            return 0

    def sent(self, array: Array) -> int:
        """A copy of an array."""
        dense = np.ascontiguousarray(array)
        address = int(self.call("cuMemAlloc", dense.nbytes))
        self.call("cuMemcpyHtoD", address, dense.ctypes.data, dense.nbytes)
        return address

    def launch(self, kernel: Any, values: Sequence[Any]) -> None:
        """Run a kernel to its end."""
        packed = (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
        self.call("cuLaunchKernel", kernel, _GRID, 1, 1, _BLOCK, 1, 1, 0, 0, ctypes.addressof(packed), 0)
        self.call("cuCtxSynchronize")


def _compiled(architecture: str) -> bytes:
    """sweep.cu for a GPU. Raises InternalError with NVRTC's words."""
    from cuda.bindings import nvrtc  # noqa: PLC0415  in this process only

    def call(function: str, *arguments: Any) -> Any:
        error, *rest = getattr(nvrtc, function)(*arguments)
        if int(error):
            raise InternalError(f"{function}: {nvrtc.nvrtcGetErrorString(error)[1].decode()}")
        return rest[0] if rest else None

    program = call("nvrtcCreateProgram", SOURCE.read_bytes(), SOURCE.name.encode(), 0, [], [])
    options = [f"--gpu-architecture={architecture}".encode(), b"--std=c++17", b"--fmad=false"]
    try:
        call("nvrtcCompileProgram", program, len(options), options)
    except InternalError as error:
        said = b" " * int(call("nvrtcGetProgramLogSize", program))
        call("nvrtcGetProgramLog", program, said)
        raise InternalError(f"{SOURCE.name} does not compile: {said.decode('utf-8', 'replace')}") from error
    binary = bytes(call("nvrtcGetCUBINSize", program))
    call("nvrtcGetCUBIN", program, binary)
    return binary


def arguments_of(case: Case) -> tuple[str, int]:
    """The kernel for a part, and how many elements it has. Raises InternalError if there is none for it."""
    sizes = {name: t.size for name, t in case.tensors.items()}
    dtypes = {t.dtype for t in case.tensors.values()}
    if case.op == "convert" and dtypes == {"float32"} and case.attrs.get("to") in DIGITS:
        return "conversions", sizes["x"]
    if case.op == "silu_gate" and dtypes == {"float16"}:
        return "gated", sizes["gate"]
    raise InternalError(f"there is no kernel that judges {case.label}")


class DeviceJudge(Judge):
    """By the kernels."""

    def __init__(self, shared: Array, numerics: Numerics, handle: bytes) -> None:
        """handle: of the memory of the GPU that the outputs lie in; empty, or useless: they lie in `shared`."""
        self._gpu = _Gpu()
        self._kernels = self._gpu.kernels(["conversions", "gated"])
        self._shared, self._numerics = shared, numerics
        self._got = self._gpu.opened(handle) if handle else 0
        self.opened = bool(self._got)
        if not self.opened:
            self._got = int(self._gpu.call("cuMemAlloc", shared.size))
        self._found = self._gpu.sent(np.zeros(WORDS, np.uint64))

    @cached_property
    def _tables(self) -> list[Any]:
        tables = gate_tables(self._numerics)
        arrays = (tables.numbers, tables.act, tables.own, tables.wanted, tables.budgets, tables.accepted)
        addresses = [ctypes.c_void_p(self._gpu.sent(array)) for array in arrays]
        return [*addresses, ctypes.c_double(tables.u), ctypes.c_double(tables.tiny)]

    def judge(self, case: Case) -> Found:
        """Every element."""
        name, count = arguments_of(case)
        if not self.opened:
            specs = contract_of(case.op).output_specs(case)
            assert all(spec.dtype in DIGITS for spec in specs.values())
            self._gpu.call("cuMemcpyHtoD", self._got, self._shared.ctypes.data, 2 * count)
        words = fresh()
        self._gpu.call("cuMemcpyHtoD", self._found, words.ctypes.data, words.nbytes)
        places = [ctypes.c_void_p(self._got), ctypes.c_void_p(self._found)]
        numbers = [ctypes.c_uint64(first_of(case)), ctypes.c_uint64(count)]
        rest = map(ctypes.c_int, DIGITS[str(case.attrs["to"])]) if name == "conversions" else self._tables
        self._gpu.launch(self._kernels[name], [*places, *numbers, *rest])
        self._gpu.call("cuMemcpyDtoH", words.ctypes.data, self._found, words.nbytes)
        return found_in(words)


def fresh() -> Array:
    """What the kernels find, before they have looked."""
    words = np.zeros(WORDS, np.uint64)
    words[1] = np.iinfo(np.uint64).max
    return words


def found_in(words: Array) -> Found:
    """What the kernels have found."""
    failed = int(words[0])
    listed = min(failed, LISTED)
    pairs = zip(words[3 : 3 + listed].tolist(), words[3 + LISTED :][:listed].tolist(), strict=True)
    (rho,) = struct.unpack("d", words[2].tobytes())
    return Found(failed, tuple(sorted(pairs)), rho)
