"""A run of a test matrix in plain text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kernel_assay.corpus.storage.matrix_record import CellResult, MatrixRun, Standing
from kernel_assay.reports.plain.terminal import table
from kernel_assay.reports.words import count, first_of

QUIET = 3
"""Cells of a kind, expected and skipped ones, that are told one by one."""


def matrix_text(run: MatrixRun) -> str:
    """Counts by op, then every cell that did not pass, the worst first."""
    parts = [
        f"matrix {run.name}  seed {run.seed}\n{run.file}: {matrix_headline(run)}, in {run.seconds:.1f} s",
        _counts(run),
        *(_told(standing, some) for standing in Standing if (some := _of(run, standing))),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def matrix_headline(run: MatrixRun) -> str:
    """The outcome in half a sentence: `40 cells: 36 passed, 1 failed, 3 skipped`."""
    words = [f"{n:,} {standing}" for standing, n in run.counts.items() if n]
    return f"{count(len(run.results), 'cell')}: {', '.join(words)}"


def _of(run: MatrixRun, standing: Standing) -> list[CellResult]:
    return [one for one in run.results if one.standing is standing and standing is not Standing.PASSED]


def _counts(run: MatrixRun) -> str:
    ops = dict.fromkeys(one.cell.op for one in run.results)
    rows = [(op, *map(str, _row([r for r in run.results if r.cell.op == op]))) for op in ops]
    return table(("op", "cells", *Standing, "cases", "outputs judged"), rows)


def _row(results: Sequence[CellResult]) -> Iterator[str]:
    standings = [one.standing for one in results]
    totals = (len(results), *(standings.count(one) for one in Standing))
    yield from (f"{n:,}" for n in (*totals, sum(r.cases for r in results), sum(r.judged for r in results)))


def _told(standing: Standing, results: Sequence[CellResult]) -> str:
    """Cells of one standing; of those that need nobody, the ones of one reason together."""
    if standing.bad or standing is Standing.XFAILED:
        return "\n".join(f"{standing}: {r.cell.name}{_issue(r)}\n   {r.reason}" for r in results)
    reasons: dict[str, list[str]] = {}
    for one in results:
        reasons.setdefault(one.reason, []).append(one.cell.name)
    return "\n".join(f"{standing}: {first_of(names, QUIET)}\n   {reason}" for reason, names in reasons.items())


def _issue(result: CellResult) -> str:
    return f"  ({result.issue}, until {result.until})" if result.issue else ""
