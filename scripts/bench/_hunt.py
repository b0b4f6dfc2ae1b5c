"""A campaign for one planted bug, until it is found."""

from typing import NamedTuple

import _bench

from corpus.records import Subject
from corpus.store import Store
from fuzz.campaign import Limits, Search
from fuzz.check import Checked, Examiner
from fuzz.engine import Proposal, Target
from fuzz.filing import Failure
from fuzz.plan import fitted, new_campaign, targets


class Caught(NamedTuple):
    """A bug that was found."""

    seconds: float
    proposal: Proposal
    target: Target
    """What the proposal's choices chose from."""
    failure: Failure


class Hunt(Search):
    """A campaign that ends with the first failure of a kind."""

    kind = ""
    target: Target
    caught: Caught | None = None
    _now: Proposal | None = None

    def _account(self, proposal: Proposal, checked: Checked) -> None:
        self._now = proposal
        super()._account(proposal, checked)

    def _meet(self, failure: Failure) -> None:
        if self.caught is None and failure.verdict.kind == self.kind and self._now is not None:
            self.caught = Caught(self.elapsed, self._now, self.target, failure)
            self.stop_requested = True


def hunt(examiner: Examiner, subject: Subject, seed: int, limit: float) -> Caught | None:
    """Search with a subject alone for a failure of the kind that its bug must earn; None if not in `limit` seconds."""
    with _bench.temporary() as folder, Store(folder) as store:
        record = fitted(new_campaign("bench", seed, "conjecture", [subject], {}, ""), examiner.sandbox)
        search = Hunt(examiner, store, record, Limits(limit, after_seconds=0.0))
        search.kind, (search.target,) = subject.planted, targets(record)
        search.run()
        return search.caught
