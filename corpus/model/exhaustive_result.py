"""Verdicts on every input there is, not only on those that a search met."""

from __future__ import annotations

from typing import Literal

from kernel_assay.corpus.model.base import Record
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.findings import Environment
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.model.subject import Subject


class Sweep(Record):
    """A case that holds every input of a type, and what became of it."""

    case: Case
    kind: Kind
    rho: float = 0.0
    message: str = ""


class Proof(Record):
    """A subject, whose source_digest says which, on every input of its finite domains."""

    schema_version: Literal[1] = 1
    subject: Subject
    environment: Environment
    at: str
    checked: tuple[Sweep, ...]

    @property
    def holds(self) -> bool:
        """Whether nothing failed, and something was judged."""
        judged = [c for c in self.checked if c.kind is not Kind.UNSUPPORTED]
        return bool(judged) and all(c.kind is Kind.PASS for c in judged)
