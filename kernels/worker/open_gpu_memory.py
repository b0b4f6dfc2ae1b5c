"""The same on a GPU: inputs are made there, and the output lies in memory of the driver's own that another may open."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kernel_assay.corpus.formats import Array
from kernel_assay.corpus.inputs.torch.recipes import materialize
from kernel_assay.corpus.model.case import Case
from kernel_assay.kernels.backends.cuda_support.driver import DRIVER, DriverError, address_of
from kernel_assay.kernels.boundary.output_transfer import HANDLE
from kernel_assay.kernels.worker.open_memory import POISONS, OpenMemory


@dataclass(frozen=True, slots=True)
class _Raw:
    """Bytes of the GPU, as torch takes them from others."""

    address: int
    size: int

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": (self.size,), "typestr": "|u1", "data": (self.address, False), "version": 3}


class OpenGpuMemory(OpenMemory):
    """Memory of the GPU, which the judge's process opens by its handle, if the driver lets it."""

    def __init__(self, shared: Array) -> None:
        """shared: memory of the host that both processes map, for outputs that must be fetched."""
        super().__init__(shared)
        assert DRIVER.context is not None
        self._address = int(DRIVER.call("cuMemAlloc", shared.size))
        self._there: Tensor = torch.as_tensor(_Raw(self._address, shared.size), device="cuda")
        try:
            handle = DRIVER.call("cuIpcGetMemHandle", self._address)
            self.handle = ctypes.string_at(handle.getPtr(), HANDLE)  # the bindings show its bytes in some versions only
        except DriverError:
            self.handle = b""  # then every output is copied to the host

    def _made(self, case: Case) -> dict[str, Any]:
        return {name: materialize(recipe, "cuda") for name, recipe in case.tensors.items()}

    def _out(self) -> Tensor:
        out: Tensor = self._bytes(self._there)
        return out.view(getattr(torch, self._spec.dtype)).view(self._spec.shape)

    def reset(self, run: int) -> None:
        """Poison the output; the driver's memory has no red zones here."""
        self._there.fill_(POISONS[run])

    def fetch(self) -> None:
        """Copy it to the host."""
        DRIVER.call("cuMemcpyDtoH", address_of(self.slab), self._address, self._out().nbytes)
