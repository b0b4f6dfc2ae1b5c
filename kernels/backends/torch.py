"""Subjects in PyTorch: on the CPU over the guarded memory, on a GPU over a copy of it that is laid out as it is.

An error after which nothing runs on the GPU any more ends the process, as a crash of the subject.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, wraps
from pathlib import Path
from typing import Any, cast

import numpy as np

from kernel_assay.corpus.formats import Array, format_of
from kernel_assay.kernels.backends.cuda_support.driver import DRIVER, Window, exact, lend_all
from kernel_assay.kernels.backends.cuda_support.gpu_memory import Streamed, absent
from kernel_assay.kernels.backends.cuda_support.late_streams import arrive_late
from kernel_assay.kernels.backends.support.base import PythonLoader, Returned, place_of
from kernel_assay.kernels.backends.support.guard import ALIGNMENT
from kernel_assay.kernels.backends.support.importing import as_function
from kernel_assay.kernels.backends.support.rearranged import Differentiated, gradient_of, rearranged
from kernel_assay.kernels.backends.support.torch_modules import called, is_of_modules
from kernel_assay.kernels.backends.support.torch_settings import Settings


class TorchLoader(PythonLoader):
    """Torch tensors over the same guarded memory as the numpy views."""

    name = "torch"
    walled = True
    packages = ("torch",)
    _device = "cpu"
    """Where it gives tensors, and takes results."""

    def preload(self) -> None:
        """Import torch and hold it to one thread: results must not depend on the machine's load."""
        self._torch.set_num_threads(1)

    @cached_property
    def _torch(self) -> Any:
        import torch  # noqa: PLC0415  only worker processes ever import it

        return torch

    @cached_property
    def _settings(self) -> Settings:
        return Settings(self._torch)

    def load(self, path: Path, function: str) -> Callable[..., Any]:
        """The function, which runs with the settings that its file makes, and else with torch's own."""
        source = path.read_text("utf-8", "replace")
        return self._settings.kept(lambda: super(TorchLoader, self).load(path, function), source)

    def load_with(self, path: Path, function: str, launch: str) -> Callable[..., Any]:
        """A class of modules as a function of inputs and weights, by what its reference said; else as load."""
        return self._made(TorchLoader.load(self, path, function), path, function, launch, self._lending)

    def _made(
        self, found: Callable[..., Any], path: Path, function: str, launch: str, around: Callable[..., Any]
    ) -> Callable[..., Any]:
        if gradient := gradient_of(launch):
            forwards = self._forwards(found, path, function, launch, lambda inner: inner)
            return Differentiated(self._torch, forwards, gradient, around)
        return self._forwards(found, path, function, launch, around)

    def _forwards(
        self, found: Callable[..., Any], path: Path, function: str, launch: str, around: Callable[..., Any]
    ) -> Callable[..., Any]:
        if is_of_modules(launch) and isinstance(found, type):
            return cast("Callable[..., Any]", around(called(self._torch, found, launch, f"{path}:{function}")))
        return rearranged(as_function(found, f"{path}:{function}"), launch, around)

    def _lending(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function of this backend's tensors as one of what `wrap` makes."""
        return function

    @cached_property
    def _foreign(self) -> dict[str, Any]:
        """Types that torch has and numpy has not: name -> torch dtype."""
        names = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
        return {name: getattr(self._torch, name) for name in names}

    def wrap(self, view: Array) -> Any:
        """A tensor over the same memory, same strides."""
        foreign = self._foreign.get(format_of(view.dtype).name)
        if foreign is None:
            return self._torch.from_numpy(view)
        return self._torch.from_numpy(view.view(f"i{view.dtype.itemsize}")).view(foreign)

    def form(self, given: Any) -> Any:
        """Asked of torch itself: the tensor may have attributes of a subject's own by then."""
        usual = self._torch.Tensor
        if not isinstance(given, usual):
            return super().form(given)
        return type(given), usual.size(given), usual.stride(given), usual.data_ptr(given)

    def unwrap(self, result: Any) -> Returned:
        """Accepts CPU tensors, also those that require grad."""
        given = self._plain(result).detach()
        place = place_of(given.data_ptr(), given.nbytes if given.is_contiguous() else 1)  # of what is held, no copy
        tensor = given.resolve_conj().resolve_neg()
        name = str(tensor.dtype).removeprefix("torch.")
        dense, address = tensor.is_contiguous(), tensor.data_ptr()
        tensor = tensor.cpu().contiguous()
        if name in self._foreign:
            integer = self._torch.int8 if tensor.element_size() == 1 else self._torch.int16
            array = tensor.view(integer).numpy().view(format_of(name).dtype)
        else:
            array = tensor.numpy()
        return Returned(np.array(array), name, dense, address, place)

    def load_there(self, path: Path, function: str, launch: str) -> Callable[..., Any]:
        """The function itself, which takes tensors wherever they are."""
        return self._made(TorchLoader.load(self, path, function), path, function, launch, lambda found: found)

    def wrap_there(self, tensor: Any) -> Any:
        """The tensor itself."""
        return tensor

    def unwrap_there(self, result: Any) -> Any:
        """Accepts tensors."""
        return self._plain(result)

    def _plain(self, result: Any) -> Any:
        """The tensor that a subject gave back. Raises TypeError for what is none, or computes when it is looked at."""
        if not isinstance(result, self._torch.Tensor):
            raise TypeError(f"it returned {type(result).__name__}, not a tensor")
        kind, usual = type(result), (self._torch.Tensor, self._torch.nn.Parameter)
        for hook in ("__torch_function__", "__torch_dispatch__"):  # as bound methods they would be new each time
            if not any(_function(getattr(kind, hook)) is _function(getattr(one, hook)) for one in usual):
                raise TypeError(f"it returned {kind.__name__}, a class that runs code whenever a tensor is looked at")
        if kind is not usual[0]:  # its methods may be its own: what is there is torch's to say
            result = usual[0].as_subclass(result, usual[0])
        if result.device.type != self._device:
            raise TypeError(f"it returned a tensor on the device {result.device}, not on {self._device}")
        if result.layout is not self._torch.strided:
            layout = str(result.layout).removeprefix("torch.")
            raise TypeError(f"it returned a tensor of the layout {layout}, not a dense one")
        return result

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Torch's CPU allocator raises a plain RuntimeError."""
        return super().is_out_of_memory(error) or "can't allocate memory" in str(error)


def _function(method: Any) -> Any:
    """The function behind a method of a class."""
    return getattr(method, "__func__", method)


class GpuTorchLoader(Streamed, TorchLoader):
    """Functions of torch tensors on the GPU, each over a copy of the guarded memory, laid out as it is."""

    _device = "cuda"

    def __init__(self) -> None:
        self._lent: list[_Lent] = []
        """Of the last call: what it returns may lie there."""
        self._given: Any = None
        """What it was called with, which lasts until the next call, as any caller's does."""
        self._room: Any = None
        """Bytes on the GPU, for the first window of a call; others have their own."""

    def unavailable(self) -> str:
        """Needs a GPU."""
        return super().unavailable() or absent("torch")

    def warm(self) -> None:
        """Make the context, and what torch makes when it is first used."""
        self._torch.empty(1, device="cuda").fill_(0)
        DRIVER.check()

    def _block(self, size: int, byte: int) -> Any:
        return self._bytes(size).fill_(byte)

    def wrap(self, view: Array) -> Array:
        """The view itself: it is copied when the function is called."""
        return view

    def unwrap(self, result: Any) -> Returned:
        """Accepts tensors; one in the memory of an input is known as such."""
        found = super().unwrap(result)
        return replace(found, address=next((at for one in self._lent if (at := one.on_host(found.address))), 0))

    def _lending(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function on the GPU's memory as one on the host's."""

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            self._lent = []
            self._given = None
            try:
                return self._run(function, args, kwargs)
            except Exception:
                DRIVER.check()  # whatever was raised: does anything run here any more?
                raise

        return call

    def _run(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        given, named = self._given = lend_all(args, kwargs, self._lend)
        if not self.streamed:
            self._fill()
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
                self._fill()
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


LOADER = TorchLoader()
ON_GPU = GpuTorchLoader()
