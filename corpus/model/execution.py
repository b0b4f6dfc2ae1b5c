"""The record of one run of a case by an implementation: how it ended, what it left, what it damaged."""

from __future__ import annotations

from operator import not_

from pydantic import Field

from kernel_assay.corpus.model.base import Record
from kernel_assay.corpus.model.kinds import Kind, Status


class OutputReport(Record):
    """The worker's record of one output; its bytes travel beside the record."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    contiguous: bool = True
    alias_of: str = ""
    """Name of the input whose memory was handed back as the result."""
    reused: bool = False
    """Whether the second run's result lies in the memory of the first one's, which was still held."""
    unwritten: int = 0
    """Elements that kept the poison in both runs."""
    first_unwritten: int = -1
    differing: int = 0
    """Elements whose bits differ between the two runs."""
    first_differing: int = -1
    digest: str = ""
    """blake2b-128 of the bytes of the first run, in C order."""
    digest_again: str = ""
    """Of the second run; both are noted where they differ."""
    differing_bits: tuple[int, ...] = ()
    """Of the first element that differs: what it was in each run."""
    again: str = Field("", exclude_if=not_)
    """Bytes of the second run, in C order and base64, where they differ; of a large case, or another form, empty."""


class GuardDamage(Record):
    """Bytes written outside a buffer."""

    buffer: str
    offset: int
    """In bytes from the start of the buffer; negative is before it, size and above is after it."""
    count: int
    """Number of damaged bytes on that side."""


class Execution(Record):
    """The record of one subject running one case (twice)."""

    status: Status
    subject: str
    fault: Kind | None = None
    """For faulted: the verdict that stands for what the backend saw."""
    message: str = ""
    """For raised: the exception; for crashed: the signal or exit code; for unsupported: why."""
    detail: str = ""
    """Tail of the traceback, or of what the subject wrote to stdout and stderr before it died."""
    input_digest: str = ""
    """Of all bytes of the inputs (corpus.inputs.materialize.digest); of a large case empty."""
    input_rows: str = ""
    """Of a large case: of a few rows of them (corpus/inputs/fingerprint.py)."""
    outputs: tuple[OutputReport, ...] = ()
    damage: tuple[GuardDamage, ...] = ()
    mutated: tuple[str, ...] = ()
    """Names of inputs whose bytes changed."""
    warnings: tuple[str, ...] = ()
    """What the backend saw and does not call a fault."""
    nanoseconds: int = 0
    """Wall time of the first run."""
