"""The sampled oracle: a large case is judged by parts of it, each exactly as a small case would be.

What concerns the run as a whole (status, red zones, form, poison, two runs that differ) is judged of the whole. Values
are judged by parts (oracles/large/parts.py): the op's own reference and budget, on a few rows and columns. A pass says
nothing of the elements that are in no part; how many those are, the shares tell.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kernel_assay.corpus.errors import InternalError
from kernel_assay.corpus.formats import Array
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.coverage_share import Share
from kernel_assay.corpus.model.execution import Execution, OutputReport
from kernel_assay.corpus.model.kinds import Kind, Status
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.model.verdict import Verdict
from kernel_assay.corpus.remote_array import Outputs, Remote
from kernel_assay.oracles.judging.judge import RULES, Evidence, judge, value_failures
from kernel_assay.oracles.judging.patterns import TILES, index_pattern, place_of
from kernel_assay.oracles.judging.reference import Reference
from kernel_assay.oracles.large.parts import Part, sample
from kernel_assay.oracles.large.remote_output import Held
from kernel_assay.oracles.spec.contract import Contract

LOOKED_AT = 1 << 24
"""Elements that are looked at for the poison at once."""
MOST_KEPT = 1 << 24
"""Those that were never written, and whose places are told apart."""
VALUES_BY_ELEMENT = frozenset({"class", "exact", "rho"})
"""Rules that say of each element whether it fails."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """Verdicts on the parts of a case."""

    verdict: Verdict
    """Its places are those of the whole; of a pass, rho and ulps are the largest of any part."""
    shares: tuple[Share, ...]
    """One for each output."""

    def plus(self, other: Sampled) -> Sampled:
        """Add one of different elements: a failure of either is one, and this one's comes first."""
        shares = tuple(a.plus(b) for a, b in zip(self.shares, other.shares, strict=True))
        return Sampled(_worse(self.verdict, other.verdict), shares)


def judge_large(contract: Contract, case: Case, subject: Subject, execution: Execution, outputs: Outputs) -> Sampled:
    """The verdict on one execution of a case of any size, by a sample of its elements.

    outputs: by name, of the whole case. Raises UsageError if no part of the case is small enough, and
    InternalError as judge does.
    """
    if verdict := judge_form(contract, case, subject, execution, outputs):
        return Sampled(verdict, _nothing(outputs))
    return judge_parts(sample(contract, case), subject, outputs)


def judge_form(
    contract: Contract, case: Case, subject: Subject, execution: Execution, outputs: Outputs
) -> Verdict | None:
    """Judge what needs no look at values: status, red zones, inputs, form, poison, rerun. None: all is well."""
    written = [report.but(unwritten=0) for report in execution.outputs]
    alike = [report.but(differing=0) for report in written]
    reference = Reference(contract, case, {})
    if verdict := _by_rules(Evidence(reference, subject, execution.but(outputs=tuple(alike)), {})):
        return verdict
    for report in execution.outputs:
        if report.unwritten:
            return _unwritten(Evidence(reference, subject, execution, {}), report, outputs[report.name])
    found = _by_rules(Evidence(reference, subject, execution.but(outputs=tuple(written)), {}))
    if found is not None and found.kind is Kind.NONDETERMINISTIC and subject.numerics.order == "any":
        text = f"{found.message}, as is claimed, but of a large case the second run is not judged"
        return Verdict(kind=Kind.INCONCLUSIVE, message=text, output=found.output)
    return found


def _by_rules(evidence: Evidence) -> Verdict | None:
    """Ask the oracle's rules in turn; poison would have to look at values."""
    return next((verdict for rule in RULES if (verdict := rule(evidence))), None)


def judge_parts(parts: Sequence[Part], subject: Subject, outputs: Outputs) -> Sampled:
    """The verdict on the values of these parts, of which there must be one, and what share of the outputs they are.

    outputs: those of the whole. Raises InternalError as judge does.
    """
    if missing := sorted(set(parts[0].contract.outputs) - set(outputs)):
        raise InternalError(f"{subject.key}: an execution without its output {missing[0]!r} cannot be judged")
    found = [judge_part(part, part.reference(), subject, outputs) for part in parts]
    total = found[0]
    for one in found[1:]:
        total = total.plus(one)
    return total


def judge_part(part: Part, reference: Reference, subject: Subject, outputs: Outputs) -> Sampled:
    """The verdict on the values of one part. reference: that of the part, which several subjects may share."""
    mine = part.of(outputs)
    shares = tuple(
        Share(output=name, of=outputs[name].size, **{"full" if got.size == outputs[name].size else "sampled": got.size})
        for name, got in mine.items()
    )
    ran = Execution(status=Status.OK, subject=subject.key)
    verdict = judge(reference, subject, ran, mine)
    if verdict.kind is Kind.PASS or not any(part.axes[name] for name in mine):
        return Sampled(verdict, shares)
    return Sampled(_of_the_whole(part, Evidence(reference, subject, ran, mine), verdict, outputs), shares)


def _nothing(outputs: Outputs) -> tuple[Share, ...]:
    return tuple(Share(output=name, of=array.size) for name, array in outputs.items())


