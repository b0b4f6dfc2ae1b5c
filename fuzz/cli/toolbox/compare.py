"""`compare`: two files of tensors, or two folders, beside one another."""

from __future__ import annotations

import tomllib

import click

from kernel_assay.corpus.errors import UsageError, about
from kernel_assay.corpus.model.subject import Numerics
from kernel_assay.fuzz.api import Allowed, compare
from kernel_assay.fuzz.cli.options import (
    AtLeast,
    contract_option,
    json_option,
)
from kernel_assay.fuzz.cli.output import FOUND, check_files, write_json
from kernel_assay.fuzz.comparing.compare import FACTOR
from kernel_assay.fuzz.comparing.text import told
from kernel_assay.kernels.catalog import numerics_of
from kernel_assay.reports.plain.terminal import say


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
def command(
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
