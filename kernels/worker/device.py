"""A large case on a device: inputs are made there, everything is checked there by torch, and outputs stay there.

What the first run left is handed over to the judge, or sent (boundary/output_transfer.py). Beside CUDA, the CPU is a
device like any other: the same code runs. There is no run on a stream of its own (cuda_support/late_streams.py): small
cases have those.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from kernel_assay.corpus.formats import FORMATS
from kernel_assay.corpus.inputs.torch.field import CARRIERS
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.subject import Subject, TensorSpec
from kernel_assay.kernels.backends.cuda_support.driver import DRIVER
from kernel_assay.kernels.backends.support.base import Loader, Returned
from kernel_assay.kernels.boundary.protocol import Round
from kernel_assay.kernels.worker.device_guard import DeviceMemory
from kernel_assay.kernels.worker.executor import Access, Setting, loaded_by
from kernel_assay.kernels.worker.timed import host_round

_BUSY_CYCLES = 300_000
"""Of the GPU's clock: some 200 microseconds, in which a call is launched."""


class DeviceAccess(Access):
    """Subjects that are called with tensors on a device; whatever they return is looked at by torch."""

    def __init__(self, loader: Loader, device: str) -> None:
        super().__init__(loader)
        self.device = device

    def load(self, subject: Subject) -> Callable[..., Any]:
        """Load it without the copies that a loader on a GPU makes."""
        return loaded_by(self.loader.load_there, subject)

    def given(self, tensor: Tensor) -> Any:
        """A view of its own for every call."""
        return self.loader.wrap_there(tensor[...])

    def returned(self, result: Any) -> Returned:
        """Copy it; where it was is known all the same."""
        return self._copied(self.loader.unwrap_there(result).detach())

    def written(self, tensor: Tensor) -> Returned:
        """Copy it."""
        return self._copied(tensor)

    def _copied(self, tensor: Tensor) -> Returned:
        name = str(tensor.dtype).removeprefix("torch.")
        copied = tensor.to(self.device).clone(memory_format=torch.contiguous_format)
        return Returned(copied, name, tensor.is_contiguous(), tensor.data_ptr())

    def same(self, first: Tensor, second: Tensor) -> bool:
        """Compare them there."""
        return torch.equal(first, second)

    def bits(self, values: Returned) -> Tensor:
        """Signed integers."""
        tensor: Tensor = values.array
        return tensor.view(CARRIERS[FORMATS[values.dtype].bits]).reshape(-1)

    def is_nan(self, bits: Tensor, dtype: str) -> Tensor:
        """Torch has no isnan of every narrow type."""
        values = bits.view(getattr(torch, dtype))
        return (values if values.dtype == torch.float64 else values.float()).isnan()

    def first(self, mask: Tensor) -> int:
        """Torch has no argmax of booleans."""
        return int(mask.to(torch.uint8).argmax())

    def payload(self, values: Returned) -> Tensor:
        """A flat tensor of uint8."""
        return self.bits(values).view(torch.uint8)

    def timed_round(self, make: Callable[[int], Callable[[], Any]], asked: Round) -> tuple[Any, int]:
        """Time them by events around each call, with nothing waited for between them: so launches cost nothing there.

        Before each call twice the second level cache is written, and the GPU kept busy, so that the host has launched
        the call when the GPU comes to it.
        """
        if self.device != "cuda":
            return host_round(make, asked)
        answer, pairs = None, []
        self.loader.wait_for_launches(wait=False)
        try:
            with torch.device(self.device):
                for number in range(-asked.lead, asked.calls):
                    call = make(number)
                    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
                    _keep_busy(flush=bool(asked.flush))
                    answer = None
                    begin.record()
                    answer = call()
                    end.record()
                    pairs += [(begin, end)] if number >= 0 else []
        finally:
            self._wait()
            self.loader.wait_for_launches(wait=True)
        return answer, round(sum(begin.elapsed_time(end) for begin, end in pairs) * 1e6)

    def prepare(self, memory: Any, case: Case, run: int, order: int) -> None:
        """Wait until all that was enqueued before is done."""
        del memory, case, run, order
        self._wait()

    def call(self, function: Callable[[], Any]) -> Any:
        """Call it up to its end: an error after which nothing runs on the device ends the process."""
        with torch.device(self.device), contextlib.ExitStack() as stack:
            stack.callback(self._wait)
            return function()

    def _wait(self) -> None:
        if self.device == "cuda":
            DRIVER.check()


@cache
def _cold_memory() -> Tensor:
    """Bytes of the GPU, twice as many as its second level cache has."""
    return torch.empty(2 * torch.cuda.get_device_properties(0).L2_cache_size, dtype=torch.uint8, device="cuda")


def _keep_busy(*, flush: bool) -> None:
    if flush:
        _cold_memory().zero_()
    torch.cuda._sleep(_BUSY_CYCLES)  # type: ignore[no-untyped-call]  # noqa: SLF001  no other way to wait there


class DeviceSetting(Setting):
    """One large case on a device, in guarded memory."""

    large = True

    def __init__(self, case: Case, specs: dict[str, TensorSpec], device: str) -> None:
        """Raises what torch raises where there is no room."""
        memory = DeviceMemory(case, specs, device)
        super().__init__(case, specs, memory)
        self.rows = memory.rows_digest(case)
