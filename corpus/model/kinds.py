"""The nouns. Every type that is written to disk or crosses a process, and nothing that runs.

How an experiment can end, and whom each end speaks about:

    Status (what happened, said by the sandbox)      Kind (what it means, said by the judge)
    ├── ok ───────────────┬── as it should ───────── pass
    │                     ├── values ─────────────── mismatch | nonfinite
    │                     ├── form ───────────────── wrong_shape | wrong_dtype | wrong_layout | aliased
    │                     ├── memory ─────────────── out_of_bounds | unwritten | input_mutated
    │                     └── two runs differ ────── nondeterministic
    ├── faulted ── race | uninitialized | divergent | out_of_bounds | input_mutated | crashed
    ├── raised ──────────────────────────────────── raised
    ├── timeout ─────────────────────────────────── timeout
    ├── crashed | launch_failed ─────────────────── crashed
    ├── out_of_memory ───────────────────────────── out_of_memory
    ├── build_failed ────────────────────────────── build_failed
    ├── any of these after other cases, and not alone ── stateful    (said by whoever looks into it)
    └── unsupported ─────────────────────────────── unsupported     (about the question)
                                                     inconclusive    (about the question)
    trouble of our own is corpus.errors.InternalError, never a record
"""

from __future__ import annotations

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
    """The meaning of an execution, as the oracle judges it."""

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
    RAISED = "raised"
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    OUT_OF_MEMORY = "out_of_memory"
    BUILD_FAILED = "build_failed"
    UNSUPPORTED = "unsupported"
    INCONCLUSIVE = "inconclusive"


BLAMELESS = frozenset({Kind.PASS, Kind.UNSUPPORTED, Kind.INCONCLUSIVE})
"""Kinds that are no finding about a subject."""
