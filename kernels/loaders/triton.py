"""Subjects in Triton, on the CPU: their kernels are interpreted (kernels/triton_interpreter.py), on torch's tensors."""

import os

from kernels.loaders.torch import TorchLoader


class TritonLoader(TorchLoader):
    """Functions that launch kernels, given torch tensors on the CPU.

    A process interprets kernels or compiles them, and this loader only ever interprets: whoever compiles needs another
    process, in which it is not preloaded.
    """

    name = "triton"
    interprets = True
    walled = False
    packages = ("triton", "torch")  # type: ignore[assignment]  # as many as Loader allows

    def preload(self) -> None:
        """Import torch, and Triton as an interpreter."""
        super().preload()
        os.environ["TRITON_INTERPRET"] = "1"
        from kernels.triton_interpreter import mend  # noqa: PLC0415  it imports Triton, which reads the variable

        mend()

    def prepare(self, seed: int, run: int, *, contracted: bool = False) -> None:  # noqa: ARG002  the interface asks for it
        """The programs of a grid run in order first, and then the other way round."""
        from kernels.triton_interpreter import Programs  # noqa: PLC0415  as above

        Programs.backwards = run == 1


LOADER = TritonLoader()
