"""Which subjects take a case."""

from collections.abc import Iterable

from corpus.records import Case, Subject


def fitting(subjects: Iterable[Subject], case: Case) -> tuple[str, ...]:
    """Keys of the subjects of the case's op that take its dtype."""
    return tuple(s.key for s in subjects if s.op == case.op and (not s.dtypes or case.dtype in s.dtypes))
