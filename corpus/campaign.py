"""The noun for a whole run of the search; the other nouns are in corpus/records.py."""

from __future__ import annotations

from typing import Literal

from corpus.record import Record, Scalar
from corpus.records import Environment, Subject


class Campaign(Record):
    """One run of the search, as far as it got."""

    schema_version: Literal[1] = 1
    run: str
    seed: int
    engine: str = "conjecture"
    ops: tuple[str, ...] = ()
    subjects: tuple[Subject, ...] = ()
    revision: str = ""
    environment: Environment
    options: dict[str, Scalar] = {}
    started: str = ""
    updated: str = ""
    finished: bool = False
    next_index: int = 0
    """Index of the first case that was not yet judged."""
    cases: int = 0
    judged: int = 0
    """Outputs judged: cases times subjects."""
    seconds: float = 0.0
    kinds: dict[str, int] = {}
    by_subject: dict[str, dict[str, int]] = {}
    """Subject key -> kind -> count."""
    findings: tuple[str, ...] = ()
    """Ids of the findings met, new and known."""
    known_hits: int = 0
    coverage: dict[str, int] = {}
    """`op|dtype|shape class|layout|value class|subject` -> cases."""
    goals: dict[str, int] = {}
    """Goal -> index of the case that first reached it; -1: not reached."""
    max_rho: dict[str, float] = {}
    """Subject key -> largest finite rho met."""
