"""An output that another process of the oracle's holds, and what is found out about it there, without its bytes."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.coverage_share import Share
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.remote_array import Remote
from kernel_assay.oracles.judging.measure import Measured
from kernel_assay.oracles.large.suspects import MOST, Room, Suspects


@dataclass(frozen=True, slots=True)
class Summed:
    """Results of the sums of a product's rows (oracles/large/freivalds.py)."""

    share: Share
    """How much was looked at."""
    places: tuple[int, ...]
    """Flat indices of the elements that are farthest off in rows that are off; the oracle decides."""


class Held(Remote):
    """An output, or a reference in float64, beside others of the same shape; oracles/device/holder.py answers."""

    @abstractmethod
    def sizes(self) -> tuple[Remote, Remote]:
        """Sizes of oracles.large.suspects.sizes."""

    @abstractmethod
    def suspects(self, other: Held, room: Room, most: int = MOST) -> Suspects:
        """As oracles.large.suspects.suspects has it; room: made of the other's sizes. A reference is rounded first."""

    @abstractmethod
    def measured(self, other: Held) -> Measured:
        """The distance from a peer or a reference, without a budget."""

    @abstractmethod
    def algebra(self, case: Case, subject: Subject) -> Summed | None:
        """Of the product that this is, as subject left it; None if it is none, or there is no room for its inputs."""

    @abstractmethod
    def unwritten(self, first: int, count: int) -> str:
        """Words for where elements kept the poison, as oracles.large.sampled.unwritten_pattern has it."""
