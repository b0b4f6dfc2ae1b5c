"""Two subjects, compared at every element of a large output: a filter that proposes where to look, never a judge.

What two right outputs may differ by is E of the one, E of the other, and both roundings. The budgets of a large output
are not known everywhere, only in parts of it; so `room_of` takes a model that holds there:

    |x - y| <= level * size + floor + unit * (|x| + |y|) + eta,    size = max(|y|, rms of its row * rms of its column)

with rms relative to that of all. That is no bound: what other rows and columns give may have another budget. So nobody
is accused by it. The elements with the largest ratio of both sides are recomputed by the oracle, with their rows and
columns (oracles/large/parts.py), and the ordinary budget decides. Hence no false alarm; and a fault of one element is
found, wherever it is, if fewer than MOST others have a larger ratio. What it can miss:

- a fault that both outputs have;
- one that is smaller, in units of the room, than those that were examined: `Suspects.reach` says how far all others are
  from the peer at most. Where sizes vary from row to row by more than rms tells, rooms of small elements are too large.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kernel_assay.corpus.formats import Array
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.coverage_share import Apart, Share
from kernel_assay.corpus.model.subject import Numerics, Subject
from kernel_assay.corpus.remote_array import Outputs, Remote
from kernel_assay.oracles.judging.reference import Reference
from kernel_assay.oracles.large.parts import Part, around, cut, sample
from kernel_assay.oracles.large.remote_output import Held
from kernel_assay.oracles.large.sampled import Sampled, judge_part
from kernel_assay.oracles.large.suspects import Room, Suspects, sizes, suspects
from kernel_assay.oracles.spec.contract import Contract, Reals

Pair = tuple[Part, Reference]


@dataclass(frozen=True, slots=True)
class Confronted:
    """The result of a comparison."""

    mine: Sampled
    theirs: Sampled
    suspects: dict[str, Suspects]
    """By output."""
    left: int
    """Suspects that were not recomputed, for they lie in too many different rows."""


def confront(
    contract: Contract,
    case: Case,
    mine: tuple[Subject, Outputs],
    theirs: tuple[Subject, Outputs],
    pairs: Sequence[Pair] | None = None,
) -> Confronted:
    """Judge two subjects by a sample, and by the elements at which they differ most.

    mine, theirs: each with its outputs of the whole case, of the right form and both where the other's are; pairs: the
    sample with its references, if it is known. Raises UsageError for outputs of different shapes or dtypes, and as
    sample does.
    """
    (one, x), (other, y) = mine, theirs
    pairs = [(part, part.reference()) for part in sample(contract, case)] if pairs is None else list(pairs)
    found, near, left = _examined(contract, case, x, y, (pairs, (one.numerics, other.numerics)))
    shares = _shares(x, "peer", y, other.name), _shares(y, "peer", x, one.name)
    mine_said, theirs_said = (
        _judged([*pairs, *near], subject, outputs, share)
        for subject, outputs, share in zip((one, other), (x, y), shares, strict=True)
    )
    return Confronted(mine_said, theirs_said, found, left)


def refer(
    contract: Contract, case: Case, subject: Subject, outputs: Outputs, right: Mapping[str, Held], pairs: Sequence[Pair]
) -> Sampled:
    """Judge a subject by a sample, and by the elements at which it differs most from a reference in float64.

    outputs: held where the reference, right, is; pairs: the sample with its references.
    """
    _, near, _ = _examined(contract, case, outputs, right, (pairs, (subject.numerics,)))
    return _judged([*pairs, *near], subject, outputs, _shares(outputs, "reference", right, ""))


def _examined(
    contract: Contract, case: Case, x: Outputs, y: Outputs, known: tuple[Sequence[Pair], Sequence[Numerics]]
) -> tuple[dict[str, Suspects], list[Pair], int]:
    """Suspects by output, parts that hold them, and how many are in none. known: the sample, and what is claimed."""
    found: dict[str, Suspects] = {}
    pairs, left = list(known[0]), 0
    for name in contract.outputs:
        found[name] = _suspects(x[name], y[name], room_of(pairs, name, known[1], y[name]))
        whole = any(not part.axes[name] for part, _ in known[0])  # then all its elements are judged already
        near, rest = ([], []) if whole else around(contract, case, name, found[name].at.tolist())
        pairs += [(part, part.reference()) for part in near]
        left += len(rest)
    return found, pairs[len(known[0]) :], left


def _suspects(x: Array | Remote, y: Array | Remote, room: Room) -> Suspects:
    """Suspects of both."""
    if isinstance(x, Held) and isinstance(y, Held):
        return x.suspects(y, room)
    assert not isinstance(x, Remote)
    assert not isinstance(y, Remote)
    return suspects(x, y, room)


def _judged(pairs: Sequence[Pair], subject: Subject, outputs: Outputs, shares: tuple[Share, ...]) -> Sampled:
    found = [judge_part(part, reference, subject, outputs) for part, reference in pairs]
    total = Sampled(found[0].verdict, shares)
    for one in found:
        total = total.plus(one)
    return total


def _shares(x: Outputs, way: str, y: Outputs, peer: str) -> tuple[Share, ...]:
    """All of each output, compared; where both are held, with how far they are apart."""
    return tuple(
        Share(output=name, of=one.size, apart=_apart(one, y[name], peer), **{way: one.size}) for name, one in x.items()
    )


def _apart(x: Array | Remote, y: Array | Remote, peer: str) -> tuple[Apart, ...]:
    if not (isinstance(x, Held) and isinstance(y, Held)):
        return ()
    m = x.measured(y)
    at = tuple(int(i) for i in np.unravel_index(m.max_ulp_index, x.shape)) if m.max_ulp_index >= 0 else None
    return (
        Apart(
            peer=peer,
            ulps=m.max_ulp,
            at=at,
            nmse=m.nmse,
            cosine=m.cosine,
            psnr=m.psnr,
            max_abs=m.max_abs,
            max_rel=m.max_rel,
            nonfinite=m.got_nonfinite,
            wanted_nonfinite=m.want_nonfinite,
        ),
    )


def room_of(pairs: Iterable[Pair], name: str, claims: Sequence[Numerics], y: Array | Remote) -> Room:
    """The room of an output, from the budgets of its parts under all claims; y: the other output."""
    assert isinstance(y, Held) or not isinstance(y, Remote)
    rows, columns = y.sizes() if isinstance(y, Held) else sizes(y)
    level, floor, bitwise = 0.0, 0.0, False
    for part, reference in pairs:
        want = np.abs(reference.want[name])
        budgets = [reference.budget(claim)[name] for claim in claims]
        error = np.zeros(want.shape)
        for budget in budgets:
            error += np.asarray(budget.error)
        size = np.maximum(want, _model(part, name, rows, columns).reshape(want.shape))
        known = np.isfinite(error) & np.isfinite(size)
        level = max(level, float((error[known & (size > 0)] / size[known & (size > 0)]).max(initial=0.0)))
        floor = max(floor, float(error[known & (size == 0)].max(initial=0.0)))
        bitwise = bitwise or any(budget.bitwise for budget in budgets)
    return Room(level, floor, rows, columns, bitwise)


def _model(part: Part, name: str, rows: Reals | Remote, columns: Reals | Remote) -> Reals:
    """A model of the elements of a part from rows and columns."""
    along, last = part.axes[name], len(rows.shape)
    height = cut(rows, {axis: index for axis, index in along.items() if axis < last})
    width = cut(columns, {0: along[last]} if last in along else {})
    return np.asarray(height[..., None] * width)
