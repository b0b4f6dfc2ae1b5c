"""Case number i of a run, passed or not: generated again from the run's record."""

from __future__ import annotations

from itertools import count

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.storage.protocol import CorpusStore
from kernel_assay.fuzz.checking.subjects import fitting
from kernel_assay.fuzz.checking.user_contracts import know_run
from kernel_assay.fuzz.generation.elites import Elites
from kernel_assay.fuzz.generation.engines import BATCH, ENGINES, propose
from kernel_assay.fuzz.planning.plan import targets


def case_of_run(store: CorpusStore, run: str, index: int) -> tuple[Case, list[Subject]]:
    """The case, and the subjects that ran it. Raises UsageError if the run is not known or did not get that far."""
    campaign = know_run(store.load_run(run))
    if index >= campaign.next_index:
        raise UsageError(f"run {run} has {campaign.next_index} cases; there is no number {index}")
    aims = targets(campaign, campaign.chosen.max_elements or None)
    elites = Elites(store.read_journal(run, "elites"), campaign.most_lead)
    if campaign.engine == "conjecture":
        case = propose(aims, campaign.seed, index, elites).case
    else:
        batch = next(ENGINES[campaign.engine](aims, campaign.seed, index // BATCH * BATCH, elites))
        case = batch[next(i for i in count() if batch[i].index == index)].case
    keys = fitting(campaign.subjects, case)
    return case, [s for s in campaign.subjects if s.key in keys]