def _worse(one: Verdict, other: Verdict) -> Verdict:
    """The first that fails, then the first that is no pass; of two passes one with the largest numbers of both."""
    for said in (one, other):
        if said.failed:
            return said
    for said in (one, other):
        if said.kind is not Kind.PASS:
            return said
    return one.but(rho=max(one.rho, other.rho), ulps=max(one.ulps, other.ulps))


def _unwritten(e: Evidence, report: OutputReport, output: Array | Remote) -> Verdict:
    """The oracle's verdict, but for elements that look like poison and are right: which those are is not asked."""
    text = (
        f"{report.name}{place_of(report.first_unwritten, report.shape)} was never written "
        f"({report.unwritten} of {output.size} elements were not)"
    )
    if isinstance(output, Held):
        pattern = output.unwritten(report.first_unwritten, report.unwritten)
    else:
        assert not isinstance(output, Remote)
        flat = np.ascontiguousarray(output).reshape(-1)
        kept = (_kept(flat[at : at + LOOKED_AT]) + at for at in range(0, flat.size, LOOKED_AT))
        pattern = unwritten_pattern(kept, report.first_unwritten, report.unwritten, report.shape)
    return e.verdict(Kind.UNWRITTEN, "poison", text, report.name, pattern)


def _kept(some: Array) -> Array:
    """The indices of elements that look like the poison."""
    return np.flatnonzero((some.view(np.uint8).reshape(some.size, -1) == 0xFF).all(axis=1))


def unwritten_pattern(kept: Iterable[Array], first: int, count: int, shape: tuple[int, ...]) -> str:
    """One word for where elements were never written.

    kept: flat indices, ascending, of all that look like the poison, stretch by stretch; first: of those that were not
    written, which are so many; of very many the first decide.
    """
    if count == math.prod(shape):
        return "all"
    found, size = [np.zeros(0, np.int64)], 0
    for some in kept:
        found.append(some[some >= first])
        size += len(found[-1])
        if size >= min(count, MOST_KEPT):
            break
    return index_pattern(np.concatenate(found)[: min(count, MOST_KEPT)], shape)


def _of_the_whole(part: Part, e: Evidence, verdict: Verdict, outputs: Outputs) -> Verdict:
    """The verdict with the places of the whole, and what is known of the pattern of failures there."""
    name, shape = verdict.output, outputs[verdict.output].shape
    measured = tuple(m if m.index is None else m.but(index=part.place(name, m.index)) for m in verdict.measurements)
    share = f"; {e.outputs[name].size} of {outputs[name].size} elements were judged"
    changed = {"measurements": measured, "message": moved(verdict.message, part, name) + share}
    if verdict.signature is None:
        return verdict.but(**changed)
    with np.errstate(all="ignore"):  # values of any kind are looked at
        bad = value_failures(e, name) if verdict.rule in VALUES_BY_ELEMENT else np.zeros(0, np.bool_)
    pattern = pattern_of(part, name, bad, shape) if bad.any() else verdict.signature.index_pattern
    return verdict.but(**changed, signature=verdict.signature.but(index_pattern=pattern))


def moved(message: str, part: Part, name: str) -> str:
    """The message, whose first place is that of the whole."""

    def elsewhere(found: re.Match[str]) -> str:
        index = [int(i) for i in found[1].split(", ")]
        return f"{name}[{', '.join(map(str, part.place(name, index)))}]"

    return re.sub(rf"{re.escape(name)}\[([0-9, ]+)\]", elsewhere, message, count=1)


def pattern_of(part: Part, name: str, bad: Array, shape: tuple[int, ...]) -> str:
    """The pattern of a part's failing elements in the whole, in the words of oracles.judging.patterns.index_pattern.

    bad: a mask of the part's shape; shape: the whole output's. Whole rows, columns and all are those of the part, for
    no more is known, and all of one row is that row; ends and tails of tiles are those of the whole.
    """
    word = index_pattern(bad, bad.shape)
    if np.count_nonzero(bad) == 1:
        at = part.place(name, [int(i) for i in np.argwhere(bad)[0]])
        flat, size = int(np.ravel_multi_index(at, shape)), int(np.prod(shape, dtype=np.int64))
        return {0: "first_element", size - 1: "last_element"}.get(flat, "single")
    if word == "all" and len(shape) > 1:
        height, width = (bad.shape[axis] if shape[axis] > 1 else 0 for axis in (-2, -1))
        word = "one_row" if height == 1 else "one_column" if width == 1 else word
    axes = {"tile_tail_columns": len(shape) - 1, "tile_tail_rows": len(shape) - 2}
    for tail, axis in axes.items():
        if axis >= 0 and _is_tail(part.axes[name], bad, axis, shape[axis]):
            return tail
    return "scattered" if word in axes else word


def _is_tail(along: Mapping[int, Array], bad: Array, axis: int, extent: int) -> bool:
    """Whether along an axis exactly those indices of the part fail that lie behind the whole's last full tile."""
    index = along[axis] if axis in along else np.arange(extent)
    fails = bad.any(axis=tuple(a for a in range(bad.ndim) if a != axis))
    starts = {extent // tile * tile for tile in TILES if extent > tile and extent % tile}
    return any(np.array_equal(fails, index >= start) for start in starts)
