"""Blame for a worker's death: a subject is only suspected, until the worker dies again with it alone.

Who has died often in a batch is put off until it is known whether it was its own doing; then the rest of its work is
left undone, for each death costs a worker, and on a GPU a third of a second.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kernel_assay.corpus.errors import InternalError
from kernel_assay.corpus.model.kinds import Status
from kernel_assay.kernels.boundary.protocol import ZYGOTE_LOST, Task
from kernel_assay.kernels.sandbox.batch import FirstDeath, Key, PendingBatch
from kernel_assay.kernels.sandbox.decode import death_of, left_undone
from kernel_assay.kernels.sandbox.worker_pool import Ending

GUILTY_DEATHS = 2
"""Workers an execution must kill to be a crash: one in its batch, and one that has run nothing else."""
FATAL = frozenset({Status.CRASHED, Status.TIMEOUT, Status.FAULTED})
"""What a death comes to; a fault may also have been seen by a backend, and nobody died of it."""


@dataclass(frozen=True, slots=True)
class Death:
    """The death of a worker."""

    culprit: tuple[int, Task]
    """What it was busy with, or about to begin."""
    left: list[tuple[int, Task]]
    """All that it has not answered."""
    told: set[Key]
    """What it was told to do, as far as one of those may have brought it about."""
    history: Sequence[Task]
    """All that it was ever given."""
    ending: Ending
    late: float | None
    """The limit it was killed for; None: it was not."""
    granted: float
    """Seconds beyond the limit that it was given."""
    own: bool
    """Whether nobody else's errors reached it."""
    materializing: bool
    """Whether no subject ran."""

    @property
    def key(self) -> Key:
        """Key of the culprit."""
        return self.culprit[0], self.culprit[1].subjects[0]


def accuse(pending: PendingBatch, death: Death) -> None:
    """Name a culprit, or a suspect; what else the worker was to do waits for the next."""
    (n, task), key = death.culprit, death.key
    if death.ending.aimless:  # what comes out between walls does not count: once more, where inputs lie as they should
        pending.waiting = [(n, replace(task, walls=False)), *(w for w in death.left if w[0] != n), *pending.waiting]
        return
    died = pending.deaths[key] = pending.deaths.get(key, 0) + 1
    if death.materializing and died > GUILTY_DEATHS:
        raise InternalError(f"the worker dies while materializing {task.case.label}: {death.ending.describe()}")
    how = (key[1], death.ending.describe())
    proven = not death.materializing and (died >= GUILTY_DEATHS or (death.own and how in pending.proven))
    if death.late is not None or proven:
        pending.outcomes[key] = death_of(key[1], death.ending, death.late, granted=death.granted)
        if death.late is None:
            pending.proven.add(how)
        elif death.own:
            pending.histories[key] = death.history
    else:
        pending.suspects.append((n, replace(task, subjects=task.subjects[:1])))
        ran = [k for k in pending.outcomes if k in death.told]
        alone = all({*earlier.subjects} <= {key[1]} for earlier in death.history)  # it may end between two calls, too
        certain = death.ending.code != ZYGOTE_LOST and key not in pending.lost
        counts = certain and death.own and (alone or not death.materializing)
        pending.first_deaths.setdefault(key, FirstDeath(ran, death.history, death.ending, counts))
        if death.own:
            pending.endings[key] = death.ending
    others, rest = [w for w in death.left if w[0] != n], task.subjects[1:]
    pending.waiting = [*([(n, replace(task, subjects=rest))] if rest else []), *others, *pending.waiting]
    pending.lost_to[key[1]] += death.own * (1 if death.late is None else pending.hang_counts)
    if 0 < pending.most_deaths <= pending.lost_to[key[1]]:
        _put_off(pending, key[1])


def _put_off(pending: PendingBatch, subject: str) -> None:
    pending.held += [(n, replace(task, subjects=(subject,))) for n, task in pending.waiting if subject in task.subjects]
    rests = [(n, task, tuple(k for k in task.subjects if k != subject)) for n, task in pending.waiting]
    pending.waiting = [(n, replace(task, subjects=rest)) for n, task, rest in rests if rest]


def is_convicted(pending: PendingBatch, suspect: tuple[int, Task]) -> bool:
    """Whether a suspect has died as its subject was seen to die alone since: then it need not die once more."""
    key: Key = (suspect[0], suspect[1].subjects[0])
    ending = pending.endings.get(key)
    if ending is None or (key[1], ending.describe()) not in pending.proven:
        return False
    pending.outcomes[key] = death_of(key[1], ending, None)
    return True


def unexplained(pending: PendingBatch) -> list[tuple[Key, FirstDeath]]:
    """Subjects that have died once, and not by themselves, with how."""
    found = ((key, first) for key, first in pending.first_deaths.items() if pending.deaths[key] < GUILTY_DEATHS)
    return [(key, first) for key, first in found if pending.outcomes[key].execution.status not in FATAL]


def take_at_its_word(pending: PendingBatch, key: Key, first: FirstDeath) -> None:
    """Have the first death of a suspect be what came of it, after what its worker had run: it may be the tenth call.

    Nobody is accused by that alone: it is for those who look into it to run all that again.
    """
    if first.counts:
        pending.outcomes[key] = death_of(key[1], first.ending, None)
        pending.histories[key] = first.history


def release(pending: PendingBatch) -> None:
    """Decide about those that were put off: who has died by itself is left undone, the others run."""
    fatal = Counter(subject for (_, subject), o in pending.outcomes.items() if o.execution.status in FATAL)
    for number, task in pending.held:
        (subject,) = task.subjects
        if often := fatal[subject]:
            why = f"not run: it has ended its process, or had to be killed, in {often} other cases of this batch"
            pending.outcomes[number, subject] = left_undone(subject, why)
        else:
            pending.waiting.append((number, task))
    pending.held = []
