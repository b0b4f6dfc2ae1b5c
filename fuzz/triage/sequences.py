"""Failures that need a history: a case that fails after others in the same process, and passes in a new one.

A kernel that keeps something between two calls (a result by shape or by pointer, a sum that nobody clears, a count) is
right about each case alone. What shows it is a sequence of cases, which is found, shrunk and run again as one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from kernel_assay.corpus.errors import InternalError, UsageError
from kernel_assay.corpus.model.case import Case
from kernel_assay.fuzz.checking.requests import Checked, CheckRequest
from kernel_assay.fuzz.triage.shrink_passes import SHRINK_PASSES, subsets, weight, with_dims
from kernel_assay.fuzz.triage.shrinker import Shrinker
from kernel_assay.oracles.catalog import contract_of

TRIALS = 4
"""New processes in which a case must pass alone, and as many in which it must fail at the end of its sequence."""
MOST_SHRUNK = 8
"""Cases of a sequence that are made smaller one by one; of a longer one only the last."""


@dataclass(frozen=True, slots=True)
class Chain:
    """Cases that one process runs, the last of which fails."""

    before: tuple[Case, ...]
    case: Case

    def put(self, place: int, case: Case) -> Chain:
        """Put another case at a place; the last place is that of the case that fails."""
        if place == len(self.before):
            return replace(self, case=case)
        return replace(self, before=(*self.before[:place], case, *self.before[place + 1 :]))

    def at(self, place: int) -> Case:
        """The case at a place."""
        return (*self.before, self.case)[place]


class ChainShrinker:
    """One stateful failure: is it one, and what is the least that shows it."""

    def __init__(self, shrinker: Shrinker) -> None:
        """shrinker: of the failure, and of nothing that was judged in other processes."""
        self._shrinker = shrinker

    def check(self, chain: Chain) -> Checked | None:
        """Check the last case of a chain in a new process; None if the oracle fails on it."""
        s = self._shrinker
        laws = (s.target.law,) if s.target.law else ()
        try:
            return s.examiner.check_after(chain.before, CheckRequest(chain.case, (s.subject,), laws))
        except (UsageError, InternalError) as error:
            s.trouble = s.trouble or str(error)
            s.examiner.sandbox.renew()
            return None

    def fails(self, chain: Chain) -> bool:
        """Whether the last case of a chain fails as the failure did."""
        checked = self.check(chain)
        return checked is not None and self._shrinker.same(checked.verdicts[self._shrinker.subject])

    def hits(self, chain: Chain) -> int:
        """Count the new processes, of TRIALS, in which it fails."""
        return sum(self.fails(chain) for _ in range(TRIALS))

    def shows(self, chain: Chain) -> bool:
        """Whether its last case fails each time behind the others, and never alone."""
        alone = Chain((), chain.case)
        return all(not self.fails(alone) and self.fails(chain) for _ in range(TRIALS))

    def shrink(self, chain: Chain) -> Chain:
        """The least that still fails: fewer cases, then smaller ones, all together and one by one."""
        chain = self._together(self._fewer(self._latest(chain)))
        places = range(len(chain.before)) if len(chain.before) <= MOST_SHRUNK else ()
        for place in (len(chain.before), *places):
            smaller = self._one(chain, place)
            if place < len(chain.before) or not self.fails(Chain((), smaller.case)):
                chain = smaller  # else it has turned into a failure that needs no history
        return chain

    def _latest(self, chain: Chain) -> Chain:
        """Try the last of the cases before alone, as few as 1, 2, 4, ..."""
        count = 1
        while count < len(chain.before) and not self._expired():
            shorter = replace(chain, before=chain.before[-count:])
            if self.fails(shorter):
                return shorter
            count *= 2
        return chain

    def _fewer(self, chain: Chain) -> Chain:
        """Try it without those that need not run before."""
        while (shorter := self._first(_shorter(chain))) is not None:
            chain = shorter
        return chain

    def _together(self, chain: Chain) -> Chain:
        """Cut the axes in all cases that have the same: what is kept by shape needs them to be the same."""
        while (smaller := self._first(_cut(chain))) is not None:
            chain = smaller
        return chain

    def _one(self, chain: Chain, place: int) -> Chain:
        """Make one case as small as the rest of the chain allows."""
        s = self._shrinker
        slot = Shrinker(s.examiner, s.subject, s.target, s.deadline, s.stopping, granted=s.granted)
        slot.among = lambda case: ((put := chain.put(place, case)).before, put.case)
        smaller = chain.put(place, slot.run(chain.at(place)))
        s.trouble = s.trouble or slot.trouble
        return smaller

    def _first(self, chains: Iterator[Chain]) -> Chain | None:
        for chain in chains:
            if self._expired():
                return None
            if all(map(self._shrinker.admits, (*chain.before, chain.case))) and self.fails(chain):
                return chain
        return None

    def _expired(self) -> bool:
        return self._shrinker.expired()


def _shorter(chain: Chain) -> Iterator[Chain]:
    """Chains without some of the cases before."""
    return (replace(chain, before=kept) for kept in subsets(chain.before) if kept)


def _cut(chain: Chain) -> Iterator[Chain]:
    """Chains whose last case has smaller dims, and so has every case before it that had the same."""
    contract, limit = contract_of(chain.case.op), weight(chain.case)
    dims = contract.dims_of(chain.case)
    for candidates in SHRINK_PASSES:
        for case in candidates(chain.case):
            if (now := contract.dims_of(case)) != dims and weight(case) < limit:
                before = (with_dims(b, now) if contract.dims_of(b) == dims else b for b in chain.before)
                yield Chain(tuple(before), case)
