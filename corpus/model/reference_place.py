"""Where a user's reference is, as records name it: `FILE:NAME#digest`, or `module:NAME@folder#digest`.

Behind the name there may be `.grad`, for the gradient of a reference, and examples of its inputs, if nothing else
describes them: `FILE:NAME.grad(float32[4, 8], 0.5)`.
"""

from __future__ import annotations

import re
import shlex
from typing import NamedTuple, Self

_TARGET = re.compile(r"(?P<place>.+?)(?P<examples>\([^()]*\))?", re.DOTALL)
_GRAD = ".grad"
_FORM = re.compile(r"(?P<target>.+?)(?:@(?P<folder>/.*))?#(?P<digest>[0-9a-f]{16})")


class ReferencePlace(NamedTuple):
    """A reference, and a digest of its file when it was recorded."""

    target: str
    """`FILE:NAME` with a whole path, or `module:NAME`."""
    folder: str
    """Where a module is imported from; empty for a file."""
    digest: str

    @classmethod
    def read(cls, origin: str) -> Self | None:
        """The place that a record's contract names; None if it is a file of a contract, or none."""
        match = _FORM.fullmatch(origin)
        return None if match is None else cls(match["target"], match["folder"] or "", match["digest"])

    def __str__(self) -> str:
        """As records have it."""
        return f"{self.target}{f'@{self.folder}' if self.folder else ''}#{self.digest}"


class Target(NamedTuple):
    """The parts of how a reference is named."""

    where: str
    """A file, or a module."""
    name: str
    """Empty: whichever is the reference there."""
    examples: str
    """Examples of its inputs, with parentheses around them; empty: none are given."""
    grad: bool = False
    """Whether its gradient is meant."""

    @classmethod
    def read(cls, text: str) -> Self:
        """The parts of `FILE[:NAME][.grad][(EXAMPLES)]` or `module:NAME[.grad][(EXAMPLES)]`."""
        match = _TARGET.fullmatch(text)
        place, examples = (match["place"], match["examples"] or "") if match else (text, "")
        where, _, name = place.partition(":")
        return cls(where, name.removesuffix(_GRAD), examples, name.endswith(_GRAD))

    @property
    def is_file(self) -> bool:
        """Whether it stands in a file that is named."""
        return self.where.endswith(".py") or "/" in self.where

    def __str__(self) -> str:
        """As it is written."""
        grad = _GRAD if self.grad else ""
        return f"{self.where}{f':{self.name}{grad}' if self.name or grad else ''}{self.examples}"


def option_for(origin: str) -> str:
    """The option of the command line that makes a record's own op known, with a space before it; empty for none."""
    if not origin:
        return ""
    place = ReferencePlace.read(origin)
    return f" --reference {shlex.quote(place.target)}" if place else f" --contract {shlex.quote(origin)}"
