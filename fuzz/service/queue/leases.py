"""Tasks as workers see them: leased, kept by heartbeats, ended with an outcome, or taken away when a lease runs out.

Locks are taken in the order task, job, finding, share, so that no two transactions wait for one another.
"""

from __future__ import annotations

import json
import secrets
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache

from sqlalchemy import Connection, TextClause, case, func, or_, select, text, update

from kernel_assay.corpus.storage.sql.service_tables import artifact, job, task, worker
from kernel_assay.fuzz.service.problems import ConflictError, MissingError
from kernel_assay.fuzz.service.protocol import (
    LEASE_SECONDS,
    LOSSES,
    OVER,
    Heartbeat,
    JobKind,
    JobRequest,
    JobState,
    Lease,
    LeaseRequest,
    Orders,
    Outcome,
    Progress,
)
from kernel_assay.fuzz.service.queue.coverage import take_in
from kernel_assay.fuzz.service.queue.database import Row, clean, plain
from kernel_assay.fuzz.service.queue.jobs import IS_HELD, LOCAL, add_log, added, queue_task, row_of
from kernel_assay.fuzz.service.queue.life import bisected, own_of, replayed, report
from kernel_assay.fuzz.service.queue.ownership import check_own
from kernel_assay.fuzz.service.queue.rows import insert, note, record_of, text_of
from kernel_assay.fuzz.service.queue.schedule import part, seed_of

_OVER = [state.value for state in OVER]
EPOCH_BITS = 20
_NEXT = """
  SELECT seq FROM task
  WHERE state = 'queued' AND device = :device AND (deadline IS NULL OR deadline > :now){kinds}
    AND NOT EXISTS (SELECT 1 FROM worker WHERE name = :worker AND drain)
  ORDER BY rank, tag, seq LIMIT 1{lock}"""
_TAKE = """UPDATE task SET state = 'leased', until = :until, worker = :worker, question = :question, progress = '{{}}',
  epoch = CASE WHEN epoch >= :stamp THEN epoch + 1 ELSE :stamp END
WHERE seq = ({next}) RETURNING id AS task, job, place, epoch"""
"""The epoch is the time in ms, and grows: if a power cut takes back a lease, the next one differs all the same.

Its last EPOCH_BITS are drawn: nobody whom the lease was not given to can say it."""
_BEGIN = """UPDATE job SET state = 'leased', worker = :worker, started = COALESCE(started, :now)
WHERE id = {job} AND state = 'queued'"""
_TOLD = "id, state, request, sources, seed, parts, handed, kind, priority, share, deadline"
_AT_ONCE = f"""WITH claimed AS ({_TAKE}), begun AS ({_BEGIN.format(job="(SELECT job FROM claimed)")})
SELECT {_TOLD}, task, place, epoch FROM claimed, job WHERE job.id = (SELECT job FROM claimed)"""  # noqa: S608  constants
"""The three statements as one: what PostgreSQL can, and so goes its way once."""


@cache
def _statement(words: str, kinds: int, lock: str = "") -> TextClause:
    names = ", ".join(f":kind{number}" for number in range(kinds))
    chosen = f" AND kind IN ({names})" if kinds else ""
    return text(words.format(next=_NEXT.format(kinds=chosen, lock=lock)))


def lease(connection: Connection, asked: LeaseRequest, now: float) -> Lease | None:
    """Give the worker the task whose turn it is, or which it was given, and has not heard of; None: there is none."""
    known: Row = {f"kind{number}": kind.value for number, kind in enumerate(asked.kinds)}
    stamp = int(now * 1000) << EPOCH_BITS | secrets.randbits(EPOCH_BITS)
    said = {"worker": asked.worker, "question": asked.question}
    known |= {"now": now, "until": now + LEASE_SECONDS, "stamp": stamp, **said}
    if asked.question and (of := _given(connection, known)) is not None:
        return _leased(connection, of, now)
    take = _take_at_once if connection.dialect.name == "postgresql" else _take
    for device in _devices(asked):
        if (of := take(connection, len(asked.kinds), {**known, "device": device})) is not None:
            return _leased(connection, of, now)
    return None


