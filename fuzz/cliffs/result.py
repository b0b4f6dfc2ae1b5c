"""The record of a search for performance cliffs, which programs are handed."""

from __future__ import annotations

from kernel_assay.corpus.model.base import Record
from kernel_assay.corpus.model.findings import Cliff


class CliffSearch(Record):
    """The record of a search for cliffs of one subject."""

    subject: str
    """Key."""
    device: str
    dtype: str
    seed: int
    factor: float
    """What counts as a cliff."""
    searched: dict[str, int]
    """Dimension -> sizes that were timed along it."""
    seconds: float
    complete: bool
    """False: time ran out before every dimension was searched."""
    cliffs: tuple[Cliff, ...] = ()
    findings: tuple[str, ...] = ()
    """Ids of the findings that they are stored as."""
    notes: tuple[str, ...] = ()
    """What makes it say less than it could, in a sentence each: sizes that cannot be timed, outputs that are wrong,
    jumps that the baseline has, too."""
