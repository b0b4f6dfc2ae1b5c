"""Upkeep that nobody asks for: searches of projects when they are due, and old logs removed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlalchemy import Connection, case, delete, false, func, not_, select, update

from kernel_assay.corpus.storage.sql.service_tables import artifact, job, life, log, project, task
from kernel_assay.fuzz.service.problems import MissingError
from kernel_assay.fuzz.service.protocol import OVER, Checkout, Job, JobKind, JobRequest, JobState, Project, ProjectTold
from kernel_assay.fuzz.service.queue import jobs
from kernel_assay.fuzz.service.queue.database import Row
from kernel_assay.fuzz.service.queue.life import SOON, record, replayed
from kernel_assay.fuzz.service.queue.rows import SYSTEM, insert, moment, note, record_of, text_of
from kernel_assay.fuzz.timing import history

HOUR = 3600.0
MOST_FORGOTTEN = 200
"""Jobs whose logs are removed at a time: a transaction is to be short."""
_COUNTS = select(life.c.project, life.c.state, func.count()).group_by(life.c.project, life.c.state)
UNDONE = OVER - {JobState.DONE}
"""States of jobs that have ended and say nothing of what they were about."""
REPLAYED = ("new", "open", "reopened", "fixed")
"""Standings of findings that are replayed at a new commit."""


def put_project(connection: Connection, name: str, said: Project, who: str, now: float) -> None:
    """Begin a project, or change it. Raises UsageError for a timeout that no worker gives."""
    jobs.check_timeout(said.settings)
    row = {"record": text_of(said)}
    new = insert(connection, project).values(name=name, created=now, **row)
    connection.execute(new.on_conflict_do_update(index_elements=["name"], set_=row))
    note(connection, who, "project set", noun="project", about=name, project=name, words=said.repository)


def delete_project(connection: Connection, name: str, who: str) -> None:
    """Search a project no more, and take its jobs back; its findings stay. Raises MissingError."""
    told = project_of(connection, name)
    for one in connection.scalars(select(job.c.id).where(job.c.project == name, job.c.state.not_in(list(OVER)))).all():
        jobs.cancel(connection, one, who)
    connection.execute(delete(project).where(project.c.name == name))
    note(connection, who, "project deleted", noun="project", about=name, project=name, words=told.project.repository)


def projects(connection: Connection, name: str | None = None) -> list[ProjectTold]:
    """All projects, or one, by name."""
    counts: dict[str, dict[str, int]] = {}
    for of, state, number in connection.execute(_COUNTS):
        counts.setdefault(of, {})[state] = number
    asked = select(project).order_by(project.c.name)
    rows = connection.execute(asked if name is None else asked.where(project.c.name == name)).mappings()
    return [_told(dict(row), counts.get(row["name"], {}), _last(connection, row["name"], row["head"])) for row in rows]


def _last(connection: Connection, name: str, head: str) -> Job | None:
    """The search of a project that has ended last; one of its last commit, if there is one."""
    ended = (job.c.project == name, job.c.kind == JobKind.FUZZ.value, job.c.state.in_(list(OVER)))
    of_head = case((jobs.is_of_commit(head), 0), else_=1)
    rows = connection.execute(select(job).where(*ended).order_by(of_head, job.c.seq.desc()).limit(1)).mappings()
    return next(iter(jobs.told(connection, [dict(row) for row in rows])), None)


def project_of(connection: Connection, name: str) -> ProjectTold:
    """One project. Raises MissingError."""
    found = projects(connection, name)
    if not found:
        raise MissingError(f"there is no project {name[:100]!r}")
    return found[0]


def _told(row: Row, counts: dict[str, int], last: Job | None) -> ProjectTold:
    created = moment(row["created"])
    assert created is not None
    return ProjectTold(
        name=row["name"],
        project=record_of(row["record"], Project),
        head=row["head"],
        created=created,
        fuzzed=moment(row["fuzzed"]),
        findings=counts,
        last=last,
    )


def push(connection: Connection, name: str, commit: str, who: str, now: float) -> dict[str, list[str]]:
    """Take in a new commit: its findings are replayed there, then it is searched.

    Ids of all its `jobs`, and of those the ones that were `queued` now, were on their way (`waiting`) or `done`: the
    same commit again makes no job twice, but those that failed, were lost or cancelled. Raises MissingError.
    """
    told, before = project_of(connection, name), jobs.of_commit(connection, name, commit)
    for row in before:  # the beginning of an id means the one that is known
        known = record_of(row["request"], JobRequest).checkout
        commit = known.commit if known and known.commit.startswith(commit) else commit
    checkout = Checkout(repository=told.project.repository, commit=commit)
    connection.execute(update(project).where(project.c.name == name).values(head=commit, fuzzed=now))
    tried: dict[str, list[Row]] = {}
    for row in before:
        if row["kind"] == JobKind.VERIFY and row["state"] == JobState.DONE:
            replayed(connection, row, row["verdict"], now)  # what it said counts again
        tried.setdefault(jobs.root_of(row["key"]), []).append(row)
    wanted = [*_replays(connection, told, checkout), _search(told, checkout, f"push:{name}:{commit}")]
    made = [_once(connection, one, tried.get(one.key, [])) for one in wanted]
    if any(how == "queued" for how, _ in made):
        note(connection, who, "commit", noun="project", about=name, project=name, words=commit)
    by_state = {state: [one for how, one in made if how == state] for state in ("queued", "waiting", "done")}
    return {"jobs": [one for _, one in made], **by_state}


def _once(connection: Connection, request: JobRequest, tried: Sequence[Row]) -> tuple[str, str]:
    """Queue a job, unless one of those that were tried before is done, or may be; how it stands, and its id."""
    for row in reversed(tried):
        if row["state"] not in UNDONE:
            return "done" if row["state"] == JobState.DONE else "waiting", str(row["id"])
    key = jobs.next_key(connection, tried[-1]) if tried else request.key
    return "queued", jobs.submit(connection, request.but(key=key), SYSTEM)[0]


def _replays(connection: Connection, told: ProjectTold, checkout: Checkout) -> Iterator[JobRequest]:
    asked = select(life.c.finding).where(life.c.project == told.name, life.c.state.in_(REPLAYED))
    for name in connection.scalars(asked.order_by(life.c.seq)).all():
        yield JobRequest(
            kind=JobKind.VERIFY,
            project=told.name,
            target=told.project.target,
            checkout=checkout,
            settings=told.project.settings.but(seconds=None, cases=None),
            finding=record(connection, name, told.name),
            priority=SOON,
            key=f"verify:{told.name}:{checkout.commit}:{name}",
        )


def _search(told: ProjectTold, checkout: Checkout, key: str) -> JobRequest:
    said = told.project
    return JobRequest(
        kind=JobKind.FUZZ,
        project=told.name,
        target=said.target,
        checkout=checkout,
        settings=said.settings,
        priority=said.priority,
        key=key,
    )


def begin_searches(connection: Connection, now: float) -> int:
    """Queue searches of projects that are due, and of which none waits or runs; how many."""
    busy = set(connection.scalars(select(job.c.project).where(job.c.kind == "fuzz", job.c.state.not_in(list(OVER)))))
    begun = 0
    for told in projects(connection):
        due = (told.fuzzed.timestamp() if told.fuzzed else 0.0) + told.project.every_hours * HOUR
        if told.head and told.name not in busy and now >= due:
            checkout = Checkout(repository=told.project.repository, commit=told.head)
            jobs.submit(connection, _search(told, checkout, f"search:{told.name}:{int(now)}"), SYSTEM)
            connection.execute(update(project).where(project.c.name == told.name).values(fuzzed=now))
            begun += 1
    return begun


def forget(connection: Connection, before: float) -> int:
    """Remove logs, texts and tasks of jobs that ended before a time, a few at a time; how many jobs it were.

    Jobs themselves, their times, findings and what happened stay.
    """
    has_tasks = select(task.c.job).where(task.c.job == job.c.id).exists()
    old = list(connection.scalars(select(job.c.id).where(job.c.ended < before, has_tasks).limit(MOST_FORGOTTEN)))
    for table in (log, artifact, task) if old else ():
        gone = table.c.job.in_(old)
        kept = artifact.c.name == history.NAME if table is artifact else false()  # times are compared for years
        connection.execute(delete(table).where(gone, not_(kept)))
    return len(old)
