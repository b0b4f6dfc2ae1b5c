"""Summaries and exit codes, which commands hand to programs."""

from __future__ import annotations

from collections.abc import Sequence
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


def check_json(path: str | None) -> None:
    """Refuse, before a long search, a file that nothing can be written to, by UsageError."""
    folder = Path(path or "-").parent
    if not folder.is_dir():
        raise UsageError(f"{path} cannot be written: {folder} is no folder")


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
