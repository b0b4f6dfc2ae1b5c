"""The interface of a form of report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kernel_assay.reports.book import Book


@dataclass(frozen=True, slots=True)
class Format:
    """One form of report."""

    name: str
    summary: str
    """One line for `--help`."""
    render: Callable[[Book], str]
