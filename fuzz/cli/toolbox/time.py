"""`time`: how fast kernels are, against baselines and against the machine."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from random import SystemRandom

import click

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.storage.atomic_files import write_atomic
from kernel_assay.corpus.storage.file_store import Store
from kernel_assay.fuzz import api
from kernel_assay.fuzz.checking.selection import UserKernels
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
from kernel_assay.fuzz.settings import SandboxLimits, seconds_of
from kernel_assay.fuzz.timing import text
from kernel_assay.fuzz.timing.shapes import NAMES
from kernel_assay.reports.plain.terminal import say

_CLEAR = "\r\x1b[K"


@click.command("time")
@click.argument("target", default="", metavar="[OP|TARGET]")
@own_option
@click.option(
    "--baseline",
    "baselines",
    multiple=True,
    metavar="NAME",
    help="naive, torch, cublas, ggml, reference or builtin:NAME; repeatable.  [default: torch, beside yours]",
)
@click.option(
    "--shapes",
    multiple=True,
    metavar="NAME|FILE",
    help=f"A set ({', '.join(NAMES)}), a file of shapes, or a recorded workload; repeatable.  [default: medium]",
)
@dtype_option
@device_option("cpu", "Where they run: cpu, cuda or cuda:NUMBER.")
@click.option("--warm-l2", is_flag=True, help="Leave caches as they are between calls; else they are emptied.")
@click.option("--limit", default="10s", show_default=True, metavar="TIME", help="Of the rounds of a case, at most.")
@click.option(
    "--noise", type=AtLeast(0.0001, 0.5), default=0.005, show_default=True, help="Of each median, at which rounds end."
)
@click.option("--seed", type=AtLeast(0), help="Of the inputs, and of the order within rounds.  [default: random]")
@click.option("--no-roofline", is_flag=True, help="Do not measure what this machine can do.")
@contract_option
@reference_option
@box_options
@corpus_option
@json_option
@click.option("--junit", "junit_path", metavar="FILE", help="Write JUnit XML, for CI.")
@click.option("--quiet", is_flag=True, help="No progress.")
def command(
    *,
    target: str,
    own: UserKernels,
    baselines: tuple[str, ...],
    shapes: tuple[str, ...],
    dtypes: tuple[str, ...],
    device: str,
    warm_l2: bool,
    limit: str,
    noise: float,
    seed: int | None,
    no_roofline: bool,
    limits: SandboxLimits,
    corpus: Path,
    json_path: str | None,
    junit_path: str | None,
    quiet: bool,
) -> int:
    """Say how fast implementations of OP are: yours (--subject) and baselines, or all built-in ones.

    In rounds of shuffled order, until each median is known to 0.5 %. TARGET may also be stored cases, as replay takes
    them. Exit code 1 if a timed output is wrong, or a time cannot be true.
    """
    check_files(json_path, junit_path)
    settings = api.TimeSettings(
        target=target,
        own=own,
        baselines=baselines,
        shapes=shapes,
        dtypes=dtypes,
        device=device,
        seed=SystemRandom().getrandbits(16) if seed is None else seed,
        limits=api.TimingLimits(noise=noise, seconds=seconds_of(limit), warm=warm_l2),
        sandbox=limits,
        roofline=not no_roofline,
        command=shlex.join(sys.argv[1:]),
    )
    live = not quiet and sys.stderr.isatty()
    with Store(corpus) as store:
        try:
            run = api.time(settings, store=store, on_event=_progress if live else None)
        finally:
            click.echo(_CLEAR if live else "", nl=False, err=True)
        kept = store.timing_path(run.run)
    for part in text.told(run):
        say(f"{part}\n", err=json_path == "-")
    click.echo(f"kept      {kept}", err=json_path == "-")
    write_json(json_path, text.summary(run))
    if junit_path:
        write_atomic(Path(junit_path), text.as_junit(run))
    if not any(one.ranked for one in run.timed) and not run.failed:
        why = next(one.problem for one in run.timed)
        raise UsageError(f"nothing could be timed: {run.timed[0].subject}: {why}")
    return FOUND if run.failed else 0


def _progress(event: api.RoundsTimed) -> None:
    noise = f", noise {event.noise:.1%}" if event.noise < 1 else ""
    click.echo(f"{_CLEAR}case {event.number + 1} of {event.cases}, round {event.rounds}{noise}", nl=False, err=True)
