"""Turn a worker's answer, or its end, into the outcome of an execution."""

from __future__ import annotations

import math
from base64 import b64decode
from collections.abc import Collection
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from kernel_assay.corpus.formats import FORMATS, format_of
from kernel_assay.corpus.model.execution import Execution, GuardDamage, OutputReport
from kernel_assay.corpus.model.kinds import Kind, Status
from kernel_assay.corpus.process.channel import Message
from kernel_assay.kernels.backends.support.walls import Touch
from kernel_assay.kernels.sandbox.batch import Key, Outcome, PendingBatch
from kernel_assay.kernels.sandbox.worker_pool import Ending


def outcome_of(key: str, head: dict[str, Any], payload: memoryview, specs: Collection[str]) -> Outcome:
    """An execution with its outputs, which follow one another in the payload; as for execution_of."""
    execution, arrays, at = execution_of(key, head, specs), {}, 0
    for report in execution.outputs:
        if report.dtype in FORMATS:
            dtype, size = FORMATS[report.dtype].dtype, math.prod(report.shape)
            arrays[report.name] = np.frombuffer(payload, dtype, size, at).reshape(report.shape)
            at += size * dtype.itemsize
    return Outcome(execution, arrays)


def answer_of(
    pending: PendingBatch, head: dict[str, Any], payload: memoryview
) -> tuple[Key, Outcome, list[Message] | None]:
    """What a message answers, and with what; where outputs are only offered: how. Raises ValueError if it does not."""
    key = pending.answered(*(head.pop(name, None) for name in ("n", "subject", "token")))
    offers, names = head.pop("offers", None), pending.tasks[key[0]].outputs
    if (asked := pending.tasks[key[0]].round) and asked.quiet:
        return key, Outcome(execution_of(key[1], head, names), {}), None
    if offers is None:
        return key, outcome_of(key[1], head, payload, names), None
    return key, Outcome(execution_of(key[1], head, names), {}), _OFFERS.validate_python(offers)


_OFFERS = TypeAdapter(list[dict[str, Any]])


def execution_of(key: str, head: dict[str, Any], specs: Collection[str]) -> Execution:
    """Read the head of a message, which a kernel may have written. Raises ValueError; specs: names of the outputs."""
    execution = Execution.model_validate({**head, "subject": key})
    names = [report.name for report in execution.outputs]
    if names != (list(specs) if execution.status is Status.OK else []):
        raise ValueError(f"outputs {names} of a run that is {execution.status}")
    if (execution.fault is None) is (execution.status is Status.FAULTED):
        raise ValueError(f"fault {execution.fault} of a run that is {execution.status}")
    if any(extent < 0 for report in execution.outputs for extent in report.shape):
        raise ValueError("an output with fewer than no elements")
    for report in execution.outputs:
        if report.again and len(b64decode(report.again, validate=True)) != _size(report):
            raise ValueError(f"a second run that left another number of bytes in {report.name!r}")
    return execution


def _size(report: OutputReport) -> int:
    """Bytes of an output."""
    return math.prod(report.shape) * format_of(report.dtype).dtype.itemsize


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
