"""The search without one of its ideas, so that what an idea is worth can be measured. It lasts as long as the process.

Nothing of the search knows of these switches: each takes the place of one function or constant.
"""

from collections.abc import Callable
from dataclasses import replace
from types import ModuleType

from kernel_assay.corpus.model.case import Case
from kernel_assay.fuzz.campaign import search
from kernel_assay.fuzz.campaign.batches import Runner
from kernel_assay.fuzz.checking.requests import CheckRequest
from kernel_assay.fuzz.generation import engines, strategies
from kernel_assay.fuzz.generation.engines import Proposal
from kernel_assay.kernels.backends.simt.schedule import is_checked
from kernel_assay.oracles.spec.contract import Input


def _put(module: ModuleType, name: str, value: object) -> None:
    setattr(module, name, value)


def _no_probes() -> None:
    _put(strategies, "_probe", lambda *_: {})


def _no_elites() -> None:
    _put(engines, "MUTATE", 0.0)


def _no_pokes() -> None:
    _put(engines, "NEAR", 0.0)


def _no_layouts() -> None:
    every = strategies.layouts_for

    def plainest(spec: Input) -> tuple[str, ...]:
        return every(spec)[:1]

    _put(strategies, "layouts_for", plainest)
    _put(strategies, "_outputs_of", lambda *_: {})


def _no_check_mode() -> None:
    made = engines.propose

    def unchecked(*args: object) -> Proposal:
        proposal = made(*args)  # type: ignore[arg-type]
        return replace(proposal, case=_reseeded(proposal.case))

    _put(engines, "propose", unchecked)


def _reseeded(case: Case) -> Case:
    """The case with the next seed of its first tensor that is not run in check mode, and is not contracted either."""
    while is_checked(case):
        name, first = next(iter(case.tensors.items()))
        case = case.but(tensors={**case.tensors, name: first.but(fill=first.fill.but(seed=first.fill.seed + 1))})
    return case


class _Lawless(Runner):
    """Judges by the oracle alone."""

    def request(self, proposal: Proposal) -> CheckRequest:
        return replace(super().request(proposal), laws=())


def _no_laws() -> None:
    _put(search, "Runner", _Lawless)


IDEAS: dict[str, Callable[[], None]] = {
    "exact probes": _no_probes,
    "elites": _no_elites,
    "pokes": _no_pokes,
    "layouts": _no_layouts,
    "check mode": _no_check_mode,
    "laws": _no_laws,
}
"""What each is left out by."""
