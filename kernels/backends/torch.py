"""Subjects in PyTorch, on the CPU."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from kernel_assay.corpus.formats import Array, format_of
from kernel_assay.kernels.backends.support.base import PythonLoader, Returned, place_of
from kernel_assay.kernels.backends.support.torch_modules import called
from kernel_assay.kernels.backends.support.torch_settings import Settings


class TorchLoader(PythonLoader):
    """Torch tensors over the same guarded memory as the numpy views."""

    name = "torch"
    walled = True
    packages = ("torch",)

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
        found = self.load(path, function)
        if not (launch and isinstance(inspect.unwrap(found), type)):
            return found
        return called(self._torch, inspect.unwrap(found), launch, f"{path}:{function}")

    @cached_property
    def _foreign(self) -> dict[str, Any]:
        """Types that torch has and numpy has not: name -> torch dtype."""
        names = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
        return {name: getattr(self._torch, name) for name in names}

    def wrap(self, view: Array) -> Any:
        """A tensor over the same memory, same strides."""
        foreign = self._foreign.get(view.dtype.name)
        if foreign is None:
            return self._torch.from_numpy(view)
        return self._torch.from_numpy(view.view(f"i{view.dtype.itemsize}")).view(foreign)

    def unwrap(self, result: Any) -> Returned:
        """Accepts CPU tensors, also those that require grad."""
        if not isinstance(result, self._torch.Tensor):
            raise TypeError(f"it returned {type(result).__name__}, not a tensor")
        tensor = result.detach()
        name = str(tensor.dtype).removeprefix("torch.")
        dense, address = tensor.is_contiguous(), tensor.data_ptr()
        place = place_of(address, tensor.nbytes if dense else 1)
        tensor = tensor.cpu().contiguous()
        if name in self._foreign:
            integer = self._torch.int8 if tensor.element_size() == 1 else self._torch.int16
            array = tensor.view(integer).numpy().view(format_of(name).dtype)
        else:
            array = tensor.numpy()
        return Returned(np.array(array), name, dense, address, place)

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Torch's CPU allocator raises a plain RuntimeError."""
        return super().is_out_of_memory(error) or "can't allocate memory" in str(error)


LOADER = TorchLoader()
