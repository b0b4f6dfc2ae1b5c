"""A subject on a GPU whose inputs are made there and whose output stays there, for another process to read."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.formats import Array, format_of
from kernel_assay.corpus.inputs.torch.recipes import materialize
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.subject import Subject, TensorSpec
from kernel_assay.corpus.process.channel import Message
from kernel_assay.kernels.backends.cuda import CudaSubject, Plan
from kernel_assay.kernels.backends.cuda_support.driver import DRIVER, DriverError, address_of
from kernel_assay.kernels.backends.support.signature import Bound, Interface, bind
from kernel_assay.kernels.backends.torch import TorchLoader
from kernel_assay.kernels.boundary.output_transfer import HANDLE
from kernel_assay.kernels.catalog import resolve
from kernel_assay.kernels.gpu_backends import ON_GPU, GpuCudaLoader, GpuCudaSubject, packed
from kernel_assay.kernels.worker.stages import Stage, check_form


@dataclass(frozen=True, slots=True)
class _Raw:
    """Bytes of the GPU, as torch takes them from others."""

    address: int
    size: int

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": (self.size,), "typestr": "|u1", "data": (self.address, False), "version": 3}


class ResidentCudaSubject(GpuCudaSubject):
    """A file launched on tensors that are on the GPU already: what it is called with only stands for them."""

    there: ClassVar[dict[int, int]] = {}
    """Address of an array that stands for a tensor -> the tensor's on the GPU."""

    def _run(self, plan: Plan) -> None:
        shape = plan.shape
        values = packed(self.program.fast.takes(plan.number), plan.arguments, lambda address: self.there[address])
        DRIVER.launch(self.kernels[plan.number], shape.grid, shape.block, shape.dynamic_shared, values.address)


class ResidentCudaLoader(GpuCudaLoader):
    """Loads such subjects."""

    @property
    def kind(self) -> type[CudaSubject]:
        """The class of what is loaded."""
        return ResidentCudaSubject


class Resident(Stage):
    """The GPU; tensors are torch's, the output is memory of the driver's own, which can be opened by its handle."""

    def __init__(self, shared: Array, subject: Subject) -> None:
        """Raises UsageError if subjects of this backend do not run on a GPU."""
        if subject.backend not in {"cuda", "torch", "triton"}:
            raise UsageError(f"{subject.key} cannot be tried on every input on a GPU; CUDA C++, torch and Triton can")
        self._cuda = subject.backend == "cuda"
        ON_GPU["torch" if self._cuda else subject.backend].preload()
        import torch  # noqa: PLC0415  in this process only

        self._torch, self._shared = torch, shared
        assert DRIVER.context is not None
        self._address = int(DRIVER.call("cuMemAlloc", shared.size))
        self._out: Any = torch.as_tensor(_Raw(self._address, shared.size), device="cuda")
        self._inputs: list[Any] = []
        self._stands: list[Array] = []
        try:
            handle = DRIVER.call("cuIpcGetMemHandle", self._address)
            self.handle = ctypes.string_at(handle.getPtr(), HANDLE)  # the bindings show its bytes in some versions only
        except DriverError:
            self.handle = b""  # then every output is copied to the host

    def load(self, subject: Subject, face: Interface) -> Bound:
        """The function itself, of tensors; a CUDA file is launched by its front matter."""
        load: Callable[[Path, str, str], Any] = ResidentCudaLoader().load_with
        if not self._cuda:
            torch_loader = ON_GPU[subject.backend]
            load = lambda path, function, _: TorchLoader.load(torch_loader, path, function)  # type: ignore[arg-type]  # noqa: E731
        return bind(
            load(resolve(subject), subject.function, subject.launch), face, f"{subject.path}:{subject.function}"
        )

    def fill(self, case: Case) -> None:
        """Fill by the recipe, on the GPU."""
        self._inputs, self._stands = [], []  # first, so that there is room for others
        self._inputs = [materialize(recipe, "cuda") for recipe in case.tensors.values()]
        self._torch.cuda.synchronize()
        # Nothing of these is ever touched, so they take no memory.
        self._stands = [np.empty(t.shape, format_of(t.dtype).dtype) for t in case.tensors.values()]

    def poison(self, byte: int, output: TensorSpec) -> None:
        """Poison by torch."""
        del output
        self._out.fill_(byte)
        self._torch.cuda.synchronize()

    def call(self, bound: Bound, attrs: Message, output: TensorSpec) -> None:
        """Run it to its end: an error of the driver after which nothing runs any more ends the process."""
        if self._cuda:
            stand = np.empty(output.shape, format_of(output.dtype).dtype)
            pairs = zip(self._stands, self._inputs, strict=True)
            ResidentCudaSubject.there.clear()
            ResidentCudaSubject.there.update({address_of(s): x.data_ptr() for s, x in pairs})
            ResidentCudaSubject.there[address_of(stand)] = self._address
            bound.call(stand, *self._stands, **bound.attributes(attrs))
            return
        out = self._view(output)
        with self._torch.device("cuda"):
            if bound.returns:
                result = bound.call(*self._inputs, **bound.attributes(attrs))
                check_form(str(result.dtype).removeprefix("torch."), tuple(result.shape), output)
                out.copy_(result)
            else:
                bound.call(out, *self._inputs, **bound.attributes(attrs))
        self._torch.cuda.synchronize()

    def fetch(self, output: TensorSpec) -> None:
        """Fetch to the host."""
        DRIVER.call("cuMemcpyDtoH", address_of(self._shared), self._address, self._view(output).nbytes)

    def _view(self, output: TensorSpec) -> Any:
        fmt = format_of(output.dtype)
        size = int(np.prod(output.shape, dtype=np.int64)) * fmt.dtype.itemsize
        return self._out[:size].view(getattr(self._torch, output.dtype)).view(output.shape)
