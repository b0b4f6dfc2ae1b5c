"""Whether subjects can run here at all, by what is installed: in this interpreter, or in one of their own."""

from __future__ import annotations

from collections.abc import Iterable

from kernel_assay.corpus.errors import UsageError, about
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.process.interpreter import interpreter
from kernel_assay.kernels.backend_registry import loader_of


def must_be_available(subjects: Iterable[Subject]) -> None:
    """Raise UsageError for the first whose interpreter is gone, or whose backend is not there."""
    for subject in subjects:
        if why := _unavailable(subject):
            raise UsageError(why)


def _unavailable(subject: Subject) -> str:
    if subject.python:
        with about(subject.key):
            why = interpreter(subject.python).refusal((subject.backend,))
        return f"{subject.key} cannot run: {why}" if why else ""
    why = loader_of(subject.loader).unavailable()
    return f"{subject.key} needs {subject.backend}, not available here, because {why}" if why else ""
