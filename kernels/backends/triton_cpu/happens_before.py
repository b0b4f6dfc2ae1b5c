"""Order among programs of a launch: of two nothing is ordered but what atomic operations hand from one to the other.

Programs run to their end one after the other here, so that only one at a time has anything to remember. An access is
kept as a stamp: the program plus 1, how often it had released before, the number of the line, and two flags.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Stamps = NDArray[np.int64]
Mask = NDArray[np.bool_]

_PROGRAM, _RELEASES, _SITE = 32, 16, 2
_MOST_RELEASES, MOST_SITES = (1 << 16) - 1, (1 << 14) - 1
ATOMIC, SILENT = 1, 2
"""Flags of a stamp: an atomic access; a write that left what was there."""
_MOST_KEPT = 1 << 26
"""Numbers that are kept of who has seen whom; with more than that, everything counts as ordered."""


def program_of(stamp: int) -> int:
    """Number of the program that made an access."""
    return (stamp >> _PROGRAM) - 1


def site_of(stamp: int) -> int:
    """Number of the line."""
    return stamp >> _SITE & MOST_SITES


class Order:
    """Say what the program that runs now comes after."""

    def __init__(self, programs: int) -> None:
        self._handed = [np.zeros(programs, np.int32)]
        """By token: up to which of its releases each program is seen by whoever acquires it; token 0: nothing."""
        self.enter(0)

    def enter(self, program: int) -> None:
        """Go on with another program, which has seen nothing yet."""
        self.program, self._releases = program, 0
        self._seen: NDArray[np.int32] | None = None

    def stamp(self, site: int, flags: int = 0) -> int:
        """Stamp an access that is made now."""
        return (self.program + 1) << _PROGRAM | self._releases << _RELEASES | site << _SITE | flags

    def unordered(self, stamps: Stamps) -> Mask:
        """A mask of the accesses that are another program's, and come neither before nor after; 0 is no access."""
        who = stamps >> _PROGRAM
        found: Mask = (who != 0) & (who != self.program + 1)
        if self._seen is not None and found.any():
            found &= self._seen[who - 1] <= (stamps >> _RELEASES & _MOST_RELEASES)
        return found & (len(self._handed) * len(self._handed[0]) < _MOST_KEPT)

    def acquire(self, tokens: NDArray[np.int32]) -> None:
        """Come after all that was released with these tokens."""
        for token in set(tokens.tolist()) - {0}:
            handed = self._handed[token]
            self._seen = handed if self._seen is None else np.maximum(self._seen, handed)

    def release(self, tokens: NDArray[np.int32]) -> NDArray[np.int32]:
        """New tokens in the place of these, for whoever acquires them to come after this, and after what those say."""
        seen = np.zeros_like(self._handed[0]) if self._seen is None else self._seen.copy()
        self._releases = min(self._releases + 1, _MOST_RELEASES)
        seen[self.program] = self._releases
        first = len(self._handed)
        distinct, places = np.unique(tokens, return_inverse=True)
        self._handed += [np.maximum(self._handed[token], seen) for token in distinct.tolist()]
        return (first + places.reshape(tokens.shape)).astype(np.int32)
