"""A campaign for one seeded bug, until it is found."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

import _bench

from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.storage.file_store import Store
from kernel_assay.fuzz.campaign.clock import Clock
from kernel_assay.fuzz.campaign.search import Limits, Search
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.generation.engines import Proposal, Target
from kernel_assay.fuzz.planning.plan import fitted, new_campaign, targets
from kernel_assay.fuzz.triage.failures import Failure


class Caught(NamedTuple):
    """A bug that was found."""

    seconds: float
    proposal: Proposal
    target: Target
    """What the proposal's choices chose from."""
    failure: Failure


class _Watch:
    """In place of the triage queue: the first failure of a kind ends the search."""

    def __init__(self, search: "Hunt", kind: str, target: Target, others: Counter[str]) -> None:
        """kind: empty is any; others: counts the kinds of failures that are not the one."""
        self._search, self._kind, self._target, self._others = search, kind, target, others
        self.caught: Caught | None = None

    def meet(self, failure: Failure) -> None:
        if self._kind and failure.verdict.kind != self._kind:
            self._others[failure.verdict.kind.value] += 1
        elif self.caught is None:
            index = int(failure.found_by.rpartition(":")[2])
            made, seconds = self._search.made[index], self._search.recorder.elapsed
            self.caught = Caught(seconds, made, self._target, failure)
            self._search.stop_requested = True


class Hunt(Search):
    """A campaign that remembers how its cases were made."""

    def __post_init__(self, began: Clock | None) -> None:
        super().__post_init__(began)
        self.made: dict[int, Proposal] = {}

    def _stream(self) -> Iterator[list[Proposal]]:
        for batch in super()._stream():
            self.made.update((p.index, p) for p in batch)
            yield batch


def hunt(
    examiner: Examiner,
    subject: Subject,
    seed: int,
    limit: float,
    others: Counter[str] | None = None,
    *,
    checks_often: bool = False,
    judged: Callable[[int], None] = lambda _: None,
) -> Caught | None:
    """Search with a subject alone for a failure of the kind that its bug must earn, of any if it is not said which.

    None: not in `limit` seconds.
    others: where failures of other kinds are counted. checks_often: as runs of a person's own kernels do.
    judged: is told how many cases were judged.
    """
    with _bench.temporary() as folder, Store(folder) as store:
        record = fitted(new_campaign("bench", seed, "conjecture", [subject]), examiner.sandbox)
        record = record.but(checks_often=checks_often)
        search = Hunt(examiner, store, record, Limits(limit, after_seconds=0.0))
        (target,) = targets(record)
        watch = _Watch(search, subject.planted, target, Counter() if others is None else others)
        search.queue.meet = watch.meet  # type: ignore[method-assign]
        search.run()
        judged(search.ledger.judged)
        return watch.caught
