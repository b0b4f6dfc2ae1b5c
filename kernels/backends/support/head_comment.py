"""The comment above a CUDA file's code that holds its front matter, between two lines of `---`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_COMMENT = re.compile(r"\s*(?:/\*(?P<block>.*?)\*/|(?P<lines>(?://[^\n]*(?:\n[ \t]*|\Z))+))", re.DOTALL)
_DECORATION = {"block": re.compile(r"^[ \t]*\* ?", re.MULTILINE), "lines": re.compile(r"^[ \t]*//+ ?", re.MULTILINE)}


@dataclass(frozen=True, slots=True)
class HeadComment:
    """The lines of a comment without its markers, and how many lines of the file stand above it."""

    lines: list[str]
    above: int
    mark: str = ""
    """What each line begins with, in a comment of `//` lines."""

    @property
    def fences(self) -> list[int]:
        """Numbers of the lines that are `---`."""
        return [i for i, line in enumerate(self.lines) if line.strip() == "---"]

    @property
    def inside(self) -> str:
        """The TOML, moved down to where it stands in the file, so that messages name the file's lines."""
        begin, end, *_ = self.fences
        return "\n" * (self.above + begin + 1) + "\n".join(self.lines[begin + 1 : end])

    @property
    def outside(self) -> str:
        """The text before and after the TOML."""
        begin, end, *_ = self.fences
        return "\n".join([*self.lines[:begin], "", *self.lines[end + 1 :]])

    def replaced(self, text: str, lines: list[str]) -> str:
        """The file's text with other lines of TOML."""
        begin, end, *_ = (self.above + fence for fence in self.fences)
        there = text.split("\n")
        return "\n".join([*there[: begin + 1], *(self.mark + line for line in lines), *there[end:]])


def head_comment(text: str) -> HeadComment | None:
    """The first comment above the first line of code that has a line of `---`, or None."""
    return next((comment for comment in _leading_comments(text) if comment.fences), None)


def _leading_comments(text: str) -> Iterator[HeadComment]:
    at = 0
    while match := _COMMENT.match(text, at):
        kind = match.lastgroup or "block"
        body = _DECORATION[kind].sub("", match[kind])
        mark = "// " if kind == "lines" else ""
        yield HeadComment(body.split("\n"), text.count("\n", 0, match.start(kind)), mark)
        at = match.end()
