"""Turn a worker's answer, or its end, into the outcome of an execution."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kernel_assay.corpus.formats import FORMATS
from kernel_assay.corpus.model.execution import Execution, GuardDamage, OutputReport
from kernel_assay.corpus.model.kinds import Kind, Status
from kernel_assay.kernels.backends.support.walls import Touch
from kernel_assay.kernels.sandbox.batch import Outcome
from kernel_assay.kernels.sandbox.worker_pool import Ending


def outcome_of(key: str, head: dict[str, Any], payload: memoryview) -> Outcome:
    """An execution with its outputs, which follow one another in the payload."""
    execution, arrays, at = execution_of(key, head), {}, 0
    for report in execution.outputs:
        if report.dtype in FORMATS:
            dtype, size = FORMATS[report.dtype].dtype, math.prod(report.shape)
            arrays[report.name] = np.frombuffer(payload, dtype, size, at).reshape(report.shape)
            at += size * dtype.itemsize
    return Outcome(execution, arrays)


def execution_of(key: str, head: dict[str, Any]) -> Execution:
    """Read the head of a message."""
    said = head.get("outputs", ())
    reports = [OutputReport.trusted(**_REPORT | {n: _tupled(value) for n, value in one.items()}) for one in said]
    return Execution.trusted(
        status=Status(head["status"]),
        subject=key,
        fault=Kind(head["fault"]) if "fault" in head else None,
        message=head.get("message", ""),
        detail=head.get("detail", ""),
        input_digest=head["input_digest"],
        input_rows=head.get("input_rows", ""),
        outputs=tuple(reports),
        damage=tuple(GuardDamage(**d) for d in head.get("damage", ())),
        mutated=tuple(head.get("mutated", ())),
        warnings=tuple(head.get("warnings", ())),
        nanoseconds=head.get("nanoseconds", 0),
    )


def _touching(key: str, touch: Touch, tail: str) -> Execution:
    """Turn a touched input into what would have been found afterwards: who has left it, or written to it."""
    left = GuardDamage(buffer=touch.name, offset=touch.offset, count=0)
    mutated = touch.kind is Kind.INPUT_MUTATED
    return Execution(
        status=Status.FAULTED,
        subject=key,
        fault=touch.kind,
        message=touch.describe(),
        detail=tail,
        damage=() if mutated else (left,),
        mutated=(touch.name,) if mutated else (),
    )


def _tupled(value: Any) -> Any:
    """JSON has lists only."""
    return tuple(value) if isinstance(value, list) else value


_REPORT = {n: f.get_default() for n, f in OutputReport.model_fields.items() if not f.is_required()}
"""Defaults of what a worker leaves out of its report."""


def left_undone(key: str, why: str) -> Outcome:
    """An outcome that says nothing about its subject."""
    return Outcome(Execution(status=Status.UNSUPPORTED, subject=key, message=why), {})


def death_of(key: str, ending: Ending, timeout: float | None, how: str = "", granted: float = 0.0) -> Outcome:
    """The outcome of who has killed its worker, or was killed after so many seconds; how: what it did before that.

    granted: seconds beyond those.
    """
    if ending.touch is not None and timeout is None and not how:
        return Outcome(_touching(key, ending.touch, ending.tail), {})
    if timeout is not None:
        more = f", nor within the {granted:g} s more that first calls and builds may take" if granted else ""
        message, status = f"no result within {timeout:g} s{more}", Status.TIMEOUT
    else:
        message, status = f"{how}{ending.describe()}", Status.CRASHED
    return Outcome(Execution(status=status, subject=key, message=message, detail=ending.tail), {})
