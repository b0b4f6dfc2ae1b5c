"""Subjects that must not meet in one process, as one sandbox: each group has one of its own, and all run at once.

Those of another interpreter cannot meet the others. A person's own are kept from the built-in ones, whose results stand
beside theirs: what a kernel does to its process shall not be what another one is accused of, or is believed for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import Any

from kernel_assay.corpus.model.campaign import Call
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.process.channel import Message
from kernel_assay.kernels.backends.support.signature import Interface
from kernel_assay.kernels.boundary.devices import Place
from kernel_assay.kernels.boundary.protocol import Task
from kernel_assay.kernels.sandbox.batch import Key, Outcome, PendingBatch, Taker
from kernel_assay.kernels.sandbox.decode import left_undone
from kernel_assay.kernels.sandbox.probing import ReadyBy
from kernel_assay.kernels.sandbox.sandbox import Sandbox
from kernel_assay.kernels.sandbox.worker_pool import WorkerPool, pool_of

Group = tuple[str, bool, str]


def _group(subject: Subject) -> Group:
    """Which group a subject belongs to: that of its interpreter, and of the built-in ones or not."""
    return subject.python, subject.is_own, ""


def _apart(subject: Subject) -> Group:
    """The same, where each subject is a group of its own."""
    return subject.python, subject.is_own, subject.key


@dataclass(slots=True)
class _Parts(PendingBatch):
    """A batch, and the part of each sandbox: the same tasks, with that one's subjects."""

    parts: list[PendingBatch] = field(default_factory=list)
    starts: list[Callable[[], PendingBatch]] = field(default_factory=list)
    """What starts the parts that are missing."""

    def ran_before(self, key: Key) -> Any:
        number, subject = key
        return next(part.ran_before(key) for part in self.parts if subject in part.tasks[number].subjects)


