"""Checks that what came back is about the inputs that the case has, by the digests of the worker's and the judge's."""

from __future__ import annotations

from kernel_assay.corpus.errors import InternalError
from kernel_assay.corpus.model.execution import Execution
from kernel_assay.corpus.model.kinds import Kind, Status
from kernel_assay.kernels.boundary.protocol import Task, told
from kernel_assay.kernels.sandbox.batch import Outcome
from kernel_assay.kernels.sandbox.sandbox import Sandbox

OTHER = (
    "its process has other inputs than the case, which a new process makes as they should be: "
    "something was written into the memory of the process, or into a module that makes them"
)
_SECONDS = 60.0
"""In which a new worker has made the inputs of one case."""


def on_its_inputs(sandbox: Sandbox, task: Task, outcome: Outcome, mine: str) -> Outcome:
    """The outcome, if it is about the inputs whose digest is `mine`; else what its subject has done to them.

    mine: of a large case of a few rows of them. Raises InternalError if a worker that has loaded no subject makes other
    inputs, too, or none: then that is nothing that a subject has done.
    """
    ran, large = outcome.execution, task.large
    if ran.fault is Kind.CHEATED or (ran.input_rows if large else ran.input_digest) in ("", mine):
        return outcome
    name = "input_rows" if large else "input_digest"
    if sandbox.ask(ran.subject, {"inputs": told(task)}, _SECONDS).get(name) != mine:
        raise InternalError(f"{ran.subject} ran on other input {'rows' if large else 'bytes'} than the oracle saw")
    fault = Execution(status=Status.FAULTED, subject=ran.subject, fault=Kind.INPUT_MUTATED, message=OTHER)
    return Outcome(fault, {})
