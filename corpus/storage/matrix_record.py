"""Records of a test matrix: its cells, and what became of each."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import Literal

from pydantic import Field

from kernel_assay.corpus.model.base import Record
from kernel_assay.corpus.model.findings import Environment

BUILTIN = "builtin"
"""The subject of cells whose kernels are the built-in implementations of a backend."""
ANY = "any"
"""The shape set, or layout, of cells whose cases are drawn as those of any run."""
AXES = ("op", "dtype", "shapes", "layout", "device", "subject", "backend")
NOT_REACHED = "not reached"
"""Why a cell was not run that a run has yet to come to, or was stopped before."""


class Cell(Record):
    """One combination of a matrix."""

    op: str
    dtype: str
    """Of the first input."""
    shapes: str = ANY
    """Name of a shape set."""
    layout: str = ANY
    device: str = "cpu"
    subject: str = BUILTIN
    """`builtin`, or a kernel of one's own: `FILE[:NAME]`."""
    backend: str
    """Whose built-in implementations are judged, or that of the kernel."""

    @property
    def kernel(self) -> str:
        """The kernels that are judged: a backend's, or one's own."""
        return self.backend if self.subject == BUILTIN else self.subject

    @property
    def name(self) -> str:
        """The cell as one word: `softmax/float32/any/transposed/cpu/numpy`."""
        return f"{self.op}/{self.dtype}/{self.shapes}/{self.layout}/{self.device}/{self.kernel}"


class Standing(StrEnum):
    """What became of a cell."""

    PASSED = "passed"
    FAILED = "failed"
    XFAILED = "xfailed"
    """It failed, as an entry with an issue says."""
    XPASSED = "xpassed"
    """It passed, although an entry says that it fails: the entry has to go."""
    SKIPPED = "skipped"
    NOT_RUN = "not run"

    @property
    def bad(self) -> bool:
        """Whether somebody has to do something about it."""
        return self in {Standing.FAILED, Standing.XPASSED}


class CellResult(Record):
    """A cell, and what became of it."""

    cell: Cell
    standing: Standing = Standing.NOT_RUN
    reason: str = NOT_REACHED
    """One sentence: what failed, why it was skipped or not run; empty if it passed."""
    issue: str = ""
    """Of an expected failure."""
    until: str = ""
    """Last day (ISO 8601) on which it is expected."""
    wanted: bool = True
    """Whether it was asked for; not, if --only left it out."""
    run: str = ""
    """Name of the run of its cases; its page and its coverage are those of any run."""
    seed: int = 0
    cases: int = 0
    judged: int = 0
    """Outputs."""
    kinds: dict[str, int] = Field({})
    """Verdict -> executions."""
    findings: tuple[str, ...] = ()
    """Ids, the most important first."""
    source: str = ""
    """Digests of a kernel and of a reference of one's own."""
    seconds: float = 0.0

    @property
    def to_run(self) -> bool:
        """Whether a run has yet to come to it."""
        return self.wanted and self.standing is Standing.NOT_RUN and self.reason == NOT_REACHED

    @property
    def done(self) -> bool:
        """Whether its cases were judged."""
        return bool(self.run)


class MatrixRun(Record):
    """One run of a matrix, as far as it got."""

    schema_version: Literal[1] = 1
    name: str
    file: str
    digest: str
    """Of the definition, after defaults."""
    version: str
    """Of this tool."""
    started: str
    """ISO 8601, UTC."""
    seed: int
    environment: Environment
    seconds: float = 0.0
    results: tuple[CellResult, ...] = ()

    @property
    def counts(self) -> dict[Standing, int]:
        """Cells by what became of them, all kinds in their order."""
        counted = Counter(one.standing for one in self.results)
        return {standing: counted[standing] for standing in Standing}

    @property
    def finished(self) -> bool:
        """Whether every cell has been come to that was asked for."""
        return not any(one.to_run for one in self.results)

    @property
    def expected(self) -> frozenset[str]:
        """Ids of findings that are of expected failures only."""
        bad = {finding for one in self.results if one.standing.bad for finding in one.findings}
        return frozenset(f for one in self.results for f in one.findings if f not in bad)

    def updated(self, results: dict[str, CellResult], seconds: float = 0.0) -> MatrixRun:
        """The same with what became of some cells, by their names."""
        known = tuple(results.get(one.cell.name, one) for one in self.results)
        return self.but(results=known, seconds=seconds or sum(one.seconds for one in known))
