"""Hold a kernel to its contract in tests of your own, case by case.

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

import shlex

from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.reference_place import option_for
from kernel_assay.corpus.model.verdict import Verdict
from kernel_assay.corpus.program import program
from kernel_assay.fuzz.api import USUAL, Kernel, SandboxLimits, check, sandbox_of
from kernel_assay.oracles.catalog import origin_of


def hold(case: Case, kernel: Kernel, *, laws: bool = True, limits: SandboxLimits = USUAL) -> Verdict:
    """Run a kernel on a case and return the verdict; one that is a failure raises AssertionError, in words.

    kernel: a file, `FILE:NAME`, or a function of a module (it is loaded again, in the sandbox, from its file). laws:
    hold it to the laws of the op, too. limits: limits of the sandbox.

    Raises UsageError for a kernel that cannot be loaded or called.
    """
    __tracebackhide__ = True
    verdict = check(case, kernel, laws=laws, limits=limits)
    if verdict.failed:
        _, subject = sandbox_of(kernel, case.op, limits)
        raise AssertionError(_words(case, f"{subject.path}:{subject.function}", verdict))
    return verdict


def _words(case: Case, place: str, verdict: Verdict) -> str:
    extra = option_for(origin_of(case.op))
    lines = [
        f"{verdict.kind}: {verdict.message}",
        f"case      {case.label}",
        f"see it    {program()} show {case.token} --subject {shlex.quote(place)}{extra}",
    ]
    return "\n".join(lines)
