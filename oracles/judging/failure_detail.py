"""Details of a failing execution for people: the worst elements, a map, the opinions of customary checks."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from kernel_assay.corpus.formats import Array, Format, format_of
from kernel_assay.corpus.model.findings import Element, Exhibit, Picture
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.model.verdict import Verdict
from kernel_assay.oracles.judging import measure_numpy
from kernel_assay.oracles.judging.criteria import due_of, opinions
from kernel_assay.oracles.judging.failure_mask import Mask, misclassed, sign_failures, tie_failures
from kernel_assay.oracles.judging.invariants import groups_of, sums
from kernel_assay.oracles.judging.judge import Evidence, unwritten, value_failures
from kernel_assay.oracles.judging.laws import pair
from kernel_assay.oracles.judging.measure import measure
from kernel_assay.oracles.spec.contract import Budget, Invariant, Law, Reals

WORST, FIRST, FEW = 8, 8, 16
"""Elements shown: the worst, the first that fail; an output of at most FEW elements is shown whole."""
LINES, COLUMNS = 32, 64
"""Cells of a picture."""


def exhibit(evidence: Evidence, verdict: Verdict, *, returns: bool) -> Exhibit:
    """Show how an execution fails; what could not be compared is left out."""
    base, got = unseen(evidence, verdict, returns=returns), evidence.outputs.get(verdict.output)
    if got is None or got.shape != base.shape or format_of(got.dtype).name != base.dtype:
        return base
    with np.errstate(all="ignore"):
        return _compared(base, evidence, verdict, got)


def unseen(evidence: Evidence, verdict: Verdict, *, returns: bool) -> Exhibit:
    """Show what is known without a look at values. A verdict may name an input: what was written beside it, say."""
    specs = evidence.reference.specs
    name = verdict.output if verdict.output in specs else next(iter(specs))
    spec = specs[name]
    return Exhibit(
        output=name,
        outputs=several(specs),
        shape=spec.shape,
        dtype=spec.dtype,
        returns=returns,
        detail=evidence.execution.detail,
    )


def several(names: Iterable[str]) -> tuple[str, ...]:
    """The names of outputs, if there are several."""
    found = tuple(names)
    return found if len(found) > 1 else ()


def exhibit_of_invariant(law: Invariant, evidence: Evidence, verdict: Verdict, *, returns: bool) -> Exhibit:
    """Show how one run breaks an invariant: failing are all elements of the groups that do, against the reference."""
    got = evidence.outputs[verdict.output]
    with np.errstate(all="ignore"):
        found = sums(law, evidence)
        assert found is not None
        bad = np.zeros(got.size, np.bool_)
        bad[found.members[found.bad]] = True
        shown = _compared(unseen(evidence, verdict, returns=returns), evidence, verdict, got, bad.reshape(got.shape))
    return shown.but(groups=groups_of(law, found))


def exhibit_of_law(law: Law, base: Evidence, other: Evidence, verdict: Verdict, *, returns: bool) -> Exhibit:
    """Show how a pair of runs breaks a law: got is the other case's output, wanted what this one's says of it."""
    name = verdict.output
    with np.errstate(all="ignore"):
        p = pair(law, base, other, name)
        fmt = format_of(p.got.dtype)
        view = law.view(base.reference.case) if law.view is not None else ()
        return Exhibit(
            output=name,
            outputs=several(base.reference.specs),
            shape=p.got.shape,
            dtype=fmt.name,
            failing=int(p.bad.sum()),
            elements=_elements(p.got, p.want, due_of(p.want, fmt), p.budget, p.bad, p.lead),
            picture=picture(p.bad),
            partner=other.reference.case,
            factor=law.factor,
            view=tuple((part.start, part.stop, part.step) for part in view),
            whole=base.outputs[name].shape if view else (),
            within=law.within,
            returns=returns,
        )


def _compared(base: Exhibit, e: Evidence, verdict: Verdict, got: Array, bad: Mask | None = None) -> Exhibit:
    name = verdict.output
    budget, want = e.reference.budget(e.subject.numerics)[name], e.want(name)
    due = e.reference.copies[name] if budget.bitwise else due_of(want, format_of(got.dtype))
    if budget.bitwise:
        want = due.astype(np.float64)
    bad = _failing(e, verdict, got, budget) if bad is None else bad
    alike = budget.bitwise or verdict.kind is Kind.UNWRITTEN  # no failure is worse than another
    return base.but(
        shape=got.shape,
        dtype=format_of(got.dtype).name,
        failing=int(bad.sum()),
        elements=_elements(got, want, due, budget, bad, bad if alike else misclassed(got, want, budget)),
        picture=picture(bad),
        ulps=measure(got, want, budget.error, budget.accept).ulp_histogram,
        opinions=tuple(opinions(got, due)) if verdict.kind.facts.of_values else (),
    )


def _failing(e: Evidence, verdict: Verdict, got: Array, budget: Budget) -> Mask:
    name = verdict.output
    if verdict.kind is Kind.UNWRITTEN:
        return unwritten(e, next(report for report in e.execution.outputs if report.name == name))
    bad = value_failures(e, name)
    for m in verdict.measurements:
        if m.metric == "rho_rigorous" and m.index is not None:  # the reference may have let it pass
            bad[m.index] = True
    if bad.any() or budget.bitwise:
        return bad
    want = e.want(name)
    return tie_failures(got, want, budget) | sign_failures(got, want, budget)


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
    excess = measure_numpy.cell_excess(got, r, measure_numpy.facts_of(format_of(got.dtype).name))
    rho = np.where(excess == 0, 0.0, np.where(error > 0, excess / error, np.inf))
    same = (np.isnan(got) & np.isnan(due)) | (got == due)
    found: Reals = np.where(np.isfinite(r), np.where(np.isnan(rho), np.inf, rho), np.where(same, 0.0, np.inf))
    return found


def _steps(got: Array, want: Reals, fmt: Format) -> NDArray[np.int64]:
    """Representable steps between got and the rounded reference, clipped to int64; -1 where there are none."""
    facts, y = measure_numpy.facts_of(fmt.name), got.astype(np.float64)
    finite = np.isfinite(y) & np.isfinite(want) & (np.abs(want) <= facts[measure_numpy.TOP])
    apart = measure_numpy.distance(got.view(fmt.carrier), y, want, facts)
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
    """Indices where cells begin: equal widths but for the last, so that tiles stay visible."""
    return list(range(0, extent, -(-extent // most)))


def _cell(count: int, size: int) -> str:
    if count == 0:
        return "."
    return "#" if count == size else str(max(1, min(9, int(10 * count // size))))
