"""Jobs as people see them: submitted, listed, cancelled."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from functools import cache

from sqlalchemy import Connection, and_, false, func, literal_column, or_, select, update
from sqlalchemy.sql.elements import ColumnElement

from kernel_assay import __version__
from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.process.child import HOME
from kernel_assay.corpus.storage.sql.service_tables import artifact, job, life, log, source, task
from kernel_assay.fuzz.service.problems import MissingError
from kernel_assay.fuzz.service.protocol import (
    LONGEST,
    OVER,
    Job,
    JobKind,
    JobRequest,
    JobState,
    Progress,
    Settings,
    Sources,
    Target,
)
from kernel_assay.fuzz.service.queue.database import Row, clean, plain
from kernel_assay.fuzz.service.queue.rows import SYSTEM, insert, moment, note, pairs, record_of, text_of, until_of
from kernel_assay.fuzz.service.queue.schedule import next_tag, parts_of
from kernel_assay.fuzz.service.repository import check_repository, is_path

MOST_LOG = 1 << 20
"""Characters of a job's log that are kept."""
MOST_ROOT = 190
"""Characters of a key that a job has in common with those that took its place when it was tried again."""
IS_HELD = task.c.state.in_([literal_column("'leased'"), literal_column("'running'")])
"""Of tasks that a worker has; written out, for so an index is of use to SQLite."""


def keep_sources(connection: Connection, sources: Sources) -> str:
    """Keep what was sent under its digest, once; the digest."""
    row = {"digest": sources.digest, "record": text_of(sources)}
    connection.execute(insert(connection, source).values(**row).on_conflict_do_nothing())
    return sources.digest


def submit(connection: Connection, request: JobRequest, owner: str, *, sources: str = "") -> tuple[str, bool]:
    """Queue a job; its id, and whether it is new: the same key of the same owner is the same job.

    sources: the digest of what was sent before, where the request brings nothing. Raises UsageError for a request that
    makes no sense.
    """
    _check(request)
    if owner != SYSTEM:  # a project's may be of a time when more was taken, and are cut by workers
        check_timeout(request.settings)
    parts, until = parts_of(request), until_of(request.deadline)
    if request.finding and not (sources or request.sources or request.checkout):
        request, sources = _with_files(connection, request, request.finding.id)
    elif request.sources:
        sources = keep_sources(connection, request.sources)
    request = request.but(sources=None)
    values: Row = {
        "id": secrets.token_hex(8),
        "kind": request.kind.value,
        "project": request.project,
        "share": request.project or f"~{owner}",
        "request": text_of(request),
        "sources": sources,
        "finding": request.finding.id if request.finding else "",
        "content": content_of(request, sources),
        "priority": request.priority,
        "deadline": until,
        "owner": owner,
        "key": clean(request.key) or None,
        "created": time.time(),
        "seed": secrets.randbits(62) if request.settings.seed is None else request.settings.seed,
        "parts": parts,
    }
    made = insert(connection, job).values(**values).on_conflict_do_nothing().returning(job.c.id)
    found = connection.scalar(made)
    if found is None:
        known = connection.execute(
            select(job.c.id, job.c.content).where(job.c.owner == owner, job.c.key == values["key"])
        ).one()
        if owner != SYSTEM and known.content != values["content"]:
            raise UsageError(f"the key {request.key[:40]!r} is that of job {known.id}, which asks for something else")
        return str(known.id), False
    queue_task(connection, values, 0)
    note(connection, owner, "submitted", noun="job", about=found, words=request.kind.value, project=request.project)
    return str(found), True


def again(connection: Connection, name: str, owner: str) -> str:
    """Submit a job once more, as it was; the new id. Raises MissingError.

    One of a project is known by its key to be another try of the same, as the status of a commit asks.
    """
    row = row_of(connection, name)
    same = record_of(row["request"], JobRequest).but(key=next_key(connection, row), deadline=None)
    return submit(connection, same, owner, sources=row["sources"])[0]


