"""Subjects in CuPy, on a GPU: what they are called with is copied there and back, with the red zones around it."""

from __future__ import annotations

import ctypes
import dataclasses
import os
import sys
from collections.abc import Callable, Sequence
from functools import cache, cached_property, wraps
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from corpus.formats import Array
from kernels.backend import PythonLoader, Returned
from kernels.guarded import ALIGNMENT, ZONE

_WHEELS = ("cupy", "cupy-cuda13x", "cupy-cuda12x", "cupy-cuda11x")
"""Distributions that have the package."""


class CupyLoader(PythonLoader):
    """Cupy arrays over copies of the guarded memory, laid out as it is."""

    name = "cupy"
    packages = ("cupy",)

    def unavailable(self) -> str:
        """Needs the package and a GPU."""
        return super().unavailable() or ("" if _devices() else "there is no CUDA device")

    def versions(self) -> dict[str, str]:
        """The wheel's, which is named after a version of CUDA."""
        found = {}
        for wheel in _WHEELS:
            try:
                found[wheel] = metadata.version(wheel)
            except metadata.PackageNotFoundError:
                continue
        return found

    def load(self, path: Path, function: str) -> Callable[..., Any]:
        """The function, so that it may be called with numpy views."""
        return self._lent(super().load(path, function))

    def unwrap(self, result: Any) -> Returned:
        """Accepts cupy arrays, which a loaded function has fetched already."""
        if not isinstance(result, _Fetched):
            raise TypeError(f"it returned {type(result).__name__}, not an array of cupy")
        found = super().unwrap(result.array)
        return dataclasses.replace(found, contiguous=result.contiguous, address=result.address)

    @cached_property
    def _cupy(self) -> Any:
        import cupy  # noqa: PLC0415  only worker processes ever import it

        return cupy

    def _lent(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function on the GPU's memory as one on the host's."""

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            windows: list[_Window] = []

            def lend(value: Any) -> Any:
                if not isinstance(value, np.ndarray):
                    return value
                windows.append(_Window(self._cupy, value))
                return windows[-1].array

            result = function(*map(lend, args), **{name: lend(value) for name, value in kwargs.items()})
            self._wait()
            for window in windows:
                window.fetch()
            if isinstance(result, tuple | list):
                return tuple(self._fetched(r, windows) for r in result)
            return self._fetched(result, windows)

        return call

    def _wait(self) -> None:
        """Until all that was launched is done. Raises what went wrong with it, if the process can go on."""
        runtime = self._cupy.cuda.runtime
        try:
            runtime.deviceSynchronize()
        except runtime.CUDARuntimeError as error:
            try:
                runtime.deviceSynchronize()
            except runtime.CUDARuntimeError:
                sys.stderr.write(f"{error}\n")
                os._exit(1)  # nothing runs on the GPU any more in this process: who is next must have another
            raise

    def _fetched(self, result: Any, windows: Sequence[_Window]) -> Any:
        if not isinstance(result, self._cupy.ndarray):
            return result
        address = next((at for w in windows if (at := w.on_host(int(result.data.ptr)))), 0)
        return _Fetched(self._cupy.asnumpy(result), bool(result.flags.c_contiguous), address)


@dataclasses.dataclass(frozen=True, slots=True)
class _Fetched:
    """A result on the host."""

    array: Array
    contiguous: bool
    """Whether it was, on the GPU."""
    address: int
    """Of the host's memory that its first element is a copy of; 0 if of none."""


class _Window:
    """The memory from the first to the last element of a view, with a red zone on either side, and its copy on the GPU.

    What is between the elements is copied with them, and back with the zones: so the guards see what becomes of it.
    """

    def __init__(self, cupy: Any, view: Array) -> None:
        if view.dtype.kind not in "fiu" or view.dtype.isbuiltin != 1:
            raise NotImplementedError(f"cupy has no {view.dtype.name}")
        address = int(view.ctypes.data)
        low, high = byte_bounds(view) if view.size else (address, address)
        self._start, size = low - ZONE, high - low + 2 * ZONE
        self._host = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(self._start))
        shift = self._start % ALIGNMENT  # an address is aligned as well on the GPU, and no better
        room = cupy.empty(shift + size, np.uint8)
        self._device = room[shift:]
        self._device.set(self._host)
        place = room.data + (shift + address - self._start)
        self.array = cupy.ndarray(view.shape, view.dtype, memptr=place, strides=view.strides)

    def fetch(self) -> None:
        """Copy all of it back."""
        self._device.get(out=self._host)

    def on_host(self, pointer: int) -> int:
        """The host's address of what lies at an address of the GPU; 0 if it is not in here."""
        offset = pointer - int(self._device.data.ptr)
        return self._start + offset if 0 <= offset < self._host.size else 0


@cache
def _devices() -> int:
    """How many GPUs the driver has. It is asked itself, so that nothing is imported and no context is made."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return 0
    return count.value


LOADER = CupyLoader()
