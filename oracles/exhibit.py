"""What a person is shown of a failing execution: the worst elements, a map, what customary checks would have said."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from corpus.findings import Element, Exhibit, Opinion, Picture
from corpus.formats import Array, Format, format_of
from corpus.records import Case, Kind, Verdict
from oracles import plain
from oracles.contract import Budget, Law, Reals
from oracles.failing import Mask, failing, failing_bits
from oracles.judge import Evidence, tie_failures
from oracles.laws import broken
from oracles.measure import Measured, measure
from oracles.rounding import round_to

WORST, FIRST, FEW = 8, 8, 16
"""Elements shown: the worst, the first that fail; an output of at most FEW elements is shown whole."""
LINES, COLUMNS = 32, 64
"""Cells of a picture."""
DTYPE_CLOSE = {"float16": (1e-3, 1e-5), "bfloat16": (1.6e-2, 1e-5), "float32": (1.3e-6, 1e-5), "float64": (1e-7, 1e-7)}
"""rtol and atol of torch.testing.assert_close (PyTorch's documentation, table of `assert_close`)."""


def exhibit(evidence: Evidence, verdict: Verdict, *, returns: bool) -> Exhibit:
    """How an execution fails, for people; what could not be compared is left out."""
    base = Exhibit(output=verdict.output, returns=returns, detail=evidence.execution.detail)
    got = evidence.outputs.get(verdict.output)
    spec = evidence.reference.specs.get(verdict.output)
    if got is None or spec is None or got.shape != spec.shape or format_of(got.dtype).name != spec.dtype:
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
            elements=_elements(got, want, Budget(0.0), bad),
            picture=picture(bad),
            partner=partner,
            factor=law.factor,
            returns=returns,
        )


def _compared(base: Exhibit, e: Evidence, verdict: Verdict, got: Array) -> Exhibit:
    budget, want = e.reference.budget(e.subject.numerics)[verdict.output], e.reference.want[verdict.output]
    if budget.bitwise:
        want = e.reference.copies[verdict.output].astype(np.float64)
    bad = _failing(e, verdict, got, budget)
    m = measure(got, want, budget.error, budget.accept, budget.sigma)
    return base.but(
        shape=got.shape,
        dtype=format_of(got.dtype).name,
        failing=int(bad.sum()),
        elements=_elements(got, want, budget, bad),
        picture=picture(bad),
        ulps=m.ulp_histogram,
        opinions=tuple(_opinions(got, want, m)) if verdict.kind in {Kind.MISMATCH, Kind.NONFINITE} else (),
    )


def _failing(e: Evidence, verdict: Verdict, got: Array, budget: Budget) -> Mask:
    name = verdict.output
    if verdict.kind is Kind.UNWRITTEN:
        bits = np.frombuffer(got.tobytes(), np.uint8).reshape(-1, got.itemsize)
        kept: Mask = (bits == 0xFF).all(axis=1).reshape(got.shape)  # kernels.guarded.POISONS[0]
        return kept
    if budget.bitwise:
        return failing_bits(got, e.reference.copies[name]).reshape(got.shape)
    bad = failing(got, e.reference.want[name], budget)
    return bad if bad.any() else tie_failures(got, e.reference.want[name], budget)


def _elements(got: Array, want: Reals, budget: Budget, bad: Mask) -> tuple[Element, ...]:
    """The worst and the first failing elements; all if there are few."""
    fmt = format_of(got.dtype)
    y, r = got.astype(np.float64).reshape(-1), want.reshape(-1)
    error = np.broadcast_to(np.asarray(budget.error, np.float64), want.shape).reshape(-1)
    rho = _rho(y, r, error, fmt)
    fails = bad.reshape(-1)
    steps = _steps(got, want, fmt).reshape(-1)
    bits = np.frombuffer(got.tobytes(), fmt.carrier)
    shown = _shown(np.where(np.isnan(rho), np.inf, rho), fails)
    return tuple(
        Element(
            index=tuple(int(n) for n in np.unravel_index(i, got.shape)) if got.shape else (),
            got=float(y[i]),
            wanted=float(r[i]),
            bits=int(bits[i]),
            bound=float(error[i]),
            rho=float(rho[i]),
            ulps=int(steps[i]),
            fails=bool(fails[i]),
        )
        for i in shown
    )


