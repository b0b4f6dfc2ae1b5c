"""Subjects in Triton, on the CPU: their kernels are interpreted (triton_cpu/interpreter.py), on torch's tensors."""

import os
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from importlib import import_module, metadata
from typing import Any

from kernel_assay.corpus.formats import Array
from kernel_assay.corpus.model.interpreter_mends import INTERPRETED, KNOWN
from kernel_assay.kernels.backends.simt.schedule import is_checked_run
from kernel_assay.kernels.backends.torch import GpuTorchLoader, TorchLoader


class TritonLoader(TorchLoader):
    """Functions that launch kernels, given torch tensors on the CPU.

    A process interprets kernels or compiles them, and this loader only ever interprets: whoever compiles needs another
    process, in which it is not preloaded.
    """

    name = INTERPRETED
    interprets = True
    walled = False
    packages = ("triton", "torch")  # type: ignore[assignment]  # as many as Loader allows

    judges = mended = True
    _judge: Any = None
    """What judges launches; None before the first run, and where nothing is mended."""
    _outputs: Collection[int] = ()
    """Addresses of the outputs."""

    def unavailable(self) -> str:
        """Refuses a version whose interpreter nobody has mended: its kernels would fail for what is wrong with us."""
        if why := super().unavailable():
            return why
        found = metadata.version("triton")
        if not self.mended or found.startswith(f"{KNOWN}."):
            return ""
        return f"its interpreter is mended for Triton {KNOWN} and this is {found}; --as-is runs it as it is"

    def preload(self) -> None:
        """Import torch, and Triton as an interpreter."""
        super().preload()
        os.environ["TRITON_INTERPRET"] = "1"
        if not self.mended:
            import_module("triton")
            return
        from kernel_assay.kernels.backends.triton_cpu.interpreter import mend  # noqa: PLC0415  it imports Triton, which reads the variable

        mend()

    def noted_launches(self) -> list[str]:
        """Kernels that are interpreted."""
        return _noted_launches()

    def stage(self, slab: Array, outputs: Collection[Array]) -> None:
        """Remember where the outputs lie."""
        super().stage(slab, outputs)
        self._outputs = {_address_of(view) for view in outputs}

    def prepare(self, seed: int, run: int, *, contracted: bool = False) -> None:
        """Choose the order of programs, which in the second run is that of the first reversed, and who is judged."""
        if not self.mended:
            return
        from kernel_assay.kernels.backends.triton_cpu.interpreter import Programs  # noqa: PLC0415  as above
        from kernel_assay.kernels.backends.triton_cpu.judge import JUDGE  # noqa: PLC0415  as above

        Programs.seed, Programs.backwards = seed, run == 1
        JUDGE.prepare(checked=is_checked_run(seed, run, contracted=contracted))
        self._judge = JUDGE

    def wrap(self, view: Array) -> Any:
        """A tensor over the same memory; the judge is told of outputs."""
        made = super().wrap(view)
        if self._judge and _address_of(view) in self._outputs:
            self._judge.allocated(made)
        return made

    @contextmanager
    def free_memory(self, sizes: Collection[int], run: int) -> Iterator[None]:
        """Fill free memory, and see what is taken of it where a run is judged."""
        with ExitStack() as stack:
            stack.enter_context(super().free_memory(sizes, run))
            if self._judge:
                stack.enter_context(self._judge.watching())
            yield

    @contextmanager
    def at_ends(self, count: int) -> Iterator[list[tuple[int, ...]]]:
        """Run so many programs from either end of each grid, with their bounds checked; the grids are given back."""
        from kernel_assay.kernels.backends.triton_cpu.interpreter import Programs  # noqa: PLC0415  as above
        from kernel_assay.kernels.backends.triton_cpu.judge import JUDGE  # noqa: PLC0415  as above

        JUDGE.prepare(checked=False)
        Programs.ends = count
        Programs.grids.clear()
        try:
            yield Programs.grids
        finally:
            Programs.ends = None

    def warnings(self) -> list[str]:
        """Stores of several programs to one place that change nothing: the first of each launch."""
        return self._judge.warnings if self._judge else []


def _address_of(view: Array) -> int:
    return int(view.__array_interface__["data"][0])


class GpuTritonLoader(GpuTorchLoader):
    """Functions that launch compiled kernels. A process compiles kernels or interprets them, never both."""

    name = "triton"
    packages = ("triton", "torch")  # type: ignore[assignment]  # as many as Loader allows

    def preload(self) -> None:
        """Import torch, and Triton as a compiler."""
        os.environ.pop("TRITON_INTERPRET", None)
        super().preload()

    def noted_launches(self) -> list[str]:
        """Kernels that are compiled."""
        return _noted_launches()


def _noted_launches() -> list[str]:
    """A list of the launches from now on, whoever asked for it: there is no way back."""
    from triton.runtime import interpreter, jit  # noqa: PLC0415  only worker processes import it

    noted: list[str] = []
    for kind in (jit.JITFunction, interpreter.InterpretedFunction):
        kind.run = _noting(kind.run, noted)
    return noted


def _noting(run: Callable[..., Any], noted: list[str]) -> Callable[..., Any]:
    @wraps(run)
    def more(kernel: Any, *args: Any, **kwargs: Any) -> Any:
        noted.append(str(kernel.fn.__name__))
        return run(kernel, *args, **kwargs)

    return more


LOADER = TritonLoader()
ON_GPU = GpuTritonLoader()
