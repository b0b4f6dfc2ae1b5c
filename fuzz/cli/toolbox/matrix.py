"""`matrix`: run a test matrix that a file of YAML defines."""

from __future__ import annotations

from pathlib import Path

import click

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.program import program
from kernel_assay.corpus.storage.matrix_record import CellResult, MatrixRun, Standing
from kernel_assay.corpus.storage.opening import open_store
from kernel_assay.corpus.storage.place import Place
from kernel_assay.fuzz import api
from kernel_assay.fuzz.cli.options import AtLeast, box_options, corpus_option, json_option
from kernel_assay.fuzz.cli.output import FOUND, UNJUDGED, check_files, write_json
from kernel_assay.fuzz.cli.run import INTERRUPTED, stopping
from kernel_assay.fuzz.matrix.cells import Cells
from kernel_assay.fuzz.matrix.run import CellRunner, begun, run_matrix
from kernel_assay.fuzz.matrix.spec import load, schema
from kernel_assay.fuzz.settings import MOST_JOBS, SandboxLimits
from kernel_assay.reports.book import Book, matrix_book
from kernel_assay.reports.forms import formats, write
from kernel_assay.reports.json_model import report
from kernel_assay.reports.plain.terminal import say


def _print_schema(context: click.Context, option: click.Parameter, wanted: bool) -> None:
    del option
    if wanted:
        click.echo(schema(), nl=False)
        context.exit()


@click.command("matrix")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--check", is_flag=True, help="Only read FILE, and say what is wrong in it.")
@click.option(
    "--schema", is_flag=True, is_eager=True, expose_value=False, callback=_print_schema, help="Print its JSON Schema."
)
@click.option("--only", multiple=True, metavar="AXIS=PATTERN", help="Only cells such as device=cpu; repeatable.")
@click.option("--resume", is_flag=True, help="Go on with the latest run of FILE that was interrupted.")
@click.option("--jobs", type=AtLeast(1, MOST_JOBS), default=1, show_default=True, help="Cells that run at a time.")
@click.option("--html", "html_path", metavar="FILE", help="Write the page.")
@click.option("--junit", "junit_path", metavar="FILE", help="Write JUnit XML, a test a cell.")
@click.option("--quiet", is_flag=True, help="No progress.")
@box_options
@corpus_option
@json_option
def command(
    *,
    file: Path,
    check: bool,
    only: tuple[str, ...],
    resume: bool,
    jobs: int,
    html_path: str | None,
    junit_path: str | None,
    quiet: bool,
    limits: SandboxLimits,
    corpus: Place,
    json_path: str | None,
) -> int:
    """Run the test matrix in FILE: op x dtype x shape set x layout x device x kernel, each cell a small run.

    Exit code 1 if a cell failed that is not expected to, passed although it is expected to fail, or if the time of an
    expectation is over; 2 if a cell that was asked for could not be run.
    """
    check_files(json_path, html_path, junit_path)
    cells = Cells(load(file))
    expired = list(cells.expired())
    if check:
        planned = cells.plan(only)
        say(f"{file}: {len(planned):,} cells of {', '.join(cells.ops)}")
        return _expired(expired)
    with open_store(corpus) as store, stopping(api.Stop()) as stop:
        store.prepare()
        run = begun(cells, store, only, resume=resume)
        progress = _Progress(sum(one.to_run for one in run.results), quiet=quiet)
        with CellRunner(cells, store, limits, stop) as runner:
            run = run_matrix(runner, run, jobs=jobs, on_result=progress)
        book = matrix_book(store, run)
    say(formats()["text"].render(book), err=json_path == "-")
    _write(book, {"html": html_path, "junit": junit_path})
    write_json(json_path, report(book))
    if not run.finished:
        click.echo(f"{program()} matrix {file} --resume goes on where this was stopped", err=True)
    return max(_expired(expired), _code(run), key=(0, UNJUDGED, INTERRUPTED, FOUND).index)


class _Progress:
    """Says a line a cell."""

    def __init__(self, cells: int, *, quiet: bool) -> None:
        self._cells, self._quiet, self._over = cells, quiet, 0

    def __call__(self, result: CellResult) -> None:
        self._over += 1
        said = f": {result.reason}" if result.reason else ""
        if not self._quiet:
            line = f"{self._over:,} of {self._cells:,}  {result.standing:8} {result.cell.name}{said}"
            click.echo(line, err=True)


def _write(book: Book, files: dict[str, str | None]) -> None:
    for name, path in files.items():
        if path == "-":
            raise UsageError(f"--{name} needs the name of a file")
        if path:
            write(Path(path), formats()[name].render(book))


def _expired(sentences: list[str]) -> int:
    for said in sentences:
        click.echo(f"expired: {said}", err=True)
    return FOUND if sentences else 0


def _code(run: MatrixRun) -> int:
    if any(one.standing.bad for one in run.results):
        return FOUND
    if not run.finished:
        return INTERRUPTED
    return UNJUDGED if any(one.wanted and one.standing is Standing.NOT_RUN for one in run.results) else 0
