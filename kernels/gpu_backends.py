"""Subjects on a GPU: .cu files compiled by NVRTC and launched through the driver, torch and Triton on its tensors.

What they are given is copied there and back, with the red zones around it. An error after which nothing runs on the GPU
any more ends the process, as a crash of the subject.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, wraps
from pathlib import Path
from typing import Any

from kernel_assay.corpus.formats import Array, format_of
from kernel_assay.kernels.backends.cuda import CudaLoader, CudaSubject, Plan
from kernel_assay.kernels.backends.cuda_support.device_code import compilers, kept_for
from kernel_assay.kernels.backends.cuda_support.driver import (
    DRIVER,
    Apart,
    Arena,
    Window,
    device_count,
    exact,
    lend_all,
    send_all,
)
from kernel_assay.kernels.backends.cuda_support.gpu_memory import OnGpu, Streamed
from kernel_assay.kernels.backends.cuda_support.late_streams import arrive_late
from kernel_assay.kernels.backends.simt.emulator import Argument
from kernel_assay.kernels.backends.simt.toolchain import Mode
from kernel_assay.kernels.backends.support.base import Loader, Returned
from kernel_assay.kernels.backends.support.guard import ALIGNMENT
from kernel_assay.kernels.backends.torch import TorchLoader

_ARENA = Apart() if exact() else Arena()
_VALUES = {
    "f4": ctypes.c_float,
    "f8": ctypes.c_double,
    "i1": ctypes.c_int8,
    "i2": ctypes.c_int16,
    "i4": ctypes.c_int32,
    "i8": ctypes.c_int64,
    "u1": ctypes.c_uint8,
    "u2": ctypes.c_uint16,
    "u4": ctypes.c_uint32,
    "u8": ctypes.c_uint64,
}
"""Of numbers, by the letters that describe a parameter."""


def _unavailable(package: str) -> str:
    if not device_count():
        return "there is no CUDA device"
    return "" if _installed(package) else f"{package} is not installed"


def _installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


@dataclass(frozen=True, slots=True)
class Packed:
    """Arguments of a launch, and the addresses of all of them, as the driver takes them."""

    values: list[Any]
    addresses: Any

    @property
    def address(self) -> int:
        """Address of the list of addresses."""
        return ctypes.addressof(self.addresses)


def packed(parameters: Sequence[str], arguments: Sequence[Argument], there: Callable[[int], int]) -> Packed:
    """The arguments of a kernel. parameters: as Module.takes; there: address on the host -> address on the GPU."""
    values: list[Any] = []
    for argument, parameter in zip(arguments, parameters, strict=True):
        if parameter[0] == "p":
            values.append(ctypes.c_void_p(there(argument.address) if argument.address else None))
        else:
            values.append(_VALUES[parameter[1:]](argument.whole if parameter[1] in "iu" else argument.real))
    return Packed(values, (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values)))


class GpuCudaSubject(CudaSubject):
    """A file whose kernels run on the GPU; what they take is read from what g++ made of it."""

    @cached_property
    def kernels(self) -> list[Any]:
        """Compiled for this GPU when they are first wanted. Raises UsageError if they do not compile."""
        compiled = kept_for(self.front, DRIVER.architecture)
        return DRIVER.kernels(compiled.binary, compiled.names)

    def _run(self, plan: Plan) -> None:
        if plan.prepared is None:
            plan.prepared = _Prepared({t.address: Window.at(t.address, t.bytes) for t in plan.tensors})
        apart = plan.prepared.apart
        send_all(_ARENA, apart)
        values, shape = plan.prepared.values(self.program.fast.takes(plan.number), plan.arguments), plan.shape
        kernel, wait = self.kernels[plan.number], exact() or not apart  # else a fetch waits
        DRIVER.launch(kernel, shape.grid, shape.block, shape.dynamic_shared, values.address, wait=wait)
        for window in apart:
            window.fetch()


class _Prepared:
    """The part of a launch that stays: the windows on its tensors, and its arguments while those stay."""

    def __init__(self, windows: dict[int, Window]) -> None:
        """windows: by the address on the host of the tensor that lies in each."""
        self._windows = windows
        self.apart = list(dict.fromkeys(windows.values()))
        self._places: list[int] = []
        self._packed: Packed | None = None

    def values(self, parameters: Sequence[str], arguments: Sequence[Argument]) -> Packed:
        """The arguments for where the windows are now."""
        places = [window.there(window.start) for window in self.apart]
        if self._packed is None or places != self._places:
            self._places = places
            self._packed = packed(parameters, arguments, lambda address: self._windows[address].there(address))
        return self._packed


class GpuCudaLoader(OnGpu, CudaLoader):
    """Kernels on the GPU."""

    def warm(self) -> None:
        """Make the context."""
        DRIVER.check()

    def unavailable(self) -> str:
        """Needs a GPU, and NVIDIA's packages."""
        if why := _unavailable("cuda"):
            return why
        return super().unavailable() or ("" if "nvrtc" in compilers() else "NVRTC is not installed")

    @property
    def modes(self) -> tuple[Mode, ...]:
        """Modes in which what is loaded is compiled by g++: only its parameters are read."""
        return (Mode.FAST,)

    @property
    def kind(self) -> type[CudaSubject]:
        """The class of what is loaded."""
        return GpuCudaSubject

    def load_with(self, path: Path, function: str, launch: str) -> Callable[..., Any]:
        """Compile the file for the GPU, too. Raises UsageError if it does not compile."""
        subject = super().load_with(path, function, launch)
        assert isinstance(subject, GpuCudaSubject)
        assert subject.kernels  # compiled now, too
        return subject


