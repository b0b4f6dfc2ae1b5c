"""The commands that ask NVIDIA's tools about one case: `sanitize` and `profile`. They need a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from kernel_assay.fuzz.cli.options import contract_option, json_option, old_corpus_option, subject_option

TARGET = "FINDING|FILE|RUN:INDEX|case:TOKEN"
_TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")


_timeout = click.option(
    "--timeout",
    type=click.FloatRange(min=1.0),
    default=60.0,
    show_default=True,
    help="Seconds for one run under one tool.",
)


def _asking(command: Callable[..., Any]) -> Callable[..., Any]:
    """With the options that both have."""
    for option in (json_option, old_corpus_option, _timeout, contract_option, subject_option):
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
    from kernel_assay.fuzz.cli.nvidia import sanitize_stored  # noqa: PLC0415  as above

    return sanitize_stored(**options)


@click.command("profile")
@click.argument("target", metavar=TARGET)
@_asking
def profile_command(**options: Any) -> int:
    """Run a case on the GPU under Nsight Compute (ncu), whose clocks are left alone, and say what each kernel took."""
    from kernel_assay.fuzz.cli.nvidia import profile_stored  # noqa: PLC0415  as above

    return profile_stored(**options)


COMMANDS: tuple[click.Command, ...] = (sanitize_command, profile_command)
"""Those of this module."""
