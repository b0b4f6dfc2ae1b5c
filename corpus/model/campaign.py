"""Records of a run: what it was asked for, how far it is, and what it has counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Literal

from kernel_assay.corpus.model.base import Record, Scalar
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.findings import Environment
from kernel_assay.corpus.model.subject import Subject

DEFAULT_SECONDS = 60.0
"""Of a run that says neither seconds nor cases."""
GENERATION = 5
"""Counts up when the same seed and index give another case; runs that began before keep theirs."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The settings that a run was begun with, as its record keeps them; 0 says: not set."""

    timeout: float = 10.0
    memory_mb: int = 4096
    closed: bool = True
    """Whether kernels were closed in, where the system allowed it."""
    max_elements: int = 0
    device: str = "cpu"
    jobs: int = 0
    case_memory: int = 0
    seconds: float = DEFAULT_SECONDS
    cases: int = 0
    strict: bool = False
    """Whether failures that did not show again count."""

    @classmethod
    def of(cls, record: Mapping[str, Scalar]) -> RunOptions:
        """Read a record, which may be older and lack some."""
        return cls(**{name: record[name] for name in (f.name for f in fields(cls)) if name in record})  # type: ignore[arg-type]


class Space(Record):
    """Classes that the cases of one op and dtype could have, which coverage counts, so that gaps have names."""

    shapes: tuple[str, ...] = ()
    layouts: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    subjects: tuple[str, ...] = ()
    """Names of the subjects that take the dtype."""


class Fidelity(Record):
    """Distance of passing outputs of one kind from what they stand for; told, never judged."""

    what: str
    """The quantity; less is better."""
    worst: float
    limit: float
    """Up to where it is in use in the field."""


class Statistics(Record):
    """Counts of what was seen of one subject."""

    timed: int = 0
    """Executions that ended well."""
    nanoseconds: int = 0
    """Wall time of them together."""
    elements: int = 0
    """Input elements of them together."""
    rho: tuple[int, ...] = ()
    """Passing outputs by budget used: none, then up to 2**-8, 2**-7, ..., 2**0."""
    ulps: tuple[int, ...] = ()
    """Passing outputs by their largest distance from the rounded reference: 0, 1, 2, 3-4, 5-8, ... steps."""
    classes: dict[str, int] = {}
    """Passing outputs in which the reference demanded nan, inf or -inf somewhere."""
    skipped: dict[str, int] = {}
    """Reason -> cases that it declined."""
    warned: int = 0
    """Cases in which the backend saw something doubtful that is no fault."""
    warning: str = ""
    """The first of them, in words."""
    fidelity: dict[str, Fidelity] = {}
    """Of ops that lose something by design: by the attribute that decides what, over cases of independent draws."""
    checked: int = 0
    """Cases of an emulated or interpreted kernel of which one run was in check mode, where every access to memory is
    judged; of a kernel on a GPU: that were also run so on the processors beside it."""
    unchecked: str = ""
    """Why the first of those that could not be run there was not."""


class Call(Record):
    """The way in which a subject is called, as it was found when its file was loaded."""

    returns: bool = False
    """Whether it returns its results; else it writes them into its first arguments."""
    lacks: tuple[str, ...] = ()
    """What is optional for the op and it does not take."""
    needs: tuple[str, ...] = ()
    """Optional inputs that it cannot do without."""


class Moment(Record):
    """The progress of a run at one time."""

    seconds: float
    judged: int
    cells: int
    findings: int


class Tried(Record):
    """Knowledge of the cases that were declined of an op (declines.py), since a trait was last left out."""

    took: tuple[str, ...] = ()
    """Traits of cases that were taken."""
    only: dict[str, tuple[str, int]] = {}
    """Trait -> the only reason for which cases with it were declined ('': there were several), and how many."""
    ends: dict[str, int] = {}
    """Reason -> cases that no trait explains that is left out; '': those that were taken."""
    refused: tuple[str, ...] = ()
    """Traits that are left out."""


class Workload(Record):
    """Calls of a model run that the cases of an op begin with, and are drawn like later (fuzz/planning/workload.py)."""

    file: str
    cases: tuple[Case, ...]
    """The most frequent first; their values are plain."""
    calls: int
    """Calls that they stand for, as often as they were made."""
    left_out: tuple[str, ...] = ()
    """Sentences about calls that they do not stand for."""
    judged: tuple[int, ...] = ()
    """Positions of the cases on which somebody was judged for whom cases are made."""


