"""`cliffs`: sizes at which a kernel gets far slower than beside them."""

from __future__ import annotations

import click

from kernel_assay.corpus.program import program
from kernel_assay.corpus.storage.opening import open_store
from kernel_assay.corpus.storage.place import Place
from kernel_assay.fuzz import api
from kernel_assay.fuzz.checking.selection import UserKernels
from kernel_assay.fuzz.checking.user_references import notes_of
from kernel_assay.fuzz.cli.options import (
    AtLeast,
    box_options,
    contract_option,
    corpus_option,
    device_option,
    dtype_option,
    json_option,
    own_option,
    reference_option,
)
from kernel_assay.fuzz.cli.output import FOUND, check_files, write_json
from kernel_assay.fuzz.cliffs.kernel import CliffFound, LineSearched
from kernel_assay.fuzz.cliffs.result import CliffSearch
from kernel_assay.fuzz.cliffs.search import FACTOR
from kernel_assay.fuzz.settings import SandboxLimits, seconds_of
from kernel_assay.reports.book import elsewhere
from kernel_assay.reports.plain.terminal import say
from kernel_assay.reports.words import count


@click.command("cliffs")
@click.argument("op", default="")
@own_option
@click.option(
    "--baseline",
    default="",
    metavar="NAME",
    help="Who must not have a cliff, too: none, or as `time` names them.  [default: another library's implementation]",
)
@click.option("--budget", default="60s", show_default=True, metavar="TIME", help="How long to search, for each kernel.")
@click.option("--factor", type=AtLeast(1.1, 100.0), default=FACTOR, show_default=True, help="What counts as a cliff.")
@click.option("--seed", type=AtLeast(0), default=0, show_default=True, help="Tries other sizes.")
@dtype_option
@device_option("cpu", "Where kernels run: cpu, cuda or cuda:NUMBER.")
@contract_option
@reference_option
@box_options
@corpus_option
@json_option
def command(
    *,
    op: str,
    own: UserKernels,
    baseline: str,
    budget: str,
    factor: float,
    seed: int,
    dtypes: tuple[str, ...],
    device: str,
    limits: SandboxLimits,
    corpus: Place,
    json_path: str | None,
) -> int:
    """Search for sizes at which a kernel costs far more than at the sizes beside them: performance cliffs.

    OP is its op, if the file does not say it. --subject takes builtin:NAME, too; without it all implementations of OP
    are searched. Cliffs are kept as findings; `replay` says whether they are still there. Exit code 1 if some were
    found.
    """
    check_files(json_path)
    aside = json_path == "-"

    def tell(event: api.CliffEvent) -> None:
        if isinstance(event, CliffFound):
            say(
                f"cliff: {event.finding.subject.key} is {event.finding.verdict.message}  [{event.finding.id}]",
                err=aside,
            )
        elif isinstance(event, LineSearched):
            others = ", ".join(f"{name} = {n}" for name, n in event.others.items())
            click.echo(f"{event.subject}: {count(event.sizes, 'size')} of {event.axis} at {others}", err=True)

    with open_store(corpus) as store:
        found = api.cliffs(
            op,
            own=own,
            baseline=baseline,
            dtypes=dtypes,
            device=device,
            limits=api.CliffLimits(seconds_of(budget), factor),
            seed=seed,
            store=store,
            sandbox=limits,
            on_event=tell,
        )
    for one in found:
        say(told(one), err=aside)
    for note in notes_of([op] if op else []):
        click.echo(f"warning: {note}", err=True)
    if ids := [finding for one in found for finding in one.findings]:
        say(f"again: {program()} replay {' '.join(ids)}{elsewhere(corpus)}", err=aside)
    write_json(json_path, found)
    return FOUND if any(one.cliffs for one in found) else 0


def told(one: CliffSearch) -> str:
    """The result for one kernel, in a line, and its notes."""
    sizes = ", ".join(f"{count(n, 'size')} of {axis}" for axis, n in one.searched.items())
    end = "" if one.complete else ", not to the end: more --budget"
    lines = [f"{one.subject}: {count(len(one.cliffs), 'cliff')} in {sizes} ({one.dtype}, {one.seconds:.0f} s{end})"]
    return "\n".join([*lines, *(f"note: {note}" for note in one.notes)])
