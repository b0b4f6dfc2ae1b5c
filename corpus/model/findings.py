"""Records of findings: a failure, or a cliff, how it looks, which others have it, and what became of it."""

from __future__ import annotations

import hashlib
from datetime import UTC, date, datetime
from enum import StrEnum
from operator import not_
from typing import Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, field_validator

from kernel_assay.corpus.model.base import Record
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.model.verdict import Signature, Verdict


class Environment(Record):
    """The place where something was observed: machine, system, versions."""

    python: str
    platform: str
    machine: str
    processor: str = ""
    packages: dict[str, str] = {}
    devices: tuple[str, ...] = ()


class State(StrEnum):
    """Life of a finding: the latest thing that is true of it."""

    NEW = "new"
    """Met once; nobody has run it again."""
    CONFIRMED = "confirmed"
    """Failed every time it was run again, alone."""
    FLAKY = "flaky"
    """Fails in some runs only; `probability` says in how many."""
    MINIMIZED = "minimized"
    """Confirmed, and no move makes it smaller."""
    OPEN = "open"
    """Known: met again by a later run, or promoted by a person."""
    FIXED = "fixed"
    """A replay passed. Nothing else makes a finding fixed."""
    REGRESSION = "regression"
    """It was fixed once: it fails again, or it is kept so that it cannot."""


STATES = {
    State.NEW: "met once, not yet run again",
    State.CONFIRMED: "failed every time it was run again",
    State.FLAKY: "fails in some runs only",
    State.MINIMIZED: "confirmed and shrunk",
    State.OPEN: "known: met again later, or promoted",
    State.FIXED: "a replay passed",
    State.REGRESSION: "was fixed once, and failed again or guards against it",
}
"""One line each, for people."""


BESIDE = "; it fails beside "
"""In an event: the failure did not show alone, but each time where another subject, named next, ran as well."""


class Event(Record):
    """One thing that happened to a finding."""

    at: str
    """ISO 8601, UTC."""
    state: State
    """Its state from then on."""
    what: str = ""
    """In words, e.g. `5 of 5 runs failed` or the reason a person gave."""


class Element(Record):
    """One element of an output, as the oracle saw it."""

    index: tuple[int, ...]
    got: float
    wanted: float
    bits: int = 0
    """Bit pattern of what was got."""
    wanted_bits: int = -1
    """Bit pattern of what should stand there, rounded; -1 where any NaN would do, or nobody noted it."""
    bound: float = 0.0
    """Error budget before the final rounding; 0 where the rounded value was demanded."""
    rho: float = 0.0
    """How far the reference lies outside the numbers that round to `got`, divided by the bound; 1 is the line.

    Inf where no distance is the matter: a wrong class, other bits than those of a copy, an element never written.
    """
    ulps: int = -1
    """Representable steps between got and the rounded reference; -1 where one of them is not finite."""
    fails: bool = True


class Picture(Record):
    """A map of the failing elements of an output, seen as a matrix of its last axis, scaled down to fit a screen."""

    lines: tuple[str, ...]
    """A character a cell: `.` none of its elements fails, `1` to `9` so many tenths, `#` all."""
    height: int
    """Rows of the output: the product of all axes but the last."""
    width: int

    @property
    def scaled(self) -> bool:
        """Whether a cell stands for more than one element."""
        return bool(self.lines) and (self.height, self.width) != (len(self.lines), len(self.lines[0]))


class Opinion(Record):
    """The opinion of a customary check about the same output."""

    check: str
    """E.g. `cosine >= 0.999`."""
    value: str = ""
    """What it measured."""
    passes: bool
    """True: this check is blind to the failure."""


GroupOf = Literal["sum", "length"]
"""What elements that belong together give: their sum, or the root of the sum of their squares."""


class Group(Record):
    """Elements of an output that together break an invariant."""

    of: GroupOf
    start: NonNegativeInt
    """Flat index, in C order, of the first."""
    step: PositiveInt
    count: PositiveInt
    got: float
    wanted: float
    bound: float
    """How far got may be from wanted."""


Slice = tuple[int | None, int | None, int | None]
"""Start, stop and step."""


