"""Opinions of compute-sanitizer on one case: each tool watches the subject run once, alone on a GPU."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.findings import Finding, Sanitized, State
from kernel_assay.corpus.model.kinds import Kind, Status
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.fuzz.checking.check import interface_of
from kernel_assay.fuzz.checking.large_policy import is_large
from kernel_assay.kernels.backend_registry import is_on_gpu, loader_of, on_gpu
from kernel_assay.kernels.nvidia.run_once import Order
from kernel_assay.kernels.nvidia.run_under_tool import Watched, watch
from kernel_assay.kernels.nvidia.sanitizer import ENVIRONMENT, PROGRAM, TOOLS, Report, command, missing, read, version
from kernel_assay.oracles.catalog import contract_of

SECONDS = 60.0
"""For each tool, if nobody says otherwise: with torch, most of it goes into starting."""
AUTOMATIC_SECONDS = 20.0
"""For all tools together, when a search has found something."""
LAST = '{"status"'
"""How the last line of kernels/nvidia/run_once.py begins."""


def sanitize(
    case: Case, subject: Subject, tools: Sequence[str] = tuple(TOOLS), seconds: float = SECONDS
) -> tuple[Sanitized, ...]:
    """Ask each tool about a subject's run of a case, in at most so many seconds a tool; the oracle is not asked.

    subject: one that is placed on a GPU (see `on_gpu`). Raises UsageError for a tool that there is not.
    """
    if unknown := next((tool for tool in tools if tool not in TOOLS), None):
        raise UsageError(f"{PROGRAM} has no tool {unknown!r}; there are {', '.join(TOOLS)}")
    order = order_of(case, subject)
    return tuple(_ask(tool, order, seconds) for tool in tools)


def watched(finding: Finding, beside: Callable[[], object] = lambda: None) -> Finding:
    """A new finding with what the tools say of its smallest case, up to the first tool that explains it.

    It comes back as it is where there is nothing to ask: what was asked about before, seeded bugs (they need no
    explanation), what a claim explains, and who raises, who does not get to its kernel. beside: called again and again
    meanwhile.
    """
    kind, subject = finding.verdict.kind, finding.subject
    told = finding.sanitized or finding.claim or subject.planted or kind.facts.dear or kind is Kind.RAISED
    shrunk = finding.state in {State.MINIMIZED, State.FLAKY} and finding.probability > 0.0
    if told or not shrunk or finding.before or subject.python or not is_on_gpu(subject) or missing():
        return finding
    if is_large(contract_of(finding.case.op), finding.case):
        return finding
    deadline = time.monotonic() + AUTOMATIC_SECONDS
    return finding.but(sanitized=tuple(_up_to_first(order_of(finding.case, subject), deadline, beside)))


def _up_to_first(order: Order, deadline: float, beside: Callable[[], object]) -> Iterator[Sanitized]:
    for tool in TOOLS:
        left = deadline - time.monotonic()
        if left <= 0.0:
            return
        said = _ask(tool, order, left, beside)
        yield said
        if said.errors:
            return


def placed_here(subject: Subject) -> Subject:
    """A subject that runs in the tool's own Python. Raises UsageError if it does not, or cannot run here."""
    if subject.python:
        raise UsageError(f"{subject.key} runs in {subject.python}; it can be looked into in the tool's own Python only")
    if why := loader_of(subject.loader).unavailable():
        raise UsageError(f"{subject.key} cannot run {'on a GPU ' * is_on_gpu(subject)}here, because {why}")
    return subject


def placed_on_gpu(subject: Subject) -> Subject:
    """A subject, placed on the GPU. Raises UsageError, one sentence, if it cannot run there."""
    if is_on_gpu(subject):
        placed = subject
    elif subject.backend in on_gpu():
        placed = subject.but(device="cuda")
    else:
        raise UsageError(f"{subject.key} runs on {subject.backend}, which has nothing to do with a GPU")
    return placed_here(placed)


def order_of(case: Case, subject: Subject) -> Order:
    """The order for kernels/nvidia/run_once.py."""
    contract = contract_of(case.op)
    return Order(case, contract.output_specs(case), subject, interface_of(contract))


def _ask(tool: str, order: Order, seconds: float, beside: Callable[[], object] = lambda: None) -> Sanitized:
    seen = watch(command(tool), order, seconds=seconds, env=ENVIRONMENT, beside=beside)
    report = read(seen.log)
    said = {"tool": tool, "version": version()}
    if report.errors:
        return Sanitized(**said, errors=report.errors, message=report.first)
    return Sanitized(**said, trouble=_trouble(seen, report, seconds))


def _trouble(seen: Watched, report: Report, seconds: float) -> str:
    """The reason why silence is no answer; empty if it is one: the subject ran, and nothing was wrong."""
    if seen.code is None:
        return f"it gave no answer within {seconds:.0f} s"
    status, message = said_of(seen.out)
    if status not in {"", Status.OK}:
        return f"the subject did not run through ({status}): {message}"
    if status and report.nothing_wrong:
        return ""
    return report.remark or first_words(seen) or "it ended and said nothing"


def said_of(out: str) -> tuple[str, str]:
    """The last words of kernels/nvidia/run_once.py: a Status, and more in words; empty if it never got there."""
    for line in reversed(out.splitlines()):
        try:
            said: Any = json.loads(line) if line.startswith(LAST) else None
        except ValueError:
            continue
        if said:
            return str(said["status"]), str(said["message"])
    return "", ""


def first_words(seen: Watched) -> str:
    """The first words of a tool's complaint; of a traceback under it, the last ones."""
    lines = [line.strip() for line in (*seen.err.splitlines(), *seen.out.splitlines()) if not line.startswith(LAST)]
    lines = [line for line in lines if line]
    if not lines:
        return ""
    return lines[-1] if lines[0].startswith("Traceback") else lines[0]