def next_key(connection: Connection, row: Row) -> str:
    """The key of one more try of a project's job; empty for any other."""
    if not (row["project"] and row["key"]):
        return ""
    root = root_of(row["key"])
    mine = or_(job.c.key == root, job.c.key.startswith(f"{root}#", autoescape=True))
    tries = select(func.count()).select_from(job).where(job.c.project == row["project"], mine)
    return f"{root}#{connection.scalar(tries)}"


def root_of(key: str) -> str:
    """The part of a key that all tries of a job have."""
    return key.partition("#")[0][:MOST_ROOT]


def _with_files(connection: Connection, request: JobRequest, finding: str) -> tuple[JobRequest, str]:
    """A request about a finding that brings no files, and the digest of those that the job had which met it first."""
    met = select(life.c.job).where(life.c.finding == finding, life.c.project == (request.project or ""))
    asked = select(job.c.request, job.c.sources).where(job.c.id == met.limit(1).scalar_subquery())
    first = connection.execute(asked).first()
    if first is None:
        return request, ""
    before = record_of(first.request, JobRequest)
    target = before.target if request.target == Target() else request.target
    return request.but(target=target, checkout=before.checkout), first.sources


def check_timeout(settings: Settings) -> None:
    """Raises UsageError for more than workers give an execution."""
    if (settings.timeout or 0.0) > LONGEST:
        raise UsageError(f"settings.timeout: it must be {LONGEST:.0f} at most")


def _check(request: JobRequest) -> None:
    """Raises UsageError for what a record may hold, and nobody can do."""
    target = request.target
    if not target.references and (unknown := [op for op in target.ops if op not in known_ops()]):
        near = get_close_matches(unknown[0], known_ops(), 1)
        hint = f"; did you mean {near[0]}?" if near else f"; the known ones are {', '.join(sorted(known_ops()))}"
        raise UsageError(f"op {unknown[0]!r} is not known{hint}")
    if request.kind is JobKind.REPLAY and not (request.finding or request.sources or request.checkout):
        raise UsageError("a job of kind replay needs a finding, or files or a checkout with stored cases")
    if request.checkout:
        check_repository(request.checkout.repository)


@cache
def known_ops() -> frozenset[str]:
    """Names of the built-in ops, by their files: the server imports no oracle."""
    return frozenset(path.stem for path in (HOME / "kernel_assay/oracles/contracts").glob("[!_]*.py"))


LOCAL = " local"
"""Stands behind the device of a task whose repository is a path: workers take it that were told to (--allow-local)."""


def queue_task(connection: Connection, of: Row, place: int) -> None:
    """Queue one part of a job, whose row is given."""
    request = json.loads(of["request"])
    device, repository = request["settings"]["device"], (request.get("checkout") or {}).get("repository", "")
    row = {
        "id": f"{of['id']}-{place}",
        "job": of["id"],
        "kind": of["kind"],
        "device": device + LOCAL * is_path(repository),
        "place": place,
        "rank": 9 - of["priority"],
        "tag": next_tag(connection, of["share"]),
        "deadline": None if place else of["deadline"],  # of one that was begun the rest is done
    }
    connection.execute(task.insert().values(**row))


def content_of(request: JobRequest, sources: str) -> str:
    """A digest of all that decides what a job answers, this version of the tool among it."""
    named = ("kind", "target", "checkout", "settings", "finding", "good")
    said = {name: value for name, value in request.plain().items() if name in named}
    return hashlib.sha256(plain([said, sources, __version__]).encode()).hexdigest()


def same_answer(connection: Connection, content: str) -> tuple[str, JobState] | None:
    """The latest job of this content that was done, or that is on its way."""
    good = [state.value for state in (JobState.DONE, JobState.QUEUED, JobState.LEASED, JobState.RUNNING)]
    found = connection.execute(
        select(job.c.id, job.c.state).where(job.c.content == content, job.c.state.in_(good)).order_by(job.c.seq.desc())
    ).all()
    done = [row for row in found if row.state == "done"]
    return next(((str(row.id), JobState(row.state)) for row in [*done, *found]), None)


