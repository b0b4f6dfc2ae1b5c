"""An output that another process of the judge's holds, and what is found out about it there, without its bytes."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from corpus.records import Case, Subject
from corpus.remote import Remote
from corpus.share import Share
from oracles.measure import Measured
from oracles.suspects import MOST, Room, Suspects


@dataclass(frozen=True, slots=True)
class Summed:
    """What sums of the rows of a product say (oracles/freivalds.py)."""

    share: Share
    """How much was looked at."""
    places: tuple[int, ...]
    """Flat indices of the elements that are farthest off in rows that are off; the oracle decides."""


class Held(Remote):
    """An output, or a reference in float64, beside others of the same shape; oracles/device/holder.py answers."""

    @abstractmethod
    def sizes(self) -> tuple[Remote, Remote]:
        """As oracles.suspects.sizes has it."""

    @abstractmethod
    def suspects(self, other: Held, room: Room, most: int = MOST) -> Suspects:
        """As oracles.suspects.suspects has it; room: made of the other's sizes. A reference is rounded first."""

    @abstractmethod
    def measured(self, other: Held) -> Measured:
        """The distance from a peer or a reference, without a budget."""

    @abstractmethod
    def algebra(self, case: Case, subject: Subject) -> Summed | None:
        """Of the product that this is, as subject left it; None if it is none, or there is no room for its inputs."""

    @abstractmethod
    def unwritten(self, first: int, count: int) -> str:
        """Where the elements lie that kept the poison, as oracles.sampled.unwritten_pattern has it."""
