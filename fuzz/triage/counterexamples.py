"""Make cases that may contradict a rule: the failing case itself on the other side of it, where others say it passes.

What decides may be cut off on the way there, or be too small or of the wrong sign to show.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations, islice

import numpy as np

from kernel_assay.corpus.formats import format_of
from kernel_assay.corpus.model.base import Scalar
from kernel_assay.corpus.model.case import Case, TensorRecipe
from kernel_assay.fuzz.triage.shrink_passes import livelier, with_attrs, with_dims, with_tensor
from kernel_assay.fuzz.triage.shrinker import Shrinker
from kernel_assay.oracles.catalog import contract_of

AT_ONCE = 16
"""Cases, between two looks at the clock."""
MAX_ELEMENTS = 1 << 18
"""Of a neighbour; larger ones are not tried."""
GROWN, GROWN_ELEMENTS = (33, 17, 9, 5), 1 << 14
"""Extents of the other dims with which a rule is tried, the first with which there are no more elements."""
CHOICES, SIDES = 12, 8
"""Choices of places, and values on the side of a rule that is said to pass, that are tried."""


def contradicted(shrinker: Shrinker, cases: Iterable[Case]) -> bool:
    """Whether one of these fails, in whatever way; also if time is over, for then nobody knows."""
    some = [c for c in cases if c.elements <= MAX_ELEMENTS]
    for begin in range(0, len(some), AT_ONCE):
        if shrinker.expired():
            return True
        if any(c.verdicts[shrinker.subject].failed for c in shrinker.judge(some[begin : begin + AT_ONCE])):
            return True
    return shrinker.expired()


def bases(case: Case, original: Case) -> list[Case]:
    """Make cases to change one thing of: what it was found with, more of the same, of either sign, and random numbers.

    original: the case it was found with.
    """
    more = grown(case)
    return [original, more, *mirrored(case), *mirrored(original), livelier(more)]


def with_value(case: Case, name: str, value: Scalar) -> Case:
    """The case with another value of one attribute."""
    contract = contract_of(case.op)
    return with_attrs(case, {**contract.attrs_of(case), name: value}, contract.dims_of(case))


def grown(case: Case, but: str = "") -> Case:
    """The case with all extents as large as is cheap, or all but one."""
    contract = contract_of(case.op)
    dims = contract.dims_of(case)
    for extent in GROWN:
        steps = {d: contract.dims[d] for d in dims if d != but}
        wanted = {d: min(extent // step.multiple * step.multiple, step.most) for d, step in steps.items()}
        larger = with_dims(case, {d: max(dims[d], n) for d, n in wanted.items()})
        if larger.elements <= GROWN_ELEMENTS:
            return larger
    return case


def mirrored(case: Case) -> Iterator[Case]:
    """The case with the signs of one input's numbers changed, for each input of floats."""
    for name, t in case.tensors.items():
        fmt, spec = format_of(t.dtype), contract_of(case.op).inputs[name]
        if fmt.is_float and not (spec.ranged or spec.packed):
            pokes = tuple((at, bits ^ 1 << (fmt.bits - 1)) for at, bits in t.pokes)
            yield with_tensor(case, name, pokes=pokes, fill=t.fill.but(scale=-t.fill.scale))


def squeezed(case: Case, dim: str, extent: int) -> Iterator[Case]:
    """The case with so few places along a dim, those whose elements are written out before others.

    None if there are no such elements, or the dim is not an axis by itself.
    """
    axes = {n: contract_of(case.op).inputs[n].axes.index(dim) for n in case.tensors if dim in _axes(case, n)}
    written = sorted({p for n, axis in axes.items() for p in _places(case.tensors[n], axis)})
    others = [i for i in range(contract_of(case.op).dims_of(case)[dim]) if i not in written]
    base = with_dims(case, {dim: extent})
    for chosen in islice(combinations(written, min(extent, len(written))), CHOICES if written else 0):
        kept = sorted([*chosen, *others[: extent - len(chosen)]])
        moved = {
            n: t.but(pokes=_moved(case.tensors[n], t, axes[n], kept)) for n, t in base.tensors.items() if n in axes
        }
        yield base.but(tensors={**base.tensors, **moved})


def _axes(case: Case, name: str) -> tuple[str, ...]:
    """The axes of an input, as its contract names them; none of one that counts."""
    spec = contract_of(case.op).inputs[name]
    return () if spec.counts else tuple(spec.axes)


def _places(t: TensorRecipe, axis: int) -> list[int]:
    flat = np.array([i for i, _ in t.pokes], np.int64)
    return [int(i) for i in np.unravel_index(flat, t.shape)[axis]]


def _moved(old: TensorRecipe, new: TensorRecipe, axis: int, kept: list[int]) -> tuple[tuple[int, int], ...]:
    moved = []
    for flat, bits in old.pokes:
        at = [int(i) for i in np.unravel_index(flat, old.shape)]
        if at[axis] in kept:
            at[axis] = kept.index(at[axis])
            moved.append((int(np.ravel_multi_index(at, new.shape)), bits))
    return tuple(sorted(moved))
