"""A comparison as people read it: a row for each tensor, then what there is to know of the worst one."""

from __future__ import annotations

from collections.abc import Iterator

from kernel_assay.fuzz.comparing.compare import ratio
from kernel_assay.fuzz.comparing.result import Compared, Comparison, Distance, Spot
from kernel_assay.reports.plain.terminal import table
from kernel_assay.reports.words import count, figure, percent, place, value

_HEAD = ("tensor", "elements", "type", "differ", "max ULP", "NMSE", "cosine", "max abs", "verdict")
_BESIDE = ("tensor", "elements", "type", "A's NMSE", "B's NMSE", "ratio", "A's ULP", "B's ULP", "verdict")
_BUDGET = ("tensor", "elements", "type", "A's NMSE", "B's NMSE", "ratio", "A's rho", "B's rho", "verdict")


def told(c: Comparison, top: int) -> Iterator[str]:
    """Lines of text; top: rows of the table."""
    shown = c.tensors[:top]
    if shown:
        head, row = (_BUDGET, _within) if c.budget_of else (_BESIDE, _beside) if c.truth else (_HEAD, _row)
        yield table(head, [row(one) for one in shown])
    if left := len(c.tensors) - len(shown):
        yield f"  and {count(left, 'more tensor')}"
    if shown and shown[0].distance is not None and (shown[0].distance.differing or shown[0].rows):
        yield ""
        base = "the formula" if c.budget_of else "the truth" if c.truth else "A"
        yield from _details(shown[0], shown[0].distance, base)
    for one in shown[1:]:
        if one.rows:
            yield from (f"{one.name}:", *_rows(one))
    wrong = sum(not one.agrees for one in c.tensors)
    yield ""
    n = len(c.tensors)
    verdict = f"{wrong} of {count(n, 'tensor')} do{'es' * (wrong == 1)} not agree" if wrong else _all(n)
    yield f"{verdict} ({c.asked})"


def _all(n: int) -> str:
    return "the tensor agrees" if n == 1 else f"all {n:,} tensors agree"


def _types(one: Compared) -> str:
    a, b = one.dtypes
    return a if a == b else f"{a}, {b}"


def _row(one: Compared) -> tuple[str, ...]:
    d = one.distance
    if d is None:
        return one.name, f"{one.elements:,}" if one.elements else "", _types(one).strip(", "), *[""] * 5, one.trouble
    numbers = (figure(d.differing), figure(d.max_ulp), figure(d.nmse), f"{d.cosine:.6g}", figure(d.max_abs))
    return one.name, f"{one.elements:,}", _types(one), *numbers, one.trouble or "agrees"


def _beside(one: Compared) -> tuple[str, ...]:
    base, d = one.baseline, one.distance
    if base is None or d is None:
        return one.name, f"{one.elements:,}" if one.elements else "", _types(one).strip(", "), *[""] * 5, one.trouble
    numbers = (figure(base.nmse), figure(d.nmse), figure(ratio(base, d)), figure(base.max_ulp), figure(d.max_ulp))
    return one.name, f"{one.elements:,}", _types(one), *numbers, one.trouble or "agrees"


def _within(one: Compared) -> tuple[str, ...]:
    base, d = one.baseline, one.distance
    numbers = [figure(of.nmse) if of else "" for of in (base, d)] + [figure(ratio(base, d)) if base and d else ""]
    numbers += ["" if rho is None else figure(rho) for rho in (one.baseline_rho, one.rho)]
    return one.name, f"{one.elements:,}", _types(one), *numbers, one.trouble or "agrees"


def _details(one: Compared, d: Distance, base: str) -> Iterator[str]:
    yield f"{one.name}: B against {base}"
    sides = (base, "B")
    share = percent(d.differing / max(one.elements, 1))
    yield f"   differ     {figure(d.differing)} of {count(one.elements, 'element')} ({share})"
    spots = (("first", d.first), ("worst", d.worst), ("largest", d.largest))
    for name, spot in spots:
        if spot is not None:
            yield f"   {name:<10} {_spot(spot, one.dtypes, sides)}"
    yield f"   absolute   max {figure(d.max_abs)}, mean {figure(d.mean_abs)}"
    yield f"   relative   max {figure(d.max_rel)}, mean {figure(d.mean_rel)}, to {sides[d.relative_to == 'B']}"
    yield f"   as a whole NMSE {figure(d.nmse)}, cosine {d.cosine:.9g}, PSNR {figure(d.psnr)} dB"
    yield f"   ULP        {', '.join(_buckets(d.ulp_histogram))} of {d.ulp_of}"
    if d.classes:
        yield f"   classes    {', '.join(f'{n:,} {name}' for name, n in d.classes.items())}"
    yield from _rows(one)
    if one.baseline_trouble:
        yield f"   A itself   {one.baseline_trouble}"


def _spot(spot: Spot, dtypes: tuple[str, str], sides: tuple[str, str]) -> str:
    a, b = (value(number, dtype) for number, dtype in zip((spot.a, spot.b), dtypes, strict=True))
    return f"{place(spot.index)}: {sides[0]} {a}, {sides[1]} {b}"


def _buckets(histogram: tuple[int, ...]) -> Iterator[str]:
    """Counts by steps: `812 by 0, 40 by 1, 3 by 3-4`."""
    for i, n in enumerate(histogram):
        if n:
            low, high = (i, i) if i < 3 else ((1 << (i - 2)) + 1, 1 << (i - 1))
            yield f"{n:,} by {low}" if low == high else f"{n:,} by {low:,}-{high:,}"


def _rows(one: Compared) -> Iterator[str]:
    if one.rows is None:
        return
    r = one.rows
    flips = f"{figure(r.flips)} of {count(r.count, 'row')} with another first choice"
    yield f"   rows       {flips}; KL mean {figure(r.mean_kl)}, max {figure(r.max_kl)}"
    for row in r.worst:
        chosen = f"A {row.a}, B {row.b}" if row.a != row.b else f"both {row.a}"
        yield f"              {place(row.index)}: {chosen}; A's lead {figure(row.lead)}, KL {figure(row.kl)}"