def cancel(connection: Connection, name: str, who: str) -> None:
    """Take a job back: what waits is dropped, who runs is told with the next heartbeat. Raises MissingError."""
    row = row_of(connection, name)
    if JobState(row["state"]) in OVER:
        return
    waiting = update(task).where(task.c.job == name, task.c.state == "queued").values(state="cancelled")
    dropped = connection.execute(waiting).rowcount
    ended = {"state": "cancelled", "ended": time.time(), "reason": f"cancelled by {who}"}
    still = job.c.state.not_in([state.value for state in OVER])
    connection.execute(
        update(job).where(job.c.id == name, still).values(**ended, open_tasks=job.c.open_tasks - dropped)
    )
    note(connection, who, "cancelled", noun="job", about=name, project=row["project"])


def row_of(connection: Connection, name: str, *, lock: bool = False) -> Row:
    """The row of a job. Raises MissingError."""
    asked = select(job).where(job.c.id == name)
    found = connection.execute(asked.with_for_update() if lock else asked).mappings().first()
    if found is None:
        raise MissingError(f"there is no job {name[:40]!r}")
    return dict(found)


def is_over(connection: Connection, name: str) -> bool:
    """Whether a job has ended, or is gone: of who waits for one, that is asked far more often than what it says."""
    state = connection.scalar(select(job.c.state).where(job.c.id == name))
    return state is None or JobState(state) in OVER


def get(connection: Connection, name: str) -> Job:
    """A job as it is told. Raises MissingError."""
    return told(connection, [row_of(connection, name)])[0]


def listed(
    connection: Connection,
    *,
    states: Iterable[str] = (),
    project: str | None = None,
    kind: str | None = None,
    after: int | None = None,
    limit: int = 50,
) -> tuple[list[Job], int | None]:
    """Jobs, the latest first, and where the next page begins; None: there is none."""
    asked: list[ColumnElement[bool]] = []
    if wanted := list(states):
        asked.append(job.c.state.in_(wanted))
    for column, value in ((job.c.project, project), (job.c.kind, kind)):
        if value is not None:
            asked.append(column == value)
    if after is not None:
        asked.append(job.c.seq < after)
    rows = connection.execute(select(job).where(and_(True, *asked)).order_by(job.c.seq.desc()).limit(limit + 1))
    found = [dict(row) for row in rows.mappings()]
    more = found[limit - 1]["seq"] if len(found) > limit else None
    return told(connection, found[:limit]), more


_SURE = {"wrong", "fails"}
"""Verdicts that no part which was not run could change: a job that was cancelled says no other."""


def told(connection: Connection, rows: Sequence[Row]) -> list[Job]:
    """Jobs, with their places in the queue, and what their tasks say of themselves right now."""
    ids = [row["id"] for row in rows]
    waiting = [row["id"] for row in rows if row["state"] == "queued"]
    places = _places(connection, waiting) if waiting else {}
    live: dict[str, list[Progress]] = {}
    for name, text in connection.execute(select(task.c.job, task.c.progress).where(task.c.job.in_(ids), IS_HELD)):
        live.setdefault(name, []).append(record_of(text, Progress))
    texts: dict[str, list[str]] = {}
    for name, text in connection.execute(
        select(artifact.c.job, artifact.c.name).where(artifact.c.job.in_(ids)).order_by(artifact.c.name)
    ):
        texts.setdefault(name, []).append(text)
    return [_told(row, places.get(row["id"]), live.get(row["id"], []), texts.get(row["id"], [])) for row in rows]


def _told(row: Row, position: int | None, live: Sequence[Progress], texts: Sequence[str]) -> Job:
    request = record_of(row["request"], JobRequest)
    progress = record_of(row["progress"], Progress)
    for one in live:
        progress = added(progress, one)
    return Job(
        id=row["id"],
        kind=JobKind(row["kind"]),
        project=row["project"],
        target=request.target,
        settings=request.settings,
        sources=row["sources"],
        checkout=request.checkout,
        finding=row["finding"] or None,
        priority=row["priority"],
        state=JobState(row["state"]),
        position=position,
        attempts=row["attempts"],
        worker=row["worker"] or None,
        created=moment(row["created"]) or request.deadline,
        started=moment(row["started"]),
        ended=moment(row["ended"]),
        deadline=request.deadline,
        reason=row["reason"],
        progress=progress,
        verdict=row["verdict"] if row["state"] == "done" or row["verdict"] in _SURE else "",
        message=row["message"],
        findings=tuple(row["found"].split()),
        commit=row["commit_id"] or None,
        artifacts=tuple(texts),
    )


