"""A test matrix on the page: a table of its cells, and what became of those that did not pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from kernel_assay.corpus.storage.matrix_record import ANY, Cell, CellResult, MatrixRun, Standing

_SIGNS = {
    Standing.PASSED: ("h2", "\N{CHECK MARK}"),
    Standing.FAILED: ("hole", "fail"),
    Standing.XFAILED: ("thin", "xfail"),
    Standing.XPASSED: ("hole", "xpass"),
    Standing.SKIPPED: ("h1", "skip"),
    Standing.NOT_RUN: ("", "not run"),
}
"""By standing: the shade of a cell, and what stands in it."""


@dataclass(frozen=True, slots=True)
class Square:
    """One cell in the table; a combination that is no cell is blank."""

    shade: str = ""
    sign: str = ""
    words: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """The cells of a kernel on a device."""

    op: str
    name: str
    first: bool
    squares: tuple[Square, ...]


@dataclass(frozen=True, slots=True)
class Cells:
    """The table, and the cells that did not pass, the worst first."""

    counts: dict[Standing, int]
    groups: tuple[tuple[str, int], ...]
    """Dtypes, and how many columns each has."""
    columns: tuple[str, ...]
    starts: frozenset[int]
    """Columns that begin a dtype."""
    rows: tuple[Row, ...]
    others: tuple[CellResult, ...]

    @property
    def bad(self) -> bool:
        """Whether somebody has to do something about one."""
        return any(one.standing.bad for one in self.others)


def cells_of(run: MatrixRun) -> Cells:
    """The table of a run."""
    there = {(_row(one.cell), _column(one.cell)): one for one in run.results}
    dtypes = list(dict.fromkeys(one.cell.dtype for one in run.results))
    every = dict.fromkeys(_column(one.cell) for one in run.results)
    columns = sorted(every, key=lambda column: dtypes.index(column[0]))
    groups = tuple((dtype, len(list(some))) for dtype, some in groupby(columns, key=lambda column: column[0]))
    order = list(Standing)
    return Cells(
        counts=run.counts,
        groups=groups,
        columns=tuple(name for _, name in columns),
        starts=frozenset(i for i, column in enumerate(columns) if i and column[0] != columns[i - 1][0]),
        rows=_rows(there, columns),
        others=tuple(
            sorted((r for r in run.results if r.standing is not Standing.PASSED), key=lambda r: order.index(r.standing))
        ),
    )


def _rows(
    there: dict[tuple[tuple[str, str], tuple[str, str]], CellResult], columns: Sequence[tuple[str, str]]
) -> tuple[Row, ...]:
    made: list[Row] = []
    for row in dict.fromkeys(place[0] for place in there):
        squares = tuple(_square(there.get((row, column))) for column in columns)
        made.append(Row(*row, first=not made or made[-1].op != row[0], squares=squares))
    return tuple(made)


def _square(result: CellResult | None) -> Square:
    if result is None:
        return Square()
    shade, sign = _SIGNS[result.standing]
    return Square(shade, sign, f"{result.cell.name}: {result.standing}{': ' * bool(result.reason)}{result.reason}")


def _row(cell: Cell) -> tuple[str, str]:
    return cell.op, cell.kernel + (f" on {cell.device}" if cell.device != "cpu" else "")


def _column(cell: Cell) -> tuple[str, str]:
    """The dtype, and whatever of shapes and layout is not as in any run."""
    said = [name for name in (cell.shapes, cell.layout) if name != ANY]
    return cell.dtype, ", ".join(said) or ANY
