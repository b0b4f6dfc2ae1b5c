"""For tests of your own: hold a kernel to its contract, case by case.

    from hypothesis import given, settings
    from kernel_assay.fuzz.generation.strategies import cases
    from kernel_assay.fuzz.testing import hold

    @settings(deadline=None)  # the first case waits for the sandbox
    @given(cases("softmax"))
    def test_my_softmax(case):
        hold(case, "my_softmax.py")

The kernel runs in the sandbox: a crash fails the test and does not end it.
"""

from __future__ import annotations

import atexit
import inspect
import shlex
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.model.verdict import Verdict
from kernel_assay.corpus.program import program
from kernel_assay.fuzz.checking.check import Examiner, Inquiry, all_laws
from kernel_assay.kernels.catalog import user_subject
from kernel_assay.oracles.catalog import origin_of

TIMEOUT = 10.0
"""Seconds for one execution."""


def hold(case: Case, kernel: str | Path | Callable[..., Any], *, laws: bool = True) -> Verdict:
    """Run a kernel on a case and return the verdict; one that is a failure raises AssertionError, in words.

    kernel: a file, `FILE:NAME`, or a function of a module (it is loaded again, in the sandbox, from its file). laws:
    hold it to the laws of the op, too. Raises UsageError for a kernel that cannot be loaded or called.
    """
    __tracebackhide__ = True
    examiner, key = _examiner(_place(kernel), case.op, Path.cwd())
    subject = examiner.subjects[key]
    if subject.dtypes and case.dtype not in subject.dtypes:
        return Verdict(kind=Kind.UNSUPPORTED, rule="status", message=f"it is for {', '.join(subject.dtypes)} only")
    inquiry = Inquiry(case, (key,), all_laws(case) if laws else ())
    verdict = examiner.check([inquiry])[0].verdicts[key]
    if verdict.failed:
        raise AssertionError(_words(case, f"{subject.path}:{subject.function}", verdict))
    return verdict


def _words(case: Case, place: str, verdict: Verdict) -> str:
    contract = origin_of(case.op)
    extra = f" --contract {shlex.quote(contract)}" if contract else ""
    lines = [
        f"{verdict.kind}: {verdict.message}",
        f"case      {case.label}",
        f"see it    {program()} show {case.token} --subject {shlex.quote(place)}{extra}",
    ]
    return "\n".join(lines)


def _place(kernel: str | Path | Callable[..., Any]) -> str:
    if not callable(kernel):
        return str(kernel)
    try:
        file = inspect.getsourcefile(kernel)
    except TypeError:
        file = None
    if file is None or kernel.__name__ != kernel.__qualname__:
        raise UsageError(f"{kernel!r} is no function of a module's own: name its file, as 'my_kernel.py:name'")
    return f"{file}:{kernel.__name__}"


@cache
def _examiner(place: str, op: str, folder: Path) -> tuple[Examiner, str]:
    """One sandbox a kernel, for as long as the process lives; folder: where a relative place begins."""
    del folder
    subject = user_subject(place, (op,))
    examiner = Examiner([subject], timeout=TIMEOUT)
    atexit.register(examiner.__exit__, None, None, None)
    return examiner, subject.key
