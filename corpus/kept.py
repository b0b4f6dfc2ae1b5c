"""An execution with the bytes it left, so that it can be judged again without running anything."""

from __future__ import annotations

import base64
from typing import Literal, Self

import numpy as np

from corpus.formats import format_of
from corpus.materialize import Tensors
from corpus.record import Record
from corpus.records import Case, Execution, Subject, Verdict

MOST_BYTES = 1 << 18
"""Of the outputs of an execution that is kept."""


class Kept(Record):
    """What a subject made of a case, and what was said about it then."""

    schema_version: Literal[1] = 1
    case: Case
    subject: Subject
    execution: Execution
    verdict: Verdict
    contract: str = ""
    """File of the op's contract, if it is a user's own."""
    payload: dict[str, str] = {}
    """Output -> its bytes in C order, base64."""

    @classmethod
    def of(
        cls, case: Case, subject: Subject, execution: Execution, verdict: Verdict, outputs: Tensors, contract: str
    ) -> Self | None:
        """The record, or None if the outputs are too large to keep."""
        if sum(array.nbytes for array in outputs.values()) > MOST_BYTES:
            return None
        payload = {name: base64.b64encode(array.tobytes()).decode("ascii") for name, array in outputs.items()}
        return cls(case=case, subject=subject, execution=execution, verdict=verdict, contract=contract, payload=payload)

    def outputs(self) -> Tensors:
        """The arrays again, with the shapes and dtypes the execution reported."""
        found: Tensors = {}
        for report in self.execution.outputs:
            if report.name in self.payload:
                raw = base64.b64decode(self.payload[report.name])
                found[report.name] = np.frombuffer(raw, format_of(report.dtype).dtype).reshape(report.shape)
        return found
