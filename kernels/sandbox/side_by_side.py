"""Subjects of several interpreters in one sandbox: each interpreter has one of its own, and all run at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kernel_assay.corpus.model.campaign import Call
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.process.channel import Message
from kernel_assay.kernels.backends.support.signature import Interface
from kernel_assay.kernels.boundary.protocol import Task
from kernel_assay.kernels.sandbox.batch import Key, Outcome, PendingBatch, Taker
from kernel_assay.kernels.sandbox.probing import ReadyBy
from kernel_assay.kernels.sandbox.sandbox import Sandbox
from kernel_assay.kernels.sandbox.worker_pool import WorkerPool


@dataclass(slots=True)
class _Parts(PendingBatch):
    """A batch, and the part of each sandbox: the same tasks, with that one's subjects."""

    parts: list[PendingBatch] = field(default_factory=list)

    def ran_before(self, key: Key) -> Any:
        number, subject = key
        return next(part.ran_before(key) for part in self.parts if subject in part.tasks[number].subjects)


class SideBySide(Sandbox):
    """A sandbox for each interpreter, as one."""

    def __init__(  # none of the parts of a sandbox is its own
        self, subjects: Sequence[Subject], faces: dict[str, Interface], *, pool: WorkerPool | None = None, **limits: Any
    ) -> None:
        """As for a sandbox; pool: of those that run in our own interpreter."""
        self._subjects = {s.key: s for s in subjects}
        self._members: dict[str, Sandbox] = {}
        try:
            for python in sorted({s.python for s in subjects}):
                mine = [s for s in subjects if s.python == python]
                self._members[python] = Sandbox(mine, faces, pool=None if python else pool, **limits)
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
        """End all processes."""
        for member in self._members.values():
            member.close()

    def know(self, calls: Mapping[str, Call]) -> None:
        """Take up what was found out before about the same files, instead of a probe."""
        super().know(calls)
        for python, member in self._members.items():
            member.know({key: call for key, call in calls.items() if self._subjects[key].python == python})

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

    def stretch(self, key: str, message: Message, seconds: float) -> Message:
        """The subject's launch for tensors larger than any memory."""
        return self._members[self._subjects[key].python].stretch(key, message, seconds)

    def submit(
        self, tasks: Sequence[Task], taker: Taker | None = None, most_deaths: int = 0, hang_counts: int = 1
    ) -> PendingBatch:
        """Start a batch, in every sandbox its part."""
        parts = [
            member.submit([self._part(task, python) for task in tasks], taker, most_deaths, hang_counts)
            for python, member in self._members.items()
        ]
        return _Parts(tasks, parts=parts)

    def _part(self, task: Task, python: str) -> Task:
        return replace(task, subjects=tuple(key for key in task.subjects if self._subjects[key].python == python))

    def pump(self, pending: PendingBatch) -> None:
        """Take in what has come back already."""
        for member, part in self._each(pending):
            member.pump(part)

    def collect(self, pending: PendingBatch) -> list[dict[str, Outcome]]:
        """Wait for a batch; for each task, subject key -> outcome."""
        return self._whole(pending, [member.collect(part) for member, part in self._each(pending)])

    def abandon(self) -> None:
        """Let go of a batch that nobody waits for any more."""
        for member in self._members.values():
            member.abandon()

    def give_up(self, pending: PendingBatch, why: str) -> list[dict[str, Outcome]]:
        """The results of a batch so far; the rest is left undone."""
        return self._whole(pending, [member.give_up(part, why) for member, part in self._each(pending)])

    def renew(self, *keys: str) -> None:
        """Have what is submitted next, for these subjects, run in workers that have run nothing else."""
        for python, member in self._members.items():
            member.renew(*(key for key in keys if self._subjects[key].python == python))

    def _each(self, pending: PendingBatch) -> Iterator[tuple[Sandbox, PendingBatch]]:
        assert isinstance(pending, _Parts)
        return zip(self._members.values(), pending.parts, strict=True)

    @staticmethod
    def _whole(pending: PendingBatch, parts: Sequence[Sequence[dict[str, Outcome]]]) -> list[dict[str, Outcome]]:
        merged = [{key: one for part in parts for key, one in part[n].items()} for n in range(len(pending.tasks))]
        return [{key: found[key] for key in task.subjects} for task, found in zip(pending.tasks, merged, strict=True)]


def sandbox_of(subjects: Sequence[Subject], faces: dict[str, Interface], **limits: Any) -> Sandbox:
    """A sandbox for subjects of one interpreter or of several; limits: as for a Sandbox."""
    several = len({s.python for s in subjects}) > 1
    return (SideBySide if several else Sandbox)(subjects, faces, **limits)
