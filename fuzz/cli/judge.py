"""`judge` and `prove`: whether one kernel is right, by a search of seconds, or on every input there is."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.storage.opening import open_store
from kernel_assay.corpus.storage.place import Place
from kernel_assay.fuzz import api
from kernel_assay.fuzz.cli.options import (
    AtLeast,
    box_options,
    contract_option,
    corpus_option,
    device_option,
    dtype_option,
    json_option,
    reference_option,
)
from kernel_assay.fuzz.cli.output import FOUND, UNJUDGED, check_files, write_json
from kernel_assay.fuzz.exhaustive.prove import lines
from kernel_assay.fuzz.judge import SECONDS, Judgement, UnjudgedError, judge
from kernel_assay.fuzz.settings import RunSettings, SandboxLimits, seconds_of
from kernel_assay.reports.forms import formats, write
from kernel_assay.reports.plain.run_text import declined, findings_text
from kernel_assay.reports.plain.terminal import say, table
from kernel_assay.reports.words import count, estimates, notes, workloads


@click.command("judge")
@click.argument("places", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FOLDER | FILE FILE")
@click.option("--budget", metavar="TIME", help="How long to search: 90, 90s, 5m.  [default: 10s]")
@click.option("--cases", type=AtLeast(1), help="Stop after so many cases instead.")
@click.option("--seed", type=AtLeast(0), help="Makes the same cases again.  [default: random]")
@dtype_option
@device_option("cpu", "Where the solution runs: cpu, cuda, cuda:NUMBER.")
@click.option("--strict", is_flag=True, help="Failures on NaN, Inf, very large and very small inputs count, too.")
@click.option("--junit", "junit_path", metavar="FILE", help="Write the verdict as JUnit XML.")
@click.option("--trace", "trace_path", metavar="FILE", help="Write a trace of each workload (of a definition.json).")
@box_options
@corpus_option
@json_option
def judge_command(
    *,
    places: tuple[Path, ...],
    budget: str | None,
    cases: int | None,
    seed: int | None,
    dtypes: tuple[str, ...],
    device: str,
    strict: bool,
    junit_path: str | None,
    trace_path: str | None,
    limits: SandboxLimits,
    corpus: Place,
    json_path: str | None,
) -> int:
    """Judge the solution of the problem in FOLDER, or of a pair of files as KernelBench has them.

    The layout is recognised by its files: KernelBench, gpu-mode, flashinfer-bench and SOL-ExecBench, problem.yaml. Exit
    code 0 if nothing wrong was found, 1 if the solution is wrong, 2 if it cannot be judged.
    """
    if budget and cases:
        raise UsageError("--budget and --cases exclude one another; name one of them")
    check_files(json_path, junit_path, trace_path)
    settings = RunSettings(
        seconds=None if cases else seconds_of(budget) if budget else SECONDS,
        cases=cases,
        seed=seed,
        dtypes=dtypes,
        device=device,
        limits=limits,
    )
    try:
        with open_store(corpus) as store:
            judged = judge(places, settings, store, traced=bool(trace_path), on_progress=partial(say, err=True))
    except UnjudgedError as error:
        _write_traces(trace_path, error.traces)
        raise
    _tell(judged, str(corpus), quiet=json_path == "-")
    write_json(json_path, judged.record(str(corpus)))
    if junit_path:
        write(Path(junit_path), formats()["junit"].render(judged.result.book(str(corpus))))
    _write_traces(trace_path, judged.traces)
    wrong = judged.wrong or (strict and judged.beyond is not None)
    return FOUND if wrong else UNJUDGED if judged.hardly_tried else 0


def _write_traces(path: str | None, traces: Sequence[Mapping[str, Any]]) -> None:
    if path:
        write(Path(path), "".join(f"{json.dumps(one)}\n" for one in traces))


def _tell(judged: Judgement, corpus: str, *, quiet: bool) -> None:
    """Say the verdict, and why."""
    book, c = judged.result.book(corpus), judged.result.campaign
    tried = f"{count(c.cases, 'case')}, {count(c.judged, 'output')} judged in {judged.seconds:.1f} s"
    words = {
        "right": "right, as far as it was tried",
        "right_if_ordinary": "right for ordinary inputs, as far as it was tried",
        "declined": "not judged, it declines nearly all",
    }
    head = f"{words.get(judged.verdict, judged.verdict)}: {judged.problem.judged}"
    lines = [f"{head} ({judged.problem.layout}; {tried}; seed {c.seed})", *estimates(c)]
    lines += [f"the author's shapes came first: {_dims(judged.contract.shapes)}"] if judged.contract.shapes else []
    lines += workloads(c)
    lines += [said for said in [declined(c)] if said and not judged.wrong]
    lines += [f"note: {said}" for said in notes(c)]
    lines += [f"too large to be tried: {_dims(judged.too_large)}"] if judged.too_large else []
    if judged.rounds:
        lines.append(f"its reference rounds to {' and '.join(sorted(judged.rounds))} in between, and so may it")
    lines += [findings_text(book)] if judged.wrong else []
    if judged.beyond:
        extreme = "NaN, Inf, or numbers above 1e6 or below 1e-18"
        lines.append(f"it differs from its reference for inputs with {extreme}; --strict counts that")
        lines.append(findings_text(judged.beyond.book(corpus)))
    say("\n".join(lines) + "\n", err=quiet)


def _dims(shapes: Iterable[Mapping[str, int]]) -> str:
    return "; ".join(" ".join(f"{name}={n}" for name, n in one.items()) for one in shapes)


@click.command("prove")
@click.argument("op")
@click.argument("subject", metavar="NAME|FILE[:NAME]")
@dtype_option
@device_option("cpu", "Where the kernel runs: cpu, cuda or cuda:NUMBER.")
@contract_option
@reference_option
@box_options
@corpus_option
def prove_command(
    *, op: str, subject: str, dtypes: tuple[str, ...], device: str, limits: SandboxLimits, corpus: Place
) -> int:
    """Try a kernel on every input there is: all 65,536 float16 and bfloat16 numbers of an elementwise OP.

    Of packed blocks it is every scale with every quant. With --device cuda convert is tried on every float32, too, and
    silu_gate on every pair of float16 numbers. Exit code 1 if an input fails.
    """
    with open_store(corpus) as store:
        proof = api.prove(op, subject, dtypes=dtypes, device=device, store=store, limits=limits)
        kept = store.proof_path(proof)
    click.echo(table(("inputs", "number", "verdict", ""), list(lines(proof))))
    said = "holds for every one of them" if proof.holds else "does not hold"
    where = "".join(f" on {name}" for name in proof.environment.devices[:1])
    proven = proof.subject
    click.echo(f"{proven.key} ({proven.source_digest}){where}: {said}; kept in {kept}")
    return 0 if proof.holds else FOUND
