"""Schedules of the launches of a case: which threads go on first, which run is checked, how it is compiled.

All of it is a function of the case, so that a replay does the same: of Case.number, which its seeds give, and of
Case.contracted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

from kernel_assay.corpus.model.case import Case, number_of
from kernel_assay.kernels.backends.simt.emulator import ORDERS
from kernel_assay.kernels.backends.simt.toolchain import Mode

CHECKED = 4
"""One case in so many is run in check mode too: those whose number is a multiple of it."""
_OFTEN_RESIDUE = 2
"""Of a case's number, divided by CHECKED, where a search that checks often has it on other fields, and checked."""
_FUSED_RESIDUE = 1
"""Of a case's number, divided by CHECKED, where a search draws it contracted."""
UNDEFINED = (0x7B, 0xF4)
"""Bytes of which undefined values are made, in either run: finite, large and of opposite sign in all formats of floats,
so that sums, maxima and minima of the two differ, and other low bits of integers."""


@dataclass(slots=True)
class Schedule:
    """A schedule for the next launch."""

    order: str = ORDERS[0]
    seed: int = 0
    mode: Mode = Mode.FAST
    undefined: int = UNDEFINED[0]
    shares: bool = False
    """Whether blocks lose their turn at atomic operations in check mode, so that all of them share the work."""
    warnings: list[str] = field(default_factory=list)
    """What was seen since it was set."""

    def set(self, seed: int, run: int, *, contracted: bool = False) -> None:
        """Derive the schedule from a case's number, which of its two runs it is, and how it wants a * b + c rounded.

        Both runs of a contracted case are: they are compared bit by bit. So none of them is checked.
        """
        checked = is_checked_run(seed, run, contracted=contracted)
        skipped = 0 if run == 0 or checked else 1 + seed // len(ORDERS) % (len(ORDERS) - 1)
        self.order = ORDERS[(seed + skipped) % len(ORDERS)]
        self.seed = seed
        self.undefined = UNDEFINED[run]
        self.shares = seed // (CHECKED * len(ORDERS)) % 2 == 1
        self.mode = Mode.CHECK if checked else Mode.FUSED if contracted else Mode.FAST
        self.warnings = []


def is_checked_run(number: int, run: int, *, contracted: bool) -> bool:
    """Whether run 0 or 1 of the case with a number is in check mode."""
    return run == 1 and number % CHECKED == 0 and not contracted


def is_checked(case: Case) -> bool:
    """Whether one of its runs is in check mode, emulated or interpreted."""
    return is_checked_run(case.number, 1, contracted=case.contracted)


def in_check_mode(case: Case) -> Case:
    """Move a case to the next fields on which it is run in check mode; a contracted one, which never is, stays."""
    if case.contracted or is_checked(case):
        return case
    seeds = [t.fill.seed for t in case.tensors.values()]
    step = next(i for i in count(1) if number_of([seed + i for seed in seeds]) % CHECKED == 0)
    moved = {name: t.but(fill=t.fill.but(seed=t.fill.seed + step)) for name, t in case.tensors.items()}
    return case.but(tensors=moved)


def drawn_checked(case: Case) -> bool:
    """Whether a search that checks often has it in check mode, too: one more in CHECKED."""
    return case.number % CHECKED == _OFTEN_RESIDUE


def drawn_contracted(case: Case) -> bool:
    """Whether a search has it contracted, if it has any such cases: one in CHECKED, none of them checked."""
    return case.number % CHECKED == _FUSED_RESIDUE
