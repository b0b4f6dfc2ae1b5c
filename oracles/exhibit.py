"""What a person is shown of a failing execution: the worst elements, a map, what customary checks would have said."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from corpus.findings import Element, Exhibit, Opinion, Picture
from corpus.formats import Array, Format, format_of
from corpus.records import Case, Kind, Verdict
from oracles import plain
from oracles.contract import Budget, Law, Reals
from oracles.failing import Mask, misclassed
from oracles.judge import Evidence, tie_failures, unwritten, value_failures
from oracles.laws import broken
from oracles.measure import measure
from oracles.rounding import round_to

WORST, FIRST, FEW = 8, 8, 16
"""Elements shown: the worst, the first that fail; an output of at most FEW elements is shown whole."""
LINES, COLUMNS = 32, 64
"""Cells of a picture."""
DTYPE_CLOSE = {"float16": (1e-3, 1e-5), "bfloat16": (1.6e-2, 1e-5), "float32": (1.3e-6, 1e-5), "float64": (1e-7, 1e-7)}
"""rtol and atol of torch.testing.assert_close (PyTorch's documentation, table of `assert_close`)."""


def exhibit(evidence: Evidence, verdict: Verdict, *, returns: bool) -> Exhibit:
    """How an execution fails, for people; what could not be compared is left out."""
    name = verdict.output or next(iter(evidence.reference.specs))
    spec, got = evidence.reference.specs[name], evidence.outputs.get(verdict.output)
    base = Exhibit(output=name, shape=spec.shape, dtype=spec.dtype, returns=returns, detail=evidence.execution.detail)
    if got is None or got.shape != spec.shape or format_of(got.dtype).name != spec.dtype:
        return base
    with np.errstate(all="ignore"):
        return _compared(base, evidence, verdict, got)


def exhibit_of_law(
    law: Law, base: Evidence, other: Evidence, partner: Case, verdict: Verdict, *, returns: bool
) -> Exhibit:
    """How a pair of runs breaks a law: got is the other case's output, wanted this one's times the law's factor."""
    name = verdict.output
    got, mine = other.outputs[name], base.outputs[name]
    with np.errstate(all="ignore"):
        want = mine.astype(np.float64) * law.factor
        bad = broken(law, mine.astype(np.float64), got.astype(np.float64), got.dtype.name)
        return Exhibit(
            output=name,
            shape=got.shape,
            dtype=format_of(got.dtype).name,
            failing=int(bad.sum()),
            elements=_elements(got, want, _due(got, want), Budget(0.0), bad, bad),
            picture=picture(bad),
            partner=partner,
            factor=law.factor,
            returns=returns,
        )


def _compared(base: Exhibit, e: Evidence, verdict: Verdict, got: Array) -> Exhibit:
    name = verdict.output
    budget, want = e.reference.budget(e.subject.numerics)[name], e.want(name)
    due = e.reference.copies[name] if budget.bitwise else _due(got, want)
    if budget.bitwise:
        want = due.astype(np.float64)
    bad = _failing(e, verdict, got, budget)
    alike = budget.bitwise or verdict.kind is Kind.UNWRITTEN  # no failure is worse than another
    return base.but(
        shape=got.shape,
        dtype=format_of(got.dtype).name,
        failing=int(bad.sum()),
        elements=_elements(got, want, due, budget, bad, bad if alike else misclassed(got, want, budget)),
        picture=picture(bad),
        ulps=measure(got, want, budget.error, budget.accept).ulp_histogram,
        opinions=tuple(_opinions(got, due)) if verdict.kind in {Kind.MISMATCH, Kind.NONFINITE} else (),
    )


def _due(got: Array, want: Reals) -> Array:
    """What should stand there: the reference rounded to the output's type."""
    fmt = format_of(got.dtype)
    return round_to(want, fmt) if fmt.is_float else want.astype(fmt.dtype)


def _failing(e: Evidence, verdict: Verdict, got: Array, budget: Budget) -> Mask:
    name = verdict.output
    if verdict.kind is Kind.UNWRITTEN:
        return unwritten(e, next(report for report in e.execution.outputs if report.name == name))
    bad = value_failures(e, name)
    return bad if bad.any() or budget.bitwise else tie_failures(got, e.want(name), budget)


def _elements(got: Array, want: Reals, due: Array, budget: Budget, bad: Mask, lead: Mask) -> tuple[Element, ...]:
    """The worst and the first failing elements, all if there are few; those of lead come first, in their order."""
    fmt = format_of(got.dtype)
    error = np.broadcast_to(np.asarray(budget.error, np.float64), want.shape).reshape(-1)
    fails, leads = bad.reshape(-1), lead.reshape(-1)
    rho = np.where(leads, np.inf, _rho(got.reshape(-1), want.reshape(-1), due.reshape(-1), error))
    shown = _shown(rho, leads, fails)
    y, r, near = got.reshape(-1)[shown], want.astype(np.float64).reshape(-1)[shown], due.reshape(-1)[shown]
    bits, near_bits = (x.view(fmt.carrier) for x in (y, near))
    steps = _steps(y, r, fmt)
    return tuple(
        Element(
            index=tuple(int(n) for n in np.unravel_index(i, got.shape)) if got.shape else (),
            got=float(y[k]),
            wanted=float(r[k]),
            bits=int(bits[k]),
            wanted_bits=int(near_bits[k]) if budget.bitwise or not np.isnan(near[k]) else -1,
            bound=float(error[i]),
            rho=float(rho[i]),
            ulps=int(steps[k]),
            fails=bool(fails[i]),
        )
        for k, i in enumerate(shown)
    )


def _shown(rho: Reals, leads: Mask, fails: Mask) -> list[int]:
    few = rho.size <= FEW
    among = np.arange(rho.size) if few else np.flatnonzero(fails)
    ranked: list[int] = among[np.lexsort((-rho[among], ~leads[among], ~fails[among]))].tolist()
    if few:
        return ranked
    worst = ranked[:WORST]
    return [*worst, *(i for i in among[: FIRST + len(worst)].tolist() if i not in worst)][: WORST + FIRST]


def _rho(got: Array, r: Reals, due: Array, error: Reals) -> Reals:
    """The excess by the bound; inf where got can be no rounding at all."""
    excess = plain.cell_excess(got, r, plain.facts_of(format_of(got.dtype).name))
    rho = np.where(excess == 0, 0.0, np.where(error > 0, excess / error, np.inf))
    same = (np.isnan(got) & np.isnan(due)) | (got == due)
    found: Reals = np.where(np.isfinite(r), np.where(np.isnan(rho), np.inf, rho), np.where(same, 0.0, np.inf))
    return found


def _steps(got: Array, want: Reals, fmt: Format) -> NDArray[np.int64]:
    """Representable steps between got and the rounded reference, clipped to int64; -1 where there are none."""
    facts, y = plain.facts_of(fmt.name), got.astype(np.float64)
    finite = np.isfinite(y) & np.isfinite(want) & (np.abs(want) <= facts[plain.TOP])
    apart = plain.distance(got.view(fmt.carrier), y, want, facts)
    steps = np.minimum(apart, np.uint64((1 << 63) - 1)).astype(np.int64)
    steps[~finite] = -1
    return steps


def picture(bad: Mask) -> Picture:
    """The map of a mask of any shape; no lines for an empty one."""
    width = bad.shape[-1] if bad.ndim else 1
    height = math.prod(bad.shape[:-1])
    if not bad.size:
        return Picture(lines=(), height=height, width=width)
    matrix = bad.reshape(height, width)
    rows, columns = _edges(height, LINES), _edges(width, COLUMNS)
    count = np.add.reduceat(np.add.reduceat(matrix.astype(np.int64), rows, axis=0), columns, axis=1)
    size = np.diff([*rows, height])[:, None] * np.diff([*columns, width])
    lines = tuple("".join(_cell(c, s) for c, s in zip(*pair, strict=True)) for pair in zip(count, size, strict=True))
    return Picture(lines=lines, height=height, width=width)


def _edges(extent: int, most: int) -> list[int]:
    """Where cells begin: equal widths but for the last, so that tiles stay visible."""
    return list(range(0, extent, -(-extent // most)))


def _cell(count: int, size: int) -> str:
    if count == 0:
        return "."
    return "#" if count == size else str(max(1, min(9, int(10 * count // size))))


def _opinions(got: Array, due: Array) -> Iterator[Opinion]:
    """What the checks that people use would have said, against the reference rounded to the output's type."""
    fmt = format_of(got.dtype)
    near, y = due.astype(np.float64), got.astype(np.float64)
    m = measure(got, near, 0.0)
    worst = f"largest error {m.max_abs:.3g}"
    rtol, atol = DTYPE_CLOSE.get(fmt.name, (0.0, 0.0))
    if fmt.is_float:
        close = [("torch.testing.assert_close", rtol, atol), ("np.allclose", 1e-5, 1e-8)]
        for check, r, a in [*close, ("allclose with 1e-2", 1e-2, 1e-2)]:
            yield Opinion(check=check, value=worst, passes=bool(np.allclose(y, near, r, a, equal_nan=True)))
    yield Opinion(check="cosine >= 0.999", value=f"{m.cosine:.6g}", passes=m.cosine >= 0.999)
    yield Opinion(check="NMSE <= 5e-4", value=f"{m.nmse:.3g}", passes=m.nmse <= 5e-4)
    yield Opinion(check="PSNR >= 40 dB", value=f"{m.psnr:.4g} dB", passes=m.psnr >= 40)
