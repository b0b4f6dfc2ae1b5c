"""The elements a reproducer looks at: what they were, and what would be right."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

import numpy as np

from kernel_assay.corpus.formats import Format, bits_of, format_of
from kernel_assay.corpus.model.findings import Element, Finding, Group
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.model.verdict import Measurement
from kernel_assay.reports.reproducer.values import entry

MOST = 8
"""Elements that are looked at."""
Row = tuple[str, ...]
"""Cells as source."""


def worst(finding: Finding) -> tuple[Element, ...]:
    """The elements that failed most; of older findings the one that decided."""
    shown = finding.exhibit
    if shown is not None and any(e.fails for e in shown.elements):
        return tuple(e for e in shown.elements if e.fails)[:MOST]
    limit = next((m.value for m in finding.verdict.measurements if m.metric == "budget"), 0.0)
    found: dict[tuple[int, ...], Element] = {}
    for m in finding.verdict.measurements:
        if m.index is not None and m.got is not None and m.wanted is not None:
            found.setdefault(m.index, _element(m, limit))
    several = finding.verdict.rule == "z"  # no single element decided
    return tuple(found.values())[: None if several else 1]


def _element(m: Measurement, limit: float) -> Element:
    got, wanted = (math.nan if x is None else x for x in (m.got, m.wanted))
    return Element(index=m.index or (), got=got, wanted=wanted, bits=-1, bound=limit)


def is_bitwise(finding: Finding) -> bool:
    """Whether the output had to be a copy, bit for bit."""
    return finding.verdict.kind is Kind.MISMATCH and any(m.metric == "bits" for m in finding.verdict.measurements)


def plain_rows(elements: Iterable[Element]) -> list[Row]:
    """Index, what it was, what was wanted."""
    return [tuple(map(entry, (e.index, e.got, e.wanted))) for e in elements]


def value_rows(elements: Iterable[Element], dtype: str) -> list[Row]:
    """The same, the error budget, and the lowest and the highest value that would do."""
    fmt = format_of(dtype)
    return [tuple(map(entry, (e.index, e.got, e.wanted, e.bound, *_right(e, fmt)))) for e in elements]


def _right(e: Element, fmt: Format) -> tuple[float, float]:
    """The numbers of the format whose distance from what was wanted the budget and one rounding explain."""
    low, high = (_rounded(e.wanted + sign * e.bound, fmt) for sign in (-1.0, 1.0))
    if low <= e.got <= high and not is_other_zero(e, fmt):  # another rule refused it
        low, high = (
            (math.nextafter(e.got, math.inf), high) if e.got < e.wanted else (low, math.nextafter(e.got, -math.inf))
        )
    return low, high


def is_other_zero(e: Element, fmt: Format) -> bool:
    """Whether nothing but the sign of a zero is wrong."""
    due = _rounded(e.wanted, fmt)
    return e.bound == 0 == e.got == due and math.copysign(1.0, e.got) != math.copysign(1.0, due)


def _rounded(value: float, fmt: Format) -> float:
    with np.errstate(all="ignore"):
        return float(np.asarray(value, np.float64).astype(fmt.dtype)) if fmt.is_float else value


def room_rows(elements: Iterable[Element], dtype: str) -> list[Row]:
    """Index, what it was, what was wanted, and how far apart they may be."""
    return [tuple(map(entry, (e.index, e.got, e.wanted, _room(e, format_of(dtype))))) for e in elements]


def _room(e: Element, fmt: Format) -> float:
    """The distance to the farthest number that would still do, on the side of what it was; 0 where bits count."""
    if not e.bound or not math.isfinite(e.bound) or not math.isfinite(e.wanted):
        return 0.0
    low, high = _right(e, fmt)
    return abs((high if e.got > e.wanted else low) - e.wanted)


def group_rows(groups: Iterable[Group]) -> list[Row]:
    """Rows for the elements of a group: where they are, what they gave together, should have, and how far off."""
    return [tuple(map(entry, (g.start, g.step, g.count, g.got, g.wanted, g.bound))) for g in groups]


def bit_rows(finding: Finding, dtype: str) -> list[Row]:
    """Index, the bits it had, what was wanted and its bits; None for bits that an older record does not have."""
    fmt = format_of(dtype)
    told = _TOLD.search(finding.verdict.message)
    where = next((m.index for m in finding.verdict.measurements if m.metric == "bits"), None)
    return [_bit_row(e, fmt, told if e.index == where else None) for e in worst(finding)]


def _bit_row(e: Element, fmt: Format, told: re.Match[str] | None) -> Row:
    had = _hex(e.bits, fmt) if e.bits >= 0 else told[1] if told else _due(e.got, fmt)
    due = _hex(e.wanted_bits, fmt) if e.wanted_bits >= 0 else told[2] if told else _due(e.wanted, fmt)
    return (entry(e.index), had, entry(e.wanted), due)


_TOLD = re.compile(r"\((0x[0-9a-f]+)\), must be \S+ \((0x[0-9a-f]+)\) bit for bit")
"""The bits of the first element that differs: where those of a wanted NaN are written in an older record."""


def _due(value: float, fmt: Format) -> str:
    return "None" if math.isnan(value) else _hex(bits_of(value, fmt.dtype), fmt)


def _hex(pattern: int, fmt: Format) -> str:
    return f"0x{pattern:0{fmt.bits // 4}x}"


def table(name: str, remark: str, rows: Iterable[Row]) -> str:
    """Rows as a constant."""
    lines = "".join(f"    ({', '.join(row)}),\n" for row in rows)
    return f"{name} = [\n    # {remark}\n{lines}]"
