"""Rough limits: what small changes do to a reference that nobody can follow, and a last room."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from kernel_assay.corpus.formats import Array
from kernel_assay.oracles.numerics.following.intervals import Arithmetic, Span, freed, signs
from kernel_assay.oracles.spec.contract import Question, Reals

FALLBACK = 16.0
"""Of what cannot be followed: how many times what float32 or a neighbour changes a kernel may be off."""
NEAR_TOP = 2.0**-4
"""Of the largest number there is: what is summed to more may overflow in another order, and be no number."""
FEW = 4.0
"""Roundings that a result which is rounded at all may be off by: a recurrence, say, is also computed as a scan."""


def neighbours(inputs: Mapping[str, Array]) -> Iterator[dict[str, Array]]:
    """Make the inputs anew, every other float half a step of float32 smaller, the others as much larger."""
    for period in (2, 3):
        yield {
            name: x if x.dtype.kind in "biu" else x.astype(np.float64) * (1.0 + 2.0**-24 * signs(x.shape, period))
            for name, x in inputs.items()
        }


def from_changes(q: Question, want: Reals, others: Sequence[Reals]) -> Span:
    """Limits around an output by what it becomes after small changes: the most of each row, several times."""
    u = Arithmetic.of(q).unit
    off = np.max([np.abs(other - want) for other in others], axis=0)
    worst = off.max(axis=-1, keepdims=True, initial=0.0) if off.ndim else off
    reach = FALLBACK * (worst * (u / 2.0**-24) + u * np.abs(want) + q.least)
    strange = not np.isfinite(off[np.isfinite(want)]).all()  # what overflows may spoil anything
    reach = np.where(np.isfinite(reach) & ~strange, reach, np.inf)
    return Span(want, want - reach, want + reach)


def roomy(span: Span, unit: float) -> Span:
    """The span with room for a few roundings, to either side to which anything is rounded."""
    value, low, high = span
    room = FEW * unit * np.where(np.isfinite(value), np.abs(value), 0.0)
    return Span(
        value,
        np.where(low < value, np.fmin(low, value - room), low),
        np.where(high > value, np.fmax(high, value + room), high),
    )


def overflowing(span: Span, a: Arithmetic) -> Span:
    """The span, free where a result that is rounded at all comes near to the largest number."""
    near = np.isfinite(span.value) & (np.abs(span.value) >= NEAR_TOP * a.top)
    return freed(span, (span.radius > 0) & near)


def must_agree(spans: Mapping[str, Span], want: Mapping[str, Array]) -> None:
    """Raise an error if what was followed is not what the reference computes."""
    for name, span in spans.items():
        if span.value.shape != want[name].shape:
            raise RuntimeError(f"followed, {name} has another shape")
        off = np.abs(span.value - want[name])
        if (off > 1e-6 * np.abs(want[name]) + np.nan_to_num(span.radius, nan=np.inf) + 1e-12).any():
            raise RuntimeError(f"followed, {name} has other values")