class Exhibit(Record):
    """Details of a failing execution that a person is shown."""

    output: str = ""
    outputs: tuple[str, ...] = Field((), exclude_if=not_)
    """All of them, of an op that has several."""
    shape: tuple[int, ...] = ()
    dtype: str = ""
    failing: int = 0
    """Elements that fail."""
    elements: tuple[Element, ...] = ()
    """The worst ones first, then the first ones that fail; all of them if there are few."""
    picture: Picture | None = None
    ulps: tuple[int, ...] = ()
    """Elements by steps from the rounded reference: 0, 1, 2, 3-4, 5-8, ..."""
    opinions: tuple[Opinion, ...] = ()
    partner: Case | None = None
    """For a law: the other case of the pair."""
    factor: float = 1.0
    """For a law: by what its outputs must differ."""
    view: tuple[Slice, ...] = ()
    """For a law: the part of the first output that the other's must be, a slice an axis; () is all of it."""
    whole: tuple[int, ...] = ()
    """For a law with a view: the shape of the first output."""
    within: float = 0.0
    """For a law: how many error budgets the two may be apart, and the rounding of both; 0: not a bit."""
    groups: tuple[Group, ...] = ()
    """For an invariant: the groups that break it most."""
    returns: bool = False
    """Whether the subject returns its result (else it writes into its first arguments)."""
    detail: str = ""
    """Tail of the traceback, or of what the subject printed before it died."""


class Variant(Record):
    """The smallest case, run by another subject or with another dtype."""

    subject: str
    dtype: str
    kind: Kind
    rho: float = 0.0


class Sanitized(Record):
    """The word of a tool of NVIDIA's compute-sanitizer on the smallest case, run once more on a GPU."""

    tool: str
    """E.g. `memcheck`."""
    version: str = ""
    """Of compute-sanitizer."""
    errors: NonNegativeInt = 0
    """How many it reports."""
    message: str = ""
    """The first of them in one sentence, with thread, block, kernel and line as far as they are known."""
    trouble: str = ""
    """Why it gave no answer; then no errors means nothing."""

    @property
    def silent(self) -> bool:
        """Whether it has looked, and seen nothing wrong."""
        return not (self.errors or self.trouble)


Pattern = Literal["from", "up to", "multiples", "powers of two", "remainder", "tail", "wave", "only", "at"]
"""Which sizes are slow: `from` one on, `up to` one, `multiples` of a number, `powers of two`, those with a `remainder`,
those with a long `tail`, those behind each full `wave`, this one `only`; `at`: this one, and no rule is known."""


class Cliff(Record):
    """A cliff with the evidence for it."""

    schema_version: Literal[1] = 1
    axis: str
    """The dimension along which the two sizes lie."""
    slow: PositiveInt
    fine: PositiveInt
    """Its neighbour, which does not have it."""
    others: dict[str, int]
    """The other dimensions, at which both were timed."""
    pattern: Pattern
    where: str
    """The sizes that are slow, in words."""
    factor: PositiveFloat
    """Seconds of the slow size by those of the other, the median over paired rounds; of a larger slow size less the
    share that its additional work explains."""
    least: PositiveFloat
    """The lower end of the confidence interval of that factor."""
    asked: PositiveFloat
    """From which factor on it counts as a cliff."""
    noise: float
    """Relative noise of it from round to round."""
    shown: dict[str, int] = {}
    """The least extent of each other dimension, the rest as they are, from which on it shows."""
    neighbour: Case | None = None
    """The case of the fine size; that of the slow one is the finding's."""
    baseline: str = ""
    """The key of what it was compared with."""
    baseline_factor: float = 1.0
    """The same factor of the baseline at these sizes: what the machine does to any code."""
    seconds_slow: tuple[float, ...] = ()
    """A number for each round; rounds are paired."""
    seconds_fine: tuple[float, ...] = ()

    @property
    def sentence(self) -> str:
        """The finding in one sentence, e.g. `1.9x slower from cols = 1025 on; 1024 is fine`."""
        at = ", ".join(f"{name} = {n}" for name, n in self.others.items())
        shown = ", ".join(f"{name} = {n}" for name, n in self.shown.items() if n != self.others[name])
        said = [at, f"seen from {shown} on" if shown else "", f"noise {self.noise:.1%}"]
        if self.baseline:
            said.append(f"{self.baseline}: {self.baseline_factor:.2f}x")
        return f"{self.factor:.2g}x slower {self.where}; {self.fine} is fine ({'; '.join(filter(None, said))})"


