"""Records that the server, its workers and its clients exchange over HTTP, validated on both sides.

The server never runs a kernel, and never reads what it was sent as anything but these. A *job* is what somebody asked
for; it consists of one *task* or of many (the ranges of a search), and tasks are what workers lease.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)

from kernel_assay.corpus.model.base import Record
from kernel_assay.corpus.model.findings import Environment, Finding

MOST_FILES, MOST_BYTES = 200, 2 << 20
"""Of what is sent with a job."""
LEASE_SECONDS = 60.0
LOSSES = 3
"""Leases of a task that may run out before it is `lost`."""
UNSEARCHED = "not searched: "
LONGEST = 60.0
RANGE = 256
"""Cases of a search that one task runs."""
SENT, MADE = "/kassay/sources", "/kassay/adapters"
"""Stand, in findings and messages, for the folders that hold a task's files, and the adapters made of a layout."""

FORMS = {
    (NAME := r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"): "a name is 1 to 100 letters, digits and . _ -, the first no sign",
    (COMMIT := r"^[0-9a-f]{7,64}$"): "a commit is 7 to 64 hex digits, as git rev-parse says it",
    (ID := r"^[0-9a-f]{1,64}$"): "an id is at most 64 hex digits",
    (TASK := r"^[0-9a-f]{1,64}-[0-9]{1,10}$"): "a task is the id of its job, - and a number",
    (TIME := r"^\d+(\.\d+)?\s*[smh]?$"): "a time is a number with s, m or h behind it",
}
"""Patterns of texts, in words."""
Name = Annotated[str, StringConstraints(pattern=NAME)]
Short = Annotated[str, StringConstraints(max_length=500)]
Text = Annotated[str, StringConstraints(max_length=20_000)]
Count = Annotated[int, Field(ge=0, le=2**53)]
Epoch = Annotated[int, Field(ge=1, le=2**62)]
Commit = Annotated[str, StringConstraints(pattern=COMMIT)]


_SAID = {
    "extra_forbidden": "there is no such key",
    "missing": "it is missing",
    "string_too_short": "it must not be empty",
    "string_too_long": "it has more than {max_length} characters",
    "too_short": "it needs {min_length} at least",
    "too_long": "it has more than {max_length}",
    "greater_than_equal": "it must be {ge} at least",
    "less_than_equal": "it must be {le} at most",
    "greater_than": "it must be more than {gt}",
    "less_than": "it must be less than {lt}",
    "string_unicode": "it is no text: it has halves of characters",
    "json_invalid": "the body is no JSON: {error}",
}
"""Faults by their type, as pydantic names it, in words."""


def words_of(error: Mapping[str, Any]) -> str:
    """What is wrong with a field, one of pydantic's errors, in words."""
    known, said = error.get("ctx", {}), _SAID.get(str(error.get("type", "")))
    own = FORMS.get(str(known.get("pattern", ""))) or (said.format_map(known) if said else "")
    return own or str(error.get("msg", "")).removeprefix("Value error, ")


def sentence_of(error: ValidationError, whole: str) -> str:
    """Say what is wrong with the first field that is, and never what it holds. whole: what a record is called."""
    first = error.errors(include_input=False)[0]
    where = ".".join(str(part)[:100] for part in first["loc"])
    return f"{where or whole}: {words_of(first)}"


class JobKind(StrEnum):
    """Kind of work."""

    FUZZ = "fuzz"
    JUDGE = "judge"
    REPLAY = "replay"
    SHRINK = "shrink"
    PROVE = "prove"
    TIME = "time"
    BISECT = "bisect"
    VERIFY = "verify"
    """Replay of a finding at a later commit: is it fixed there?"""


class JobState(StrEnum):
    """Life of a job, and of each of its tasks."""

    QUEUED = "queued"
    LEASED = "leased"
    """A worker has it, and has not said yet that it runs."""
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    """It could not be done, as `reason` says; findings are no failure."""
    CANCELLED = "cancelled"
    LOST = "lost"
    """The worker went away, LOSSES times."""


OVER = frozenset({JobState.DONE, JobState.FAILED, JobState.CANCELLED, JobState.LOST})


class Scope(StrEnum):
    """Rights of a token. Each is of its own: `work` does not read findings, `admin` alone makes tokens."""

    READ = "read"
    SUBMIT = "submit"
    WORK = "work"
    ADMIN = "admin"
    FEED = "feed"
    """Reads feeds, and nothing else: it may stand in an address, as readers of feeds want it."""


class Sources(Record):
    """Files that were sent: relative path -> text. They are kept and named by what is in them."""

    files: dict[str, str] = Field(min_length=1, max_length=MOST_FILES)

    @field_validator("files")
    @classmethod
    def _inside(cls, files: dict[str, str]) -> dict[str, str]:
        for name in files:
            path = PurePosixPath(name)
            plain = name == str(path) and not path.is_absolute() and name.isprintable() and "\\" not in name
            if not plain or {".", "..", ".git"} & set(name.casefold().split("/")) or len(name) > 200:
                raise ValueError(f"{name[:200]!r} is no path within a folder")
            if any(str(parent) in files for parent in path.parents):
                raise ValueError(f"{name!r} lies in what is a file itself")
        for name, text in files.items():
            if not text.isascii() and any("\ud800" <= one <= "\udfff" for one in text):
                raise ValueError(f"{name!r} is no text: it has halves of characters")
        if sum(len(text.encode()) for text in files.values()) > MOST_BYTES:
            raise ValueError(f"the files have more than {MOST_BYTES >> 20} MB in all")
        return files

    @property
    def digest(self) -> str:
        """sha256 of the canonical JSON, 64 hex digits."""
        return hashlib.sha256(json.dumps(self.files, sort_keys=True).encode()).hexdigest()


class Checkout(Record):
    """A commit of a project's repository; the worker fetches it."""

    repository: Short
    commit: Commit


class Settings(Record):
    """Settings of a run that a job may make; whatever is None is the command line's default."""

    seconds: PositiveFloat | None = Field(default=None, le=86_400)
    cases: PositiveInt | None = Field(default=None, le=10**9)
    seed: NonNegativeInt | None = Field(default=None, lt=2**63)
    device: Literal["cpu", "cuda"] = "cpu"
    dtypes: tuple[Name, ...] = ()
    backends: tuple[Name, ...] = ()
    peers: tuple[Name, ...] = ()
    timeout: PositiveFloat | None = Field(default=None, le=3600)
    strict: bool = False
    baselines: tuple[Short, ...] = ()
    """Of `time`: what the subjects are timed against."""


class Target(Record):
    """Kernels, and the op or reference that they are held to. Paths lie in the sources or in the checkout."""

    ops: tuple[Name, ...] = ()
    subjects: tuple[Short, ...] = ()
    """`FILE[:NAME]`, or names of built-in implementations."""
    references: tuple[Short, ...] = ()
    folder: Short = ""
    """Of `judge`: the folder of the problem within the sources; `.`: all of them. Empty: ops and subjects say it."""


class JobRequest(Record):
    """A request for a job."""

    kind: JobKind
    project: Name | None = None
    target: Target = Target()
    sources: Sources | None = None
    checkout: Checkout | None = None
    settings: Settings = Settings()
    finding: Finding | None = None
    """Of `shrink`, `replay`, `bisect`, `verify`."""
    good: Commit | None = None
    """Of `bisect`: where the finding does not show yet (or, if it was fixed, shows still); None: the first commit."""
    priority: int = Field(default=5, ge=0, le=9)
    """9 comes first."""
    deadline: datetime | None = None
    """After which it is not begun any more."""
    key: Annotated[str, StringConstraints(max_length=200)] = ""
    """The same key of the same token is the same job, however often it is sent."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        about_one = self.kind in {JobKind.SHRINK, JobKind.BISECT, JobKind.VERIFY}
        if about_one and self.finding is None:
            raise ValueError(f"a job of kind {self.kind.value} needs a finding")
        if self.kind in {JobKind.BISECT, JobKind.VERIFY} and self.checkout is None:
            raise ValueError(
                f"a job of kind {self.kind.value} needs a checkout: name --commit, and --repository or --project"
            )
        if self.sources and self.checkout:
            raise ValueError("sources and a checkout exclude one another")
        if self.deadline is not None and self.deadline.tzinfo is None:
            raise ValueError("a deadline needs its time zone")
        return self


class Progress(Record):
    """State of a task as numbers."""

    cases: Count = 0
    judged: Count = 0
    findings: Count = 0
    cells: Count = 0
    """Of coverage."""
    seconds: float = Field(default=0.0, ge=0, le=1e12)
    quiet: float = Field(default=0.0, ge=0, le=1e12)
    """Seconds since the last new cell or finding."""
    line: Short = ""
    """In words."""


class LeaseRequest(Record):
    """A worker asks for a task."""

    worker: Name
    devices: tuple[Short, ...] = Field(default=(), max_length=64)
    """Names of its GPUs; none: it takes no jobs for CUDA."""
    gpu_only: bool = False
    local: bool = False
    """Whether it takes jobs for CUDA alone, and repositories that are paths on its machine."""
    kinds: tuple[JobKind, ...] = ()
    """Those it takes; none: all."""
    environment: Environment
    wait: float = Field(default=0.0, ge=0, le=30)
    """Seconds that the server may hold the question, until there is a task."""
    question: Annotated[str, StringConstraints(max_length=100)] = ""
    """Drawn by the worker, and the same until it is answered: a task that was given to it before is given again."""


class Waiting(Record):
    """How many tasks wait for a worker, by the device that they want."""

    cpu: NonNegativeInt = 0
    cuda: NonNegativeInt = 0


class Lease(Record):
    """A task, for LEASE_SECONDS; only heartbeats keep it longer."""

    task: str
    epoch: Epoch
    """Grows with every lease of the task: who reports with an old one has lost it, and is refused (409)."""
    until: datetime
    job: str
    request: JobRequest
    """Without its sources, of which `sources` is the digest: `GET /v1/tasks/{task}/sources`."""
    sources: str = ""
    files: dict[str, str] = Field(default_factory=dict)
    """The sources themselves, if they are small: most that are judged are, and need no second question."""
    index: NonNegativeInt = 0
    """Of a search: which range. Its seed is a function of the job's seed and of this."""
    seed: NonNegativeInt = 0
    cases: NonNegativeInt = 0
    """How many cases, of a search by cases; 0: `settings.seconds` says when it is over."""


class Heartbeat(Record):
    """Word of a worker about its task, every 10 s or so; the first one makes it `running`."""

    epoch: Epoch
    progress: Progress = Progress()
    log: Annotated[str, StringConstraints(max_length=65_536)] = ""
    """Lines since the last one."""


class Orders(Record):
    """The answer to a heartbeat."""

    until: datetime
    cancel: bool = False
    drain: bool = False
    """Finish this task and take no other."""


class Artifact(Record):
    """A text that a task made: a reproducer, a page, a table."""

    name: Name
    text: Annotated[str, StringConstraints(max_length=2 << 20)]


class Outcome(Record):
    """The end of a task, as a worker reports it: findings and state in one transaction."""

    epoch: Epoch
    state: Literal[JobState.DONE, JobState.FAILED, JobState.CANCELLED, JobState.QUEUED]
    """`queued` hands it back unharmed, as on SIGTERM: that is no loss."""
    reason: Text = ""
    progress: Progress = Progress()
    verdict: Short = ""
    """`right`, `right_if_ordinary`, `wrong`, `declined`; of a replay: `fixed`, `fails`, `flaky`, `passes`."""
    message: Text = ""
    """The first failure in one sentence, or what else there is to say."""
    findings: tuple[Finding, ...] = Field(default=(), max_length=100)
    commit: Commit | None = None
    """Of `bisect`: the one that brought or fixed it."""
    record: str = Field(default="", max_length=2 << 20)
    """The library's own record of the run (`Campaign`, `Proof`, `TimingRun`, `Judged`), as JSON text."""
    artifacts: tuple[Artifact, ...] = Field(default=(), max_length=20)
    environment: Environment | None = None
    log: Annotated[str, StringConstraints(max_length=65_536)] = ""


class Job(BaseModel):
    """A job, as it is told to whoever asks. It is none of the records that are named by what is in them."""

    model_config = Record.model_config

    id: str
    kind: JobKind
    project: str | None
    target: Target
    settings: Settings
    sources: str = ""
    checkout: Checkout | None = None
    finding: str | None = None
    priority: int
    state: JobState
    position: NonNegativeInt | None = None
    """In the queue, 0 is next; None: it does not wait."""
    attempts: NonNegativeInt = 0
    worker: str | None = None
    created: datetime
    started: datetime | None = None
    ended: datetime | None = None
    deadline: datetime | None = None
    reason: str = ""
    progress: Progress = Progress()
    """Of all of its tasks together."""
    verdict: str = ""
    message: str = ""
    findings: tuple[str, ...] = ()
    """Their ids."""
    commit: str | None = None
    artifacts: tuple[str, ...] = ()
    """Their names: `GET /v1/jobs/{id}/artifacts/{name}`."""


class Jobs(BaseModel):
    """A page of a list, the latest first."""

    items: tuple[Job, ...]
    next: int | None = None
    """`?after=` of the next page; None: this is the last."""


class Standing(StrEnum):
    """Life of a finding in the service."""

    NEW = "new"
    OPEN = "open"
    """Met again, or confirmed by a replay."""
    REOPENED = "reopened"
    FIXED = "fixed"
    """The stored case passed in a replay; nothing else makes a finding fixed."""
    WONTFIX = "wontfix"


class FindingStanding(BaseModel):
    """A finding as the service lists it; the record itself is at `/v1/findings/{id}`."""

    id: str
    project: str | None
    op: str
    subject: str
    kind: str
    dtype: str
    title: str
    state: Standing
    since: datetime
    """Of that state."""
    created: datetime
    seen: datetime
    """When it was met last."""
    times: int
    """Jobs that have met it."""
    reason: str = ""
    """Of wontfix."""
    until: datetime | None = None
    """End of wontfix; None: for good."""
    job: str = ""
    """The first that met it."""
    seen_commit: str = ""
    fixed_commit: str = ""
    brought_by: str = ""
    """Commits: of the last failure, of the first replay that passed, and what a bisection says."""


class Findings(BaseModel):
    """A page of a list, the latest first."""

    items: tuple[FindingStanding, ...]
    next: int | None = None


class FindingTold(FindingStanding):
    """One finding, with its record and its life."""

    record: Finding
    events: tuple[dict[str, str], ...] = ()
    """Each with `at`, `who`, `what`, `words`; oldest first."""


class WontFix(Record):
    """A decision of a person that a finding is let be."""

    reason: Annotated[str, StringConstraints(min_length=1, max_length=2000)]
    until: datetime | None = None


class Project(Record):
    """A repository whose kernels are searched for bugs, again and again."""

    repository: Short
    """A path, or a URL of git, as its workers reach it."""
    target: Target = Target()
    settings: Settings = Settings()
    """Of each search; `seconds` is the budget of one."""
    every_hours: float = Field(default=24.0, gt=0, le=24 * 366)
    """A search begins when the last one is so old, and after each commit."""
    priority: int = Field(default=4, ge=0, le=9)
    owners: tuple[Short, ...] = Field(default=(), max_length=50)
    notify: tuple[Short, ...] = Field(default=(), max_length=20)
    """Addresses of Apprise that are told of its findings; set by an admin only."""


class ProjectTold(BaseModel):
    """A project, and how it stands."""

    name: str
    project: Project
    head: str = ""
    """The last commit that was pushed."""
    created: datetime
    fuzzed: datetime | None = None
    """When the last search was queued."""
    last: Job | None = None
    """The last search that has ended: if it is not `done`, that nothing was found says nothing."""
    findings: dict[str, int] = {}
    """By standing."""


class CommitPush(Record):
    """A commit that has come."""

    commit: Commit


class TokenRequest(Record):
    """A token to be made."""

    name: Name
    scopes: tuple[Scope, ...] = Field(min_length=1, max_length=8)
    days: float | None = Field(default=None, gt=0, le=3650)
    """None: until it is revoked."""


class Problem(Record):
    """Trouble of a request (RFC 9457, application/problem+json)."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    """One sentence."""
