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
    def launch(self) -> str:
        """What a kernel that is a module must know to be made for a case; empty for a function."""

    def prepare(self, cases: Sequence[Case]) -> None:
        """Ask about cases that will be asked about, all at once."""

    def shapes(self, case: Case) -> Mapping[str, tuple[int, ...]]:
        """Shapes of the outputs."""

    def want(self, case: Case) -> Mapping[str, Array]:
        """The exact outputs, in float64."""

    def limits(self, case: Case, numerics: Numerics) -> Mapping[str, tuple[Array, Array, Array]]:
        """Each output's value, and the limits between which a kernel's may lie under a declared arithmetic."""
