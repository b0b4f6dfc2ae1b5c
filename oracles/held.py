"""An output that another process of the judge's holds, and what is found out about it there, without its bytes."""

from __future__ import annotations

from abc import abstractmethod

from corpus.remote import Remote
from oracles.measure import Measured
from oracles.suspects import MOST, Room, Suspects


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
    def unwritten(self, first: int, count: int) -> str:
        """Where the elements lie that kept the poison, as oracles.sampled.unwritten_pattern has it."""