def _given(connection: Connection, known: Row) -> Row | None:
    """The task that was leased as the answer to this very question, kept for as long as a new one."""
    mine = (task.c.state == "leased", task.c.question == known["question"], task.c.worker == known["worker"])
    kept = update(task).where(IS_HELD, *mine).values(until=known["until"])
    found = connection.execute(kept.returning(task.c.id, task.c.job, task.c.place, task.c.epoch)).first()
    if found is None:
        return None
    of = connection.execute(_JOB, {"id": found.job}).mappings().one()
    return {**of, "task": found.id, "place": found.place, "epoch": found.epoch}


def _take_at_once(connection: Connection, kinds: int, known: Row) -> Row | None:
    statement = _statement(_AT_ONCE, kinds, " FOR UPDATE SKIP LOCKED")
    found = connection.execute(statement, known).mappings().first()
    return None if found is None else dict(found)


def _take(connection: Connection, kinds: int, known: Row) -> Row | None:
    claimed = connection.execute(_statement(_TAKE, kinds), known).mappings().first()
    if claimed is None:
        return None
    of = connection.execute(_JOB, {"id": claimed["job"]}).mappings().one()
    if of["state"] == "queued":
        connection.execute(_BEGUN, {"id": of["id"], "worker": known["worker"], "now": known["now"]})
    return {**of, **claimed}


_JOB, _BEGUN = text(f"SELECT {_TOLD} FROM job WHERE id = :id"), text(_BEGIN.format(job=":id"))  # noqa: S608


def _devices(asked: LeaseRequest) -> list[str]:
    """Those that the worker takes jobs for, the rarer one first."""
    there = ["cuda"] * bool(asked.devices) + ["cpu"] * (not asked.gpu_only)
    return [device + where for device in there for where in ((LOCAL, "") if asked.local else ("",))]


def waiting(connection: Connection, asked: LeaseRequest) -> bool:
    """Whether anything waits that the worker may be able to do."""
    queued = select(task.c.seq).where(text("task.state = 'queued'"), task.c.device.in_(_devices(asked))).limit(1)
    return connection.scalar(queued) is not None


def waiting_for(connection: Connection, kinds: Sequence[JobKind], now: float) -> dict[str, int]:
    """How many tasks of these kinds (none: of all) wait for each device."""
    in_time = or_(task.c.deadline.is_(None), task.c.deadline > now)
    queued = select(task.c.device, func.count()).where(text("task.state = 'queued'"), in_time)
    if kinds:
        queued = queued.where(task.c.kind.in_([kind.value for kind in kinds]))
    found = Counter[str]()
    for device, number in connection.execute(queued.group_by(task.c.device)):
        found[device.removesuffix(LOCAL)] += number
    return dict(found)


def _leased(connection: Connection, of: Row, now: float) -> Lease:
    place = of["place"]
    if place == of["handed"] - 1 and of["handed"] < of["parts"] and of["state"] not in _OVER:
        grown = {"handed": of["handed"] + 1, "open_tasks": job.c.open_tasks + 1}
        same = (job.c.id == of["id"], job.c.handed == of["handed"], job.c.state.not_in(_OVER))
        if connection.execute(update(job).where(*same).values(**grown)).rowcount:
            queue_task(connection, of, of["handed"])
    cases, request = part(record_of(of["request"], JobRequest), place)
    return Lease(
        task=of["task"],
        epoch=of["epoch"],
        until=datetime.fromtimestamp(now + LEASE_SECONDS, UTC),
        job=of["id"],
        request=request,
        sources=of["sources"],
        index=place,
        seed=seed_of(of["seed"], place) if of["parts"] > 1 else of["seed"],
        cases=cases,
    )


def meet(connection: Connection, asked: LeaseRequest, token: str, now: float) -> None:
    """Write down that a worker is there, and what it has. Raises ConflictError if another token has its name."""
    said = {
        "devices": plain(list(asked.devices)),
        "kinds": plain([kind.value for kind in asked.kinds]),
        "environment": text_of(asked.environment),
        "token": token,
        "seen": now,
        "local": asked.local,
    }
    row = insert(connection, worker).values(name=asked.worker, first_seen=now, **said)
    its_own = or_(worker.c.token == token, worker.c.seen < now - LEASE_SECONDS)  # nobody has a task by then
    if not connection.execute(row.on_conflict_do_update(index_elements=["name"], set_=said, where=its_own)).rowcount:
        raise ConflictError(f"a worker with another token is called {asked.worker!r}; give this one another name")


