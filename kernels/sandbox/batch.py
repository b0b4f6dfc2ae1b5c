"""A batch of executions on its way through a sandbox, and what each of them came to."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from secrets import token_hex
from typing import Any, Protocol

from kernel_assay.corpus.formats import Array
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.execution import Execution, OutputReport
from kernel_assay.corpus.process.channel import Message
from kernel_assay.corpus.remote_array import Outputs, Remote
from kernel_assay.kernels.boundary.protocol import Task
from kernel_assay.kernels.sandbox.worker_pool import Ending

Key = tuple[int, str]

_FIRST_CALLS = 3
"""Workers that may end before an execution has run in one where its subject is warm."""


class LostError(Exception):
    """An output that was offered cannot be had."""


class NoRoomError(Exception):
    """An output was offered, and there is no room for a copy of it."""


class Taker(Protocol):
    """Copies outputs to where they are judged, instead of having them sent."""

    way: str
    """How they are to be offered (kernels.boundary.output_transfer)."""

    def take(self, subject: str, report: OutputReport, offer: Message) -> Array | Remote:
        """Copy one, now. Raises LostError and NoRoomError."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one subject for one case, and its outputs (first run) by name."""

    execution: Execution
    outputs: dict[str, Array]
    taken: dict[str, Array | Remote] = field(default_factory=dict)
    """Those that somebody has copied elsewhere."""

    @property
    def left(self) -> Outputs:
        """All of them, wherever they are."""
        return {**self.outputs, **self.taken}


@dataclass(frozen=True, slots=True)
class FirstDeath:
    """How the worker of a suspect ended that had run other things, too."""

    ran: list[Key]
    """What it had run, the last one at the end."""
    history: Sequence[Task]
    """All that it was ever given."""
    ending: Ending
    counts: bool
    """Whether it can only be the suspect's doing."""


@dataclass(slots=True)
class PendingBatch:
    """A batch on its way: the tasks, and the outcomes that have come back."""

    tasks: Sequence[Task]
    outcomes: dict[Key, Outcome] = field(default_factory=dict)
    histories: dict[Key, Sequence[Task]] = field(default_factory=dict)
    """Of each outcome: what the worker was given that it came from, this task among it."""
    waiting: list[tuple[int, Task]] = field(default_factory=list)
    """What still has to be sent, as (number, task with the subjects still to run)."""
    sent: list[tuple[int, Task]] = field(default_factory=list)
    """What the worker has been told to do."""
    due: deque[Key] = field(default_factory=deque)
    """The same, execution by execution; what has come back is taken away."""
    suspects: list[tuple[int, Task]] = field(default_factory=list)
    """Executions whose worker died, to be run again alone when everything else is done."""
    deaths: dict[Key, int] = field(default_factory=dict)
    first_deaths: dict[Key, FirstDeath] = field(default_factory=dict)
    """Of each suspect."""
    token: str = field(default_factory=lambda: token_hex(8))
    """Repeated in each answer: what has not seen it is no answer."""
    taker: Taker | None = None
    """Who gets the outputs."""
    lost: set[Key] = field(default_factory=set)
    """Executions that had come to their end, but whose worker died before their outputs were taken."""
    most_deaths: int = 0
    """Of one subject, after which the rest of its work is put off (kernels.sandbox.crash_attribution); 0: never."""
    hang_counts: int = 1
    """As how many deaths a time-out counts."""
    lost_to: Counter[str] = field(default_factory=Counter)
    """How many workers each subject has cost that nobody else's errors reached."""
    held: list[tuple[int, Task]] = field(default_factory=list)
    """Executions that are put off."""
    endings: dict[Key, Ending] = field(default_factory=dict)
    """How workers ended that suspects had for themselves, or that nobody else's errors reached."""
    proven: set[tuple[str, str]] = field(default_factory=set)
    """Subjects that die alone, and how."""
    excused: dict[Key, bool] = field(default_factory=dict)
    """Executions that were late, and were given more time: whether it was the first call of their subject."""
    repeated: Counter[Key] = field(default_factory=Counter)
    """How often each of them has come back, to be run again where the subject is warm."""
    set_aside: set[Key] = field(default_factory=set)
    """Those of these that have not been sent again."""
    again: list[tuple[int, Task]] = field(default_factory=list)
    """The same to be sent, one by one when everything else that waits is done."""

    def only(self, key: Key) -> tuple[int, Task]:
        """One execution of it."""
        number, subject = key
        task = self.tasks[number]
        return number, replace(task, subjects=(subject,))

    def ran_before(self, key: Key) -> list[Case]:
        """The cases that a subject had run in the same worker when it came to an execution, as far as remembered."""
        number, subject = key
        this, found = self.tasks[number].case, list(self.histories.get(key, ()))
        at = next((n for n in reversed(range(len(found))) if found[n].case is this), 0)
        return [task.case for task in found[:at] if subject in task.subjects and not task.large]

    def unfinished(self) -> list[tuple[int, Task]]:
        """Tasks that were sent and have not come back."""
        left = []
        for n, task in self.sent:
            missing = tuple(k for k in task.subjects if self._is_due((n, k)))
            if missing:
                left.append((n, replace(task, subjects=missing)))
        return left

    @property
    def under_way(self) -> bool:
        """Whether something that was sent has not come back. The last is looked for first: it comes last."""
        return any(self._is_due((n, k)) for n, task in reversed(self.sent) for k in reversed(task.subjects))

    def send(self, batch: list[tuple[int, Task]]) -> None:
        """Note what a worker is told to do now, and nothing else."""
        self.sent, self.due = batch, deque((n, key) for n, task in batch for key in task.subjects)
        self.waiting = [w for w in self.waiting if w not in batch]
        self.set_aside -= set(self.due)

    def answered(self, number: Any, subject: Any, token: Any) -> Key:
        """The execution that an answer is about: the next one due. Raises ValueError for any other."""
        if token != self.token:
            raise ValueError("an answer to nothing that was asked")
        while self.due and not self._is_due(self.due[0]):
            self.due.popleft()
        if not self.due or self.due[0] != (number, subject):
            raise ValueError(f"an answer about {number}, {subject}, which is not the next one")
        return self.due[0]

    def _is_due(self, key: Key) -> bool:
        return key not in self.outcomes and key not in self.set_aside

    def repeat(self, key: Key) -> bool:
        """Set an execution aside that took long, to be run again; whether that is to be done.

        Once, or oftener where the worker is another one each time, so that each is a first call.
        """
        first = self.excused.pop(key, None)
        if first is None or self.repeated[key] >= (_FIRST_CALLS if first else 1):
            return False
        self.repeated[key] += 1
        self.set_aside.add(key)
        self.again.append(self.only(key))
        return True

    def at(self, number: int, position: int) -> Key | None:
        """The execution that a worker's journal names; None if it names none."""
        there = (task.subjects[position] for n, task in self.sent if n == number and 0 <= position < len(task.subjects))
        return next(((number, subject) for subject in there), None)

    @property
    def done(self) -> bool:
        """Whether every execution has come back."""
        return not (self.waiting or self.again or self.suspects or self.held or self.under_way)