def added(a: Progress, b: Progress) -> Progress:
    """The progress of two parts; what they cover is not told apart, so the larger count stands."""
    return Progress(
        cases=a.cases + b.cases,
        judged=a.judged + b.judged,
        findings=a.findings + b.findings,
        cells=max(a.cells, b.cells),
        seconds=a.seconds + b.seconds,
        line=b.line or a.line,
    )


def _places(connection: Connection, names: Sequence[str]) -> dict[str, int]:
    """Count the tasks that come before the first one of each job."""
    order = (task.c.rank, task.c.tag, task.c.seq)
    ranked = select(task.c.job, (func.row_number().over(order_by=order) - 1).label("place"))
    queue = ranked.where(task.c.state == "queued").subquery()
    first = select(queue.c.job, func.min(queue.c.place)).where(queue.c.job.in_(names)).group_by(queue.c.job)
    return pairs(connection, first)


def is_of_commit(commit: str) -> ColumnElement[bool]:
    """Whether a job is about a commit of its project."""
    return job.c.key.like(f"%:{commit}%") if commit.isalnum() else false()


def of_commit(connection: Connection, project: str, commit: str) -> list[Row]:
    """Jobs of a project at a commit, the first one first; replays and searches keep it in their keys."""
    asked = select(job).where(job.c.project == project, is_of_commit(commit))
    return [dict(row) for row in connection.execute(asked.order_by(job.c.seq)).mappings()]


def log_of(connection: Connection, name: str, after: int = 0) -> tuple[str, int]:
    """The log of a job behind a place, and the place of its end. Raises MissingError."""
    row_of(connection, name)
    lines = connection.execute(
        select(log.c.seq, log.c.body).where(log.c.job == name, log.c.seq > after).order_by(log.c.seq)
    )
    found = lines.all()
    return "".join(row.body for row in found), found[-1].seq if found else after


def add_log(connection: Connection, name: str, text: str) -> None:
    """Append to the log of a job, up to MOST_LOG characters."""
    if not text:
        return
    text = clean(text, 1 << 16)
    grown = update(job).where(job.c.id == name).values(log_bytes=job.c.log_bytes + len(text)).returning(job.c.log_bytes)
    size = connection.scalar(grown) or 0
    if size <= MOST_LOG:
        connection.execute(log.insert().values(job=name, body=text))
    elif size - len(text) <= MOST_LOG:
        connection.execute(
            log.insert().values(job=name, body=f"\n... what follows is not kept: more than {MOST_LOG >> 20} MB\n")
        )


def artifact_of(connection: Connection, name: str, text: str) -> str:
    """A text that a job made. Raises MissingError."""
    row_of(connection, name)
    body = connection.scalar(select(artifact.c.body).where(artifact.c.job == name, artifact.c.name == text))
    if body is None:
        raise MissingError(f"the job {name} made nothing of the name {text[:100]!r}")
    return str(json.loads(body))


def small_sources(connection: Connection, digest: str, most: int) -> dict[str, str]:
    """Files that were sent, by their digest; none if they, as JSON, are longer than that."""
    small = select(source.c.record).where(source.c.digest == digest, func.length(source.c.record) <= most)
    found = connection.scalar(small)
    return {} if found is None else record_of(found, Sources).files


def sources_of(connection: Connection, digest: str) -> Sources:
    """Sources that were sent, by their digest. Raises MissingError."""
    found = connection.scalar(select(source.c.record).where(source.c.digest == digest))
    if found is None:
        raise MissingError(f"there are no sources {digest[:64]!r}")
    return record_of(found, Sources)