def check_token(connection: Connection, name: str, token: str) -> None:
    """Raise ConflictError for a task of a worker that has come with another token."""
    holder = select(worker.c.token).join(task, task.c.worker == worker.c.name).where(task.c.id == name)
    if connection.scalar(holder) not in {None, token}:
        raise ConflictError(f"the task {name} is held by a worker with another token")


def digest_of(connection: Connection, name: str, epoch: int) -> str:
    """The digest of what was sent with the job of a task that is held. Raises MissingError, ConflictError."""
    held = select(job.c.sources).join(task, task.c.job == job.c.id)
    found = connection.scalar(held.where(task.c.id == name, task.c.epoch == epoch, IS_HELD))
    if found is None:
        raise _not_held(connection, name, epoch)
    return str(found)


def heartbeat(connection: Connection, name: str, beat: Heartbeat, now: float) -> Orders:
    """Keep a task for LEASE_SECONDS more, and say what its worker is to do. Raises MissingError, ConflictError."""
    kept = update(task).where(task.c.id == name, task.c.epoch == beat.epoch, IS_HELD)
    values = {"state": "running", "until": now + LEASE_SECONDS, "progress": text_of(beat.progress)}
    held = connection.execute(kept.values(**values).returning(task.c.job, task.c.worker)).first()
    if held is None:
        raise _not_held(connection, name, beat.epoch)
    of = row_of(connection, held.job)
    state = of["state"]
    if state == "leased":
        connection.execute(update(job).where(job.c.id == held.job, job.c.state == "leased").values(state="running"))
    add_log(connection, held.job, _of_part(of, name, beat.log))
    drain = connection.scalar(select(worker.c.drain).where(worker.c.name == held.worker))
    connection.execute(update(worker).where(worker.c.name == held.worker, worker.c.seen < now - 5).values(seen=now))
    until = datetime.fromtimestamp(now + LEASE_SECONDS, UTC)
    return Orders(until=until, cancel=state in _OVER, drain=bool(drain))


def _of_part(of: Row, name: str, log: str) -> str:
    """The lines of a task, each with its part of the job, if there are several."""
    if of["parts"] == 1:
        return log
    part_of = f"part {int(name.rpartition('-')[2]) + 1} of {of['parts']}: "
    return "".join(f"{part_of}{line}" for line in log.splitlines(keepends=True))


def _not_held(connection: Connection, name: str, epoch: int) -> ConflictError | MissingError:
    """Say why a worker does not have a task."""
    found = connection.execute(select(task.c.epoch, task.c.state).where(task.c.id == name)).first()
    if found is None:
        return MissingError(f"there is no task {name[:60]!r}")
    if found.epoch == epoch:
        return ConflictError(f"the lease {epoch} of task {name} has ended: the task is {found.state}")
    return ConflictError(f"the lease {epoch} of task {name} has run out")


def end(connection: Connection, name: str, outcome: Outcome, now: float) -> None:
    """Take in what came of a task: its findings and its state, all of it or nothing.

    The same outcome once more changes nothing. Raises MissingError, and ConflictError for an old epoch, or for another
    outcome of a task that is over, and UsageError for findings that are not about what the job is about.
    """
    values = {"state": outcome.state.value, "until": None, "progress": plain({"outcome": outcome.id})}
    ended = update(task).where(task.c.id == name, task.c.epoch == outcome.epoch, IS_HELD)
    done = connection.execute(ended.values(**values).returning(task)).mappings().first()
    if done is None:
        same = (task.c.epoch == outcome.epoch, task.c.progress == values["progress"], task.c.state.in_(_OVER))
        if connection.scalar(select(task.c.seq).where(task.c.id == name, *same)) is not None:
            return
        raise _not_held(connection, name, outcome.epoch)
    of = row_of(connection, done["job"], lock=True)
    check_own(record_of(of["request"], JobRequest), outcome)
    outcome = outcome.but(findings=tuple(own_of(of, one) for one in outcome.findings))
    add_log(connection, of["id"], _of_part(of, name, outcome.log))
    _keep_texts(connection, of, done["place"], outcome)
    for finding in sorted(outcome.findings, key=lambda f: f.id):
        report(connection, of, finding, now)
    if of["kind"] in {"verify", "replay"}:
        outcome = outcome if replayed(connection, of, outcome.verdict, now) else _of_another(outcome)
    if of["kind"] == "bisect" and outcome.commit:
        bisected(connection, of, outcome.verdict, outcome.commit)
    _end_of_job(connection, of, dict(done), outcome, now)


