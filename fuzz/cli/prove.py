"""`prove`: try a kernel on every input there is."""

from __future__ import annotations

from pathlib import Path

import click

from kernel_assay.corpus.storage.file_store import Store
from kernel_assay.fuzz import api
from kernel_assay.fuzz.cli.options import (
    box_options,
    contract_option,
    corpus_option,
    device_option,
    dtype_option,
    reference_option,
)
from kernel_assay.fuzz.cli.output import FOUND
from kernel_assay.fuzz.exhaustive.prove import lines
from kernel_assay.fuzz.settings import SandboxLimits
from kernel_assay.reports.plain.terminal import table


@click.command("prove")
@click.argument("op")
@click.argument("subject", metavar="NAME|FILE[:NAME]")
@dtype_option
@device_option("cpu", "Where the kernel runs: cpu, cuda or cuda:NUMBER.")
@contract_option
@reference_option
@box_options
@corpus_option
def command(*, op: str, subject: str, dtypes: tuple[str, ...], device: str, limits: SandboxLimits, corpus: Path) -> int:
    """Try a kernel on every input there is: all 65,536 float16 and bfloat16 numbers of an elementwise OP.

    Of packed blocks it is every scale with every quant. With --device cuda convert is tried on every float32, too, and
    silu_gate on every pair of float16 numbers. Exit code 1 if an input fails.
    """
    with Store(corpus) as store:
        proof = api.prove(op, subject, dtypes=dtypes, device=device, store=store, limits=limits)
        kept = store.proof_path(proof)
    click.echo(table(("inputs", "number", "verdict", ""), list(lines(proof))))
    said = "holds for every one of them" if proof.holds else "does not hold"
    where = "".join(f" on {name}" for name in proof.environment.devices[:1])
    proven = proof.subject
    click.echo(f"{proven.key} ({proven.source_digest}){where}: {said}; kept in {kept}")
    return 0 if proof.holds else FOUND
