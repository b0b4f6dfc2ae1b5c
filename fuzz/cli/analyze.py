"""`analyze`, `compare`, `golden`: kept outputs under the contracts of today, beside one another, and run again."""

from __future__ import annotations

import tomllib
from pathlib import Path

import click

from kernel_assay.corpus.errors import UsageError, about
from kernel_assay.corpus.model.subject import Numerics
from kernel_assay.corpus.storage.file_store import Store
from kernel_assay.corpus.storage.saved_outputs import Kept
from kernel_assay.fuzz import api
from kernel_assay.fuzz.api import Allowed, compare
from kernel_assay.fuzz.checking.selection import UserKernels
from kernel_assay.fuzz.checking.user_contracts import know_contracts
from kernel_assay.fuzz.checking.user_references import notes_of
from kernel_assay.fuzz.cli.options import (
    AtLeast,
    box_options,
    contract_option,
    corpus_option,
    device_option,
    dtype_option,
    json_option,
    old_corpus_option,
    own_option,
    reference_option,
)
from kernel_assay.fuzz.cli.output import FOUND, check_files, write_json
from kernel_assay.fuzz.comparing.compare import FACTOR
from kernel_assay.fuzz.comparing.text import told
from kernel_assay.fuzz.golden import text as golden_text
from kernel_assay.fuzz.golden.save import CASES, MOST_CASES
from kernel_assay.fuzz.replay.rejudge import analyze, said
from kernel_assay.fuzz.settings import SandboxLimits
from kernel_assay.kernels.catalog import numerics_of
from kernel_assay.reports.plain.terminal import say, table


@click.command("analyze")
@click.argument("targets", nargs=-1, metavar="[FINDING|RUN]...")
@contract_option
@reference_option
@old_corpus_option
@json_option
def command(*, targets: tuple[str, ...], corpus: Path, json_path: str | None) -> int:
    """Judge kept outputs again under the contracts of today, running nothing. Exit code 1 if a verdict changed."""
    with Store(corpus) as store:
        names = targets or store.kept_names()
        kept = [(name, one) for name in names for one in _kept(store, name)]
    results = [(name, analyze(one)) for name, one in kept]
    changed = [(name, a) for name, a in results if a.changed]
    rows = [(name, a.kept.subject.key, said(a.kept.verdict), said(a.verdict), a.kept.case.label) for name, a in changed]
    aside = json_path == "-"
    if rows:
        click.echo(table(("kept", "subject", "then", "now", "case"), rows), err=aside)
    drifted = sum(a.verdict is None for _, a in results)
    laws = sum(bool(a.kept.verdict.law) for _, a in results)
    parts = [f"{len(results)} judged again, {len(changed)} changed"]
    parts += [f"{drifted} with other inputs today"] if drifted else []
    parts += [f"{laws} broke a law, of which one run was kept: what was said stands"] if laws else []
    click.echo("; ".join(parts) if results else "no outputs are kept: search first", err=aside)
    write_json(json_path, [_change(name, a.kept, said(a.verdict)) for name, a in results])
    return FOUND if changed else 0


def _kept(store: Store, name: str) -> list[Kept]:
    """Outputs kept for a finding (or the beginning of its id) or a run."""
    whole = name in store.kept_names() or name in store.runs()
    found = store.kept(name if whole else store.finding(name).id)
    if not found:
        raise UsageError(f"no outputs of {name} were kept: they were too large, or nothing was returned")
    for kept in found:
        know_contracts({kept.case.op: kept.contract}, name)
    return found


def _change(name: str, kept: Kept, now: str) -> dict[str, str]:
    return {"kept": name, "subject": kept.subject.key, "case_id": kept.case.id, "then": said(kept.verdict), "now": now}


def _claim(_context: click.Context, _option: click.Parameter, lines: tuple[str, ...]) -> Numerics:
    """Read what is claimed, as the front matter of a CUDA file says it."""
    with about("--numerics is not understood"):
        try:
            return numerics_of(tomllib.loads("\n".join(lines)))
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise UsageError(f"it is not TOML: {error}") from error