def _of_another(outcome: Outcome) -> Outcome:
    """A replay of what somebody else has sent: it says something about that, and nothing about the finding."""
    fine = outcome.verdict == "fixed"
    said = "does not fail with what was sent" if fine else f"with what was sent: {outcome.message}"
    words = f"{said}; the finding is about another kernel, and stays as it is"
    return outcome.but(verdict="passes" if fine else outcome.verdict, message=words)


def _keep_texts(connection: Connection, of: Row, place: int, outcome: Outcome) -> None:
    texts = {one.name: one.text for one in outcome.artifacts}
    if outcome.record:
        texts["record.json" if of["parts"] == 1 else f"record-{place}.json"] = outcome.record
    for name, body in sorted(texts.items()):
        new = insert(connection, artifact).values(job=of["id"], name=name, body=plain(body))
        same = {"body": new.excluded.body}
        connection.execute(new.on_conflict_do_update(index_elements=["job", "name"], set_=same))


def _end_of_job(connection: Connection, of: Row, done: Row, outcome: Outcome, now: float) -> None:
    """Add a task's outcome to its job, which may be over by it."""
    found = dict.fromkeys([*of["found"].split(), *(f.id for f in outcome.findings)])
    values: Row = {"found": " ".join(found)}
    if outcome.state is JobState.QUEUED:
        waiting = outcome.state.value if of["state"] not in _OVER else "cancelled"
        connection.execute(update(task).where(task.c.id == done["id"]).values(state=waiting, worker=""))
        if of["state"] not in _OVER:
            values["state"] = _state_of_rest(connection, of)
        else:
            values["open_tasks"] = of["open_tasks"] - 1
        connection.execute(update(job).where(job.c.id == of["id"]).values(**values))
        return
    told = added(record_of(of["progress"], Progress), outcome.progress)
    if of["kind"] == "fuzz":
        told = told.but(cells=max(told.cells, take_in(connection, of, outcome, now)))
    values |= {"open_tasks": of["open_tasks"] - 1, "progress": text_of(told), "worker": done["worker"]}
    worse = outcome.verdict and (not of["verdict"] or outcome.verdict == "wrong")
    if worse:
        values["verdict"] = clean(outcome.verdict)
    if outcome.message and (worse or not of["message"]):
        values["message"] = clean(outcome.message)
    if outcome.commit and of["kind"] == "bisect":
        values["commit_id"] = outcome.commit
    if outcome.environment:
        values["environment"] = text_of(outcome.environment)
    if of["state"] not in _OVER:
        values |= _state_after(connection, of, outcome, now)
    connection.execute(update(job).where(job.c.id == of["id"]).values(**values))


def _state_after(connection: Connection, of: Row, outcome: Outcome, now: float) -> Row:
    """The state of a job of which a task has just ended, and when and why it ended, if it did."""
    if outcome.state is not JobState.DONE:
        dropped = drop_waiting(connection, of["id"])
        said = {"state": outcome.state.value, "ended": now, "reason": clean(outcome.reason)}
        return {**said, "open_tasks": of["open_tasks"] - 1 - dropped}
    if of["open_tasks"] == 1 and of["handed"] == of["parts"]:
        return {"state": "done", "ended": now, "reason": ""}  # workers that went away did no harm
    return {"state": _state_of_rest(connection, of)}


def _state_of_rest(connection: Connection, of: Row) -> str:
    """`running` while a worker has a task of the job, else `queued`."""
    held = select(task.c.state).where(task.c.job == of["id"], IS_HELD).limit(1)
    return "running" if connection.scalar(held) else "queued"


