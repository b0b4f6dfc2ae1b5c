"""The manifest of golden outputs: what a kernel gave for a list of cases, where, and what was said of it then."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kernel_assay.corpus.model.base import Record
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.findings import Environment
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.model.verdict import Verdict


class GoldenCase(Record):
    """One case of the list, whose outputs lie in a file beside the manifest."""

    schema_version: Literal[1] = 1
    case: Case
    input_digest: str
    """Of all bytes of its inputs."""
    digest: str
    """blake2b-128 of the file of its outputs."""
    verdict: Verdict


class Golden(Record):
    """Facts about saved outputs, which are those of the first of two runs, and lie in files beside them."""

    schema_version: Literal[1] = 1
    version: str
    """Of this tool."""
    at: str
    """ISO 8601, UTC."""
    subject: Subject
    contract: str = ""
    """File of the op's contract, or the place of its reference, if it is a user's own."""
    environment: Environment
    """Of the interpreter that the kernel ran in; devices: the GPUs, if it ran on one."""
    seed: int
    cases: tuple[GoldenCase, ...] = Field(min_length=1)
