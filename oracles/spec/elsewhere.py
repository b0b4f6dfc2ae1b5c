"""References that run in a process of their own, as contracts know them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.formats import Array
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.subject import Numerics


class OutsideError(UsageError):
    """A reference does not take a case: that is outside of what its op is for, and says nothing about a kernel."""


class Elsewhere(Protocol):
    """Answers for a reference. A case that the reference refuses raises OutsideError."""

    @property
    def unfollowed(self) -> tuple[str, ...]:
        """What of it no estimate can follow, by name."""

    @property
    def source(self) -> str:
        """Where it stands: `FILE:NAME`, with a whole path."""

    @property
    def backend(self) -> str:
        """What it is written in: `torch` or `numpy`."""

    @property
    def launch(self) -> str:
        """What a kernel must know: of a module how it is made for a case, and what arguments are, if no tensors."""

    @property
    def rearranged(self) -> bool:
        """Whether arguments are other than the tensors of a case, or changed in place, or a gradient is asked for."""

    @property
    def differentiated(self) -> bool:
        """Whether it is the gradient of a function."""

    @property
    def weights(self) -> frozenset[str]:
        """Inputs that are weights of a module."""

    def positions(self, case: Case) -> Mapping[str, tuple[int, Array, Array]]:
        """Each output that holds positions: the axis that they are on, and limits of the numbers that they are of."""

    def native(self, case: Case) -> Mapping[str, Array]:
        """The outputs, as float64, of the reference itself in the dtypes of the inputs; none, if it fails there."""

    def prepare(self, cases: Sequence[Case]) -> None:
        """Ask about cases that will be asked about, all at once."""

    def shapes(self, case: Case) -> Mapping[str, tuple[int, ...]]:
        """Shapes of the outputs."""

    def want(self, case: Case) -> Mapping[str, Array]:
        """The exact outputs, in float64."""

    def limits(self, case: Case, numerics: Numerics) -> Mapping[str, tuple[Array, Array, Array]]:
        """Each output's value, and the limits between which a kernel's may lie under a declared arithmetic."""