def drop_waiting(connection: Connection, name: str) -> int:
    """Cancel the tasks of a job that nobody has; how many."""
    waiting = update(task).where(task.c.job == name, task.c.state == "queued")
    return connection.execute(waiting.values(state="cancelled")).rowcount


def overdue(connection: Connection, now: float) -> bool:
    """Whether a lease has run out, or a deadline has passed."""
    gone = select(task.c.seq).where(IS_HELD, task.c.until < now).limit(1)
    late = select(task.c.seq).where(task.c.state == "queued", task.c.deadline <= now).limit(1)
    return connection.scalar(gone) is not None or connection.scalar(late) is not None


def expire(connection: Connection, now: float) -> int:
    """Take tasks from workers whose leases have run out, and drop what is past its deadline; how many tasks changed."""
    lost = case((task.c.attempts + 1 >= LOSSES, "lost"), else_="queued")
    gone = update(task).where(IS_HELD, task.c.until < now)
    values = {
        "state": lost,
        "attempts": task.c.attempts + 1,
        "epoch": task.c.epoch + 1,
        "until": None,
        "progress": "{}",
    }
    rows = list(connection.execute(gone.values(**values).returning(task)).mappings())
    for row in rows:
        _after_loss(connection, dict(row), now)
    late = update(task).where(task.c.state == "queued", task.c.deadline <= now).values(state="failed")
    missed = set(connection.scalars(late.returning(task.c.job)))
    for name in sorted(missed):
        still_open = job.c.open_tasks - 1 - drop_waiting(connection, name)
        said = {"state": "failed", "ended": now, "reason": "its deadline passed before it was begun"}
        still = (job.c.id == name, job.c.state.not_in(_OVER))
        connection.execute(update(job).where(*still).values(**said, open_tasks=still_open))
    return len(rows) + len(missed)


def _after_loss(connection: Connection, row: Row, now: float) -> None:
    of = row_of(connection, row["job"], lock=True)
    who = f"the worker {row['worker']} went away"
    values: Row = {"attempts": of["attempts"] + 1}
    if of["state"] in _OVER:
        still = update(task).where(task.c.id == row["id"], task.c.state == row["state"])  # another's loss may drop it
        values["open_tasks"] = of["open_tasks"] - connection.execute(still.values(state=of["state"])).rowcount
    elif row["state"] == "lost":
        dropped = drop_waiting(connection, of["id"])
        reason = f"{who}; {LOSSES} leases of {row['id']} have run out"
        values |= {"state": "lost", "ended": now, "reason": reason, "open_tasks": of["open_tasks"] - 1 - dropped}
    else:
        values |= {"state": _state_of_rest(connection, of), "reason": f"{who}, and the task was queued again"}
    connection.execute(update(job).where(job.c.id == of["id"]).values(**values))
    note(connection, "", "lost", noun="job", about=of["id"], words=who, project=of["project"])


def drain(connection: Connection, name: str, who: str, *, wanted: bool) -> None:
    """Ask a worker to take no task any more, or take that back. Raises MissingError."""
    if not connection.execute(update(worker).where(worker.c.name == name).values(drain=wanted)).rowcount:
        raise MissingError(f"there is no worker {name[:100]!r}")
    note(connection, who, "drained" if wanted else "undrained", noun="worker", about=name)


def workers(connection: Connection) -> list[Row]:
    """All workers, what they have, and what they do now."""
    doing: dict[str, list[str]] = {}
    for who, what in connection.execute(select(task.c.worker, task.c.id).where(IS_HELD)):
        doing.setdefault(who, []).append(what)
    rows = connection.execute(select(worker).order_by(worker.c.name)).mappings()
    return [_worker(dict(row), doing.get(row["name"], [])) for row in rows]


def _worker(row: Row, tasks: list[str]) -> Row:
    seen = {name: datetime.fromtimestamp(row[name], UTC).isoformat() for name in ("first_seen", "seen")}
    texts = {name: json.loads(row[name]) for name in ("devices", "kinds", "environment")}
    alive = time.time() - row["seen"] < LEASE_SECONDS
    same = {name: row[name] for name in ("name", "drain", "local")}
    return {**same, **texts, **seen, "alive": alive, "tasks": tasks}