class GpuTorchLoader(Streamed, TorchLoader):
    """Functions of torch tensors on the GPU, each over a copy of the guarded memory, laid out as it is."""

    def __init__(self) -> None:
        self._lent: list[_Lent] = []
        """Of the last call: what it returns may lie there."""
        self._room: Any = None
        """Bytes on the GPU, for the first window of a call; others have their own."""

    def unavailable(self) -> str:
        """Needs a GPU."""
        return super().unavailable() or _unavailable("torch")

    def warm(self) -> None:
        """Make the context, and what torch makes when it is first used."""
        self._torch.empty(1, device="cuda").fill_(0)
        DRIVER.check()

    def wrap(self, view: Array) -> Array:
        """The view itself: it is copied when the function is called."""
        return view

    def unwrap(self, result: Any) -> Returned:
        """Accepts tensors; one in the memory of an input is known as such."""
        found = super().unwrap(result)
        return replace(found, address=next((at for one in self._lent if (at := one.on_host(found.address))), 0))

    def load(self, path: Path, function: str) -> Callable[..., Any]:
        """The function, so that it may be called with numpy views."""
        return self._lending(super().load(path, function))

    def _lending(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function on the GPU's memory as one on the host's."""

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            self._lent = []
            try:
                return self._run(function, args, kwargs)
            except Exception:
                DRIVER.check()  # whatever was raised: does anything run here any more?
                raise

        return call

    def _run(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        given, named = lend_all(args, kwargs, self._lend)
        with self._torch.device("cuda"):  # where a function makes tensors of its own
            result = (self._late(function) if self.streamed else function)(*given, **named)
        if not self.streamed:  # else it is the subject that must have waited
            DRIVER.check()
        for one in [] if exact() else self._lent:
            if one.window.size:
                DRIVER.call("cuMemcpyDtoH", one.window.start, one.device.data_ptr(), one.window.size)
        DRIVER.check()
        return result

    def _late(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function on a stream of its own, where its inputs arrive late."""

        def call(*args: Any, **kwargs: Any) -> Any:
            stream = self._torch.cuda.Stream()
            DRIVER.check()  # the inputs are there, which this stream would not wait for
            with self._torch.cuda.stream(stream):
                sources = [one.device.clone() for one in self._lent]
                pairs = zip(self._lent, sources, strict=True)
                arrive_late(stream.cuda_stream, [(a.device.data_ptr(), b.data_ptr(), b.nbytes) for a, b in pairs])
                result = function(*args, **kwargs)
                stream.synchronize()
            return result

        return call

    def _lend(self, view: Array) -> Any:
        """A tensor on the GPU over a copy of what a view's elements lie in."""
        window = Window.of(view)
        lent = next((one for one in self._lent if one.window is window), None) or self._sent(window)
        size = view.itemsize
        first, strides = window.shift + window.first(view), tuple(s // size for s in view.strides)
        return lent.room.view(self._dtype_of(view)).as_strided(view.shape, strides, first // size)

    def _sent(self, window: Window) -> _Lent:
        """A window's copy; the memory of the first one is kept for the next call, unless allocations are exact."""
        wanted = window.shift + window.size
        if exact():
            room = self._bytes(wanted)
        else:
            wanted = -(-wanted // ALIGNMENT) * ALIGNMENT  # a multiple of every element's size
            if self._lent:
                room = self._bytes(wanted)
            else:
                if self._room is None or self._room.numel() < wanted:
                    self._room = self._bytes(2 * wanted)
                room = self._room
        device = room[window.shift : window.shift + window.size]
        if window.size and not window.blank:
            DRIVER.call("cuMemcpyHtoD", device.data_ptr(), window.start, window.size)
        self._lent.append(_Lent(window, room, device))
        return self._lent[-1]

    def _bytes(self, size: int) -> Any:
        return self._torch.empty(size, dtype=self._torch.uint8, device="cuda")

    def _dtype_of(self, view: Array) -> Any:
        name = format_of(view.dtype).name
        return self._foreign.get(name) or getattr(self._torch, name)


@dataclass(frozen=True, slots=True)
class _Lent:
    """A window and its copy on the GPU: memory that holds it, and its part."""

    window: Window
    room: Any
    device: Any

    def on_host(self, pointer: int) -> int:
        """The host's address of what lies at an address of the GPU; 0 if it is not in here."""
        offset = pointer - int(self.device.data_ptr())
        return self.window.start + offset if 0 <= offset < self.window.size else 0


class GpuTritonLoader(GpuTorchLoader):
    """Functions that launch compiled kernels. A process compiles kernels or interprets them, never both."""

    name = "triton"
    packages = ("triton", "torch")  # type: ignore[assignment]  # as many as Loader allows

    def preload(self) -> None:
        """Import torch, and Triton as a compiler."""
        os.environ.pop("TRITON_INTERPRET", None)
        super().preload()


ON_GPU: dict[str, Loader] = {"cuda": GpuCudaLoader(), "torch": GpuTorchLoader(), "triton": GpuTritonLoader()}
"""By backend; those of cupy run nowhere else, and need no other loader."""
