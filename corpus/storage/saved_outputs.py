"""An execution with the bytes it left, so that it can be judged again without running anything."""

from __future__ import annotations

import base64
from typing import Literal, Self

import numpy as np

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.formats import Array, format_of
from kernel_assay.corpus.inputs.materialize import Tensors
from kernel_assay.corpus.model.base import Record
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.execution import Execution, OutputReport
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.model.verdict import Verdict

MOST_BYTES = 1 << 18
"""Of the outputs of an execution that is kept."""


class Kept(Record):
    """Outputs of a subject for a case, and the verdict on them at that time."""

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

    @property
    def size(self) -> int:
        """Bytes of the outputs, as they are written."""
        return sum(map(len, self.payload.values()))

    def outputs(self) -> Tensors:
        """The arrays again, with the shapes and dtypes the execution reported.

        Raises UsageError for a record that was edited: bytes that are none, or do not fill the shape.
        """
        return {r.name: _array(r, self.payload[r.name]) for r in self.execution.outputs if r.name in self.payload}


def _array(report: OutputReport, payload: str) -> Array:
    fmt = format_of(report.dtype)
    try:
        return np.frombuffer(base64.b64decode(payload, validate=True), fmt.dtype).reshape(report.shape).copy()
    except ValueError as error:
        raise UsageError(
            f"what was kept of the output {report.name!r} is not the bytes of {fmt.name} of shape {report.shape}"
        ) from error
