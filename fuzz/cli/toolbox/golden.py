"""`golden`: outputs of a kernel, saved once and run again."""

from __future__ import annotations

from pathlib import Path

import click

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
from kernel_assay.fuzz.golden import text as golden_text
from kernel_assay.fuzz.golden.save import CASES, MOST_CASES
from kernel_assay.fuzz.settings import SandboxLimits
from kernel_assay.reports.plain.terminal import say


@click.group("golden", no_args_is_help=False)
def command() -> None:
    """Save outputs of a kernel on a fixed list of cases, and say later, or elsewhere, what has changed."""


@command.command("save")
@click.argument("op", default="")
@own_option
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="FOLDER", help="A folder to be made.")
@click.option("--cases", type=AtLeast(0, MOST_CASES), default=CASES, show_default=True, help="How many are drawn.")
@click.option("--seed", type=AtLeast(0), default=0, show_default=True, help="Draws other cases.")
@click.option(
    "--with",
    "targets",
    multiple=True,
    metavar="TARGET",
    help="Stored cases, too, as replay takes them: FINDING, FILE, FOLDER, RUN:INDEX or case:TOKEN; repeatable.",
)
@dtype_option
@device_option("cpu", "Where the kernel runs: cpu, cuda or cuda:NUMBER.")
@contract_option
@reference_option
@box_options
@corpus_option
@json_option
def save_command(
    *,
    op: str,
    own: UserKernels,
    out: Path,
    cases: int,
    seed: int,
    targets: tuple[str, ...],
    dtypes: tuple[str, ...],
    device: str,
    limits: SandboxLimits,
    corpus: Place,
    json_path: str | None,
) -> int:
    """Save the outputs of one kernel (--subject) in a new folder, with versions, device and what is said of each.

    OP is its op, if the file does not say it. Exit code 1 if a case fails already; what it gave is saved all the same.
    """
    check_files(json_path)
    with open_store(corpus) as store:
        given = [item.case for item in api.gather(store, targets, own)] if targets else []
    saved = api.save_golden(
        out, own=own, op=op, given=given, cases=cases, seed=seed, dtypes=dtypes, device=device, limits=limits
    )
    for text in golden_text.told_saved(saved, str(out)):
        say(text, err=json_path == "-")
    write_json(json_path, saved.golden)
    return FOUND if saved.failing else 0


@command.command("check")
@click.argument("folder", type=click.Path(path_type=Path))
@own_option
@device_option("", "Where the kernel runs: cpu, cuda or cuda:NUMBER; default: where it ran.")
@click.option("--strict", is_flag=True, help="All that is not equal to the bit counts; for CI.")
@contract_option
@reference_option
@box_options
@json_option
def check_command(
    *, folder: Path, own: UserKernels, device: str, strict: bool, limits: SandboxLimits, json_path: str | None
) -> int:
    """Run the cases of FOLDER again, and say whether the outputs are bit-equal, within the error budget, or changed.

    --subject runs another kernel, or the same in another interpreter. Exit code 1 if a case has changed.
    """
    check_files(json_path)
    found = api.check_golden(folder, own=own, device=device, limits=limits)
    for text in golden_text.told(found):
        say(text, err=json_path == "-")
    for note in notes_of([found.subjects[1].op]):
        click.echo(f"warning: {note}", err=True)
    write_json(json_path, found)
    good = {api.Same.BIT_EQUAL} if strict else set(api.Same) - {api.Same.CHANGED}
    return 0 if all(one.same in good for one in found.cases) else FOUND