class SideBySide(Sandbox):
    """A sandbox for each group, as one."""

    def __init__(  # none of the parts of a sandbox is its own
        self,
        subjects: Sequence[Subject],
        faces: dict[str, Interface],
        *,
        memory_mb: int = 4096,
        closed: bool = True,
        place: Place | None = None,
        pool: WorkerPool | None = None,
        apart: bool = False,
        **limits: Any,
    ) -> None:
        """As for a sandbox; pool: of those that run in our own interpreter; apart: whether no two subjects may meet."""
        self._subjects = {s.key: s for s in subjects}
        self._members: dict[Group, Sandbox] = {}
        self._group = _apart if apart else _group
        made: Callable[..., Sandbox] = partial(Sandbox, memory_mb=memory_mb, closed=closed, place=place, **limits)
        try:
            for python, theirs in groupby(sorted(subjects, key=self._group), lambda s: s.python):
                everyone = list(theirs)
                root = pool_of(everyone, None if python else pool, memory_mb=memory_mb, closed=closed, place=place)
                for group, members in groupby(everyone, self._group):
                    here = root.branch({}) if any(python == known for known, _, _ in self._members) else root
                    self._members[group] = made(list(members), faces, pool=here)
        except BaseException:
            self.close()
            raise
        self.pool = next(iter(self._members.values())).pool
        self.returning, self.lacks, self.needs, self.unready = set(), {}, {}, set()

    @property
    def timeout(self) -> float:
        """Seconds for one execution."""
        return next(iter(self._members.values())).timeout

    @timeout.setter
    def timeout(self, seconds: float) -> None:
        for member in self._members.values():
            member.timeout = seconds

    @property
    def beside(self) -> Callable[[], object] | None:
        """Called again and again while a worker is waited for."""
        return next(iter(self._members.values())).beside

    @beside.setter
    def beside(self, called: Callable[[], object] | None) -> None:
        for member in self._members.values():
            member.beside = called

    @property
    def deaths(self) -> int:  # type: ignore[override] # nobody writes it here
        """Workers lost so far."""
        return sum(member.deaths for member in self._members.values())

    def close(self) -> None:
        """End all processes; a branch before the pool that it is of."""
        for member in reversed(self._members.values()):
            member.close()

    def know(self, calls: Mapping[str, Call]) -> None:
        """Take up what was found out before about the same files, instead of a probe."""
        super().know(calls)
        for group, member in self._members.items():
            member.know({key: call for key, call in calls.items() if self._group(self._subjects[key]) == group})

    def probe(self, ready_by: ReadyBy = lambda _: math.inf) -> dict[str, str]:
        """Load every subject once: key -> what is wrong with it, for those that cannot be loaded or called."""
        wrong: dict[str, str] = {}
        for member in self._members.values():
            wrong |= member.probe(ready_by)
            self.returning |= member.returning
            self.unready |= member.unready
            self.lacks |= member.lacks
            self.needs |= member.needs
        return wrong

    def stretch(self, key: str, message: Message, seconds: float, *, again: bool = True) -> Message:
        """The subject's launch for tensors larger than any memory."""
        return self._members[self._group(self._subjects[key])].stretch(key, message, seconds, again=again)

    def ask(self, key: str, message: Message, seconds: float) -> Message:
        """What a new worker answers, where a subject would run."""
        return self._members[self._group(self._subjects[key])].ask(key, message, seconds)

    def waited(self, key: str) -> float:
        """Seconds for which the worker of a subject was ready to run, and others ran."""
        return self._members[self._group(self._subjects[key])].waited(key)

    def submit(
        self, tasks: Sequence[Task], taker: Taker | None = None, most_deaths: int = 0, hang_counts: int = 1
    ) -> PendingBatch:
        """Start a batch, in every sandbox its part. A large case has the memory for itself: one after the other."""
        starts: list[Callable[[], PendingBatch]] = [
            partial(member.submit, [self._part(task, group) for task in tasks], taker, most_deaths, hang_counts)
            for group, member in self._members.items()
        ]
        at_once = 1 if any(task.large for task in tasks) else len(starts)
        return _Parts(tasks, parts=[start() for start in starts[:at_once]], starts=starts[at_once:])

    def _part(self, task: Task, group: Group) -> Task:
        mine = tuple(key for key in task.subjects if self._group(self._subjects[key]) == group)
        return replace(task, subjects=mine)

    def pump(self, pending: PendingBatch) -> None:
        """Take in what has come back already."""
        for member, part in self._started(pending):
            member.pump(part)

    def collect(self, pending: PendingBatch) -> list[dict[str, Outcome]]:
        """Wait for a batch; for each task, subject key -> outcome."""
        assert isinstance(pending, _Parts)
        found = [member.collect(part) for member, part in self._started(pending)]
        for member in list(self._members.values())[len(found) :]:
            pending.parts.append(pending.starts.pop(0)())
            found.append(member.collect(pending.parts[-1]))
        return self._whole(pending, found)

    def abandon(self) -> None:
        """Let go of a batch that nobody waits for any more."""
        for member in self._members.values():
            member.abandon()

    def give_up(self, pending: PendingBatch, why: str) -> list[dict[str, Outcome]]:
        """The results of a batch so far; the rest is left undone."""
        none = [{key: left_undone(key, why) for key in task.subjects} for task in pending.tasks]
        return self._whole(pending, [none, *(member.give_up(part, why) for member, part in self._started(pending))])

    def renew(self, *keys: str) -> None:
        """Have what is submitted next, for these subjects, run in workers that have run nothing else."""
        for group, member in self._members.items():
            mine = [key for key in keys if self._group(self._subjects[key]) == group]
            if mine or not keys:
                member.renew(*mine)

    def _started(self, pending: PendingBatch) -> Iterator[tuple[Sandbox, PendingBatch]]:
        assert isinstance(pending, _Parts)
        return zip(self._members.values(), pending.parts, strict=False)

    @staticmethod
    def _whole(pending: PendingBatch, parts: Sequence[Sequence[dict[str, Outcome]]]) -> list[dict[str, Outcome]]:
        merged = [{key: one for part in parts for key, one in part[n].items()} for n in range(len(pending.tasks))]
        return [{key: found[key] for key in task.subjects} for task, found in zip(pending.tasks, merged, strict=True)]


def sandbox_of(
    subjects: Sequence[Subject], faces: dict[str, Interface], *, apart: bool = False, **limits: Any
) -> Sandbox:
    """A sandbox for subjects that may meet, or one that keeps them apart, or all; limits: as for a Sandbox."""
    if len({(_apart if apart else _group)(s) for s in subjects}) > 1:
        return SideBySide(subjects, faces, apart=apart, **limits)
    return Sandbox(subjects, faces, **limits)
