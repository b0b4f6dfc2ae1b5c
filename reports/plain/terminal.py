"""A terminal's additions to plain text: its width and its colours. A file or a pipe gets the same text everywhere."""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import zip_longest
from typing import Any

import click

WIDTH = 100
"""Columns of text for whatever is no terminal."""
NARROWEST = 60
"""Columns below which a table gets no narrower: its rows would be read by nobody."""
LEAST = 8
"""Columns that a long text gets beside others, however narrow a terminal is."""
READABLE = 24
"""Columns that a sentence needs."""
_COLOURS: dict[str, dict[str, Any]] = {
    r"^(\d+\. \S+: \w+|findings: \d.*|.*NOT reached.*|fails\b.*?:|.*\bNOT FOUND\b.*)": {"fg": "red", "bold": True},
    r"^(findings: none|goals: all \d+ reached|does not fail any more|passes)": {"fg": "green", "bold": True},
    r"^warning\b.*?:": {"fg": "yellow", "bold": True},
    r"^ {3}(at|consensus|judged|smallest|condition|sanitizer|shows in|metrics|missed by|reason|also|show|replay|shrink) ": {  # noqa: E501
        "fg": "cyan"
    },
}
"""Of the beginnings of lines, how each kind is coloured."""
_LABEL = re.compile(r" {3}\S+(?: in| by)? +(?=\S)")


def width() -> int:
    """Columns of the terminal that standard output is; a fixed number for whatever else it is."""
    return max(NARROWEST, shutil.get_terminal_size().columns) if sys.stdout.isatty() else WIDTH


def say(text: str, *, err: bool = False) -> None:
    """Print what a person reads: on a terminal in colours (unless NO_COLOR is set), with long lines broken at words."""
    stream = sys.stderr if err else sys.stdout
    if stream.isatty():
        text = "\n".join(part for line in text.split("\n") for part in _broken(line, width()))
        for pattern, style in ({} if os.environ.get("NO_COLOR") else _COLOURS).items():
            text = re.sub(pattern, partial(_styled, style), text, flags=re.MULTILINE)
    click.echo(text, err=err)


def visible(text: str) -> str:
    """The text of a stranger with its control characters and turns of direction written out, on one line."""
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


def _styled(style: Mapping[str, Any], found: re.Match[str]) -> str:
    return click.style(found[0], **style)


def _broken(line: str, columns: int) -> Iterable[str]:
    """A line in as many as a terminal needs, those behind the first under its text; a command stays whole."""
    if len(line) <= columns or "python " in line or "kassay " in line:
        return [line]
    label = _LABEL.match(line)
    indent = " " * (label.end() if label else len(line) - len(line.lstrip()))
    return textwrap.wrap(line, columns, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns as wide as their widest entry, numbers to the right; what is too wide goes on below, in its column.

    Where the last column would be too narrow to be read, what stands in it goes below the others.
    """
    all_rows = [tuple(head), *(tuple(r) for r in rows)]
    columns = list(zip(*all_rows, strict=True))
    widths = _fitted(columns)
    if widths[-1] >= min(READABLE, max(map(_extent, columns[-1]))):
        return "\n".join(line for row in all_rows for line in _lines(row, widths))
    widths = _fitted(columns[:-1])
    return "\n".join(line for row in all_rows for line in (*_lines(row[:-1], widths), *_below(row[-1])))


def _below(cell: str) -> list[str]:
    return [f"      {line}" for line in _wrapped(cell, width() - 6)] if cell else []


def _lines(row: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    pairs = list(zip(row, widths, strict=True))
    for parts in zip_longest(*(_wrapped(cell, wide) for cell, wide in pairs), fillvalue=""):
        cells = (
            part.rjust(wide) if _numeric(cell) else part.ljust(wide)
            for part, (cell, wide) in zip(parts, pairs, strict=True)
        )
        yield f"  {'  '.join(cells)}".rstrip()


def _wrapped(cell: str, wide: int) -> list[str]:
    """A cell in lines, of which an entry that fits is one, spaces and all."""
    lines = cell.splitlines() or [""]
    return [part for line in lines for part in ([line] if len(line) <= wide else textwrap.wrap(line, wide))]


def _extent(cell: str) -> int:
    return max(map(len, cell.splitlines()), default=0)


def _fitted(columns: Sequence[Sequence[str]]) -> list[int]:
    """Widths that fit the terminal: the widest texts give way, but not the first column, nor numbers."""
    found = [max(map(_extent, column)) for column in columns]
    may = [i for i, column in enumerate(columns) if i and not all(map(_numeric, column[1:]))]
    while sum(found) > width() - 2 * len(found) and (wide := [i for i in may if found[i] > LEAST]):
        found[max(wide, key=found.__getitem__)] -= 1
    return found


def _numeric(text: str) -> bool:
    return text.replace(",", "").replace(".", "", 1).isdigit() or text == "-"