def _shown(rho: Reals, fails: Mask) -> list[int]:
    if rho.size <= FEW:
        return sorted(range(rho.size), key=lambda i: (not fails[i], -rho[i], i))
    bad = np.flatnonzero(fails)
    worst = bad[np.argsort(-rho[bad], kind="stable")[:WORST]].tolist()
    return [*worst, *(i for i in bad[: FIRST + len(worst)].tolist() if i not in worst)][: WORST + FIRST]


def _rho(y: Reals, r: Reals, error: Reals, fmt: Format) -> Reals:
    excess = plain.cell_excess(y, r, plain.facts_of(fmt.name)) if fmt.is_float else np.abs(y - r)
    rho: Reals = np.where(excess == 0, 0.0, np.where(error > 0, excess / error, np.inf))
    return np.where(np.isfinite(y) & np.isfinite(r), rho, np.where(_same_class(y, r), 0.0, np.inf))


def _same_class(y: Reals, r: Reals) -> NDArray[np.bool_]:
    same: NDArray[np.bool_] = (np.isnan(y) & np.isnan(r)) | (y == r)
    return same


def _steps(got: Array, want: Reals, fmt: Format) -> NDArray[np.int64]:
    """Representable steps between got and the rounded reference, clipped to int64; -1 where there are none."""
    if not fmt.is_float:
        return np.abs(got.astype(np.float64) - want).astype(np.int64)
    near = round_to(want, fmt)
    finite = np.isfinite(got.astype(np.float64)) & np.isfinite(near.astype(np.float64))
    apart = np.abs(_ordinal(got, fmt) - _ordinal(near, fmt))
    return np.where(finite, np.minimum(apart, float(1 << 62)), -1).astype(np.int64)


def _ordinal(x: Array, fmt: Format) -> Reals:
    """Values as positions on the line of representable numbers (float64: to 2**-53, enough to tell people)."""
    bits = np.frombuffer(x.tobytes(), fmt.carrier).reshape(x.shape).astype(np.uint64)
    size = (bits & np.uint64(fmt.sign_bit - 1)).astype(np.float64)
    return np.where(bits & np.uint64(fmt.sign_bit), -size, size)


def picture(bad: Mask) -> Picture:
    """The map of a mask of any shape; no lines for an empty one."""
    width = bad.shape[-1] if bad.ndim else 1
    matrix = bad.reshape(-1, width) if width else bad.reshape(0, 0)
    height = matrix.shape[0]
    if not matrix.size:
        return Picture(lines=(), height=height, width=width)
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


def _opinions(got: Array, want: Reals, m: Measured) -> Iterator[Opinion]:
    """What the checks that people use would have said, against the reference rounded to the output's type."""
    fmt = format_of(got.dtype)
    near = round_to(want, fmt).astype(np.float64) if fmt.is_float else want
    y = got.astype(np.float64)
    worst = f"largest error {m.max_abs:.3g}"
    rtol, atol = DTYPE_CLOSE.get(fmt.name, (0.0, 0.0))
    if fmt.is_float:
        close = [("torch.testing.assert_close", rtol, atol), ("np.allclose", 1e-5, 1e-8)]
        for check, r, a in [*close, ("allclose with 1e-2", 1e-2, 1e-2)]:
            yield Opinion(check=check, value=worst, passes=bool(np.allclose(y, near, r, a, equal_nan=True)))
    yield Opinion(check="cosine >= 0.999", value=f"{m.cosine:.6g}", passes=m.cosine >= 0.999)
    yield Opinion(check="NMSE <= 5e-4", value=f"{m.nmse:.3g}", passes=m.nmse <= 5e-4)
    yield Opinion(check="PSNR >= 40 dB", value=f"{m.psnr:.4g} dB", passes=m.psnr >= 40)
