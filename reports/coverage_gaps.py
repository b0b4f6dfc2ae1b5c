"""Gaps of coverage: what a run could have tried and did not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from kernel_assay.corpus.model.campaign import Campaign, Space

AXES = ("shape", "layout", "values", "subject")
"""What a cell of coverage says besides op and dtype, in the order of its key."""
THIN = 20
"""Outputs below which a class counts as thin."""


@dataclass(frozen=True, slots=True)
class Hole:
    """Classes of one axis that no case of an op and dtype was in."""

    op: str
    dtype: str
    axis: str
    missing: tuple[str, ...]

    def __str__(self) -> str:
        """E.g. `rope float64 never with layout broadcast, transposed`."""
        return f"{self.op} {self.dtype} never with {self.axis} {', '.join(self.missing)}"


def margins(campaign: Campaign) -> dict[str, list[Counter[str]]]:
    """`op|dtype` -> for every axis, class -> outputs judged."""
    found: dict[str, list[Counter[str]]] = {}
    for cell, outputs in campaign.coverage.items():
        op, dtype, *classes = cell.split("|")
        counters = found.setdefault(f"{op}|{dtype}", [Counter() for _ in AXES])
        for counter, name in zip(counters, classes, strict=True):
            counter[name] += outputs
    return found


def possible(space: Space) -> tuple[tuple[str, ...], ...]:
    """The classes there are, axis by axis."""
    return (space.shapes, space.layouts, space.values, space.subjects)


def holes(campaign: Campaign) -> list[Hole]:
    """All of them, by op and dtype."""
    return list(_holes(campaign))


def _holes(campaign: Campaign) -> Iterator[Hole]:
    seen = margins(campaign)
    for key, space in campaign.space.items():
        op, dtype = key.split("|")
        counters = seen.get(key, [Counter() for _ in AXES])
        for axis, classes, counter in zip(AXES, possible(space), counters, strict=True):
            missing = tuple(name for name in classes if not counter[name])
            if missing:
                yield Hole(op, dtype, axis, missing)
