"""Subjects in CuPy, on a GPU: what they are called with is copied there and back, with the red zones around it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import cached_property, wraps
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from corpus.formats import Array
from kernels.backend import PythonLoader, Returned
from kernels.gpu import Window, call_with, device_count, exact, give_up

_WHEELS = ("cupy", "cupy-cuda13x", "cupy-cuda12x", "cupy-cuda11x")
"""Distributions that have the package."""


class CupyLoader(PythonLoader):
    """Cupy arrays over copies of the guarded memory, laid out as it is."""

    name = "cupy"
    packages = ("cupy",)

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

        if exact():
            cupy.cuda.set_allocator(None)  # no pool
        return cupy

    def _lent(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function on the GPU's memory as one on the host's."""

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            windows: list[_Copy] = []

            def lend(view: Array) -> Any:
                windows.append(_Copy(self._cupy, view))
                return windows[-1].array

            result = call_with(function, args, kwargs, lend)
            self._wait()
            if exact():
                return result
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
                give_up(error)
            raise

    def _fetched(self, result: Any, windows: Sequence[_Copy]) -> Any:
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


class _Copy:
    """A window on the host's memory and its copy on the GPU, and the array in it."""

    def __init__(self, cupy: Any, view: Array) -> None:
        if view.dtype.kind not in "fiu" or view.dtype.isbuiltin != 1:
            raise NotImplementedError(f"cupy has no {view.dtype.name}")
        self._window = window = Window.of(view)
        room = cupy.empty(window.shift + window.size, np.uint8)
        self._device = room[window.shift :]
        if not window.blank:
            self._device.set(window.host)
        place = room.data + (window.shift + window.first(view))
        self.array = cupy.ndarray(view.shape, view.dtype, memptr=place, strides=view.strides)

    def fetch(self) -> None:
        """Copy all of it back."""
        self._device.get(out=self._window.host)

    def on_host(self, pointer: int) -> int:
        """The host's address of what lies at an address of the GPU; 0 if it is not in here."""
        offset = pointer - int(self._device.data.ptr)
        return self._window.start + offset if 0 <= offset < self._window.size else 0


LOADER = CupyLoader()
