"""Case number i of a run, passed or not: generated again from the run's record."""

from __future__ import annotations

from itertools import count

from corpus.errors import UsageError
from corpus.records import Case, Subject
from corpus.store import Store
from fuzz.contracts import know_run
from fuzz.elites import Elites
from fuzz.engine import BATCH, ENGINES, propose
from fuzz.plan import targets
from fuzz.subjects import fitting


def case_of_run(store: Store, run: str, index: int) -> tuple[Case, list[Subject]]:
    """The case, and the subjects that ran it. Raises UsageError if the run is not known or did not get that far."""
    campaign = know_run(store.load_run(run))
    if index >= campaign.next_index:
        raise UsageError(f"run {run} has {campaign.next_index} cases; there is no number {index}")
    aims = targets(campaign, int(campaign.options.get("max_elements", 0)) or None)
    elites = Elites(store.read_journal(run, "elites"), campaign.most_lead)
    if campaign.engine == "conjecture":
        case = propose(aims, campaign.seed, index, elites).case
    else:
        batch = next(ENGINES[campaign.engine](aims, campaign.seed, index // BATCH * BATCH, elites))
        case = batch[next(i for i in count() if batch[i].index == index)].case
    keys = fitting(campaign.subjects, case)
    return case, [s for s in campaign.subjects if s.key in keys]
