"""Subjects in Triton, on the CPU: their kernels are interpreted (triton_cpu/interpreter.py), on torch's tensors."""

import os
from collections.abc import Callable
from functools import wraps
from importlib import import_module, metadata
from typing import Any

from kernel_assay.corpus.model.interpreter_mends import INTERPRETED, KNOWN
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

    mended = True

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

    def prepare(self, seed: int, run: int, *, contracted: bool = False) -> None:  # noqa: ARG002  the interface asks for it
        """The programs of a grid run in order first, and then the other way round."""
        if not self.mended:
            return
        from kernel_assay.kernels.backends.triton_cpu.interpreter import Programs  # noqa: PLC0415  as above

        Programs.backwards = run == 1


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
