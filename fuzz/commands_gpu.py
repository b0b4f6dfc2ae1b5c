"""The commands that ask NVIDIA's tools about one case: `sanitize` and `profile`. They need a GPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

TARGET = "FINDING|FILE|RUN:INDEX|case:TOKEN"
_TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")


def _add_contracts(context: click.Context, option: click.Parameter, paths: tuple[Path, ...]) -> None:
    """The op of a case may be the user's own."""
    del context, option
    if paths:
        from oracles.catalog import add_contract  # noqa: PLC0415  --help must not wait for numpy

        for path in paths:
            add_contract(path)


def _existing(context: click.Context, option: click.Parameter, folder: Path) -> Path:
    from reports.options import existing_corpus  # noqa: PLC0415  as above

    return existing_corpus(context, option, folder)


_contract = click.option(
    "--contract",
    "contracts",
    multiple=True,
    metavar="FILE",
    type=click.Path(path_type=Path),
    callback=_add_contracts,
    is_eager=True,
    expose_value=False,
    help="The contract of an op of your own; repeatable.",
)
_subject = click.option(
    "--subject", "files", multiple=True, metavar="FILE[:NAME]", help="A kernel of your own, anywhere; repeatable."
)
_corpus = click.option(
    "--corpus",
    type=click.Path(path_type=Path),
    default=Path("corpus"),
    show_default=True,
    callback=_existing,
    help="Folder of the corpus.",
)
_timeout = click.option(
    "--timeout",
    type=click.FloatRange(min=1.0),
    default=60.0,
    show_default=True,
    help="Seconds for one run under one tool.",
)
_json = click.option("--json", "json_path", metavar="FILE", help="Write it as JSON, too (-: to standard output).")


def _asking(command: Callable[..., Any]) -> Callable[..., Any]:
    """With the options that both have."""
    for option in (_json, _corpus, _timeout, _contract, _subject):
        command = option(command)
    return command


@click.command("sanitize")
@click.argument("target", metavar=TARGET)
@click.option(
    "--tool",
    "tools",
    multiple=True,
    type=click.Choice(_TOOLS),
    help="One of compute-sanitizer's; repeatable.  [default: all four]",
)
@_asking
def sanitize_command(**options: Any) -> int:
    """Run a case on the GPU under compute-sanitizer, every tensor in an allocation of exactly its size.

    Says what each tool reports, and notes it with a stored finding. Exit code 1 if one reports an error, 2 if one gave
    no answer.
    """
    from fuzz.nvidia import sanitize_stored  # noqa: PLC0415  as above

    return sanitize_stored(**options)


@click.command("profile")
@click.argument("target", metavar=TARGET)
@_asking
def profile_command(**options: Any) -> int:
    """Run a case on the GPU under Nsight Compute (ncu), whose clocks are left alone, and say what each kernel took."""
    from fuzz.nvidia import profile_stored  # noqa: PLC0415  as above

    return profile_stored(**options)


COMMANDS: tuple[click.Command, ...] = (sanitize_command, profile_command)
"""Those of this module."""
