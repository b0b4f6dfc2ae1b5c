"""The places to stop at: what a finding says of threads and lines, and of the first element that is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kernel_assay.corpus.formats import format_of
from kernel_assay.corpus.model.findings import Finding
from kernel_assay.corpus.model.kinds import Kind

_NUMBERS = r"\d+|\([\d, ]+\)"
_PLACE = re.compile(
    rf"\bthread (?P<thread>{_NUMBERS})(?: of block (?P<block>{_NUMBERS}))?(?P<rest>.*?) "
    r"\((?P<file>[^(),]+), line (?P<line>\d+)\)"
)
"""As kernels/backends/simt/faults.py and kernels/nvidia/sanitizer.py say it."""


@dataclass(frozen=True, slots=True)
class Place:
    """A line, as a thread comes to it."""

    file: str
    """Without folders."""
    line: int
    thread: tuple[int, ...]
    """Along x, y and z."""
    block: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WrongElement:
    """The first element of an output that is wrong, and what stands there."""

    output: str
    at: int
    """In C order."""
    dtype: str
    bits: int
    """Bit pattern of what was got; -1: not always the same."""

    @property
    def other(self) -> int:
        """Another bit pattern, which is no NaN either."""
        return int(self.bits in {0, -1})

    def condition(self, value: str) -> str:
        """Whether the element is what it was, for gdb; of NaN any. value: an expression for its bits."""
        fmt = format_of(self.dtype)
        if self.bits < 0:
            return ""
        if fmt.is_float and fmt.has_inf and np.isnan(np.array(self.bits, fmt.carrier).view(fmt.dtype)):
            infinite = int(np.array(np.inf, fmt.dtype).view(fmt.carrier))
            return f" if ({value} & {(1 << fmt.bits - 1) - 1:#x}) > {infinite:#x}"
        return f" if {value} == {self.bits:#x}"


def places_of(finding: Finding | None) -> tuple[Place, ...]:
    """The accesses that a finding's message names, else those of what compute-sanitizer has said of it."""
    if finding is None:
        return ()
    messages = [finding.verdict.message, *(said.message for said in finding.sanitized)]
    return next((found for message in messages if (found := tuple(_places(message)))), ())


def _places(message: str) -> Iterator[Place]:
    block = ""
    for match in _PLACE.finditer(message):
        block = match["block"] or block
        yield Place(match["file"], int(match["line"]), _along(match["thread"]), _along(block))


def _along(said: str) -> tuple[int, ...]:
    numbers = [int(digits) for digits in re.findall(r"\d+", said)]
    return (*numbers, *[0] * (3 - len(numbers)))


def wrong_element(finding: Finding | None) -> WrongElement | None:
    """The first wrong element, if somebody has written it; None where the evidence names none."""
    exhibit = finding.exhibit if finding else None
    if finding is None or exhibit is None or exhibit.partner is not None or finding.verdict.kind is Kind.UNWRITTEN:
        return None
    wrong = [(int(np.ravel_multi_index(e.index, exhibit.shape)), e.bits) for e in exhibit.elements if e.fails]
    if not wrong or format_of(exhibit.dtype).dtype.itemsize > _WIDEST:
        return None
    at, bits = min(wrong)
    varies = finding.verdict.kind is Kind.NONDETERMINISTIC
    return WrongElement(exhibit.output, at, exhibit.dtype, -1 if varies else bits)


_WIDEST = 8
"""Bytes that a debugger watches at once."""
