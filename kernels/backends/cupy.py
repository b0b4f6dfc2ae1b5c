"""Subjects in CuPy, on a GPU: what they are called with is copied there and back, with the red zones around it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import cached_property, wraps
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from kernel_assay.corpus.formats import Array, format_of
from kernel_assay.kernels.backends.cuda_support.driver import Window, device_count, exact, give_up, lend_all
from kernel_assay.kernels.backends.cuda_support.gpu_memory import Streamed
from kernel_assay.kernels.backends.cuda_support.late_streams import arrive_late
from kernel_assay.kernels.backends.support.base import PythonLoader, Returned

_WHEELS = ("cupy", "cupy-cuda13x", "cupy-cuda12x", "cupy-cuda11x")
"""Distributions that have the package."""


class CupyLoader(Streamed, PythonLoader):
    """Cupy arrays over copies of the guarded memory, laid out as it is."""

    name = "cupy"
    packages = ("cupy",)
    gpu_only = True

    def unavailable(self) -> str:
        """Needs the package and a GPU."""
        return super().unavailable() or ("" if device_count() else "there is no CUDA device")

    def versions(self) -> dict[str, str]:
        """The wheel's, which is named after a version of CUDA."""
        found = {}
        for wheel in _WHEELS:
            try:
                found[wheel] = metadata.version(wheel)
            except metadata.PackageNotFoundError:
                continue
        return found

    def warm(self) -> None:
        """Make the context, and what cupy makes when it is first used."""
        self._cupy.zeros(1)
        self._wait()

    def _block(self, size: int, byte: int) -> Any:
        block = self._cupy.empty(size, np.uint8)
        block.fill(byte)
        return block

    def load(self, path: Path, function: str) -> Callable[..., Any]:
        """The function, so that it may be called with numpy views."""
        return self._lent(super().load(path, function))

    def load_there(self, path: Path, function: str, launch: str) -> Callable[..., Any]:
        """The function itself, which takes arrays of cupy."""
        del launch
        return super().load(path, function)

    def wrap_there(self, tensor: Any) -> Any:
        """An array over the same memory, same strides."""
        name = str(tensor.dtype).removeprefix("torch.")
        dtype = format_of(name).dtype
        _check(dtype)
        strides = tuple(dtype.itemsize * s for s in tensor.stride())
        memory = self._cupy.cuda.UnownedMemory(tensor.data_ptr(), max(1, tensor.nbytes), tensor)
        place = self._cupy.cuda.MemoryPointer(memory, 0)
        return self._cupy.ndarray(tuple(tensor.shape), dtype, memptr=place, strides=strides)

    def unwrap_there(self, result: Any) -> Any:
        """Accepts cupy arrays, through the interface that torch has, too."""
        if not hasattr(result, "__cuda_array_interface__"):
            raise TypeError(f"it returned {type(result).__name__}, not an array of cupy")
        import torch  # noqa: PLC0415  large cases are made by torch

        return torch.as_tensor(result, device="cuda")

    def unwrap(self, result: Any) -> Returned:
        """Accepts cupy arrays, which a loaded function has fetched already."""
        if not isinstance(result, _Fetched):
            raise TypeError(f"it returned {type(result).__name__}, not an array of cupy")
        found = super().unwrap(result.array)
        return dataclasses.replace(found, contiguous=result.contiguous, address=result.address)

    @cached_property
    def _cupy(self) -> Any:
        import cupy  # noqa: PLC0415  only worker processes ever import it

        if exact():
            cupy.cuda.set_allocator(None)  # no pool
        return cupy

    def _lent(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function on the GPU's memory as one on the host's."""

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            windows: list[_Copy] = []

            def lend(view: Array) -> Any:
                _check(view.dtype)
                window = Window.of(view)
                copy = next((w for w in windows if w.window is window), None)
                if copy is None:
                    copy = _Copy(self._cupy, window)
                    windows.append(copy)
                return copy.array(self._cupy, view)

            try:
                result = self._run(function, *lend_all(args, kwargs, lend), windows)
            except Exception:
                self._wait()  # whatever was raised: does anything run here any more?
                raise
            if exact():
                return result
            if isinstance(result, tuple | list):
                return tuple(self._fetched(r, windows) for r in result)
            return self._fetched(result, windows)

        return call

    def _run(
        self, function: Callable[..., Any], given: list[Any], named: dict[str, Any], windows: Sequence[_Copy]
    ) -> Any:
        """Call a function, and fetch what it has written."""
        if not self.streamed:
            self._fill()
            result = function(*given, **named)
            self._wait()
            for window in [] if exact() else windows:
                window.fetch()
            return result
        with self._cupy.cuda.Stream(non_blocking=True) as stream:
            arrive_late(stream.ptr, [window.late() for window in windows])
            self._fill()
            result = function(*given, **named)
            stream.synchronize()
            for window in windows:
                window.fetch()
        self._wait()
        return result

    def _wait(self) -> None:
        """Wait until all that was launched is done. Raises what went wrong with it, if the process can go on."""
        runtime = self._cupy.cuda.runtime
        try:
            runtime.deviceSynchronize()
        except runtime.CUDARuntimeError as error:
            try:
                runtime.deviceSynchronize()
            except runtime.CUDARuntimeError:
                give_up(error)
            raise

    def _fetched(self, result: Any, windows: Sequence[_Copy]) -> Any:
        if not isinstance(result, self._cupy.ndarray):
            return result
        address = next((at for w in windows if (at := w.on_host(int(result.data.ptr)))), 0)
        return _Fetched(self._cupy.asnumpy(result), bool(result.flags.c_contiguous), address)


def _check(dtype: np.dtype[Any]) -> None:
    if dtype.kind not in "fiu" or dtype.isbuiltin != 1:
        raise NotImplementedError(f"cupy has no {dtype.name}")


@dataclasses.dataclass(frozen=True, slots=True)
class _Fetched:
    """A result on the host."""

    array: Array
    contiguous: bool
    """Whether it was, on the GPU."""
    address: int
    """Of the host's memory that its first element is a copy of; 0 if of none."""


class _Copy:
    """A window on the host's memory and its copy on the GPU."""

    def __init__(self, cupy: Any, window: Window) -> None:
        self.window = window
        self._room = cupy.empty(window.shift + window.size, np.uint8)
        self._device = self._room[window.shift :]
        if not window.blank:
            self._device.set(window.host)

    def array(self, cupy: Any, view: Array) -> Any:
        """The array there of a view here."""
        place = self._room.data + (self.window.shift + self.window.first(view))
        return cupy.ndarray(view.shape, view.dtype, memptr=place, strides=view.strides)

    def late(self) -> tuple[int, int, int]:
        """The part that must be copied once more: to where, from where, and how many bytes."""
        self._before = self._device.copy()
        return int(self._device.data.ptr), int(self._before.data.ptr), self.window.size

    def fetch(self) -> None:
        """Copy all of it back."""
        self._device.get(out=self.window.host)

    def on_host(self, pointer: int) -> int:
        """The host's address of what lies at an address of the GPU; 0 if it is not in here."""
        offset = pointer - int(self._device.data.ptr)
        return self.window.start + offset if 0 <= offset < self.window.size else 0


LOADER = CupyLoader()
