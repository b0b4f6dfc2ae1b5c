"""Examiners of a campaign's subjects, wherever they run: in the process that began it, or on another machine."""

from __future__ import annotations

import math
from collections.abc import Mapping

from kernel_assay.corpus.model.campaign import Call, Campaign
from kernel_assay.fuzz.checking import check_mode
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.kernels.boundary.devices import Place
from kernel_assay.kernels.catalog import resolve, source_digest
from kernel_assay.kernels.sandbox.probing import ReadyBy
from kernel_assay.kernels.sandbox.worker_pool import WorkerPool


def examiner_of(
    campaign: Campaign, place: Place, ready_by: ReadyBy = lambda _: math.inf, pool: WorkerPool | None = None
) -> Examiner:
    """One for a campaign's subjects, as its options say."""
    c = campaign.chosen
    timeout, memory_mb, closed = c.timeout, c.memory_mb, c.closed
    examiner = Examiner(
        campaign.subjects,
        timeout=timeout,
        memory_mb=memory_mb,
        closed=closed,
        place=place,
        ready_by=ready_by,
        calls=_calls(campaign),
        pool=pool,
    )
    if emulated := [s for s in examiner.subjects.values() if campaign.checked.get(s.key) == ""]:
        examiner.beside = check_mode.EmulatingExaminer(emulated, timeout=timeout, memory_mb=memory_mb, closed=closed)
    return examiner


def _calls(campaign: Campaign) -> Mapping[str, Call]:
    """How all subjects of a run that goes on are called; nothing if one of their files has changed, or is new."""
    try:
        changed = [s for s in campaign.subjects if source_digest(resolve(s), s.launch) != s.source_digest]
    except OSError:
        return {}
    return {} if changed or {s.key for s in campaign.subjects} != set(campaign.calls) else campaign.calls
