"""The choice of subjects that take a case."""

from __future__ import annotations

import math
from collections.abc import Iterable

from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.kernels.backend_registry import loader_of
from kernel_assay.kernels.catalog import threads_of
from kernel_assay.oracles.spec.contract import Contract
from kernel_assay.oracles.spec.elsewhere import OutsideError

INTERPRETED = 1 << 15
"""Elements of the largest tensor of a long case for a kernel that is interpreted: a second or so."""
EMULATED = 1 << 18
"""The same for one whose threads take turns on a processor."""
THREADS, MANY_THREADS = 1 << 16, 1 << 20
"""Threads that such a kernel is asked to run in a long case, and in a few of them: a twentieth of a second, and one."""
COMPILED = 1 << 25


def takes(subject: Subject, dtype: str) -> bool:
    """Whether it takes cases of this dtype, that of the first input."""
    return not subject.dtypes or dtype in subject.dtypes


def fitting(subjects: Iterable[Subject], case: Case) -> tuple[str, ...]:
    """Keys of the subjects of the case's op that take its dtype."""
    return tuple(s.key for s in subjects if s.op == case.op and takes(s, case.dtype))


def is_emulated(subject: Subject) -> bool:
    """Whether its threads take turns on a processor."""
    return subject.backend == "cuda" and subject.device == "cpu"


def most_elements(subject: Subject) -> int:
    """Elements of the largest tensor of a long case, so that it does not take all of a run's time."""
    if loader_of(subject.loader).interprets:
        return INTERPRETED
    return EMULATED if is_emulated(subject) else COMPILED


def bears_far(subject: Subject) -> bool:
    """Whether it runs cases with more elements than 32 bits count: compiled, and not emulated."""
    return not (loader_of(subject.loader).interprets or is_emulated(subject))


def bears(subject: Subject, contract: Contract, case: Case, *, patient: bool) -> bool:
    """Whether a long case takes a subject no more time than there is. patient: there is more than usual."""
    shapes = {name: t.shape for name, t in case.tensors.items()}
    try:
        shapes |= {name: spec.shape for name, spec in contract.output_specs(case).items()}
    except OutsideError:
        return True  # nobody runs it
    if max(map(math.prod, shapes.values())) > most_elements(subject):
        return False
    threads = threads_of(subject, shapes, contract.attrs_of(case)) if is_emulated(subject) else 0
    return threads <= (MANY_THREADS if patient else THREADS)