class Finding(Record):
    """A failure worth keeping."""

    schema_version: Literal[6] = 6
    signature: Signature
    aliases: tuple[str, ...] = ()
    """Keys of the signatures under which it was met before it was shrunk."""
    case: Case
    """The smallest that still fails."""
    original: Case
    before: tuple[Case, ...] = ()
    """Of a stateful failure: what the process must have run before, in this order; alone the case passes."""
    twin: NonNegativeInt = 0
    """Findings of the same signature that were fixed when this one came up: it is none of them."""
    sent: str = Field("", exclude_if=not_)
    """Of one that a server met outside of its projects: a digest of the files that were sent, which are all that the
    kernel's name stands for there. Another file of that name is another kernel, and its failures other findings."""
    subject: Subject
    verdict: Verdict
    environment: Environment
    input_digest: str = ""
    """Of the smallest case's input bytes; replay compares it before it runs anything."""
    contract: str = ""
    """File of the op's contract, if it is a user's own."""
    exhibit: Exhibit | None = None
    """How the smallest case fails."""
    variants: tuple[Variant, ...] = ()
    """Who else fails on it."""
    sanitized: tuple[Sanitized, ...] = ()
    """What compute-sanitizer says of it, a record a tool; () if it was not asked."""
    cliff: Cliff | None = Field(None, exclude_if=not_)
    """Of a performance cliff: its evidence."""
    claim: str = ""
    """An arithmetic that the subject does not declare, and under which neither case fails, in one sentence."""
    count: int = 1
    """Failing executions seen under this signature."""
    probability: float = 1.0
    """Estimated probability that the case fails when it is run."""
    gates: tuple[str, ...] = ()
    """What was learned by probing the neighbours, e.g. `fails only if cols % 32 != 0`."""
    first_seen: str = ""
    last_seen: str = ""
    found_by: str = ""
    """`run:index` of the original; the token of its case if it was only shown, and is not kept."""
    state: State = State.NEW
    history: tuple[Event, ...] = ()
    """What happened to it, oldest first."""
    expect: Literal["pass", "fail"] = "pass"
    """fail: a known, open bug; replay says so when it starts to pass."""
    reason: str = ""
    """Why it is expected to fail."""
    expires: str = ""
    """Date (ISO 8601) until which, included, it is expected to fail; empty: for good."""

    @field_validator("expires")
    @classmethod
    def _date(cls, said: str) -> str:
        if said:
            date.fromisoformat(said)
        return said

    @property
    def id(self) -> str:
        """A finding is its signature, and which of them it is: counts and cases may change, the identity stays."""
        said = self.signature.canonical() + (f"#{self.twin}" if self.twin else "")
        said += f"@{self.sent}" if self.sent else ""
        return hashlib.sha256(said.encode()).hexdigest()[:16]

    @property
    def keys(self) -> tuple[str, ...]:
        """Every signature it was met under."""
        return (self.signature.key, *self.aliases)

    @property
    def shows_again(self) -> bool:
        """Whether it failed again when it was run again; if not, that it does not fail today says nothing."""
        return self.probability > 0.0

    @property
    def proven(self) -> bool:
        """Whether it stands, however rarely it shows: two runs on one input that differ cannot both be right."""
        return self.shows_again or self.verdict.kind is Kind.NONDETERMINISTIC

    def expected(self, today: date | None = None) -> bool:
        """Whether a failure of it is no news today: a seeded bug, or an expectation that has not expired."""
        if self.subject.planted:
            return True
        return self.expect == "fail" and not self.expired(today)

    def expired(self, today: date | None = None) -> bool:
        """Whether the time for which it was expected to fail is over."""
        end = date.fromisoformat(self.expires) if self.expires else date.max
        return (today or datetime.now(UTC).date()) > end
