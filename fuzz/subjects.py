"""Which subjects take a case."""

from collections.abc import Iterable
from pathlib import Path

from corpus.records import Case, Subject


def is_own(subject: Subject) -> bool:
    """Whether it is a person's own; the house's are stored relative to the project."""
    return Path(subject.path).is_absolute()


def takes(subject: Subject, dtype: str) -> bool:
    """Whether it takes cases of this dtype, that of the first input."""
    return not subject.dtypes or dtype in subject.dtypes


def fitting(subjects: Iterable[Subject], case: Case) -> tuple[str, ...]:
    """Keys of the subjects of the case's op that take its dtype."""
    return tuple(s.key for s in subjects if s.op == case.op and takes(s, case.dtype))
