"""Invariants of one run of a subject: sums of rows, lengths of pairs. One-run laws (numerics.md 8)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from kernel_assay.corpus.formats import Array, format_of
from kernel_assay.corpus.model.findings import Group
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.model.verdict import Verdict
from kernel_assay.oracles.judging.failure_mask import Mask
from kernel_assay.oracles.judging.judge import Evidence, apart
from kernel_assay.oracles.judging.laws import limits, rounding
from kernel_assay.oracles.judging.patterns import index_pattern, place_of
from kernel_assay.oracles.judging.reference import Reference
from kernel_assay.oracles.spec.contract import INTERVAL, Groups, Invariant, Question, Reals

SHOWN = 8
"""Groups that a person is shown."""


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums of the groups of an output, and where they are not what they must be."""

    groups: Groups
    members: Array
    """Flat indices of the elements, one row more than groups.starts has axes."""
    found: Reals
    wanted: Reals
    allowed: Reals
    """Inf where an element may be other than a number."""
    bad: Mask

    @property
    def ranked(self) -> list[int]:
        """Groups that break it, as flat indices, the worst first."""
        bad = np.flatnonzero(self.bad)
        off = np.abs(self.found - self.wanted).reshape(-1)[bad] / self.allowed.reshape(-1)[bad]
        order: list[int] = bad[np.argsort(-off, kind="stable")].tolist()
        return order


def sums(law: Invariant, e: Evidence) -> Sums | None:
    """Compute an invariant's sums of an output; None: it says nothing about this case."""
    groups, name = _groups(law, e.reference), law.output
    if groups is None:
        return None
    got, (error, accept) = e.outputs[name], limits(e, name)
    values = got.astype(np.float64)
    room = np.where(accept == INTERVAL, error + rounding(values, format_of(got.dtype)), np.inf)
    members = groups.starts[..., None] + groups.step * np.arange(groups.count)
    of, room = values.reshape(-1)[members], room.reshape(-1)[members]
    total = np.hypot.reduce if law.of == "length" else np.sum
    found, wanted = total(of, axis=-1), np.broadcast_to(groups.wanted, groups.starts.shape)
    own = (groups.count + 4) * 2.0**-52 * np.abs(of).sum(axis=-1)  # of these sums, and of those wanted
    allowed = total(room, axis=-1) + own
    bad = np.isfinite(allowed) & np.isfinite(wanted) & ~(np.abs(found - wanted) <= allowed)
    return Sums(groups, members, found, wanted, allowed, bad)


def _groups(law: Invariant, reference: Reference) -> Groups | None:
    with np.errstate(all="ignore"):
        groups = law.groups(Question(reference.case, reference.inputs, reference.attrs, reference.want))
    return groups if groups is not None and groups.starts.size * groups.count else None


def invariants(reference: Reference, names: Collection[str]) -> list[Invariant]:
    """Laws among these that need one run, and say something about this case."""
    laws = (law for law in reference.contract.laws if isinstance(law, Invariant) and law.name in names)
    return [law for law in laws if _groups(law, reference) is not None]


def judge_invariant(law: Invariant, e: Evidence) -> Verdict | None:
    """None if a run keeps what the law says. An output that passed and does not speaks against reference or budget."""
    with np.errstate(all="ignore"):
        s = sums(law, e)
    if s is None or not s.bad.any():
        return None
    at, shape = s.ranked[0], e.outputs[law.output].shape
    got, wanted = apart(*(float(x.reshape(-1)[at]) for x in (s.found, s.wanted)))
    here, share = f"{law.each} {place_of(at, s.bad.shape)}", f"{s.bad.sum()} of {s.bad.size} {law.each}s break it"
    due = f"{wanted} to within {float(s.allowed.reshape(-1)[at]):.3g}"
    text = f"law {law.name}: the {law.of} of {here} of {law.output} is {got}, must be {due} ({share})"
    pattern = index_pattern(np.unique(s.members[s.bad]), shape)
    return e.verdict(Kind.MISMATCH, f"law:{law.name}", text, law.output, pattern, "law")


def groups_of(law: Invariant, s: Sums) -> tuple[Group, ...]:
    """The worst of them, for people."""
    flat = [x.reshape(-1) for x in (s.groups.starts, s.found, s.wanted, s.allowed)]
    return tuple(
        Group(of=law.of, start=start, step=s.groups.step, count=s.groups.count, got=got, wanted=wanted, bound=bound)
        for start, got, wanted, bound in ([x[at].item() for x in flat] for at in s.ranked[:SHOWN])
    )