class Campaign(Record):
    """One run of the search, as far as it got."""

    schema_version: Literal[4] = 4
    run: str
    seed: int
    engine: str = "conjecture"
    generation: int = 1
    """Of the rules by which cases are drawn from the seed; a run that does not say began with the first."""
    most_lead: int = 2
    """Batches that the search may run ahead of the elites it knows, at most."""
    ops: tuple[str, ...] = ()
    subjects: tuple[Subject, ...] = ()
    revision: str = ""
    environment: Environment
    options: dict[str, Scalar] = {}
    started: str = ""
    updated: str = ""
    finished: bool = False
    next_index: int = 0
    """Index of the first case that was not yet judged."""
    cases: int = 0
    judged: int = 0
    """Outputs judged; cases that a subject declines are counted under its kinds only."""
    seconds: float = 0.0
    kinds: dict[str, int] = {}
    by_subject: dict[str, dict[str, int]] = {}
    """Subject key -> kind -> count."""
    findings: tuple[str, ...] = ()
    """Ids of the findings met, new and known."""
    known_hits: int = 0
    coverage: dict[str, int] = {}
    """`op|dtype|shape class|layout|value class|subject` -> cases judged. While a run goes on it is in its journal."""
    goals: dict[str, int] = {}
    """Goal -> index of the case that first reached it; -1: not reached."""
    max_rho: dict[str, float] = {}
    """Subject key -> largest finite rho met."""
    space: dict[str, Space] = {}
    """`op|dtype` -> what its cases could be."""
    estimated: tuple[str, ...] = ()
    """Ops whose error budgets are estimated from their formulas, not derived: weaker."""
    contracts: dict[str, str] = {}
    """Op -> file of a user's own contract, or the place of a reference (reference_place.py)."""
    references: dict[str, str] = {}
    """Op -> what a user's reference was found to be: a function or a module, and its inputs."""
    unfollowed: dict[str, tuple[str, ...]] = {}
    """Op -> what of its reference no estimate follows, by name: there budgets are weaker still (numerics.md 6)."""
    unjudged: dict[str, float] = {}
    """Op -> share of the elements of its gradients that are not judged, as they have no value there, or jump."""
    unused: dict[str, tuple[str, ...]] = {}
    """Op -> optional attributes and inputs that none of the subjects takes; cases are made without."""
    needed: dict[str, tuple[str, ...]] = {}
    """Op -> optional inputs that no subject can do without; every case has them."""
    layouts: dict[str, dict[str, tuple[str, ...]]] = {}
    """Op -> inputs that are not tried in all their layouts, and those in which some subject takes them."""
    shapes: dict[str, tuple[dict[str, int], ...]] = {}
    """Op -> the only extents that its cases have, in turn; without them they are drawn."""
    contracted: bool = False
    """Whether some cases have a * b + c rounded once in kernels that are emulated (Case.contracted)."""
    checks_often: bool = False
    """Whether half of the cases run kernels that are emulated in check mode, and not a quarter of them."""
    calls: dict[str, Call] = {}
    """Subject key -> how it is called; a run that goes on need not load unchanged files to know."""
    checked: dict[str, str] = {}
    """Key of each subject in CUDA C++ on a GPU -> "" if a share of its cases is also run in check mode on the
    processors beside it, else why not."""
    limits: dict[str, tuple[str, ...]] = {}
    """Key of a person's own kernel in CUDA C++ -> at which sizes, larger than any that are run, it would be wrong."""
    library: dict[str, str] = {}
    """Key of a person's own kernel that is to compute by itself -> how it calls of torch what its reference calls, in
    words; empty: it does not, as far as one case shows."""
    tried: dict[str, Tried] = {}
    """By op."""
    workload: dict[str, Workload] = {}
    """By op."""
    reach: dict[str, dict[str, int]] = {}
    """Subject key -> how large dims were in cases that it was judged on, and `elements` of the largest tensor."""
    statistics: dict[str, Statistics] = {}
    """By subject key."""
    timeline: tuple[Moment, ...] = ()
    """Thinned as it grows; a few hundred moments at most."""
    fresh: tuple[str, ...] = ()
    """Ids of the findings that nobody knew before this run."""

    @property
    def chosen(self) -> RunOptions:
        """The options, by their names."""
        return RunOptions.of(self.options)

    def moved(self, next_index: int) -> Campaign:
        """The same, further on. It is not validated anew: that would take longer the more was covered."""
        known = {name: getattr(self, name) for name in type(self).model_fields}
        return Campaign.trusted(**{**known, "next_index": next_index})
