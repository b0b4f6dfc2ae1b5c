"""How an execution ends (Status), what a verdict says (Kind), and the facts that hold for each kind.

How an experiment can end, and whom each end speaks about:

    Status (what happened, said by the sandbox)      Kind (what it means, said by the oracle)
    ├── ok ───────────────┬── as it should ───────── pass
    │                     ├── values ─────────────── mismatch | nonfinite
    │                     ├── form ───────────────── wrong_shape | wrong_dtype | wrong_layout | aliased
    │                     ├── memory ─────────────── out_of_bounds | unwritten | input_mutated
    │                     └── two runs differ ────── nondeterministic
    ├── faulted ── race | uninitialized | divergent | out_of_bounds | input_mutated | crashed | cheated
    ├── raised ──────────────────────────────────── raised
    ├── timeout ─────────────────────────────────── timeout
    ├── crashed | launch_failed ─────────────────── crashed
    ├── out_of_memory ───────────────────────────── out_of_memory
    ├── build_failed ────────────────────────────── build_failed
    ├── ok, and far slower than beside it ───────── cliff           (said by the search for cliffs)
    ├── any of these after other cases, and not alone ── stateful    (said by whoever looks into it)
    └── unsupported ─────────────────────────────── unsupported     (about the question)
                                                     inconclusive    (about the question)
    trouble of our own is corpus.errors.InternalError, never a record
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """The end of one execution, as the sandbox saw it."""

    OK = "ok"
    UNSUPPORTED = "unsupported"
    BUILD_FAILED = "build_failed"
    FAULTED = "faulted"
    RAISED = "raised"
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    LAUNCH_FAILED = "launch_failed"
    OUT_OF_MEMORY = "out_of_memory"


class Kind(StrEnum):
    """The meaning of an execution, as the oracle judges it; `facts` has what follows from each."""

    PASS = "pass"  # noqa: S105 (a verdict, no password)
    MISMATCH = "mismatch"
    NONFINITE = "nonfinite"
    WRONG_SHAPE = "wrong_shape"
    WRONG_DTYPE = "wrong_dtype"
    WRONG_LAYOUT = "wrong_layout"
    ALIASED = "aliased"
    NONDETERMINISTIC = "nondeterministic"
    STATEFUL = "stateful"
    OUT_OF_BOUNDS = "out_of_bounds"
    UNWRITTEN = "unwritten"
    INPUT_MUTATED = "input_mutated"
    RACE = "race"
    UNINITIALIZED = "uninitialized"
    DIVERGENT = "divergent"
    CHEATED = "cheated"
    RAISED = "raised"
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    OUT_OF_MEMORY = "out_of_memory"
    BUILD_FAILED = "build_failed"
    CLIFF = "cliff"
    UNSUPPORTED = "unsupported"
    INCONCLUSIVE = "inconclusive"

    @property
    def facts(self) -> Facts:
        """The row of the table."""
        return _FACTS.get(self, _PLAIN)


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts about a kind of verdict; the defaults are those of a plain failure."""

    fails: bool = True
    """Whether it is a finding about a subject; what is none is about the question."""
    decided: bool = True
    """Whether it says that a subject is right or wrong."""
    of_values: bool = False
    """Whether values decide it, against the error budget."""
    in_values: bool = False
    """Whether it is about what stands in an output."""
    names_cause: bool = False
    """Whether it names the line at fault, of which wrong values are but symptoms."""
    hidden_on_gpu: bool = False
    """Whether only the emulator gives it: on a GPU such a kernel in CUDA C++ may be right all the same."""
    dear: bool = False
    """Whether another try may cost a whole timeout: it is not run again to be seen closely."""
    ends_worker: bool = False
    """Whether it may cost a worker each time it shows."""


_PLAIN = Facts()
_VALUES = Facts(of_values=True, in_values=True)
_HIDDEN = Facts(names_cause=True, hidden_on_gpu=True)
_DEAR = Facts(dear=True, ends_worker=True)
_FACTS = {
    Kind.PASS: Facts(fails=False),
    Kind.UNSUPPORTED: Facts(fails=False, decided=False),
    Kind.INCONCLUSIVE: Facts(fails=False, decided=False),
    Kind.MISMATCH: _VALUES,
    Kind.NONFINITE: _VALUES,
    Kind.NONDETERMINISTIC: Facts(in_values=True),
    Kind.UNWRITTEN: Facts(in_values=True),
    Kind.OUT_OF_BOUNDS: Facts(names_cause=True),
    Kind.CHEATED: Facts(names_cause=True),
    Kind.RACE: _HIDDEN,
    Kind.UNINITIALIZED: _HIDDEN,
    Kind.DIVERGENT: _HIDDEN,
    Kind.TIMEOUT: _DEAR,
    Kind.OUT_OF_MEMORY: _DEAR,
    Kind.CRASHED: Facts(ends_worker=True),
}
"""Kinds that are more than a plain failure."""
