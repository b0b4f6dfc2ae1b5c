"""Common ground of backends on a GPU: how memory is copied, which stream they work on, what their errors mean."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from typing import Any

from kernel_assay.corpus.formats import Array
from kernel_assay.kernels.backends.cuda_support.driver import (
    device_count,
    exact,
    is_launch_failure,
    is_out_of_device_memory,
    stage,
)
from kernel_assay.kernels.backends.cuda_support.late_streams import is_streamed
from kernel_assay.kernels.backends.support.base import Loader
from kernel_assay.kernels.backends.support.free_memory import BYTES, blocks


def absent(package: str) -> str:
    """The reason why nothing runs on a GPU here that needs a package; empty if it does."""
    if not device_count():
        return "there is no CUDA device"
    return "" if find_spec(package) else f"{package} is not installed"


class OnGpu(Loader):
    """A mixin to be named before the loader whose subjects are run on a GPU."""

    walled = False

    def stage(self, slab: Array, outputs: Collection[Array]) -> None:
        """Have it copied as a whole."""
        del outputs
        stage(slab)

    def is_out_of_memory(self, error: BaseException) -> bool:
        """The host's or the GPU's."""
        return super().is_out_of_memory(error) or is_out_of_device_memory(error)

    def is_launch_failure(self, error: BaseException) -> bool:
        """Whether an error of the driver or of any library says that a launch failed."""
        return is_launch_failure(error)


class Streamed(OnGpu):
    """One whose subjects choose their streams themselves."""

    _fills: tuple[tuple[int, int], ...] = ()
    """Blocks of the library's pool that are filled before the next call: how many bytes, and with what byte."""

    def free_memory(self, sizes: Collection[int], run: int) -> AbstractContextManager[None]:
        """Have the call fill what the pool of its stream, which is known by then, hands out next."""
        self._fills = () if exact() else tuple((size, BYTES[run]) for size in sizes)
        return nullcontext()

    def _fill(self) -> None:
        """Fill blocks of the pool of the current stream; those of one size are all there at a time."""
        for size, byte in self._fills:
            [self._block(size, byte) for _ in blocks(size)]

    @abstractmethod
    def _block(self, size: int, byte: int) -> Any:
        """Memory of the library's pool on the GPU, full of a byte."""

    def prepare(self, seed: int, run: int, *, contracted: bool = False) -> None:
        """Choose whether the run is one on a stream of its own."""
        del contracted
        self.streamed = is_streamed(seed, run)
