"""Summaries and exit codes, which commands hand to programs."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.base import Record
from kernel_assay.reports.json_model import to_json

FOUND = 1
"""Exit code of a command that has findings to tell of."""
UNJUDGED = 2
"""Exit code of a command that could not do what it was asked."""


def end_at_sigterm() -> None:
    """End this command at SIGTERM as Ctrl-C ends it."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    click.get_current_context().call_on_close(partial(signal.signal, signal.SIGTERM, before))


def check_files(*paths: str | Path | None) -> None:
    """Refuse, before a long search, files that nothing can be written to, by UsageError."""
    for path in (one for one in paths if one and one != "-"):
        folder, file = Path(path).parent, Path(os.path.realpath(path))
        if not folder.is_dir():
            raise UsageError(f"{path} cannot be written: {folder} is no folder")
        is_new = not file.exists()
        if is_new or file.is_file() or file.is_dir():  # whoever reads a pipe would take this for the end
            try:
                file.open("ab").close()
            except OSError as error:
                raise UsageError(f"{path} cannot be written ({error.strerror})") from error
            if is_new:
                file.unlink(missing_ok=True)


def write_json(path: str | None, summary: Record | Sequence[Record | dict[str, Any]]) -> None:
    """Write a summary to a file, or to standard output for `-`; nothing without a path.

    Raises UsageError if the file cannot be written.
    """
    if path == "-":
        click.echo(to_json(summary))
    elif path:
        try:
            Path(path).write_text(to_json(summary) + "\n", encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{path} cannot be written ({error.strerror})") from error
