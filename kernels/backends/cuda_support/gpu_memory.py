"""Common ground of backends on a GPU: how memory is copied, which stream they work on, what their errors mean."""

from __future__ import annotations

from importlib.util import find_spec

from kernel_assay.corpus.formats import Array
from kernel_assay.kernels.backends.cuda_support.driver import (
    device_count,
    is_launch_failure,
    is_out_of_device_memory,
    stage,
)
from kernel_assay.kernels.backends.cuda_support.late_streams import is_streamed
from kernel_assay.kernels.backends.support.base import Loader


def absent(package: str) -> str:
    """The reason why nothing runs on a GPU here that needs a package; empty if it does."""
    if not device_count():
        return "there is no CUDA device"
    return "" if find_spec(package) else f"{package} is not installed"


class OnGpu(Loader):
    """A mixin to be named before the loader whose subjects are run on a GPU."""

    walled = False

    def stage(self, slab: Array) -> None:
        """Have it copied as a whole."""
        stage(slab)

    def is_out_of_memory(self, error: BaseException) -> bool:
        """The host's or the GPU's."""
        return super().is_out_of_memory(error) or is_out_of_device_memory(error)

    def is_launch_failure(self, error: BaseException) -> bool:
        """Whether an error of the driver or of any library says that a launch failed."""
        return is_launch_failure(error)


class Streamed(OnGpu):
    """One whose subjects choose their streams themselves."""

    def prepare(self, seed: int, run: int, *, contracted: bool = False) -> None:
        """Choose whether the run is one on a stream of its own."""
        del contracted
        self.streamed = is_streamed(seed, run)