@click.command("compare")
@click.argument("a")
@click.argument("b")
@click.option("--ulp", type=AtLeast(0), help="Steps in the narrower type that elements may be apart.  [default: 0]")
@click.option("--nmse", type=AtLeast(0.0), help="Largest normalized mean square error of a tensor.")
@click.option("--cosine", type=AtLeast(-1.0, 1.0), help="Smallest cosine of a tensor.")
@click.option("--dtype", default="", metavar="NAME", help="Round both to this type first; 1 ULP of it is allowed then.")
@click.option("--truth", metavar="FILE", help="Judge whether B is farther from it than A.")
@click.option(
    "--factor", type=AtLeast(0.0), default=FACTOR, show_default=True, help="With --truth: how far, in times A's NMSE."
)
@click.option(
    "--logits", multiple=True, metavar="NAME", help="Tensors whose rows are scores; * is a wildcard; repeatable."
)
@click.option(
    "--raw", default="", metavar="DTYPE[:SHAPE]", help="Elements of files that do not say: float16:4096x4096."
)
@click.option(
    "--budget-of", default="", metavar="OP", help="Judge the outputs of an op by its error budget for the inputs there."
)
@click.option(
    "--attr", "attrs", multiple=True, metavar="NAME=VALUE", help="With --budget-of: as in eps=1e-5; repeatable."
)
@click.option(
    "--numerics",
    multiple=True,
    callback=_claim,
    metavar="KEY=VALUE",
    help="With --budget-of: arithmetic that is claimed, as TOML, such as 'accumulate = \"float16\"'; repeatable.",
)
@contract_option
@click.option("--top", type=AtLeast(1), default=20, show_default=True, help="Tensors to list.")
@json_option
def compare_command(
    *,
    a: str,
    b: str,
    ulp: int | None,
    nmse: float | None,
    cosine: float | None,
    dtype: str,
    truth: str | None,
    factor: float,
    logits: tuple[str, ...],
    raw: str,
    budget_of: str,
    attrs: tuple[str, ...],
    numerics: Numerics,
    top: int,
    json_path: str | None,
) -> int:
    """Say how far the tensors in B are from those in A, two files or two folders. Exit code 1 if they do not agree.

    Files: .safetensors, .npy, .npz, .pt and .pth, and plain elements (--raw). They are read in pieces, of any size.
    """
    check_files(json_path)
    found = compare(
        a,
        b,
        allowed=Allowed(ulp, nmse, cosine, dtype),
        truth=truth,
        factor=factor,
        raw=raw,
        logits=logits,
        budget_of=budget_of,
        attrs=attrs,
        numerics=numerics,
    )
    if json_path != "-":
        for text in told(found, top):
            say(text)
    write_json(json_path, found)
    return 0 if found.agrees else FOUND


@click.group("golden", no_args_is_help=False)
def golden_command() -> None:
    """Save outputs of a kernel on a fixed list of cases, and say later, or elsewhere, what has changed."""


@golden_command.command("save")
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
    corpus: Path,
    json_path: str | None,
) -> int:
    """Save the outputs of one kernel (--subject) in a new folder, with versions, device and what is said of each.

    OP is its op, if the file does not say it. Exit code 1 if a case fails already; what it gave is saved all the same.
    """
    check_files(json_path)
    with Store(corpus) as store:
        given = [item.case for item in api.gather(store, targets, own)] if targets else []
    saved = api.save_golden(
        out, own=own, op=op, given=given, cases=cases, seed=seed, dtypes=dtypes, device=device, limits=limits
    )
    for text in golden_text.told_saved(saved, str(out)):
        say(text, err=json_path == "-")
    write_json(json_path, saved.golden)
    return FOUND if saved.failing else 0


@golden_command.command("check")
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
